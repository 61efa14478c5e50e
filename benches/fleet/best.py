"""How near rate control comes to the best possible on random fleets, beside others, and how soon it follows a change.

All of it is simulated (`plimsoll fleet study` and `converge`), so it is the same on every machine.
"""

import json
import subprocess

from bench import options
from bench.machine import ROOT
from bench.record import Record

TITLE = "Rate control of random fleets"
ABOUT = (
    "Simulated: the same on every machine. `study`: fleets of 2 to 60 services and 2 to 30 APIs, of which one service is asked for 1.5 to 5 times what it can do and "
    "up to a quarter of the others for too much, too; a minute each, signals every 250 ms; the optimum is that of a linear programme, the share of it the least over "
    "priority levels. `converge`: the same fleets three times as large, of which something changes once: the load, a third of all instances, or three times as many. "
    "Fleets are drawn from seeds, and `plimsoll fleet draw --seed N` shows one. The paper's figures are TopFull's goodput over that of the others on fleets of its own."
)
MEAN, P5 = 0.95, 0.90
PAPER = {"dagor": 1.82, "breakwater": 2.26}
FLEETS, CHANGED = 200, 48


def main():
    chosen = options.parse(__doc__.splitlines()[0], runs=1)
    if chosen.only:
        raise SystemExit("this benchmark has no parts to choose from")
    record = Record("fleet-best", TITLE, ABOUT, chosen, [])
    record.found["command"] = record.found["command"].replace("gateways/fleet-best", "fleet/best")
    fleets, changed = (10, 3) if chosen.quick else (FLEETS, CHANGED)
    program = built()
    study = said(program, "study", fleets, 1)
    again = said(program, "study", fleets, fleets + 1, "--controller", "model", "--controller", "learned")
    converge = said(program, "converge", changed, 1)
    report(record, study, again, converge)
    record.finish([{"study": study, "again": again, "converge": converge}])


def report(record, study, again, converge):
    """The tables and what was promised."""
    of = {outcome["controller"]: outcome for outcome in study["controllers"]}
    share = of["model"]["share_of_optimum"]
    record.target("the default's share of the optimum, mean", f">= {MEAN:.2f}", f"{share['mean']:.3f}", share["mean"] >= MEAN)
    record.target("the same, 5th percentile", f">= {P5:.2f}", f"{share['p5']:.3f}", share["p5"] >= P5)
    for name, times in PAPER.items():
        measured = of["model"]["goodput_of_optimum"] / of[name]["goodput_of_optimum"]
        record.target(f"the default's goodput over `{name}`'s, times (the paper's)", f">= {times}", f"{measured:.2f}", measured >= times)
    for telemetry in ("agents", "prometheus"):
        rows = [outcome for outcome in converge["outcomes"] if outcome["telemetry"] == telemetry]
        runs, within_s = converge["fleets"] * len(rows), rows[0]["within_s"]
        for key, what in (("within", f"steady within {within_s:g} s after a change"), ("brief", "overshoot of at most a second")):
            count = sum(row[key] for row in rows)
            record.target(f"{what}, told as by {telemetry}, of {runs} runs", f"{runs}", f"{count}", count == runs)

    columns = ["share of the optimum: mean", "5th percentile", "median", "goodput of all, of the optimum", "never steady"]
    for found, caption in ((study, ""), (again, ", of others")):
        seeds = f"{found['seed']} to {found['seed'] + found['fleets'] - 1}"
        rows = [
            [f"`{outcome['controller']}`", *(f"{outcome['share_of_optimum'][key]:.3f}" for key in ("mean", "p5", "p50")),
             f"{outcome['goodput_of_optimum']:.3f}", outcome["never_steady"]]
            for outcome in found["controllers"]
        ]
        record.table(f"Fleets of seeds {seeds}{caption}", ["controller", *columns], rows)
    columns = ["told as by", "change", "steady: median, s", "95th percentile, s", "not in time: seeds", "never", "overshoot: 95th percentile, s", "longer than a second: seeds", "share"]
    rows = [
        [outcome["telemetry"], outcome["change"], f"{outcome['converged_s']['p50']:.2f}", f"{outcome['converged_s']['p95']:.2f}", listed(outcome["not_within"]),
         outcome["never_steady"], f"{outcome['overshoot_s']['p95']:.2f}", listed(outcome["not_brief"]), f"{outcome['share_of_optimum']['mean']:.3f}"]
        for outcome in converge["outcomes"]
    ]
    record.table(f"A change, {converge['fleets']} fleets each", columns, rows)


def listed(seeds):
    return ", ".join(map(str, seeds)) or "-"


def built():
    """Builds the fleet simulator; where it is."""
    command = ["cargo", "build", "--release", "--locked", "-p", "plimsoll-simulator", "--example", "fleet", "--message-format=json"]
    text = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    messages = map(json.loads, text.splitlines())
    return next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "fleet")


def said(program, what, fleets, seed, *more):
    command = [program, what, "--fleets", str(fleets), "--seed", str(seed), "--json", *more]
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
