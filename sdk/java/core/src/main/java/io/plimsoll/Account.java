package io.plimsoll;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * What one task does with one resource: the events, each a few stores. One thread writes it; what another thread does here comes to nothing, but that units which it gives
 * back are counted when the writer next passes.
 *
 * <p>Amounts that are not positive are nothing.
 */
final class Account {
    /** Where nothing is accounted: no thread is its writer. */
    static final Account NOBODYS = new Account();

    private static final VarHandle OWED;

    static {
        try {
            OWED = MethodHandles.lookup().findVarHandle(Account.class, "owed", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final Ledger ledger;
    private final MemorySegment memory;
    private final long at;
    private final int index;
    private final int resource;
    /** The one thread that writes it; null when it is given back. */
    private Thread writer;

    // The words of the record, as this thread wrote them last.
    private long gets;
    private long frees;
    private long slows;
    private long waitNs;
    private long holdNs;
    private long waitingSinceNs;
    private long holdingSinceNs;
    /** Units that other threads gave back. */
    private long owed;

    private Account() {
        ledger = null;
        memory = null;
        at = 0;
        index = Ledger.NONE;
        resource = Ledger.NONE;
    }

    /** The record {@code index}, which was just taken for this thread. Its counters go on from where they are. */
    Account(Ledger ledger, int index, int resource) {
        this.ledger = ledger;
        this.memory = ledger.memory;
        this.at = ledger.shape.accountAt(index);
        this.index = index;
        this.resource = resource;
        this.writer = Thread.currentThread();
        gets = Memory.get(memory, at + Layout.GETS);
        // Whoever had it gave all back; and should the memory say otherwise, it begins with nothing held all the same.
        frees = gets;
        slows = Memory.get(memory, at + Layout.SLOWS);
        waitNs = Memory.get(memory, at + Layout.WAIT_NS);
        holdNs = Memory.get(memory, at + Layout.HOLD_NS);
    }

    /** Whether this thread writes it. */
    boolean isOurs() {
        return writer == Thread.currentThread();
    }

    /** How many units are held. */
    long held() {
        return gets - frees;
    }

    boolean waits() {
        return waitingSinceNs != 0;
    }

    /** A wait begins; one that has begun goes on. */
    void await() {
        if (isOurs() && waitingSinceNs == 0) {
            Memory.put(memory, at + Layout.SLOWS, ++slows);
            Memory.put(memory, at + Layout.WAITING_SINCE_NS, waitingSinceNs = ledger.stamp(memory));
        }
    }

    /** The wait ends, if there is one. */
    void endWait() {
        if (isOurs() && waitingSinceNs != 0) {
            endWait(ledger.stamp(memory));
        }
    }

    private void endWait(long nowNs) {
        long since = waitingSinceNs;
        Memory.put(memory, at + Layout.WAITING_SINCE_NS, waitingSinceNs = 0);
        Memory.put(memory, at + Layout.WAIT_NS, waitNs += Math.max(0, nowNs - since));
    }

    /** Takes units, which ends a wait. */
    void get(long n) {
        if (isOurs()) {
            if (memory == Memory.First.SEGMENT) {
                get(Memory.First.SEGMENT, n);
            } else {
                get(memory, n);
            }
        }
    }

    /** Gives units back, or all where fewer are held. */
    void free(long n) {
        if (isOurs()) {
            if (memory == Memory.First.SEGMENT) {
                free(Memory.First.SEGMENT, n);
            } else {
                free(memory, n);
            }
        } else if (this != NOBODYS && n > 0) {
            OWED.getAndAdd(this, n);
        }
    }

    private void get(MemorySegment memory, long n) {
        if (waitingSinceNs != 0) {
            endWait(ledger.stamp(memory));
        }
        if (owed != 0) {
            settle();
        }
        if (n > 0) {
            long held = gets - frees;
            Memory.put(memory, at + Layout.GETS, gets += n);
            if (held == 0) {
                Memory.put(memory, at + Layout.HOLDING_SINCE_NS, holdingSinceNs = ledger.stamp(memory));
            }
        }
    }

    private void free(MemorySegment memory, long n) {
        if (n <= 0) {
            return;
        }
        long held = gets - frees;
        if (n < held) {
            Memory.put(memory, at + Layout.FREES, frees += n);
        } else if (held > 0) {
            long now = ledger.stamp(memory);
            Memory.put(memory, at + Layout.HOLDING_SINCE_NS, 0);
            Memory.put(memory, at + Layout.HOLD_NS, holdNs += Math.max(0, now - holdingSinceNs));
            Memory.put(memory, at + Layout.FREES, frees += held);
        }
    }

    private void settle() {
        free(memory, (long) OWED.getAndSet(this, 0L));
    }

    /** Units that were evicted, or waits that were measured elsewhere, and how long that took. */
    void slow(long n, long delayNs) {
        if (isOurs() && n > 0) {
            Memory.put(memory, at + Layout.SLOWS, slows += n);
            if (delayNs > 0) {
                Memory.put(memory, at + Layout.WAIT_NS, waitNs += delayNs);
            }
        }
    }

    /** From now on this thread writes it. The caller sees to it that the one before does not any more. */
    void adopt() {
        if (this != NOBODYS) {
            writer = Thread.currentThread();
        }
    }

    /** The task is through with it: its wait ends, what is held is given back, and the record waits for another task. */
    void end() {
        if (isOurs()) {
            long now = ledger.stamp(memory);
            if (waitingSinceNs != 0) {
                endWait(now);
            }
            free(memory, Long.MAX_VALUE);
            writer = null;
            ledger.giveBack(index, resource);
        }
    }
}
