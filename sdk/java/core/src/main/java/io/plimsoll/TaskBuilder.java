package io.plimsoll;

import java.time.Duration;
import java.util.Objects;

/** What a task is, said before it begins. A request that can be cancelled by interrupting its thread, unless it is said otherwise. Made by {@link Plimsoll#task}. */
public final class TaskBuilder {
    private final Plimsoll app;
    /** As in the ledger. */
    final byte[] label;
    final String labelText;
    long key;
    private Duration deadline;
    boolean background;
    boolean detached;
    boolean cancellable = true;
    private boolean again;
    CancelAction action;
    Rerun rerun;
    /** The thread's number for the system; -1 to look for it. */
    int tid = -1;

    TaskBuilder(Plimsoll app, String label) {
        this.app = app;
        this.labelText = Objects.requireNonNull(label, "a task has a label; \"\" if there is nothing to say");
        this.label = Layout.text(label, Layout.LABEL_BYTES);
    }

    /** The application's number for it; whatever helps to find it again. */
    public TaskBuilder key(long key) {
        this.key = key;
        return this;
    }

    /** How long from its beginning it is of use; longer than 292 years is for ever. */
    public TaskBuilder deadline(Duration fromNow) {
        this.deadline = Objects.requireNonNull(fromNow, "leave the deadline away if there is none");
        return this;
    }

    /** It is no request: how long it takes counts nowhere. */
    public TaskBuilder background() {
        background = true;
        return this;
    }

    /** It is seen, never cancelled. */
    public TaskBuilder uncancellable() {
        cancellable = false;
        return this;
    }

    /**
     * It is work that was cancelled before and is here again, such as a request that a gateway sends a second time: seen, never cancelled, not run again. What {@link #rerun} runs is such a task by
     * itself.
     */
    public TaskBuilder again() {
        again = true;
        return this;
    }

    /** No thread works for it but those that {@link Task#enter} it. */
    public TaskBuilder detached() {
        detached = true;
        return this;
    }

    /** What cancelling it does, instead of interrupting its threads or of what the {@linkplain Plimsoll.Builder#onCancel application} does. */
    public TaskBuilder onCancel(CancelAction action) {
        this.action = Objects.requireNonNull(action, "leave the action away if there is none");
        return this;
    }

    /** How it is run again when there is room for it, after it was cancelled. */
    public TaskBuilder rerun(Rerun rerun) {
        this.rerun = Objects.requireNonNull(rerun, "leave the rerun away if there is none");
        return this;
    }

    /** Begins it. Where there is no room, no directory or no permission to account, this is a task all the same, of which nobody knows. */
    public Task begin() {
        return new Task(app, this, again, -1);
    }

    int flags(boolean rerunning) {
        int flags = background ? Layout.BACKGROUND : 0;
        if (rerunning) {
            return flags | Layout.RERUN;
        }
        return flags | (cancellable ? Layout.CANCELLABLE : 0) | (cancellable && rerun != null ? Layout.RERUNNABLE : 0);
    }

    long deadlineNs(long nowNs) {
        if (deadline == null) {
            return 0;
        }
        try {
            return Math.max(1, Math.addExact(nowNs, deadline.toNanos()));
        } catch (ArithmeticException e) {
            return deadline.isNegative() ? 1 : 0;
        }
    }
}
