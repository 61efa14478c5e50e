package io.plimsoll.bench;

import io.plimsoll.Hold;
import io.plimsoll.Kind;
import io.plimsoll.Plimsoll;
import io.plimsoll.Resource;
import io.plimsoll.Task;
import io.plimsoll.TrackedLock;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.ReentrantLock;

/** A get and a free, in each of the ways in which one can write them, and what else happens as often. */
final class Pair {
    private Pair() {}

    /** {@code calm}; {@code exact}, as when the agent suspects an overload; or {@code further}: calm, in the second ledger of the process. */
    static void measure(String name, String mode) throws IOException {
        Path directory = Files.createTempDirectory(Path.of("/dev/shm"), "plimsoll-bench");
        try (Plimsoll first = Plimsoll.of("bench").directory(directory).open();
                Plimsoll app = mode.equals("further") ? Plimsoll.of("further").directory(directory).open() : Plimsoll.open("bench");
                Task task = app.task("bench").begin()) {
            if (mode.equals("exact")) {
                actAsAgent(app.file());
            }
            Resource resource = app.resource(Kind.LOCK, "table", 1);
            Timing.print(loop(name, app, task, resource));
        }
        Files.delete(directory);
    }

    private static Timing.Loop loop(String name, Plimsoll app, Task task, Resource resource) {
        ReentrantLock lock = new ReentrantLock();
        TrackedLock tracked = new TrackedLock(app, "lock");
        return switch (name) {
            case "getFree" -> n -> { // on the task
                for (int i = 0; i < n; i++) {
                    task.get(resource, 1);
                    task.free(resource, 1);
                }
            };
            case "taskHold" -> n -> { // on the task, as one writes it
                for (int i = 0; i < n; i++) {
                    try (Hold hold = task.hold(resource, 1)) {
                        // Nothing is done with it.
                    }
                }
            };
            case "hold" -> n -> { // of whatever task this thread works for
                for (int i = 0; i < n; i++) {
                    try (Hold hold = resource.hold()) {
                        // Nothing is done with it.
                    }
                }
            };
            case "lock" -> n -> { // for scale: a lock that nobody else wants
                for (int i = 0; i < n; i++) {
                    lock.lock();
                    lock.unlock();
                }
            };
            case "trackedLock" -> n -> { // the same, accounted
                for (int i = 0; i < n; i++) {
                    tracked.lock();
                    tracked.unlock();
                }
            };
            case "task" -> n -> { // that does nothing, from its beginning to its end
                for (int i = 0; i < n; i++) {
                    app.task("bench").begin().close();
                }
            };
            default -> throw new IllegalArgumentException(name);
        };
    }

    /** Someone who is there and wants exact times, until the process ends. */
    private static void actAsAgent(Path ledger) throws IOException {
        try (RandomAccessFile file = new RandomAccessFile(ledger.toFile(), "rw")) {
            MemorySegment words = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 4096, Arena.ofAuto());
            Thread agent = new Thread(() -> {
                while (true) {
                    words.set(ValueLayout.JAVA_LONG, 0xc0, System.nanoTime());
                    words.set(ValueLayout.JAVA_LONG, 0xc8, 1);
                    java.util.concurrent.locks.LockSupport.parkNanos(10_000_000);
                }
            });
            agent.setDaemon(true);
            agent.start();
        }
    }
}
