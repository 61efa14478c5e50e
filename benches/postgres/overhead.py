"""What it costs a PostgreSQL to be watched: turns with an agent and turns without, of the same server under the same load. One line of JSON a turn,
appended to a file; a load whose turns are there already is not run again.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from bench import machine

RUNS = Path(__file__).resolve().parent / "runs" / "overhead.jsonl"
# Connections, requests a second, and whom nobody ends. What no server of this size answers is ordinary overload.
LOADS = [
    (50, 400, None),
    (200, 400, None),
    (50, 30_000, None),
    (200, 30_000, None),
    (200, 400, "c6"),
    (50, 400, "c7"),
]


def main():
    parser = argparse.ArgumentParser(prog="run.sh overhead", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns with an agent of each load, and as many without")
    parser.add_argument("--seconds", type=int, default=12, help="how long a turn is")
    parser.add_argument("--loads", type=int, nargs="+", default=list(range(len(LOADS))), help="which of them, by number from 0")
    parser.add_argument("--nice", type=int, default=0, help="priority of all of it")
    parser.add_argument("--realtime", action="store_true", help="it goes before whatever else the machine does (chrt --rr 1)")
    parser.add_argument("--out", type=Path, default=RUNS)
    parser.add_argument("--programs", type=Path, default=machine.ROOT / "target" / "release", help="where the builds are")
    options = parser.parse_args()
    done = set()
    if options.out.exists():
        lines = map(json.loads, options.out.read_text().splitlines())
        done = {(line["connections"], line["rate"], line["culprit"]) for line in lines}
    for load in (LOADS[number] for number in options.loads):
        if load not in done:
            run(options, *load)


def run(options, connections, rate, culprit):
    argv = ["chrt", "--rr", "1"] if options.realtime else ["nice", "-n", options.nice]
    argv += [options.programs / "examples" / "postgres_overhead"]
    argv += ["--connections", connections, "--rate", rate, "--rounds", options.rounds, "--seconds", options.seconds]
    argv += ["--culprit", culprit] if culprit else []
    argv += ["--plimsoll", options.programs / "plimsoll"]
    # All turns of a load or none. Its data are in memory, lest the disk decide; but c7 is about the disk.
    place = {} if culprit == "c7" else {"TMPDIR": "/dev/shm"}
    done = subprocess.run(list(map(str, argv)), stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **place})
    commit = machine.commit()["commit"][:12]
    with options.out.open("a") as file:
        file.writelines(json.dumps({**json.loads(line), "commit": commit}) + "\n" for line in done.stdout.splitlines())
    print(f"{connections} connections, {rate}/s, {culprit or 'no culprit'}: done", flush=True)


if __name__ == "__main__":
    sys.exit(main())
