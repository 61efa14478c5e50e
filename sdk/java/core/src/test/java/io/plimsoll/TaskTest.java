package io.plimsoll;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Tasks, what they hold, and ledgers that there are and are not. */
class TaskTest {
    @TempDir
    Path directory;

    private Plimsoll app;

    @AfterEach
    void stop() {
        if (app != null) {
            app.close();
        }
    }

    private Plimsoll open() {
        return app = Plimsoll.of("tasks").directory(directory).open();
    }

    /** The lines of the dump that begin so. */
    private List<String> lines(String begin) throws Exception {
        return Dump.of(Files.readAllBytes(app.file())).lines().filter(line -> line.startsWith(begin)).toList();
    }

    private static String word(String line, String name) {
        for (String word : line.split(" ")) {
            if (word.startsWith(name + "=")) {
                return word.substring(name.length() + 1);
            }
        }
        throw new AssertionError("no " + name + " in " + line);
    }

    @Test
    void whatATaskHoldsIsSeenAndIsGoneWithIt() throws Exception {
        open();
        Resource table = app.resource(Kind.LOCK, "table", 1);
        try (Task task = app.task("GET /report").key(7).begin()) {
            task.progress(2, 3);
            Hold hold = table.hold();
            try (Hold more = table.hold(4)) {
                assertEquals("5", word(lines("account 0").get(0), "gets"));
            }
            assertEquals("4", word(lines("account 0").get(0), "frees"));
            assertEquals("0", word(lines("account 0").get(0), "task"));
            String record = lines("task 0").get(0);
            assertTrue(record.contains(" turn=1 key=7 ") && record.contains(" done=2 total=3 ") && record.endsWith(" GET /report"), record);
            assertEquals("1", word(record, "flags"));
            assertEquals(Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString(), word(record, "tid"));
            assertNotNull(hold);
        }
        String account = lines("account 0").get(0);
        assertTrue(account.contains(" task=- ") && account.contains(" gets=5 frees=5 ") && account.endsWith(" holding_since_ns=0"), account);
        assertEquals("2", word(lines("task 0").get(0), "turn"));
        assertEquals(1, lines("lane ").size());
    }

    @Test
    void aHoldThatIsClosedTwiceOrTooLateIsClosedOnce() throws Exception {
        open();
        Resource table = app.resource(Kind.LOCK, "table", 1);
        Hold late;
        try (Task task = app.task("a").begin()) {
            Hold twice = table.hold();
            late = table.hold();
            twice.close();
            twice.close();
            assertEquals("1", word(lines("account 0").get(0), "frees"));
        }
        try (Task task = app.task("b").begin(); Hold hold = table.hold()) {
            late.close();
            String account = lines("account 0").get(0);
            assertTrue(account.contains(" gets=3 frees=2 "), account);
        }
    }

    @Test
    void withoutATaskNothingIsAccounted() throws Exception {
        open();
        Resource table = app.resource(Kind.LOCK, "table", 1);
        try (Hold hold = table.hold(); Wait wait = table.await()) {
            table.slow(1, 5);
            table.free(1);
        }
        assertNull(Task.current());
        assertEquals(List.of(), lines("account "));
    }

    @Test
    void tasksMayBeNestedAndClosedInAnyOrder() throws Exception {
        open();
        Resource table = app.resource(Kind.LOCK, "table", 1);
        Task outer = app.task("outer").begin();
        table.get(1);
        Task inner = app.task("inner").begin();
        assertSame(inner, Task.current());
        table.free(1); // what the task around it holds
        assertEquals("1", word(lines("account 0").get(0), "frees"));
        outer.close();
        assertSame(inner, Task.current());
        inner.close();
        assertNull(Task.current());
    }

    @Test
    void twoApplicationsInOneProcessDoNotMeet() throws Exception {
        open();
        Resource table = app.resource(Kind.LOCK, "table", 1);
        try (Plimsoll other = Plimsoll.of("other").directory(directory).open();
                Task task = app.task("ours").begin(); Task theirs = other.task("theirs").begin()) {
            Resource elsewhere = other.resource(Kind.LOCK, "elsewhere", 1);
            try (Hold a = table.hold(); Hold b = elsewhere.hold()) {
                assertEquals("1", word(lines("account 0").get(0), "gets"));
            }
            task.get(elsewhere, 1); // is nothing
            assertEquals(1, lines("account ").size());
            assertSame(theirs, Task.current());
        }
    }

