"""The lines that an agent and an SDK send each other. What is no line of the protocol is None, never an error."""

from __future__ import annotations

from dataclasses import dataclass

LINE_BYTES = 1024
TASKS_MOST = 131072
RESOURCES_MOST = 256


@dataclass(frozen=True)
class Welcome:
    """The agent has accepted the ledger."""

    mode: str


@dataclass(frozen=True)
class Refused:
    """The agent does not want the ledger."""

    text: str


@dataclass(frozen=True)
class CancelOrder:
    """Cancel the task in record `task` if its turn is still `turn`."""

    id: int
    task: int
    turn: int
    resource: int
    text: str


@dataclass(frozen=True)
class Rerun:
    """There is room again for what `id` cancelled."""

    id: int


@dataclass(frozen=True)
class Drop:
    """What `id` cancelled is not to run again."""

    id: int


Line = Welcome | Refused | CancelOrder | Rerun | Drop


MODES = ("off", "shadow", "enforce")


def _number(word: str, below: int = 1 << 64) -> int:
    """A decimal below `below`; raises ValueError. `int` alone would take signs, spaces and underscores."""
    if not (word.isascii() and word.isdigit() and len(word) <= 20):
        raise ValueError(word)
    value = int(word)
    if value >= below:
        raise ValueError(word)
    return value


def parse(line: str) -> Line | None:
    """What a line of the agent's says; None if it says nothing that this version knows."""
    word, _, rest = line.partition(" ")
    words = rest.split(" ")
    try:
        if word == "welcome":
            _number(words[0])
            return Welcome(words[1]) if words[1] in MODES else None
        if word == "refused":
            return Refused(rest)
        if word == "cancel":
            numbers = (_number(words[0]), _number(words[1], TASKS_MOST), _number(words[2]), _number(words[3], RESOURCES_MOST))
            return CancelOrder(*numbers, text=" ".join(words[4:]))
        if word == "rerun":
            return Rerun(_number(words[0]))
        if word == "drop":
            return Drop(_number(words[0]))
    except (ValueError, IndexError):
        pass
    return None


def hello(file: str) -> bytes:
    """Who we are: the version, and the name of our ledger."""
    return f"hello 1 {file}\n".encode()


def answer(word: str, id: int, *rest: str) -> bytes:
    """`acknowledge`, `outcome`, `reran` or `dropped`. A text that is too long for a line is cut, and line breaks in it become spaces."""
    text = " ".join([word, str(id), *(r for r in rest if r)])
    text = " ".join(text.splitlines())
    return text.encode("utf-8", "replace")[: LINE_BYTES - 1].decode("utf-8", "ignore").encode() + b"\n"


def header(resource: str | None) -> str:
    """The name of a resource as an HTTP header can carry it: printable ASCII."""
    return "".join(c if " " <= c <= "~" else "?" for c in resource or "?")
