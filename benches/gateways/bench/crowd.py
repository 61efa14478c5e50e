"""A flash crowd of gold, silver and bronze requests: what each class gets, and how it compares with the best that could be had."""

import csv
import math
from collections import defaultdict
from statistics import mean

from .gateway import Gateway
from .load import OpenLoop, closed_loop, write_mix
from .pages import SHARES, Pages
from .stats import middle, spread

TIMES = 10
TARGET_MS = 250
PROMISED_PER_S = 10
WORKERS = 8
# Mean milliseconds of the waiting server's pages.
SIZES_MS = {"cheap": 5, "middling": 20, "heavy": 60}
REVENUE = {"gold": 20.0, "silver": 4.0, "bronze": 1.0}
CONTRARY = {"gold": 10.0, "silver": 3.0, "bronze": 1.0}
# Of the crowd: gold alone asks for half of what the server can do.
OF_CROWD = {"gold": 0.05, "silver": 0.25, "bronze": 0.70}
CAPACITY_PER_S = WORKERS / sum(share * SIZES_MS[page] for page, share in SHARES.items()) * 1000
# Before the crowd comes, as a share of the capacity; then until it is looked at.
CALM, CALM_S = 0.6, 5
SERVER_CPU, SENTRY_CPU = 1, 0
# A promise is looked at over so long.
STRETCH_S = 10
PROMISED = ("silver", "bronze")
# How a policer's name says that an admission policy follows it.
THEN = ", then "


def run(policer, round, scratch, quick):
    """One crowd."""
    seconds = 8 if quick else 40
    requests = {
        f"{page}-{tier}": {"path": f"/{page}/{tier}", "share": share * OF_CROWD[tier], "deadline_ms": TARGET_MS}
        for page, share in SHARES.items()
        for tier in OF_CROWD
    }
    mix, log = write_mix(scratch / "crowd.toml", requests), scratch / "crowd.csv"
    rate = f"0s:{CALM * CAPACITY_PER_S:.1f},{CALM_S}s:{TIMES * CAPACITY_PER_S:.1f}"
    policy, _, admission = policer.partition(THEN)
    settings = {"policy": policy, "admission": admission or "none", "target_ms": TARGET_MS, "promised": PROMISED_PER_S}
    gateway = Gateway(policer, "policing/sentry.toml", settings)
    with Pages(scratch, "wait", WORKERS, SERVER_CPU) as server:
        sizes_ms = {page: size_ms(server.port, page, 1 if quick else 3) for page in SIZES_MS}
        with gateway.running(server.port, [SENTRY_CPU], scratch) as sentry:
            report = OpenLoop(sentry.port, rate, CALM_S + seconds, mix, seed=round + 1, log=log).run()
    return {"part": "crowd", "policer": policer, "round": round, "report": report, "sizes_ms": sizes_ms, **judged(log, seconds, sizes_ms)}


def size_ms(port, page, seconds):
    """How long a worker is busy with one of these pages: a timer wakes later than it should, and the next request takes its time."""
    found = closed_loop(port, f"/{page}", WORKERS, seconds)
    return 1000 * WORKERS * found["seconds"] / found["answers"]


def judged(log, seconds, sizes_ms):
    """What the log says of the crowd."""
    latencies = defaultdict(list)
    by_second = [defaultdict(int) for _ in range(CALM_S + seconds)]
    # By second.
    came, served_in = ({tier: [0] * (CALM_S + seconds) for tier in OF_CROWD} for _ in range(2))
    errors = 0
    with open(log, newline="") as file:
        for row in csv.DictReader(file):
            second, (page, tier) = int(float(row["at_s"])), row["request"].split("-")
            errors += row["outcome"] not in ("ok", "rejected")
            came[tier][second] += 1
            by_second[second][page, tier] += 1
            if row["outcome"] == "ok":
                served_in[tier][second] += 1
                latencies[second].append(float(row["latency_ms"]))
    sent, served = ({tier: sum(counts[CALM_S:]) for tier, counts in of.items()} for of in (came, served_in))

    def of_optimum_pct(revenue):
        earned = sum(revenue[tier] * served[tier] for tier in revenue)
        return 100 * earned / sum(optimum(arrived, revenue, sizes_ms) for arrived in by_second[CALM_S:])

    over = [second for second in range(CALM_S, CALM_S + seconds) if p95(latencies[second]) > TARGET_MS]
    return {
        "served_pct": {tier: 100 * served[tier] / sent[tier] for tier in OF_CROWD},
        "served_per_s": {tier: served[tier] / seconds for tier in OF_CROWD},
        "promise_kept_pct": {tier: least_kept_pct(came[tier][CALM_S:], served_in[tier][CALM_S:]) for tier in PROMISED},
        "seconds_over_pct": 100 * len(over) / seconds,
        "over_after_jump_s": sum(1 for second in over if second < CALM_S + 10),
        "worst_p95_ms": max(p95(latencies[second]) for second in range(CALM_S, CALM_S + seconds)),
        "of_optimum_pct": of_optimum_pct(REVENUE),
        "of_contrary_pct": of_optimum_pct(CONTRARY),
        "errors": errors,
    }


