"""Starts a private Apache httpd with the module, loads it, and kills what can be killed."""

import json
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

MODULES = "/usr/lib/apache2/modules"
PROGRAM = "/usr/sbin/apache2"
CLIENTS = 48
# What serves them: processes, or threads of some.
PROCESSES = {"prefork": CLIENTS, "event": 4}
# What a worker computes: it compresses this at each request, which takes some tens of milliseconds. No module beyond those of every httpd is needed.
PAGE = "".join(f"{n * n * 2654435761 % 2**32:x} " for n in range(60_000)).encode()


def conf(root, module, mpm, bound, port):
    processes = PROCESSES[mpm]
    threads = CLIENTS // processes
    of_threads = f"ThreadsPerChild {threads}\nThreadLimit {threads}\nMaxSpareThreads {CLIENTS}\n" if threads > 1 else f"MaxSpareServers {CLIENTS}\n"
    user = "User www-data\nGroup www-data\n" if os.geteuid() == 0 else ""
    return f"""ServerRoot "{root}"
DefaultRuntimeDir "{root}"
PidFile "{root}/pid"
ErrorLog "{root}/errors"
LogLevel plimsoll:debug
ServerName localhost
Listen 127.0.0.1:{port}
{user}LoadModule mpm_{mpm}_module {MODULES}/mod_mpm_{mpm}.so
LoadModule authz_core_module {MODULES}/mod_authz_core.so
LoadModule deflate_module {MODULES}/mod_deflate.so
LoadModule plimsoll_module {module}
PlimsollMaxSlowdown {bound}
PlimsollStatus "{root}/status.sock"
DocumentRoot "{root}/pages"
SetOutputFilter DEFLATE
DeflateCompressionLevel 9
ServerLimit {processes}
MaxRequestWorkers {CLIENTS}
StartServers {processes}
{of_threads}"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Load:
    """Clients that ask again and again, each for as long as it takes."""

    def __init__(self, port):
        self.port, self.answers, self.failures, self.ends = port, 0, [], False
        self.threads = [threading.Thread(target=self.client) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def client(self):
        while not self.ends:
            try:
                page = urllib.request.Request(f"http://127.0.0.1:{self.port}/page", headers={"accept-encoding": "gzip"})
                with urllib.request.urlopen(page, timeout=60) as answer:
                    assert answer.status == 200 and answer.read(2) == b"\x1f\x8b"
                self.answers += 1
            except (OSError, AssertionError) as error:
                self.failures.append(error)
                time.sleep(0.05)

    def end(self):
        self.ends = True
        for thread in self.threads:
            thread.join()


def eventually(what, is_so, patience=90):
    end = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < end, f"still not: {what}"
        time.sleep(0.1)
    print(f"ok: {what}")


class Status:
    """Who asks what workers do."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")

    def ask(self):
        self.socket.sendall(b"status\n")
        return json.loads(self.lines.readline())

    def is_turned_away(self):
        try:
            self.socket.sendall(b"status\n")
            return not self.lines.readline()
        except OSError:
            return True


