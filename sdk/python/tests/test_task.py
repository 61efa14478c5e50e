"""What a task does with resources, as a reader of the ledger sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import plimsoll
from plimsoll import _app

from .reader import fields

Look = Callable[[str], list[str]]
table = plimsoll.resource("LOCK", "table", 1)
pages = plimsoll.resource(plimsoll.MEMORY, "pages", 256)


def test_a_task_is_there_while_its_block_lasts(look: Look) -> None:
    with plimsoll.task("GET /report", key=7, deadline_s=2) as task:
        assert plimsoll.current() is task
        (line,) = look("task")
        found = fields(line)
        assert line.endswith(" GET /report")
        assert (found["turn"], found["key"], found["flags"]) == ("1", "7", "1")
        assert int(found["tid"]) == threading.get_native_id()
        assert int(found["deadline_ns"]) - int(found["started_ns"]) == 2_000_000_000
    assert plimsoll.current() is None
    assert fields(look("task")[0])["turn"] == "2"
    assert fields(look("lane")[0])["completed"] == "1"


def test_what_a_resource_is_told_counts_for_the_current_task(look: Look) -> None:
    with plimsoll.task("a"):
        with table.hold():
            table.get()
            assert fields(look("account")[0])["gets"] == "2"
        table.free()
        with table.waiting():
            assert fields(look("account")[0])["waiting_since_ns"] != "0"
        pages.get(3)
        pages.slow(2, 5000)
        pages.free(100)
    first, second = (fields(line) for line in look("account"))
    assert (first["gets"], first["frees"], first["slows"], first["waiting_since_ns"]) == ("2", "2", "1", "0")
    assert (second["gets"], second["frees"], second["slows"], second["wait_ns"]) == ("3", "3", "2", "5000")


def test_without_a_task_nothing_is_accounted(look: Look) -> None:
    with table.hold(), table.waiting():
        table.slow()
    assert look("account") == []


def test_whoever_ends_holds_and_waits_no_more(look: Look) -> None:
    with plimsoll.task("a") as task:
        task.get(table)
        task.wait(pages)
        assert task.holds(table) == 1
    for line in look("account"):
        found = fields(line)
        assert (found["task"], found["gets"], found["holding_since_ns"], found["waiting_since_ns"]) == ("-", found["frees"], "0", "0")


def test_tasks_in_tasks_are_tasks_of_their_own(look: Look) -> None:
    with plimsoll.task("outer") as outer:
        with plimsoll.task("inner", background=True) as inner:
            assert plimsoll.current() is inner
        assert plimsoll.current() is outer
    assert [fields(line)["flags"] for line in look("task")] == ["1", "3"]
    assert fields(look("lane")[0])["completed"] == "1"


def test_a_full_ledger_makes_nobody_fail() -> None:
    opened = plimsoll.open("full", tasks=1, accounts=1, resources=1)
    with plimsoll.task("a") as a, plimsoll.task("b") as b:
        for task in (a, b):
            for resource in (table, pages):
                task.wait(resource)
                task.get(resource)
                assert task.holds(resource) == 1
                task.free(resource)
                task.slow(resource, 1, 1)
            task.progress(1, 2)
    assert opened.ledger is not None
    assert list(opened.ledger.words[17:20]) == [1, 0, 1]


def test_odd_numbers_do_nothing(look: Look) -> None:
    with plimsoll.task("a", key=-1) as task:
        task.get(table, 0)
        task.get(table, -5)
        task.free(table, -5)
        task.get(table, 1 << 70)
        task.free(table, 1)
        task.slow(table, -1)
        task.progress(-1, 1 << 80)
    (line,) = look("account")
    assert fields(line)["gets"] == "0"
    assert fields(look("task")[0])["key"] == str((1 << 64) - 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("TABLE", "x"), "kind must be one of LOCK, MEMORY"), ((9, "x"), "kind"), (("LOCK", ""), "not empty"), (("LOCK", "x", -1), "capacity of 'x'")],
)
def test_bad_resources_are_errors(arguments: tuple[object, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plimsoll.resource(*arguments)  # type: ignore[arg-type]


def test_a_text_is_no_resource() -> None:
    with plimsoll.task("a") as task, pytest.raises(TypeError, match=r"plimsoll\.resource"):
        task.get("table")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a b", "x" * 33, "größe"])
def test_bad_names_are_errors(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 32 of a-z"):
        plimsoll.open(name)


def test_bad_counts_are_errors() -> None:
    with pytest.raises(ValueError, match="tasks must be a number from 1 to 131072, not 0"):
        plimsoll.open("test", tasks=0)


@pytest.mark.parametrize(
    ("arguments", "deadline_s", "says"),
    [
        ((7,), None, "label must be a text, not 7"),
        (("a", "x-17"), None, "key of 'a' must be a whole number, not 'x-17'"),
        (("a",), float("nan"), "deadline_s of 'a' must be a number of seconds"),
        (("a",), -1, "not -1"),
        (("a",), 1e300, "deadline_s"),
    ],
)
def test_bad_tasks_are_errors(arguments: tuple[object, ...], deadline_s: float | None, says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        plimsoll.task(*arguments, deadline_s=deadline_s)  # type: ignore[arg-type]
    with plimsoll.task("a", key=True, deadline_s=0):
        pass


def test_the_first_task_opens_a_ledger_and_closing_removes_it(directory: Path) -> None:
    with plimsoll.task("a"):
        (file,) = directory.iterdir()
        assert file.name.startswith("test.") and file.suffix == ".ledger"
        assert file.stat().st_mode & 0o777 == 0o600
        assert directory.stat().st_mode & 0o777 == 0o700
        plimsoll.close()
        assert not list(directory.iterdir())
        table.get()
        pages.get()
    assert _app._app is None


def test_opening_again_begins_a_new_ledger(directory: Path) -> None:
    first = plimsoll.open("one")
    with plimsoll.task("a") as task:
        second = plimsoll.open("two")
        assert first.path is None and second.path is not None
        task.get(table)
    assert [path.name.split(".")[0] for path in directory.iterdir()] == ["two"]


def test_many_threads_work_for_one_task_and_none_is_lost(look: Look) -> None:
    """Counters are changed without a lock; this fails if CPython switches threads in the middle of one."""
    import sys

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with plimsoll.task("shared") as task:
            task.get(table)

            def work() -> None:
                with task.attach():
                    for _ in range(20_000):
                        table.get()
                        table.slow(1, 1)
                        table.free()

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            (line,) = look("account")
    finally:
        sys.setswitchinterval(interval)
    found = fields(line)
    assert (found["gets"], found["frees"], found["slows"], found["wait_ns"]) == ("80001", "80000", "80000", "80000")


def test_tasks_of_many_threads_are_all_counted(look: Look) -> None:
    def work() -> None:
        for _ in range(3_000):
            with plimsoll.task("a") as task:
                task.get(table)
                task.get(pages, 2)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fields(look("lane")[0])["completed"] == "24000"
    by_resource = {"0": 0, "1": 0}
    for found in map(fields, look("account")):
        assert found["task"] == "-" and found["gets"] == found["frees"]
        by_resource[found["resource"]] += int(found["gets"])
    assert sorted(by_resource.values()) == [24_000, 48_000]
    assert len(look("task")) <= 8
