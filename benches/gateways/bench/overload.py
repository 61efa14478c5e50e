"""Requests answered inside their objectives under overload: nginx, HAProxy and Envoy beside the sentry."""

import tempfile
from pathlib import Path

from . import options, pages, tools
from .gateway import Gateway
from .load import OpenLoop
from .pages import SHARES, Pages
from .record import Record
from .stats import middle, ratios, spread
from .usage import Bystanders

# Milliseconds, 50th and 90th percentile. A request is good if it is answered within the 90th percentile of its class.
SLOS = {"cheap": (60, 120), "middling": (60, 120), "heavy": (90, 180)}
# Of eight slots with pages of 5, 20 and 60 ms in the mix 50/30/20.
CAPACITY_PER_S = 390
WORKERS = 8
LOADS = (1, 3, 10)
# All that a class under the allowance of 0.1 must at least get of what it asks for, in points. The whole tenth cannot
# be had at ten times the load: it would be all that the server can do.
STARVING_PCT = 2.0
REFUSAL_P99_MS = 2.0
STRICT, LENIENT = "sentry", "sentry allowance 0.1"
# How many times the good requests of the best of the others.
TARGETS = {STRICT: {3: 1.8, 10: 3.0}, LENIENT: {3: 1.4, 10: 2.0}}

