"""Which machine, and which state of the sources."""

import os
import platform
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def describe():
    """The machine as results pages name it."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    memory_kib = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    flags = re.search(r"^flags\s*:\s*(.*)", cpuinfo, re.M)
    family, model = (re.search(rf"^{key}\s*:\s*(\d+)", cpuinfo, re.M) for key in ("cpu family", "model"))
    return {
        "cpu": re.search(r"model name\s*:\s*(.*)", cpuinfo)[1],
        "cpu_family_model": f"{family[1]}/{model[1]}",
        "cpus": os.cpu_count(),
        "virtual": bool(flags and "hypervisor" in flags[1].split()),
        "memory_gib": round(memory_kib / 2**20, 1),
        "kernel": platform.release(),
        "os": platform.freedesktop_os_release()["PRETTY_NAME"],
    }


def commit():
    """The commit of the sources, and whether files differ from it; results alone make no difference."""
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    paths = [".", ":!benches/results", ":!benches/RESULTS.md"]
    changed = subprocess.check_output(["git", "status", "--porcelain", "--", *paths], cwd=ROOT, text=True)
    return {"commit": head, "dirty": bool(changed.strip())}
