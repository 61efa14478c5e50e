"""Makes benches/results/postgres.json from what has been run: benches/results.py makes the page of it.

The figures with the agent are compared with the undisturbed run of the same repetition, which saw the same requests at the same time. When an
objective was missed, whose statements ended and how the requests went the clients say; the agent's own word is used for nothing but
whom it cancelled and when.
"""

import argparse
import datetime
import json
import sys
from pathlib import Path

from bench import machine, stats

HERE = Path(__file__).resolve().parent
CASES = {
    "c6": "a transaction has updated every row and goes on",
    "c7": "an import fills the write-ahead log",
    "c8": "a vacuum keeps the disk busy",
    "alter": "ALTER TABLE behind a long SELECT",
}
ABOUT = """The cases of ATROPOS that are about PostgreSQL, and the lock queue that every operator knows, on a stock PostgreSQL with 32 connections \
and {rates} requests a second (open loop: half updates, three tenths reads, two tenths inserts; {seconds} s a run, the culprit comes at second {at}). \
`plimsoll agent` runs beside it with `pg_monitor` and `pg_signal_backend` alone; the load and the culprits are an ordinary role. 99 % of requests are promised \
an answer within {slo} ms. Latencies count from when a request was to be sent, and requests are counted when they came. What clients saw decides: \
the objective is *missed* when more than 1 % of a second's requests have become late, and the two seconds that are left out begin with the culprit. c7 and c8 have \
a slow disk (control groups), c6 and alter keep their data in memory. Each run with the agent is held against an undisturbed one of the same requests at the same time, \
on a server of its own{realtime}."""
REALTIME = ", because the machine was busy with other work: hence also the real-time priority of all that is measured"


