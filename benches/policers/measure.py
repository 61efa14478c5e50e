"""What policing costs a request: the threshold policer, and a request's whole life in a batch.

A figure is the median of the rounds' medians, in CPU time of the one thread. Where valgrind is installed, instructions are
counted as well: those do not depend on the machine.
"""

import json
import re
import shutil
import subprocess

from bench import options
from bench.machine import ROOT
from bench.record import Record
from bench.stats import middle, ratios, spread
from bench.usage import Bystanders

TITLE = "What policing costs"
ABOUT = (
    "One thread, in CPU time, all classes as often as each other; sizes are lognormal (means of 0.5 to 25 ms by class, sigma 0.92). "
    "Threshold: `Police::offer`, with a leaky bucket for each class, and room for half of what comes. Batch: all that becomes of a "
    "request that waits, `Police::offer`, `Batch::push`, `Batch::process` and `Police::processed`; so many requests (16 bytes each) "
    "come, then all are answered, and a small part of them is let in. `From nothing` is with a new batch each time. Flat is taken as "
    "within a factor: between a thousand requests, which fit the caches, and ten million, which do not, there is the memory."
)
CLASSES = (3, 11, 64)
WAITING = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
THRESHOLD, BATCH = "threshold, {} classes", "batch, {} waiting, {} classes"
OTHERS = ("batch, nobody waits, {} classes", "batch, as many wait as may, {} classes")
# What was promised; what "flat" is was not said.
LEAST_PER_S = {"threshold": 20e6, "batch": 5e6}
FLAT = {"threshold": 1.25, "batch": 2.0}
# A host that answers a slice and then sees to others keeps nobody waiting for longer.
MOST_US = 1_000
# Instructions are counted over the difference of so many turns, of requests that are answered at once and of batches.
COUNTED_TURNS = {1: (100_000, 300_000), 1_000: (100, 300), 10_000: (10, 30)}


def main():
    chosen = options.parse(__doc__.splitlines()[0], runs=5)
    if chosen.only:
        raise SystemExit("this benchmark has no parts to choose from")
    executable = build()
    record = Record("policers", TITLE, ABOUT, chosen, [])
    record.found["command"] = record.found["command"].replace("gateways/policers", "policers/run.sh")
    record.found["versions"] = {"rustc": said(["rustc", "--version"]).split()[1]}
    raw = []
    for round in chosen.rounds:
        with Bystanders() as others:
            lines = said([executable, "--bench", "--json", "--share", "0.05" if chosen.quick else "1"]).splitlines()
        raw += [dict(json.loads(line), round=round, others_cpu_pct=others.cpu_pct) for line in lines]
    report(record, raw, executable)
    record.finish(raw)


def report(record, raw, executable):
    """The tables and what was promised."""
    found = {}
    for row in raw:
        found.setdefault(row["what"], []).append(row["p50"])
    threshold = [found[THRESHOLD.format(classes)] for classes in CLASSES]
    batch = {waiting: [found[BATCH.format(waiting, classes)] for classes in CLASSES] for waiting in WAITING}

    def fast(what, least, cases):
        per_s = min(1e9 / middle(ns) for ns in cases)
        record.target(f"{what}, decisions/s a core", f">= {least / 1e6:g} M", f"{per_s / 1e6:.1f} M", per_s >= least)

    def flat(what, cases, most):
        ratio = max(map(middle, cases)) / min(map(middle, cases))
        record.target(f"{what}, dearest relative to cheapest", f"<= {most}", f"{ratio:.2f}", ratio <= most)

    fast("threshold, the slowest of 3, 11 and 64 classes", LEAST_PER_S["threshold"], threshold)
    for waiting in WAITING:
        what = f"batch, {waiting:,} waiting, the slowest of 3, 11 and 64 classes"
        fast(what, LEAST_PER_S["batch"], batch[waiting])
    flat("threshold, 3 to 64 classes", threshold, FLAT["threshold"])
    for waiting in WAITING:
        flat(f"batch, {waiting:,} waiting, 3 to 64 classes", batch[waiting], FLAT["batch"])
    for i, classes in enumerate(CLASSES):
        flat(f"batch, {classes} classes, 1 k to 10 M waiting", [batch[waiting][i] for waiting in WAITING], FLAT["batch"])
    longest = max(middle(found[f"longest call of process, {waiting} waiting"]) for waiting in WAITING)
    record.target("longest call of process, us", f"<= {MOST_US:,}", f"{longest:.0f}", longest <= MOST_US)

    rounds = 1 + max(row["round"] for row in raw)
    columns = ["nanoseconds a request", *(f"{classes} classes" for classes in CLASSES)]
    rows = [["threshold", *map(spread, threshold)]]
    rows += [[f"batch, {waiting:,} waiting", *map(spread, batch[waiting])] for waiting in WAITING]
    rows += [[pattern.partition(", {}")[0], *(spread(found[pattern.format(n)]) for n in CLASSES)] for pattern in OTHERS]
    record.table(f"Both policers: median [lowest, highest] of {rounds} rounds", columns, rows)
    per_s = [[row[0], *("%.1f" % (1e3 / middle(ns)) for ns in cases)] for row, cases in zip(rows, [threshold, *batch.values()])]
    record.table("The same, million decisions a second and core", columns=["", *columns[1:]], rows=per_s)

    rows = []
    for waiting in WAITING:
        fresh = found[f"batch, {waiting} waiting, from nothing"]
        steady = batch[waiting][CLASSES.index(11)]
        pauses = [found[f"longest {what}, {waiting} waiting"] for what in ("pushes of a slice", "call of process")]
        rows.append([f"{waiting:,}", spread(fresh), spread(ratios(fresh, steady)), *(spread(us, 0) for us in pauses)])
    columns = ["waiting, 11 classes", "from nothing, ns", "relative to a used batch"]
    columns += ["longest 256 pushes, us", "longest call of process, us"]
    record.table("A crowd that comes out of nothing, and what a host waits for at a time", columns, rows)

    counted = instructions(executable)
    if counted:
        record.found["versions"]["valgrind"] = said(["valgrind", "--version"])
        record.table("Instructions a request", ["", *(f"{classes} classes" for classes in CLASSES)], counted)


def instructions(executable):
    """Rows of instructions a request: the difference of a long and a short run."""
    if not shutil.which("valgrind"):
        return []

    def run(case, turns):
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", executable]
        text = subprocess.run([*command, "--turns", str(turns), case], capture_output=True, text=True, check=True)
        return int(re.search(r"Collected : (\d+)", text.stderr)[1])

    def count(case, requests):
        short, long = COUNTED_TURNS[requests]
        return f"{(run(case, long) - run(case, short)) / (long - short) / requests:.0f}"

    rows = []
    for requests in COUNTED_TURNS:
        pattern = THRESHOLD if requests == 1 else BATCH.replace("{}", str(requests), 1)
        rows.append([pattern.partition(", {}")[0], *(count(pattern.format(classes), requests) for classes in CLASSES)])
    return rows


def build():
    """The benchmark of crates/policing."""
    command = ["cargo", "bench", "-p", "plimsoll-policing", "--bench", "policers", "--no-run", "--message-format=json"]
    messages = map(json.loads, said(command).splitlines())
    return next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "policers")


def said(command):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
