package io.plimsoll;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * A {@link Semaphore} whose permits are accounted: who waits for them and who has them.
 *
 * <p>For permits that are given back by the thread that took them. Those that another thread gives back stay on the account of who took them until that task ends: what hands permits on is
 * no resource, and needs no tracking.
 */
public final class TrackedSemaphore extends Semaphore {
    private static final long serialVersionUID = 1;

    private final transient Resource resource;

    /** Permits that go to whoever comes at the right moment. */
    public TrackedSemaphore(Plimsoll app, String name, int permits) {
        this(app, name, permits, false);
    }

    /** Permits that, if {@code fair}, go first to who has waited longest. */
    public TrackedSemaphore(Plimsoll app, String name, int permits, boolean fair) {
        super(permits, fair);
        resource = app.resource(Kind.QUEUE, name, Math.max(0, permits));
    }

    /** What it is in the ledger. */
    public Resource resource() {
        return resource;
    }

    @Override
    public void acquire() throws InterruptedException {
        acquire(1);
    }

    @Override
    public void acquire(int permits) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        Account account = resource.here();
        if (!takesAtOnce(permits)) {
            try (Wait wait = new Wait(account)) {
                super.acquire(permits);
                account.get(permits);
            }
        } else {
            account.get(permits);
        }
    }

    @Override
    public void acquireUninterruptibly() {
        acquireUninterruptibly(1);
    }

    @Override
    public void acquireUninterruptibly(int permits) {
        Account account = resource.here();
        if (!takesAtOnce(permits)) {
            account.await();
            super.acquireUninterruptibly(permits);
        }
        account.get(permits);
    }

    @Override
    public boolean tryAcquire() {
        return tryAcquire(1);
    }

    @Override
    public boolean tryAcquire(int permits) {
        boolean has = super.tryAcquire(permits);
        if (has) {
            resource.here().get(permits);
        }
        return has;
    }

    @Override
    public boolean tryAcquire(long timeout, TimeUnit unit) throws InterruptedException {
        return tryAcquire(1, timeout, unit);
    }

    @Override
    public boolean tryAcquire(int permits, long timeout, TimeUnit unit) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        Account account = resource.here();
        boolean has = takesAtOnce(permits);
        if (!has) {
            try (Wait wait = new Wait(account)) {
                has = super.tryAcquire(permits, timeout, unit);
            }
        }
        if (has) {
            account.get(permits);
        }
        return has;
    }

    @Override
    public int drainPermits() {
        int permits = super.drainPermits();
        resource.here().get(permits);
        return permits;
    }

    @Override
    public void release() {
        release(1);
    }

    @Override
    public void release(int permits) {
        if (permits >= 0) {
            resource.free(permits); // before: afterwards they may be somebody else's already
        }
        super.release(permits);
    }

    private boolean takesAtOnce(int permits) {
        return (!isFair() || !hasQueuedThreads()) && super.tryAcquire(permits);
    }
}
