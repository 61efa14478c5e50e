"""The tracked locks, semaphores and pools: they do what the originals do, and the ledger says who holds and who waits."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import plimsoll
from plimsoll import aio

from .agent import until
from .reader import fields

Look = Callable[[str], list[str]]


@contextmanager
def another(label: str, work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Does something in a thread and a task of its own; the thread has ended when the block has."""

    def run() -> None:
        with plimsoll.task(label):
            work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join(20)
    assert not thread.is_alive()


def accounts(look: Look, resource: int = 0) -> list[dict[str, str]]:
    """The accounts of a resource."""
    return [found for found in map(fields, look("account")) if found["resource"] == str(resource)]


def waits(look: Look) -> bool:
    """Whether somebody waits for the first resource."""
    return any(found["waiting_since_ns"] != "0" for found in accounts(look))


def held(look: Look) -> int:
    """How much of the first resource is held."""
    return sum(int(found["gets"]) - int(found["frees"]) for found in accounts(look))


def slows(look: Look) -> int:
    """How often somebody has waited for the first resource."""
    return sum(int(found["slows"]) for found in accounts(look))


@pytest.mark.parametrize("make", [plimsoll.Lock, plimsoll.RLock, plimsoll.Semaphore], ids=["Lock", "RLock", "Semaphore"])
def test_who_holds_and_who_waits(make: type[plimsoll.Lock], look: Look) -> None:
    lock = make("thing")
    with plimsoll.task("holder"):
        lock.acquire()
        assert (held(look), slows(look)) == (1, 0)

        def work() -> None:
            assert not lock.acquire(False)
            assert not lock.acquire(timeout=0.001)
            with lock:
                pass

        with another("waiter", work):
            until(lambda: slows(look) == 2 and waits(look), "a wait without a time-out, after one with")
            lock.release()
    assert (held(look), slows(look)) == (0, 2)
    assert not waits(look)
    assert look("resource")[0].endswith("capacity=1 thing")


def test_a_lock_without_a_task_is_a_lock(look: Look) -> None:
    for lock in (plimsoll.Lock("a"), plimsoll.RLock("b"), plimsoll.Semaphore("c")):
        with lock:
            pass
        assert lock.acquire(False)
        lock.release()
        with pytest.raises((RuntimeError, ValueError)):
            lock.release()
    assert look("account") == []


def test_a_lock_may_be_released_by_another_task(look: Look) -> None:
    lock = plimsoll.Lock("table")
    with plimsoll.task("holder"):
        lock.acquire()
        with another("releaser", lock.release):
            pass
        assert held(look) == 0
        assert not lock.locked()


def test_a_condition_works_on_a_tracked_lock(look: Look) -> None:
    condition = threading.Condition(plimsoll.Lock("table"))  # type: ignore[arg-type]
    came = []
    with plimsoll.task("a"), condition:

        def work() -> None:
            with condition:
                came.append(1)
                condition.notify()

        with another("b", work):
            assert condition.wait_for(lambda: came, 20)
    assert held(look) == 0


def test_a_reentrant_lock_is_held_once(look: Look) -> None:
    lock = plimsoll.RLock("table")
    with plimsoll.task("a"):
        with lock, lock:
            assert held(look) == 1
        assert held(look) == 0

    def release() -> None:
        with pytest.raises(RuntimeError):
            lock.release()

    with lock, another("b", release):
        pass


def test_a_semaphore_has_permits(look: Look) -> None:
    permits = plimsoll.Semaphore("permits", 3)
    with plimsoll.task("a"):
        with permits, permits, permits:
            assert held(look) == 3
            assert not permits.acquire(False)
        assert held(look) == 0
        with pytest.raises(ValueError, match="released too many times"):
            permits.release()
    assert look("resource") == ["resource 0 QUEUE capacity=3 permits"]


