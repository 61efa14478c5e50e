"""Parts of `live`: a server that stands still for a second, and a start under ten times the load."""

import re
import threading
import time

from .load import report as report_of
from .pages import SHARES
from .process import get
from .stats import middle, spread
from .usage import Bystanders


class Stall:
    """The server stands still for a second at 0.8 times its capacity: when is every class served as before?"""

    LOAD = 0.8
    STALL_S = 1
    # Back is who gets this share of what it got before, two seconds in a row.
    NORMAL = 0.9
    WITHIN_S = 10

    @staticmethod
    def runs(stage, round):
        """One run, second by second."""
        before_s, after_s = (5, 12) if stage.quick else (10, 15)
        seconds = []
        with stage.set() as (server, sentry), Bystanders() as others:
            begin = time.monotonic()
            for second in range(before_s + Stall.STALL_S + after_s):
                time.sleep(max(0.0, begin + second - time.monotonic()))
                # A generator a second, so that every request is counted to the second in which it was due.
                seconds.append(stage.load(sentry, Stall.LOAD, 1, seed=1000 * round + second).start())
                if second == before_s:
                    status, said = get(server.port, f"/_fault?stall={Stall.STALL_S}s", method="POST")
                    assert status == 200, said
            reports = [report_of(started) for started in seconds]
        yield {
            "before_s": before_s,
            "others_cpu_pct": others.cpu_pct,
            "back_after_s": {name: Stall.back_after_s(reports, before_s, name) for name in SHARES},
            "reports": reports,
        }

    @staticmethod
    def back_after_s(reports, before_s, name):
        """Seconds after the stall until the end of the first two normal ones in a row; None if there are none."""

        def good(some):
            figures = [report["requests"][name] for report in some]
            sent = sum(f["sent"] for f in figures)
            return sum(f["goodput_per_s"] for f in figures) / max(1, sent)

        normal = Stall.NORMAL * good(reports[:before_s])
        after = reports[before_s + Stall.STALL_S :]
        return next((i + 2 for i in range(len(after) - 1) if good(after[i : i + 2]) >= normal), None)

    @staticmethod
    def report(record, runs, _slos):
        """When each class was back."""
        rows = []
        for name in SHARES:
            back = [run["back_after_s"][name] for run in runs]
            shares = {}
            for label, of in (
                ("before", lambda r: r["reports"][: r["before_s"]]),
                ("after", lambda r: r["reports"][-5:]),
            ):
                figures = [[report["requests"][name] for report in of(run)] for run in runs]
                shares[label] = [
                    100 * sum(f["goodput_per_s"] for f in run) / sum(f["sent"] for f in run) for run in figures
                ]
            rows.append([name, spread(back, 0), spread(shares["before"], 1), spread(shares["after"], 1)])
            worst = None if None in back else max(back)
            met = worst is not None and worst <= Stall.WITHIN_S
            what = f"seconds after a stall of {Stall.STALL_S} s at {Stall.LOAD}x until {name} is served as before"
            record.target(what, f"<= {Stall.WITHIN_S}", "never" if worst is None else worst, met)
        errors = sum(r["total"]["errors"] + r["total"]["refused_other"] for run in runs for r in run["reports"])
        record.target("errors that are no refusals, with the stall", "0", errors, errors == 0)
        columns = ["class", "back after s", "good before, %", "good in the last 5 s, %"]
        record.table(f"A stall of {Stall.STALL_S} s at {Stall.LOAD}x, {len(runs)} runs", columns, rows)


class ColdStart:
    """Ten times the load from the first request on, for a second."""

    LOAD = 10
    TIMES_OBJECTIVE = 2

    @staticmethod
    def runs(stage, round):
        """One run with a sentry that has seen nothing yet."""
        with stage.set(warm=False) as (_, sentry), QueueWatch(sentry.admin) as queue, Bystanders() as others:
            report = stage.load(sentry, ColdStart.LOAD, 1, seed=1 + round).run()
        yield {
            "others_cpu_pct": others.cpu_pct,
            "longest_queue": queue.longest,
            "max_queue": queue.limit,
            "report": report,
        }

    @staticmethod
    def report(record, runs, slos):
        """The longest answers, and the longest queue that was seen."""
        rows = []
        for name, (_, p90) in slos.items():
            figures = [run["report"]["requests"][name] for run in runs]
            # Of all that ended, however; refusals take no time.
            longest = [f["max_ms"] for f in figures]
            rows.append([name, spread([f["ok"] for f in figures], 0), spread(longest, 0), f"{p90}"])
            most = ColdStart.TIMES_OBJECTIVE * p90
            what = f"cold start at {ColdStart.LOAD}x: longest answer of {name}, ms"
            record.target(what, f"<= {most}", f"{max(longest):.0f}", max(longest) <= most)
        record.table(
            f"The first second at {ColdStart.LOAD}x, {len(runs)} runs",
            ["class", "answered", "longest ms", "p90 objective"],
            rows,
        )
        longest, limit = max(run["longest_queue"] for run in runs), middle([run["max_queue"] for run in runs])
        what = f"cold start at {ColdStart.LOAD}x: longest queue seen"
        record.target(what, f"<= max_queue, {limit:.0f}", f"{longest:.0f}", longest <= limit)
        errors = sum(run["report"]["total"]["errors"] + run["report"]["total"]["refused_other"] for run in runs)
        record.target(f"cold start at {ColdStart.LOAD}x: errors that are no refusals", "0", errors, errors == 0)


class QueueWatch:
    """Reads the length of the sentry's queue forty times a second."""

    PERIOD_S = 0.025

    def __init__(self, admin):
        self.admin, self.longest, self.limit, self.over = admin, 0.0, None, threading.Event()

    def __enter__(self):
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def watch(self):
        """Until the block ends."""
        while not self.over.wait(self.PERIOD_S):
            _, text = get(self.admin, "/metrics")
            length, limit = (
                float(re.search(rf"^plimsoll_queue_{key}{{[^}}]*}} (\S+)", text, re.M)[1])
                for key in ("length", "limit")
            )
            self.longest, self.limit = max(self.longest, length), limit
