"""The application never notices: directories that are not to be used, forks, exits, threads that cannot start."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import plimsoll
from plimsoll import _app

from .agent import Agent, until
from .reader import dump, fields

Look = Callable[[str], list[str]]
table = plimsoll.resource("LOCK", "table", 1)


def _use() -> None:
    with plimsoll.task("a") as task:
        task.wait(table)
        task.get(table)
        task.progress(1, 2)
        task.check()
        task.free(table)


def _nothing(directory: Path) -> None:
    pass


def _open_to_all(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)


def _a_file(directory: Path) -> None:
    directory.write_text("")


def _a_link(directory: Path) -> None:
    (directory.parent / "real").mkdir()
    directory.symlink_to(directory.parent / "real")


@pytest.mark.parametrize(
    ("prepare", "directory_in", "says"),
    [
        (_open_to_all, "{}", "chmod o-w"),
        (_a_file, "{}", "is no directory"),
        (_a_link, "{}", "is no directory"),
        (_nothing, "{}/a/b", "cannot make .*/a/b: No such file"),
        (_nothing, "/proc", "cannot make /proc/test"),
    ],
    ids=["open-to-all", "a-file", "a-link", "missing", "unwritable"],
)
def test_a_bad_directory_is_said_once(directory: Path, caplog: pytest.LogCaptureFixture, prepare: Callable[[Path], None], directory_in: str, says: str) -> None:
    prepare(directory)
    for _ in range(3):
        opened = plimsoll.open("test", directory=directory_in.format(directory))
        assert opened.path is None and opened.mode is None
        _use()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert re.search(f"not accounting: .*{says}", record.message)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_is_not_used(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory.mkdir(0o700)
    os.chown(directory, 12345, 0)
    assert plimsoll.open("test").path is None
    _use()
    assert "belongs to user 12345" in caplog.records[0].message


def test_a_file_system_that_is_full(directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert plimsoll.open("test").path is None
    _use()
    assert "No space left" in caplog.records[0].message
    assert not list(directory.iterdir())


def test_threads_that_cannot_start(directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert plimsoll.open("test").path is None
    _use()
    assert "can't start new thread" in caplog.records[0].message
    assert not list(directory.iterdir())


def test_without_the_gil_nothing_is_accounted(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert plimsoll.open("test").path is None
    _use()
    assert "PYTHON_GIL=1" in caplog.records[0].message


def test_what_a_killed_process_left_is_replaced(directory: Path) -> None:
    directory.mkdir(0o700)
    stale = directory / f"test.{os.getpid()}.ledger"
    stale.write_text("PLIMSOLL, or part of it")
    (directory / f".{stale.name}.new").write_text("unfinished")
    assert plimsoll.open("test").path == str(stale)
    assert dump(stale.read_bytes())
    plimsoll.close()
    assert not list(directory.iterdir())


def test_somebody_elses_file_is_not_removed(directory: Path, app: plimsoll.App) -> None:
    assert app.path is not None
    os.unlink(app.path)
    Path(app.path).write_text("not ours")
    path = Path(app.path)
    plimsoll.close()
    assert path.read_text() == "not ours"


def _in_child(work: Callable[[], object]) -> int:
    """Forks; the child's exit code is 0 if `work` did not raise."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def test_a_fork_never_writes_its_parents_ledger(app: plimsoll.App) -> None:
    path = Path(str(app.path))
    with plimsoll.task("parent") as task:
        task.get(table)
        before = [line for line in dump(path.read_bytes()) if not line.startswith(("application", "clock"))]

        def child() -> None:
            # What it inherited is dead, and its end does no harm.
            task.get(table)
            task.progress(1, 2)
            task.free(table, 2)
            task.end()
            _use()

        assert _in_child(child) == 0
        after = [line for line in dump(path.read_bytes()) if not line.startswith(("application", "clock"))]
    assert before == after


