package io.plimsoll;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;

/** The file of a ledger: where it goes, how it is made, and that it goes away. */
final class LedgerFile {
    private static final Pattern APP = Pattern.compile("[a-zA-Z0-9_-]{1,32}");
    /** Tells files from one another that are being made at once. */
    private static final AtomicInteger MAKING = new AtomicInteger();

    final Path path;
    final MemorySegment memory;

    private LedgerFile(Path path, MemorySegment memory) {
        this.path = path;
        this.memory = memory;
    }

    /** What is written into a new ledger. {@code createdNs} is nanoseconds of CLOCK_MONOTONIC. */
    record Head(String app, Layout.Shape shape, long pid, long pidStarted, long createdNs) {}

    static String name(String app, long pid) {
        return app + "." + pid + ".ledger";
    }

    static boolean isAppName(String app) {
        return APP.matcher(app).matches();
    }

    /** The directory of ledgers: {@code asked}, or {@code $PLIMSOLL_DIR}, or {@code /dev/shm/plimsoll-UID}; made if it is missing. */
    static Path directory(Path asked) throws LedgerException {
        try {
            String environment = System.getenv("PLIMSOLL_DIR");
            Path dir = asked != null
                    ? asked
                    : environment != null && !environment.isEmpty() ? Path.of(environment) : Path.of("/dev/shm/plimsoll-" + Own.uid());
            // In /dev/shm anybody can lay a link; one that somebody named may be one.
            LinkOption[] how = asked == null && environment == null ? new LinkOption[] {LinkOption.NOFOLLOW_LINKS} : new LinkOption[0];
            if (!Files.exists(dir, how)) {
                try {
                    Files.createDirectory(dir, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
                } catch (FileAlreadyExistsException e) {
                    // Another process of ours was quicker.
                }
            }
            if (!Files.isDirectory(dir, how)) {
                throw new LedgerException("directory", dir + " is no directory");
            }
            int owner = Own.ownerOf(dir, how);
            if (owner != Own.uid() && owner != 0) {
                throw new LedgerException("directory", dir + " belongs to user " + owner + ", but must be ours or root's");
            }
            if ((Own.modeOf(dir, how) & 0002) != 0) {
                throw new LedgerException("directory", dir + " can be written by everybody; its mode should be 0700");
            }
            return dir;
        } catch (IOException | UnsupportedOperationException | IllegalArgumentException e) {
            throw new LedgerException("io", "there is no directory for ledgers: " + e);
        }
    }

    /** Makes a ledger, whole or not at all, and never in the place of one of this process. */
    static LedgerFile make(Path directory, Head head, boolean groupReads) throws LedgerException {
        Path path = directory.resolve(name(head.app, head.pid));
        Path making = directory.resolve("." + head.app + "." + head.pid + "." + MAKING.getAndIncrement() + ".new");
        // A thread that is interrupted cannot use files: that it is, is put off.
        boolean interrupted = Thread.interrupted();
        try {
            Files.deleteIfExists(making);
            try {
                MemorySegment memory = fill(making, head, groupReads);
                name(making, path, head);
                return new LedgerFile(path, memory);
            } finally {
                Files.deleteIfExists(making);
            }
        } catch (IOException | UnsupportedOperationException | InternalError e) {
            throw new LedgerException("io", "cannot make " + path + ": " + e);
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static MemorySegment fill(Path making, Head head, boolean groupReads) throws IOException {
        Layout.Shape shape = head.shape;
        Files.createFile(making, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
        if (groupReads) {
            // Whatever the umask says.
            Files.setPosixFilePermissions(making, PosixFilePermissions.fromString("rw-r-----"));
        }
        try (RandomAccessFile file = new RandomAccessFile(making.toFile(), "rw")) {
            // Its pages are had now or never: one that is missing when the application writes to it would be an error in the middle of anything.
            byte[] zeros = new byte[1 << 16];
            for (long left = shape.bytes(); left > 0; left -= zeros.length) {
                file.write(zeros, 0, (int) Math.min(left, zeros.length));
            }
            // Of the collector's arena: it is unmapped when nothing can reach it, never under the hands of a thread that writes.
            MemorySegment memory = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, shape.bytes(), Arena.ofAuto());
            Memory.putInt(memory, Layout.AT_VERSION, Layout.VERSION);
            Memory.putInt(memory, Layout.AT_RESOURCES, shape.resources());
            Memory.putInt(memory, Layout.AT_LANES, shape.lanes());
            Memory.putInt(memory, Layout.AT_TASKS, shape.tasks());
            Memory.putInt(memory, Layout.AT_ACCOUNTS, shape.accounts());
            Memory.put(memory, Layout.AT_PID, head.pid);
            Memory.put(memory, Layout.AT_PID_STARTED, head.pidStarted);
            Memory.put(memory, Layout.AT_CREATED_NS, head.createdNs);
            Memory.putText(memory, Layout.AT_APP, Layout.text(head.app, Layout.APP_BYTES));
            Memory.put(memory, Layout.AT_MAGIC, Layout.MAGIC);
            return memory;
        }
    }

    /** Gives the file its name. A link, not a renaming, since that replaces what has the name already. */
    private static void name(Path making, Path path, Head head) throws IOException, LedgerException {
        try {
            Files.createLink(path, making);
        } catch (FileAlreadyExistsException e) {
            if (isOf(path, head)) {
                throw new LedgerException("already", "this process has a ledger " + path + " already, by another copy of the SDK: give one of them another name");
            }
            // An earlier process of this number left it.
            Files.deleteIfExists(path);
            Files.createLink(path, making);
        }
    }

    private static boolean isOf(Path path, Head head) {
        ByteBuffer there = ByteBuffer.allocate(0x30).order(ByteOrder.LITTLE_ENDIAN);
        try (FileChannel file = FileChannel.open(path, Set.of(StandardOpenOption.READ))) {
            return file.read(there, 0) == there.capacity()
                    && there.getLong((int) Layout.AT_MAGIC) == Layout.MAGIC
                    && there.getLong((int) Layout.AT_PID) == head.pid
                    && there.getLong((int) Layout.AT_PID_STARTED) == head.pidStarted;
        } catch (IOException e) {
            return false;
        }
    }

    /** Removes the file; who goes on writing writes for nobody. */
    void remove() {
        try {
            Files.deleteIfExists(path);
        } catch (IOException | RuntimeException e) {
            // The agent removes what is left.
        }
    }
}
