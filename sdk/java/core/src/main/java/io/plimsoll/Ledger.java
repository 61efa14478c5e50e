package io.plimsoll;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.function.LongSupplier;

/**
 * A ledger that this process writes: its records, and which of them are free. Knows nothing of threads, of cancelling or of the agent.
 *
 * <p>What must be remembered is remembered in Java; from the memory, to which others can write, come only the clock, the agent's words and a task's last turn.
 */
final class Ledger {
    /** What stands for a record where there is none. */
    static final int NONE = -1;

    final LedgerFile file;
    final Layout.Shape shape;
    final MemorySegment memory;
    /** Whether its memory is a constant for the compiler. */
    final boolean first;
    /** The exact time, where it is not that of the system; for tests. */
    private final LongSupplier clock;

    private final List<String> names = new ArrayList<>();
    private final AtomicInteger tasksUsed = new AtomicInteger();
    private final FreeList freeTasks;
    private final AtomicInteger accountsUsed = new AtomicInteger();
    private final FreeList[] freeAccounts;

    Ledger(LedgerFile file, Layout.Shape shape, LongSupplier clock) {
        this.file = file;
        this.shape = shape;
        this.memory = file.memory;
        this.first = Memory.mapped(memory);
        this.clock = clock;
        freeTasks = new FreeList(new AtomicIntegerArray(shape.tasks()));
        AtomicIntegerArray links = new AtomicIntegerArray(shape.accounts());
        freeAccounts = new FreeList[shape.resources()];
        for (int i = 0; i < freeAccounts.length; i++) {
            freeAccounts[i] = new FreeList(links);
        }
    }

    /** Nanoseconds of CLOCK_MONOTONIC, which is what {@link System#nanoTime} reads on Linux. */
    long exactNs() {
        return clock == null ? System.nanoTime() : clock.getAsLong();
    }

    /** What an event is stamped with: the coarse time or, while the agent asks for it, the exact one. Never 0. */
    long stamp(MemorySegment memory) {
        long now = (Memory.get(memory, Layout.AT_FLAGS) & Layout.EXACT) == 0 ? Memory.get(memory, Layout.AT_CLOCK_NS) : exactNs();
        return now == 0 ? 1 : now;
    }

    /** The record of a resource; that of the first who asked, where the name is known. {@link #NONE} if all are taken, which is counted. */
    synchronized int resource(Kind kind, long capacity, String name) {
        byte[] text = Layout.text(name, Layout.NAME_BYTES);
        String known = new String(text, java.nio.charset.StandardCharsets.UTF_8);
        int index = names.indexOf(known);
        if (index >= 0) {
            return index;
        }
        index = names.size();
        if (index == shape.resources()) {
            Memory.add(memory, Layout.AT_RESOURCES_REFUSED, 1);
            return NONE;
        }
        names.add(known);
        long at = shape.resourceAt(index);
        Memory.put(memory, at + Layout.CAPACITY, capacity);
        Memory.putText(memory, at + Layout.NAME, text);
        Memory.putInt(memory, at + Layout.KIND, kind.number);
        return index;
    }

    /** The name of a resource; empty if there is none. */
    synchronized String resourceName(int index) {
        return index >= 0 && index < names.size() ? names.get(index).replace("\0", "") : "";
    }

    /** Takes a record for a task; {@link #NONE} if all are taken, which is counted. */
    int begin(long key, long startedNs, long deadlineNs, int flags, int tid, byte[] label) {
        int index = freeTasks.take();
        if (index < 0) {
            index = fresh(tasksUsed, shape.tasks(), Layout.AT_TASKS_USED);
        }
        if (index < 0) {
            Memory.add(memory, Layout.AT_TASKS_REFUSED, 1);
            return NONE;
        }
        long at = shape.taskAt(index);
        Memory.put(memory, at + Layout.KEY, key);
        Memory.put(memory, at + Layout.STARTED_NS, startedNs);
        Memory.put(memory, at + Layout.DONE, 0);
        Memory.put(memory, at + Layout.TOTAL, 0);
        Memory.put(memory, at + Layout.DEADLINE_NS, deadlineNs);
        Memory.putInt(memory, at + Layout.FLAGS, flags);
        Memory.putInt(memory, at + Layout.TID, tid);
        Memory.putText(memory, at + Layout.LABEL, label);
        // Odd, whatever was there: who has the record decides.
        Memory.put(memory, at + Layout.TURN, Memory.get(memory, at + Layout.TURN) + 1 | 1);
        return index;
    }

    /** The turn of a task's record, for who has it. */
    long turn(int task) {
        return Memory.get(memory, shape.taskAt(task) + Layout.TURN);
    }

    void progress(int task, long done, long total) {
        long at = shape.taskAt(task);
        Memory.put(memory, at + Layout.TOTAL, total);
        Memory.put(memory, at + Layout.DONE, done);
    }

    void runsOn(int task, int tid) {
        Memory.putInt(memory, shape.taskAt(task) + Layout.TID, tid);
    }

    /** Ends a task and gives its record back. Once a task. */
    void end(int task, long turn) {
        Memory.put(memory, shape.taskAt(task) + Layout.TURN, turn + 1);
        freeTasks.giveBack(task);
    }

    /** Adds a request that ended to a lane. {@code lane} may be any number. */
    void complete(int lane, long latencyNs, boolean cancelled) {
        long at = shape.laneAt(Integer.remainderUnsigned(lane, shape.lanes()));
        Memory.add(memory, cancelled ? at + Layout.CANCELLED : at + Layout.BIN + 8L * Layout.bin(latencyNs), 1);
        Memory.add(memory, at + Layout.SUM_NS, latencyNs);
        Memory.add(memory, at + Layout.COMPLETED, 1);
    }

    /** Takes an account for what a task does with a resource; {@link Account#NOBODYS} if none is left, which is counted. */
    Account account(int task, long turn, int resource) {
        int index = freeAccounts[resource].take();
        if (index < 0) {
            index = fresh(accountsUsed, shape.accounts(), Layout.AT_ACCOUNTS_USED);
        }
        if (index < 0) {
            Memory.add(memory, Layout.AT_ACCOUNTS_REFUSED, 1);
            return Account.NOBODYS;
        }
        Memory.put(memory, shape.accountAt(index) + Layout.OWNER, Layout.owner(task, resource, turn));
        return new Account(this, index, resource);
    }

    /** Gives an account back; it is squared up. */
    void giveBack(int account, int resource) {
        Memory.put(memory, shape.accountAt(account) + Layout.OWNER, Layout.ownerNobody(resource));
        freeAccounts[resource].giveBack(account);
    }

    private int fresh(AtomicInteger used, int most, long at) {
        // Not a plain increment: it would run over when asked often enough.
        int index = used.get();
        while (index < most && !used.compareAndSet(index, index + 1)) {
            index = used.get();
        }
        if (index >= most) {
            return NONE;
        }
        Memory.raise(memory, at, index + 1);
        return index;
    }

    /** The application's sign of life. */
    void beat(long nowNs) {
        Memory.put(memory, Layout.AT_APP_BEAT_NS, nowNs);
    }

    long agentBeatNs() {
        return Memory.get(memory, Layout.AT_AGENT_BEAT_NS);
    }

    /** Ticks the clock, and takes back what an agent asked for that is gone. */
    void tickWithoutAgent(long nowNs) {
        Memory.put(memory, Layout.AT_CLOCK_NS, nowNs);
        Memory.put(memory, Layout.AT_FLAGS, 0);
    }
}
