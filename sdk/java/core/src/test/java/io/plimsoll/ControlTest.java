package io.plimsoll;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** What an agent can ask for, and what comes of it. */
@Timeout(300)
class ControlTest {
    private static final long MS = 1_000_000;
    /** As in earnest, but for how long is waited where a test would wait. */
    private static final Limits HASTY = new Limits(10 * MS, 200 * MS, 20 * MS, 50 * MS, 60_000 * MS, 60_000 * MS, 2, 4);

    @TempDir
    Path directory;

    private FakeAgent agent;
    private Plimsoll app;

    @BeforeEach
    void start() throws Exception {
        agent = new FakeAgent(directory);
    }

    @AfterEach
    void stop() throws Exception {
        agent.close();
        if (app != null) {
            app.close();
        }
    }

    private Plimsoll open(Limits limits) {
        Plimsoll.Builder builder = Plimsoll.of("control").directory(directory);
        builder.limits = limits;
        return app = builder.open();
    }

    private void connected() throws Exception {
        open(HASTY);
        agent.welcome();
    }

    private static void await(String what, java.util.function.BooleanSupplier condition) throws InterruptedException {
        long until = System.nanoTime() + FakeAgent.PATIENCE_S * 1_000 * MS;
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() - until < 0, () -> "not: " + what);
            Thread.sleep(1);
        }
    }

    /** Sleeps until it is interrupted, as a task does that waits for something. */
    private static void sleepUntilInterrupted() {
        try {
            Thread.sleep(1_000 * FakeAgent.PATIENCE_S);
            throw new AssertionError("nobody interrupts");
        } catch (InterruptedException e) {
            // That is what it is for.
        }
    }

    @Test
    void saysHelloAndIsWelcome() throws Exception {
        open(HASTY);
        assertEquals("hello 1 control." + ProcessHandle.current().pid() + ".ledger", agent.hello());
        assertFalse(app.isConnected());
        agent.send("welcome 1 shadow");
        await("connected", app::isConnected);
    }

    @Test
    void cancellingInterruptsTheThread() throws Exception {
        connected();
        try (Task task = app.task("GET /report").key(7).begin()) {
            app.resource(Kind.LOCK, "table", 1);
            agent.cancel(3, task, "GET /report holds table for 1.2 s");
            sleepUntilInterrupted();
            assertTrue(task.isCancelled());
            assertEquals("GET /report holds table for 1.2 s", task.cancellation().reason());
            assertEquals("table", task.cancellation().resource());
            assertEquals(7, task.cancellation().key());
            assertThrows(TaskCancelledException.class, task::throwIfCancelled);
        }
        agent.expect("acknowledge 3");
        agent.expect("outcome 3 cancelled");
        assertEquals(1, Memory.get(app.ledger.memory, laneSum(Layout.CANCELLED)));
    }

    private long laneSum(long at) {
        int lane = Integer.remainderUnsigned((int) Thread.currentThread().threadId(), app.ledger.shape.lanes());
        return app.ledger.shape.laneAt(lane) + at;
    }

    @Test
    void anInterruptThatNobodySawIsGoneWithTheTask() throws Exception {
        connected();
        try (Task task = app.task("busy").begin()) {
            agent.cancel(1, task, "");
            while (!Thread.currentThread().isInterrupted()) {
                Thread.onSpinWait();
            }
        }
        assertFalse(Thread.interrupted(), "what the thread does next is interrupted for what it did before");
        agent.expect("acknowledge 1");
        agent.expect("outcome 1 cancelled");
    }

    @Test
    void anInterruptOfSomebodyElseStays() throws Exception {
        connected();
        try (Task task = app.task("busy").begin()) {
            Thread.currentThread().interrupt();
        }
        assertTrue(Thread.interrupted());
    }

    @Test
    void allThreadsThatWorkForATaskAreInterrupted() throws Exception {
        connected();
        BlockingQueue<String> ended = new LinkedBlockingQueue<>();
        try (Task task = app.task("fan-out").detached().begin()) {
            CountDownLatch working = new CountDownLatch(2);
            Runnable work = task.wrap(() -> {
                working.countDown();
                sleepUntilInterrupted();
                ended.add(Task.current() == task ? "of the task" : "of another task");
            });
            Thread platform = Thread.ofPlatform().start(work);
            Thread virtual = Thread.ofVirtual().start(work);
            working.await();
            agent.cancel(1, task, "");
            platform.join();
            virtual.join();
        }
        assertEquals("[of the task, of the task]", ended.toString());
        agent.expect("acknowledge 1");
        agent.expect("outcome 1 cancelled");
    }

    @Test
    void aThreadThatComesLateIsInterruptedToo() throws Exception {
        connected();
        try (Task task = app.task("late").detached().begin()) {
            agent.cancel(1, task, "");
            agent.expect("acknowledge 1");
            await("cancelled", task::isCancelled);
            Thread late = Thread.ofPlatform().start(task.wrap(ControlTest::sleepUntilInterrupted));
            late.join();
        }
        agent.expect("outcome 1 cancelled");
    }

    @Test
    void aCallbackIsCalledInsteadOfInterrupting() throws Exception {
        connected();
        CountDownLatch called = new CountDownLatch(1);
        AtomicBoolean onTaskThread = new AtomicBoolean();
        Thread own = Thread.currentThread();
        try (Task task = app.task("query").onCancel(why -> {
            onTaskThread.set(Thread.currentThread() == own);
            called.countDown();
        }).begin()) {
            agent.cancel(1, task, "");
            called.await();
        }
        assertFalse(onTaskThread.get());
        assertFalse(Thread.interrupted());
        agent.expect("acknowledge 1");
        agent.expect("outcome 1 cancelled");
    }

    @Test
    void theApplicationsActionIsForTasksWithoutOne() throws Exception {
        BlockingQueue<String> called = new LinkedBlockingQueue<>();
        Plimsoll.Builder builder = Plimsoll.of("control").directory(directory).onCancel(why -> called.add(why.toString()));
        builder.limits = HASTY;
        app = builder.open();
        agent.welcome();
        try (Task task = app.task("a query").begin()) {
            agent.cancel(1, task, "too slow");
            assertEquals("a query: too slow", called.poll(FakeAgent.PATIENCE_S, TimeUnit.SECONDS));
        }
        assertFalse(Thread.interrupted());
    }

    @Test
    void whatIsGoneCannotBeCancelled() throws Exception {
        connected();
        Task task = app.task("short").begin();
        task.close();
        agent.cancel(1, task, "");
        agent.expect("outcome 1 gone");
        try (Task next = app.task("in the same record").begin()) {
            assertEquals(task.record, next.record);
            agent.cancel(2, task, "");
            agent.expect("outcome 2 gone");
            agent.send("cancel 3 4096 1 0 no such record");
            agent.expect("outcome 3 gone");
            assertFalse(next.isCancelled());
        }
        assertFalse(Thread.interrupted());
    }

    @Test
    void whatMayNotBeCancelledIsNot() throws Exception {
        connected();
        try (Task task = app.task("checkpoint").uncancellable().begin()) {
            agent.cancel(1, task, "");
            agent.expect("outcome 1 failed the task cannot be cancelled");
            assertFalse(task.isCancelled());
        }
    }

    @Test
    void aTaskIsCancelledOnce() throws Exception {
        connected();
        try (Task task = app.task("twice").detached().begin()) {
            agent.cancel(1, task, "");
            agent.expect("acknowledge 1");
            await("cancelled", task::isCancelled);
            agent.cancel(2, task, "");
            agent.expect("outcome 2 failed the task was cancelled before");
        }
        agent.expect("outcome 1 cancelled");
    }

    @Test
    void anOrderHasItsOutcomeWheneverTheTaskEnds() throws Exception {
        connected();
        long seed = Long.getLong("seed", System.nanoTime());
        System.out.println("ControlTest.anOrderHasItsOutcomeWheneverTheTaskEnds: seed " + seed + ", repeat with -Dseed=" + seed);
        Random random = new Random(seed);
        for (int id = 1; id <= 1_000; id++) {
            Task task = app.task("short").detached().begin();
            agent.cancel(id, task, "");
            long until = System.nanoTime() + random.nextInt(300_000);
            while (System.nanoTime() - until < 0) {
                Thread.onSpinWait();
            }
            task.close();
            String answer = agent.next();
            if (answer.equals("acknowledge " + id)) {
                answer = agent.next();
            }
            assertTrue(answer.startsWith("outcome " + id + " "), answer);
        }
    }

    @Test
    void aTaskThatHadDoneItsWorkIsFinished() throws Exception {
        connected();
        try (Task task = app.task("done").detached().rerun(again -> {
            throw new AssertionError("it was done");
        }).begin()) {
            agent.cancel(1, task, "");
            agent.expect("acknowledge 1");
            task.complete();
        }
        agent.expect("outcome 1 finished");
    }

    @Test
    void anActionThatThrowsHasFailed() throws Exception {
        connected();
        try (Task task = app.task("broken").onCancel(why -> {
            throw new IllegalStateException("no connection to close\nat all");
        }).begin()) {
            agent.cancel(1, task, "");
            agent.expect("acknowledge 1");
            agent.expect("outcome 1 failed java.lang.IllegalStateException: no connection to close at all");
        }
        // The next one is cancelled all the same.
        try (Task task = app.task("fine").detached().begin()) {
            agent.cancel(2, task, "");
            agent.expect("acknowledge 2");
            await("cancelled", task::isCancelled);
        }
        agent.expect("outcome 2 cancelled");
    }

    @Test
    void anActionThatDoesNotReturnFailsAndAllAfterItUntilItDoes() throws Exception {
        open(new Limits(10 * MS, 200 * MS, 20 * MS, 50 * MS, 100 * MS, 60_000 * MS, 2, 4));
        agent.welcome();
        CountDownLatch let = new CountDownLatch(1);
        try (Task stuck = app.task("stuck").onCancel(why -> let.await()).begin(); Task other = app.task("other").detached().begin()) {
            agent.cancel(1, stuck, "");
            agent.cancel(2, other, "queued behind it");
            agent.expect("acknowledge 1");
            agent.expect("outcome 1 failed the cancel action has not returned for 100 ms");
            agent.expect("outcome 2 failed an earlier cancel action has not returned");
            agent.cancel(3, other, "");
            agent.expect("outcome 3 failed an earlier cancel action has not returned");
            let.countDown();
            // It was not cancelled yet, so it still can be; when the stuck one has returned.
            String answer;
            long id = 4;
            do {
                agent.cancel(id, other, "");
                answer = agent.next();
            } while (answer.equals("outcome " + id++ + " failed an earlier cancel action has not returned"));
            assertEquals("acknowledge " + (id - 1), answer);
        }
    }

    @Test
    void whatIsRerunnableIsRunAgainWhenTheAgentSaysSo() throws Exception {
        connected();
        BlockingQueue<Task> again = new LinkedBlockingQueue<>();
        CountDownLatch look = new CountDownLatch(1);
        try (Task task = app.task("GET /report").key(7).detached().deadline(java.time.Duration.ofSeconds(100)).rerun(second -> {
            again.add(second);
            look.await();
        }).begin()) {
            agent.cancel(5, task, "");
            agent.expect("acknowledge 5");
            await("cancelled", task::isCancelled);
        }
        agent.expect("outcome 5 cancelled");
        agent.send("rerun 5");
        Task second = again.poll(FakeAgent.PATIENCE_S, TimeUnit.SECONDS);
        assertNotNull(second);
        long at = app.ledger.shape.taskAt(second.record);
        assertEquals(Layout.RERUN, Memory.getInt(app.ledger.memory, at + Layout.FLAGS));
        assertEquals(7, Memory.get(app.ledger.memory, at + Layout.KEY));
        assertEquals(second.deadlineNs, Memory.get(app.ledger.memory, at + Layout.DEADLINE_NS));
        agent.cancel(6, second, "a second time");
        agent.expect("outcome 6 failed the task cannot be cancelled");
        look.countDown();
        agent.expect("reran 5");
        agent.send("rerun 5");
        agent.send("rerun 99");
        try (Task task = app.task("and on").detached().begin()) {
            agent.cancel(8, task, "");
            agent.expect("acknowledge 8");
        }
    }

    @Test
    void whatIsDroppedIsTold() throws Exception {
        connected();
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        cancelled(1, told);
        agent.send("drop 1");
        assertEquals("dropped its deadline has passed", told.poll(FakeAgent.PATIENCE_S, TimeUnit.SECONDS));
        agent.expect("dropped 1");
    }

    /** A task that is cancelled and ends, and tells what becomes of it. */
    private void cancelled(long id, BlockingQueue<String> told) throws Exception {
        cancelled(id, told, app.task("rerunnable"));
    }

    private void cancelled(long id, BlockingQueue<String> told, TaskBuilder builder) throws Exception {
        try (Task task = builder.detached().rerun(new Rerun() {
            @Override
            public void run(Task again) {
                told.add("run");
            }

            @Override
            public void dropped(String why) {
                told.add("dropped " + why);
            }
        }).begin()) {
            agent.cancel(id, task, "");
            agent.expect("acknowledge " + id);
            await("cancelled", task::isCancelled);
        }
        agent.expect("outcome " + id + " cancelled");
    }

    @Test
    void noMoreThanSoManyWait() throws Exception {
        connected();
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        cancelled(1, told);
        cancelled(2, told);
        assertEquals("[]", told.toString());
        cancelled(3, told);
        assertEquals("[dropped 2 others wait already]", told.toString());
        agent.expect("dropped 3");
    }

    @Test
    void whatWaitsIsRunAgainWhenTheConnectionEnds() throws Exception {
        connected();
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        cancelled(1, told);
        agent.hangUp();
        assertEquals("run", told.poll(FakeAgent.PATIENCE_S, TimeUnit.SECONDS));
        agent.expect("END");
        agent.welcome();
        agent.send("rerun 1"); // of another connection: nothing
        try (Task task = app.task("goes on").detached().begin()) {
            agent.cancel(1, task, "");
            agent.expect("acknowledge 1");
        }
        assertEquals("[]", told.toString());
    }

    @Test
    void whatIsOfNoUseAnyMoreIsNotRunAgain() throws Exception {
        connected();
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        cancelled(1, told, app.task("late").deadline(java.time.Duration.ZERO));
        agent.send("rerun 1");
        assertEquals("dropped its deadline has passed", told.poll(FakeAgent.PATIENCE_S, TimeUnit.SECONDS));
        agent.expect("dropped 1");
        cancelled(2, told, app.task("late").deadline(java.time.Duration.ZERO));
        agent.hangUp();
        assertEquals("dropped its deadline has passed", told.poll(FakeAgent.PATIENCE_S, TimeUnit.SECONDS));
    }

    @Test
    void whatIsCancelledByAnAgentThatIsGoneMeanwhileIsRunAgainToo() throws Exception {
        connected();
        CountDownLatch run = new CountDownLatch(1);
        try (Task task = app.task("rerunnable").detached().rerun(again -> run.countDown()).begin()) {
            agent.cancel(1, task, "");
            agent.expect("acknowledge 1");
            await("cancelled", task::isCancelled);
            agent.hangUp();
            agent.expect("END");
            await("disconnected", () -> !app.isConnected());
        }
        assertTrue(run.await(FakeAgent.PATIENCE_S, TimeUnit.SECONDS));
    }

    @Test
    void whatWaitsIsRunAgainWhenNothingComes() throws Exception {
        open(new Limits(10 * MS, 200 * MS, 20 * MS, 50 * MS, 60_000 * MS, 50 * MS, 2, 4));
        agent.welcome();
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        cancelled(1, told);
        assertEquals("run", told.poll(FakeAgent.PATIENCE_S, TimeUnit.SECONDS));
        agent.expect("reran 1");
    }

    @Test
    void whatWaitsWhenTheApplicationClosesIsDropped() throws Exception {
        connected();
        BlockingQueue<String> told = new LinkedBlockingQueue<>();
        cancelled(1, told);
        app.close();
        assertEquals("dropped the application closes", told.poll(FakeAgent.PATIENCE_S, TimeUnit.SECONDS));
    }

    @Test
    void aRerunThatThrowsIsDone() throws Exception {
        connected();
        try (Task task = app.task("rerunnable").detached().rerun(again -> {
            throw new java.io.IOException("again?");
        }).begin()) {
            agent.cancel(1, task, "");
            agent.expect("acknowledge 1");
            await("cancelled", task::isCancelled);
        }
        agent.expect("outcome 1 cancelled");
        agent.send("rerun 1");
        agent.expect("reran 1");
    }

    @Test
    void whatIsNotUnderstoodIsNothing() throws Exception {
        connected();
        agent.send("dance");
        agent.send("cancel one two");
        agent.send("");
        agent.send("\u0000\u00ff " + "x".repeat(900));
        agent.send("cancel 18446744073709551615 0 18446744073709551615 0 ids are unsigned");
        agent.expect("outcome 18446744073709551615 gone");
    }

    @Test
    void aLineWithoutEndIsHungUpOn() throws Exception {
        connected();
        agent.send("x".repeat(1024));
        agent.expect("END");
        agent.welcome();
    }

    @Test
    void whoIsRefusedSaysSoOnceAndComesBack() throws Exception {
        open(HASTY);
        for (int i = 0; i < 3; i++) {
            agent.hello();
            agent.send("refused another agent has it, process 4711");
            agent.hangUp();
            agent.expect("END");
        }
        assertTrue(app.say.hasSaid("refused"));
        assertFalse(app.isConnected());
        agent.welcome();
        await("connected", app::isConnected);
    }

    @Test
    void withoutAnAgentTheClockTicksAndNothingIsExact() throws Exception {
        agent.close();
        open(HASTY);
        Ledger ledger = app.ledger;
        // As an agent leaves it that was killed.
        Memory.put(ledger.memory, Layout.AT_AGENT_BEAT_NS, System.nanoTime() - 10_000 * MS);
        Memory.put(ledger.memory, Layout.AT_FLAGS, Layout.EXACT);
        long clock = Memory.get(ledger.memory, Layout.AT_CLOCK_NS);
        long beat = Memory.get(ledger.memory, Layout.AT_APP_BEAT_NS);
        assertTrue(clock > 0 && beat > 0);
        await("ticks", () -> Memory.get(ledger.memory, Layout.AT_CLOCK_NS) > clock + 50 * MS);
        await("beats", () -> Memory.get(ledger.memory, Layout.AT_APP_BEAT_NS) > beat + 50 * MS);
        assertEquals(0, Memory.get(ledger.memory, Layout.AT_FLAGS));
    }

    @Test
    void whileAnAgentLivesTheClockIsTheAgents() throws Exception {
        agent.close();
        open(HASTY);
        Ledger ledger = app.ledger;
        Memory.put(ledger.memory, Layout.AT_AGENT_BEAT_NS, System.nanoTime() + 150 * MS);
        // The heartbeat that is under way may have looked before.
        long before = Memory.get(ledger.memory, Layout.AT_APP_BEAT_NS);
        await("beats", () -> Memory.get(ledger.memory, Layout.AT_APP_BEAT_NS) > before + 1);
        Memory.put(ledger.memory, Layout.AT_FLAGS, Layout.EXACT);
        long beat = Memory.get(ledger.memory, Layout.AT_APP_BEAT_NS);
        await("beats", () -> Memory.get(ledger.memory, Layout.AT_APP_BEAT_NS) > beat);
        await("is taken for gone", () -> Memory.get(ledger.memory, Layout.AT_FLAGS) == 0);
        assertTrue(ledger.exactNs() - Memory.get(ledger.memory, Layout.AT_AGENT_BEAT_NS) > HASTY.agentGoneNs());
    }

    @Test
    void linesAreOneAndNoLongerThan1024Bytes() {
        byte[] line = Lines.line("outcome 1 failed", "a\nb\r" + "é".repeat(2_000));
        String text = new String(line, StandardCharsets.UTF_8);
        assertTrue(line.length <= 1024 && text.startsWith("outcome 1 failed a b é") && text.endsWith("é\n"), text);
        assertEquals(text.length() - 1, text.indexOf('\n'));
    }
}
