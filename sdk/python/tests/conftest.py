"""What the tests have in common: a directory for ledgers, an open application, a fake agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import plimsoll
from plimsoll import _app, _say

from .agent import Agent
from .reader import dump


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where ledgers are, for one test."""
    path = tmp_path / "ledgers"
    monkeypatch.setenv("PLIMSOLL_DIR", str(path))
    monkeypatch.setenv("PLIMSOLL_APP", "test")
    _say.forget()
    yield path
    plimsoll.close()


@pytest.fixture
def app() -> plimsoll.App:
    """An open application."""
    opened = _app._app or plimsoll.open("test")
    assert opened.path is not None
    return opened


@pytest.fixture
def look(app: plimsoll.App) -> Callable[[str], list[str]]:
    """Reads the open ledger: the lines of its dump that begin with a word."""

    def read(word: str) -> list[str]:
        opened = _app._app
        assert opened is not None and opened.path is not None
        return [line for line in dump(Path(opened.path).read_bytes()) if line.startswith(word + " ")]

    return read


@pytest.fixture
def agent(directory: Path) -> Iterator[Agent]:
    """An agent, and an open application that is about to find it."""
    directory.mkdir(0o700)
    found = Agent(directory)
    plimsoll.open("test")
    yield found
    found.close()
