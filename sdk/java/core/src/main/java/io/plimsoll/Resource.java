package io.plimsoll;

/**
 * Something that tasks get, free and wait for: a lock, a cache, a pool. Made by {@link Plimsoll#resource}; lives as long as the application.
 *
 * <p>The events here are those of the task that this thread works for, and nothing where there is none. Nothing here blocks: it keeps account of what the application does.
 */
public final class Resource {
    final Plimsoll app;
    /** Its record; {@link Ledger#NONE} if it has none. */
    final int index;

    Resource(Plimsoll app, int index) {
        this.app = app;
        this.index = index;
    }

    /** One unit, until what this returns is closed. */
    public Hold hold() {
        return hold(1);
    }

    /** {@code n} units, until what this returns is closed. */
    public Hold hold(long n) {
        Account account = here();
        account.get(n);
        return new Hold(account, n);
    }

    /** The task waits, until it gets some or what this returns is closed. */
    public Wait await() {
        return new Wait(here());
    }

    /** The task took {@code n} units; its wait, if there was one, has ended. */
    public void get(long n) {
        here().get(n);
    }

    /** The task, or one around it, gave {@code n} units back; at most what this thread holds for it. */
    public void free(long n) {
        Strand strand = Strand.current();
        if (strand != null) {
            strand.holding(this).free(n);
        }
    }

    /** {@code n} units had to be evicted for the task, or it waited {@code n} times, measured elsewhere; which took {@code delayNs} nanoseconds. */
    public void slow(long n, long delayNs) {
        here().slow(n, delayNs);
    }

    /** The account of this thread's task; nobody's if there is none. */
    Account here() {
        Strand strand = Strand.current();
        return strand == null ? Account.NOBODYS : strand.account(this);
    }

    /** An account of its own for one unit of this thread's task, see {@link Strand#extraAccount}. */
    Account extra() {
        Strand strand = Strand.current();
        return strand == null ? Account.NOBODYS : strand.extraAccount(this);
    }
}
