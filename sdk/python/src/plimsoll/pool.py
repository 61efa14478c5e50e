"""A pool of things that are lent: workers, connections, buffers. Tracked as a queue for as many units as there are things."""

from __future__ import annotations

import queue
from collections.abc import Iterable
from types import TracebackType
from typing import Generic, TypeVar

from ._layout import Kind
from ._resource import Resource
from ._task import Task, _current

T = TypeVar("T")


class Pool(Generic[T]):
    """`with pool.take() as item:`, or `get` and `put` as in `queue.Queue`. What was given back last is lent first, since it is still warm."""

    __slots__ = ("_borrowers", "_items", "resource")

    def __init__(self, name: str, items: Iterable[T]) -> None:
        """Raises ValueError if there are no items."""
        self._items: queue.LifoQueue[T] = queue.LifoQueue()
        for item in items:
            self._items.put(item)
        if self._items.empty():
            raise ValueError(f"a pool needs something to lend; {name!r} got nothing")
        self.resource = Resource(Kind.QUEUE, name, self._items.qsize())
        # Whose account a thing is on, by the thing's identity: it may be given back by another thread.
        self._borrowers: dict[int, Task] = {}

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """A thing of the pool's. Raises queue.Empty if there is none, at once or after `timeout` seconds."""
        task = _current.get()
        if task is None:
            return self._items.get(block, timeout)
        try:
            item = self._items.get(False)
        except queue.Empty:
            if not block:
                raise
            task.wait(self.resource)
            try:
                item = self._items.get(True, timeout)
            finally:
                task.unwait(self.resource)
        task.get(self.resource)
        self._borrowers[id(item)] = task
        return item

    def put(self, item: T) -> None:
        """Gives a thing back."""
        borrower = self._borrowers.pop(id(item), None)
        if borrower is not None:
            borrower.free(self.resource)
        self._items.put(item)

    def take(self, timeout: float | None = None) -> Lent[T]:
        """`with pool.take() as item:` - raises queue.Empty after `timeout` seconds."""
        return Lent(self, timeout)

    def __len__(self) -> int:
        return self._items.qsize()


class Lent(Generic[T]):
    """What `Pool.take` returns."""

    __slots__ = ("_item", "_pool", "_timeout")

    def __init__(self, pool: Pool[T], timeout: float | None) -> None:
        self._pool = pool
        self._timeout = timeout

    def __enter__(self) -> T:
        self._item = self._pool.get(True, self._timeout)
        return self._item

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.put(self._item)