def main():
    parser = argparse.ArgumentParser(prog="run.sh report", description=__doc__)
    parser.add_argument("--runs", type=Path, default=HERE / "runs", help="the directory with the lines of the runs")
    parser.add_argument("--out", type=Path, default=machine.ROOT / "benches" / "results" / "postgres.json")
    options = parser.parse_args()
    lines = read(options.runs / "cases.jsonl")
    watched = [line for line in lines if line["with"] == "agent"]
    if not watched:
        raise SystemExit(f"no run with the agent in {options.runs}; run.sh cases makes them")
    calm = {(line["case"], line["seed"]): line for line in lines if line["with"] == "calm"}
    runs = [compared(line, calm[line["case"], line["seed"]]) for line in watched if (line["case"], line["seed"]) in calm]
    cases = {case for case, _ in calm}
    alone = [line for line in lines if line["with"] == "nobody" and line["case"] in cases]
    overhead = read(options.runs / "overhead.jsonl")
    tables = [with_agent(runs), with_nobody(alone, calm)]
    tables += [simulated(alone, calm, read(options.runs / "simulated.jsonl"))] + overheads(overhead)
    found = {
        "id": "postgres",
        "title": "A real PostgreSQL and the agent",
        "about": about(watched),
        "command": "benches/postgres/run.sh cases; benches/postgres/run.sh overhead; benches/postgres/run.sh report",
        "taken": datetime.datetime.fromtimestamp(watched[-1]["began"], datetime.UTC).strftime("%Y-%m-%d"),
        "quick": False,
        "machine": machine.describe(),
        **machine.commit(),
        "versions": {"PostgreSQL": next((line["version"] for line in lines if "version" in line), "?")},
        "tables": [table for table in tables if table],
        "targets": targets(runs) + overhead_targets(overhead),
        "raw": "benches/postgres/runs",
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    show(found)


def read(file):
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def about(watched):
    first = watched[0]
    rates = " or ".join(f"{rate:.0f}" for rate in sorted({line["rate"] for line in watched}))
    realtime = REALTIME if first.get("realtime") else ""
    return ABOUT.format(rates=rates, seconds=first["seconds"], at=first["at_s"], slo=first["slo_ms"], realtime=realtime)


def compared(line, calm):
    """The figures of a run with the agent beside those of its undisturbed twin."""
    clients, culprit = line["clients"], line["tasks"][-1]
    ended = [event for event in line["events"] if event["event"] == "cancel"]
    right = bool(ended) and all(event["pid"] == culprit["pid"] for event in ended) and culprit["how"] == "Cancelled"
    missed, over = clients["missed_s"], clients["over_s"]
    after = lambda at: None if missed is None or at is None else 1e3 * (at - missed)
    return {
        "case": line["case"],
        "seed": line["seed"],
        "throughput": ratio(line, calm, "figures", "throughput_per_s"),
        "p99": ratio(line, calm, "figures", "p99_ms"),
        "p99_without": ratio(line, calm, "figures_without_2s", "p99_ms"),
        "right": right,
        "victims": clients["others_ended"] + clients["requests_ended"],
        "lost": line["figures"]["sent"] - line["figures"]["ok"],
        "cancelled_ms": after(ended[0]["at_s"]) if ended else None,
        "gone_ms": after(clients["culprit_ended_s"]),
        "over_ms": after(over),
    }


def ratio(line, calm, figures, key):
    return line[figures][key] / calm[figures][key]


def with_agent(runs):
    columns = ["", "runs", "throughput", "p99 without 2 s", "p99", "culprit named", "victims", "requests lost"]
    columns += ["missed to cancelled, ms", "to culprit gone, ms", "to last late answer, ms"]
    rows = []
    for case, of in by_case(runs):
        cells = [f"{sum(run['right'] for run in of)} of {len(of)}", sum(run["victims"] for run in of), sum(run["lost"] for run in of)]
        values = lambda key, digits, of=of: stats.spread([run[key] for run in of], digits)
        rows.append([
            f"{case}: {CASES[case]}", len(of), values("throughput", 3), values("p99_without", 2), values("p99", 2), *cells,
            values("cancelled_ms", 0), values("gone_ms", 0), values("over_ms", 0),
        ])
    return table("With the agent, as multiples of the undisturbed run: median [lowest, highest]", columns, rows)


def with_nobody(alone, calm):
    columns = ["", "runs", "throughput", "p99", "requests lost, %"]
    rows = []
    for case, of in by_case(alone):
        twins = [twin(line, calm) for line in of]
        ratios = lambda key, digits, of=of, twins=twins: stats.spread(
            [ratio(line, twin, "figures", key) for line, twin in zip(of, twins)], digits
        )
        lost = [100 * (1 - line["figures"]["ok"] / line["figures"]["sent"]) for line in of]
        rows.append([f"{case}: {CASES[case]}", len(of), ratios("throughput_per_s", 3), ratios("p99_ms", 0), stats.spread(lost, 1)])
    return table("The same if nobody does anything about it", columns, rows) if rows else None


def simulated(alone, calm, simulated):
    """What is lost if nobody does anything about it, here and in the simulator."""
    columns = ["", "throughput, real", "simulated", "simulated/real", "p99, real", "p99, simulated"]
    rows = []
    for sim in simulated:
        of = [line for line in alone if line["case"] == sim["case"]]
        if not of:
            continue
        twins = [twin(line, calm) for line in of]
        real = stats.middle([as_simulated(line, other) for line, other in zip(of, twins)])
        p99 = stats.middle([ratio(line, other, "figures", "p99_ms") for line, other in zip(of, twins)])
        cells = [f"{real:.3f}", f"{sim['throughput']:.3f}", f"{sim['throughput'] / real:.2f}", f"{p99:.0f}x", f"{sim['p99']:.0f}x"]
        rows.append([sim["case"], *cells])
    caption = "What is lost if nobody does anything about it, and the same simulated (`paper/atropos`), where the culprit works for 100 of 115 s"
    return table(caption, columns, rows) if rows else None


def as_simulated(line, other):
    """Throughput over a run of which as much is disturbed as in the simulator."""
    length, culprit = line["seconds"], line["tasks"][-1]
    worked = min(culprit["to_s"], length) - culprit["from_s"]
    lost = (1 - ratio(line, other, "figures", "throughput_per_s")) * length / worked
    return 1 - lost * 100 / 115


def twin(line, calm):
    """The undisturbed run of the same repetition, or else another of the same case."""
    same = calm.get((line["case"], line["seed"]))
    return same or next(other for other in calm.values() if other["case"] == line["case"])


def targets(runs):
    rows = []
    for case, of in by_case(runs):
        values = lambda key: [run[key] for run in of if run[key] is not None]
        n = f"{len(of)} runs"
        throughput, without = stats.middle(values("throughput")), stats.middle(values("p99_without"))
        late, right = values("cancelled_ms"), sum(run["right"] for run in of)
        victims = sum(run["victims"] for run in of)
        rows += [
            goal(f"{case}: throughput of the undisturbed run, median of {n}", "at least 0.95", f"{throughput:.3f}", throughput >= 0.95),
            goal(f"{case}: p99 without the 2 s around the action, median of {n}", "at most 1.2x", f"{without:.2f}x", without <= 1.2),
            goal(f"{case}: culprit named right", f"{len(of)} of {len(of)}", f"{right} of {len(of)}", right == len(of)),
            goal(
                f"{case}: from the objective's being missed to the first cancellation, slowest of {n}",
                "at most 300 ms", f"{max(late):.0f} ms" if late else "never", len(late) == len(of) and max(late) <= 300,
            ),
            goal(f"{case}: victims cancelled", "none", str(victims), victims == 0),
        ]
    return rows


def overheads(lines):
    """Turns with an agent beside the turns without."""
    columns = ["", "turns", "requests/s", "p50", "p99", "server's CPU a request", "agent, % of a core", "its session, % of a core", "both, % of the machine"]
    rows = []
    for name, pairs in by_load(lines):
        over = lambda of, pairs=pairs: [of(watched) / of(alone) for alone, watched in pairs]
        share = lambda key, pairs=pairs: [100 * watched[key] / watched["seconds"] for _, watched in pairs]
        both = [(a + b) / machine.describe()["cpus"] for a, b in zip(share("agent_cpu_s"), share("agent_session_cpu_s"))]
        per_request = lambda line: line["server_cpu_s"] / line["ok"] if line["ok"] else float("nan")
        # As many as come are answered, but for plain overload.
        answered = stats.spread(over(lambda line: line["throughput_per_s"]), 3) if name.startswith("plain") else "-"
        rows.append([
            name, len(pairs), answered,
            stats.spread(over(lambda line: line["p50_ms"]), 2), stats.spread(over(lambda line: line["p99_ms"]), 2),
            stats.spread(over(per_request), 3),
            stats.spread(share("agent_cpu_s")), stats.spread(share("agent_session_cpu_s")), stats.spread(both),
        ])
    caption = "What it costs to be watched: turns with an agent (in shadow), as multiples of the turns without beside them"
    return [table(caption, columns, rows)] if rows else []


def overhead_targets(lines):
    rows = []
    for name, pairs in by_load(lines):
        limit = 0.3 if name.startswith("calm") else 2.0
        cpu = [100 * (w["agent_cpu_s"] + w["agent_session_cpu_s"]) / w["seconds"] / machine.describe()["cpus"] for _, w in pairs]
        took = stats.middle(cpu)
        rows.append(goal(f"{name}: CPU of the agent and its session, of the machine's", f"at most {limit} %", f"{took:.2f} %", took <= limit))
    return rows


def by_load(lines):
    """Turns in pairs, without and with an agent, by load."""
    groups = {}
    for line in lines:
        kind = f"overload by {line['culprit']}" if line["culprit"] else "calm" if line["rate"] < 1000 else "plain overload"
        groups.setdefault(f"{kind}, {line['connections']} connections", []).append(line)
    for name, of in groups.items():
        alone, watched = ([line for line in of if line["watched"] == it] for it in (False, True))
        yield name, list(zip(alone, watched))


def by_case(runs):
    for case in CASES:
        of = [run for run in runs if run["case"] == case]
        if of:
            yield case, of


def goal(what, target, measured, met):
    return {"what": what, "target": target, "measured": measured, "met": bool(met)}


def table(caption, columns, rows):
    return {"caption": caption, "columns": columns, "rows": [[str(cell) for cell in row] for row in rows]}


def show(found):
    for part in found["tables"]:
        print(f"\n{part['caption']}")
        for row in [part["columns"], *part["rows"]]:
            print(" | ".join(row))
    print()
    for target in found["targets"]:
        print(f"{'met   ' if target['met'] else 'MISSED'} {target['what']}: {target['measured']} ({target['target']})")


if __name__ == "__main__":
    sys.exit(main())
