package io.plimsoll;

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;

/**
 * A pool of things that tasks take turns with: workers, connections, buffers. Who has waited longest is next, and gets what was used last.
 *
 * <pre>{@code
 * try (TrackedPool<Connection>.Lease lease = pool.take()) {
 *     lease.get().execute(...);
 * }
 * }</pre>
 *
 * <p>A lease may be closed by another thread than took it. Waiting for one ends when the thread is interrupted.
 */
public final class TrackedPool<T> {
    private final Semaphore permits;
    private final ConcurrentLinkedDeque<T> free;
    private final Resource resource;

    /** A pool of these, of which there is at least one. */
    public TrackedPool(Plimsoll app, String name, Collection<? extends T> all) {
        List<T> copy = List.copyOf(all);
        if (copy.isEmpty()) {
            throw new IllegalArgumentException("the pool " + name + " is empty: whoever takes of it would wait for ever");
        }
        permits = new Semaphore(copy.size(), true);
        free = new ConcurrentLinkedDeque<>(copy);
        resource = app.resource(Kind.QUEUE, name, copy.size());
    }

    /** What it is in the ledger. */
    public Resource resource() {
        return resource;
    }

    /** One of them, as soon as there is one. */
    public Lease take() throws InterruptedException {
        return take(Long.MAX_VALUE);
    }

    /** One of them; the exception if there is none within that time. */
    public Lease take(Duration atMost) throws InterruptedException, TimeoutException {
        Lease lease = take(atMost.toNanos());
        if (lease == null) {
            throw new TimeoutException("nothing in the pool was free for " + atMost);
        }
        return lease;
    }

    private Lease take(long atMostNs) throws InterruptedException {
        Account account = resource.extra();
        boolean has = false;
        try {
            has = permits.tryAcquire(0, TimeUnit.NANOSECONDS); // in turn, unlike without a time
            if (!has) {
                account.await();
                has = permits.tryAcquire(atMostNs, TimeUnit.NANOSECONDS);
            }
        } finally {
            if (!has) {
                account.end();
            }
        }
        return has ? new Lease(account) : null;
    }

    /** One of the pool's, until this is closed. */
    public final class Lease implements AutoCloseable {
        private final AtomicReference<T> thing;
        private final Account account;

        private Lease(Account account) {
            this.account = account;
            this.thing = new AtomicReference<>(free.pollFirst());
            account.get(1);
        }

        /** What was taken. */
        public T get() {
            T taken = thing.get();
            if (taken == null) {
                throw new IllegalStateException("the lease was closed: what it was for is somebody else's");
            }
            return taken;
        }

        /** Gives it back. Once is enough. */
        @Override
        public void close() {
            T taken = thing.getAndSet(null);
            if (taken != null) {
                account.adopt();
                account.end();
                free.addFirst(taken);
                permits.release();
            }
        }
    }
}
