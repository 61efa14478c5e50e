"""What it costs a server to be watched: its own CPU time and the agent's, in turns with an agent and turns without.

One case of each kind of server that an agent watches, under its undisturbed load (`plimsoll case cost`).
"""

import json
import subprocess

from bench import options, tools
from bench.record import Record
from bench.usage import Bystanders

TITLE = "What it costs a server to be watched"
ABOUT = (
    "One real server of each kind under the undisturbed load of its case, in turns of six seconds: with an agent that looks at it and has nothing to do, and without, each first by turns, "
    "five seconds after the agent was started or ended (`plimsoll case cost`). A JVM is watched for five minutes before, and answers 5 requests/s meanwhile, as an agent asks the same however many there are. What it compiles, for hours now and then, comes to more than all that an agent asks, so that is told apart and what there is besides is judged. CPU time is the kernel's: of all processes of the server, with what it does for the "
    "agent, and of the agent. Where processors are what is short, a server can do less by the part of them that it has more of. "
    "In front of a Solr is a sentry in all turns, whose answers to the agent count with the server. "
    "The error is two standard errors of the mean over the pairs of turns; where it is larger than the limit, a figure within it may be chance."
)
CASES = {"c6": "PostgreSQL", "c4": "MariaDB", "c9": "Apache", "c25": "php-fpm", "c12": "OpenSearch", "c10": "Elasticsearch", "c14": "Solr"}
# A JVM compiles what it finds that it runs often, what it does for an agent too, which comes seldom; and it takes out its garbage when it
# likes. So it is watched for some minutes before its first turn, has more turns, and fewer requests, in whose garbage the little would be lost
# that an agent costs, which asks the same however many there are.
JVMS = {"OpenSearch", "Elasticsearch", "Solr"}
MOST_SERVER_PCT, MOST_AGENT_PCT = 0.5, 2.0


def main():
    chosen = options.parse(__doc__.splitlines()[0], runs=1)
    unknown = set(chosen.only or []) - set(CASES)
    if unknown:
        raise SystemExit(f"no {', '.join(sorted(unknown))} here; there are {', '.join(CASES)}")
    tools.need(["plimsoll"], chosen.install)
    record = Record("watching", TITLE, ABOUT, chosen, ["plimsoll"])
    record.found["command"] = record.found["command"].replace("gateways/watching", "watching/run.sh")
    raw = []
    for case in chosen.only or CASES:
        for round in chosen.rounds:
            with Bystanders() as others:
                cost = measured(case, seed=1 + round, quick=chosen.quick)
            if cost:
                raw.append(dict(cost, round=round, others_cpu_pct=others.cpu_pct))
    report(record, raw)
    record.finish(raw)


def measured(case, seed, quick):
    """What the turns of one server came to; nothing where it does not start, which it says itself."""
    length = ["--pairs", "2", "--turn", "2s"] if quick else ["--pairs", "8", "--turn", "6s"]
    if CASES[case] in JVMS and not quick:
        length = ["--pairs", "12", "--turn", "6s", "--warm-up", "5m", "--rate", "5/s"]
    command = [tools.path("plimsoll"), "case", "cost", case, "--json", "--seed", str(seed), *length]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return json.loads(said.stdout) if said.returncode == 0 else None


def report(record, raw):
    """The table and what was promised."""
    rows = []
    for cost in raw:
        name = CASES[cost["case"]]
        besides = cost["more_besides"] or cost["more"]
        part, error = (besides[key] / cost["processors"] for key in ("mean", "error"))
        agent_pct = cost["agent_pct"]
        record.target(f"{name}: more of all processors, %", f"<= {MOST_SERVER_PCT}", f"{part:.2f} +- {error:.2f}", part <= MOST_SERVER_PCT)
        record.target(f"{name}: the agent, % of a core", f"<= {MOST_AGENT_PCT:g}", f"{agent_pct:.2f}", agent_pct <= MOST_AGENT_PCT)
        p50s = [f"{ms:.2f}" for ms in cost["p50_ms"]]
        more, besides = (f"{it['mean']:.2f} +- {it['error']:.2f}" if it else "-" for it in (cost["more"], cost["more_besides"]))
        rows.append([f"{cost['version']} ({cost['case']})", f"{cost['per_s']:.0f}", f"{cost['server_pct']:.2f}", more, besides, f"{agent_pct:.2f}", *p50s])
    for name in [CASES[case] for case in record.options.only or CASES if all(cost["case"] != case for cost in raw)]:
        record.target(f"{name}: more of all processors, %", f"<= {MOST_SERVER_PCT}", "-", None)
    columns = ["server", "requests/s", "without: % of a core", "with: more of it", "what it compiles left out", "agent, % of a core", "p50 without, ms", "with"]
    record.table("In the mean over the turns", columns, rows)


if __name__ == "__main__":
    main()
