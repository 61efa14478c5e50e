"""Runs the cases again and again: one line of JSON a run, appended to a file. What is there already is not run again, so it can be
interrupted and continued, and repetitions can be added.

A repetition has a run of each case with the agent and an undisturbed one beside it; `--with nobody` makes runs in which nobody does anything
about the culprit. The seed is the number of the repetition, so those of a repetition see the same requests.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import machine

RUNS = Path(__file__).resolve().parent / "runs" / "cases.jsonl"
CASES = ["c6", "c7", "c8", "alter"]
# What 99 % of the requests are promised, in ms: some times what they take undisturbed.
OBJECTIVE_MS = 50
# Nearly until the end of the run, if nobody ends it; c8 is as long as its table is large. The report of alter goes on in any case, and
# takes a processor for as long.
HOLD_S = {"c6": 95, "c7": 0, "c8": 0, "alter": 25}
ROWS = 10_000_000
# Requests a second. The slow disk of c8 is to be busy to a third.
RATE = {"c6": 400, "c7": 400, "c8": 200, "alter": 400}
# Before what counts. Tables that have just been filled are still being written to a slow disk.
WARM_UP_S = {"c6": 5, "c7": 5, "c8": 15, "alter": 5}
# Those that are about locks keep their data in memory: a file system on which others are throttled lets everybody wait.
IN_MEMORY = {"c6", "alter"}
# Not beside each other: two that have a slow disk. Filling the tables of c8 takes so long that others would feel it.
BATCHES = [("c6", "c7"), ("c8", "alter")]
FIRST_S = {"alter": 20}
AT_S = 20


def main():
    options = arguments()
    plan = [group for group in groups(options) if group]
    lock = threading.Lock()

    def work(job):
        case, how, repetition = job
        time.sleep(FIRST_S.get(case, 0) if len(options.cases) > 1 else 0)
        line = run(options, case, how, repetition)
        with lock, options.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{time.strftime('%H:%M:%S')} {told(line)}", flush=True)

    for group in plan:
        with ThreadPoolExecutor(options.at_once) as pool:
            list(pool.map(work, group))


def arguments():
    parser = argparse.ArgumentParser(prog="run.sh cases", description=__doc__)
    parser.add_argument("--cases", nargs="+", default=CASES, choices=CASES)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="the first repetition (default 1)")
    parser.add_argument("--with", dest="hows", nargs="+", default=["calm", "agent"], choices=["calm", "agent", "nobody", "shadow"])
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--at-once", type=int, default=1, help="runs at the same time, each on a server of its own")
    parser.add_argument(
        "--realtime", action="store_true", help="all of it goes before whatever else the machine does (chrt --rr 1)"
    )
    parser.add_argument("--out", type=Path, default=RUNS)
    parser.add_argument("--programs", type=Path, default=machine.ROOT / "target" / "release", help="where the builds are")
    return parser.parse_args()


def groups(options):
    """What is still to be run. A group is over before the next begins."""
    done = set()
    if options.out.exists():
        lines = map(json.loads, options.out.read_text().splitlines())
        done = {(line["case"], line["with"], line["seed"]) for line in lines}
    for repetition in range(options.first, options.first + options.repetitions):
        for batch in BATCHES:
            jobs = [(case, how, repetition) for case in batch for how in options.hows if case in options.cases]
            yield [job for job in jobs if job not in done]


def run(options, case, how, repetition):
    """One run, as the program tells it, and what the machine did meanwhile."""
    argv = [options.programs / "examples" / "postgres_cases", case, "--with", how, "--seed", repetition]
    argv += ["--seconds", options.seconds, "--warm-up", WARM_UP_S[case], "--rate", RATE[case], "--at", AT_S, "--hold", HOLD_S[case], "--rows", ROWS]
    argv += ["--slo", OBJECTIVE_MS, "--plimsoll", options.programs / "plimsoll"]
    if options.realtime:
        argv = ["chrt", "--rr", "1", *argv]
    place = {"TMPDIR": "/dev/shm"} if case in IN_MEMORY else {}
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, env={**os.environ, **place})
    if done.returncode != 0:
        raise SystemExit(f"{case} {how} {repetition}: {done.stderr}")
    conditions = {"at_once": options.at_once, "realtime": options.realtime}
    return {**json.loads(done.stdout), **conditions, "commit": machine.commit()["commit"][:12]}


def told(line):
    """A run in a line, for who waits for it."""
    clients, ms = line["clients"], lambda seconds: "-" if seconds is None else f"{1e3 * seconds:.0f} ms"
    ends = [event for event in line["events"] if event["event"] == "cancel"]
    missed, ended = clients["missed_s"], ends[0]["at_s"] if ends else None
    after = None if missed is None or ended is None else ended - missed
    figures, elsewhere = line["figures"], line["figures_without_2s"]
    return (
        f"{line['case']:5} {line['with']:6} {line['seed']:2}  {figures['throughput_per_s']:6.1f}/s"
        f"  p99 {figures['p99_ms']:8.2f} ms, without 2 s {elsewhere['p99_ms']:8.2f} ms"
        f"  missed {missed} s, cancelled {[end['pid'] for end in ends]} {ms(after)} after"
        f"  {[(task['name'], task['pid'], task['how']) for task in line['tasks']]} {line['requests']}"
    )


if __name__ == "__main__":
    sys.exit(main())
