package io.plimsoll;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Many threads at once, some of them virtual, while somebody reads: nothing is lost, and nothing is ever seen that cannot be. */
@Timeout(120)
class ConcurrencyTest {
    private static final int THREADS = 8;
    private static final int TASKS_EACH = 400;

    @TempDir
    Path directory;

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void nothingIsLost(boolean full) throws Exception {
        long seed = Long.getLong("seed", System.nanoTime());
        System.out.println("ConcurrencyTest.nothingIsLost(" + full + "): seed " + seed + ", repeat with -Dseed=" + seed);
        Plimsoll.Builder builder = Plimsoll.of("many").directory(directory).lanes(2);
        try (Plimsoll app = (full ? builder.tasks(5).accounts(9) : builder).open()) {
            List<Resource> resources = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                resources.add(app.resource(Kind.QUEUE, "resource " + i, 10));
            }
            TrackedPool<Integer> pool = new TrackedPool<>(app, "pool", List.of(1, 2, 3));
            if (full) {
                beginOneTooMany(app);
            }
            AtomicReference<Throwable> failed = new AtomicReference<>();
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < THREADS; t++) {
                Random random = new Random(seed + t);
                Runnable body = () -> {
                    try {
                        for (int i = 0; i < TASKS_EACH; i++) {
                            task(app, resources, pool, random);
                        }
                    } catch (Throwable e) {
                        failed.compareAndSet(null, e);
                    }
                };
                threads.add(t % 2 == 0 ? Thread.ofPlatform().start(body) : Thread.ofVirtual().start(body));
            }
            AtomicBoolean done = new AtomicBoolean();
            Thread reader = Thread.ofPlatform().start(() -> read(app, done, failed));
            for (Thread thread : threads) {
                thread.join();
            }
            done.set(true);
            reader.join();
            if (failed.get() != null) {
                throw new AssertionError("seed " + seed, failed.get());
            }
            check(app, full);
        }
    }

    /** One is refused, whether the threads ever have that many at once or not. */
    private static void beginOneTooMany(Plimsoll app) {
        List<Task> tasks = new ArrayList<>();
        for (int i = 0; i <= app.ledger.shape.tasks(); i++) {
            tasks.add(app.task("one of many").background().detached().begin());
        }
        tasks.forEach(Task::close);
    }

    private static void task(Plimsoll app, List<Resource> resources, TrackedPool<Integer> pool, Random random) throws Exception {
        try (Task task = app.task("task").key(random.nextInt()).begin()) {
            for (int i = random.nextInt(12); i > 0; i--) {
                Resource resource = resources.get(random.nextInt(resources.size()));
                switch (random.nextInt(7)) {
                    case 0 -> resource.get(random.nextInt(5));
                    case 1 -> resource.free(random.nextInt(5));
                    case 2 -> resource.await();
                    case 3 -> resource.slow(1, 10);
                    case 4 -> {
                        try (TrackedPool<Integer>.Lease lease = pool.take(); Hold hold = resource.hold(2)) {
                            Thread.yield();
                        }
                    }
                    case 5 -> Thread.ofVirtual().start(task.wrap(() -> resource.get(3))).join();
                    default -> task.progress(i, 12);
                }
            }
        }
    }

    /** Front to back, as the agent reads: never more given back than taken. */
    private static void read(Plimsoll app, AtomicBoolean done, AtomicReference<Throwable> failed) {
        Ledger ledger = app.ledger;
        long[] before = new long[ledger.shape.accounts()];
        try {
            while (!done.get()) {
                int used = Memory.getInt(ledger.memory, Layout.AT_ACCOUNTS_USED);
                for (int i = 0; i < used; i++) {
                    long at = ledger.shape.accountAt(i);
                    long frees = Memory.get(ledger.memory, at + Layout.FREES);
                    java.lang.invoke.VarHandle.acquireFence();
                    long gets = Memory.get(ledger.memory, at + Layout.GETS);
                    assertTrue(frees <= gets, "account " + i + " freed " + frees + " of " + gets);
                    assertTrue(gets >= before[i], "account " + i + " went back");
                    before[i] = gets;
                }
            }
        } catch (Throwable e) {
            failed.compareAndSet(null, e);
        }
    }

    private static void check(Plimsoll app, boolean full) throws Exception {
        String dump = Dump.of(Files.readAllBytes(app.file()));
        long completed = 0;
        long bins = 0;
        for (String line : dump.lines().toList()) {
            if (line.startsWith("account ")) {
                assertTrue(line.contains(" task=- "), line);
                assertEquals(word(line, "gets"), word(line, "frees"), line);
                assertTrue(line.endsWith(" waiting_since_ns=0 holding_since_ns=0"), line);
            } else if (line.startsWith("task ")) {
                assertEquals(0, word(line, "turn") % 2, line);
            } else if (line.startsWith("lane ")) {
                completed += word(line, "completed");
                for (String bin : line.substring(line.indexOf("bins=") + 5).split(",")) {
                    bins += Long.parseLong(bin.substring(bin.indexOf(':') + 1));
                }
            } else if (line.startsWith("application")) {
                assertEquals(full, word(line, "tasks_refused") > 0, line);
                assertTrue(word(line, "tasks_used") <= (full ? 5 : THREADS), line);
            }
        }
        assertEquals(THREADS * TASKS_EACH, completed);
        assertEquals(completed, bins);
        for (int i = 0; i < app.ledger.shape.tasks(); i++) {
            assertEquals(null, app.live(i));
        }
    }

    private static long word(String line, String name) {
        String rest = line.substring(line.indexOf(" " + name + "=") + name.length() + 2);
        return Long.parseLong(rest.contains(" ") ? rest.substring(0, rest.indexOf(' ')) : rest);
    }
}