    @Test
    void anotherThreadWritesAccountsOfItsOwn() throws Exception {
        open();
        Resource table = app.resource(Kind.LOCK, "table", 1);
        try (Task task = app.task("fan-out").begin(); Hold hold = table.hold()) {
            Thread.ofPlatform().start(task.wrap(() -> table.get(2))).join();
            Thread.ofVirtual().start(() -> {
                task.get(table, 9); // does not work for it: is nothing
                hold.close(); // is counted when the thread that took it next passes
            }).join();
            List<String> accounts = lines("account ");
            assertEquals(List.of("1", "2"), accounts.stream().map(line -> word(line, "gets")).toList());
            assertEquals("2", word(accounts.get(1), "frees"));
            assertEquals("0", word(accounts.get(0), "frees"));
            table.get(1);
            assertTrue(lines("account 0").get(0).contains(" gets=2 frees=1 "));
        }
    }

    @Test
    void aTaskGoesOnAfterItsThreadHasLeftIt() throws Exception {
        open();
        Resource table = app.resource(Kind.LOCK, "table", 1);
        Task task = app.task("async").begin();
        table.get(1);
        task.detach();
        assertNull(Task.current());
        assertTrue(lines("account 0").get(0).contains(" gets=1 frees=1 "));
        assertEquals("0", word(lines("task 0").get(0), "tid"));
        assertEquals("1", word(lines("task 0").get(0), "turn"));
        Thread.ofVirtual().start(task::close).join();
        assertEquals("2", word(lines("task 0").get(0), "turn"));
        task.close();
        task.progress(8, 9);
        assertEquals("0", word(lines("task 0").get(0), "done"));
        assertEquals("2", word(lines("task 0").get(0), "turn"));
    }

    @Test
    void aTaskThatAnotherThreadEndedLeavesNothingBehind() throws Exception {
        open();
        Resource table = app.resource(Kind.LOCK, "table", 1);
        Task task = app.task("ended elsewhere").begin();
        table.get(1);
        Thread.ofPlatform().start(task::close).join();
        try (Task next = app.task("next").begin()) {
            table.get(1);
            assertEquals(1, lines("account ").size());
            assertTrue(lines("account 0").get(0).contains(" gets=2 frees=1 "));
        }
        assertNull(Task.current());
    }

    @Test
    void virtualThreadsHaveTasksToo() throws Exception {
        open();
        Resource table = app.resource(Kind.LOCK, "table", 1);
        List<String> seen = new ArrayList<>();
        Thread.ofVirtual().start(() -> {
            try (Task task = app.task("virtual").begin(); Hold hold = table.hold()) {
                Thread.sleep(1);
                seen.addAll(lines("task 0"));
                seen.addAll(lines("account 0"));
            } catch (Exception e) {
                seen.add(e.toString());
            }
        }).join();
        assertEquals("0", word(seen.get(0), "tid"));
        assertEquals("1", word(seen.get(1), "gets"));
    }

    @Test
    void deadlinesAndFlagsAreWritten() throws Exception {
        open();
        try (Task a = app.task("a").deadline(Duration.ofSeconds(5)).background().rerun(again -> {}).begin();
                Task b = app.task("b").deadline(Duration.ofDays(200_000)).uncancellable().rerun(again -> {}).begin();
                Task c = app.task("c").deadline(Duration.ofDays(-200_000)).begin()) {
            String record = lines("task 0").get(0);
            assertEquals(Long.parseLong(word(record, "started_ns")) + 5_000_000_000L, Long.parseLong(word(record, "deadline_ns")));
            assertEquals("7", word(record, "flags"));
            assertEquals("0", word(lines("task 1").get(0), "deadline_ns"));
            assertEquals("0", word(lines("task 1").get(0), "flags"));
            assertEquals("1", word(lines("task 2").get(0), "deadline_ns"));
        }
    }

    @Test
    void aFullLedgerIsNothingToTheApplication() throws Exception {
        app = Plimsoll.of("tasks").directory(directory).resources(1).tasks(1).accounts(1).lanes(1).open();
        Resource table = app.resource(Kind.LOCK, "table", 1);
        Resource none = app.resource(Kind.LOCK, "another", 1);
        try (Task a = app.task("a").begin(); Hold hold = table.hold(); Hold other = none.hold()) {
            try (Task b = app.task("b").begin(); Hold more = table.hold(); Wait wait = table.await()) {
                b.progress(1, 2);
                table.slow(1, 1);
                assertSame(b, Task.current());
            }
            String header = lines("application").get(0);
            assertTrue(header.contains("tasks_refused=1 accounts_refused=0 resources_refused=1"), header);
            assertTrue(lines("account 0").get(0).contains(" gets=1 frees=0 "));
        }
        assertEquals("2", word(lines("lane 0").get(0), "completed"));
    }

