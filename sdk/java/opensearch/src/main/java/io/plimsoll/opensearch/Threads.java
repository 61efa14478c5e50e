package io.plimsoll.opensearch;

/** What threads have done since they began; -1 of one that is gone. */
interface Threads {
    long bytes(long thread);

    long cpuNs(long thread);
}
