"""A resource: something that tasks take, give back and wait for, under a name that people recognise."""

from __future__ import annotations

from . import _layout as at
from ._layout import Kind
from ._task import _current


class Resource:
    """What tasks contend for. Made by `plimsoll.resource`; its methods speak for the current task, and do nothing where there is none.

    It takes a record of the ledger when a task first uses it, and stays there for as long as the ledger does. Two with one name are one.
    """

    __slots__ = ("_hold", "_waiting", "capacity", "kind", "name", "stored_name")

    def __init__(self, kind: Kind | str, name: str, capacity: int = 0) -> None:
        """`capacity` is how many units can be held at once: permits, pages, workers; 1 for a mutex; 0 if nobody knows.

        Raises ValueError for a kind that does not exist, an empty name or a capacity below 0.
        """
        try:
            self.kind = Kind[kind] if isinstance(kind, str) else Kind(kind)
        except (KeyError, ValueError):
            raise ValueError(f"kind must be one of {', '.join(k.name for k in Kind)}, not {kind!r}") from None
        if not isinstance(name, str) or not name.strip("\0"):
            raise ValueError(f"the name of a resource must be a text that is not empty, not {name!r}")
        if not isinstance(capacity, int) or not 0 <= capacity <= at.WORD:
            raise ValueError(f"capacity of {name!r} must be a number from 0 (unknown) to 2^64 - 1, not {capacity!r}")
        self.name = name
        self.capacity = capacity
        self.stored_name = at.fitted(name, at.NAME_LENGTH)
        self._hold = Hold(self, 1)
        self._waiting = Waiting(self)

    def __repr__(self) -> str:
        return f"Resource({self.kind.name}, {self.name!r}, capacity={self.capacity})"

    def get(self, n: int = 1) -> None:
        """The current task has got `n` units."""
        task = _current.get()
        if task is not None:
            task.get(self, n)

    def free(self, n: int = 1) -> None:
        """The current task has given `n` units back."""
        task = _current.get()
        if task is not None:
            task.free(self, n)

    def wait(self) -> None:
        """The current task begins to wait for it."""
        task = _current.get()
        if task is not None:
            task.wait(self)

    def unwait(self) -> None:
        """The current task waits for it no more."""
        task = _current.get()
        if task is not None:
            task.unwait(self)

    def slow(self, n: int = 1, delay_ns: int = 0) -> None:
        """The current task was held up by it for `delay_ns`: `n` units were evicted, or it had `n` waits that were measured elsewhere."""
        task = _current.get()
        if task is not None:
            task.slow(self, n, delay_ns)

    def hold(self, n: int = 1) -> Hold:
        """`with resource.hold():` - the current task has got `n` units for as long as the block lasts."""
        return self._hold if n == 1 else Hold(self, n)

    def waiting(self) -> Waiting:
        """`with resource.waiting():` - the current task waits for it for as long as the block lasts, or until it gets some."""
        return self._waiting


class Hold:
    """What `Resource.hold` returns. It keeps no state, so that one serves everybody."""

    __slots__ = ("_n", "_resource")

    def __init__(self, resource: Resource, n: int) -> None:
        self._resource = resource
        self._n = n

    def __enter__(self) -> None:
        task = _current.get()
        if task is not None:
            task.get(self._resource, self._n)

    def __exit__(self, *exception: object) -> None:
        task = _current.get()
        if task is not None:
            task.free(self._resource, self._n)


class Waiting:
    """What `Resource.waiting` returns."""

    __slots__ = ("_resource",)

    def __init__(self, resource: Resource) -> None:
        self._resource = resource

    def __enter__(self) -> None:
        self._resource.wait()

    def __exit__(self, *exception: object) -> None:
        self._resource.unwait()
