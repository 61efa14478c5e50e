"""What a step of rate control costs in a fleet of 15,000 services, and how many spans a second one core takes.

All of it is CPU time of the one thread that does the work. The flood comes over a socket, as fast as it is taken.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from bench import options
from bench.machine import ROOT
from bench.record import Record
from bench.stats import middle, spread
from bench.usage import Bystanders

TITLE = "Rate control of a large fleet"
ABOUT = (
    "A step takes in what was seen of every service and API, finds what is overloaded, clusters, and decides every rate (`cargo bench "
    "--bench step`). In each cluster all APIs call one service that can do two thirds of what is sent, and six others; all clusters share a front end that "
    "can do twice as much. Every signal changes in every step, and one service in a hundred is slow by turns. A figure is "
    "the median over 200 steps, in CPU time. Spans: messages of 8,184 spans in traces of 11, six services, 20 APIs; read and learnt from, by "
    "themselves (`cargo bench --bench spans`) and by the whole receiver over OTLP/gRPC on a socket (`cargo run --example flood`, 20 s), per second "
    "of CPU time of its thread; and once more where every request is of an API that nobody has ever seen. Of what is more than its memory is for, whole traces are left out."
)
FEATURES = ["--workspace", "--features", "kubernetes,etcd"]
MOST_MS, LEAST_PER_S, MOST_MIB = 20.0, 200_000, 256
# The paper's case, section 6.4: 15,000 services and 1,000 clusters.
LARGE = 15_001
FLOODS = {"flood": [], "a flood of names": ["distinct"]}
READINGS = {"generated types, read": "read by generated types, nothing learnt", "ours, read and learnt": "read and learnt",
            "ours, unpacked, read and learnt": "unpacked (gzip), read and learnt"}


def main():
    chosen = options.parse(__doc__.splitlines()[0], runs=5)
    if chosen.only:
        raise SystemExit("this benchmark has no parts to choose from")
    step, spans, flood = built("step", "bench"), built("spans", "bench"), built("flood", "example")
    record = Record("fleet-scale", TITLE, ABOUT, chosen, [])
    record.found["command"] = record.found["command"].replace("gateways/fleet-scale", "fleet/scale")
    record.found["versions"] = {"rustc": said(["rustc", "--version"]).split()[1]}
    raw = []
    for round in chosen.rounds:
        with Bystanders() as others:
            runs = [json.loads(line) for line in said([step, "--json", *([] if chosen.quick else ["--bench"])]).splitlines()]
            runs += readings(spans, chosen.quick)
            for what, words in FLOODS.items():
                runs.append({"what": what, **json.loads(said([flood, "2" if chosen.quick else "20", *words]))})
        raw += [dict(run, round=round, others_cpu_pct=others.cpu_pct) for run in runs]
    report(record, raw)
    record.finish(raw)


def report(record, raw):
    """The tables and what was promised."""
    cases = {}
    for run in raw:
        if "controller" in run:
            case = (run["controller"], run["services"], run["apis"])
            cases.setdefault(case, []).append(run)
    for (controller, services, apis), runs in cases.items():
        if services == LARGE:
            took_ms = middle([run["p50_us"] / 1e3 for run in runs])
            what = f"a step of `{controller}`, {services:,} services, {apis:,} APIs, {clusters(runs)} clusters, ms"
            record.target(what, f"<= {MOST_MS:g}", f"{took_ms:.1f}", took_ms <= MOST_MS)
    floods = {what: [run for run in raw if run.get("what") == what] for what in FLOODS}
    for what, runs in floods.items():
        per_s, mib = middle([run["spans_per_cpu_s"] for run in runs]), max(run["peak_rss_mib"] for run in runs)
        record.target(f"{what}: spans a second of CPU time, over a socket", f">= {LEAST_PER_S:,}", f"{per_s:,.0f}", per_s >= LEAST_PER_S)
        record.target(f"{what}: the most memory meanwhile, sender included, MiB", f"<= {MOST_MIB}", mib, mib <= MOST_MIB)

    rows = []
    for (controller, services, apis), runs in cases.items():
        columns = [[run[key] / 1e3 for run in runs] for key in ("p50_us", "p75_us", "max_us")]
        rows.append([controller, f"{services:,}", f"{apis:,}", clusters(runs), *map(spread, columns)])
    columns = ["controller", "services", "APIs", "clusters", "median, ms", "upper quartile, ms", "longest, ms"]
    rounds = 1 + max(run["round"] for run in raw)
    record.table(f"A step: median [lowest, highest] of {rounds} rounds", columns, rows)

    rows = []
    for name, what in READINGS.items():
        rows.append([what, spread([run["spans_per_s"] / 1e6 for run in raw if run.get("what") == name])])
    for what, runs in floods.items():
        rows.append([f"{what}: over a socket, the receiver's thread", spread([run["spans_per_cpu_s"] / 1e6 for run in runs])])
    record.table("Spans", ["", "million spans a second"], rows)
    told = {
        "million spans sent": ("spans", 1e-6, 1), "part of the traces that was learnt from": ("taken_share", 1, 2),
        "APIs learnt": ("apis", 1, 0), "most memory of the process, MiB": ("peak_rss_mib", 1, 0),
    }
    rows = [
        [name, *(spread([run[key] * factor for run in runs], digits) for runs in floods.values())]
        for name, (key, factor, digits) in told.items()
    ]
    record.table("The floods", ["", *floods], rows)


def clusters(runs):
    """How many there are in most steps."""
    return f"{max(run['clusters'] for run in runs):,}"


def readings(executable, quick):
    """Spans a second of each way to read, by Criterion's means."""
    with tempfile.TemporaryDirectory() as home:
        length = ["--warm-up-time", "1", "--measurement-time", "1" if quick else "3"]
        environment = os.environ | {"CRITERION_HOME": home}
        subprocess.run([executable, "--bench", *length], env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = []
        for file in Path(home).rglob("new/estimates.json"):
            about = json.loads((file.parent / "benchmark.json").read_text())
            seconds = json.loads(file.read_text())["mean"]["point_estimate"] / 1e9
            found.append({"what": about["function_id"], "spans_per_s": about["throughput"]["Elements"] / seconds})
        return found


def built(name, kind):
    """Builds a benchmark or example; where it is."""
    how = {"bench": ["bench", "--no-run"], "example": ["build", "--release"]}[kind]
    text = said(["cargo", *how, *FEATURES, f"--{kind}", name, "--message-format=json"])
    messages = map(json.loads, text.splitlines())
    return next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == name)


def said(command):
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
