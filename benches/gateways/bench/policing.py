"""The policers of the sentry, live: a flash crowd of three classes at ten times the capacity, and what a refusal costs."""

import tempfile
from pathlib import Path

from . import crowd, options, tools
from .gateway import Gateway
from .load import CLIENT_CPU, closed_loop
from .pages import Pages
from .record import Record
from .stats import middle, ratios, spread
from .usage import Bystanders

POLICERS = ["batch", "threshold"]
# In the crowd there are these, too: whichever fits the load, and both of the pool's tests as they are by default.
IN_CROWD = [*POLICERS, "auto", f"batch{crowd.THEN}bouncer"]
# Microseconds of CPU that a request may cost from its first byte to the last of its refusal.
MOST_US = {"batch": 22.0, "threshold": 16.7}
MOST_OF_FORWARDED = 0.40
GATEWAY_CPU = 0
# As many as where refusals by an estimate are measured. A batch keeps them for up to a quarter of what is owed: with so few the gateway
# would be idle.
CONNECTIONS = {"batch": 1024, "threshold": 128}

ABOUT = (
    "A waiting server with eight workers. The crowd: gold, silver and bronze requests, each for cheap, middling and heavy pages, "
    f"at {crowd.TIMES} times what the server can do; all are owed a mean of {crowd.TARGET_MS} ms, silver and bronze were promised "
    f"{crowd.PROMISED_PER_S} requests a second each. What each request met is written down by the load generator; the optimum is "
    "the best that this server, as fast as it is with eight connections and nothing before it, could have earned from the very same "
    "arrivals, the sizes of all being known and a part "
    "of a request being worth its part (a fractional knapsack, second by second). An answer is worth "
    f"{crowd.worth(crowd.REVENUE)}, which agrees with importance: a heavy gold page earns as much a second as a cheap bronze one. "
    f"Beside it stands {crowd.worth(crowd.CONTRARY)}, where cheap bronze pages earn more than middling silver ones, so that nobody "
    "who puts silver first earns more than about 96 % of the optimum. Costs: 128 connections, with the batch policer 1,024, ask for bronze heavy pages "
    "as fast as they are refused; the sentry runs one thread on CPU 0, wrk and the server share CPU 1. A forwarded request is one "
    "of the same path at a rate that the server can serve."
)


def main():
    opts = options.parse(__doc__, runs=5)
    tools.need(["plimsoll", "wrk"], opts.install)
    record = Record("gateways-policing", "Policing a flash crowd", ABOUT, opts, ["plimsoll", "wrk"])
    runs = []
    with tempfile.TemporaryDirectory(prefix="plimsoll-policing-") as scratch:
        scratch = Path(scratch)
        for round in opts.rounds:
            for policer in options.rotated(POLICERS, round):
                runs.append(cost(policer, round, scratch, opts.quick))
            for policer in options.rotated(IN_CROWD, round):
                runs.append(crowd.run(policer, round, scratch, opts.quick))
    report_costs(record, [run for run in runs if run["part"] == "cost"])
    crowd.report(record, [run for run in runs if run["part"] == "crowd"])
    record.finish(runs)


def settings(policer, **more):
    """What is filled in in the sentry's config."""
    return {"policy": policer, "admission": "none", "target_ms": crowd.TARGET_MS, "promised": crowd.PROMISED_PER_S, **more}


def cost(policer, round, scratch, quick):
    """CPU time of a refusal, and of a request that is forwarded."""
    seconds = 2 if quick else 8
    gateway = Gateway(policer, "policing/sentry.toml", settings(policer, promised=1))
    with Pages(scratch, "wait", 8, cpu=CLIENT_CPU) as server:
        with gateway.running(server.port, [GATEWAY_CPU], scratch) as running, Bystanders() as others:
            # As many connections as the server has workers: nobody waits, nobody is refused.
            forwarded = measured(running, "/cheap/bronze", 8, seconds)
            closed_loop(running.port, "/heavy/bronze", CONNECTIONS[policer], 3)
            refused = measured(running, "/heavy/bronze", CONNECTIONS[policer], seconds)
    found = refused["report"]
    if found["refused"] < 0.9 * found["answers"] or forwarded["report"]["refused"]:
        raise SystemExit(f"{policer}: refused {found}, forwarded {forwarded['report']}")
    return {
        "part": "cost",
        "policer": policer,
        "round": round,
        "refusal_us": refused["us"],
        "refused_per_s": found["refused"] / found["seconds"],
        "forwarded_us": forwarded["us"],
        "others_cpu_pct": others.cpu_pct,
    }


def measured(running, path, connections, seconds):
    """Microseconds of CPU for each answer."""
    before = running.cpu_s()
    found = closed_loop(running.port, path, connections, seconds)
    return {"us": 1e6 * (running.cpu_s() - before) / found["answers"], "report": found}


def report_costs(record, runs):
    """The table of costs, and what was promised of them."""

    def of(policer, key):
        return [run[key] for run in runs if run["policer"] == policer]

    rows = [
        [policer, *(spread(of(policer, key), digits) for key, digits in COLUMNS.values())] for policer in POLICERS
    ]
    record.table("CPU time of a request", ["policer", *COLUMNS], rows)
    for policer in POLICERS:
        us = middle(of(policer, "refusal_us"))
        what = f"CPU of a request refused by the {policer} policer, us"
        record.target(what, f"<= {MOST_US[policer]}", f"{us:.1f}", us <= MOST_US[policer])
        ratio = middle(ratios(of(policer, "refusal_us"), of(policer, "forwarded_us")))
        what = f"the same relative to a forwarded request ({policer})"
        record.target(what, f"<= {MOST_OF_FORWARDED}", f"{ratio:.2f}", ratio <= MOST_OF_FORWARDED)


COLUMNS = {
    "refused, us": ("refusal_us", 1),
    "refusals/s": ("refused_per_s", 0),
    "forwarded, us": ("forwarded_us", 1),
}


if __name__ == "__main__":
    main()
