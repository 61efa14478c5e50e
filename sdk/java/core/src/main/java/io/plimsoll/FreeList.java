package io.plimsoll;

import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The free ones among numbered records, as a stack that any thread takes from and gives back to without a lock. Nothing is allocated: a record's place in
 * {@code links} names the one beneath it.
 */
final class FreeList {
    /** Low half: the topmost record plus 1, 0 if there is none. High half: counts changes, so that one that came back is not mistaken for one that stayed. */
    private final AtomicLong top = new AtomicLong();
    private final AtomicIntegerArray links;

    /** Lists of distinct records may share {@code links}. */
    FreeList(AtomicIntegerArray links) {
        this.links = links;
    }

    /** Takes one; -1 if there is none. */
    int take() {
        while (true) {
            long was = top.get();
            int index = (int) was - 1;
            if (index < 0) {
                return -1;
            }
            if (top.compareAndSet(was, changed(was, links.get(index)))) {
                return index;
            }
        }
    }

    void giveBack(int index) {
        while (true) {
            long was = top.get();
            links.set(index, (int) was);
            if (top.compareAndSet(was, changed(was, index + 1))) {
                return;
            }
        }
    }

    private static long changed(long was, int topmost) {
        return ((was >>> 32) + 1) << 32 | topmost;
    }
}
