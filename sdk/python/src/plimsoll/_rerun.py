"""What was cancelled and can be run again: it waits here until the agent says that there is room, or long enough."""

from __future__ import annotations

import inspect
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import _say

if TYPE_CHECKING:
    from ._cancel import Cancel
    from ._task import Task

WAITING_MOST = 1024
WAIT_LIMIT_NS = 30_000_000_000
THREADS_MOST = 4

Done = Callable[["Cancel", str], None]


class Reruns:
    """Waits with reruns, and runs them: those of threads on at most four threads of their own, those of coroutines in the loop that they were begun in.

    All but `_work` and `_again` belongs to the thread that speaks to the agent.
    """

    def __init__(self, again: Callable[[Task], Task], done: Done, clock: Callable[[], int]) -> None:
        """`again` makes the task for the second run of one; `done` is told `reran` or `dropped`, from any thread."""
        self._new_task = again
        self._done = done
        self._clock = clock
        self._waiting: dict[int, tuple[Cancel, int]] = {}
        self._queue: queue.SimpleQueue[tuple[Cancel, bool] | None] = queue.SimpleQueue()
        self._threads = 0

    def add(self, cancel: Cancel) -> None:
        """Something that can be run again was cancelled."""
        if len(self._waiting) >= WAITING_MOST:
            _say.once("reruns", f"{WAITING_MOST} cancelled tasks wait to be run again; what comes beyond is dropped")
            self._start(cancel, dropped=True)
        else:
            self._waiting[cancel.id] = (cancel, self._clock() + WAIT_LIMIT_NS)

    def rerun(self, id: int) -> None:
        """There is room for it."""
        found = self._waiting.pop(id, None)
        if found is not None:
            self._start(found[0], dropped=False)

    def drop(self, id: int) -> None:
        """It is of no use any more."""
        found = self._waiting.pop(id, None)
        if found is not None:
            self._start(found[0], dropped=True)

    def watch(self) -> None:
        """Runs what has waited for long enough."""
        now = self._clock()
        for id in [id for id, (_, until) in self._waiting.items() if now >= until]:
            self.now(self._waiting.pop(id)[0])

    def release(self) -> None:
        """Nobody will say any more when there is room: runs all."""
        waiting, self._waiting = self._waiting, {}
        for cancel, _ in waiting.values():
            self.now(cancel)

    def now(self, cancel: Cancel) -> None:
        """Runs it without asking, unless its deadline has passed."""
        deadline = cancel.task.deadline_ns
        self._start(cancel, dropped=bool(deadline) and self._clock() > deadline)

    def stop(self) -> None:
        """Ends the threads when they come by. What waits is not run: the process ends."""
        for _ in range(self._threads):
            self._queue.put(None)

    def _start(self, cancel: Cancel, dropped: bool) -> None:
        loop = cancel.task._loop
        if loop is not None and not dropped:
            import asyncio  # loaded already, by whoever made the loop

            coroutine = self._again(cancel)
            try:
                asyncio.run_coroutine_threadsafe(coroutine, loop)
            except RuntimeError:  # the loop is closed
                coroutine.close()
                dropped = True
            else:
                return
        if self._threads < THREADS_MOST:
            self._threads += 1
            threading.Thread(target=self._work, name=f"plimsoll-rerun-{self._threads}", daemon=True).start()
        self._queue.put((cancel, dropped))

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            cancel, dropped = item
            task = cancel.task
            try:
                if dropped:
                    if task.dropped is not None:
                        task.dropped(task)
                elif task.rerun is not None:
                    with self._new_task(task):
                        if inspect.isawaitable(task.rerun(task)):
                            raise TypeError("the rerun callback of a thread's task must be an ordinary function")
            except BaseException as error:
                self._failed(task, error)
            self._done(cancel, "dropped" if dropped else "reran")

    async def _again(self, cancel: Cancel) -> None:
        task = cancel.task
        try:
            if task.rerun is not None:
                async with self._new_task(task):
                    result = task.rerun(task)
                    if inspect.isawaitable(result):
                        await result
        except Exception as error:
            self._failed(task, error)
        finally:
            self._done(cancel, "reran")

    @staticmethod
    def _failed(task: Task, error: BaseException) -> None:
        _say.once("rerun", f"running {task.label!r} again failed with {type(error).__name__}: {error}")
