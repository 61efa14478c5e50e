"""A small server that can be brought to its knees by a lock hog, a cache hog or a pool hog: what the agent is tested on.

    python testbed --port 0        prints `ready PORT`

`GET /item?id=N` is what the world wants; `/hog/lock`, `/hog/cache` and `/hog/pool`, with `?seconds=S`, are the culprits; `/slow?seconds=S` is slow and
innocent.
"""

from __future__ import annotations

import argparse
import math
import queue
import random
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from cache import Cache

import plimsoll

WORKERS = 8
CAPACITY_PAGES = 256
HOT_PAGES = 200
READ_AHEAD = 16
WORK_S = 0.0002
STEP_S = 0.005
CONNECTIONS_MOST = 512
SECONDS_MOST = 3600.0


class Bed:
    """What requests share, and what they do with it."""

    def __init__(self, sdk: bool, miss_s: float) -> None:
        """Without `sdk` it is what the standard library has, on nobody's account: what accounts cost is measured against that."""
        self.sdk = sdk
        self.workers: plimsoll.Pool[int] | PlainPool = plimsoll.Pool("workers", range(WORKERS)) if sdk else PlainPool(WORKERS)
        self.table = plimsoll.Lock("table") if sdk else threading.Lock()
        pages = plimsoll.resource(plimsoll.MEMORY, "pages", CAPACITY_PAGES) if sdk else None
        self.cache = Cache(pages, CAPACITY_PAGES, miss_s)

    def item(self, task: plimsoll.Task | None, number: int) -> None:
        """What everybody wants: a worker, the table for a moment, a page."""
        with self.workers.take():
            with self.table:
                time.sleep(WORK_S)
            self.cache.read(task, number % HOT_PAGES)

    def hog_lock(self, task: plimsoll.Task | None, seconds: float) -> None:
        """Holds the table."""
        with self.workers.take(), self.table:
            last(task, seconds)

    def hog_pool(self, task: plimsoll.Task | None, seconds: float) -> None:
        """Holds a worker."""
        with self.workers.take():
            last(task, seconds)

    def hog_cache(self, task: plimsoll.Task | None, seconds: float) -> None:
        """Reads pages that nobody else wants, as fast as the cache takes them."""
        with self.workers.take():
            began = time.monotonic()
            page = random.randrange(HOT_PAGES, 1 << 40)
            while (elapsed := time.monotonic() - began) < seconds:
                tell(task, elapsed, seconds)
                self.cache.scan(task, page, READ_AHEAD)
                page += READ_AHEAD

    def slow(self, task: plimsoll.Task | None, seconds: float) -> None:
        """Takes its time, and nothing else."""
        last(task, seconds)


class PlainPool:
    """Things that are lent, as one would write it without Plimsoll."""

    def __init__(self, things: int) -> None:
        self._things: queue.LifoQueue[int] = queue.LifoQueue()
        for thing in range(things):
            self._things.put(thing)

    def take(self) -> PlainPool:
        """`with pool.take():` has one of them for as long as the block lasts."""
        return self

    def __enter__(self) -> int:
        return self._things.get()

    def __exit__(self, *what: object) -> None:
        self._things.put(0)  # they are all alike


def tell(task: plimsoll.Task | None, elapsed: float, seconds: float) -> None:
    """Says how far a task is, and ends it if it is cancelled."""
    if task is not None:
        task.progress(int(elapsed * 1000), int(seconds * 1000))
        task.check()


def last(task: plimsoll.Task | None, seconds: float) -> None:
    """Lasts so long, says how far it is, and ends early if it is cancelled."""
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < seconds:
        tell(task, elapsed, seconds)
        time.sleep(min(STEP_S, seconds - elapsed))


ROUTES = {"/hog/lock": Bed.hog_lock, "/hog/cache": Bed.hog_cache, "/hog/pool": Bed.hog_pool, "/slow": Bed.slow}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    server: Server

    def setup(self) -> None:
        """Answers are small, and are not to wait for one another."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        """One request, which is one task."""
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        try:
            number = int(query.get("id", ["0"])[0])
            seconds = float(query.get("seconds", ["1"])[0])
            if number < 0 or not 0 <= seconds <= SECONDS_MOST or math.isnan(seconds):
                raise ValueError
        except ValueError:
            self._answer(400, f"id is a number from 0 on, seconds one from 0 to {SECONDS_MOST:.0f}")
            return
        if url.path != "/item" and url.path not in ROUTES:
            self._answer(404, "there are /item, /slow and " + ", ".join(path for path in ROUTES if path.startswith("/hog")))
            return
        if not self.server.bed.sdk:
            self._work(None, url.path, number, seconds)
            self._answer(200, "ok")
            return
        again = self.headers.get("plimsoll-rerun") == "1"
        try:
            with plimsoll.task(f"GET {url.path}", key=number, again=again) as task:
                self._work(task, url.path, number, seconds)
        except plimsoll.Cancelled as cancelled:
            self._answer(503, f"cancelled: {cancelled}", ("plimsoll-cancelled", task.resource or ""))
            return
        self._answer(200, "ok")

    def _work(self, task: plimsoll.Task | None, path: str, number: int, seconds: float) -> None:
        if path == "/item":
            self.server.bed.item(task, number)
        else:
            ROUTES[path](self.server.bed, task, seconds)

    def _answer(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        body = text.encode() + b"\n"
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


class Server(ThreadingHTTPServer):
    """At most so many connections; the next one is closed at once."""

    request_queue_size = 512
    daemon_threads = True

    def __init__(self, port: int, bed: Bed) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.bed = bed
        self._free = threading.Semaphore(CONNECTIONS_MOST)

    def process_request(self, request: object, client_address: object) -> None:
        """Begins a connection's thread, if there is one left."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)  # type: ignore[arg-type]
        else:
            self.shutdown_request(request)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        """A connection, from its beginning to its end."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients go away; that is their right."""


def main() -> None:
    """Serves until it is ended."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--port", type=int, default=0, help="0 is any free one")
    arguments.add_argument("--miss-ms", type=int, default=2, help="what it takes to read a page that is not in the cache")
    arguments.add_argument("--no-sdk", action="store_true", help="keep no accounts: what they cost is measured against that")
    chosen = arguments.parse_args()
    if not chosen.no_sdk:
        plimsoll.open("testbed-python")
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))  # an orderly end, which removes the ledger
    with Server(chosen.port, Bed(not chosen.no_sdk, chosen.miss_ms / 1000)) as server:
        print(f"ready {server.server_port}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