def test_a_fork_has_a_ledger_and_a_connection_of_its_own(agent: Agent, directory: Path) -> None:
    agent.accept()
    plimsoll.open("parent")
    parent = agent.accept()

    def child() -> None:
        with plimsoll.task("child"):
            opened = _app._app
            assert opened is not None and opened.name == "parent" and opened.path is not None
            assert f".{os.getpid()}." in opened.path
            (line,) = [line for line in dump(Path(opened.path).read_bytes()) if line.startswith("task")]
            assert line.endswith(f" tid={os.getpid()} child")
            until(lambda: opened.mode == "off", "the agent's welcome")
        plimsoll.close()
        assert not Path(f"{directory}/parent.{os.getpid()}.ledger").exists()

    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(_in_child(child)))
    thread.start()
    hello = agent.accept("welcome 1 off")
    thread.join(30)
    assert results == [0]
    assert hello != parent and hello.startswith("hello 1 parent.")


def test_a_fork_has_no_thread_beside_it_and_all_goes_on_after_it(agent: Agent, look: Look) -> None:
    """Python warns of forks in a process with threads, and ours is not to be the reason."""
    agent.accept()

    def ours() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "plimsoll"]

    assert len(ours()) == 1
    _app._before_fork()
    _app._before_fork()  # by two threads at once
    assert not ours()
    _app._after_fork_in_parent()
    assert not ours()
    _app._after_fork_in_parent()
    assert len(ours()) == 1
    agent.say("cancel 1 4000 1 0 still connected")
    assert agent.hear() == "outcome 1 gone"
    assert _in_child(lambda: None) == 0
    before = fields(look("application")[0])["beat_ns"]
    until(lambda: fields(look("application")[0])["beat_ns"] != before, "a beat after a fork")


def test_closing_while_forking_is_closing(app: plimsoll.App, directory: Path) -> None:
    _app._before_fork()
    plimsoll.close()
    _app._after_fork_in_parent()
    assert not list(directory.iterdir())
    assert not [thread for thread in threading.enumerate() if thread.name == "plimsoll"]


def test_a_fork_lets_go_of_its_parents_connection(agent: Agent) -> None:
    agent.accept()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(read, 1)  # lives until the test is over
        os._exit(0)
    try:
        plimsoll.close()
        assert agent.hear() == "", "the connection ends with the parent, though the child lives"
    finally:
        os.write(write, b"x")
        os.waitpid(pid, 0)


def _run(directory: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program of its own."""
    environment = {**os.environ, "PLIMSOLL_DIR": str(directory), "PYTHONPATH": str(Path(plimsoll.__file__).parents[1])}
    environment.pop("PLIMSOLL_APP", None)
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True, timeout=300)


def test_an_orderly_exit_removes_the_file(directory: Path) -> None:
    done = _run(
        directory,
        """
        import os, plimsoll
        task = plimsoll.task("a").__enter__()
        print(os.listdir(os.environ["PLIMSOLL_DIR"]))
        raise SystemExit(3)
        """,
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith("['python.")
    assert not list(directory.iterdir())


def test_an_exit_with_a_hanging_action_is_an_exit(directory: Path) -> None:
    directory.mkdir(0o700)
    agent = Agent(directory)
    environment = {**os.environ, "PYTHONPATH": str(Path(plimsoll.__file__).parents[1])}
    program = "import time, plimsoll\nwith plimsoll.task('a', cancel=lambda task: time.sleep(1000)):\n input('in')"
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        agent.accept()
        assert running.stdout is not None and running.stdout.read(2) == "in"
        agent.say("cancel 1 0 1 0 why")
        assert agent.hear() == "acknowledge 1"
        running.communicate("\n", timeout=300)
    assert running.returncode == 0
    agent.close()


def test_importing_it_does_nothing(directory: Path) -> None:
    done = _run(
        directory,
        """
        import sys, threading, plimsoll
        lock = plimsoll.Lock("table")
        with lock: pass
        print(threading.active_count(), "asyncio" in sys.modules)
        """,
    )
    assert (done.stdout, done.stderr) == ("1 False\n", "")
    assert not directory.exists()


def test_a_ledger_that_is_overwritten_harms_nobody(app: plimsoll.App, look: Look) -> None:
    """Counters come from memory, never from the file; and absurd times are taken as they are."""
    ledger = app.ledger
    assert ledger is not None
    with plimsoll.task("a") as task:
        task.get(table)
        for index in range(24, len(ledger.words)):
            ledger.words[index] = 0xDEADBEEFDEADBEEF
        task.wait(table)
        task.get(table, 3)
        task.free(table, 4)
        task.progress(1, 2)
    _use()
    assert fields(look("application")[0])["tasks_refused"] == "0"
