package io.plimsoll;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Locks, semaphores and pools do what those of the JDK do, and are accounted. */
@Timeout(60)
class WrappersTest {
    @TempDir
    Path directory;

    private Plimsoll app;

    @BeforeEach
    void start() {
        app = Plimsoll.of("wrappers").directory(directory).open();
    }

    @AfterEach
    void stop() {
        app.close();
    }

    private String line(String begin) throws Exception {
        return Dump.of(Files.readAllBytes(app.file())).lines().filter(line -> line.startsWith(begin)).findFirst().orElse("");
    }

    /** The counters of an account, such as {@code gets=1 frees=0 slows=0}. */
    private String account(int index) throws Exception {
        String line = line("account " + index + " ");
        return line.isEmpty() ? "" : line.substring(line.indexOf("gets="), line.indexOf(" wait_ns="));
    }

    private boolean waits(int index) {
        try {
            String line = line("account " + index + " ");
            return !line.isEmpty() && !line.contains(" waiting_since_ns=0 ");
        } catch (Exception e) {
            throw new AssertionError(e);
        }
    }

    /** Runs {@code body} as a task of another thread until it waits for the resource, as account 1. */
    private Thread waiter(ThrowingRunnable body) throws InterruptedException {
        Thread thread = Thread.ofPlatform().start(() -> {
            try (Task task = app.task("waiter").begin()) {
                body.run();
            } catch (Exception e) {
                // An interrupt, which is what some of these want.
            }
        });
        while (!waits(1)) {
            Thread.sleep(1);
        }
        return thread;
    }

    interface ThrowingRunnable {
        void run() throws Exception;
    }

    @Test
    void aLockIsHeldFromLockToUnlockHoweverOften() throws Exception {
        TrackedLock lock = new TrackedLock(app, "table");
        try (Task task = app.task("a").begin()) {
            lock.lock();
            lock.lockInterruptibly();
            assertTrue(lock.tryLock());
            assertTrue(lock.tryLock(1, TimeUnit.SECONDS));
            assertEquals("gets=1 frees=0 slows=0", account(0));
            for (int i = 0; i < 3; i++) {
                lock.unlock();
            }
            assertEquals("gets=1 frees=0 slows=0", account(0));
            lock.unlock();
            assertEquals("gets=1 frees=1 slows=0", account(0));
            assertThrows(IllegalMonitorStateException.class, lock::unlock);
        }
        assertEquals("resource 0 LOCK capacity=1 table", line("resource 0"));
    }

    @Test
    void whoWaitsForALockIsSeenAndGetsIt() throws Exception {
        for (boolean fair : new boolean[] {false, true}) {
            TrackedLock lock = new TrackedLock(app, "table", fair);
            try (Task task = app.task("a").begin()) {
                lock.lock();
                Thread waiter = waiter(() -> {
                    lock.lock();
                    lock.unlock();
                });
                lock.unlock();
                waiter.join();
            }
        }
        assertEquals("gets=2 frees=2 slows=2", account(1));
        assertFalse(waits(1));
    }

