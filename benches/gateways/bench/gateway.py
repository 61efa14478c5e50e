"""A gateway under test: one program, one config made from a template, one set of CPUs."""

import re
import string
from dataclasses import dataclass, field
from pathlib import Path

from . import tools
from .process import Process, free_ports

# Which program a template is for, where its name does not say it.
PROGRAMS = {"sentry": "plimsoll", "server": "nginx"}
CONFIGS = Path(__file__).resolve().parents[1] / "configs"


class Template(string.Template):
    """`@name@`, since nginx and HAProxy write their own variables with a dollar."""

    delimiter = "@"
    pattern = r"@(?:(?P<named>[a-z_0-9]+)@|(?P<escaped>@)|(?P<braced>(?!))|(?P<invalid>(?!)))"


@dataclass(frozen=True)
class Gateway:
    """How to start a gateway. The template's name says which program it is for."""

    name: str
    template: str
    settings: dict = field(default_factory=dict)

    @property
    def program(self):
        """Which program it is."""
        stem = Path(self.template).stem
        return PROGRAMS.get(stem, stem)

    def running(self, upstream, cpus, directory):
        """The gateway in front of the port `upstream`, to be used in a `with` block."""
        return Running(self, upstream, cpus, directory)


class Running(Process):
    """A gateway that runs: `port` for HTTP/1.1, `port_h2` for HTTP/2 in the clear, `admin`."""

    def __init__(self, gateway, upstream, cpus, directory):
        self.name = gateway.name
        self.port, port_h2, self.admin = free_ports(3)
        # nginx and HAProxy must be told which version a port speaks; the others see it.
        self.port_h2 = port_h2 if gateway.program in ("nginx", "haproxy") else self.port
        place = directory / re.sub(r"\W+", "-", gateway.name)
        place.mkdir(exist_ok=True)
        config = place / Path(gateway.template).name
        text = Template((CONFIGS / gateway.template).read_text())
        config.write_text(
            text.substitute(
                port=self.port,
                port_h2=port_h2,
                admin=self.admin,
                upstream=upstream,
                dir=place,
                **gateway.settings,
            )
        )
        super().__init__(_argv(gateway.program, config, place), place / "log", cpus)

    def __enter__(self):
        super().__enter__()
        try:
            self.answers(self.port)
        except BaseException:
            self.__exit__()
            raise
        return self


def _argv(program, config, place):
    return [tools.path(program)] + {
        "nginx": ["-c", config, "-p", place],
        # In the foreground and with a master, as its service file runs it.
        "haproxy": ["-W", "-db", "-f", config],
        "envoy": ["-c", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warn"],
        "plimsoll": ["sentry", "--config", config],
    }[program]
