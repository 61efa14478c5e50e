"""Drives a testbed server with an agent that cancels each of its hogs: `testbed.py NAME BINARY`. Prints a line a test."""

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

HEADER, RESOURCE, LANE, TASK = 4096, 64, 2048, 128


def ask(port, path, **headers):
    """Status, text, and for what it was cancelled."""
    try:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode(), answer.headers.get("plimsoll-cancelled")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers.get("plimsoll-cancelled")


def get(port, path):
    return ask(port, path)[:2]


class Ledger:
    """The parts of a ledger that the tests look at."""

    def __init__(self, directory, name):
        self.path = os.path.join(directory, name)

    def tasks(self):
        with open(self.path, "rb") as file:
            data = file.read()
        resources, lanes, tasks, _ = struct.unpack_from("<4I", data, 0x0C)
        used = struct.unpack_from("<I", data, 0xA0)[0]
        at = HEADER + resources * RESOURCE + lanes * LANE
        for index in range(min(used, tasks)):
            turn = struct.unpack_from("<Q", data, at + index * TASK)[0]
            label = data[at + index * TASK + 64 : at + index * TASK + 128].rstrip(b"\0").decode()
            yield index, turn, label

    def resource(self, index):
        with open(self.path, "rb") as file:
            data = file.read()
        return data[HEADER + index * RESOURCE + 16 : HEADER + (index + 1) * RESOURCE].rstrip(b"\0").decode()

    def find(self, label):
        """The task that lives under that label, once there is one."""
        for _ in range(3000):
            for index, turn, has in self.tasks():
                if turn % 2 == 1 and has == label:
                    return index, turn
            time.sleep(0.01)
        raise AssertionError(f"no task {label}")


def check_cancelled(port, ledger, agent, number, path, label):
    got = []
    thread = threading.Thread(target=lambda: got.append(ask(port, path)))
    thread.start()
    index, turn = ledger.find(label)
    agent.sendall(f"cancel {number} {index} {turn} 1 it holds up the others\n".encode())
    thread.join()
    assert got == [(503, "cancelled: it holds up the others", ledger.resource(1))], got


def main():
    name, binary = sys.argv[1:3]
    directory = tempfile.mkdtemp(prefix="plimsoll-testbed-")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.path.join(directory, "agent.sock"))
    listening.listen()
    listening.settimeout(30)
    server = subprocess.Popen([binary, "--port", "0"], stdout=subprocess.PIPE, text=True, env={**os.environ, "PLIMSOLL_DIR": directory})
    passed = failed = 0
    try:
        word, port = server.stdout.readline().split()
        agent, _ = listening.accept()
        hello = agent.makefile().readline().split()
        assert word == "ready" and hello[:2] == ["hello", "1"], (word, hello)
        agent.sendall(b"welcome 1 enforce\n")
        ledger = Ledger(directory, hello[2])

        def items():
            for item in range(300):
                assert get(port, f"/item?id={item % 200}") == (200, "ok")
            assert any(label == "GET /item" for _, _, label in ledger.tasks())
            assert get(port, "/nothing")[0] == 404
            assert get(port, "/slow?seconds=-1")[0] == 400
            assert get(port, "/slow?seconds=0.05") == (200, "ok")

        def hog(number, path):
            check_cancelled(port, ledger, agent, number, f"{path}?seconds=60", f"GET {path}")
            assert get(port, "/item?id=1") == (200, "ok")

        def again():
            # What a gateway sends a second time runs to its end.
            got = []
            thread = threading.Thread(target=lambda: got.append(ask(port, "/hog/lock?seconds=1", **{"Plimsoll-Rerun": "1"})))
            thread.start()
            index, turn = ledger.find("GET /hog/lock")
            agent.sendall(f"cancel 9 {index} {turn} 1 once more\n".encode())
            thread.join()
            assert got == [(200, "ok", None)], got

        tests = {
            "items": items,
            "hog_lock": lambda: hog(1, "/hog/lock"),
            "hog_cache": lambda: hog(2, "/hog/cache"),
            "hog_pool": lambda: hog(3, "/hog/pool"),
            "again": again,
            "slow": lambda: hog(4, "/slow"),
        }
        for test, run in tests.items():
            try:
                run()
                print(f"test {name}_{test} ... ok")
                passed += 1
            except (AssertionError, OSError) as error:
                print(f"{error!r}\ntest {name}_{test} ... FAILED")
                failed += 1
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(directory)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
