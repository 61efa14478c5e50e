"""Refusals a second when nearly everything is refused: HAProxy, nginx and the sentry on one CPU."""

import tempfile
from pathlib import Path

from . import options, tools
from .gateway import Gateway
from .load import CLIENT_CPU, closed_loop
from .pages import Pages
from .record import Record
from .stats import middle, ratios, spread
from .usage import Bystanders

ABOUT = (
    "A waiting server with eight slots and pages of 60 ms; 128 connections ask for them as fast as they are "
    "answered, so that the slots are always busy and nearly everything is refused with 503. Every gateway runs "
    "one worker on CPU 0; wrk and the (idle) server share CPU 1. HAProxy refuses in two ways: everything, "
    "without looking (`deny all`), and what comes while the eight slots are busy (`deny busy`). The sentry "
    "decides by its estimate of the wait and states the reason. A refusal that the client cannot take fast "
    "enough leaves the gateway idle, so refusals for each second of CPU that the gateway used are given, too."
)
GATEWAY_CPU = 0
CONNECTIONS = 128
PATH = "/heavy"
SENTRY = "sentry"
GATEWAYS = [
    Gateway("nginx limit_req", "overload/nginx.conf", {"rate": 100}),
    Gateway("haproxy deny all", "refusing/haproxy.cfg", {"refuse_while": "always_true"}),
    Gateway("haproxy deny busy", "refusing/haproxy.cfg", {"refuse_while": "be_conn(server) ge 8"}),
    Gateway(SENTRY, "refusing/sentry.toml"),
]
HAPROXY = [gateway.name for gateway in GATEWAYS if gateway.program == "haproxy"]
LEAST = 0.9


def main():
    opts = options.parse(__doc__, runs=7)
    gateways = options.chosen(GATEWAYS, opts)
    programs = sorted({"plimsoll", "wrk"} | {gateway.program for gateway in gateways})
    tools.need(programs, opts.install)
    record = Record("gateways-refusing", "Refusals a second", ABOUT, opts, programs)
    runs = []
    with tempfile.TemporaryDirectory(prefix="plimsoll-refusing-") as scratch:
        scratch = Path(scratch)
        with Pages(scratch, "wait", 8, cpu=CLIENT_CPU) as server:
            for round in opts.rounds:
                for gateway in options.rotated(gateways, round):
                    runs.append(measure(gateway, server.port, round, scratch, 2 if opts.quick else 8))
    report(record, runs, [gateway.name for gateway in gateways])
    record.finish(runs)


def measure(gateway, upstream, round, scratch, duration_s):
    """One run: what was refused, and what that cost."""
    with gateway.running(upstream, [GATEWAY_CPU], scratch) as running:
        # Long enough for the sentry to have seen a hundred pages.
        closed_loop(running.port, PATH, CONNECTIONS, 3)
        with Bystanders() as others:
            before = running.cpu_s()
            found = closed_loop(running.port, PATH, CONNECTIONS, duration_s)
            cpu_s = running.cpu_s() - before
    if found["refused"] < 0.95 * found["answers"] or found["socket_errors"]:
        raise SystemExit(f"{gateway.name} did not refuse nearly everything: {found}\n{running.tail()}")
    return {
        "gateway": gateway.name,
        "round": round,
        "refused_per_s": found["refused"] / found["seconds"],
        "refused_per_cpu_s": found["refused"] / cpu_s,
        "gateway_cpu_pct": 100 * cpu_s / found["seconds"],
        "served_per_s": (found["answers"] - found["refused"]) / found["seconds"],
        "others_cpu_pct": others.cpu_pct,
        "report": found,
    }


def report(record, runs, names):
    """The table and what was promised."""

    def of(name, key):
        return [run[key] for run in runs if run["gateway"] == name]

    columns = ["gateway", "refusals/s", "refusals a CPU second", "gateway's CPU %", "served/s"]
    rows = [
        [
            name,
            *(
                spread(of(name, key), 0)
                for key in ("refused_per_s", "refused_per_cpu_s", "gateway_cpu_pct", "served_per_s")
            ),
        ]
        for name in names
    ]
    record.table(
        f"{CONNECTIONS} connections: median [lowest, highest] of {len(of(names[0], 'round'))} runs", columns, rows
    )
    for other in HAPROXY:
        for key, what in (("refused_per_s", "refusals a second"), ("refused_per_cpu_s", "refusals a CPU second")):
            what = f"sentry's {what} relative to {other}"
            if other in names and SENTRY in names:
                ratio = middle(ratios(of(SENTRY, key), of(other, key)))
                record.target(what, f">= {LEAST}", f"{ratio:.2f}", ratio >= LEAST)
            else:
                record.target(what, f">= {LEAST}", "-", None)


if __name__ == "__main__":
    main()
