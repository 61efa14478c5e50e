package io.plimsoll.opensearch;

import io.plimsoll.Work;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.opensearch.tasks.Task;

/**
 * One request of a client, and what all that works for it has taken.
 *
 * <p>Who has worked for it and has ended is remembered as a sum: a request may have any number of parts, one after the other.
 */
final class Root {
    private static final Logger LOG = LogManager.getLogger(Root.class);

    private final Task node;
    private final io.plimsoll.Task task;
    private final Roots roots;
    private final Resources resources;
    private final Threads threads;
    private final AtomicBoolean ended = new AtomicBoolean();
    /** Whether a thread accounts just now. Nobody waits for it: what one misses another finds, or nobody does. */
    private final AtomicBoolean accounts = new AtomicBoolean();
    /** Of parts that have ended. */
    private final AtomicReference<Taken> done = new AtomicReference<>(Taken.NOTHING);
    private volatile Taken accounted = Taken.NOTHING;
    /** Of a wait that the sampler accounts: 0 if there was none. */
    private volatile long waitsSinceNs;
    /** 0 while it lasts. */
    private volatile long waitsUntilNs;
    /** The sampler's alone. */
    private Look look;

    Root(Task node, io.plimsoll.Task task, Roots roots, Resources resources, Threads threads) {
        this.node = node;
        this.task = task;
        this.roots = roots;
        this.resources = resources;
        this.threads = threads;
    }

    /** As OpenSearch knows it. */
    Task node() {
        return node;
    }

    /** As the ledger knows it. */
    io.plimsoll.Task task() {
        return task;
    }

    boolean hasEnded() {
        return ended.get();
    }

    /** A part has ended that had taken so much. */
    void add(Taken part) {
        done.accumulateAndGet(new Taken(part.bytes(), part.cpuNs(), 0), Taken::plus);
    }

    /** What those have taken that have ended. */
    Taken done() {
        return done.get();
    }

    boolean isNews(Taken total) {
        Taken accounted = this.accounted;
        return total.bytes() > accounted.bytes() || total.cpuNs() > accounted.cpuNs();
    }

    /** Accounts what was taken since the last time, by a thread that works for the task. So many nanoseconds of processors are new. */
    long account(Taken total) {
        if (!accounts.compareAndSet(false, true)) {
            return 0;
        }
        try {
            // A part that ends while somebody looks may not be seen this once, so that there seems to be less.
            long bytes = Math.max(0, total.bytes() - accounted.bytes());
            long cpuNs = Math.max(0, total.cpuNs() - accounted.cpuNs());
            task.get(resources.heap(), bytes);
            task.get(resources.processors(), cpuNs);
            accounted = accounted.plus(new Taken(bytes, cpuNs, 0));
            return cpuNs;
        } finally {
            accounts.set(false);
        }
    }

    /** The request is answered. Once is enough; by any thread. What it took since the sampler last looked, or all if that never did, is accounted first. */
    void end() {
        if (!ended.compareAndSet(false, true)) {
            return;
        }
        roots.remove(this);
        try {
            Taken total = done().plus(Taken.by(node, threads));
            if (isNews(total)) {
                try (Work work = task.enter()) {
                    account(total);
                }
            }
        } catch (RuntimeException e) {
            LOG.debug("the end of a request goes unaccounted", e);
        } finally {
            task.close();
        }
    }

    void waits(long nowNs) {
        waitsUntilNs = 0;
        waitsSinceNs = nowNs;
    }

    void waitsNoMore(long nowNs) {
        waitsUntilNs = nowNs;
    }

    /** What of a wait the sampler does not account. */
    long unaccountedOf(long fromNs, long toNs) {
        long sinceNs = waitsSinceNs;
        if (sinceNs == 0) {
            return Math.max(0, toNs - fromNs);
        }
        long untilNs = waitsUntilNs;
        long endNs = untilNs == 0 ? toNs : Math.min(untilNs, toNs);
        return Math.max(0, toNs - fromNs - Math.max(0, endNs - Math.max(fromNs, sinceNs)));
    }

    Look look() {
        if (look == null) {
            look = new Look(this, resources, threads);
        }
        return look;
    }
}
