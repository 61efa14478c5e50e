"""The benchmark of each SDK: how it is built, and what it says when it runs."""

import json
import os
import re
import statistics
import subprocess

from bench.machine import ROOT

SDK = ROOT / "sdk"
BUILT = ROOT / "target" / "bench-sdk"
# What Java is asked for, one process each: what it measures, and how.
JAVA = {"calm_ns": ("getFree", "calm"), "exact_ns": ("getFree", "exact"), "task_ns": ("task", "calm")}


def build():
    """Builds all; returns what runs each: functions that return the figures of one process."""
    BUILT.mkdir(parents=True, exist_ok=True)
    return {"c": _c("c"), "cpp": _c("cpp"), "rust": _rust(), "go": _go(), "java": _java(), "python": _python()}


def versions():
    """Compilers and runtimes."""
    return {
        "gcc": _said(["gcc", "--version"]).splitlines()[0].split()[-1],
        "rustc": _said(["rustc", "--version"]).split()[1],
        "go": _said(["go", "version"]).split()[2],
        "java": re.search(r'JAVA_RUNTIME_VERSION="(.*)"', (_java_home() / "release").read_text())[1],
        "python": _said([_python_program(), "--version"]).split()[1],
    }


def _c(language):
    built = BUILT / language
    _said(["make", "-s", "-C", str(SDK / language), f"BUILD={built}", f"{built}/bench"])
    return lambda: _figures([f"{built}/bench"])


def _rust():
    command = ["cargo", "bench", "-p", "plimsoll-sdk", "--bench", "events", "--no-run", "--message-format=json"]
    messages = map(json.loads, _said(command, ROOT).splitlines())
    program = next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "events")
    return lambda: _figures([program, "--bench"])


def _go():
    _said(["go", "build", "-o", str(BUILT / "go"), "./bench"], SDK / "go")
    return lambda: _figures([BUILT / "go"])


def _java():
    maven = ["mvn", "--batch-mode", "--quiet", "-pl", "core,bench", "compile"]
    _said(maven, SDK / "java", dict(os.environ, JAVA_HOME=str(_java_home())))
    path = ":".join(str(SDK / "java" / module / "target" / "classes") for module in ("core", "bench"))
    java = [_java_home() / "bin" / "java", "-cp", path, "io.plimsoll.bench.Bench", "pair"]
    return lambda: {name: statistics.median(map(float, _said([*java, *what]).split())) for name, what in JAVA.items()}


def _python():
    environment = dict(os.environ, PYTHONPATH=str(SDK / "python" / "src"), PYTHONDONTWRITEBYTECODE="1")
    return lambda: _figures([_python_program(), SDK / "python" / "bench"], environment)


def chosen():
    """What was chosen by the environment, as one writes it before a command."""
    return f"PYTHON={os.environ['PYTHON']} " if "PYTHON" in os.environ else ""


def _python_program():
    return os.environ.get("PYTHON", "python3")


def _java_home():
    """The JDK that the SDK's own scripts choose."""
    found = _said(["bash", "-c", '. ./jdk.sh >&2 && echo "$JAVA_HOME"'], SDK / "java")
    return type(ROOT)(found.strip())


def _figures(command, environment=None):
    """The one line of JSON that a benchmark prints, without what are no figures."""
    line = json.loads(_said(command, environment=environment))
    return {name: value for name, value in line.items() if name.endswith("_ns")}


def _said(command, directory=None, environment=None):
    run = subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return run.stdout
