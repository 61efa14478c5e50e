"""Training: rollouts and updates in turn, with checkpoints of which the best is kept."""

import csv
import sys
import time

import jax
import numpy as np

from . import _native, network, ppo
from .fleets import Fleets

# Fleets, and runs of a scenario, that checkpoints are chosen by: other ones than those of studies, whose seeds are small.
VALIDATION_SEED = 1_000_001
COLUMNS = ["episodes", "return", "share", "kl", "kl_coefficient", "spread", "validation", "cpu_s"]


def validate(weights, fleets, seconds=30.0):
    """The mean share of the optimum on fleets of the fleet simulator, without the model that looks on."""
    return float(np.mean(_native.shares(weights, VALIDATION_SEED, fleets, False, seconds)))


def train(source, episodes, seed, base=None, fleets=80, check_every=2400, validation=24, score=None, curves=None, settings=ppo.Settings()):
    """Trains for so many episodes; from `base`, the bytes of a file, or from nothing. Returns the file of the best checkpoint. `score`
    says how good one is."""
    score = score or (lambda weights: validate(weights, validation))
    params, highest = network.from_bytes(base) if base else (network.fresh(seed), np.zeros(network.INPUTS))
    state = ppo.optimiser(settings).init(params)
    envs = Fleets(source, fleets, seed)
    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    states, _ = envs.reset()
    coefficient, done, checked, best = settings.kl_coefficient, 0, 0, None
    rows = csv.DictWriter(curves, COLUMNS) if curves else None
    if rows:
        rows.writeheader()
    if base:
        best = (score(base), base)
    while done < episodes:
        envs.set_weights(network.to_bytes(params, highest + 1.0))
        batch, states, seen = ppo.rollout(envs, states, params, rng, settings)
        highest = np.maximum(highest, seen["highest"])
        key, part = jax.random.split(key)
        params, state, kl = ppo.update(params, state, batch, coefficient, part, settings)
        coefficient = ppo.adapt(coefficient, float(kl), settings)
        done += fleets
        valued = ""
        if done // check_every > checked or done >= episodes:
            checked = done // check_every
            file = network.to_bytes(params, highest, {"episodes": str(done), "seed": str(seed), "source": source})
            valued = score(file)
            if best is None or valued > best[0]:
                best = (valued, file)
            print(
                f"{done:6d} episodes: return {seen['return']:7.3f}, share {seen['share']:.3f}, "
                f"validation {valued:.4f}, spread {float(np.exp(params['log_std'])):.3f}, {time.process_time():.0f} CPU s",
                file=sys.stderr,
            )
        if rows:
            values = [done, seen["return"], seen["share"], float(kl), coefficient]
            values += [float(np.exp(params["log_std"])), valued, time.process_time()]
            rows.writerow(dict(zip(COLUMNS, values)))
    return best[1]
