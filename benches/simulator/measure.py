"""How many queries a second of CPU time the simulator simulates, and how many SimPy does of the same queue.

The two take turns, so that each round of them sees the same state of the machine. SimPy is installed into a virtual
environment below target/.
"""

import json
import re
import subprocess
import sys

from bench import options
from bench.machine import ROOT
from bench.record import Record
from bench.stats import middle, ratios, spread
from bench.usage import Bystanders

TITLE = "The simulator beside SimPy"
ABOUT = (
    "The study of the Bouncer paper (paper/bouncer.toml: 100 processes, four lognormal classes, Poisson arrivals) on one core, in "
    "CPU time. SimPy simulates the queue alone, nobody being refused while fewer than 800 wait; beside it stands the simulator "
    "with policy `none`, which drives the gate of the live sentry through every query all the same. The other rows are the policies "
    "at work."
)
WORKLOAD = ROOT / "paper" / "bouncer.toml"
LOAD = "1.2"
POLICIES = ["none", "bouncer", "bouncer,allowance=0.1", "bouncer,underserved=1.0", "maxql,limit=400", "maxqwt,limit=9ms"]
LEAST_PER_S = 8e6
VENV = ROOT / "target" / "bench-simulator"


def main():
    chosen = options.parse(__doc__.splitlines()[0], runs=5)
    if chosen.only:
        raise SystemExit("this benchmark has no parts to choose from")
    python = simpy()
    subprocess.run(["cargo", "build", "--release", "--locked", "--quiet"], cwd=ROOT, check=True)
    record = Record("simulator", TITLE, ABOUT, chosen, [])
    record.found["command"] = record.found["command"].replace("gateways/simulator", "simulator/run.sh")
    queries, simpy_queries = (2_000_000, 50_000) if chosen.quick else (20_000_000, 500_000)
    raw = []
    for round in chosen.rounds:
        for program in options.rotated(["simpy", *POLICIES], round):
            with Bystanders() as others:
                found = simpy_run(python, simpy_queries) if program == "simpy" else simulate(program, queries)
            raw.append(dict(found, program=program, round=round, others_cpu_pct=others.cpu_pct))
    rustc = subprocess.check_output(["rustc", "--version"], text=True).split()[1]
    theirs = next(run for run in raw if run["program"] == "simpy")
    record.found["versions"] = {"rustc": rustc, "simpy": theirs["simpy"], "python": theirs["python"]}
    report(record, raw)
    record.finish(raw)


def report(record, raw):
    """The tables and what was promised."""
    speeds = {}
    for run in raw:
        speeds.setdefault(run["program"], []).append(run["per_s"])
    for policy in POLICIES:
        per_s = middle(speeds[policy])
        wanted = f">= {LEAST_PER_S / 1e6:g} M"
        record.target(f"{policy}, queries/s a core", wanted, f"{per_s / 1e6:.1f} M", per_s >= LEAST_PER_S)
    millions = {program: [per_s / 1e6 for per_s in per_s] for program, per_s in speeds.items()}
    rows = [
        [program, spread(millions[program], 3), spread(ratios(of, speeds["simpy"]), 0)] for program, of in speeds.items()
    ]
    record.table("Speed", ["", "million queries/s a core", "relative to SimPy"], sorted(rows))
    rows = []
    for program in ("simpy", "none"):
        runs = [run for run in raw if run["program"] == program]
        columns = ("rejected_pct", "utilization_pct", "slow_p50_ms")
        rows.append([program, *(spread([run[column] for run in runs]) for column in columns)])
    record.table(
        "The same queue: what both found", ["", "rejected, %", "utilisation, %", "slow: median response, ms"], rows
    )


def simulate(policy, queries):
    """One run of ours, on one core. The speed on stderr is in CPU time."""
    program = ROOT / "target" / "release" / "plimsoll"
    arguments = ["simulate", WORKLOAD, "--policy", policy, "--load", LOAD, "--queries", str(queries), "--json"]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    run = json.loads(done.stdout)["runs"][0]
    per_s = float(re.search(r"([\d.]+) M/s a core", done.stderr)[1]) * 1e6
    return {
        "queries": run["queries"],
        "per_s": per_s,
        "rejected_pct": run["rejected_pct"],
        "utilization_pct": run["utilization_pct"],
        "slow_p50_ms": run["classes"]["slow"]["rt_p50_ms"],
    }


def simpy_run(python, queries):
    """One run of SimPy's."""
    script = ROOT / "benches" / "simulator" / "simpy_queue.py"
    found = json.loads(subprocess.check_output([python, script, WORKLOAD, LOAD, str(queries), "1"], text=True))
    return dict(found, per_s=found["queries"] / found["cpu_s"])


def simpy():
    """A Python that has SimPy."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "simpy==4.1.1"], check=True)
    return python


if __name__ == "__main__":
    main()
