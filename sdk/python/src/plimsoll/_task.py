"""A task: what it holds and waits for, how far it is, and whether it is to yield.

`get`, `free`, `wait` and `slow` are the whole cost of the SDK on a busy path, so they are written out: no helper is called while nothing is unusual.
Three rules keep them right without a lock.

- A read-modify-write is one statement without a call. CPython switches threads only at calls and at the end of a loop's body, so several threads may work
  for one task. (Builds without the GIL have no such rule: `open` does not account on them.)
- The time is taken first, since that may be a call.
- Whatever goes wrong is swallowed. A released view raises ValueError, and that is how a task notices, for free, that its ledger is gone.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _layout as at
from ._ledger import Account, Record, unaccounted

if TYPE_CHECKING:
    import asyncio

    from ._cancel import Cancel
    from ._ledger import Ledger
    from ._resource import Resource

_current: ContextVar[Task | None] = ContextVar("plimsoll_task", default=None)
_thread = threading.local()

if sys.version_info >= (3, 11):

    def _cancelling(task: asyncio.Task[Any]) -> int:
        return task.cancelling()

    def _uncancel(task: asyncio.Task[Any]) -> int:
        return task.uncancel()
else:

    def _cancelling(task: asyncio.Task[Any]) -> int:
        return 0

    def _uncancel(task: asyncio.Task[Any]) -> int:
        return 0


def current() -> Task | None:
    """The task that this thread or coroutine works for, or None."""
    return _current.get()


def forget_thread() -> None:
    """After a fork: the thread has another number, and works for nothing that this process knows."""
    global _thread
    _thread = threading.local()
    _current.set(None)


class Cancelled(Exception):
    """The task was asked to yield. The text is the reason, for people."""

    @property
    def reason(self) -> str:
        """Why, for people."""
        return str(self)


class Task:
    """Something that can be cancelled: a request, a session, a job. Made by `plimsoll.task`, begun by `with` or `async with`."""

    __slots__ = (
        "_accounts", "_aio", "_cancel", "_cancelling", "_deadline_s", "_exact", "_flags", "_ledger", "_loop", "_record", "_seen", "_started_ns", "_thrown",
        "_token", "action", "deadline_ns", "dropped", "key", "label", "rerun",
    )  # fmt: skip

    def __init__(
        self,
        ledger: Ledger | None,
        exact: Callable[[], int],
        label: str,
        key: int = 0,
        flags: int = at.CANCELLABLE,
        deadline_s: float | None = None,
        cancel: Callable[[Task], object] | None = None,
        rerun: Callable[[Task], object] | None = None,
        dropped: Callable[[Task], object] | None = None,
    ) -> None:
        """Use `plimsoll.task`, which says what the arguments mean."""
        self._ledger = ledger
        self._exact = exact
        self.label = label
        self.key = key
        self._flags = flags
        self._deadline_s = deadline_s
        self.deadline_ns = 0
        self.action = cancel
        self.rerun = rerun
        self.dropped = dropped
        self._record: Record | None = None
        self._accounts: dict[Resource, Account] = {}
        self._cancel: Cancel | None = None
        self._seen = False
        self._thrown = False
        self._aio: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._token: Token[Task | None] | None = None

    # What it does with resources.

    def get(self, resource: Resource, n: int = 1) -> None:
        """It has got `n` units. Ends its wait for the resource, if there is one."""
        if n < 1:
            return
        a = self._accounts.get(resource)
        if a is None:
            a = self._account(resource)
        try:
            if a.waiting:
                self.unwait(resource)
            q = a.words
            if a.gets == a.frees:
                # The time 0 means "none". `flags` has one bit.
                now = (a.exact() if q[25] else q[32]) or 1
                q[a.gets_at] = a.gets = a.gets + n
                q[a.holding_at] = a.since = now
            else:
                q[a.gets_at] = a.gets = a.gets + n
        except Exception:  # the application must never notice
            pass

    def free(self, resource: Resource, n: int = 1) -> None:
        """It has given `n` units back; at most what it holds is counted."""
        if n < 1:
            return
        try:
            a = self._accounts[resource]
            q = a.words
            frees = a.frees + n
            if frees < a.gets:
                q[a.frees_at] = a.frees = a.frees + n
            elif a.gets != a.frees:
                now = a.exact() if q[25] else q[32]
                q[a.holding_at] = 0
                if now > a.since:
                    q[a.hold_at] = a.hold_ns = a.hold_ns + now - a.since
                q[a.frees_at] = a.frees = a.gets
        except Exception:
            pass

    def wait(self, resource: Resource) -> None:
        """It begins to wait for the resource, until `get` or `unwait`."""
        a = self._accounts.get(resource)
        if a is None:
            a = self._account(resource)
        try:
            if not a.waiting:
                q = a.words
                now = (a.exact() if q[25] else q[32]) or 1
                q[a.slows_at] = a.slows = a.slows + 1
                q[a.waiting_at] = a.waiting = now
        except Exception:
            pass

    def unwait(self, resource: Resource) -> None:
        """Its wait is over, whether it got anything or not."""
        try:
            a = self._accounts[resource]
            if a.waiting:
                q = a.words
                now = a.exact() if q[25] else q[32]
                since, a.waiting = a.waiting, 0
                q[a.waiting_at] = 0
                if now > since:
                    q[a.wait_at] = a.wait_ns = a.wait_ns + now - since
        except Exception:
            pass

    def slow(self, resource: Resource, n: int = 1, delay_ns: int = 0) -> None:
        """It was held up for `delay_ns` in all: `n` units had to be evicted for it, or it had `n` waits that were measured elsewhere."""
        if n < 1:
            return
        a = self._accounts.get(resource)
        if a is None:
            a = self._account(resource)
        try:
            a.words[a.slows_at] = a.slows = a.slows + n
            if delay_ns > 0:
                a.words[a.wait_at] = a.wait_ns = a.wait_ns + delay_ns
        except Exception:
            pass

    def holds(self, resource: Resource) -> int:
        """How many units of the resource it holds."""
        a = self._accounts.get(resource)
        return 0 if a is None else a.gets - a.frees

    def progress(self, done: int, total: int) -> None:
        """How far it is: `done` of `total` rows, bytes, steps; `total` 0 while nobody knows."""
        record, ledger = self._record, self._ledger
        if record is None or ledger is None:
            return
        try:
            ledger.words[record.done_at] = done if 0 <= done <= at.WORD else 0
            ledger.words[record.total_at] = total if 0 <= total <= at.WORD else 0
        except Exception:
            pass

    def _account(self, resource: Resource) -> Account:
        """The account for a resource that it uses for the first time."""
        account = None
        if self._record is not None and self._ledger is not None:
            try:
                account = self._ledger.take_account(self._record, resource)
            except Exception:
                pass
        if account is None:
            if not hasattr(resource, "stored_name"):
                raise TypeError(f"{resource!r} is no resource; make one, once, with plimsoll.resource(kind, name)")
            account = unaccounted()
        mine = self._accounts.setdefault(resource, account)
        if mine is not account and self._ledger is not None:
            # Another thread of this task was first.
            try:
                self._ledger.give_account(account)
            except Exception:
                pass
        return mine

    # Being cancelled.

    @property
    def cancellable(self) -> bool:
        """Whether it may be cancelled at all. A second run never is."""
        return bool(self._flags & at.CANCELLABLE)

    @property
    def background(self) -> bool:
        """Whether it is no request."""
        return bool(self._flags & at.BACKGROUND)

    @property
    def cancelled(self) -> bool:
        """Whether it is to yield. Whoever reads True is taken to act on it."""
        cancel = self._cancel
        if cancel is None or not cancel.called:
            return False
        self._seen = True
        return True

    @property
    def reason(self) -> str | None:
        """Why it is to yield, for people; None while it is not."""
        cancel = self._cancel
        return cancel.reason if cancel is not None and cancel.called else None

    @property
    def resource(self) -> str | None:
        """The name of what it holds up; None while it is not to yield."""
        cancel = self._cancel
        return cancel.resource if cancel is not None and cancel.called else None

    def check(self) -> None:
        """Raises `Cancelled` if it is to yield. For the loops of whatever runs in a thread."""
        cancel = self._cancel
        if cancel is not None and cancel.called:
            self._seen = True
            raise Cancelled(cancel.reason)

    def _cancel_in_loop(self) -> None:
        # In the loop's thread, so it cannot have ended in between.
        if self._aio is not None and not self._thrown and self._token is not None:
            self._thrown = True
            self._aio.cancel(self.reason)

    # Its beginning and its end.

    def start(self, tid: int = 0) -> None:
        """Begins it, once, without making it the current one; for frameworks. `tid` is the thread that runs it, 0 if that is not one thread."""
        now = self._started_ns = self._exact()
        if self._deadline_s is not None:
            self.deadline_ns = max(now + int(self._deadline_s * 1e9), 1)
        if self._ledger is not None:
            try:
                label = at.fitted(self.label, at.LABEL_LENGTH)
                self._record = self._ledger.begin(self, self.key & at.WORD, now, self.deadline_ns, self._flags, tid, label)
            except Exception:
                pass

    def end(self, error: BaseException | None = None, lane: int = 0) -> None:
        """Ends it, and with it whatever it holds. `error` is what left its block."""
        if isinstance(error, Cancelled):
            self._seen = True
        cancel = self._cancel
        record, ledger = self._record, self._ledger
        self._record = None
        if ledger is None:
            return
        yielded = cancel is not None and (self._seen or self._thrown or cancel.acted)
        try:
            if record is not None:
                for resource, account in self._accounts.items():
                    if account.waiting:
                        self.unwait(resource)
                    if account.gets != account.frees:
                        self.free(resource, account.gets - account.frees)
                    ledger.give_account(account)
                ledger.end(record)
            # One that found no record counts all the same.
            if not self._flags & at.BACKGROUND:
                ledger.count(lane, max(self._exact() - self._started_ns, 0), yielded)
        except Exception:
            pass
        self._accounts = {}
        # Read again: whoever cancels first sets it and then looks whether the task is still there.
        cancel = self._cancel
        if cancel is not None:
            cancel.ended(yielded)

    def attach(self) -> Attached:
        """Makes it the current task of another thread: `with task.attach():`. Not needed under `asyncio.to_thread`."""
        return Attached(self)

    def __enter__(self) -> Task:
        try:
            tid = _thread.tid
        except AttributeError:
            tid = _thread.tid = threading.get_native_id()
        self.start(tid)
        self._token = _current.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave()
        self.end(error)

    def _leave(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:
                _current.reset(token)
            except ValueError:
                _current.set(None)  # a generator that was closed in another context

    async def __aenter__(self) -> Task:
        import asyncio  # here, since it is large and programs with threads need none of it

        self._loop = loop = asyncio.get_running_loop()
        self._aio = asyncio.current_task(loop)
        if self._aio is not None:
            self._cancelling = _cancelling(self._aio)
        self.start()
        self._token = _current.set(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leave()
        self.end(error)
        aio, self._aio = self._aio, None
        if self._thrown and aio is not None:
            import asyncio

            # As asyncio.timeout does: the cancellation was ours, so it ends here, unless somebody else has cancelled it too.
            if _uncancel(aio) <= self._cancelling and isinstance(error, asyncio.CancelledError):
                raise Cancelled(self.reason) from error


class Attached:
    """What `Task.attach` returns."""

    __slots__ = ("_task", "_token")

    def __init__(self, task: Task) -> None:
        self._task = task

    def __enter__(self) -> Task:
        self._token = _current.set(self._task)
        return self._task

    def __exit__(self, *exception: object) -> None:
        _current.reset(self._token)
