"""The sentry in front of a server that computes: overload, wrong settings, a stall of the server, a cold start."""

import tempfile
from contextlib import contextmanager
from pathlib import Path

from . import disturbed, options, pages, sustained, tools
from .gateway import Gateway
from .load import OpenLoop
from .pages import Pages
from .record import Record
from .stats import spread

# Milliseconds, 50th and 90th percentile.
SLOS = {"cheap": (100, 200), "middling": (100, 200), "heavy": (120, 240)}
WORKERS = 4
SERVER_CPU, SENTRY_CPU = 0, 1
MAX_CAPACITY_PER_S = 300

ABOUT = (
    f"The server of `plimsoll testbed pages --work cpu` computes on CPU 0 with {WORKERS} workers; the sentry "
    "and the load generator share CPU 1. Its capacity is measured in each round: it is sent twice as much as "
    "it can do, without a sentry, and what it answers a second counts. Objectives (ms, p50/p90): "
    + ", ".join(f"{name} {p50}/{p90}" for name, (p50, p90) in SLOS.items())
    + "; allowance 0. Goodput is what was answered with 200 within the class's p90 objective, counted from the "
    "intended send time; latencies are those of everything that was answered with 200, measured by the client. "
    "Before each run (not before a cold start) the sentry sees five seconds of 0.8 times the capacity."
)


class Stage:
    """Where a round plays: scratch files, the mix, how long things take, and the capacity that was found."""

    def __init__(self, scratch, quick):
        self.scratch, self.mix = scratch, pages.mix(scratch, SLOS)
        self.quick = quick
        self.warm_s, self.run_s, self.probe_s = (2, 3, 3) if quick else (5, 20, 6)
        self.capacity_per_s = None

    def find_capacity(self):
        """Saturates the server alone; requests a second that it then answers."""
        with Pages(self.scratch, "cpu", WORKERS, SERVER_CPU) as server:
            OpenLoop(server.port, 100, 1, self.mix).run()
            report = OpenLoop(server.port, 500, self.probe_s, self.mix, seed=7).run()
        self.capacity_per_s = report["total"]["ok"] / report["elapsed_s"]
        return self.capacity_per_s

    @contextmanager
    def set(self, workers=WORKERS, warm=True):
        """A server and a sentry of one's own: nobody inherits a queue or an estimate."""
        settings = {"workers": workers, "classes": pages.classes_toml(SLOS)}
        gateway = Gateway("sentry", "live/sentry.toml", settings)
        with Pages(self.scratch, "cpu", WORKERS, SERVER_CPU) as server:
            with gateway.running(server.port, [SENTRY_CPU], self.scratch) as sentry:
                if warm:
                    self.load(sentry, 0.8, self.warm_s, seed=100).run()
                yield server, sentry

    def load(self, sentry, times, duration_s, seed):
        """So many times the capacity."""
        return OpenLoop(sentry.port, times * self.capacity_per_s, duration_s, self.mix, seed=seed)


# What `--only` chooses from, in this order.
PARTS = {"sustained": sustained, "stall": disturbed.Stall, "cold": disturbed.ColdStart}


def main():
    opts = options.parse(__doc__, runs=3)
    chosen = opts.only or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        raise SystemExit(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    tools.need(["plimsoll"], opts.install)
    record = Record("gateways-live", "Live, beyond the capacity", ABOUT, opts, ["plimsoll"])
    runs, capacities = [], []
    with tempfile.TemporaryDirectory(prefix="plimsoll-live-") as scratch:
        stage = Stage(Path(scratch), opts.quick)
        for round in opts.rounds:
            capacities.append(stage.find_capacity())
            for part in chosen:
                runs += [{"part": part, "round": round, **run} for run in PARTS[part].runs(stage, round)]
    record.table("Capacity", ["", "requests/s"], [["server alone", spread(capacities, 0)]])
    top = max(capacities)
    record.target("capacity, requests/s", f"<= {MAX_CAPACITY_PER_S}", f"{top:.0f}", top <= MAX_CAPACITY_PER_S)
    for part in chosen:
        PARTS[part].report(record, [run for run in runs if run["part"] == part], SLOS)
    record.finish(runs)


if __name__ == "__main__":
    main()
