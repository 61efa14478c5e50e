package io.plimsoll;

import java.util.concurrent.CancellationException;

/** A task was cancelled, and says so by itself. */
public final class TaskCancelledException extends CancellationException {
    private static final long serialVersionUID = 1;

    private final transient Cancellation cancellation;

    TaskCancelledException(Cancellation cancellation) {
        super("cancelled: " + cancellation.reason());
        this.cancellation = cancellation;
    }

    /** Which task, and why; null after this was serialised. */
    public Cancellation cancellation() {
        return cancellation;
    }
}
