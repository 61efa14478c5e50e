"""The ledger in memory, and who has which of its records.

One process writes a ledger, and that process knows what it wrote: counters live in `Account` objects and are only ever stored to the file, never read
back. So an event costs stores, and what anybody else does to the file cannot confuse the application.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _layout as at
from ._layout import Sizes

if TYPE_CHECKING:
    from ._resource import Resource
    from ._task import Task


_pack_task = at.TASK_BODY.pack_into

REFUSED_MOST = 1024
"""So many names of resources that found no record are remembered, to count each once."""


class Account:
    """What one task does with one resource: a record of the ledger, or of nothing at all if there was none left.

    `Task` writes it, in runs of bytecodes without a call, during which CPython does not switch threads. `waiting` and `since` are what the file says of
    them too: since when it waits (0 if it does not) and since when it has held something.
    """

    __slots__ = (
        "exact", "frees", "frees_at", "gets", "gets_at", "hold_at", "hold_ns", "holding_at", "index", "owner_at", "resource", "since", "slows",
        "slows_at", "wait_at", "wait_ns", "waiting", "waiting_at", "words",
    )  # fmt: skip

    def __init__(self, words: memoryview, exact: Callable[[], int], position: int, index: int, resource: int) -> None:
        self.words = words
        self.exact = exact
        self.index = index
        self.resource = resource
        self.owner_at = position
        self.gets_at = position + 1
        self.frees_at = position + 2
        self.slows_at = position + 3
        self.wait_at = position + 4
        self.hold_at = position + 5
        self.waiting_at = position + 6
        self.holding_at = position + 7
        self.gets = self.frees = self.slows = self.wait_ns = self.hold_ns = self.waiting = self.since = 0


class Record:
    """The record of a task: where it is, and its turn, which outlives the tasks that have it."""

    __slots__ = ("byte", "done_at", "index", "total_at", "turn", "turn_at")

    def __init__(self, index: int, byte: int) -> None:
        self.index = index
        self.byte = byte
        self.turn_at = byte // 8
        self.done_at = self.turn_at + 3
        self.total_at = self.turn_at + 4
        self.turn = 0


def _nowhere() -> memoryview:
    """Words that look like the head of a ledger in calm, followed by one account that nobody reads."""
    words = memoryview(bytearray(8 * (at.CLOCK_AT + 1 + 8))).cast("Q")
    words[at.CLOCK_AT] = 1
    return words


NOWHERE = _nowhere()


def unaccounted() -> Account:
    """An account for who found none free: writing it costs what a real one costs, so that a full ledger makes nobody slower."""
    return Account(NOWHERE, lambda: 1, at.CLOCK_AT + 1, -1, 0)


class Ledger:
    """A ledger on some memory of the right length that is all zero.

    Tasks begin and end, accounts are taken and given back, from any thread. `close` makes the memory inaccessible to everything that was handed out; whoever
    still writes hits a released view, which `Task` takes as "no longer accounted".
    """

    def __init__(self, memory: Any, sizes: Sizes, exact: Callable[[], int]) -> None:
        """`memory` is a writable buffer of `sizes.file_bytes`; `exact` reads CLOCK_MONOTONIC in nanoseconds."""
        self.sizes = sizes
        self.exact = exact
        self.closed = False
        self._memory = memory
        self._bytes = memoryview(memory)
        self.words = self._bytes.cast("Q")
        self.live: list[Task | None] = [None] * sizes.tasks
        self._resources: dict[bytes, int] = {}
        self._refused: set[bytes] = set()
        self._free_tasks: list[Record] = []
        self._free_accounts: list[list[Account]] = [[] for _ in range(sizes.resources)]
        self._lane_at = [(sizes.lanes_byte + at.LANE_BYTES * lane) // 8 for lane in range(sizes.lanes)]
        self._tasks_used = 0
        self._accounts_used = 0
        # For what is done once a record. Reentrant, since a signal's handler may come in between and begin a task.
        self._fresh = threading.RLock()

    def write_header(self, app: str, pid: int, pid_started: int, created_ns: int) -> None:
        """Everything that a reader checks first; the magic, which says that all is in place, last."""
        s = self.sizes
        header = at.HEADER.pack(bytes(8), at.VERSION, s.resources, s.lanes, s.tasks, s.accounts, pid, pid_started, created_ns, at.fitted(app, at.APP_LENGTH))
        self._bytes[: len(header)] = header
        self.words[0] = int.from_bytes(at.MAGIC, "little")

    def beat(self, now_ns: int) -> None:
        """A sign of life."""
        self.words[at.APP_BEAT_AT] = now_ns

    def tick_for_agent(self, now_ns: int, silent_ns: int) -> bool:
        """If the agent has not beaten for `silent_ns`, ticks the clock in its place and takes back what it asked for; says whether it did.

        A beat in the future was written by no agent of this machine, and counts as silence: else the clock would stand still for as long.
        """
        words = self.words
        beat = words[at.AGENT_BEAT_AT]
        if now_ns - silent_ns <= beat <= now_ns + silent_ns:
            return False
        words[at.CLOCK_AT] = now_ns
        words[at.FLAGS_AT] = 0
        return True

    def resource_index(self, resource: Resource) -> int | None:
        """The record of a resource, made if this is the first time that it is used; None if there is none left."""
        index = self._resources.get(resource.stored_name)
        if index is not None:
            return index
        with self._fresh:
            index = self._resources.get(resource.stored_name)
            if index is not None:
                return index
            index = len(self._resources)
            if index >= self.sizes.resources:
                if resource.stored_name not in self._refused:
                    self.words[at.RESOURCES_REFUSED_AT] += 1
                    if len(self._refused) < REFUSED_MOST:
                        self._refused.add(resource.stored_name)
                return None
            byte = at.HEADER_BYTES + at.RESOURCE_BYTES * index
            at.RESOURCE_BODY.pack_into(self._bytes, byte + 8, resource.capacity, resource.stored_name)
            self.words[byte // 8] = int(resource.kind)
            self._resources[resource.stored_name] = index
            return index

    def resource_name(self, index: int) -> str:
        """The name of the resource in record `index`, or `?`."""
        names = list(self._resources)
        return names[index].decode() if 0 <= index < len(names) else "?"

    def begin(self, task: Task, key: int, started_ns: int, deadline_ns: int, flags: int, tid: int, label: bytes) -> Record | None:
        """Takes a record for a task that begins; None if there is none left."""
        try:
            record = self._free_tasks.pop()
        except IndexError:
            fresh = self._fresh_record()
            if fresh is None:
                return None
            record = fresh
        _pack_task(self._bytes, record.byte + 8, key, started_ns, 0, 0, deadline_ns, flags, tid, label)
        record.turn += 1
        self.live[record.index] = task
        self.words[record.turn_at] = record.turn
        return record

    def _fresh_record(self) -> Record | None:
        with self._fresh:
            index = self._tasks_used
            if index >= self.sizes.tasks:
                self.words[at.TASKS_REFUSED_AT] += 1
                return None
            self._tasks_used = index + 1
            self._store_used()
            return Record(index, self.sizes.tasks_byte + at.TASK_BYTES * index)

    def end(self, record: Record) -> None:
        """Gives the record of a task back. Its accounts must have been given back before."""
        self.live[record.index] = None
        record.turn += 1
        self.words[record.turn_at] = record.turn
        self._free_tasks.append(record)

    def take_account(self, record: Record, resource: Resource) -> Account:
        """An account for a task that uses a resource for the first time; one that nobody reads if there is none left."""
        index = self._resources.get(resource.stored_name)
        if index is None:
            index = self.resource_index(resource)
            if index is None:
                return unaccounted()
        try:
            account = self._free_accounts[index].pop()
        except IndexError:
            fresh = self._fresh_account(index)
            if fresh is None:
                return unaccounted()
            account = fresh
        self.words[account.owner_at] = (record.turn & 0xFFFF) << 48 | index << 32 | record.index + 1
        return account

    def _fresh_account(self, resource: int) -> Account | None:
        with self._fresh:
            index = self._accounts_used
            if index >= self.sizes.accounts:
                self.words[at.ACCOUNTS_REFUSED_AT] += 1
                return None
            self._accounts_used = index + 1
            self._store_used()
            position = (self.sizes.accounts_byte + at.ACCOUNT_BYTES * index) // 8
            return Account(self.words, self.exact, position, index, resource)

    def give_account(self, account: Account) -> None:
        """Gives an account back that holds nothing and waits for nothing."""
        if account.index >= 0:
            self.words[account.owner_at] = account.resource << 32
            self._free_accounts[account.resource].append(account)

    def _store_used(self) -> None:
        self.words[at.USED_AT] = self._accounts_used << 32 | self._tasks_used

    def count(self, lane: int, latency_ns: int, cancelled: bool) -> None:
        """Adds a request that ended to a lane. Each addition is a run of bytecodes without a call, so none is lost."""
        words = self.words
        position = self._lane_at[lane]
        if cancelled:
            words[position + 1] = words[position + 1] + 1
        else:
            counter = position + 8 + at.bin_of(latency_ns)
            words[counter] = words[counter] + 1
        words[position + 2] = words[position + 2] + latency_ns
        words[position] = words[position] + 1

    def close(self) -> None:
        """Ends all access to the memory. Nothing is written from here on, by anybody."""
        self.closed = True
        self.words.release()
        self._bytes.release()
        if isinstance(self._memory, mmap.mmap):
            self._memory.close()


assert struct.calcsize("<Q") == 8 and memoryview(bytes(8)).cast("Q").itemsize == 8, "the ledger's words are 64 bits"
