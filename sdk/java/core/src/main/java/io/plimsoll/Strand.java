package io.plimsoll;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * One thread's part in one task: the accounts that it writes, and whether the thread may be interrupted for the task. Lives from when the thread begins to work for the task
 * to when it leaves.
 */
final class Strand {
    private static final int HERE = 0;
    private static final int BEING_INTERRUPTED = 1;
    private static final int INTERRUPTED = 2;
    private static final int LEFT = 3;

    /**
     * What each thread works for now: {@code [0]} the innermost strand, {@code [1]} the thread's number for the system. An array of objects, so that a thread of somebody's
     * pool that outlives this class loader holds nothing of it.
     */
    private static final ThreadLocal<Object[]> CURRENT = ThreadLocal.withInitial(() -> new Object[2]);

    /**
     * What threads work for, where they may look before they look into {@link #CURRENT}, which takes twice as long. A thread writes only its own strands here, so what it finds of
     * its own is the last; whose number falls on the same place overwrites it. Places are a cache line apart.
     */
    private static final Strand[] RECENT = new Strand[64 << 4];

    final Task task;
    private final Plimsoll app;
    /** The thread; null when it has left. */
    private Thread thread;
    /** What this thread worked for before, and will again. */
    private Strand outer;
    /** By index of the resource; null where there is none yet. */
    private Account[] accounts = new Account[8];
    private final AtomicInteger state = new AtomicInteger(HERE);

    private Strand(Task task, Thread thread, Strand outer) {
        this.task = task;
        this.app = task.app;
        this.thread = thread;
        this.outer = outer;
    }

    /** This thread works for the task from now on. */
    static Strand enter(Task task) {
        Object[] current = CURRENT.get();
        Strand outer = (Strand) current[0];
        // Tasks that another thread ended while this one worked for them.
        while (outer != null && outer.task.hasEnded()) {
            outer.leave();
            outer = (Strand) current[0];
        }
        Strand strand = new Strand(task, Thread.currentThread(), outer);
        becomes(current, strand);
        return strand;
    }

    /** What this thread works for; null if for nothing. */
    static Strand current() {
        Thread thread = Thread.currentThread();
        Strand recent = RECENT[placeOf(thread)];
        return recent != null && recent.thread == thread ? recent : (Strand) CURRENT.get()[0];
    }

    private static void becomes(Object[] current, Strand strand) {
        current[0] = strand;
        RECENT[placeOf(Thread.currentThread())] = strand;
    }

    private static int placeOf(Thread thread) {
        return ((int) thread.threadId() & 63) << 4;
    }

    /** This thread's part in a task; null if it has none. */
    static Strand currentOf(Task task) {
        Strand strand = current();
        while (strand != null && strand.task != task) {
            strand = strand.outer;
        }
        return strand;
    }

    /** The number of this thread for the system, found once. */
    static int tid() {
        if (Thread.currentThread().isVirtual()) {
            return 0;
        }
        Object[] current = CURRENT.get();
        if (!(current[1] instanceof Integer)) {
            current[1] = Own.tid();
        }
        return (Integer) current[1];
    }

    boolean isHere() {
        return thread == Thread.currentThread();
    }

    /** The account at a resource, taken when there is none yet; nobody's where there can be none. */
    Account account(Resource resource) {
        Account account = known(resource);
        return account != null ? account : accountSlowly(resource);
    }

    /** The account at a resource, which may be nobody's; null where there is none yet. Any thread may look. */
    Account known(Resource resource) {
        Account[] accounts = this.accounts;
        int index = resource.index;
        return index >= 0 && index < accounts.length && resource.app == app ? accounts[index] : null;
    }

    private Account accountSlowly(Resource resource) {
        if (resource.app != app) {
            return outer == null ? Account.NOBODYS : outer.account(resource);
        }
        if (resource.index < 0 || task.record < 0 || !isHere()) {
            return Account.NOBODYS;
        }
        if (resource.index >= accounts.length) {
            accounts = Arrays.copyOf(accounts, Math.max(resource.index + 1, 2 * accounts.length));
        }
        // Should none be left, it stays at that for this task: half of its events would be worse than none.
        return accounts[resource.index] = extraAccount(resource);
    }

    /** An account of its own, for a unit that may be given back by another thread. Nobody's where there can be none. */
    Account extraAccount(Resource resource) {
        if (resource.app != app) {
            return outer == null ? Account.NOBODYS : outer.extraAccount(resource);
        }
        if (resource.index < 0 || task.record < 0 || task.hasEnded()) {
            return Account.NOBODYS;
        }
        return app.ledger.account(task.record, task.turn, resource.index);
    }

    /** The account that holds units of a resource: this one's or that of a task around it; nobody's if none does. */
    Account holding(Resource resource) {
        for (Strand strand = this; strand != null; strand = strand.outer) {
            Account account = strand.known(resource);
            if (account != null && account.held() > 0) {
                return account;
            }
        }
        return Account.NOBODYS;
    }

    /** Interrupts the thread, unless it has left. Called by another thread, once. */
    void interrupt() {
        Thread interrupted = thread;
        if (interrupted != null && state.compareAndSet(HERE, BEING_INTERRUPTED)) {
            // It cannot leave meanwhile, and so not be interrupted for what it does next.
            interrupted.interrupt();
            state.set(INTERRUPTED);
        }
    }

    /** The thread works for the task no more: its accounts are given back. Called by that thread; once is enough. */
    void leave() {
        if (!isHere()) {
            return;
        }
        unlink();
        thread = null;
        for (Account account : accounts) {
            if (account != null) {
                account.end();
            }
        }
        while (!state.compareAndSet(HERE, LEFT)) {
            if (state.get() == INTERRUPTED) {
                // That was meant for the task, not for what the thread does next.
                Thread.interrupted();
                state.set(LEFT);
                return;
            }
            Thread.onSpinWait();
        }
    }

    private void unlink() {
        Object[] current = CURRENT.get();
        if (current[0] == this) {
            becomes(current, outer);
            return;
        }
        // Not closed in order: it is somewhere further out.
        for (Strand strand = (Strand) current[0]; strand != null; strand = strand.outer) {
            if (strand.outer == this) {
                strand.outer = outer;
                return;
            }
        }
    }
}
