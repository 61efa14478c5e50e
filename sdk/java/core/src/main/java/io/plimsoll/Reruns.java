package io.plimsoll;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What was cancelled and can be run again. Each waits for the agent's word and, without one, for the end of the connection or of its patience; then it is run, one after the other, on
 * a thread that is there once it is needed.
 */
final class Reruns implements Runnable {
    /** IDs are those of one connection. */
    private record Id(Connection connection, long id) {}

    private record Waiting(Cancellation cancellation, long untilNs) {}

    private final Plimsoll app;
    private final Limits limits;
    private final Map<Id, Waiting> waiting = new LinkedHashMap<>();
    private final ArrayDeque<Runnable> queue = new ArrayDeque<>();
    private boolean started;
    private boolean stopping;

    Reruns(Plimsoll app, Limits limits) {
        this.app = app;
        this.limits = limits;
    }

    /** A task was cancelled, and waits from now on. False if too many do; then it was told that it is dropped. */
    boolean add(Cancellation cancellation) {
        String why = null;
        synchronized (this) {
            if (stopping) {
                why = "the application closes";
            } else if (waiting.size() + queue.size() >= limits.mostReruns()) {
                why = limits.mostReruns() + " others wait already";
            } else {
                waiting.put(new Id(cancellation.connection(), cancellation.id()), new Waiting(cancellation, System.nanoTime() + limits.rerunNs()));
            }
        }
        if (why != null) {
            dropped(cancellation, why);
        } else if (cancellation.connection() != null && !cancellation.connection().isOpen()) {
            // It ended before this began to wait.
            connectionEnded(cancellation.connection());
        }
        return why == null;
    }

    /** The agent says that there is room again. */
    synchronized void rerun(Connection connection, long id) {
        enqueue(waiting.remove(new Id(connection, id)));
    }

    /** The agent says that it is of no use any more. */
    synchronized void drop(Connection connection, long id) {
        Waiting dropped = waiting.remove(new Id(connection, id));
        if (dropped != null) {
            enqueue(() -> late(dropped.cancellation));
        }
    }

    /** Nobody is left to say when. */
    synchronized void connectionEnded(Connection connection) {
        take(entry -> entry.getKey().connection == connection);
    }

    /** Runs those that have waited long enough. */
    synchronized void watch(long nowNs) {
        take(entry -> nowNs - entry.getValue().untilNs >= 0);
    }

    private void take(java.util.function.Predicate<Map.Entry<Id, Waiting>> which) {
        for (Iterator<Map.Entry<Id, Waiting>> all = waiting.entrySet().iterator(); all.hasNext(); ) {
            Map.Entry<Id, Waiting> entry = all.next();
            if (which.test(entry)) {
                all.remove();
                enqueue(entry.getValue());
            }
        }
    }

    private void enqueue(Waiting next) {
        if (next != null) {
            enqueue(() -> {
                long deadlineNs = next.cancellation.task().deadlineNs;
                if (deadlineNs != 0 && app.ledger.exactNs() >= deadlineNs) {
                    late(next.cancellation);
                } else {
                    runAgain(next.cancellation);
                    answer(next.cancellation, "reran ");
                }
            });
        }
    }

    private void enqueue(Runnable next) {
        queue.add(next);
        if (!started) {
            Thread thread = new Thread(null, this, "plimsoll-rerun", 0, false);
            thread.setDaemon(true);
            thread.start();
            started = true;
        }
        notifyAll();
    }

    @Override
    public void run() {
        for (Runnable next = next(); next != null; next = next()) {
            next.run();
        }
    }

    private synchronized Runnable next() {
        while (queue.isEmpty() && !stopping) {
            try {
                wait();
            } catch (InterruptedException e) {
                // Left over from the application's code; there is nothing to stop for here.
            }
        }
        return queue.poll();
    }

    private void late(Cancellation cancellation) {
        dropped(cancellation, "its deadline has passed");
        answer(cancellation, "dropped ");
    }

    private void runAgain(Cancellation cancellation) {
        try (Task task = new Task(app, cancellation.task().asked, true, cancellation.task().deadlineNs)) {
            cancellation.task().asked.rerun.run(task);
        } catch (Throwable e) { // the application's code
            app.say.once("rerun", "what was cancelled and run again failed: " + e);
        }
    }

    private void dropped(Cancellation cancellation, String why) {
        try {
            cancellation.task().asked.rerun.dropped(why);
        } catch (Throwable e) { // the application's code
            app.say.once("dropped", "an application could not be told that a task is not run again: " + e);
        }
    }

    private static void answer(Cancellation cancellation, String word) {
        cancellation.tell(word + Long.toUnsignedString(cancellation.id()), "");
    }

    /** What waits is dropped. */
    void stop() {
        Waiting[] dropped;
        synchronized (this) {
            stopping = true;
            dropped = waiting.values().toArray(new Waiting[0]);
            waiting.clear();
            notifyAll();
        }
        for (Waiting each : dropped) {
            dropped(each.cancellation, "the application closes");
        }
    }
}
