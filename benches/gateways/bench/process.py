"""Starts what a benchmark needs, waits until it answers, and ends it."""

import http.client
import os
import signal
import socket
import subprocess
import time

from . import usage

READY_S = 15


class Process:
    """A program on given CPUs, with its output in a log; ended with the `with` block, descendants included."""

    def __init__(self, argv, log, cpus):
        self.argv, self.log, self.cpus = [str(arg) for arg in argv], log, cpus

    def __enter__(self):
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                ["taskset", "-c", ",".join(map(str, self.cpus)), *self.argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        return self

    def __exit__(self, *_):
        family = usage.descendants(self.child.pid)
        self.child.terminate()
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            pass
        for pid in family:
            if _group(pid) == self.child.pid:
                os.kill(pid, signal.SIGKILL)
        self.child.wait()

    def answers(self, port, path="/healthz"):
        """Waits until a GET of `path` is answered with 200."""
        deadline = time.monotonic() + READY_S
        while self.child.poll() is None and time.monotonic() < deadline:
            try:
                if get(port, path)[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.05)
        raise SystemExit(f"{' '.join(self.argv)} is not ready:\n{self.tail()}")

    def tail(self):
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:]

    def cpu_s(self):
        """CPU seconds so far, descendants included."""
        return usage.cpu_s(self.child.pid)

    def memory_mib(self):
        """Memory now, descendants included."""
        return usage.memory_mib(self.child.pid)


def get(port, path, method="GET", timeout_s=5):
    """Status and body of one request to a loopback port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def free_ports(count):
    """Loopback ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def _group(pid):
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
