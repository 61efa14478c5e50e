package io.plimsoll;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;

/** What this process is: its number, its start, its user, the numbers of its threads. From {@code /proc}, since the JDK names no call for them. */
final class Own {
    private static final Path PROCESS = Path.of("/proc/self");
    private static final Path THREAD = Path.of("/proc/thread-self");

    private Own() {}

    static long pid() {
        return ProcessHandle.current().pid();
    }

    /** Field 22 of {@code stat}: when the process started, in clock ticks since the machine did. */
    static long started() throws IOException {
        String stat = Files.readString(PROCESS.resolve("stat"), StandardCharsets.ISO_8859_1);
        // The name, in brackets, may hold spaces and brackets.
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return Long.parseLong(fields[22 - 3]);
    }

    static int uid() throws IOException {
        return (Integer) Files.getAttribute(PROCESS, "unix:uid");
    }

    static UserPrincipal user() throws IOException {
        return Files.getOwner(PROCESS);
    }

    /** The system's number of this thread; 0 for a virtual one, which has none, and where it cannot be had. A few microseconds: ask once a thread. */
    static int tid() {
        if (Thread.currentThread().isVirtual()) {
            return 0;
        }
        try {
            return Integer.parseInt(Files.readSymbolicLink(THREAD).getFileName().toString());
        } catch (IOException | RuntimeException e) {
            return 0;
        }
    }

    /** Whose a directory is, by number. */
    static int ownerOf(Path path, LinkOption... how) throws IOException {
        return (Integer) Files.getAttribute(path, "unix:uid", how);
    }

    static int modeOf(Path path, LinkOption... how) throws IOException {
        return (Integer) Files.getAttribute(path, "unix:mode", how);
    }
}
