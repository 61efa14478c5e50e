"""Plimsoll for Python: keep account of what tasks hold and wait for, and let the agent cancel the one that holds everybody up.

import plimsoll

table = plimsoll.Lock("table")

with plimsoll.task("GET /report", key=7) as task:
    with table:
        for row in rows:
            task.check()
"""

from ._app import App, close, open, resource, task
from ._layout import Kind
from ._resource import Resource
from ._task import Cancelled, Task, current
from .locks import Lock, RLock, Semaphore
from .pool import Pool
from .rwlock import RWLock

LOCK, MEMORY, QUEUE, CPU, IO = Kind
__all__ = [
    "CPU", "IO", "LOCK", "MEMORY", "QUEUE", "App", "Cancelled", "Kind", "Lock", "Pool", "RLock", "RWLock", "Resource", "Semaphore", "Task", "close",
    "current", "open", "resource", "task",
]  # fmt: skip
