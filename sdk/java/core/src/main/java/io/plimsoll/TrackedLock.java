package io.plimsoll;

import java.util.Date;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A {@link ReentrantLock} that is accounted: who waits for it and who has it. To hold it more than once is to hold it.
 *
 * <p>A task that waits in {@link #lockInterruptibly} can be cancelled by interrupting it; one that waits in {@link #lock} goes on waiting.
 */
public final class TrackedLock implements Lock {
    private final ReentrantLock lock;
    private final Resource resource;
    /** The account of who has it. Guarded by the lock. */
    private Account holder = Account.NOBODYS;

    /** A lock that lets pass whoever comes at the right moment. */
    public TrackedLock(Plimsoll app, String name) {
        this(app, name, false);
    }

    /** One that, if {@code fair}, goes first to who has waited longest. */
    public TrackedLock(Plimsoll app, String name, boolean fair) {
        this.lock = new ReentrantLock(fair);
        this.resource = app.resource(Kind.LOCK, name, 1);
    }

    /** What it is in the ledger. */
    public Resource resource() {
        return resource;
    }

    @Override
    public void lock() {
        if (takesAtOnce()) {
            acquired(null);
            return;
        }
        Account account = resource.here();
        account.await();
        lock.lock();
        acquired(account);
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        if (takesAtOnce()) {
            acquired(null);
            return;
        }
        Account account = resource.here();
        account.await();
        boolean has = false;
        try {
            lock.lockInterruptibly();
            has = true;
        } finally {
            ended(account, has);
        }
    }

    @Override
    public boolean tryLock() {
        if (!lock.tryLock()) {
            return false;
        }
        acquired(null);
        return true;
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        if (takesAtOnce()) {
            acquired(null);
            return true;
        }
        Account account = resource.here();
        account.await();
        boolean has = false;
        try {
            has = lock.tryLock(time, unit);
        } finally {
            ended(account, has);
        }
        return has;
    }

    /** Whether nobody has it or is before us. */
    private boolean takesAtOnce() {
        return (!lock.isFair() || lock.isHeldByCurrentThread() || !lock.hasQueuedThreads()) && lock.tryLock();
    }

    private void ended(Account account, boolean has) {
        if (has) {
            acquired(account);
        } else {
            account.endWait();
        }
    }

    private void acquired(Account account) {
        if (lock.getHoldCount() == 1) {
            holder = account != null ? account : resource.here();
            holder.get(1);
        }
    }

    @Override
    public void unlock() {
        // Before it is: afterwards it may be somebody else's already. Who does not have it is told so by the lock.
        if (lock.getHoldCount() == 1) {
            holder.free(1);
            holder = Account.NOBODYS;
        }
        lock.unlock();
    }

    /** Who waits on the condition does not have the lock meanwhile. */
    @Override
    public Condition newCondition() {
        return new TrackedCondition(lock.newCondition());
    }

    private final class TrackedCondition implements Condition {
        private final Condition condition;

        TrackedCondition(Condition condition) {
            this.condition = condition;
        }

        private Account release() {
            if (!lock.isHeldByCurrentThread()) {
                return Account.NOBODYS; // and the condition says so
            }
            Account account = holder;
            holder = Account.NOBODYS;
            account.free(1);
            return account;
        }

        private void reacquire(Account account) {
            if (lock.isHeldByCurrentThread()) {
                holder = account;
                account.get(1);
            }
        }

        @Override
        public void await() throws InterruptedException {
            Account account = release();
            try {
                condition.await();
            } finally {
                reacquire(account);
            }
        }

        @Override
        public void awaitUninterruptibly() {
            Account account = release();
            try {
                condition.awaitUninterruptibly();
            } finally {
                reacquire(account);
            }
        }

        @Override
        public long awaitNanos(long nanos) throws InterruptedException {
            Account account = release();
            try {
                return condition.awaitNanos(nanos);
            } finally {
                reacquire(account);
            }
        }

        @Override
        public boolean await(long time, TimeUnit unit) throws InterruptedException {
            Account account = release();
            try {
                return condition.await(time, unit);
            } finally {
                reacquire(account);
            }
        }

        @Override
        public boolean awaitUntil(Date deadline) throws InterruptedException {
            Account account = release();
            try {
                return condition.awaitUntil(deadline);
            } finally {
                reacquire(account);
            }
        }

        @Override
        public void signal() {
            condition.signal();
        }

        @Override
        public void signalAll() {
            condition.signalAll();
        }
    }
}
