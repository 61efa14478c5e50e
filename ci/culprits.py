#!/usr/bin/env python3
"""The agent beside a real server in each SDK's language, `sdk/LANG/testbed`, and clients over HTTP, in open loop.

While items are asked for at a rate that a server does easily, somebody holds its lock, scans its cache or sits on its workers. The agent is a
process of its own. What must hold is read off its events and the clients' answers: the culprit is cancelled, called by its name, its client is
told, nobody else is cancelled, and items are fast again. Limits are generous: the machine may be slow.

    ci/culprits.py [LANG...] [--seed N]

Prints `culprit LANG-WHAT ok` for each. PLIMSOLL names another binary; the Rust testbed is beside it.
"""

import asyncio
import atexit
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from beside import free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLIMSOLL = pathlib.Path(os.environ.get("PLIMSOLL", ROOT / "target/release/plimsoll"))
RUST_TESTBED = PLIMSOLL.parent / "plimsoll-sdk-testbed"
WORK = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-culprits-"))
LANGUAGES = ["c", "cpp", "go", "java", "python", "rust"]
# What is held up is called so in all servers. A scan has a worker besides, which is as contended until the delays that it causes are over and told.
RESOURCES = {"lock": ["table"], "cache": ["pages", "workers"], "pool": ["workers"]}
# A pool hog has one worker, and there are eight.
HOGS = {"lock": 1, "cache": 1, "pool": 8}

RATE_PER_S = 100
HOT_PAGES = 200
# With no page in the cache, seven workers read 7 / 0.1 s = 70 a second: less than is asked for.
MISS_MS = 100
LIMIT_S = 0.25
PATIENCE_S = 40
CALM_S = 3
# For how long a hog lasts that nobody cancels.
SHADOW_S = 2
# An application looks for its agent once a second.
RECONNECT_S = 1
# Items that arrive within this time are looked at together.
BIN_S = 0.5
MOST_IN_FLIGHT = 400

CHILDREN = []


def clean_up():
    for child in CHILDREN:
        if child.poll() is None:
            child.kill()
    for child in CHILDREN:
        child.wait()
    shutil.rmtree(WORK, ignore_errors=True)


def start(*command, **options):
    child = subprocess.Popen([str(c) for c in command], **options)
    CHILDREN.append(child)
    return child


async def until(condition, what):
    """Waits until something is so, and gives it."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if found := await found if asyncio.iscoroutine(found) else found:
            return found
        assert time.monotonic() < end, f"for {PATIENCE_S} s there was not {what}"
        await asyncio.sleep(0.05)


def command(language):
    """The server's command, which is built if need be; and what else is in its environment."""
    sdk = ROOT / "sdk" / language
    if language in ("c", "cpp"):
        subprocess.run(["make", "-s", "-C", sdk, "testbed"], check=True, stdout=sys.stderr)
        return [sdk / "build/testbed"], {}
    if language == "go":
        binary = WORK / "testbed-go"
        subprocess.run(["go", "build", "-o", binary, "./testbed"], cwd=sdk, check=True)
        return [binary], {}
    if language == "java":
        return [sdk / "testbed/run.sh"], {}
    if language == "python":
        return [sys.executable, sdk / "testbed"], {"PYTHONPATH": str(sdk / "src")}
    return [RUST_TESTBED], {}


class Answer:
    """What came of a request."""

    def __init__(self, path, arrived):
        self.path, self.arrived = path, arrived
        self.ended, self.status, self.headers, self.text = None, 0, {}, ""

    @property
    def in_time(self):
        return self.status == 200 and self.ended - self.arrived <= LIMIT_S

    def __repr__(self):
        took = f"{1000 * (self.ended - self.arrived):.0f} ms" if self.ended else "no end"
        return f"{self.path} {self.status} {self.text.strip()!r} ({took})"


class Unheard(Exception):
    """The server closed the connection and did not answer a byte."""


class Clients:
    """Asks a server on this machine; connections are used again."""

    def __init__(self, port):
        self.port, self.idle = port, []

    def kept(self):
        """A connection that was used before, and that the server has not closed since for being idle too long."""
        while self.idle:
            reader, writer = self.idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return None

    async def get(self, path, arrived=None):
        answer = Answer(path, arrived or time.monotonic())
        try:
            while connection := self.kept():
                # A server may close a connection that is idle at the very moment at which it is used again. It has not seen the request then.
                with contextlib.suppress(ConnectionError, Unheard):
                    await self.ask(answer, *connection)
                    break
            else:
                await self.ask(answer, *await asyncio.open_connection("127.0.0.1", self.port))
        except (OSError, asyncio.IncompleteReadError, Unheard) as error:
            answer.text = repr(error)
        answer.ended = time.monotonic()
        return answer

    async def ask(self, answer, reader, writer):
        try:
            writer.write(f"GET {answer.path} HTTP/1.1\r\nHost: testbed\r\n\r\n".encode())
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            except asyncio.IncompleteReadError as error:
                raise error if error.partial else Unheard from error
            answer.headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head[1:-2])}
            answer.text = (await reader.readexactly(int(answer.headers.get("content-length", 0)))).decode()
            answer.status = int(head[0].split()[1])
            self.idle.append((reader, writer))
            writer = None
        finally:
            if writer:
                writer.close()