def test_readers_share_and_writers_do_not(look: Look) -> None:
    lock = plimsoll.RWLock("table")
    with plimsoll.task("a"):
        with lock.read(), lock.read():
            assert held(look) == 2
            with pytest.raises(TimeoutError, match=r"'table' was not to be had within 0\.01 s"):
                lock.write(0.01)
        with lock.write():
            with pytest.raises(TimeoutError):
                lock.read(0.01)
        once = lock.read()
        once.release()
        with pytest.raises(RuntimeError, match="released already"):
            once.release()
    assert (held(look), slows(look)) == (0, 2)


def test_a_writer_that_waits_goes_before_readers_that_come_later(look: Look) -> None:
    lock = plimsoll.RWLock("table")
    order: list[str] = []

    def write() -> None:
        with lock.write():
            order.append("writer")

    def read() -> None:
        with lock.read():
            order.append("reader")

    with plimsoll.task("first"):
        first = lock.read()
        with another("writer", write):
            until(lambda: slows(look) == 1, "a writer that waits")
            with another("reader", read):
                until(lambda: slows(look) == 2, "a reader that waits behind it")
                first.release()
    assert order == ["writer", "reader"]


def test_a_writer_that_gives_up_lets_readers_go(look: Look) -> None:
    lock = plimsoll.RWLock("table")

    def give_up() -> None:
        with pytest.raises(TimeoutError):
            lock.write(0.2)

    with plimsoll.task("first"), lock.read():
        with another("writer", give_up):
            until(lambda: slows(look) == 1, "a writer that waits")
            with another("reader", lambda: lock.read().release()):
                pass


def test_readers_and_writers_exclude_each_other() -> None:
    lock = plimsoll.RWLock("table")
    inside = {"readers": 0, "writers": 0}
    wrong: list[dict[str, int]] = []
    mutex = threading.Lock()

    def work(kind: str) -> None:
        for _ in range(200):
            with lock.write() if kind == "writers" else lock.read():
                with mutex:
                    inside[kind] += 1
                    if inside["writers"] > 1 or (inside["writers"] and inside["readers"]):
                        wrong.append(dict(inside))
                time.sleep(0)
                with mutex:
                    inside[kind] -= 1

    threads = [threading.Thread(target=work, args=(kind,)) for kind in ("readers", "readers", "writers", "writers")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert not wrong


def test_a_pool_lends(look: Look) -> None:
    pool = plimsoll.Pool("workers", ["a", "b"])
    with plimsoll.task("first"):
        with pool.take() as one, pool.take() as two:
            assert {one, two} == {"a", "b"}
            assert (len(pool), held(look)) == (0, 2)
            with pytest.raises(queue.Empty):
                pool.get(block=False)
            with pytest.raises(queue.Empty), pool.take(timeout=0.01):
                pass
        assert (len(pool), held(look), slows(look)) == (2, 0, 1)
        lent = pool.get()
        with another("second", lambda: pool.put(lent)):
            pass
        assert held(look) == 0
    assert pool.get() in {"a", "b"}
    assert look("resource") == ["resource 0 QUEUE capacity=2 workers"]
    with pytest.raises(ValueError, match="'empty' got nothing"):
        plimsoll.Pool("empty", [])


@pytest.mark.parametrize("make", [aio.Lock, aio.Semaphore], ids=["Lock", "Semaphore"])
def test_coroutines_hold_and_wait(make: type[aio.Lock], look: Look) -> None:
    async def main() -> None:
        lock = make("thing")
        entered = []

        async def second() -> None:
            async with plimsoll.task("second"):
                async with lock:
                    entered.append(1)

        async with plimsoll.task("first"):
            async with lock:
                assert lock.locked()
                assert (held(look), slows(look)) == (1, 0)
                waiting = [asyncio.create_task(second()) for _ in range(2)]
                await asyncio.sleep(0)
                assert waits(look)
                waiting[1].cancel()
                await asyncio.gather(waiting[1], return_exceptions=True)
            await waiting[0]
        assert entered == [1]
        async with lock:
            pass

    asyncio.run(main())
    assert (held(look), slows(look)) == (0, 2)
    assert not waits(look)
