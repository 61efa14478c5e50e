"""What a benchmark found: printed for people, and as JSON for the results page (`benches/results.py`)."""

import datetime
import json
import shlex
import sys
from pathlib import Path

from . import machine, tools

RESULTS = machine.ROOT / "benches" / "results"
# A machine that others use gives numbers for a smoke test only, and so does a generator that lags.
QUIET_CPU_PCT = 5.0
LATE_MS = 2.0


class Record:
    """Collects the tables and targets of one benchmark."""

    def __init__(self, id, title, about, options, programs):
        self.options = options
        self.found = {
            "id": id,
            "title": title,
            "about": about,
            "command": shlex.join([f"benches/gateways/{id.removeprefix('gateways-')}", *sys.argv[1:]]),
            "taken": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
            "quick": options.quick,
            "machine": machine.describe(),
            **machine.commit(),
            "versions": tools.versions(programs),
            "tables": [],
            "targets": [],
        }

    def table(self, caption, columns, rows):
        """A table of texts, the first column being a name."""
        rows = [[str(cell) for cell in row] for row in rows]
        self.found["tables"].append({"caption": caption, "columns": columns, "rows": rows})

    def target(self, what, target, measured, met):
        """A promise, what was measured, and whether it is kept; `met` is None where nothing was measured."""
        met = None if met is None else bool(met)
        self.found["targets"].append({"what": what, "target": target, "measured": str(measured), "met": met})

    def finish(self, raw):
        """Prints everything and writes the file. `raw` is a list of runs."""
        busiest = max((run.get("others_cpu_pct", 0.0) for run in raw), default=0.0)
        latest = max((report["total"]["late_ms_p99"] for report in _open_loop(raw)), default=0.0)
        self.found["others_cpu_pct_max"], self.found["late_ms_p99_max"] = busiest, latest
        self.found["raw"] = raw
        print(f"\n{self.found['title']}")
        for table in self.found["tables"]:
            print(f"\n{table['caption']}\n{aligned([table['columns'], *table['rows']])}")
        marks = {True: "met", False: "MISSED", None: "not measured"}
        rows = [[t["what"], t["target"], t["measured"], marks[t["met"]]] for t in self.found["targets"]]
        print(f"\n{aligned([['target', 'wanted', 'measured', ''], *rows])}")
        if busiest > QUIET_CPU_PCT:
            print(f"\nwarning: others used up to {busiest:.0f} % of a CPU during a run: a smoke test", file=sys.stderr)
        if latest > LATE_MS:
            print(f"\nwarning: the generator lagged by {latest:.1f} ms (p99) in a run: a smoke test", file=sys.stderr)
        file = self.options.out or default_file(self.found["id"], self.options.quick)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.found, indent=1) + "\n")
        print(f"\nwritten: {file}", file=sys.stderr)


def _open_loop(raw):
    """The reports of `plimsoll load` among all."""
    for run in raw:
        yield from (report for report in run.get("reports", [run.get("report", {})]) if "total" in report)


def default_file(id, quick):
    """Full runs are kept with the sources; quick ones are not."""
    return (Path(machine.ROOT, "out", "benches") if quick else RESULTS) / f"{id}.json"


def aligned(rows):
    """Columns as wide as their widest cell; all but the first to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
