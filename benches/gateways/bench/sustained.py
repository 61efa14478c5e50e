"""Part of `live`: sustained overload, with `workers` told, told wrong, and found."""

from .stats import middle, spread
from .usage import Bystanders

TRUTH = "workers = 4 (the truth)"
SETTINGS = {TRUTH: 4, "workers = 2 (half)": 2, "workers = 8 (twice)": 8, 'workers = "adaptive"': '"adaptive"'}
LOADS = (2, 5, 10)
QUICK_LOADS = (5,)
LEAST_GOODPUT = 0.95
# A percentile of fewer answers says nothing; they are shown and not judged.
FEWEST = 20


def runs(stage, round):
    """The truth at the capacity, then every setting beyond it."""
    yield run(stage, TRUTH, 1, round)
    for setting in SETTINGS:
        for load in QUICK_LOADS if stage.quick else LOADS:
            yield run(stage, setting, load, round)


def run(stage, setting, load, round):
    """One run with a fresh server and sentry."""
    with stage.set(SETTINGS[setting]) as (_, sentry):
        with Bystanders() as others:
            before = sentry.cpu_s()
            report = stage.load(sentry, load, stage.run_s, seed=1 + round).run()
            cpu_s = sentry.cpu_s() - before
    return {
        "setting": setting,
        "load": load,
        "good_per_s": report["total"]["goodput_per_s"],
        "sentry_cpu_pct": 100 * cpu_s / report["elapsed_s"],
        "others_cpu_pct": others.cpu_pct,
        "report": report,
    }


def report(record, runs, slos):
    """A table a setting; goodput is held to that of the truth at the capacity."""

    def of(setting, load):
        return [run for run in runs if run["setting"] == setting and run["load"] == load]

    at_capacity = [run["good_per_s"] for run in of(TRUTH, 1)]
    for setting in SETTINGS:
        columns = ["load", "goodput/s", "of that at capacity", *(f"{name} p50, p90 ms" for name in slos)]
        columns += ["answered %", "refused %", "errors", "refusal p99 ms", "sentry's CPU %", "late p99 ms"]
        rows = []
        for load in sorted({run["load"] for run in runs if run["setting"] == setting}):
            found = of(setting, load)
            totals = [run["report"]["total"] for run in found]
            share = [good["good_per_s"] / least for good, least in zip(found, at_capacity)]
            latencies = [
                ", ".join(
                    spread([r["report"]["requests"][name][key] for r in found], 0) for key in ("p50_ms", "p90_ms")
                )
                for name in slos
            ]
            rows.append(
                [
                    f"{load}x",
                    spread([run["good_per_s"] for run in found], 0),
                    spread(share),
                    *latencies,
                    spread([100 * t["ok"] / t["sent"] for t in totals], 1),
                    spread([100 * t["rejected"] / t["sent"] for t in totals], 1),
                    sum(t["errors"] + t["refused_other"] for t in totals),
                    spread([t["rejected_p99_ms"] for t in totals]),
                    spread([run["sentry_cpu_pct"] for run in found], 0),
                    spread([t["late_ms_p99"] for t in totals]),
                ]
            )
            if load > 1:
                judge(record, setting, load, found, share, slos)
        record.table(f"{setting}: median [lowest, highest] of {len(at_capacity)} runs", columns, rows)


def judge(record, setting, load, found, share, slos):
    """Goodput, latencies of every class, and errors."""
    where = f"{setting}, {load}x"
    measured = middle(share)
    record.target(
        f"{where}: goodput relative to that at capacity",
        f">= {LEAST_GOODPUT}",
        f"{measured:.2f}",
        measured >= LEAST_GOODPUT,
    )
    missed, judged = [], []
    for name, objectives in slos.items():
        figures = [run["report"]["requests"][name] for run in found]
        if min(f["ok"] for f in figures) < FEWEST:
            continue
        judged.append(name)
        for key, objective in zip(("p50", "p90"), objectives):
            latency = middle([f[f"{key}_ms"] for f in figures])
            if latency > objective:
                missed.append(f"{name} {key} {latency:.0f} > {objective}")
    said = "; ".join(missed) or f"{', '.join(judged) or 'none'} within"
    record.target(f"{where}: p50 and p90 of the classes that were admitted", "within the objectives", said, not missed)
    errors = sum(run["report"]["total"]["errors"] + run["report"]["total"]["refused_other"] for run in found)
    record.target(f"{where}: errors that are no refusals", "0", errors, errors == 0)
