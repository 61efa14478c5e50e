package io.plimsoll.testbed;

import io.plimsoll.Plimsoll;
import io.plimsoll.Task;
import io.plimsoll.TrackedLock;
import io.plimsoll.TrackedPool;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.IntStream;

/** What the requests share, and what they do with it: eight workers, a table with one lock, a cache of pages. */
final class Shop {
    private static final int WORKERS = 8;
    private static final int HOT_PAGES = 200;
    private static final long TABLE_WORK_NS = 200_000;
    /** How often what lasts looks up to say how far it is. */
    private static final long STEP_MS = 10;

    private final Workers workers;
    private final Lock table;
    private final PageCache pages;

    /** Without an app (null) nobody keeps account, and workers and table are what the JDK has: what accounts cost is measured against that. */
    Shop(Plimsoll app, long missMs) {
        workers = app == null ? plainWorkers() : trackedWorkers(app);
        table = app == null ? new ReentrantLock() : new TrackedLock(app, "table");
        pages = new PageCache(app, "pages", 256, missMs);
    }

    /** Lends a worker until what it gives is closed. */
    private interface Workers {
        Lent take() throws InterruptedException;
    }

    private interface Lent extends AutoCloseable {
        @Override
        void close();
    }

    private static Workers trackedWorkers(Plimsoll app) {
        TrackedPool<Integer> pool = new TrackedPool<>(app, "workers", IntStream.range(0, WORKERS).boxed().toList());
        return () -> pool.take()::close;
    }

    private static Workers plainWorkers() {
        Semaphore permits = new Semaphore(WORKERS, true);
        ConcurrentLinkedDeque<Integer> free = new ConcurrentLinkedDeque<>(IntStream.range(0, WORKERS).boxed().toList());
        return () -> {
            permits.acquire();
            Integer worker = free.pollFirst();
            return () -> {
                free.addFirst(worker);
                permits.release();
            };
        };
    }

    /** About a millisecond, where nobody is in the way. */
    void item(long id) throws InterruptedException {
        try (Lent worker = workers.take()) {
            table.lockInterruptibly();
            try {
                long until = System.nanoTime() + TABLE_WORK_NS;
                while (System.nanoTime() - until < 0) {
                    Thread.onSpinWait();
                }
            } finally {
                table.unlock();
            }
            pages.read(id % HOT_PAGES);
        }
    }

    void hogLock(Task task, double seconds) throws InterruptedException {
        try (Lent worker = workers.take()) {
            table.lockInterruptibly();
            try {
                sleep(task, seconds);
            } finally {
                table.unlock();
            }
        }
    }

    void hogCache(Task task, double seconds) throws InterruptedException {
        try (Lent worker = workers.take()) {
            long began = System.nanoTime();
            int kept = 0;
            for (long page = HOT_PAGES; progress(task, began, seconds); page += PageCache.READ_AHEAD) {
                kept = pages.scan(page, kept);
            }
        }
    }

    void hogPool(Task task, double seconds) throws InterruptedException {
        try (Lent worker = workers.take()) {
            sleep(task, seconds);
        }
    }

    /** Lasts, and says how long still. */
    static void sleep(Task task, double seconds) throws InterruptedException {
        long began = System.nanoTime();
        while (progress(task, began, seconds)) {
            Thread.sleep(STEP_MS);
        }
    }

    /** Says how many milliseconds have passed; whether there are more. */
    private static boolean progress(Task task, long beganNs, double seconds) {
        long passedMs = (System.nanoTime() - beganNs) / 1_000_000;
        long allMs = (long) (seconds * 1_000);
        if (task != null) {
            task.progress(Math.min(passedMs, allMs), allMs);
        }
        return passedMs < allMs;
    }
}
