"""What accounts cost a real server: CPU time a request and saturated throughput of `sdk/LANG/testbed`, with its SDK and without.

Five servers of a language run at once, so that all see the same state of the machine:

- `off`: with `--no-sdk` there are no tasks and no accounts, and locks and pools are those of the language;
- `alone`: with accounts and no agent;
- `calm`: with an agent that finds all well;
- `off, hog` and `exact, hog`: somebody sits on one of the eight workers, and the objective is missed all the time, so that the agent suspects
  an overload, asks for exact stamps and looks fifty times a second. It is in shadow, so the hog stays.

In a round the first three and then the last two are sent the same requests at the same time, at a fixed rate; then each in turn, in an
order that rotates, is sent as many as it can answer over 16 connections. Ratios are taken within a round. CPU time is that of the server's process, all
threads that ever were included, over the requests that it answered. Servers are started anew every few rounds: luck with addresses is no result.
"""

import argparse
import datetime
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import culprits
from bench import machine
from bench.stats import ratios, spread
from bench.usage import Bystanders

HERE = Path(__file__).resolve().parent
OFF, ALONE, CALM, OFF_HOG, EXACT_HOG = "off", "alone", "calm", "off, hog", "exact, hog"
COMPARED = [(ALONE, OFF), (CALM, OFF), (EXACT_HOG, OFF_HOG)]
# In calm nobody is ever late; beside the hog everybody is.
OBJECTIVE = {CALM: "60s", EXACT_HOG: "0.2ms"}
TARGET_PCT = {ALONE: 0.3, CALM: 0.3, EXACT_HOG: 2.0}
RATE_PER_S = {"python": 150}
USUAL_RATE_PER_S = 400
CONNECTIONS = 16
# Compilers that compile while the server runs need their time.
WARM_UP = {"java": 8_000}
USUAL_WARM_UP = 2_000
FLAGS_AT, EXACT = 0xC8, 1
# Above this, what others did is in the figures.
BUSY_PCT = 10


def cpu_ns(pid):
    """The CPU time of a process, of its ended threads as well: its CPU clock, whose number the kernel makes of the pid."""
    return time.clock_gettime_ns((~pid << 3) | 2)


