package io.plimsoll.testbed;

import io.plimsoll.Hold;
import io.plimsoll.Kind;
import io.plimsoll.Plimsoll;
import io.plimsoll.Resource;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/** A cache of pages that evicts what was used least recently. What is not in it takes a while to read. */
final class PageCache {
    /** So many pages a scan reads at once. */
    static final int READ_AHEAD = 32;

    /** Null: nobody keeps account. */
    private final Resource resource;
    private final long readMs;
    private final int capacity;
    /** In the order of their last use. Guarded by itself, for no longer than a look takes. */
    private final Map<Long, Boolean> pages = new LinkedHashMap<>(512, 0.75f, true);

    PageCache(Plimsoll app, String name, int capacity, long readMs) {
        this.resource = app == null ? null : app.resource(Kind.MEMORY, name, capacity);
        this.capacity = capacity;
        this.readMs = readMs;
    }

    /** Reads one page, and has done with it. */
    void read(long page) throws InterruptedException {
        synchronized (pages) {
            if (pages.get(page) != null) {
                touch();
                return;
            }
        }
        load(page, 1);
        if (resource != null) {
            resource.free(1);
        }
    }

    /** Reads as many pages as are read ahead for a scan that has {@code kept} already. How many it has then: what it had before makes room for what is new, and all is given back with the task. */
    int scan(long first, int kept) throws InterruptedException {
        load(first, READ_AHEAD);
        int tooMany = Math.max(0, kept + READ_AHEAD - capacity);
        if (resource != null) {
            resource.free(tooMany);
        }
        return kept + READ_AHEAD - tooMany;
    }

    private void touch() {
        if (resource != null) {
            try (Hold hold = resource.hold()) {
                return;
            }
        }
    }

    private void load(long first, int count) throws InterruptedException {
        long began = System.nanoTime();
        Thread.sleep(readMs);
        int evicted = 0;
        synchronized (pages) {
            for (int i = 0; i < count; i++) {
                pages.put(first + i, true);
            }
            Iterator<Long> oldest = pages.keySet().iterator();
            while (pages.size() > capacity) {
                oldest.next();
                oldest.remove();
                evicted++;
            }
        }
        if (resource == null) {
            return;
        }
        if (evicted > 0) {
            resource.slow(evicted, System.nanoTime() - began);
        }
        resource.get(count);
    }
}