def status(path, port, mpm, workers):
    """What workers do is told, also when none of them is free; and nobody can keep it from being told."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    asker = Status(path)
    request = f"GET /page?token=hush HTTP/1.0\r\nx: {'x' * 99}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port)) as odd:
        odd.sendall(request.replace(b"/page", b'/%22"\\%C3%BC%0A'))
        odd.recv(1)
    page = asker.ask()
    assert (page["pool"], page["threaded"]) == ("httpd", mpm != "prefork") and page["accepted conn"] > 0, page
    assert not any("hush" in worker["request uri"] for worker in page["processes"]), page
    print("ok: what workers do is told, and nothing that is anybody's")

    # A question without an end, a client that reads nothing, and too many of them.
    endless, deaf = Status(path), Status(path)
    endless.socket.sendall(b"x" * 1000)
    for _ in range(100):
        try:
            deaf.socket.send(b"status\n", socket.MSG_DONTWAIT)
        except OSError:
            break
    eventually("others are answered beside who never ends or never reads", lambda: asker.ask()["accepted conn"] > 0)
    more = [Status(path) for _ in range(4)]
    assert more[-1].is_turned_away()
    assert asker.ask()["pool"] == "httpd"
    print("ok: there are never too many who ask")
    for other in (endless, deaf, *more):
        other.socket.close()

    stopped = workers()
    for worker in stopped:
        os.kill(worker, signal.SIGSTOP)
    try:
        threads = lambda: (file.read_text() for worker in stopped for file in pathlib.Path(f"/proc/{worker}/task").glob("*/stat"))
        eventually("all workers have been stopped", lambda: all(thread.rsplit(") ", 1)[1].startswith("T") for thread in threads()))
        waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(9)]
        for client in waiting:
            client.sendall(request)
        eventually("who waits for a worker is counted while there is none", lambda: asker.ask()["listen queue"] >= 3)
    finally:
        for worker in stopped:
            os.kill(worker, signal.SIGCONT)
    eventually("and no longer when they are answered", lambda: asker.ask()["listen queue"] == 0)
    for client in waiting:
        assert client.recv(1) == b"H"


def children(pid):
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()]


def main(module, mpm):
    print(f"with {mpm}:")
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        root.chmod(0o755)
        (root / "pages").mkdir()
        (root / "pages/page").write_bytes(PAGE)
        loaded = root / "mod_plimsoll.so"
        loaded.write_bytes(pathlib.Path(module).read_bytes())

        def write(bound, port=1):
            (root / "conf").write_text(conf(root, loaded, mpm, bound, port))

        for wrong in ("0.5", "five", "nan", "1e9"):
            write(wrong)
            checked = subprocess.run([PROGRAM, "-t", "-f", root / "conf"], capture_output=True, text=True)
            assert checked.returncode != 0 and "give a number above 1" in checked.stderr, checked
        print("ok: a bound that is none is an error that says what to write")

        port = free_port()
        write("3", port)
        # In a session of its own: it ends its whole process group.
        server = subprocess.Popen([PROGRAM, "-f", root / "conf", "-D", "FOREGROUND"], start_new_session=True)
        try:
            limits = lambda: [int(n) for n in re.findall(r"(\d+) of \d+ workers may", (root / "errors").read_text())]
            eventually("it is up", lambda: (root / "pid").exists() and len(children(server.pid)) > PROCESSES[mpm])
            # Of the server's children the shepherd is the one that is not a worker: it began first.
            status(root / "status.sock", port, mpm, lambda: sorted(children(server.pid))[1:])
            load = Load(port)
            try:
                asker = Status(root / "status.sock")
                busy = lambda: [worker for worker in asker.ask()["processes"] if worker["state"] == "Running"]
                eventually("who works on what is told", lambda: any(worker["request uri"] == "/page" for worker in busy()))
                eventually("and for how long", lambda: any(worker["request duration"] > 100_000 for worker in busy()))
                assert all((worker["pid"] in children(server.pid)) and worker["requests"] > 0 for worker in busy())
                eventually("few work at once", lambda: limits() and limits()[-1] <= CLIENTS // 4)
                before = load.answers
                eventually("all are answered all the same", lambda: load.answers > before + 2 * CLIENTS)
                assert not load.failures, load.failures

                if mpm == "prefork":
                    # Else those that wait for a turn are nearly all.
                    eventually("those for whom there would be no turn have no request", lambda: len(busy()) <= CLIENTS // 3)
                    before, kept = load.answers, [socket.create_connection(("127.0.0.1", port)) for _ in range(CLIENTS // 3)]
                    for client in kept:
                        client.sendall(b"GET /page HTTP/1.1\r\nhost: x\r\n\r\n")
                    assert all(client.recv(1) == b"H" for client in kept)
                    eventually("who keeps a connection for later keeps nobody else waiting", lambda: load.answers > before + 2 * CLIENTS)
                    for client in kept:
                        client.close()

                shepherd, count = min(children(server.pid)), len(limits())
                os.kill(shepherd, signal.SIGKILL)
                began_again = lambda: "is started again" in (root / "errors").read_text()
                before = load.answers
                eventually("they are answered while there is no shepherd", lambda: load.answers > before + CLIENTS)
                eventually("it is started again", began_again)
                eventually("and goes on", lambda: len(limits()) > count)
                assert not load.failures, load.failures
                eventually("and tells what workers do", lambda: Status(root / "status.sock").ask()["accepted conn"] > before)

                if mpm == "prefork":
                    before = set(children(server.pid))
                    began = time.monotonic()
                    os.kill(max(before), signal.SIGTERM)
                    eventually("who was ended with its request is replaced", lambda: set(children(server.pid)) - before)
                    # Not a second later, as httpd does by itself; a machine that is busy takes its time.
                    print(f"   after {time.monotonic() - began:.2f} s")

                # Workers that die with a request: their turns are not lost.
                for _ in range(3):
                    workers = sorted(children(server.pid))[:-1]
                    for worker in workers[:: max(1, len(workers) // 8)]:
                        os.kill(worker, signal.SIGKILL)
                    time.sleep(1)
                before = load.answers
                eventually("and are answered though workers are killed", lambda: load.answers > before + 2 * CLIENTS)
            finally:
                load.end()
        finally:
            server.terminate()
            server.wait(30)
        eventually("nobody is left", lambda: not subprocess.run(["pgrep", "-f", str(root)], capture_output=True).stdout)


if __name__ == "__main__":
    for mpm in PROCESSES:
        main(sys.argv[1], mpm)
    print("httpd: all passed")
