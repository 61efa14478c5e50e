package io.plimsoll;

/** How long and how many, as {@code docs/ledger.md} sets it; tests have less patience. Times are nanoseconds. */
record Limits(long beatNs, long agentGoneNs, long reconnectNs, long refusedNs, long actionNs, long rerunNs, int mostReruns, int mostCancels) {
    private static final long MS = 1_000_000;

    static final Limits DEFAULT = new Limits(1_000 * MS, 1_000 * MS, 1_000 * MS, 10_000 * MS, 5_000 * MS, 30_000 * MS, 1024, 1024);
}
