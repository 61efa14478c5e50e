"""What `run.sh` and `plimsoll fleet train` call."""

import argparse
import sys
from pathlib import Path


def base(args):
    """The base model: on the paper's graphs, and then, if asked to, on random fleets of the fleet simulator. The defaults are what the model
    that comes with Plimsoll was trained with."""
    from . import curves
    from .train import train

    args.out.mkdir(parents=True, exist_ok=True)
    options = {"check_every": args.check_every, "validation": args.validation}
    with open(args.out / "graphs.csv", "w") as rows:
        file = train("graphs", args.episodes, args.seed, curves=rows, **options)
    if args.fleet_episodes:
        options["check_every"] = args.fleet_episodes // 10
        with open(args.out / "fleets.csv", "w") as rows:
            file = train("fleets", args.fleet_episodes, args.seed + 1, base=file, fleets=16, curves=rows, **options)
    (args.out / "base.safetensors").write_bytes(file)
    stages = [(name, args.out / f"{name}.csv") for name in ("graphs", "fleets")]
    curves.draw([stage for stage in stages if stage[1].exists()], args.out / "curves.svg")
    vectors(file, args.out / "vectors.csv")


def vectors(file, path):
    """States and the actions that the training's own arithmetic gives, for the test that production gives the same."""
    import numpy as np

    from .network import forward, from_bytes

    params, _ = from_bytes(file)
    states = [(goodput / 8, latency) for goodput in range(17) for latency in (0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 1.0, 1.5, 3.0, 8.0)]
    inputs = np.array([(min(goodput, 2.0), np.log1p(latency)) for goodput, latency in states], np.float32)
    lines = [f"{goodput},{latency},{float(action):.9g}" for (goodput, latency), action in zip(states, forward(params["actor"], inputs))]
    path.write_text("goodput,latency,action\n" + "\n".join(lines) + "\n")


def specialise(args):
    """Trains weights, read from standard input, further on a scenario (section 4.3), under random loads."""
    from .train import train

    base = sys.stdin.buffer.read()
    file = train(
        str(args.scenario), args.episodes, args.seed, base=base, fleets=8, check_every=max(args.episodes // 10, 8),
        score=lambda weights: scenario_score(args.scenario, weights),
    )
    args.out.write_bytes(file)
    print(f"{args.out}: trained on {args.scenario}, {args.episodes} episodes from seed {args.seed}", file=sys.stderr)


def scenario_score(scenario, weights):
    import numpy as np

    from . import _native
    from .train import VALIDATION_SEED

    return float(np.mean(_native.scenario_shares(weights, str(scenario), VALIDATION_SEED, 4, False)))


def evaluate(args):
    """Shares of the optimum on the fleets of consecutive seeds, alone and with the model that looks on."""
    import json

    import numpy as np

    from . import _native

    weights, found = args.weights.read_bytes(), {}
    for name, guarded in (("alone", False), ("guarded", True)):
        shares = np.array(_native.shares(weights, args.seed, args.fleets, guarded))
        found[name] = {"mean": shares.mean(), "p5": np.quantile(shares, 0.05), "fleets": args.fleets, "seed": args.seed}
    print(json.dumps(found, indent=2, default=float))


def check(args):
    """That production acts as the training does: on the states of a file of vectors, with the same weights."""
    from . import _native

    weights = args.weights.read_bytes()
    lines = [[float(number) for number in line.split(",")] for line in args.vectors.read_text().splitlines()[1:]]
    worst = max(abs(_native.act(weights, goodput, latency) - action) for goodput, latency, action in lines)
    if not lines or worst > 2e-6:
        sys.exit(f"{args.weights}: an action is off by {worst}")
    print(f"{args.weights}: {len(lines)} actions are the same, within {worst:.1e}")


def main():
    parser = argparse.ArgumentParser(prog="plimsoll_training", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("base", help=base.__doc__)
    command.add_argument("--out", type=Path, required=True, help="a directory")
    command.add_argument("--episodes", type=int, default=6_000)
    command.add_argument("--fleet-episodes", type=int, default=0)
    command.add_argument("--check-every", type=int, default=1_000)
    command.add_argument("--validation", type=int, default=24, help="fleets that checkpoints are chosen by")
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(run=base)
    command = commands.add_parser("specialise", help=specialise.__doc__)
    command.add_argument("scenario", type=Path)
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--episodes", type=int, default=800)
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(run=specialise)
    command = commands.add_parser("evaluate", help=evaluate.__doc__)
    command.add_argument("--weights", type=Path, required=True)
    command.add_argument("--fleets", type=int, default=200)
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(run=evaluate)
    command = commands.add_parser("check", help=check.__doc__)
    command.add_argument("--weights", type=Path, required=True)
    command.add_argument("--vectors", type=Path, required=True)
    command.set_defaults(run=check)
    args = parser.parse_args()
    args.run(args)


main()
