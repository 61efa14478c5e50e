package io.plimsoll;

import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/** A {@link ReentrantReadWriteLock} that is accounted: each reader has a share of it, the writer has it. How many readers there can be nobody knows. */
public final class TrackedReadWriteLock implements ReadWriteLock {
    private final ReentrantReadWriteLock lock;
    private final Resource resource;
    private final Lock reading;
    private final Lock writing;

    /** A lock that lets pass whoever comes at the right moment. */
    public TrackedReadWriteLock(Plimsoll app, String name) {
        this(app, name, false);
    }

    /** One that, if {@code fair}, goes first to who has waited longest. */
    public TrackedReadWriteLock(Plimsoll app, String name, boolean fair) {
        lock = new ReentrantReadWriteLock(fair);
        resource = app.resource(Kind.LOCK, name, 0);
        reading = new Half(lock.readLock());
        writing = new Half(lock.writeLock());
    }

    /** What it is in the ledger. */
    public Resource resource() {
        return resource;
    }

    @Override
    public Lock readLock() {
        return reading;
    }

    /** Its conditions are those of the lock beneath: a thread that waits on one still counts as having the lock. */
    @Override
    public Lock writeLock() {
        return writing;
    }

    private final class Half implements Lock {
        private final Lock half;

        Half(Lock half) {
            this.half = half;
        }

        /** Whether it is free for us, and nobody is before us. */
        private boolean takesAtOnce() {
            boolean has = lock.isWriteLockedByCurrentThread() || lock.getReadHoldCount() > 0;
            return (!lock.isFair() || has || !lock.hasQueuedThreads()) && half.tryLock();
        }

        @Override
        public void lock() {
            Account account = resource.here();
            if (!takesAtOnce()) {
                account.await();
                half.lock();
            }
            account.get(1);
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            Account account = resource.here();
            if (!takesAtOnce()) {
                try (Wait wait = new Wait(account)) {
                    half.lockInterruptibly();
                    account.get(1);
                }
            } else {
                account.get(1);
            }
        }

        @Override
        public boolean tryLock() {
            boolean has = half.tryLock();
            if (has) {
                resource.here().get(1);
            }
            return has;
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            Account account = resource.here();
            boolean has = takesAtOnce();
            if (!has) {
                try (Wait wait = new Wait(account)) {
                    has = half.tryLock(time, unit);
                }
            }
            if (has) {
                account.get(1);
            }
            return has;
        }

        @Override
        public void unlock() {
            // Before it is: afterwards it may be somebody else's already. Who does not have it is told so by the lock.
            if (half == lock.writeLock() ? lock.isWriteLockedByCurrentThread() : lock.getReadHoldCount() > 0) {
                resource.free(1);
            }
            half.unlock();
        }

        @Override
        public Condition newCondition() {
            return half.newCondition();
        }
    }
}