class Server:
    """A testbed server in one of the five settings, and its agent if it has one."""

    def __init__(self, language, words, environment, setting, directory):
        self.language, self.setting = language, setting
        self.directory = directory / setting.replace(", ", "-")
        self.directory.mkdir(mode=0o700, parents=True)
        off = ["--no-sdk"] if setting in (OFF, OFF_HOG) else []
        environment = {**os.environ, **environment, "PLIMSOLL_DIR": str(self.directory)}
        log = open(self.directory / "log", "wb")
        self.child = culprits.start(*words, "--port", 0, *off, env=environment, stdout=subprocess.PIPE, stderr=log)
        self.port = int(self.child.stdout.readline().split()[1])
        self.agent = self.start_agent() if setting in OBJECTIVE else None
        self.hog = culprits.start("curl", "-s", f"http://127.0.0.1:{self.port}/hog/pool?seconds=600") if "hog" in setting else None

    def start_agent(self):
        config = self.directory / "plimsoll.toml"
        config.write_text(
            f'[agent]\nadmin = "127.0.0.1:{culprits.free_port()}"\nledgers = ["{self.directory}"]\n'
            f'[app.testbed-{self.language}]\nslo = {{ p99 = "{OBJECTIVE[self.setting]}" }}\nmode = "shadow"\n'
        )
        log = open(self.directory / "agent.log", "wb")
        return culprits.start(culprits.PLIMSOLL, "agent", "--config", config, stdout=log, stderr=log)

    def send(self, rate, seconds):
        """Begins to send items."""
        words = [culprits.PLIMSOLL, "load", "--target", f"http://127.0.0.1:{self.port}/item?id=7", "--rate", rate, "--duration", f"{seconds}s"]
        words += ["--connections", CONNECTIONS, "--json"]
        return culprits.start(*words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def is_exact(self):
        """Whether its ledger says that stamps are exact."""
        (ledger,) = self.directory.glob("*.ledger")
        with open(ledger, "rb") as file:
            file.seek(FLAGS_AT)
            return struct.unpack("<Q", file.read(8))[0] & EXACT != 0

    def check(self):
        """What a figure is called, it is of."""
        if self.setting in (OFF, OFF_HOG):
            assert not list(self.directory.glob("*.ledger")), "it keeps accounts"
        else:
            assert self.is_exact() == (self.setting == EXACT_HOG), f"{self.language}, {self.setting}: exact is {self.is_exact()}"

    def end(self):
        for child in filter(None, (self.hog, self.agent, self.child)):
            child.send_signal(signal.SIGTERM)
            child.wait(20)


def answered(load):
    report = json.loads(load.communicate(timeout=600)[0])
    total = report["total"]
    assert total["ok"] == total["sent"] > 0, total
    return total["ok"], report["elapsed_s"]


def at_fixed_rate(servers, seconds):
    """CPU time a request of servers that are sent the same at the same time, in microseconds."""
    rate = RATE_PER_S.get(servers[0].language, USUAL_RATE_PER_S)
    before = [cpu_ns(server.child.pid) for server in servers]
    loads = [server.send(rate, seconds) for server in servers]
    time.sleep(seconds / 2)
    for server in servers:
        server.check()
    counts = [answered(load)[0] for load in loads]
    after = [cpu_ns(server.child.pid) for server in servers]
    return {s.setting: (b - a) / n / 1e3 for s, a, b, n in zip(servers, before, after, counts, strict=True)}


def saturated(server, requests):
    """Requests a second, and CPU time a request in microseconds."""
    before = cpu_ns(server.child.pid)
    count, elapsed = answered(server.send(requests * 50, 0.02))
    return count / elapsed, (cpu_ns(server.child.pid) - before) / count / 1e3


def measure(language, chosen):
    """What the rounds gave: a list of figures for each kind of figure and setting."""
    words, environment = culprits.command(language)
    figures = {}
    agents = {CALM: [], EXACT_HOG: []}

    def note(kind, values):
        for setting, value in values.items():
            figures.setdefault(kind, {}).setdefault(setting, []).append(value)

    for start in range(chosen.starts):
        directory = culprits.WORK / f"{language}-{start}"
        servers = [Server(language, words, environment, setting, directory) for setting in (OFF, ALONE, CALM, OFF_HOG, EXACT_HOG)]
        for server in servers:
            answered(server.send(WARM_UP.get(language, USUAL_WARM_UP) * 50 // chosen.warm_up_divisor, 0.02))
        time.sleep(2)
        for number in range(chosen.rounds):
            began = time.monotonic(), {s.setting: cpu_ns(s.agent.pid) for s in servers if s.agent}
            note("fixed", at_fixed_rate(servers[:3], chosen.seconds))
            note("fixed", at_fixed_rate(servers[3:], chosen.seconds))
            elapsed_ns = (time.monotonic() - began[0]) * 1e9
            for server in servers:
                if server.agent:
                    agents[server.setting].append(100 * (cpu_ns(server.agent.pid) - began[1][server.setting]) / elapsed_ns)
            turn = servers[number % 5 :] + servers[: number % 5]
            rates = {server.setting: saturated(server, chosen.requests) for server in turn}
            note("throughput", {setting: rate for setting, (rate, _) in rates.items()})
            note("saturated", {setting: cpu for setting, (_, cpu) in rates.items()})
        for server in servers:
            server.end()
    return {"figures": figures, "agents": agents}


def percent(ours, theirs):
    """By how much ours are more, in per cent: the median of the rounds, the lowest and the highest."""
    return spread([100 * (ratio - 1) for ratio in ratios(ours, theirs)], 2)


def rows(results):
    """The table: a line for each language and comparison."""
    yield "| language | setting | CPU a request, off | more CPU at a fixed rate, % | the same of the lowest | more CPU saturated, % | throughput, % | target |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for language, result in results.items():
        for ours, theirs in COMPARED:
            f = result["figures"]
            cells = [
                language,
                ours,
                f"{spread(f['fixed'][theirs], 1)} us",
                percent(f["fixed"][ours], f["fixed"][theirs]),
                f"{100 * (min(f['fixed'][ours]) / min(f['fixed'][theirs]) - 1):.2f}",
                percent(f["saturated"][ours], f["saturated"][theirs]),
                percent(f["throughput"][ours], f["throughput"][theirs]),
                f"{TARGET_PCT[ours]} %",
            ]
            yield "| " + " | ".join(cells) + " |"


def versions():
    """What the servers were built with."""
    said = {}
    for name, words in {
        "gcc": ["gcc", "--version"],
        "go": ["go", "version"],
        "python": [sys.executable, "--version"],
        "rustc": ["rustc", "--version"],
        "java": ["bash", "-c", f"cd {culprits.ROOT}/sdk/java && . ./jdk.sh"],
    }.items():
        said[name] = subprocess.run(words, capture_output=True, text=True).stdout.strip().split("\n")[-1 if name == "java" else 0]
    said["java"] = said["java"].removeprefix("with the ").split(" in ")[0]
    return said


def page(results, chosen, others_pct):
    host = machine.describe()
    yield "# What accounts cost a real server\n"
    yield f"Written by `benches/culprits/run.sh {' '.join(sys.argv[1:])}` on {datetime.date.today()}.\n"
    yield f"{host['cpu']}, {host['cpus']} CPUs, {host['memory_gib']} GiB, {'virtual, ' if host['virtual'] else ''}{host['os']}, Linux {host['kernel']}. "
    yield f"{'; '.join(versions().values())}.\n"
    yield f"Each figure: {chosen.starts} starts of all servers, {chosen.rounds} rounds each, {chosen.seconds} s at the fixed rate "
    yield f"({USUAL_RATE_PER_S} a second and server, python {RATE_PER_S['python']}) and {chosen.requests} requests saturated; median [lowest, highest] of the rounds. "
    yield f"Meanwhile others took {others_pct:.0f} % of one CPU of the {host['cpus']}.\n"
    if others_pct > BUSY_PCT:
        yield "**The machine was busy: caches were cold and turns were late, so this is good for a smoke test and for nothing else.**\n"
    yield "`alone`: SDK, no agent. `calm`: SDK and agent. `exact, hog`: SDK and agent with exact stamps, a hog around, against the same without the SDK. "
    yield "CPU time a request is the figure to go by, and where others disturb, the lowest of all rounds beside the lowest of all rounds; throughput is what "
    yield "it was with all that the machine did besides.\n"
    yield from rows(results)
    yield "\nThe agent itself, in % of a CPU:\n"
    yield "| language | calm | exact, hog |\n| --- | --- | --- |"
    for language, result in results.items():
        yield f"| {language} | {spread(result['agents'][CALM], 2)} | {spread(result['agents'][EXACT_HOG], 2)} |"


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("languages", nargs="*", help="those alone")
    words.add_argument("--quick", action="store_true", help="a smoke test in two minutes, which writes nothing")
    words.add_argument("--starts", type=int, default=3)
    words.add_argument("--rounds", type=int, default=10, help="from one start to the next")
    words.add_argument("--seconds", type=float, default=4, help="at the fixed rate")
    words.add_argument("--requests", type=int, default=3000, help="saturated")
    chosen = words.parse_args()
    chosen.warm_up_divisor = 1
    if chosen.quick:
        chosen.starts, chosen.rounds, chosen.seconds, chosen.requests, chosen.warm_up_divisor = 1, 2, 1, 300, 4
    if unknown := set(chosen.languages) - set(culprits.LANGUAGES):
        sys.exit(f"there is no SDK for {', '.join(unknown)}; there are {', '.join(culprits.LANGUAGES)}")
    with Bystanders() as others:
        results = {}
        for language in chosen.languages or culprits.LANGUAGES:
            results[language] = measure(language, chosen)
            print("\n".join(rows({language: results[language]})), file=sys.stderr, flush=True)
    text = "\n".join(page(results, chosen, others.cpu_pct)) + "\n"
    print(text)
    if not chosen.quick and not chosen.languages:
        (HERE / "RESULTS.md").write_text(text)


if __name__ == "__main__":
    import atexit

    atexit.register(culprits.clean_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
