"""The application: one ledger a process, made when it is first needed, gone when the process ends, never shared with a fork."""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from . import _files, _say
from . import _layout as at
from ._layout import Kind, Sizes
from ._ledger import Ledger
from ._link import Link
from ._resource import Resource
from ._task import Task, _current, forget_thread


class App:
    """An open ledger, or what stands for it where there can be none. Made by `plimsoll.open`."""

    def __init__(self, name: str, directory: str | None, cancel: Callable[[Task], object] | None, sizes: Sizes) -> None:
        """Use `plimsoll.open`, which says what the arguments mean."""
        self.name = name
        self.sizes = sizes
        self.path: str | None = None
        self.ledger: Ledger | None = None
        self._arguments = (name, directory, cancel, sizes)
        self._file: _files.LedgerFile | None = None
        self._link: Link | None = None
        try:
            self._open(_files.directory_of(directory), cancel)
        except _files.Unfit as unfit:
            _say.once("unfit", f"not accounting: {unfit}")
        except Exception as error:
            _say.once("open", f"not accounting: {type(error).__name__}: {error}")

    def _open(self, directory: str, cancel: Callable[[Task], object] | None) -> None:
        if sys.platform != "linux":
            raise _files.Unfit(f"ledgers need Linux, and this is {sys.platform}")
        if not getattr(sys, "_is_gil_enabled", lambda: True)():
            raise _files.Unfit("accounts need Python's GIL, and this is a free-threaded build that runs without; PYTHON_GIL=1 turns it on")
        if sys.byteorder != "little":
            raise _files.Unfit("ledgers are little-endian, and this machine is not")
        _files.prepare(directory)
        file = _files.LedgerFile(directory, self.name, self.sizes.file_bytes)
        ledger = Ledger(file.memory, self.sizes, time.monotonic_ns)
        now = time.monotonic_ns()
        ledger.words[at.CLOCK_AT] = now
        ledger.beat(now)
        ledger.write_header(self.name, os.getpid(), _files.process_started(), now)
        link = Link(ledger, directory, file.name, cancel, self._again, time.monotonic_ns)
        file.publish()
        try:
            link.start()
        except RuntimeError:
            file.remove()  # a ledger that never beats is worth nothing
            raise
        self._file, self._link, self.ledger, self.path = file, link, ledger, file.path

    @property
    def mode(self) -> str | None:
        """What the agent does: `off`, `shadow` or `enforce`; None while there is no agent."""
        return None if self._link is None else self._link.mode

    def _again(self, task: Task) -> Task:
        """The task for the second run of one that was cancelled: never cancelled again."""
        flags = at.RERUN | task._flags & at.BACKGROUND
        return Task(self.ledger, time.monotonic_ns, task.label, task.key, flags)

    def close(self) -> None:
        """Ends the accounting and removes the file. Tasks go on, unaccounted. Done by itself when the process ends in order."""
        global _app
        if _app is self:
            _app = None
        link, file, ledger = self._link, self._file, self.ledger
        self._link = self._file = self.ledger = self.path = None
        if link is not None:
            link.stop()
        if file is not None:
            file.remove()
        if ledger is not None:
            ledger.close()

    def _forked(self) -> None:
        """In the child: what is mapped here is the parent's. Everything that still writes hits a released view."""
        if self._link is not None:
            self._link.abandon()
        if self.ledger is not None:
            self.ledger.close()
        self._link = self._file = self.ledger = self.path = None

    def __enter__(self) -> App:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


DEADLINE_MOST_S = 1e9
"""Thirty years, which keeps the time within 64 bits."""

_app: App | None = None
_opening = threading.RLock()
_reopen: tuple[Any, ...] | None = None
_forking: list[Link] = []


def open(
    app: str | None = None,
    *,
    directory: str | None = None,
    cancel: Callable[[Task], object] | None = None,
    resources: int = 64,
    lanes: int = 8,
    tasks: int = 4096,
    accounts: int = 16384,
) -> App:
    """Opens the ledger of this process. The first task does so by itself; call it to say more.

    `app` is the application's name, 1 to 32 of `a-z A-Z 0-9 _ -`; else `$PLIMSOLL_APP`, else the program's name. `directory` is where the ledger and
    the agent's socket are; else `$PLIMSOLL_DIR`, else `/dev/shm/plimsoll-UID`. `cancel` is called, on a thread of its own, with each task that is to yield
    and has neither an action of its own nor an asyncio task. The numbers are how much there can be at once (`Sizes`).

    Where there can be no ledger it says so once, and all goes on unaccounted. Raises ValueError only for arguments that can never be right. What was
    open before is closed.
    """
    global _app
    if app is not None and not (isinstance(app, str) and at.APP_NAME.match(app)):
        raise ValueError(f"app must be 1 to 32 of a-z A-Z 0-9 _ -, not {app!r}")
    sizes = Sizes(resources, lanes, tasks, accounts)
    with _opening:
        if _app is not None:
            _app.close()
        _app = App(app or _default_name(), directory, cancel, sizes)
        return _app


