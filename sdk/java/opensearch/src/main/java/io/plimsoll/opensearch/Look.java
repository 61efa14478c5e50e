package io.plimsoll.opensearch;

import io.plimsoll.Wait;
import io.plimsoll.Work;
import org.opensearch.action.search.SearchShardTask;
import org.opensearch.index.reindex.BulkByScrollTask;
import org.opensearch.tasks.Task;

/** What the sampler sees of a request, look by look. Used by its thread alone. */
final class Look {
    private final Root root;
    private final Resources resources;
    private final Threads threads;
    /** Null while nothing was accounted by this thread. */
    private Work work;
    /** Null while it does not wait. */
    private Wait wait;
    /** Which look it was part of last. */
    private long number;
    private Taken total;
    private boolean queues;
    private boolean works;
    /** Threads that it had at the look before. */
    private int had;

    Look(Root root, Resources resources, Threads threads) {
        this.root = root;
        this.resources = resources;
        this.threads = threads;
    }

    /** A look begins. What has ended is taken first: what ends from now on is missed this once, and never counted twice. */
    void begin(long number) {
        this.number = number;
        total = root.done();
        queues = false;
        works = false;
    }

    boolean isPartOf(long number) {
        return this.number == number;
    }

    /** One of the tasks that work for it. */
    void add(Task part) {
        Taken taken = Taken.by(part, threads);
        total = total.plus(taken);
        if (part instanceof SearchShardTask && part.getAction().contains("[phase/")) {
            works |= taken.threads() > 0;
            // No thread has ever worked for it.
            queues |= part.getResourceStats().isEmpty();
        }
    }

    /** The look ends. {@code elapsedNs} is since the one before; {@code busy} whether all processors were. */
    void end(long nowNs, long elapsedNs, boolean busy) {
        long cpuNs = 0;
        if (root.isNews(total)) {
            enter();
            cpuNs = root.account(total);
        }
        // Of the time for which it had threads, as far as that is known: those that it had at both looks.
        long lostNs = busy ? elapsedNs * Math.min(had, total.threads()) - cpuNs : 0;
        if (lostNs > 0) {
            enter();
            root.task().slow(resources.processors(), 1, lostNs);
        }
        had = total.threads();
        queue(nowNs);
        if (root.node() instanceof BulkByScrollTask by) {
            progress(by.getStatus());
        }
    }

    /** Whether this thread has accounts of it, which it has to give back. */
    boolean isEntered() {
        return work != null;
    }

    /** It waits while a part of it does and none has a thread. */
    private void queue(long nowNs) {
        boolean waits = queues && !works;
        if (waits && wait == null) {
            enter();
            root.waits(nowNs);
            wait = root.task().await(resources.searchThreads());
        } else if (!waits && wait != null) {
            wait.close();
            wait = null;
            root.waitsNoMore(nowNs);
        }
    }

    private void progress(BulkByScrollTask.Status status) {
        root.task().progress(status.getCreated() + status.getUpdated() + status.getDeleted() + status.getNoops() + status.getVersionConflicts(), status.getTotal());
    }

    private void enter() {
        if (work == null) {
            work = root.task().enter();
        }
    }

    /** The request has ended: what this thread has accounted for it is given back. */
    void leave() {
        if (work != null) {
            work.close();
            work = null;
        }
    }
}
