package io.plimsoll;

import java.util.ArrayDeque;

/**
 * Calls cancel actions, one at a time, on a thread of its own, which is there once it is needed. An action that does not return in time makes all further ones fail until it does:
 * what hangs is not called again.
 */
final class Canceller implements Runnable {
    private final Plimsoll app;
    private final Limits limits;
    private final ArrayDeque<Cancellation> queue = new ArrayDeque<>();
    private boolean started;
    private boolean stopping;
    private Cancellation running;
    private long runningSinceNs;
    private boolean stuck;

    Canceller(Plimsoll app, Limits limits) {
        this.app = app;
        this.limits = limits;
    }

    /** The agent asks for a cancellation. */
    void cancel(Connection connection, AgentLine.Cancel asked) {
        Task task = app.live(asked.task());
        if (task == null || task.turn != asked.turn()) {
            connection.send("outcome " + Long.toUnsignedString(asked.id()) + " gone", "");
            return;
        }
        Cancellation cancellation =
                new Cancellation(connection, asked.id(), task, app.ledger.resourceName(asked.resource()), asked.text());
        String cannot = enqueue(cancellation);
        if (cannot != null) {
            cancellation.report("failed", cannot);
        }
    }

    /** Null, or why it cannot be cancelled. */
    private synchronized String enqueue(Cancellation cancellation) {
        if (!cancellation.task().isCancellable()) {
            return "the task cannot be cancelled";
        }
        if (cancellation.task().isMarked()) {
            return "the task was cancelled before";
        }
        if (stuck) {
            return "an earlier cancel action has not returned";
        }
        if (queue.size() >= limits.mostCancels()) {
            return "too many cancellations wait";
        }
        queue.add(cancellation);
        if (!started) {
            Thread thread = new Thread(null, this, "plimsoll-cancel", 0, false);
            thread.setDaemon(true);
            thread.start();
            started = true;
        }
        notifyAll();
        return null;
    }

    @Override
    public void run() {
        for (Cancellation next = next(); next != null; next = next()) {
            cancel(next);
        }
    }

    private synchronized Cancellation next() {
        running = null;
        stuck = false;
        while (queue.isEmpty() && !stopping) {
            try {
                wait();
            } catch (InterruptedException e) {
                // By an action of the application's, perhaps; there is nothing to stop for here.
            }
        }
        running = queue.poll();
        runningSinceNs = System.nanoTime();
        return running;
    }

    private static void cancel(Cancellation cancellation) {
        Task task = cancellation.task();
        if (task.isMarked()) {
            cancellation.report("failed", "the task was cancelled before");
            return;
        }
        if (task.hasEnded()) {
            cancellation.report("finished", "");
            return;
        }
        // Before the task can end for it, and tell the outcome.
        cancellation.acknowledge();
        if (!task.mark(cancellation)) {
            cancellation.report("finished", "");
            return;
        }
        try {
            task.cancel(cancellation);
        } catch (Throwable e) { // the application's code: whatever it throws, it failed
            cancellation.report("failed", e.toString());
        }
    }

    /** Gives up on an action that takes too long, and on those behind it. */
    void watch(long nowNs) {
        Cancellation late = null;
        Cancellation[] behind = {};
        synchronized (this) {
            if (running != null && !stuck && nowNs - runningSinceNs > limits.actionNs()) {
                stuck = true;
                late = running;
                behind = queue.toArray(behind);
                queue.clear();
            }
        }
        if (late != null) {
            late.report("failed", "the cancel action has not returned for " + limits.actionNs() / 1_000_000 + " ms");
            app.say.once("stuck", "a cancel action has not returned for " + limits.actionNs() / 1_000_000 + " ms; until it does, nothing is cancelled");
            for (Cancellation cancellation : behind) {
                cancellation.report("failed", "an earlier cancel action has not returned");
            }
        }
    }

    synchronized void stop() {
        stopping = true;
        queue.clear();
        notifyAll();
    }
}
