package io.plimsoll.opensearch;

/** How the node gives up a task. */
@FunctionalInterface
interface Cancel {
    /** Returns when the node has understood. */
    void cancel(long task, String why) throws Exception;
}
