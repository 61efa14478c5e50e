package io.plimsoll;

/**
 * How an application gives up a task by its own means: closing a connection, setting a flag, calling {@code Statement.cancel}.
 *
 * <p>It runs on a thread of the SDK that no task needs, one action at a time. If it throws, the agent is told that it failed, and how. If it has not returned after five seconds the agent is told
 * that, too, and every further cancellation fails until it returns.
 */
@FunctionalInterface
public interface CancelAction {
    /** Makes the task stop; need not wait until it has. */
    void cancel(Cancellation why) throws Exception;
}
