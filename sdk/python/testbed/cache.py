"""A cache of pages that one scan can ruin for everybody: least recently used out, and a miss costs a trip to the disk."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict

import plimsoll


class Cache:
    """At most `capacity` pages. A page counts for the task that brought it in or uses it, until it is let go of, evicted, or the task ends.

    Without a resource nobody's task is told.
    """

    def __init__(self, resource: plimsoll.Resource | None, capacity: int, miss_s: float) -> None:
        self.resource = resource
        self._capacity = capacity
        self._miss_s = miss_s
        self._pages: OrderedDict[int, plimsoll.Task | None] = OrderedDict()
        self._mutex = threading.Lock()

    def read(self, task: plimsoll.Task | None, page: int) -> None:
        """Uses a page for a moment, and leaves it in the cache as nobody's."""
        with self._mutex:
            hit = page in self._pages
            if hit:
                self._pages.move_to_end(page)
        if task is not None and self.resource is not None:
            task.get(self.resource)
        if not hit:
            began = time.monotonic_ns()
            time.sleep(self._miss_s)
            self._insert(task, [page], None, began)
        if task is not None and self.resource is not None:
            task.free(self.resource)

    def scan(self, task: plimsoll.Task | None, first: int, n: int) -> None:
        """Brings `n` pages in, in one trip, and holds them."""
        began = time.monotonic_ns()
        time.sleep(self._miss_s)
        if task is not None and self.resource is not None:
            task.get(self.resource, n)
        self._insert(task, range(first, first + n), task, began)

    def _insert(self, task: plimsoll.Task | None, pages: list[int] | range, owner: plimsoll.Task | None, began_ns: int) -> None:
        evicted: list[plimsoll.Task | None] = []
        with self._mutex:
            for page in pages:
                self._pages[page] = owner
                self._pages.move_to_end(page)
            while len(self._pages) > self._capacity:
                evicted.append(self._pages.popitem(last=False)[1])
        if task is None or self.resource is None:
            return
        if evicted:
            task.slow(self.resource, len(evicted), time.monotonic_ns() - began_ns)
        for loser in evicted:
            if loser is not None:
                loser.free(self.resource)
