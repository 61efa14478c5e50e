"""A reader of ledgers, written from docs/ledger.md and independent of the package that it checks."""

from __future__ import annotations

import re
import struct
import unicodedata

KINDS = {1: "LOCK", 2: "MEMORY", 3: "QUEUE", 4: "CPU", 5: "IO"}
COUNTS = (("resources", 256), ("lanes", 64), ("tasks", 131072), ("accounts", 1048576))


class NoLedgerError(Exception):
    """Why these bytes are no ledger, in one word."""


def text(data: bytes) -> str:
    """A text as a dump shows it."""
    shown = data.split(b"\0", 1)[0].decode("utf-8", "replace")
    return "".join("\ufffd" if unicodedata.category(c) == "Cc" else c for c in shown)


def u64(data: bytes, at: int, n: int = 1) -> tuple[int, ...]:
    """`n` words from byte `at` on."""
    return struct.unpack_from(f"<{n}Q", data, at)


def u32(data: bytes, at: int) -> int:
    """A half word."""
    return int(struct.unpack_from("<I", data, at)[0])


def sizes(data: bytes) -> tuple[int, int, int, int]:
    """The four counts; raises NoLedgerError."""
    if data[:8] != b"PLIMSOLL":
        raise NoLedgerError("magic")
    if len(data) < 4096:
        raise NoLedgerError("length")
    if u32(data, 8) != 1:
        raise NoLedgerError("version")
    resources, lanes, tasks, accounts = counts = struct.unpack_from("<4I", data, 12)
    if not all(1 <= count <= most for count, (_, most) in zip(counts, COUNTS, strict=True)):
        raise NoLedgerError("counts")
    if len(data) != 4096 + 64 * resources + 2048 * lanes + 128 * tasks + 64 * accounts:
        raise NoLedgerError("length")
    if not re.fullmatch(rb"[a-zA-Z0-9_-]{1,32}", data[0x40:0x80].rstrip(b"\0")):
        raise NoLedgerError("app")
    return resources, lanes, tasks, accounts


def with_text(line: str, data: bytes) -> str:
    """A line with a text behind it, if that is not empty."""
    shown = text(data)
    return f"{line} {shown}" if shown else line


def dump(data: bytes) -> list[str]:
    """The ledger as text, a line a record."""
    resources, lanes, tasks, accounts = sizes(data)
    lanes_at = 4096 + 64 * resources
    tasks_at = lanes_at + 2048 * lanes
    accounts_at = tasks_at + 128 * tasks
    pid, pid_started, created = u64(data, 0x20, 3)
    beat, tasks_refused, accounts_refused, resources_refused = u64(data, 0x80, 4)
    tasks_used, accounts_used = min(u32(data, 0xA0), tasks), min(u32(data, 0xA4), accounts)
    agent_beat, flags, agent_pid = u64(data, 0xC0, 3)
    lines = [
        f"ledger {text(data[0x40:0x80])} version=1 resources={resources} lanes={lanes} tasks={tasks} accounts={accounts}"
        f" pid={pid} pid_started={pid_started} created_ns={created}",
        f"application beat_ns={beat} tasks_refused={tasks_refused} accounts_refused={accounts_refused}"
        f" resources_refused={resources_refused} tasks_used={tasks_used} accounts_used={accounts_used}",
        f"agent beat_ns={agent_beat} exact={flags & 1} pid={agent_pid}",
        f"clock ns={u64(data, 0x100)[0]}",
    ]
    for i in range(resources):
        at = 4096 + 64 * i
        if (kind := u32(data, at)) in KINDS:
            lines.append(with_text(f"resource {i} {KINDS[kind]} capacity={u64(data, at + 8)[0]}", data[at + 16 : at + 64]))
    for i in range(lanes):
        completed, cancelled, total = u64(data, lanes_at + 2048 * i, 3)
        if completed:
            bins = ",".join(f"{b}:{n}" for b, n in enumerate(u64(data, lanes_at + 2048 * i + 64, 248)) if n)
            lines.append(f"lane {i} completed={completed} cancelled={cancelled} sum_ns={total} bins={bins}")
    turns = [u64(data, tasks_at + 128 * i)[0] for i in range(tasks)]
    for i in range(tasks_used):
        at = tasks_at + 128 * i
        key, started, done, total, deadline = u64(data, at + 8, 5)
        line = f"task {i} turn={turns[i]} key={key} started_ns={started} done={done} total={total} deadline_ns={deadline}"
        lines.append(with_text(f"{line} flags={u32(data, at + 48)} tid={u32(data, at + 52)}", data[at + 64 : at + 128]))
    for i in range(accounts_used):
        owner, gets, frees, slows, wait, hold, waiting, holding = u64(data, accounts_at + 64 * i, 8)
        task, resource, turn = owner & 0xFFFFFFFF, owner >> 32 & 0xFFFF, owner >> 48
        whose = "task=- turn=0"
        if 1 <= task <= tasks and resource < resources and turns[task - 1] % 2 and turns[task - 1] & 0xFFFF == turn:
            whose = f"task={task - 1} turn={turn}"
        lines.append(
            f"account {i} {whose} resource={resource} gets={gets} frees={frees} slows={slows} wait_ns={wait} hold_ns={hold}"
            f" waiting_since_ns={waiting} holding_since_ns={holding}"
        )
    return lines


def fields(line: str) -> dict[str, str]:
    """The `name=value` words of a line of a dump."""
    return dict(word.split("=", 1) for word in line.split(" ") if "=" in word)
