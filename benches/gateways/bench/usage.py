"""CPU time and memory of processes, from /proc."""

import os
import re
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Bystanders:
    """CPU time that the machine spent on anything that this script did not start, as points of one CPU."""

    def __enter__(self):
        self.start = time.monotonic(), _busy_s(), _own_s()
        return self

    def __exit__(self, *_):
        at, busy, own = self.start
        elapsed = time.monotonic() - at
        self.cpu_pct = round(max(0.0, (_busy_s() - busy) - (_own_s() - own)) / elapsed * 100, 1)


def cpu_s(root):
    """CPU seconds of a process, of its living descendants and of those that it has waited for."""
    stats = _stats()
    children = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[1]), []).append(pid)
    total, pending = 0, [root]
    while pending:
        pid = pending.pop()
        if pid in stats:
            total += sum(map(int, stats[pid][11:15]))
            pending += children.get(pid, [])
    return total / TICKS_PER_S


def descendants(root):
    """The process and its living descendants."""
    parents = {pid: int(fields[1]) for pid, fields in _stats().items()}
    family = {root}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return family


def memory_mib(root):
    """Memory of a process and its descendants; pages that several of them share count once."""
    total_kib = 0
    for pid in descendants(root):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total_kib += int(re.search(r"^Pss:\s+(\d+)", rollup, re.M)[1])
        except (ProcessLookupError, FileNotFoundError):
            pass
    return round(total_kib / 1024, 1)


def _stats():
    """Fields of /proc/PID/stat from the state on, by pid."""
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except (ProcessLookupError, FileNotFoundError):
                pass
    return found


def _busy_s():
    """CPU seconds of all CPUs that were neither idle nor waiting; `steal` counts as busy, guests are in user."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def _own_s():
    return cpu_s(os.getpid())
