package io.plimsoll.opensearch;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.opensearch.tasks.Task;

/**
 * A thread that looks every 10 ms at what requests have taken that are older than that. Of others their end is soon enough. It parks while there is no request at all.
 */
final class Sampler implements Runnable {
    private static final Logger LOG = LogManager.getLogger(Sampler.class);
    private static final long LOOK_NS = 10_000_000;
    /** Requests that are looked at at a time. The oldest come first: they have the threads, and whoever holds up all others is one of them. */
    private static final int MOST = 1024;

    private final Roots roots;
    private final Processors processors = new Processors();
    private final Thread thread = new Thread(null, this, "plimsoll-sampler", 0, false);
    /** Those that this thread has accounts of. */
    private final List<Root> entered = new ArrayList<>();
    private long number;
    private long lastNs;
    private boolean failed;
    private volatile boolean parks;
    private volatile boolean closed;

    Sampler(Roots roots) {
        this.roots = roots;
        thread.setDaemon(true);
    }

    void start() {
        thread.start();
    }

    void close() {
        closed = true;
        LockSupport.unpark(thread);
    }

    /** A request has come, after it is among the roots. */
    void wake() {
        if (parks) {
            // The next need not do it, too.
            parks = false;
            LockSupport.unpark(thread);
        }
    }

    @Override
    public void run() {
        while (!closed) {
            if (roots.isEmpty() && entered.isEmpty()) {
                parks = true;
                if (roots.isEmpty() && !closed) {
                    LockSupport.park(this);
                }
                parks = false;
                lastNs = 0;
            }
            LockSupport.parkNanos(this, LOOK_NS);
            try {
                look(System.nanoTime());
            } catch (RuntimeException | Error e) {
                // Whatever it is, such as a heap that is full: the next look may be better.
                say(e);
            }
        }
    }

    private void say(Throwable e) {
        if (!failed) {
            failed = true;
            try {
                LOG.warn("a look at what requests take has failed", e);
            } catch (RuntimeException | Error again) {
                // It cannot be said, either.
            }
        }
    }

    /** By its own thread, or a test's instead. */
    void look(long nowNs) {
        leave();
        List<Root> old = old(nowNs);
        if (old.isEmpty()) {
            lastNs = 0;
            return;
        }
        if (lastNs == 0) {
            // Since when, nobody knows.
            processors.begin(nowNs);
            lastNs = nowNs;
        }
        long pausedNs = processors.pausedNs();
        boolean busy = processors.areBusy(nowNs);
        long elapsedNs = Math.max(0, nowNs - lastNs - pausedNs);
        lastNs = nowNs;
        number++;
        for (Root root : old) {
            root.look().begin(number);
        }
        for (Task task : roots.tasks()) {
            Root root = roots.of(task);
            if (root != null && root.look().isPartOf(number)) {
                root.look().add(task);
            }
        }
        for (Root root : old) {
            if (!root.hasEnded()) {
                account(root, nowNs, elapsedNs, busy);
            }
        }
    }

    /** What fails for one is no reason to pass by the others. */
    private void account(Root root, long nowNs, long elapsedNs, boolean busy) {
        boolean before = root.look().isEntered();
        try {
            root.look().end(nowNs, elapsedNs, busy);
        } catch (RuntimeException e) {
            say(e);
        } finally {
            if (!before && root.look().isEntered()) {
                entered.add(root);
            }
        }
    }

    private List<Root> old(long nowNs) {
        List<Root> old = new ArrayList<>();
        for (Root root : roots.all()) {
            if (old.size() == MOST || nowNs - root.node().getStartTimeNanos() < LOOK_NS) {
                break;
            }
            old.add(root);
        }
        return old;
    }

    private void leave() {
        entered.removeIf(root -> {
            if (root.hasEnded()) {
                root.look().leave();
                return true;
            }
            return false;
        });
    }
}
