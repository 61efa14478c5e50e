"""`plimsoll testbed pages`: the server that is overloaded, its routes, and the objectives that it is held to."""

from . import tools
from .load import write_mix
from .process import Process, free_ports

SHARES = {"cheap": 0.5, "middling": 0.3, "heavy": 0.2}


class Pages(Process):
    """The server on one CPU, with `work` "wait" or "cpu"."""

    def __init__(self, directory, work, workers, cpu=0):
        [self.port] = free_ports(1)
        listen = f"127.0.0.1:{self.port}"
        argv = [tools.path("plimsoll"), "testbed", "pages", "--listen", listen, "--work", work]
        super().__init__([*argv, "--workers", workers, "--cpu", cpu], directory / "pages.log", [cpu])

    def __enter__(self):
        super().__enter__()
        try:
            self.answers(self.port)
        except BaseException:
            self.__exit__()
            raise
        return self


def mix(directory, slos):
    """A mix of the three pages. Goodput counts what is answered within the 90th percentile of its class."""
    requests = {
        name: {"path": f"/{name}", "share": share, "deadline_ms": slos[name][1]} for name, share in SHARES.items()
    }
    return write_mix(directory / "mix.toml", requests)


def classes_toml(slos):
    """The classes of a sentry's config: {name: (p50_ms, p90_ms)}."""
    tables = [
        f'[class.{name}]\nmatch = [{{ path = "/{name}" }}]\nslo = {{ p50 = "{p50}ms", p90 = "{p90}ms" }}\n'
        for name, (p50, p90) in slos.items()
    ]
    return "\n".join(tables)