def least_kept_pct(came, served):
    """The least share of a promise that was kept in any stretch of time; of what was asked for, where that is less. By second."""
    length = min(STRETCH_S, len(came))
    least = 100.0
    for begin in range(0, len(came) - length + 1, length):
        owed = min(PROMISED_PER_S * length, sum(came[begin : begin + length]))
        if owed:
            least = min(least, 100 * sum(served[begin : begin + length]) / owed)
    return least


def p95(values):
    """That at or below which 95 in 100 lie; zero of nothing."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1] if values else 0.0


def worth(revenue):
    """In words."""
    return ", ".join(f"{tier} {value:.0f}" for tier, value in revenue.items())


def optimum(arrived, revenue, sizes_ms):
    """What the server can earn at most in a second by these arrivals, {(page, tier): count}, once the promises are kept."""
    left_ms, earned = WORKERS * 1000.0, 0.0
    promised = {tier: PROMISED_PER_S for tier in PROMISED}
    rest = dict(arrived)
    # A promise is kept with whatever comes, so with the same mix of pages.
    for tier, rate in promised.items():
        total = sum(count for (_, of), count in arrived.items() if of == tier)
        for (page, of), count in arrived.items():
            if of == tier and total:
                part = min(rate, total) * count / total
                rest[page, of] -= part
                left_ms -= part * sizes_ms[page]
                earned += part * revenue[of]
    for (page, tier), count in sorted(rest.items(), key=lambda kind: -revenue[kind[0][1]] / sizes_ms[kind[0][0]]):
        taken = min(count, left_ms / sizes_ms[page])
        left_ms -= taken * sizes_ms[page]
        earned += taken * revenue[tier]
    return earned


def report(record, runs):
    """The table, and what was promised. Gold and the promises must hold in the worst round, seconds over the target count in all."""
    policers = sorted({run["policer"] for run in runs})

    def of(policer, key, part=None):
        values = [run[key] for run in runs if run["policer"] == policer]
        return [value[part] for value in values] if part else values

    columns = ["policer", "gold %", "silver %", "bronze %", "silver/s", "bronze/s", "s over target, %", "revenue, % of optimum", "where it is contrary"]
    rows = [
        [
            policer,
            *(spread(of(policer, "served_pct", tier), 1) for tier in OF_CROWD),
            *(spread(of(policer, "served_per_s", tier), 1) for tier in PROMISED),
            spread(of(policer, "seconds_over_pct"), 1),
            spread(of(policer, "of_optimum_pct"), 1),
            spread(of(policer, "of_contrary_pct"), 1),
        ]
        for policer in policers
    ]
    record.table(f"A crowd of {TIMES} times {CAPACITY_PER_S:.0f} requests/s", columns, rows)
    for policer in policers:
        gold = min(of(policer, "served_pct", "gold"))
        record.target(f"gold served, worst round ({policer}), %", ">= 99", f"{gold:.1f}", gold >= 99)
        for tier in PROMISED:
            kept = min(of(policer, "promise_kept_pct", tier))
            what = f"promised rate of {tier} kept, worst {STRETCH_S} seconds ({policer}), %"
            record.target(what, ">= 99", f"{kept:.1f}", kept >= 99)
        # All rounds are equally long.
        over = mean(of(policer, "seconds_over_pct"))
        record.target(f"seconds with p95 over target, all rounds ({policer}), %", "<= 1", f"{over:.1f}", over <= 1)
        jump = max(of(policer, "over_after_jump_s"))
        record.target(f"seconds over target after the jump ({policer})", "<= 5", f"{jump}", jump <= 5)
        best = middle(of(policer, "of_optimum_pct"))
        record.target(f"revenue, % of the optimum ({policer})", ">= 95", f"{best:.1f}", best >= 95)
        errors = sum(of(policer, "errors"))
        record.target(f"errors ({policer})", "0", f"{errors}", errors == 0)
