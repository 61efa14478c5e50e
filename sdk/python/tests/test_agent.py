"""What the SDK does with an agent: one that cancels, has things run again, refuses, talks nonsense, dies; and actions that fail or hang."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import plimsoll
from plimsoll import Task, _cancel, _link, _rerun

from .agent import PATIENCE_S, Agent, until
from .reader import fields

Look = Callable[[str], list[str]]
table = plimsoll.resource("LOCK", "table", 1)


def _order(task: Task, id: int, text: str = "it holds table") -> str:
    """The line that cancels a task."""
    assert task._record is not None
    return f"cancel {id} {task._record.index} {task._record.turn} 0 {text}"


class Runner:
    """A task in a thread, which works until it is cancelled or let go."""

    def __init__(self, look_out: bool = True, **arguments: object) -> None:
        self.let_go = threading.Event()
        self.raised: plimsoll.Cancelled | None = None
        self._began = threading.Event()
        self._look_out = look_out
        self._arguments = arguments
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        assert self._began.wait(PATIENCE_S)

    def _work(self) -> None:
        try:
            with plimsoll.task("GET /report", 7, **self._arguments) as self.task:  # type: ignore[arg-type]
                self._began.set()
                with table.hold():
                    while not self.let_go.wait(0.001):
                        if self._look_out:
                            self.task.check()
        except plimsoll.Cancelled as cancelled:
            self.raised = cancelled

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def test_it_says_hello_and_hears_the_mode(agent: Agent, app: plimsoll.App) -> None:
    assert app.path is not None
    assert agent.accept("welcome 1 shadow and more") == f"hello 1 {Path(app.path).name}"
    until(lambda: app.mode == "shadow", "the mode")
    agent.hang_up()
    until(lambda: app.mode is None, "no mode")
    agent.accept()
    until(lambda: app.mode == "enforce", "the mode of the next connection")


def test_a_thread_is_cancelled(agent: Agent, look: Look) -> None:
    agent.accept()
    runner = Runner()
    assert runner.task.reason is None and not runner.task.cancelled
    agent.say(_order(runner.task, 5, "GET /report holds table for 1.2 s"))
    assert [agent.hear(), agent.hear()] == ["acknowledge 5", "outcome 5 cancelled"]
    runner.join()
    assert runner.raised is not None and runner.raised.reason == "GET /report holds table for 1.2 s"
    assert runner.task.resource == "table"
    lane = fields(look("lane")[0])
    assert (lane["completed"], lane["cancelled"], lane["bins"]) == ("1", "1", "")


def test_who_does_not_look_out_finishes_by_itself(agent: Agent, look: Look) -> None:
    agent.accept()
    runner = Runner(look_out=False)
    agent.say(_order(runner.task, 1))
    assert agent.hear() == "acknowledge 1"
    runner.let_go.set()
    assert agent.hear() == "outcome 1 finished"
    runner.join()
    assert fields(look("lane")[0])["cancelled"] == "0"


def test_its_own_action_comes_before_the_applications(directory: Path) -> None:
    called: queue.SimpleQueue[tuple[str, str | None]] = queue.SimpleQueue()
    directory.mkdir(0o700)
    agent = Agent(directory)
    plimsoll.open("test", cancel=lambda task: called.put(("open", task.reason)))
    agent.accept()
    own = Runner(look_out=False, cancel=lambda task: called.put(("task", threading.current_thread().name)))
    agent.say(_order(own.task, 1))
    assert called.get(timeout=PATIENCE_S) == ("task", "plimsoll-cancel")
    plain = Runner(look_out=False)
    agent.say(_order(plain.task, 2, "why"))
    assert called.get(timeout=PATIENCE_S) == ("open", "why")
    for runner in (own, plain):
        runner.let_go.set()
        runner.join()
    assert sorted(agent.hear() for _ in range(4)) == ["acknowledge 1", "acknowledge 2", "outcome 1 cancelled", "outcome 2 cancelled"]
    agent.close()


def test_what_is_not_there_is_gone(agent: Agent) -> None:
    agent.accept()
    runner = Runner()
    assert runner.task._record is not None
    agent.say(f"cancel 1 {runner.task._record.index} {runner.task._record.turn + 2} 0 another turn")
    agent.say("cancel 2 4000 1 0 a record that nobody has")
    agent.say("cancel 3 131071 1 255 a record that there is not")
    assert [agent.hear() for _ in range(3)] == ["outcome 1 gone", "outcome 2 gone", "outcome 3 gone"]
    runner.let_go.set()
    runner.join()
    assert runner.raised is None


def test_what_is_not_to_be_cancelled_is_not(agent: Agent) -> None:
    agent.accept()
    runner = Runner(cancellable=False)
    agent.say(_order(runner.task, 1))
    assert agent.hear() == "outcome 1 failed it is not cancellable"
    assert not runner.task.cancelled
    runner.let_go.set()
    runner.join()


def test_nobody_is_cancelled_twice(agent: Agent) -> None:
    agent.accept()
    runner = Runner(look_out=False)
    agent.say(_order(runner.task, 1))
    agent.say(_order(runner.task, 2))
    assert sorted([agent.hear(), agent.hear()]) == ["acknowledge 1", "outcome 2 failed it is being cancelled already"]
    runner.let_go.set()
    runner.join()


def test_an_action_that_raises_has_failed(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    def action(task: Task) -> None:
        raise OSError("the connection\nis gone")

    agent.accept()
    runner = Runner(look_out=False, cancel=action)
    agent.say(_order(runner.task, 1))
    assert [agent.hear(), agent.hear()] == ["acknowledge 1", "outcome 1 failed OSError: the connection is gone"]
    runner.let_go.set()
    runner.join()
    second = Runner(look_out=False, cancel=action)
    agent.say(_order(second.task, 2))
    assert [agent.hear(), agent.hear()][1].startswith("outcome 2 failed")
    second.let_go.set()
    second.join()
    assert len(caplog.records) == 1


def test_an_action_that_never_returns_has_failed_and_so_have_those_behind_it(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cancel, "ACTION_LIMIT_NS", 300_000_000)
    hang = threading.Event()
    agent.accept()
    first = Runner(look_out=False, cancel=lambda task: hang.wait(60))
    second, third, fourth = Runner(), Runner(), Runner()
    agent.say(_order(first.task, 1))
    assert agent.hear() == "acknowledge 1"
    agent.say(_order(second.task, 2))
    assert agent.hear() == "outcome 1 failed the cancel action has not returned within 5 s"
    assert agent.hear() == "outcome 2 failed an earlier cancel action has not returned"
    agent.say(_order(third.task, 3))
    assert agent.hear() == "outcome 3 failed an earlier cancel action has not returned"
    assert not second.task.cancelled and not third.task.cancelled
    monkeypatch.undo()  # the next action may take its time
    hang.set()
    numbers = itertools.count(4)

    def works_again() -> bool:
        # The SDK may need a beat to see that the action has returned.
        agent.say(_order(fourth.task, next(numbers)))
        return agent.hear().startswith("acknowledge") and agent.hear().endswith(" cancelled")

    until(works_again, "an action after the one that hung")
    for runner in (first, second, third, fourth):
        runner.let_go.set()
        runner.join()


def test_it_runs_again_when_there_is_room(agent: Agent, look: Look) -> None:
    runs: queue.SimpleQueue[tuple[str, list[str]]] = queue.SimpleQueue()

    def again(task: Task) -> None:
        with plimsoll.task("inner", rerun=again):
            runs.put((task.label, [fields(line)["flags"] for line in look("task") if int(fields(line)["turn"]) % 2]))

    agent.accept()
    runner = Runner(rerun=again)
    assert fields(look("task")[0])["flags"] == "5"
    agent.say(_order(runner.task, 1))
    assert [agent.hear(), agent.hear()] == ["acknowledge 1", "outcome 1 cancelled"]
    runner.join()
    assert runs.empty()
    agent.say("rerun 1")
    assert agent.hear() == "reran 1"
    assert runs.get_nowait() == ("GET /report", ["8", "8"])
    agent.say("rerun 1")
    agent.say("rerun 99")
    assert runs.empty()


def test_it_is_dropped_if_the_agent_says_so(agent: Agent) -> None:
    told: queue.SimpleQueue[Task] = queue.SimpleQueue()
    agent.accept()
    runner = Runner(rerun=lambda task: pytest.fail("ran again"), dropped=told.put)
    agent.say(_order(runner.task, 1))
    assert [agent.hear(), agent.hear()] == ["acknowledge 1", "outcome 1 cancelled"]
    agent.say("drop 1")
    assert agent.hear() == "dropped 1"
    assert told.get(timeout=PATIENCE_S) is runner.task


@pytest.mark.parametrize("late", [False, True], ids=["agent-dies", "deadline-has-passed"])
def test_it_runs_again_by_itself_when_the_agent_dies(agent: Agent, late: bool) -> None:
    runs: queue.SimpleQueue[str] = queue.SimpleQueue()
    agent.accept()
    runner = Runner(rerun=lambda task: runs.put("ran"), dropped=lambda task: runs.put("dropped"), deadline_s=0.0 if late else None)
    agent.say(_order(runner.task, 1))
    assert [agent.hear(), agent.hear()] == ["acknowledge 1", "outcome 1 cancelled"]
    runner.join()
    agent.die()
    assert runs.get(timeout=PATIENCE_S) == ("dropped" if late else "ran")


def test_it_runs_again_by_itself_when_nobody_says_anything(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rerun, "WAIT_LIMIT_NS", 200_000_000)
    runs: queue.SimpleQueue[str] = queue.SimpleQueue()
    agent.accept()
    runner = Runner(rerun=lambda task: runs.put("ran"))
    agent.say(_order(runner.task, 1))
    assert [agent.hear() for _ in range(3)] == ["acknowledge 1", "outcome 1 cancelled", "reran 1"]
    assert runs.get(timeout=PATIENCE_S) == "ran"


def test_only_so_many_wait(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rerun, "WAITING_MOST", 1)
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    agent.accept()
    for id in (1, 2):
        runner = Runner(rerun=lambda task: told.put("ran"), dropped=lambda task: told.put("dropped"))
        agent.say(_order(runner.task, id))
        assert [agent.hear(), agent.hear()] == [f"acknowledge {id}", f"outcome {id} cancelled"]
        runner.join()
    assert agent.hear() == "dropped 2"
    assert told.get(timeout=PATIENCE_S) == "dropped"


def test_a_rerun_that_raises_is_done(agent: Agent) -> None:
    def again(task: Task) -> None:
        raise ValueError

    agent.accept()
    runner = Runner(rerun=again)
    agent.say(_order(runner.task, 1))
    assert [agent.hear(), agent.hear()] == ["acknowledge 1", "outcome 1 cancelled"]
    agent.say("rerun 1")
    assert agent.hear() == "reran 1"


def test_a_coroutine_is_cancelled_and_runs_again_in_its_loop(agent: Agent, look: Look) -> None:
    async def main() -> None:
        loop_thread = threading.get_ident()
        again = asyncio.Event()

        async def rerun(task: Task) -> None:
            assert threading.get_ident() == loop_thread
            current = plimsoll.current()
            assert current is not None and current is not task and not current.cancellable
            again.set()

        ended = False
        with pytest.raises(plimsoll.Cancelled, match="it holds table") as cancelled:
            async with plimsoll.task("GET /export", rerun=rerun) as task:
                assert fields(look("task")[0])["tid"] == "0"
                agent.say(_order(task, 3))
                try:
                    await asyncio.Event().wait()
                finally:
                    ended = True
        assert ended and isinstance(cancelled.value.__cause__, asyncio.CancelledError)
        assert [await asyncio.to_thread(agent.hear) for _ in range(2)] == ["acknowledge 3", "outcome 3 cancelled"]
        agent.say("rerun 3")
        await asyncio.wait_for(again.wait(), 20)
        assert await asyncio.to_thread(agent.hear) == "reran 3"

    agent.accept()
    asyncio.run(main())


def test_whoever_else_cancels_a_coroutine_is_not_hidden(agent: Agent) -> None:
    async def main() -> None:
        async def work() -> None:
            async with plimsoll.task("a"):
                await asyncio.Event().wait()

        running = asyncio.create_task(work())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    agent.accept()
    asyncio.run(main())


def test_what_was_cancelled_too_late_goes_on(agent: Agent) -> None:
    async def main() -> None:
        task = plimsoll.task("a")
        async with task:
            order = _order(task, 1)
            agent.say(order)
            end = time.monotonic() + 20
            while not (task._cancel and task._cancel.called) and time.monotonic() < end:
                time.sleep(0.001)  # the loop stands still, so the cancellation comes after the block
        await asyncio.sleep(0.05)

    agent.accept()
    asyncio.run(main())
    assert [agent.hear(), agent.hear()] == ["acknowledge 1", "outcome 1 finished"]


def test_refused_it_waits_and_says_so_once(agent: Agent, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_link, "REFUSED_NS", 50_000_000)
    for _ in range(3):
        agent.accept("refused another agent has it")
    assert [record.message for record in caplog.records if "another agent has it" in record.message] == [record.message for record in caplog.records]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("nonsense", ["dance", "cancel 1 2", "cancel x y z w v", "\0\0\xff", "welcome", "rerun -1", "", "cancel " + "9" * 900], ids=range(8))
def test_nonsense_is_ignored(agent: Agent, nonsense: str) -> None:
    agent.accept()
    agent.say(nonsense)
    agent.say("cancel 1 4000 1 0 still there")
    assert agent.hear() == "outcome 1 gone"


def test_a_line_without_end_ends_the_connection(agent: Agent) -> None:
    agent.accept()
    agent.say("x" * 5000)
    assert agent.hear() == ""
    assert agent.accept().startswith("hello")


def test_somebody_elses_agent_is_kept_away_from(directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, app: plimsoll.App) -> None:
    monkeypatch.setattr(_link, "RECONNECT_NS", 20_000_000)
    monkeypatch.setattr(_link, "_peer", lambda agent: 12345)
    agent = Agent(directory)
    assert agent.accept(None) == ""
    until(lambda: caplog.records, "a warning")
    assert "is served by user 12345" in caplog.records[0].message
    assert app.mode is None
    agent.close()


def test_the_clock_ticks_while_the_agent_is_silent_and_exact_is_taken_back(app: plimsoll.App) -> None:
    ledger = app.ledger
    assert ledger is not None
    ledger.words[25] = 1
    until(lambda: ledger.words[25] == 0, "exact taken back")
    before = ledger.words[32]
    until(lambda: ledger.words[32] > before, "a tick")
    ledger.words[24] = time.monotonic_ns() + (1 << 40)
    before = ledger.words[32]
    until(lambda: ledger.words[32] > before, "a tick in spite of a beat in the future")


def test_the_clock_is_the_agents_while_it_beats(app: plimsoll.App) -> None:
    ledger = app.ledger
    assert ledger is not None
    now = 10_000_000_000
    ledger.words[24], ledger.words[25], ledger.words[32] = now, 1, 5
    assert not ledger.tick_for_agent(now + 900_000_000, 1_000_000_000)
    assert (ledger.words[25], ledger.words[32]) == (1, 5)
    assert ledger.tick_for_agent(now + 1_000_000_001, 1_000_000_000)
    assert (ledger.words[25], ledger.words[32]) == (0, now + 1_000_000_001)


def test_an_agent_that_reads_nothing_holds_nobody_up(agent: Agent, look: Look) -> None:
    agent.accept()
    assert agent._connection is not None
    agent._connection.setblocking(False)
    try:
        while True:
            agent._connection.send(b"cancel 1 4000 1 0 gone\n" * 100)
            time.sleep(0.001)
    except OSError:
        pass  # full, or closed
    before = fields(look("application")[0])["beat_ns"]
    until(lambda: fields(look("application")[0])["beat_ns"] != before, "a beat")
