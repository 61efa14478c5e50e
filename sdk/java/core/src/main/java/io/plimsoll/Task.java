package io.plimsoll;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/**
 * A task: what can be cancelled. A request, a session, a background job; from {@link TaskBuilder#begin begin} to {@link #close}.
 *
 * <pre>{@code
 * try (Task task = plimsoll.task("GET /report").key(7).begin()) {
 *     for (Row row : rows) {
 *         task.progress(++done, rows.size());
 *         ...
 *     }
 * }
 * }</pre>
 *
 * <p>The thread that begins it works for it until it is closed; whatever that thread {@linkplain Resource holds} meanwhile is the task's. Further threads may
 * {@link #enter} it. Tasks may be nested: the innermost one is meant.
 *
 * <p>To be cancelled means, unless {@link TaskBuilder#onCancel} says otherwise, that the threads that work for it are interrupted. When they leave the task an interrupt that was for it is cleared.
 */
public final class Task implements AutoCloseable {
    private static final int LIVE = 0;
    private static final int CANCELLING = 1;
    private static final int ENDED = 2;

    private static final VarHandle STATE;

    static {
        try {
            STATE = MethodHandles.lookup().findVarHandle(Task.class, "state", int.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    final Plimsoll app;
    final TaskBuilder asked;
    /** Its record; {@link Ledger#NONE} if it has none. */
    final int record;
    final long turn;
    final long deadlineNs;
    private final long startedNs;
    private final boolean cancellable;
    /** The strand of the thread that began it; null if it is detached from the beginning. */
    private final Strand first;
    /** Those of further threads. */
    private final List<Strand> others = new CopyOnWriteArrayList<>();

    private volatile int state = LIVE;
    private volatile Cancellation cancellation;
    private volatile CancelAction action;
    /** Whether anybody asked and was told. */
    private volatile boolean noticed;
    /** Whether its cancel action was called, and did not fail. */
    private volatile boolean acted;
    private volatile boolean complete;

    /** {@code rerun}: this is a second run. {@code deadlineNs} is -1 for what is asked. */
    Task(Plimsoll app, TaskBuilder asked, boolean rerun, long deadlineNs) {
        this.app = app;
        this.asked = asked;
        this.action = asked.action;
        this.cancellable = asked.cancellable && !rerun;
        Ledger ledger = app.ledger;
        if (ledger == null) {
            record = Ledger.NONE;
            turn = startedNs = this.deadlineNs = 0;
        } else {
            startedNs = ledger.exactNs();
            this.deadlineNs = deadlineNs < 0 ? asked.deadlineNs(startedNs) : deadlineNs;
            int tid = asked.detached ? 0 : asked.tid >= 0 ? asked.tid : Strand.tid();
            record = ledger.begin(asked.key, startedNs, this.deadlineNs, asked.flags(rerun), tid, asked.label);
            turn = record < 0 ? 0 : ledger.turn(record);
        }
        app.began(this);
        first = asked.detached ? null : Strand.enter(this);
    }

    /** The task that this thread works for: the innermost one, or null if there is none. */
    public static Task current() {
        Strand strand = Strand.current();
        return strand == null ? null : strand.task;
    }

    /** So much of {@code total} is done: rows, bytes, steps; 0 for a total that nobody knows. Any thread may say so. */
    public void progress(long done, long total) {
        if (record >= 0 && state != ENDED) {
            app.ledger.progress(record, done, total);
        }
    }

    /** The task took {@code n} units, which ends its wait for them, if there was one. Called by a thread that works for it. */
    public void get(Resource resource, long n) {
        account(resource).get(n);
    }

    /** The task gave {@code n} units back; at most what this thread holds for it. */
    public void free(Resource resource, long n) {
        account(resource).free(n);
    }

    /** The task takes {@code n} units until what this returns is closed, by the same thread. */
    public Hold hold(Resource resource, long n) {
        Account account = account(resource);
        account.get(n);
        return new Hold(account, n);
    }

    /** The task waits for the resource, until it {@linkplain #get gets} some of it or what this returns is closed. */
    public Wait await(Resource resource) {
        return new Wait(account(resource));
    }

    /** {@code n} units had to be evicted for the task, or it waited {@code n} times, measured elsewhere; which took {@code delayNs} nanoseconds. */
    public void slow(Resource resource, long n, long delayNs) {
        account(resource).slow(n, delayNs);
    }

    private Account account(Resource resource) {
        Strand strand = first;
        if (strand != null) {
            Account account = strand.known(resource);
            if (account != null && account.isOurs()) {
                return account;
            }
        }
        return accountSlowly(resource);
    }

    private Account accountSlowly(Resource resource) {
        Strand strand = Strand.currentOf(this);
        return strand == null ? Account.NOBODYS : strand.account(resource);
    }

    /** This thread, too, works for the task until what this returns is closed, by the same thread. What it holds is accounted by itself. */
    public Work enter() {
        Strand strand = Strand.enter(this);
        others.add(strand);
        if (acted && action() == null) {
            strand.interrupt();
        }
        return new Work(strand, others);
    }

    /** What {@code body} does on whichever thread runs it, it does for this task. */
    public Runnable wrap(Runnable body) {
        return () -> {
            try (Work work = enter()) {
                body.run();
            }
        };
    }

    /**
     * The thread that began the task, which calls this, leaves it; the task goes on until it is {@linkplain #close closed}, by any thread. For a request that is answered
     * asynchronously. What the thread held is given back.
     */
    public void detach() {
        if (first != null) {
            if (record >= 0 && state != ENDED) {
                app.ledger.runsOn(record, 0);
            }
            first.leave();
        }
    }

    /** Whether the task shall stop. */
    public boolean isCancelled() {
        return cancellation() != null;
    }

    /** Why the task shall stop; null if it need not. */
    public Cancellation cancellation() {
        Cancellation why = state == LIVE ? null : cancellation;
        if (why != null) {
            noticed = true;
        }
        return why;
    }

    /** For loops that do not wait for anything that can be interrupted. */
    public void throwIfCancelled() throws TaskCancelledException {
        Cancellation why = cancellation();
        if (why != null) {
            throw new TaskCancelledException(why);
        }
    }

    /** From now on this is what cancelling the task does; null for interrupting its threads. One that is under way is not called back. */
    public void onCancel(CancelAction action) {
        this.action = action;
    }

    /** The task has done all that it had to, even if it was cancelled meanwhile: it does not count as cancelled and is not run again. */
    public void complete() {
        complete = true;
    }

    /** Ends the task. Once is enough. */
    @Override
    public void close() {
        // One thread, one lane.
        end((int) Thread.currentThread().threadId());
    }

    void end(int lane) {
        int before = (int) STATE.getAndSet(this, ENDED);
        if (before == ENDED) {
            return;
        }
        if (first != null) {
            first.leave();
        }
        for (Strand strand : others) {
            strand.leave();
        }
        Cancellation cancellation = before == CANCELLING ? this.cancellation : null;
        boolean cancelled = cancellation != null && (noticed || acted) && !complete;
        app.ended(this);
        Ledger ledger = app.ledger;
        if (ledger != null) {
            if (record >= 0) {
                ledger.end(record, turn);
            }
            if (!asked.background) {
                ledger.complete(lane, Math.max(0, ledger.exactNs() - startedNs), cancelled);
            }
        }
        if (cancellation != null) {
            cancellation.taskEnded(cancelled);
        }
    }

    boolean isCancellable() {
        return cancellable;
    }

    boolean hasEnded() {
        return state == ENDED;
    }

    /** It is to be cancelled from now on. False if it has ended, or was told before. By the thread that cancels, and no other. */
    boolean mark(Cancellation why) {
        if (state != LIVE) {
            return false;
        }
        cancellation = why; // before the state says so: whoever ends the task then looks for it
        if (STATE.compareAndSet(this, LIVE, CANCELLING)) {
            return true;
        }
        cancellation = null; // it ended just now
        return false;
    }

    private CancelAction action() {
        CancelAction own = action;
        return own != null ? own : app.action;
    }

    /** Calls the cancel action. By the thread for that, after {@link #mark}. */
    void cancel(Cancellation why) throws Exception {
        CancelAction action = action();
        acted = true; // before it is: the task may end at once
        if (action == null) {
            if (first != null) {
                first.interrupt();
            }
            for (Strand strand : others) {
                strand.interrupt();
            }
            return;
        }
        boolean returned = false;
        try {
            action.cancel(why);
            returned = true;
        } finally {
            acted = returned;
        }
    }

    /** Whether {@link #mark} was called before. */
    boolean isMarked() {
        return state == CANCELLING;
    }
}
