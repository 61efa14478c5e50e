"""A lock for many readers or one writer, tracked. `threading` has none, so this is all of it."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType

from ._layout import Kind
from ._resource import Resource
from ._task import Task, _current


class RWLock:
    """Many readers or one writer: `with lock.read():`, `with lock.write():`. Not reentrant.

    First come, first served: a writer that waits keeps later readers out, so nobody starves; readers that come one after the other go together.
    """

    __slots__ = ("_mutex", "_readers", "_waiters", "_writing", "resource")

    def __init__(self, name: str) -> None:
        self.resource = Resource(Kind.LOCK, name, 0)  # nobody knows how many readers there can be
        self._mutex = threading.Lock()
        self._waiters: deque[_Waiter] = deque()
        self._readers = 0
        self._writing = False

    def read(self, timeout: float = -1) -> Held:
        """Acquires it for reading; the result is for `with`, or has `release()`. TimeoutError after `timeout` seconds."""
        return self._acquire(False, timeout)

    def write(self, timeout: float = -1) -> Held:
        """Acquires it for writing; the result is for `with`, or has `release()`. TimeoutError after `timeout` seconds."""
        return self._acquire(True, timeout)

    def _acquire(self, writing: bool, timeout: float) -> Held:
        task = _current.get()
        waiter = _Waiter(writing)
        with self._mutex:
            self._waiters.append(waiter)
            self._admit()
        if not waiter.granted:
            if task is not None:
                task.wait(self.resource)
            try:
                waiter.turn.acquire(True, timeout)
            except BaseException:
                if self._leave(waiter):
                    self._release(writing)
                raise
            finally:
                if task is not None:
                    task.unwait(self.resource)
            if not self._leave(waiter):
                raise TimeoutError(f"{self.resource.name!r} was not to be had within {timeout} s")
        if task is not None:
            task.get(self.resource)
        return Held(self, task, writing)

    def _leave(self, waiter: _Waiter) -> bool:
        """Ends a wait; says whether the lock was granted. Whoever is behind one that gives up may now be able to go."""
        with self._mutex:
            if not waiter.granted:
                self._waiters.remove(waiter)
                self._admit()
            return waiter.granted

    def _release(self, writing: bool) -> None:
        with self._mutex:
            if writing:
                self._writing = False
            else:
                self._readers -= 1
            self._admit()

    def _admit(self) -> None:
        """Grants the lock to those who wait at the front and can have it."""
        while self._waiters and not self._writing:
            first = self._waiters[0]
            if first.writing:
                if self._readers:
                    return
                self._writing = True
            else:
                self._readers += 1
            self._waiters.popleft()
            first.granted = True
            first.turn.release()


class _Waiter:
    """Somebody who wants the lock. `turn` is locked until it is granted."""

    __slots__ = ("granted", "turn", "writing")

    def __init__(self, writing: bool) -> None:
        self.writing = writing
        self.granted = False
        self.turn = threading.Lock()
        self.turn.acquire()


class Held:
    """What `RWLock.read` and `RWLock.write` return: held, until it is released."""

    __slots__ = ("_lock", "_task", "_writing")

    def __init__(self, lock: RWLock, task: Task | None, writing: bool) -> None:
        self._lock: RWLock | None = lock
        self._task = task
        self._writing = writing

    def release(self) -> None:
        """Releases it. RuntimeError if that was done before."""
        lock, self._lock = self._lock, None
        if lock is None:
            raise RuntimeError("released already")
        lock._release(self._writing)
        if self._task is not None:
            self._task.free(lock.resource)

    def __enter__(self) -> Held:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
