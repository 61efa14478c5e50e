"""The three programs that are measured: how each is built, and what it says when it runs."""

import json
import shutil
import subprocess

from bench.machine import ROOT

BUILT = ROOT / "target" / "bench-decision"
HERE = ROOT / "benches" / "decision"
NEEDED = {"java": "java", "javac": "java", "mvn": "Maven", "go": "Go"}
NETFLIX_CASES = [
    "whole cycle, vegas",
    "whole cycle, gradient2",
    "whole cycle and its clock reads, vegas",
    "whole cycle and its clock reads, gradient2",
    "refusal",
    "clock read",
]


def build():
    """Builds all; returns what runs each: functions of the rounds that return the rows."""
    missing = sorted({name for tool, name in NEEDED.items() if not shutil.which(tool)})
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}")
    BUILT.mkdir(parents=True, exist_ok=True)
    return {"plimsoll": _plimsoll(), "netflix": _netflix(), "failsafe-go": _failsafe()}


def plimsoll_executable():
    """The benchmark of crates/admission."""
    command = ["cargo", "bench", "-p", "plimsoll-admission", "--bench", "decision", "--no-run", "--message-format=json"]
    messages = map(json.loads, _said(command, ROOT).splitlines())
    return next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "decision")


def versions():
    """What was compared."""
    library = (HERE / "netflix" / "pom.xml").read_text().partition("<version>")[2].partition("<version>")[2]
    modules = _said(["go", "list", "-m", "all"], HERE / "failsafe").splitlines()
    failsafe = next(line.split()[1] for line in modules if line.startswith("github.com/failsafe-go/failsafe-go "))
    return {
        "rustc": _said(["rustc", "--version"]).split()[1],
        "concurrency-limits": library.partition("<")[0],
        "java": subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()[1],
        "failsafe-go": failsafe,
        "go": _said(["go", "version"]).split()[2],
    }


def _plimsoll():
    executable = plimsoll_executable()
    return lambda rounds: _rows([executable, "--bench", "--json", "--rounds", str(rounds)])


def _netflix():
    classpath = BUILT / "classpath"
    arguments = ["dependency:build-classpath", f"-Dmdep.outputFile={classpath}"]
    _said(["mvn", "-q", "-B", *arguments], HERE / "netflix")
    path = f"{BUILT}:{classpath.read_text().strip()}"
    _said(["javac", "-cp", path, "-d", str(BUILT), "Decision.java"], HERE / "netflix")

    def run(rounds):
        return [row for case in NETFLIX_CASES for row in _rows(["java", "-cp", path, "Decision", str(rounds), case])]

    return run


def _failsafe():
    executable = BUILT / "failsafe"
    _said(["go", "build", "-o", str(executable), "."], HERE / "failsafe")
    return lambda rounds: _rows([executable, str(rounds)])


def _rows(command):
    return [json.loads(line) for line in _said(command).splitlines()]


def _said(command, directory=None):
    return subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, text=True, check=True).stdout
