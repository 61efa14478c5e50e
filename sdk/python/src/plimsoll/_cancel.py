"""Carrying out what the agent asks for: one cancellation, and the thread on which the application's cancel actions run.

An action is the application's code: it may raise, and it may never return. So it runs on a thread that nobody needs, and the thread that speaks to the agent
only looks now and then whether it has come back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import _say

if TYPE_CHECKING:
    from ._task import Task

ACTION_LIMIT_NS = 5_000_000_000
QUEUED_MOST = 1024

Report = Callable[["Cancel", str, str], None]


class Cancel:
    """One order to cancel one task. Its outcome is reported once, whoever is first to know it."""

    __slots__ = ("_open", "_report", "acted", "called", "connection", "id", "reason", "resource", "task")

    def __init__(self, id: int, connection: int, task: Task, resource: str, reason: str, report: Report) -> None:
        self.id = id
        self.connection = connection
        self.task = task
        self.resource = resource
        self.reason = reason
        self.called = False  # the task has been told
        self.acted = False  # and by an action that it need not look for
        self._report = report
        self._open = [True]

    def settle(self, word: str, text: str = "") -> None:
        """Reports the outcome, unless that is known already. From any thread, and without a lock: `pop` succeeds once."""
        try:
            self._open.pop()
        except IndexError:
            return
        self._report(self, word, text)

    def call(self) -> None:
        """The action is about to be called: reports that, and tells the task."""
        self._report(self, "acknowledge", "")
        self.called = True

    def refuse(self, text: str) -> None:
        """The action will not be called: nothing has happened to the task."""
        self.task._cancel = None
        self.settle("failed", text)

    @property
    def settled(self) -> bool:
        """Whether the outcome is known."""
        return not self._open

    def ended(self, yielded: bool) -> None:
        """The task has ended: because it was cancelled, or by itself first."""
        self.settle("cancelled" if yielded else "finished")


class Actions:
    """The thread on which cancel actions run, one after the other, and the watch over it."""

    def __init__(self, action: Callable[[Task], object] | None, clock: Callable[[], int]) -> None:
        """`action` is the application's, for tasks that have no means of their own."""
        self._action = action
        self._clock = clock
        self._queue: queue.SimpleQueue[Cancel | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._running: tuple[Cancel, int] | None = None
        self._stuck: Cancel | None = None

    def submit(self, cancel: Cancel) -> None:
        """Has a task cancelled. Called by the thread that speaks to the agent, as is `watch`."""
        if self._stuck is not None:
            cancel.refuse("an earlier cancel action has not returned")
        elif self._queue.qsize() >= QUEUED_MOST:
            cancel.refuse(f"{QUEUED_MOST} cancellations wait already")
        else:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="plimsoll-cancel", daemon=True)
                self._thread.start()
            self._queue.put(cancel)

    def watch(self) -> None:
        """Gives an action up that has not returned in time, and with it what waits behind it."""
        running = self._running
        if self._stuck is not None and (running is None or running[0] is not self._stuck):
            self._stuck = None
        if running is None or self._stuck is not None or self._clock() - running[1] < ACTION_LIMIT_NS:
            return
        self._stuck = running[0]
        running[0].settle("failed", "the cancel action has not returned within 5 s")
        _say.once("stuck", f"the cancel action for {running[0].task.label!r} has not returned within 5 s; nothing is cancelled until it does")
        while True:
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                return
            if waiting is not None:
                waiting.refuse("an earlier cancel action has not returned")

    def stop(self) -> None:
        """Ends the thread when it comes by; nobody waits for it."""
        self._queue.put(None)

    def _work(self) -> None:
        while (cancel := self._queue.get()) is not None:
            if cancel.settled:
                continue
            self._running = (cancel, self._clock())
            try:
                self._act(cancel)
            except BaseException as error:
                cancel.settle("failed", f"{type(error).__name__}: {error}")
                _say.once("action", f"the cancel action for {cancel.task.label!r} failed with {type(error).__name__}: {error}")
            finally:
                self._running = None

    def _act(self, cancel: Cancel) -> None:
        """Cancels a task by the nearest means: its own action, asyncio, the application's action, or the flag that is up already."""
        task, loop = cancel.task, cancel.task._loop
        cancel.call()
        if task.action is not None:
            cancel.acted = True
            task.action(task)
        elif loop is not None:
            loop.call_soon_threadsafe(task._cancel_in_loop)
        elif self._action is not None:
            cancel.acted = True
            self._action(task)
