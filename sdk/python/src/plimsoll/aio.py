"""Locks and semaphores as in `asyncio`, which keep account of who holds them and who waits: the counterpart of `plimsoll.Lock` for coroutines."""

from __future__ import annotations

import asyncio
from types import TracebackType

from ._layout import Kind
from ._resource import Resource
from ._task import Task, _current


class Lock:
    """`asyncio.Lock`, tracked. A lock, held by one task at a time."""

    __slots__ = ("_holder", "_lock", "resource")

    def __init__(self, name: str) -> None:
        self.resource = Resource(Kind.LOCK, name, 1)
        self._lock = asyncio.Lock()
        self._holder: Task | None = None

    async def acquire(self) -> bool:
        """As `asyncio.Lock.acquire`."""
        task = _current.get()
        await _acquire(self._lock, task, self.resource)
        self._holder = task
        return True

    def release(self) -> None:
        """As `asyncio.Lock.release`."""
        self._lock.release()
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.free(self.resource)

    def locked(self) -> bool:
        """Whether somebody holds it."""
        return self._lock.locked()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


class Semaphore:
    """`asyncio.BoundedSemaphore`, tracked: a queue for `value` permits. Release it in the task that acquired it."""

    __slots__ = ("_semaphore", "resource")

    def __init__(self, name: str, value: int = 1) -> None:
        self.resource = Resource(Kind.QUEUE, name, value)
        self._semaphore = asyncio.BoundedSemaphore(value)

    async def acquire(self) -> bool:
        """As `asyncio.Semaphore.acquire`."""
        await _acquire(self._semaphore, _current.get(), self.resource)
        return True

    def release(self) -> None:
        """As `asyncio.BoundedSemaphore.release`: ValueError if that is more than were acquired."""
        self._semaphore.release()
        self.resource.free()

    def locked(self) -> bool:
        """Whether whoever comes now must wait."""
        return self._semaphore.locked()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()


async def _acquire(lock: asyncio.Lock | asyncio.Semaphore, task: Task | None, resource: Resource) -> None:
    """Acquires it, and accounts for the wait if there is one. A lock that was released and has somebody waiting goes to him, so it counts as taken."""
    if task is None:
        await lock.acquire()
        return
    if lock.locked() or getattr(lock, "_waiters", None):
        task.wait(resource)
        try:
            await lock.acquire()
        finally:
            task.unwait(resource)
    else:
        await lock.acquire()
    task.get(resource)