class Items:
    """Items, asked for at random times whether or not the last ones were answered, from the beginning of a block to its end."""

    def __init__(self, clients, seed):
        self.clients, self.random = clients, random.Random(seed)
        self.all, self.running = [], set()

    async def __aenter__(self):
        self.task = asyncio.create_task(self.ask())
        return self

    async def __aexit__(self, *_):
        await self.stop()
        for one in self.running.copy():
            one.cancel()

    async def ask(self):
        arrives = time.monotonic()
        while True:
            arrives += self.random.expovariate(RATE_PER_S)
            await asyncio.sleep(arrives - time.monotonic())
            assert len(self.running) < MOST_IN_FLIGHT, "items are not answered any more"
            one = asyncio.create_task(self.clients.get(f"/item?id={len(self.all) % HOT_PAGES}", arrives))
            self.running.add(one)
            one.add_done_callback(self.running.discard)
            self.all.append((arrives, one))

    async def in_time(self):
        """Waits until nine in ten of those that arrived within half a second were answered in time."""
        await until(lambda: self.task.done() or self.share_in_time() >= 0.9, "enough items that were answered in time")
        if self.task.done():
            self.task.result()

    def share_in_time(self):
        due = time.monotonic() - LIMIT_S
        recent = [one for arrived, one in self.all[-3 * RATE_PER_S :] if due - BIN_S <= arrived < due]
        return sum(one.done() and one.result().in_time for one in recent) / max(len(recent), 1)

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def end(self):
        """All answers, when the last has come."""
        await self.stop()
        return await asyncio.wait_for(asyncio.gather(*(one for _, one in self.all)), PATIENCE_S)


class Agent:
    """`plimsoll agent` beside one server."""

    def __init__(self, name, directory):
        self.name, self.directory = name, directory
        self.admin, self.file = free_port(), directory / "events.jsonl"
        self.config, self.child = directory / "plimsoll.toml", None

    async def start(self, mode):
        self.config.write_text(f"""
[agent]
admin = "127.0.0.1:{self.admin}"
ledgers = ["{self.directory}"]
events = "{self.file}"

[app.{self.name}]
slo = {{ p99 = "{1000 * LIMIT_S:.0f}ms" }}
mode = "{mode}"
""")
        log = open(self.directory / "agent.log", "ab")
        self.child = start(PLIMSOLL, "agent", "--config", self.config, stdout=log, stderr=log)
        await until(self.watches, "an agent that watches the server")
        await asyncio.sleep(RECONNECT_S)

    async def watches(self):
        answer = await Clients(self.admin).get("/status")
        return answer.status == 200 and any(app["app"] == self.name for app in json.loads(answer.text)["watched"].values())

    def events(self, *kinds, since=0):
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [event for event in map(json.loads, lines[since:]) if event["event"] in kinds or not kinds]

    async def end(self, how):
        self.child.send_signal(how)
        await until(lambda: self.child.poll() is not None, "an end of the agent")


