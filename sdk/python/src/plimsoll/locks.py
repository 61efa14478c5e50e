"""Locks and semaphores as in `threading`, which keep account of who holds them and who waits.

Each is a resource under the name that it is given. Without a current task they do what the originals do, and no more. A unit counts for the task that
acquired it until it is released, or that task ends. A `Semaphore` does not know who holds it, so release it in the task that acquired it; a `Lock` may be
released by anybody.
"""

from __future__ import annotations

import threading
from types import TracebackType

from ._layout import Kind
from ._resource import Resource
from ._task import Task, _current


class Lock:
    """`threading.Lock`, tracked."""

    __slots__ = ("_holder", "_lock", "resource")

    def __init__(self, name: str) -> None:
        self.resource = Resource(Kind.LOCK, name, 1)
        self._lock = threading.Lock()
        self._holder: Task | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As `threading.Lock.acquire`."""
        task = _current.get()
        if task is None:
            return self._lock.acquire(blocking, timeout)
        if not self._lock.acquire(False):
            if not blocking:
                return self._lock.acquire(blocking, timeout)  # raises for a timeout that makes no sense
            task.wait(self.resource)
            try:
                if not self._lock.acquire(True, timeout):
                    return False
            finally:
                task.unwait(self.resource)
        task.get(self.resource)
        self._holder = task
        return True

    def release(self) -> None:
        """As `threading.Lock.release`."""
        holder, self._holder = self._holder, None
        self._lock.release()
        if holder is not None:
            holder.free(self.resource)

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._lock.locked()

    __enter__ = acquire

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


class RLock:
    """`threading.RLock`, tracked: held from the first acquire to the last release."""

    __slots__ = ("_depth", "_holder", "_lock", "_owner", "resource")

    def __init__(self, name: str) -> None:
        self.resource = Resource(Kind.LOCK, name, 1)
        self._lock = threading.RLock()
        self._depth = 0
        self._owner = 0  # changed by whoever has the lock, so nobody else can find himself there
        self._holder: Task | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As `threading.RLock.acquire`."""
        task = _current.get()
        if not self._lock.acquire(False):
            if task is None or not blocking:
                if not self._lock.acquire(blocking, timeout):
                    return False
            else:
                task.wait(self.resource)
                try:
                    if not self._lock.acquire(True, timeout):
                        return False
                finally:
                    task.unwait(self.resource)
        self._depth += 1
        if self._depth == 1:
            self._owner = threading.get_ident()
            if task is not None:
                task.get(self.resource)
                self._holder = task
        return True

    def release(self) -> None:
        """As `threading.RLock.release`."""
        holder = None
        if self._owner == threading.get_ident():
            self._depth -= 1
            if self._depth == 0:
                self._owner = 0
                holder, self._holder = self._holder, None
        self._lock.release()  # raises for whoever does not own it
        if holder is not None:
            holder.free(self.resource)

    __enter__ = acquire

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


class Semaphore:
    """`threading.BoundedSemaphore`, tracked: a queue for `value` permits."""

    __slots__ = ("_semaphore", "resource")

    def __init__(self, name: str, value: int = 1) -> None:
        self.resource = Resource(Kind.QUEUE, name, value)
        self._semaphore = threading.BoundedSemaphore(value)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """As `threading.Semaphore.acquire`."""
        task = _current.get()
        if task is None:
            return self._semaphore.acquire(blocking, timeout)
        if not self._semaphore.acquire(False):
            if not blocking:
                return self._semaphore.acquire(blocking, timeout)
            task.wait(self.resource)
            try:
                if not self._semaphore.acquire(True, timeout):
                    return False
            finally:
                task.unwait(self.resource)
        task.get(self.resource)
        return True

    def release(self, n: int = 1) -> None:
        """As `threading.BoundedSemaphore.release`: ValueError if that is more than were acquired."""
        self._semaphore.release(n)
        self.resource.free(n)

    __enter__ = acquire

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
