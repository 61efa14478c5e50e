"""Where everything in a ledger is: the tables of docs/ledger.md as numbers, and the few rules that follow from them.

Two units are used. `*_BYTES` and `*_BYTE` count bytes; a name that ends in `_AT` is an index into the ledger seen as 64-bit words, because that
is how it is written: `words[CLOCK_AT] = now`.
"""

from __future__ import annotations

import enum
import re
import struct
from dataclasses import dataclass
from functools import lru_cache

MAGIC = b"PLIMSOLL"
VERSION = 1

HEADER_BYTES = 4096
RESOURCE_BYTES = 64
LANE_BYTES = 2048
TASK_BYTES = 128
ACCOUNT_BYTES = 64

PID_BYTE = 0x20
APP_BYTE = 0x40

# The application's line.
APP_BEAT_AT = 0x80 // 8
TASKS_REFUSED_AT = 0x88 // 8
ACCOUNTS_REFUSED_AT = 0x90 // 8
RESOURCES_REFUSED_AT = 0x98 // 8
USED_AT = 0xA0 // 8  # two u32: tasks_used, then accounts_used

# The agent's line, and the clock's.
AGENT_BEAT_AT = 0xC0 // 8
FLAGS_AT = 0xC8 // 8
AGENT_PID_AT = 0xD0 // 8
CLOCK_AT = 0x100 // 8

EXACT = 1

# The flags of a task.
CANCELLABLE = 1
BACKGROUND = 2
RERUNNABLE = 4
RERUN = 8

APP_LENGTH = 64
NAME_LENGTH = 48
LABEL_LENGTH = 64
BINS = 248

HEADER = struct.Struct("<8sIIIII4xQQQ8x64s")
RESOURCE_BODY = struct.Struct("<Q48s")  # from +8 on: capacity, name
TASK_BODY = struct.Struct("<QQQQQII8x64s")  # from +8 on: key, started_ns, done, total, deadline_ns, flags, tid, label

WORD = (1 << 64) - 1
APP_NAME = re.compile(r"[a-zA-Z0-9_-]{1,32}\Z")


class Kind(enum.IntEnum):
    """What sort of thing a resource is; decides how contention for it is measured."""

    LOCK = 1
    MEMORY = 2
    QUEUE = 3
    CPU = 4
    IO = 5


@dataclass(frozen=True)
class Sizes:
    """How many records of each kind a ledger has. An untouched record costs a file's space, 64 to 2,048 bytes, and no time."""

    resources: int = 64
    lanes: int = 8
    tasks: int = 4096
    accounts: int = 16384

    def __post_init__(self) -> None:
        for name, most in (("resources", 256), ("lanes", 64), ("tasks", 131072), ("accounts", 1048576)):
            value = getattr(self, name)
            if not isinstance(value, int) or not 1 <= value <= most:
                raise ValueError(f"{name} must be a number from 1 to {most}, not {value!r}")

    @property
    def lanes_byte(self) -> int:
        """Where the lanes begin."""
        return HEADER_BYTES + RESOURCE_BYTES * self.resources

    @property
    def tasks_byte(self) -> int:
        """Where the tasks begin."""
        return self.lanes_byte + LANE_BYTES * self.lanes

    @property
    def accounts_byte(self) -> int:
        """Where the accounts begin."""
        return self.tasks_byte + TASK_BYTES * self.tasks

    @property
    def file_bytes(self) -> int:
        """How long the whole file is."""
        return self.accounts_byte + ACCOUNT_BYTES * self.accounts


def bin_of(latency_ns: int) -> int:
    """The bin of a latency: no wider than an eighth of it, from 1 us to two hours."""
    v = latency_ns >> 10
    if v < 8:
        return v
    shift = v.bit_length() - 4
    found = (shift << 3) + (v >> shift)
    return found if found < BINS else BINS - 1


@lru_cache(maxsize=1024)
def fitted(text: str, length: int) -> bytes:
    """The text as UTF-8, cut at the end of a character to at most `length` bytes. What cannot be encoded becomes `?`."""
    return text.encode("utf-8", "replace")[:length].decode("utf-8", "ignore").encode()
