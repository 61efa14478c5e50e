"""The one thread of the SDK: it beats, ticks the clock while no agent does, and speaks to the agent.

Other threads only put what they have to say into a deque and wake it. All of its waiting is one `poll`, at most a second.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import _protocol, _say
from ._cancel import Actions, Cancel
from ._rerun import Reruns

if TYPE_CHECKING:
    from ._ledger import Ledger
    from ._task import Task

BEAT_NS = 1_000_000_000
AGENT_SILENT_NS = 1_000_000_000
RECONNECT_NS = 1_000_000_000
REFUSED_NS = 10_000_000_000
UNSENT_MOST = 64 * 1024


def _peer(agent: socket.socket) -> int:
    """The user at the other end."""
    return int(struct.unpack("3i", agent.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


class Link:
    """Between a ledger and its agent."""

    def __init__(
        self,
        ledger: Ledger,
        directory: str,
        file: str,
        action: Callable[[Task], object] | None,
        again: Callable[[Task], Task],
        clock: Callable[[], int],
    ) -> None:
        """`file` is the ledger's name in `directory`; `action` and `again` are as for `Actions` and `Reruns`."""
        self.mode: str | None = None
        self._ledger = ledger
        self._agent = os.path.join(directory, "agent.sock")
        self._file = file
        self._clock = clock
        self._actions = Actions(action, clock)
        self._reruns = Reruns(again, lambda cancel, word: self._report(cancel, word, ""), clock)
        self._reports: deque[tuple[Cancel, str, str]] = deque()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False
        self._pauses = 0
        self._pausing = threading.RLock()
        self._abandoned = False
        self._connection = 0
        self._socket: socket.socket | None = None
        self._received = b""
        self._unsent = b""
        self._connect_at_ns = 0
        self._beat_at_ns = 0
        self._thread = self._new_thread()

    def start(self) -> None:
        """Begins to beat. Raises RuntimeError if there can be no further thread."""
        self._beat(self._clock())
        self._thread.start()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name="plimsoll", daemon=True)

    def _join(self) -> bool:
        """Waits for the thread, at most a second; says whether it has ended."""
        self._poke()
        if self._thread is not threading.current_thread() and self._thread.is_alive():
            self._thread.join(1.0)
        return not self._thread.is_alive()

    def pause(self) -> None:
        """Ends the thread and keeps everything else, since the process is about to fork: a fork is best done by the only thread."""
        with self._pausing:
            self._pauses += 1
            self._join()

    def resume(self) -> None:
        """Goes on after `pause`."""
        with self._pausing:
            self._pauses -= 1
            if self._pauses == 0 and not self._stopping and not self._thread.is_alive():
                self._thread = self._new_thread()
                self._thread.start()

    def stop(self) -> None:
        """Ends the thread, with what is to be said still said; waits for it at most a second."""
        self._stopping = True
        self._actions.stop()
        self._reruns.stop()
        if not self._join():
            return
        try:
            self._send_reports()
            self._disconnect()
        except Exception:  # it is over in any case
            pass
        self._abandoned = True
        os.close(self._wake)

    def abandon(self) -> None:
        """In a process that was forked: the thread is the parent's, and so is the connection. Neither locks nor waits."""
        self._abandoned = True
        if self._socket is not None:
            self._socket.close()
        os.close(self._wake)

    def _report(self, cancel: Cancel, word: str, text: str) -> None:
        if self._abandoned:
            return
        self._reports.append((cancel, word, text))
        self._poke()

    def _poke(self) -> None:
        try:
            os.eventfd_write(self._wake, 1)
        except OSError:
            pass  # it will look at its next beat

    def _run(self) -> None:
        while not self._stopping and not self._pauses:
            try:
                self._turn()
            except Exception as error:
                if self._ledger.closed:
                    return
                _say.once("link", f"speaking to the agent failed with {type(error).__name__}: {error}; trying again")
                self._disconnect()
                self._connect_at_ns = self._clock() + RECONNECT_NS

    def _turn(self) -> None:
        """One round: what is due by the clock, then what has come, until the next beat at most."""
        now = self._clock()
        connects = self._socket is None and now >= self._connect_at_ns
        # Who is awake beats, so that both fall together: waking up is what this thread costs.
        if connects or now >= self._beat_at_ns:
            self._beat(now)
        if connects:
            self._connect_at_ns = now + RECONNECT_NS
            self._connect()
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._socket is not None:
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        until = self._beat_at_ns if self._socket is not None else min(self._beat_at_ns, self._connect_at_ns)
        for fd, _ in poll.poll(max(until - self._clock(), 0) / 1e6):
            if fd == self._wake:
                os.eventfd_read(self._wake)
            else:
                self._receive()
        self._send_reports()
        self._send(b"")

    def _beat(self, now: int) -> None:
        self._beat_at_ns = now + BEAT_NS
        self._ledger.beat(now)
        self._ledger.tick_for_agent(now, AGENT_SILENT_NS)
        self._actions.watch()
        self._reruns.watch()

    def _connect(self) -> None:
        agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            agent.connect(self._agent)
            uid = _peer(agent)
            if uid not in (os.geteuid(), 0):
                _say.once("peer", f"{self._agent} is served by user {uid}, not by {os.geteuid()} or root; keeping away from it")
                raise OSError
        except OSError:
            agent.close()  # nobody there, or too busy: a second later, perhaps
            return
        self._connection += 1
        self._socket = agent
        self._received = b""
        self._unsent = b""
        self._send(_protocol.hello(self._file))

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self.mode = None
        if not self._stopping:
            self._reruns.release()

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(16384)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()
            return
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            if self._socket is None:
                return
            if len(line) < _protocol.LINE_BYTES:
                self._obey(_protocol.parse(line.decode("utf-8", "replace")))
            else:
                self._too_long()
        if len(self._received) >= _protocol.LINE_BYTES:
            self._too_long()

    def _too_long(self) -> None:
        _say.once("line", f"the agent sent a line of more than {_protocol.LINE_BYTES} bytes; connecting anew")
        self._disconnect()

    def _obey(self, line: _protocol.Line | None) -> None:
        match line:
            case _protocol.Welcome(mode):
                self.mode = mode
            case _protocol.Refused(text):
                _say.once("refused", f"the agent refuses {self._file}: {text}; asking again every 10 s")
                self._disconnect()
                self._connect_at_ns = self._clock() + REFUSED_NS
            case _protocol.CancelOrder():
                self._cancel(line)
            case _protocol.Rerun(id):
                self._reruns.rerun(id)
            case _protocol.Drop(id):
                self._reruns.drop(id)

    def _cancel(self, order: _protocol.CancelOrder) -> None:
        live = self._ledger.live
        task = live[order.task] if order.task < len(live) else None
        record = None if task is None else task._record
        if task is None or record is None or record.turn != order.turn:
            self._send(_protocol.answer("outcome", order.id, "gone"))
            return
        if not task.cancellable or task._cancel is not None:
            why = "it is being cancelled already" if task.cancellable else "it is not cancellable"
            self._send(_protocol.answer("outcome", order.id, "failed", why))
            return
        cancel = Cancel(order.id, self._connection, task, self._ledger.resource_name(order.resource), order.text, self._report)
        task._cancel = cancel
        # A task that ends looks for its cancellation after it has left `live`; so one of the two sees the other.
        if live[order.task] is not task or record.turn != order.turn:
            cancel.ended(False)
        self._actions.submit(cancel)

    def _send_reports(self) -> None:
        while self._reports:
            cancel, word, text = self._reports.popleft()
            heard = self._socket is not None and cancel.connection == self._connection
            if word in ("acknowledge", "reran", "dropped"):
                line = _protocol.answer(word, cancel.id)
            else:
                line = _protocol.answer("outcome", cancel.id, word, text)
                if word == "cancelled" and cancel.task.rerun is not None:
                    if heard:
                        self._reruns.add(cancel)
                    else:
                        self._reruns.now(cancel)
            if heard:
                self._send(line)

    def _send(self, data: bytes) -> None:
        """Sends as much as the agent takes. One that takes nothing for long enough has no use for the rest either."""
        if self._socket is None:
            return
        self._unsent += data
        if not self._unsent:
            return
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._disconnect()
            return
        if len(self._unsent) > UNSENT_MOST:
            self._disconnect()
