"""The vectors that all SDKs share: scripts make the ledgers byte by byte, ledgers make the dumps, and lines mean what they should."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from plimsoll import _protocol

from .reader import NoLedgerError, dump
from .scripts import Player

VECTORS = Path(os.environ.get("PLIMSOLL_VECTORS") or Path(__file__).parents[2] / "vectors")
SCRIPTS = sorted(VECTORS.glob("*.script"))
DUMPS = sorted(VECTORS.glob("*.dump"))
ERRORS = sorted(VECTORS.glob("*.error"))


def _control() -> list[tuple[str, str, str]]:
    """Who sends what, and what that says."""
    found = []
    lines = (VECTORS / "control.txt").read_text().splitlines() if (VECTORS / "control.txt").exists() else []
    for line, meaning in itertools.pairwise(lines):
        who, _, sent = line.partition(" ")
        if who in ("agent", "sdk") and meaning.startswith("= "):
            found.append((who, sent, meaning[2:]))
    return found


def test_the_vectors_are_there() -> None:
    assert SCRIPTS and DUMPS and ERRORS and _control(), f"no vectors in {VECTORS}; PLIMSOLL_VECTORS names another directory"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script: Path) -> None:
    ledger = Player().play(script.read_text())
    expected = script.with_suffix(".ledger").read_bytes()
    assert dump(ledger) == dump(expected)
    assert ledger == expected


@pytest.mark.parametrize("path", DUMPS, ids=lambda path: path.stem)
def test_dump(path: Path) -> None:
    assert "\n".join(dump(path.with_suffix(".ledger").read_bytes())) + "\n" == path.read_text()


@pytest.mark.parametrize("path", ERRORS, ids=lambda path: path.stem)
def test_no_ledger(path: Path) -> None:
    with pytest.raises(NoLedgerError) as refused:
        dump(path.with_suffix(".ledger").read_bytes())
    assert str(refused.value) == path.read_text().strip()


def _meaning(line: _protocol.Line | None) -> str:
    match line:
        case None:
            return "ignored"
        case _protocol.Welcome(mode):
            return f"welcome version=1 mode={mode}"
        case _protocol.Refused(text):
            return f"refused text={text}"
        case _protocol.CancelOrder(id, task, turn, resource, text):
            return f"cancel id={id} task={task} turn={turn} resource={resource} text={text}"
        case _protocol.Rerun(id):
            return f"rerun id={id}"
        case _protocol.Drop(id):
            return f"drop id={id}"


@pytest.mark.parametrize(("sent", "meaning"), [(sent, meaning) for who, sent, meaning in _control() if who == "agent"])
def test_line_of_the_agent(sent: str, meaning: str) -> None:
    assert _meaning(_protocol.parse(sent)) == meaning


@pytest.mark.parametrize(("sent", "meaning"), [(s, m) for who, s, m in _control() if who == "sdk" and m != "ignored"])
def test_line_of_the_sdk(sent: str, meaning: str) -> None:
    word, _, rest = meaning.partition(" ")
    named = dict(part.split("=", 1) for part in rest.split(" text=")[0].split(" "))
    if word == "hello":
        written = _protocol.hello(named["file"])
    elif word == "outcome":
        written = _protocol.answer(word, int(named["id"]), named["word"], rest.split(" text=")[1])
    else:
        written = _protocol.answer(word, int(named["id"]))
    assert written == sent.encode() + b"\n"