ABOUT = (
    "One waiting server with eight slots and pages of 5, 20 and 60 ms in the mix 50/30/20, which can do "
    f"{CAPACITY_PER_S} requests a second, is offered 1, 3 and 10 times that. nginx and HAProxy are told the "
    "capacity; each of the others runs in two settings and the best of all six is what the sentry is held to. "
    "The sentry knows the eight slots and the objectives (ms, p50/p90): "
    + ", ".join(f"{name} {p50}/{p90}" for name, (p50, p90) in SLOS.items())
    + ". Good is what was answered with 200 within the class's p90 objective, counted from the intended send "
    "time. Gateway and server run on CPU 0, the load generator on CPU 1. Before each run the gateway sees five "
    "seconds of 0.8 times the capacity."
)
GATEWAYS = [
    Gateway("nginx limit_req 390/s", "overload/nginx.conf", {"rate": CAPACITY_PER_S}),
    Gateway("nginx limit_req 350/s", "overload/nginx.conf", {"rate": CAPACITY_PER_S * 9 // 10}),
    Gateway("haproxy queue 100ms", "overload/haproxy.cfg", {"queue_timeout": "100ms"}),
    Gateway("haproxy queue 30ms", "overload/haproxy.cfg", {"queue_timeout": "30ms"}),
    Gateway("envoy adaptive p90", "overload/envoy.yaml", {"percentile": 90}),
    Gateway("envoy adaptive p50", "overload/envoy.yaml", {"percentile": 50}),
    Gateway(STRICT, "overload/sentry.toml", {"allowance": "0.0", "classes": pages.classes_toml(SLOS)}),
    Gateway(LENIENT, "overload/sentry.toml", {"allowance": "0.1", "classes": pages.classes_toml(SLOS)}),
]
OTHERS = [gateway.name for gateway in GATEWAYS if gateway.program != "plimsoll"]


def main():
    opts = options.parse(__doc__, runs=3)
    gateways = options.chosen(GATEWAYS, opts)
    programs = sorted({"plimsoll"} | {gateway.program for gateway in gateways})
    tools.need(programs, opts.install)
    record = Record("gateways-overload", "Inside the objectives under overload", ABOUT, opts, programs)
    warm_s, duration_s, loads = (1, 3, (3,)) if opts.quick else (5, 20, LOADS)
    runs = []
    with tempfile.TemporaryDirectory(prefix="plimsoll-overload-") as scratch:
        scratch = Path(scratch)
        mix = pages.mix(scratch, SLOS)
        for round in opts.rounds:
            for load in loads:
                for gateway in options.rotated(gateways, round):
                    runs.append(measure(gateway, load, round, mix, scratch, warm_s, duration_s))
    report(record, runs, [gateway.name for gateway in gateways])
    record.finish(runs)


def measure(gateway, load, round, mix, scratch, warm_s, duration_s):
    """One run, with a server and a gateway of its own: nobody inherits a queue."""
    with Pages(scratch, "wait", WORKERS) as server, gateway.running(server.port, [0], scratch) as running:
        OpenLoop(running.port, 0.8 * CAPACITY_PER_S, warm_s, mix, seed=100 + round).run()
        with Bystanders() as others:
            # The same seed for all gateways of a round: the same requests at the same times.
            report = OpenLoop(running.port, load * CAPACITY_PER_S, duration_s, mix, seed=1 + round).run()
    total = report["total"]
    return {
        "gateway": gateway.name,
        "load": load,
        "round": round,
        "good_per_s": total["goodput_per_s"],
        "good_pct": {
            name: 100 * figures["goodput_per_s"] * report["duration_s"] / max(1, figures["sent"])
            for name, figures in report["requests"].items()
        },
        "ok_pct": {name: 100 * figures["ok"] / max(1, figures["sent"]) for name, figures in report["requests"].items()},
        "refused": total["rejected"] + total["refused_other"],
        "refusal_p99_ms": highest(total["rejected_p99_ms"], total["refused_other_p99_ms"]),
        "errors": total["errors"],
        "others_cpu_pct": others.cpu_pct,
        "report": report,
    }


def highest(*values):
    """The highest of those that were measured, or None."""
    return max((value for value in values if value is not None), default=None)


def report(record, runs, names):
    """The tables and what was promised."""

    def of(name, load, key):
        return [run[key] for run in runs if run["gateway"] == name and run["load"] == load]

    loads = {run["load"] for run in runs}
    for load in sorted(loads):
        columns = ["gateway", "good/s", "of the capacity", *(f"good {name} %" for name in SHARES)]
        columns += ["refused/s", "refusal p99 ms", "errors", "late p99 ms"]
        rows = []
        for name in names:
            good, found = of(name, load, "good_per_s"), of(name, load, "report")
            rows.append(
                [
                    name,
                    spread(good, 0),
                    spread([g / CAPACITY_PER_S for g in good]),
                    *(spread([g[page] for g in of(name, load, "good_pct")], 1) for page in SHARES),
                    spread([n / r["duration_s"] for n, r in zip(of(name, load, "refused"), found)], 0),
                    spread(of(name, load, "refusal_p99_ms")),
                    sum(of(name, load, "errors")),
                    spread([r["total"]["late_ms_p99"] for r in found]),
                ]
            )
        count = len(of(names[0], load, "round"))
        record.table(f"{load}x the capacity: median [lowest, highest] of {count} runs", columns, rows)
    for name, factors in TARGETS.items():
        for load in sorted(factors.keys() & loads):
            judge(record, name, load, factors[load], names, of)


def judge(record, name, load, least, names, of):
    """Holds one setting of the sentry at one load to its targets."""
    present = [other for other in OTHERS if other in names]
    if name not in names or not present:
        return record.target(f"{name}: good requests at {load}x, relative to the best other", f">= {least}", "-", None)
    best = max(present, key=lambda other: middle(of(other, load, "good_per_s")))
    ratio = middle(ratios(of(name, load, "good_per_s"), of(best, load, "good_per_s")))
    what = f"{name}: good requests at {load}x, relative to the best other ({best})"
    record.target(what, f">= {least}", f"{ratio:.2f}", ratio >= least)
    late = middle(of(name, load, "refusal_p99_ms"))
    refused_in_time = None if late is None else late <= REFUSAL_P99_MS
    late = "-" if late is None else f"{late:.2f}"
    record.target(f"{name}: p99 of a refusal at {load}x, ms", f"<= {REFUSAL_P99_MS:.0f}", late, refused_in_time)
    if name == LENIENT:
        least_served = min(middle([served[page] for served in of(name, load, "ok_pct")]) for page in SHARES)
        what = f"{name}: answered of the class that gets least at {load}x, %"
        record.target(what, f">= {STARVING_PCT:.0f}", f"{least_served:.1f}", least_served >= STARVING_PCT)


if __name__ == "__main__":
    main()
