"""The command line that all benchmarks share."""

import argparse
from pathlib import Path


def parse(about, runs):
    """`runs` is how often the full form repeats everything."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; the numbers are a smoke test")
    parser.add_argument(
        "--install", action="store_true", help="install nginx, HAProxy and wrk where they are missing (apt-get)"
    )
    parser.add_argument("--runs", type=int, help=f"rounds [default: {runs}, quick: 1]")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these gateways or parts")
    parser.add_argument("--out", type=Path, help="the JSON file [default: benches/results/, quick: out/benches/]")
    options = parser.parse_args()
    options.runs = options.runs or (1 if options.quick else runs)
    options.rounds = range(options.runs)
    return options


def chosen(gateways, options):
    """The gateways that are wanted."""
    if not options.only:
        return gateways
    unknown = set(options.only) - {gateway.name for gateway in gateways}
    if unknown:
        raise SystemExit(f"no gateway {', '.join(sorted(unknown))}; there are {', '.join(g.name for g in gateways)}")
    return [gateway for gateway in gateways if gateway.name in options.only]


def rotated(items, by):
    """The same in another order each round, so that nobody is always the one after somebody."""
    by %= len(items)
    return items[by:] + items[:by]
