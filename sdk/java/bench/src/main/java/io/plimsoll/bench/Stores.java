package io.plimsoll.bench;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Why the SDK stores as it does: the five stores and two loads of a pair, bare; by the arena that the memory is of, by the order of the stores, and by whether the compiler knows the
 * segment as a constant.
 */
final class Stores {
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    private static final long CLOCK = 256;
    private static final long ACCOUNT = 4096;

    private static MemorySegment made;

    /** Initialised when it is first used, after {@link #made} is there. */
    private static final class Constant {
        static final MemorySegment SEGMENT = made;
    }

    private final MemorySegment field;
    private long count;

    private Stores(MemorySegment field) {
        this.field = field;
    }

    static void measure(String name, String arena) throws IOException {
        Arena of = switch (arena) {
            case "global" -> Arena.global();
            case "shared" -> Arena.ofShared();
            default -> Arena.ofAuto();
        };
        Path path = Files.createTempFile(Path.of("/dev/shm"), "plimsoll-bench", "");
        try (RandomAccessFile file = new RandomAccessFile(path.toFile(), "rw")) {
            file.setLength(8192);
            made = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 8192, of);
        }
        Files.delete(path);
        Stores stores = new Stores(made);
        Timing.print(switch (name) {
            case "fieldRelease" -> n -> {
                for (int i = 0; i < n; i++) {
                    stores.release(stores.field);
                }
            };
            case "fieldPlain" -> n -> {
                for (int i = 0; i < n; i++) {
                    stores.plain(stores.field);
                }
            };
            // What the SDK does for the first ledger of a process.
            case "constantRelease" -> n -> {
                for (int i = 0; i < n; i++) {
                    stores.release(Constant.SEGMENT);
                }
            };
            // Which the compiler may put in another order.
            case "constantPlain" -> n -> {
                for (int i = 0; i < n; i++) {
                    stores.plain(Constant.SEGMENT);
                }
            };
            default -> throw new IllegalArgumentException(name);
        });
    }

    private static long clock(MemorySegment memory) {
        return (long) LONG.getOpaque(memory, CLOCK);
    }

    private void release(MemorySegment memory) {
        long n = ++count;
        LONG.setRelease(memory, ACCOUNT + 8, n);
        LONG.setRelease(memory, ACCOUNT + 56, clock(memory));
        long now = clock(memory);
        LONG.setRelease(memory, ACCOUNT + 56, 0L);
        LONG.setRelease(memory, ACCOUNT + 40, now);
        LONG.setRelease(memory, ACCOUNT + 16, n);
    }

    private void plain(MemorySegment memory) {
        long n = ++count;
        LONG.set(memory, ACCOUNT + 8, n);
        LONG.set(memory, ACCOUNT + 56, clock(memory));
        long now = clock(memory);
        LONG.set(memory, ACCOUNT + 56, 0L);
        LONG.set(memory, ACCOUNT + 40, now);
        LONG.set(memory, ACCOUNT + 16, n);
    }
}
