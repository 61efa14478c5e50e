package io.plimsoll;

/** What a resource is, which says what a unit of it and a delay at it are. */
public enum Kind {
    /** A lock, or a share of one. */
    LOCK(1),
    /** Pages, entries, bytes of something that evicts. */
    MEMORY(2),
    /** Workers, permits, connections of a pool. */
    QUEUE(3),
    /** Nanoseconds of a processor. The agent reads them from outside, too. */
    CPU(4),
    /** Bytes read and written. The agent reads them from outside, too. */
    IO(5);

    /** As it is written in the ledger. */
    final int number;

    Kind(int number) {
        this.number = number;
    }
}