class Bed:
    """One language's server, its clients and its agent."""

    def __init__(self, language, seed):
        self.language, self.seed = language, seed
        self.directory = WORK / language
        self.directory.mkdir(mode=0o700)
        self.agent = Agent(f"testbed-{language}", self.directory)
        self.asked = []
        words, environment = command(language)
        environment = {**os.environ, **environment, "PLIMSOLL_DIR": str(self.directory)}
        log = open(self.directory / "server.log", "wb")
        words = [*words, "--port", 0, "--miss-ms", MISS_MS]
        self.server = start(*words, env=environment, stdout=subprocess.PIPE, stderr=log)

    async def ready(self):
        """Waits until it serves. Every page that items are on is read once."""
        line = await asyncio.to_thread(self.server.stdout.readline)
        assert line.startswith(b"ready "), f"the server said {line!r}"
        self.clients = Clients(int(line.split()[1]))
        for first in range(0, HOT_PAGES, 8):
            await asyncio.gather(*(self.clients.get(f"/item?id={first + i}") for i in range(8)))

    def ask(self, path, seconds):
        """Asks once; the answer is a task's."""
        self.asked.append(asyncio.create_task(self.clients.get(f"{path}?seconds={seconds}")))
        return self.asked[-1]

    def hogs(self, kind, seconds):
        return [self.ask(f"/hog/{kind}", seconds) for _ in range(HOGS[kind])]

    def items(self):
        return Items(self.clients, self.seed)

    async def without_agent(self):
        async with self.items() as items:
            await asyncio.sleep(1)
            self.all_served(await items.end())

    async def culprit(self, kind):
        """A hog of this kind is cancelled, and it alone."""
        told = len(self.agent.events())
        async with self.items() as items:
            slow = self.ask("/slow", CALM_S + 2)
            await asyncio.sleep(CALM_S)
            await items.in_time()
            hogs = self.hogs(kind, PATIENCE_S)
            done, _ = await asyncio.wait([*hogs, items.task], timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
            assert done, f"no hog was answered; the agent said {self.agent.events(since=told)}"
            await items.in_time()
            self.all_served([*await items.end(), await slow])
        for answer in (hog.result() for hog in hogs if hog.done()):
            self.is_told(answer, kind)
        cancels = self.agent.events("cancel", since=told)
        assert cancels and len(cancels) <= HOGS[kind], cancels
        self.names_the_hog(cancels, kind)
        await until(lambda: self.agent.events("released", since=told), "a word that it is free again")

    def is_told(self, answer, kind):
        """A client whose request was cancelled hears of it, and of what it held up."""
        resource = answer.headers.get("plimsoll-cancelled")
        assert answer.status == 503 and resource in RESOURCES[kind], (answer, answer.headers)
        assert answer.text.startswith("cancelled: ") and f" lost to {resource}," in answer.text, answer

    def names_the_hog(self, events, kind):
        for event in events:
            assert event["resource"] in RESOURCES[kind] and f"GET /hog/{kind}" in event["task"], event

    def all_served(self, answers):
        wrong = [answer for answer in answers if answer.status != 200]
        assert answers and not wrong, f"{len(wrong)} of {len(answers)}: {wrong[:3]}"

    async def agent_killed(self):
        """The server serves on; the agent that comes after cancels as the one before did."""
        async with self.items() as items:
            await asyncio.sleep(1)
            await self.agent.end(signal.SIGKILL)
            await asyncio.sleep(1)
            self.all_served(await items.end())
        await self.agent.start("enforce")
        await self.culprit("lock")

    async def shadow(self):
        """Who would be cancelled is named, and goes on."""
        await self.agent.end(signal.SIGTERM)
        await self.agent.start("shadow")
        told = len(self.agent.events())
        async with self.items() as items:
            await asyncio.sleep(CALM_S)
            (hog,) = self.hogs("lock", SHADOW_S)
            held = await hog
            await items.in_time()
            self.all_served([*await items.end(), held])
        assert not self.agent.events("cancel", since=told), self.agent.events("cancel", since=told)
        would = await until(lambda: self.agent.events("would_cancel", since=told), "an event that says who would be cancelled")
        self.names_the_hog(would, "lock")


async def run(bed):
    """All checks of one language, one after the other, since they share a server. How many failed."""
    language = bed.language
    checks = {
        "no-agent": bed.without_agent,
        "lock": lambda: bed.culprit("lock"),
        "cache": lambda: bed.culprit("cache"),
        "agent-killed": bed.agent_killed,
        "shadow": bed.shadow,
        "pool": lambda: bed.culprit("pool"),
    }
    failed = 0
    for name, check in checks.items():
        # A machine that is shared may have been busy with something else.
        for last in (False, True):
            try:
                if name in ("lock", "pool"):
                    if bed.agent.child:
                        await bed.agent.end(signal.SIGTERM)
                    await bed.agent.start("enforce")
                await check()
                print(f"culprit {language}-{name} ok", flush=True)
                break
            except Exception as error:  # a check that breaks is a check that failed
                failed += last
                how = "FAILED" if last else "once more"
                print(f"culprit {language}-{name} {how}: {type(error).__name__}: {error}", flush=True)
                # The next try begins as calmly as this one did.
                await asyncio.wait([*bed.asked, asyncio.create_task(asyncio.sleep(0))], timeout=PATIENCE_S)
    if failed:
        for name in ("agent.log", "events.jsonl", "server.log"):
            print(f"--- {language}: {name}\n{tail(bed.directory / name)}", flush=True)
    return failed


def tail(path):
    return path.read_text(errors="replace")[-3000:] if path.exists() else ""


async def main():
    words = sys.argv[1:]
    seed = int(words.pop(words.index("--seed") + 1)) if "--seed" in words else random.randrange(1 << 30)
    chosen = [word for word in words if word != "--seed"] or LANGUAGES
    if unknown := [word for word in chosen if word not in LANGUAGES]:
        sys.exit(f"there is no SDK for {', '.join(unknown)}; there are {', '.join(LANGUAGES)}")
    for binary in (PLIMSOLL, RUST_TESTBED):
        if not binary.exists():
            sys.exit(f"{binary} is not there: cargo build --release -p plimsoll -p plimsoll-sdk-testbed")
    print(f"seed {seed}")
    began = time.monotonic()
    beds = [Bed(language, seed) for language in chosen]
    await asyncio.gather(*(bed.ready() for bed in beds))
    failed = sum(await asyncio.gather(*(run(bed) for bed in beds)))
    print(f"{6 * len(chosen) - failed} passed, {failed} failed, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    atexit.register(clean_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(asyncio.run(main()))
