"""A fake agent: listens where the real one does, and says what a test tells it to."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 120.0
"""How long anything may take before a test fails. Nothing that is tested depends on it."""


def until(condition: Callable[[], object], what: str) -> None:
    """Waits for a condition."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not come about: {what}")
        time.sleep(0.002)


class Agent:
    """Listens on `agent.sock`. `accept` takes the next connection, and hears its `hello`."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "agent.sock"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._listener.settimeout(PATIENCE_S)
        self._connection: socket.socket | None = None
        self._received = b""

    def accept(self, answer: str | None = "welcome 1 enforce") -> str:
        """The `hello` of the next SDK that connects."""
        self.hang_up()
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(PATIENCE_S)
        self._received = b""
        hello = self.hear()
        if answer is not None:
            self.say(answer)
        return hello

    def say(self, line: str) -> None:
        """Sends a line."""
        assert self._connection is not None
        self._connection.sendall(line.encode() + b"\n")

    def hear(self) -> str:
        """The next line, or `` if the SDK has gone."""
        assert self._connection is not None
        while b"\n" not in self._received:
            data = self._connection.recv(4096)
            if not data:
                return ""
            self._received += data
        line, self._received = self._received.split(b"\n", 1)
        return line.decode()

    def hang_up(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def die(self) -> None:
        """Ends as one that is killed: the socket's file stays."""
        self.hang_up()
        self._listener.close()

    def close(self) -> None:
        """Ends in order."""
        self.die()
        self._path.unlink(missing_ok=True)
