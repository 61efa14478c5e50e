"""CPU time a forwarded request: nginx, HAProxy, Envoy and the sentry in front of the same fast server."""

import tempfile
from pathlib import Path

from . import options, tools
from .gateway import Gateway
from .load import CLIENT_CPU, OpenLoop, closed_loop
from .record import Record
from .stats import middle, ratios, spread
from .usage import Bystanders

ABOUT = (
    "Every gateway runs one worker on CPU 0 in front of the same server (nginx, 200 and 128 bytes), which "
    "shares CPU 1 with the load generator. All get the same requests in turns. The figure is the CPU time of "
    "all processes of the gateway, user and system, divided by the requests answered; memory is that of all "
    "its processes after the load (PSS). The sentry runs with everything on: Bouncer enforcing, health checks, "
    "metrics, decision log."
)
GATEWAY_CPU = 0
PATH = "/page/1"
SENTRY = "sentry"
GATEWAYS = [
    Gateway("nginx", "forwarding/nginx.conf"),
    Gateway("haproxy", "forwarding/haproxy.cfg"),
    Gateway("envoy", "forwarding/envoy.yaml"),
    Gateway(SENTRY, "forwarding/sentry.toml"),
]
# What the sentry may cost, relative to another.
TARGETS = {"nginx": 1.25, "envoy": 0.55}
# Rates in requests a second, Poisson arrivals; HTTP/2 in the clear from the client, HTTP/1.1 to the server.
OPEN = {"HTTP/1.1, 2000/s": (2_000, 1, 64), "HTTP/1.1, 6000/s": (6_000, 1, 64), "HTTP/2, 4000/s": (4_000, 2, 4)}
SATURATED = "HTTP/1.1, 64 connections, as fast as it goes"
JUDGED = [name for name in [*OPEN, SATURATED] if name.startswith("HTTP/1.1")]


def main():
    opts = options.parse(__doc__, runs=7)
    gateways = options.chosen(GATEWAYS, opts)
    programs = sorted({"nginx", "wrk", "plimsoll"} | {gateway.program for gateway in gateways})
    tools.need(programs, opts.install)
    record = Record("gateways-forwarding", "CPU time a forwarded request", ABOUT, opts, programs)
    runs = []
    with tempfile.TemporaryDirectory(prefix="plimsoll-forwarding-") as scratch:
        server = Gateway("server", "forwarding/server.conf")
        with server.running(None, [CLIENT_CPU], Path(scratch)) as server:
            for round in opts.rounds:
                for gateway in options.rotated(gateways, round):
                    runs += measure(gateway, server.port, Path(scratch), round, 1 if opts.quick else 8)
    report(record, runs, gateways)
    record.finish(runs)


def measure(gateway, upstream, scratch, round, duration_s):
    """One run a kind of load."""
    runs = []
    with gateway.running(upstream, [GATEWAY_CPU], scratch) as running:
        for load, (rate, http, connections) in OPEN.items():
            port = running.port_h2 if http == 2 else running.port
            plan = dict(path=PATH, http=http, connections=connections)
            # Opens the connections and fills the estimates.
            OpenLoop(port, rate, 1, **plan).run()
            runs.append(run(running, load, round, OpenLoop(port, rate, duration_s, seed=round + 1, **plan).run))
        closed_loop(running.port, PATH, 64, 1)
        runs.append(run(running, SATURATED, round, lambda: closed_loop(running.port, PATH, 64, duration_s)))
        runs[-1]["memory_mib"] = running.memory_mib()
    return runs


def run(running, load, round, send):
    """Sends load and counts what it cost the gateway."""
    with Bystanders() as others:
        before = running.cpu_s()
        report = send()
        cpu_s = running.cpu_s() - before
    figures = report.get("total", report)
    answered = figures["ok"] if "total" in report else report["answers"] - report["refused"]
    failed = figures["sent"] - answered if "total" in report else report["refused"] + report["socket_errors"]
    if failed > answered * 0.001:
        raise SystemExit(f"{running.name} failed {failed} of {answered + failed} requests: {report}\n{running.tail()}")
    return {
        "gateway": running.name,
        "load": load,
        "round": round,
        "answered": answered,
        "failed": failed,
        "cpu_s": round_to(cpu_s, 3),
        "cpu_us_per_request": round_to(cpu_s / answered * 1e6, 3),
        "others_cpu_pct": others.cpu_pct,
        "report": report,
    }


def report(record, runs, gateways):
    """The tables and what was promised."""
    names = [gateway.name for gateway in gateways]

    def of(name, load, key):
        return [run[key] for run in runs if run["gateway"] == name and run["load"] == load]

    for load in [*OPEN, SATURATED]:
        columns = ["gateway", "CPU us a request", "sentry relative to it", "p50 ms", "p99 ms", "late p99 ms"]
        if load == SATURATED:
            columns = ["gateway", "CPU us a request", "sentry relative to it", "requests/s", "memory MiB"]
        rows = []
        for name in names:
            cost = of(name, load, "cpu_us_per_request")
            relative = spread(ratios(of(SENTRY, load, "cpu_us_per_request"), cost)) if SENTRY in names else "-"
            found = of(name, load, "report")
            if load == SATURATED:
                rest = [
                    spread([r["answers"] / r["seconds"] for r in found], 0),
                    spread(of(name, load, "memory_mib"), 1),
                ]
            else:
                rest = [spread([r["total"][key] for r in found]) for key in ("p50_ms", "p99_ms", "late_ms_p99")]
            rows.append([name, spread(cost), relative, *rest])
        record.table(f"{load}: median [lowest, highest] of {len(of(names[0], load, 'round'))} runs", columns, rows)
    for other, most in TARGETS.items():
        for load in JUDGED:
            what = f"sentry's CPU time a request relative to {other}'s, {load}"
            if other in names and SENTRY in names:
                costs = [of(name, load, "cpu_us_per_request") for name in (SENTRY, other)]
                ratio = middle(ratios(*costs))
                record.target(what, f"<= {most}", f"{ratio:.2f}", ratio <= most)
            else:
                record.target(what, f"<= {most}", "-", None)


def round_to(value, digits):
    return float(f"{value:.{digits}f}")


if __name__ == "__main__":
    main()
