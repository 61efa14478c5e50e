package io.plimsoll;

import java.util.concurrent.atomic.AtomicBoolean;

/** That a task shall stop, and why. */
public final class Cancellation {
    private final Connection connection;
    private final long id;
    private final Task task;
    private final String resource;
    private final String reason;
    private final AtomicBoolean reported = new AtomicBoolean();

    Cancellation(Connection connection, long id, Task task, String resource, String reason) {
        this.connection = connection;
        this.id = id;
        this.task = task;
        this.resource = resource;
        this.reason = reason;
    }

    /** The task's key. */
    public long key() {
        return task.asked.key;
    }

    /** The task's label. */
    public String label() {
        return task.asked.labelText;
    }

    /** The name of the resource that it holds up; empty if that is not known. */
    public String resource() {
        return resource;
    }

    /** Why, in the agent's words: for people. */
    public String reason() {
        return reason;
    }

    @Override
    public String toString() {
        return label() + ": " + reason;
    }

    Task task() {
        return task;
    }

    long id() {
        return id;
    }

    /** Who asked for it; null for nobody. */
    Connection connection() {
        return connection;
    }

    void tell(String words, String text) {
        if (connection != null) {
            connection.send(words, text);
        }
    }

    void acknowledge() {
        tell("acknowledge " + Long.toUnsignedString(id), "");
    }

    /** Tells the agent what became of it; the first word counts. */
    void report(String word, String text) {
        if (reported.compareAndSet(false, true)) {
            tell("outcome " + Long.toUnsignedString(id) + " " + word, text);
        }
    }

    /** The task has ended, for this or by itself. */
    void taskEnded(boolean cancelled) {
        if (!cancelled) {
            report("finished", "");
            return;
        }
        // It waits before the agent can answer.
        boolean waits = task.asked.rerun != null && task.app.reruns.add(this);
        report("cancelled", "");
        if (task.asked.rerun != null && !waits) {
            tell("dropped " + Long.toUnsignedString(id), "");
        }
    }
}
