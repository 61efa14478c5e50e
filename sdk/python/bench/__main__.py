"""What the SDK costs, in nanoseconds: `python bench` prints one JSON line. Medians; the best repetition with `--best`, for a machine that is busy.

Times are of the thread's processor, so that who else runs counts only for what he does to caches and the like.

`calm_ns` and `exact_ns` are a `task.get` and a `task.free`, with coarse and with exact stamps; `task_ns` is a task's beginning and end. For scale, `lock_ns` is
`with threading.Lock()`, and `tracked_ns` is `with plimsoll.Lock()` in a task.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import repeat

import plimsoll
from plimsoll import _layout as at

REPETITIONS = 51
LOOPS = 4_000


def measure(loop: Callable[[], None], prepare: Callable[[], None] = lambda: None) -> float:
    """Nanoseconds a loop. Repetitions are short, so that whatever else runs spoils few of them."""
    times = []
    for _ in range(REPETITIONS):
        prepare()
        began = time.thread_time_ns()
        loop()
        times.append((time.thread_time_ns() - began) / LOOPS)
    return min(times) if "--best" in sys.argv else statistics.median(times)


def main() -> None:
    """Measures everything."""
    table = plimsoll.resource("LOCK", "table", 1)
    tracked = plimsoll.Lock("tracked")
    plain = threading.Lock()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory, plimsoll.open("bench", directory=directory) as app:
        ledger = app.ledger
        assert ledger is not None

        def pairs() -> None:
            for _ in repeat(None, LOOPS):
                task.get(table)
                task.free(table)

        def tasks() -> None:
            for _ in repeat(None, LOOPS):
                with plimsoll.task("GET /item", 7):
                    pass

        def locks() -> None:
            for _ in repeat(None, LOOPS):
                with plain:
                    pass

        def tracked_locks() -> None:
            for _ in repeat(None, LOOPS):
                with tracked:
                    pass

        def exact() -> None:
            ledger.words[at.AGENT_BEAT_AT] = time.monotonic_ns()
            ledger.words[at.FLAGS_AT] = at.EXACT

        def calm() -> None:
            ledger.words[at.AGENT_BEAT_AT] = time.monotonic_ns()
            ledger.words[at.FLAGS_AT] = 0

        with plimsoll.task("bench") as task:
            result = {
                "calm_ns": measure(pairs, calm),
                "exact_ns": measure(pairs, exact),
                "task_ns": measure(tasks, calm),
                "lock_ns": measure(locks),
                "tracked_ns": measure(tracked_locks, calm),
            }
    rounded = {name: round(value) for name, value in result.items()}
    print(json.dumps({"lang": "python", **rounded, "version": sys.version.split()[0]}))


main()
