"""The testbed server: what it answers, and that a hog which is cancelled lets everybody else go on."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import plimsoll

from .agent import Agent, until
from .reader import dump, fields

TESTBED = Path(__file__).parents[1] / "testbed"


class Testbed:
    """A server that runs."""

    __test__ = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        environment = {**os.environ, "PLIMSOLL_DIR": str(directory), "PYTHONPATH": str(Path(plimsoll.__file__).parents[1])}
        self.process = subprocess.Popen([sys.executable, str(TESTBED), "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        word, port = self.process.stdout.readline().split()
        assert word == "ready"
        self.port = int(port)

    def end(self) -> int:
        """Ends it in order; its exit code."""
        self.process.terminate()
        self.process.communicate(timeout=20)
        return self.process.returncode

    def ask(self, path: str) -> tuple[int, str]:
        """Status and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode().strip()
        finally:
            connection.close()

    def in_background(self, path: str, answers: list[tuple[int, str]]) -> threading.Thread:
        """Asks in a thread."""
        thread = threading.Thread(target=lambda: answers.append(self.ask(path)))
        thread.start()
        return thread

    def look(self, word: str) -> list[str]:
        """Lines of its ledger's dump."""
        (path,) = self.directory.glob("testbed-python.*.ledger")
        return [line for line in dump(path.read_bytes()) if line.startswith(word + " ")]

    def lives(self, label: str) -> dict[str, str] | None:
        """The task with a label that lives and holds something, or None."""
        for line in self.look("task"):
            found = fields(line)
            if int(found["turn"]) % 2 and line.endswith(label):
                mine = [a for a in map(fields, self.look("account")) if a["task"] == line.split(" ")[1]]
                if any(a["holding_since_ns"] != "0" for a in mine):
                    return {**found, "index": line.split(" ")[1]}
        return None


@pytest.fixture
def testbed(directory: Path) -> Iterator[Testbed]:
    """A server, and the directory in which a test may be its agent."""
    directory.mkdir(0o700)
    running = Testbed(directory)
    yield running
    assert running.end() == 0
    assert not list(directory.glob("*.ledger"))


def test_it_answers(testbed: Testbed) -> None:
    assert testbed.ask("/item?id=3") == (200, "ok")
    assert testbed.ask("/slow?seconds=0.01") == (200, "ok")
    for hog in ("lock", "cache", "pool"):
        assert testbed.ask(f"/hog/{hog}?seconds=0.05") == (200, "ok")
    assert testbed.ask("/item?id=x")[0] == 400
    assert testbed.ask("/slow?seconds=nan")[0] == 400
    assert testbed.ask("/other")[0] == 404
    assert sorted(line.split(" ", 2)[2] for line in testbed.look("resource")) == [
        "LOCK capacity=1 table", "MEMORY capacity=256 pages", "QUEUE capacity=8 workers",
    ]  # fmt: skip
    assert fields(testbed.look("lane")[0])["completed"] == "5"


def test_a_scan_evicts_and_holds(testbed: Testbed) -> None:
    answers: list[tuple[int, str]] = []
    thread = testbed.in_background("/hog/cache?seconds=1", answers)

    def full() -> bool:
        pages = [found for found in map(fields, testbed.look("account")) if int(found["slows"]) > 0]
        return any(int(found["gets"]) - int(found["frees"]) == 256 for found in pages)

    until(full, "a cache that the scan has filled, and evictions")
    thread.join()
    assert answers == [(200, "ok")]


@pytest.mark.parametrize(("hog", "hogs"), [("lock", 1), ("pool", 8), ("cache", 1)])
def test_a_hog_that_is_cancelled_lets_everybody_go_on(directory: Path, hog: str, hogs: int) -> None:
    directory.mkdir(0o700)
    agent = Agent(directory)
    testbed = Testbed(directory)
    try:
        agent.accept()
        culprits: list[tuple[int, str]] = []
        threads = [testbed.in_background(f"/hog/{hog}?seconds=600", culprits) for _ in range(hogs)]
        for id in range(hogs):
            until(lambda: testbed.lives(f"GET /hog/{hog}"), "a hog that holds something")
            if hog != "cache" and id == 0:
                until(lambda: len([line for line in testbed.look("task") if f"GET /hog/{hog}" in line]) == hogs, "all hogs")
                victims: list[tuple[int, str]] = []
                victim = testbed.in_background("/item?id=1", victims)
                until(lambda: [a for a in map(fields, testbed.look("account")) if a["waiting_since_ns"] != "0"], "a victim that waits")
            found = testbed.lives(f"GET /hog/{hog}")
            assert found is not None
            agent.say(f"cancel {id} {found['index']} {found['turn']} 0 holds {hog}")
            assert [agent.hear(), agent.hear()] == [f"acknowledge {id}", f"outcome {id} cancelled"]
        for thread in threads:
            thread.join(20)
        assert culprits == [(503, f"cancelled: holds {hog}")] * hogs
        if hog != "cache":
            victim.join(20)
            assert victims == [(200, "ok")]
    finally:
        testbed.end()
        agent.close()
