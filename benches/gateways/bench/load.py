"""Sends load: open loop by `plimsoll load`, closed loop by wrk."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import tools

# Load comes from this CPU.
CLIENT_CPU = 1


@dataclass(frozen=True)
class OpenLoop:
    """One call of `plimsoll load`. Without a mix it asks for `path`."""

    port: int
    rate: float | str
    duration_s: float
    mix: Path | None = None
    path: str = ""
    seed: int = 1
    http: int = 1
    connections: int | None = None
    log: Path | None = None

    def argv(self):
        """The command, on the CPU of the clients."""
        argv = [tools.path("plimsoll"), "load", "--json", "--target", f"http://127.0.0.1:{self.port}{self.path}"]
        rate = self.rate if isinstance(self.rate, str) else f"{self.rate:.3f}"
        argv += ["--rate", rate, "--duration", f"{self.duration_s * 1000:.0f}ms", "--seed", self.seed]
        argv += ["--http", self.http, "--pin", CLIENT_CPU, "--timeout", "10s"]
        argv += ["--mix", self.mix] if self.mix else []
        argv += ["--connections", self.connections] if self.connections else []
        argv += ["--log", self.log] if self.log else []
        return [str(arg) for arg in argv]

    def start(self):
        """Starts it; `report` waits for what it found."""
        return subprocess.Popen(self.argv(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def run(self):
        """Its report, as its JSON has it."""
        return report(self.start())


def report(started):
    """What a started `plimsoll load` found."""
    out, _ = started.communicate()
    if started.returncode != 0:
        raise SystemExit(f"{' '.join(started.args)} failed")
    return json.loads(out)


def closed_loop(port, path, connections, duration_s):
    """As fast as the answers come, over this many connections: answers a second, and those that were refused."""
    argv = ["taskset", "-c", CLIENT_CPU, tools.path("wrk"), "-t1", f"-c{connections}", f"-d{duration_s}s"]
    text = subprocess.check_output([str(arg) for arg in [*argv, f"http://127.0.0.1:{port}{path}"]], text=True)
    answers, seconds = re.search(r"(\d+) requests in ([\d.]+)s", text).groups()
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    socket_errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    return {
        "answers": int(answers),
        "seconds": float(seconds),
        "refused": int(refused[1]) if refused else 0,
        "socket_errors": sum(map(int, socket_errors.groups())) if socket_errors else 0,
    }


def write_mix(file, requests):
    """A mix file: {name: {"path", "share", "deadline_ms"}}."""
    tables = []
    for name, request in requests.items():
        tables.append(
            f'[request.{name}]\npath = "{request["path"]}"\nshare = {request["share"]}\n'
            f'deadline = "{request["deadline_ms"]}ms"\n'
        )
    file.write_text("\n".join(tables))
    return file