    @Test
    void whoIsInterruptedWaitsNoMore() throws Exception {
        TrackedLock lock = new TrackedLock(app, "table");
        try (Task task = app.task("a").begin()) {
            lock.lock();
            Thread waiter = waiter(lock::lockInterruptibly);
            waiter.interrupt();
            waiter.join();
            assertEquals("gets=0 frees=0 slows=1", account(1));
            assertFalse(waits(1));
            Thread.ofPlatform().start(() -> {
                try (Task impatient = app.task("impatient").begin()) {
                    lock.tryLock(1, TimeUnit.MILLISECONDS);
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            }).join();
            assertEquals("gets=0 frees=0 slows=2", account(1));
            assertFalse(waits(1));
            lock.unlock();
        }
    }

    @Test
    void whoWaitsOnAConditionHasTheLockNoMore() throws Exception {
        TrackedLock lock = new TrackedLock(app, "queue");
        Condition filled = lock.newCondition();
        CountDownLatch waiting = new CountDownLatch(1);
        Thread consumer = Thread.ofVirtual().start(() -> {
            try (Task task = app.task("consumer").begin()) {
                lock.lock();
                waiting.countDown();
                filled.awaitUninterruptibly();
                lock.unlock();
            }
        });
        waiting.await();
        lock.lock(); // not before it waits
        assertEquals("gets=1 frees=1 slows=0", account(0));
        filled.signalAll();
        lock.unlock();
        consumer.join();
        assertEquals("gets=2 frees=2 slows=0", account(0));
        assertThrows(IllegalMonitorStateException.class, filled::await);
    }

    @Test
    void aLockThatIsTakenWithinAnotherTaskIsGivenBackToWhoTookIt() throws Exception {
        TrackedLock lock = new TrackedLock(app, "table");
        try (Task outer = app.task("outer").begin()) {
            lock.lock();
            try (Task inner = app.task("inner").begin()) {
                lock.unlock();
            }
            assertEquals("gets=1 frees=1 slows=0", account(0));
        }
    }

    @Test
    void readersHaveSharesAndTheWriterHasAll() throws Exception {
        TrackedReadWriteLock lock = new TrackedReadWriteLock(app, "index");
        try (Task task = app.task("a").begin()) {
            lock.readLock().lock();
            assertTrue(lock.readLock().tryLock());
            assertEquals("gets=2 frees=0 slows=0", account(0));
            Thread writer = waiter(() -> {
                lock.writeLock().lock();
                lock.readLock().lockInterruptibly();
                lock.writeLock().unlock();
                lock.readLock().unlock();
            });
            lock.readLock().unlock();
            lock.readLock().unlock();
            writer.join();
            assertThrows(IllegalMonitorStateException.class, () -> lock.readLock().unlock());
            assertThrows(IllegalMonitorStateException.class, () -> lock.writeLock().unlock());
            lock.writeLock().lock();
            assertTrue(lock.writeLock().tryLock(1, TimeUnit.SECONDS));
            lock.writeLock().unlock();
            lock.writeLock().unlock();
            assertEquals("gets=4 frees=4 slows=0", account(0));
            assertEquals("gets=2 frees=2 slows=1", account(1));
        }
        assertEquals("resource 0 LOCK capacity=0 index", line("resource 0"));
    }

    @Test
    void aWriterThatIsInterruptedWaitsNoMore() throws Exception {
        Lock reading = new TrackedReadWriteLock(app, "index", true).readLock();
        TrackedReadWriteLock lock = new TrackedReadWriteLock(app, "index", true);
        try (Task task = app.task("a").begin()) {
            reading.lock();
            lock.readLock().lock();
            Thread writer = waiter(() -> lock.writeLock().lockInterruptibly());
            writer.interrupt();
            writer.join();
            assertEquals("gets=0 frees=0 slows=1", account(1));
            assertFalse(lock.writeLock().tryLock());
        }
    }

    @Test
    void permitsAreHeldFromAcquireToRelease() throws Exception {
        TrackedSemaphore semaphore = new TrackedSemaphore(app, "permits", 5);
        try (Task task = app.task("a").begin()) {
            semaphore.acquire();
            semaphore.acquire(2);
            assertTrue(semaphore.tryAcquire());
            assertFalse(semaphore.tryAcquire(2));
            assertFalse(semaphore.tryAcquire(2, 1, TimeUnit.MILLISECONDS));
            assertEquals("gets=4 frees=0 slows=1", account(0));
            semaphore.acquireUninterruptibly();
            Thread waiter = waiter(() -> {
                semaphore.acquire(3);
                semaphore.release(3);
            });
            semaphore.release(4);
            waiter.join();
            assertEquals("gets=5 frees=4 slows=1", account(0));
            assertEquals("gets=3 frees=3 slows=1", account(1));
            semaphore.release();
            assertEquals(5, semaphore.drainPermits());
            semaphore.release(5);
            assertEquals("gets=10 frees=10 slows=1", account(0));
            assertEquals(5, semaphore.availablePermits());
            assertThrows(IllegalArgumentException.class, () -> semaphore.acquire(-1));
        }
        assertEquals("resource 0 QUEUE capacity=5 permits", line("resource 0"));
    }

    @Test
    void aPoolLendsEachOnce() throws Exception {
        TrackedPool<String> pool = new TrackedPool<>(app, "connections", List.of("one", "two"));
        try (Task task = app.task("a").begin()) {
            TrackedPool<String>.Lease one = pool.take();
            TrackedPool<String>.Lease two = pool.take(Duration.ofSeconds(1));
            assertEquals(java.util.Set.of("one", "two"), java.util.Set.of(one.get(), two.get()));
            assertThrows(TimeoutException.class, () -> pool.take(Duration.ofMillis(1)));
            two.close();
            two.close();
            assertThrows(IllegalStateException.class, two::get);
            try (TrackedPool<String>.Lease again = pool.take()) {
                assertEquals("two", again.get());
            }
            one.close();
        }
        assertEquals("resource 0 QUEUE capacity=2 connections", line("resource 0"));
        assertTrue(line("account 0").contains(" task=- "));
    }

    @Test
    void aLeaseMayBeGivenBackByAnotherThreadEvenAfterTheTask() throws Exception {
        TrackedPool<String> pool = new TrackedPool<>(app, "connections", List.of("one"));
        TrackedPool<String>.Lease lease;
        try (Task task = app.task("a").begin()) {
            lease = pool.take();
            TrackedPool<String>.Lease first = lease;
            Thread.ofVirtual().start(first::close).join();
            assertEquals("gets=1 frees=1 slows=0", account(0));
            lease = pool.take();
        }
        assertTrue(line("account 0").contains(" task=- "));
        try (Task task = app.task("b").begin()) {
            lease.close();
            lease = pool.take();
            assertEquals("gets=3 frees=2 slows=0", account(0));
            lease.close();
        }
    }

    @Test
    void whoWaitsForAPoolIsSeenAndCanBeInterrupted() throws Exception {
        TrackedPool<String> pool = new TrackedPool<>(app, "connections", List.of("one"));
        try (Task task = app.task("a").begin(); TrackedPool<String>.Lease lease = pool.take()) {
            Thread waiter = waiter(pool::take);
            waiter.interrupt();
            waiter.join();
            assertEquals("gets=0 frees=0 slows=1", account(1));
            assertTrue(line("account 1").contains(" task=- "));
        }
    }

    @Test
    void withoutATaskTheyWorkAllTheSame() throws Exception {
        TrackedLock lock = new TrackedLock(app, "table");
        lock.lock();
        lock.unlock();
        TrackedReadWriteLock both = new TrackedReadWriteLock(app, "index");
        both.readLock().lock();
        both.readLock().unlock();
        TrackedSemaphore semaphore = new TrackedSemaphore(app, "permits", 1);
        semaphore.acquire();
        semaphore.release();
        try (TrackedPool<String>.Lease lease = new TrackedPool<>(app, "pool", List.of("one")).take()) {
            assertEquals("one", lease.get());
        }
        assertEquals("", line("account "));
    }
}
