"""Starts a private Apache httpd with the module, loads it, and kills what can be killed."""

import os
import pathlib
import re
import signal
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
DocumentRoot "{root}/pages"
SetOutputFilter DEFLATE
DeflateCompressionLevel 9
ServerLimit {processes}
MaxRequestWorkers {CLIENTS}
StartServers {processes}
{of_threads}"""


def free_port():
    import socket

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
            load = Load(port)
            try:
                eventually("few work at once", lambda: limits() and limits()[-1] <= CLIENTS // 4)
                before = load.answers
                eventually("all are answered all the same", lambda: load.answers > before + 2 * CLIENTS)
                assert not load.failures, load.failures

                # Of the server's children the shepherd is the one that is not a worker: it began first.
                shepherd = min(children(server.pid))
                os.kill(shepherd, signal.SIGKILL)
                began_again = lambda: "is started again" in (root / "errors").read_text()
                before = load.answers
                eventually("they are answered while there is no shepherd", lambda: load.answers > before + CLIENTS)
                eventually("it is started again", began_again)
                count = len(limits())
                eventually("and goes on", lambda: len(limits()) > count)
                assert not load.failures, load.failures

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