    @Test
    void whereThereCanBeNoLedgerNothingIsAccounted() throws Exception {
        Path open = Files.createDirectory(directory.resolve("open"));
        Files.setPosixFilePermissions(open, PosixFilePermissions.fromString("rwxrwxrwx"));
        Path file = Files.createFile(directory.resolve("file"));
        for (Path nowhere : List.of(open, file, directory.resolve("missing/too"), Path.of("/proc/self"))) {
            try (Plimsoll unaccounted = Plimsoll.of("nowhere").directory(nowhere).open()) {
                assertTrue(unaccounted.say.hasSaid("ledger"), nowhere.toString());
                assertNull(unaccounted.file());
                Resource table = unaccounted.resource(Kind.LOCK, "table", 1);
                try (Task task = unaccounted.task("a").begin(); Hold hold = table.hold()) {
                    task.progress(1, 2);
                    assertSame(task, Task.current());
                    assertFalse(task.isCancelled());
                }
            }
        }
        assertEquals(0, Files.list(open).count());
    }

    @Test
    void theFileIsPrivateAndGoesAway() throws Exception {
        Path made = directory.resolve("made");
        app = Plimsoll.of("tasks").directory(made).open();
        Path file = app.file();
        assertEquals(made.resolve("tasks." + ProcessHandle.current().pid() + ".ledger"), file);
        assertEquals("rwx------", PosixFilePermissions.toString(Files.getPosixFilePermissions(made)));
        assertEquals("rw-------", PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
        assertEquals(1, Files.list(made).count());
        app.close();
        assertFalse(Files.exists(file));
        app.close();
        app = Plimsoll.of("tasks").directory(made).groupReads().open();
        assertEquals("rw-r-----", PosixFilePermissions.toString(Files.getPosixFilePermissions(file)));
    }

    @Test
    void whatAnEarlierProcessLeftIsReplacedAndWhatIsOursIsNot() throws Exception {
        String name = LedgerFile.name("tasks", Own.pid());
        Files.writeString(directory.resolve(name), "left over");
        open();
        assertEquals(1, lines("ledger tasks").size());
        LedgerFile.Head head = new LedgerFile.Head("tasks", Layout.Shape.DEFAULT, Own.pid(), Own.started(), 1);
        assertEquals("already", assertThrows(LedgerException.class, () -> LedgerFile.make(directory, head, false)).word());
        assertEquals(1, lines("ledger tasks").size());
        assertEquals(1, Files.list(directory).count());
    }

    @Test
    void whoOpensTwiceHasOneAndClosesTwice() {
        open();
        Plimsoll again = Plimsoll.open("tasks");
        assertSame(app, again);
        again.close();
        assertTrue(Files.exists(app.file()));
        app.close();
        assertFalse(Files.exists(app.file()));
    }

    @Test
    void aThreadThatIsInterruptedCanOpen() {
        Thread.currentThread().interrupt();
        open();
        assertTrue(Thread.interrupted());
        assertNotNull(app.file());
    }

    @Test
    void whatIsAskedForWronglyIsAnswered() {
        assertThrows(IllegalArgumentException.class, () -> Plimsoll.of("../shop"));
        assertThrows(IllegalArgumentException.class, () -> Plimsoll.of(""));
        assertThrows(IllegalArgumentException.class, () -> Plimsoll.of("x".repeat(33)));
        String why = assertThrows(IllegalArgumentException.class, () -> Plimsoll.of("shop").tasks(131_073)).getMessage();
        assertEquals("tasks is 131073, but must be from 1 to 131072", why);
        open();
        assertThrows(IllegalArgumentException.class, () -> app.resource(Kind.LOCK, "", 1));
        assertThrows(IllegalArgumentException.class, () -> app.resource(Kind.LOCK, "table", -1));
        assertThrows(IllegalArgumentException.class, () -> new TrackedPool<>(app, "empty", List.of()));
    }

    @Test
    void theExactClockIsTheSystemsMonotonicOne() throws Exception {
        // Seconds since the machine started, which is what CLOCK_MONOTONIC counts on machines that do not sleep, to a hundredth.
        double before = System.nanoTime() / 1e9;
        double uptime = Double.parseDouble(Files.readString(Path.of("/proc/uptime")).split(" ")[0]);
        double after = System.nanoTime() / 1e9;
        assertTrue(before - 0.02 <= uptime && uptime <= after + 0.02, before + " " + uptime + " " + after);
    }
}