def close() -> None:
    """Closes what is open, if anything is. The next task opens it anew."""
    with _opening:
        if _app is not None:
            _app.close()


def _default_name() -> str:
    program = sys.argv[0] if sys.argv else ""
    path, name = os.path.split(program)
    if name == "__main__.py":
        name = os.path.basename(path)
    name = os.environ.get("PLIMSOLL_APP") or os.path.splitext(name)[0]
    # `-c` and `-m` are no programs.
    name = "" if name in ("-c", "-m") else re.sub(r"[^a-zA-Z0-9_-]+", "-", name).strip("-")[:32]
    return name or "python"


def _opened() -> App:
    """What is open; opens it if nothing is, after a fork as the parent had it."""
    global _app, _reopen
    with _opening:
        if _app is None:
            arguments, _reopen = _reopen or (_default_name(), None, None, Sizes()), None
            _app = App(*arguments)
        return _app


def task(
    label: str,
    key: int = 0,
    *,
    background: bool = False,
    cancellable: bool = True,
    again: bool = False,
    deadline_s: float | None = None,
    cancel: Callable[[Task], object] | None = None,
    rerun: Callable[[Task], object] | None = None,
    dropped: Callable[[Task], object] | None = None,
) -> Task:
    """A task, which `with` or `async with` begins and ends.

    `label` is what it is, for people (64 bytes): `GET /report`. `key` is the application's number for it. `background` is for what is no request.
    `deadline_s` is how many seconds from its beginning it is of use. A task that nobody could stop is not `cancellable`; one that was
    cancelled before and runs a second time, because somebody else sent it `again`, is never cancelled.

    It is cancelled by `cancel(task)`, on a thread of its own, if that is given; else, under `async with`, as `asyncio.Task.cancel` does; else by the action
    given to `open`; and in any case `task.cancelled` is True from then on and `task.check()` raises. `rerun(task)` is called to run it once more when there
    is room again: in its loop, and awaited, under `async with`; on a thread of the SDK's otherwise; as a task of its own that is never cancelled.
    `dropped(task)` is called, on a thread of the SDK's, if that will not be.

    Raises TypeError or ValueError for a label that is no text, a key that is no whole number, or a deadline that is no number of seconds from 0 on.
    """
    if label.__class__ is not str or key.__class__ is not int or deadline_s is not None:
        _check(label, key, deadline_s)
    app = _app
    if app is None:
        app = _opened()
    flags = (at.CANCELLABLE if cancellable else 0) | (at.BACKGROUND if background else 0)
    if rerun is not None:
        flags |= at.RERUNNABLE
    outer = _current.get()
    if again or (outer is not None and outer._flags & at.RERUN):
        # Part of a second run: not to be cancelled again.
        flags = flags & at.BACKGROUND | at.RERUN
    return Task(app.ledger, time.monotonic_ns, label, key, flags, deadline_s, cancel, rerun, dropped)


def _check(label: object, key: object, deadline_s: object) -> None:
    if not isinstance(label, str):
        raise TypeError(f"label must be a text, not {label!r}")
    if not isinstance(key, int):
        raise TypeError(f"key of {label!r} must be a whole number, not {key!r}; put what is none into the label")
    if deadline_s is not None and not (isinstance(deadline_s, (int, float)) and 0 <= deadline_s < DEADLINE_MOST_S):
        raise ValueError(f"deadline_s of {label!r} must be a number of seconds from 0 to {DEADLINE_MOST_S:.0f}, not {deadline_s!r}")


def resource(kind: Kind | str, name: str, capacity: int = 0) -> Resource:
    """A resource that tasks contend for; see `Resource`. Make it once, at the top of a module."""
    return Resource(kind, name, capacity)


def _before_fork() -> None:
    if _app is not None and _app._link is not None:
        _forking.append(_app._link)
        _app._link.pause()


def _after_fork_in_parent() -> None:
    try:
        _forking.pop().resume()
    except IndexError:
        pass
    except RuntimeError as error:
        _say.once("resume", f"not accounting any more: {error}")
        close()


def _after_fork_in_child() -> None:
    """The child has a ledger of its own as soon as it begins a task, opened as the parent's was."""
    global _app, _opening, _reopen
    _forking.clear()
    forget_thread()
    _opening = threading.RLock()  # another thread may have had it
    if _app is not None:
        app, _app = _app, None
        _reopen = app._arguments
        try:
            app._forked()
        except Exception:  # nothing may hinder a fork
            pass


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
