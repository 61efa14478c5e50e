"""What a decision, a refusal and a whole request cost: the gate beside Netflix concurrency-limits and failsafe-go.

The three programs take turns, so that each round of them sees the same state of the machine. A figure is the median
of the rounds' medians. Where valgrind is installed, instructions are counted as well: those do not depend on the machine.
"""

import re
import shutil
import subprocess

import programs
from bench import options
from bench.record import Record
from bench.stats import middle, ratios, spread
from bench.usage import Bystanders

TITLE = "What a decision costs"
ABOUT = (
    "One thread; every request is of another class and took another time, both drawn in advance (lognormal, means of "
    "0.5 to 25 ms, sigma 0.92). A whole cycle is all that admission does for a request: decision, entering and leaving "
    "the queue, completion. Plimsoll judges percentiles of 11 or 100 classes and explains a refusal; the others "
    "keep one limit for everything and refuse without a word. `and its clock reads` adds what a host needs: three "
    "reads for Plimsoll, which is told the time, two or more inside the others."
)
CYCLE, CLOCKED, REFUSAL = "whole cycle", "whole cycle and its clock reads", "refusal"
# Rows of the comparison: its name, the program, and what the program calls each of the three.
COMPARED = [
    ("plimsoll, bouncer, 11 classes", "plimsoll", "{}, 11 classes"),
    ("plimsoll, bouncer, 100 classes", "plimsoll", "{}, 100 classes"),
    ("plimsoll, vegas", "plimsoll", "{}, vegas"),
    ("plimsoll, gradient2", "plimsoll", "{}, gradient2"),
    ("concurrency-limits, vegas", "netflix", "{}, vegas"),
    ("concurrency-limits, gradient2", "netflix", "{}, gradient2"),
    ("failsafe-go, adaptive limiter", "failsafe-go", "{}"),
]
# No dearer, but for what a benchmark can tell apart.
MOST_FOR_100_CLASSES = 1.05
COUNTED_TURNS = (100_000, 300_000)


def main():
    chosen = options.parse(__doc__.splitlines()[0], runs=7)
    if chosen.only:
        raise SystemExit("this benchmark has no parts to choose from")
    rounds = 20 if chosen.quick else 200
    run = programs.build()
    record = Record("decision", TITLE, ABOUT, chosen, [])
    record.found["command"] = record.found["command"].replace("gateways/decision", "decision/run.sh")
    record.found["versions"] = programs.versions()
    raw = []
    for round in chosen.rounds:
        for program in options.rotated(list(run), round):
            with Bystanders() as others:
                rows = run[program](rounds)
            raw += [dict(row, program=program, round=round, others_cpu_pct=others.cpu_pct) for row in rows]
    report(record, raw)
    record.finish(raw)


def report(record, raw):
    """The tables and what was promised."""
    found = {}
    for row in raw:
        found.setdefault((row["program"], row["what"]), []).append(row["p50"])
    ours = {what: ns for (program, what), ns in found.items() if program == "plimsoll"}
    targets = {row["what"]: row["target"] for row in raw if row.get("target")}
    for what, most in targets.items():
        ns = middle(ours[what])
        record.target(f"{what}, ns", f"<= {most:g}", f"{ns:.1f}", ns <= most)
    dearer = middle(ratios(ours[f"{CYCLE}, 100 classes"], ours[f"{CYCLE}, 11 classes"]))
    what = f"{CYCLE} at 100 classes, relative to 11"
    record.target(what, f"<= {MOST_FOR_100_CLASSES}", f"{dearer:.2f}", dearer <= MOST_FOR_100_CLASSES)

    rows = [[name, *beside(found, program, pattern)] for name, program, pattern in COMPARED]
    clocked = found["plimsoll", f"{CLOCKED}, 11 classes"]
    for row, (_, program, pattern) in zip(rows, COMPARED):
        theirs = found.get((program, pattern.format(CLOCKED)))
        row.append(spread(ratios(theirs, clocked)) if theirs else "-")
    columns = ["nanoseconds a request", CYCLE, CLOCKED, REFUSAL, "with clock reads, relative to bouncer"]
    rounds = 1 + max(row["round"] for row in raw)
    record.table(f"Side by side: median [lowest, highest] of {rounds} rounds", columns, rows)
    reads = [[program, spread(found[program, "clock read"])] for program in ("plimsoll", "netflix", "failsafe-go")]
    record.table("One clock read, which no limiter can do without", ["", "nanoseconds"], reads)

    counted = instructions(ours)
    if counted:
        record.found["versions"]["valgrind"] = said(["valgrind", "--version"])
    rows = [[what, spread(ns), counted.get(what, "-")] for what, ns in ours.items() if what != "clock read"]
    record.table("The gate, all cases", ["", "nanoseconds", "instructions"], rows)


def beside(found, program, pattern):
    """What a program measured of the cycle, the cycle with clock reads, and the refusal."""
    cells = [spread(found.get((program, pattern.format(what)), [])) for what in (CYCLE, CLOCKED)]
    refusals = [found.get((program, what)) for what in (pattern.format(REFUSAL), REFUSAL)]
    return [*cells, spread(next(filter(None, refusals), []))]


def instructions(cases):
    """Instructions a turn of each of these cases that has one thread: the difference of a long and a short run."""
    if not shutil.which("valgrind"):
        return {}
    executable = programs.plimsoll_executable()

    def run(case, turns):
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", executable]
        text = subprocess.run([*command, "--turns", str(turns), case], capture_output=True, text=True, check=True)
        return int(re.search(r"Collected : (\d+)", text.stderr)[1])

    def count(case):
        short, long = COUNTED_TURNS
        return f"{(run(case, long) - run(case, short)) / (long - short):.0f}"

    return {case: count(case) for case in cases if "thread" not in case and "clock" not in case}


def said(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
