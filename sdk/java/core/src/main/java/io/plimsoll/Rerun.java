package io.plimsoll;

/** How a task that was cancelled is run again. Exactly one of the two is called, on a thread of the SDK that does one after the other; what takes long should be handed to a thread of the application's. */
@FunctionalInterface
public interface Rerun {
    /** Runs it again. {@code task} is the second run, which is never cancelled and which the SDK closes. */
    void run(Task task) throws Exception;

    /** It is not run again: its deadline has passed, too many wait, or the application closes. */
    default void dropped(String why) {}
}
