"""Proximal policy optimisation (Schulman et al., 2017) with the settings of the TopFull paper, Table 1; what that leaves open is RLlib's
default, which its authors took."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .network import forward

STEPS = 50


@dataclass(frozen=True)
class Settings:
    """Those of Table 1 first."""

    learning_rate: float = 5e-5
    kl_coefficient: float = 0.2
    kl_target: float = 0.01
    minibatch: int = 128
    clip: float = 0.3
    epochs: int = 30
    discount: float = 0.99
    trace: float = 0.95
    value_coefficient: float = 1.0


def log_probability(mean, log_std, action):
    return -0.5 * jnp.square((action - mean) / jnp.exp(log_std)) - log_std - 0.5 * jnp.log(2 * jnp.pi)


def loss(params, batch, kl_coefficient, settings):
    mean, log_std = forward(params["actor"], batch["state"]), params["log_std"]
    ratio = jnp.exp(log_probability(mean, log_std, batch["action"]) - batch["log_probability"])
    advantage = batch["advantage"]
    clipped = jnp.clip(ratio, 1.0 - settings.clip, 1.0 + settings.clip)
    gain = jnp.minimum(ratio * advantage, clipped * advantage)
    # Between two normal distributions, from the one that acted to the one that is to.
    before = batch["log_std"]
    spread = jnp.exp(2 * before) + jnp.square(batch["mean"] - mean)
    kl = log_std - before + spread / (2 * jnp.exp(2 * log_std)) - 0.5
    value = jnp.square(forward(params["critic"], batch["state"]) - batch["return"])
    return jnp.mean(-gain + kl_coefficient * kl + settings.value_coefficient * value), jnp.mean(kl)


def optimiser(settings):
    return optax.adam(settings.learning_rate)


@partial(jax.jit, static_argnames="settings")
def update(params, state, rollout, kl_coefficient, key, settings):
    """All epochs over one rollout. Returns how far the policy moved, too."""
    size = rollout["state"].shape[0]
    count = size // settings.minibatch

    def minibatch(carry, rows):
        params, state = carry
        batch = jax.tree.map(lambda values: values[rows], rollout)
        (_, kl), gradient = jax.value_and_grad(loss, has_aux=True)(params, batch, kl_coefficient, settings)
        change, state = optimiser(settings).update(gradient, state, params)
        return (optax.apply_updates(params, change), state), kl

    def epoch(carry, key):
        rows = jax.random.permutation(key, size)[: count * settings.minibatch]
        return jax.lax.scan(minibatch, carry, rows.reshape(count, settings.minibatch))

    (params, state), kl = jax.lax.scan(epoch, (params, state), jax.random.split(key, settings.epochs))
    return params, state, kl[-1].mean()


def softly(layers, states):
    """`forward` in NumPy: faster on a few rows at a time."""
    for layer in layers[:-1]:
        states = states @ layer["kernel"] + layer["bias"]
        states = states / (1.0 + np.abs(states))
    return (states @ layers[-1]["kernel"] + layers[-1]["bias"])[:, 0]


def rollout(fleets, states, params, rng, settings, steps=STEPS):
    """So many steps of each fleet. Returns what to learn from, the states to go on from, and what was seen on the way."""
    params = jax.tree.map(np.asarray, params)
    count, log_std = fleets.num_envs, float(params["log_std"])
    shape = (steps, count)
    batch = {name: np.zeros(shape, np.float32) for name in ("action", "mean", "reward", "ended", "value")}
    batch["state"] = np.zeros((*shape, states.shape[1]), np.float32)
    shares = []
    for step in range(steps):
        mean = softly(params["actor"], states)
        action = mean + np.exp(log_std) * rng.standard_normal(count, np.float32)
        batch["state"][step], batch["mean"][step], batch["action"][step] = states, mean, action
        batch["value"][step] = softly(params["critic"], states)
        states, reward, ended, _, info = fleets.step(np.clip(action, -0.5, 0.5))
        batch["reward"][step], batch["ended"][step] = reward, ended
        shares.extend(info["share"][ended])
    # Nothing is left to gain where an episode ends: rewards are changes, and what is steady changes no more.
    following, advantage = softly(params["critic"], states), np.zeros(count, np.float32)
    advantages = np.zeros(shape, np.float32)
    for step in reversed(range(steps)):
        on = 1.0 - batch["ended"][step]
        surprise = batch["reward"][step] + settings.discount * on * following - batch["value"][step]
        advantage = surprise + settings.discount * settings.trace * on * advantage
        advantages[step], following = advantage, batch["value"][step]
    batch["return"] = advantages + batch["value"]
    batch["advantage"] = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    batch["log_std"] = np.full(shape, log_std, np.float32)
    batch["log_probability"] = np.asarray(log_probability(batch["mean"], log_std, batch["action"]))
    seen = {
        "return": float(batch["reward"].sum() / max(batch["ended"].sum(), 1.0)),
        "share": float(np.mean(shares)) if shares else float("nan"),
        "highest": batch["state"].max(axis=(0, 1)),
    }
    for name in ("reward", "ended", "value"):
        del batch[name]
    flat = {name: values.reshape(steps * count, *values.shape[2:]) for name, values in batch.items()}
    return flat, states, seen


def adapt(coefficient, kl, settings):
    """The policy is to move by about the target: what holds it back is stronger where it moved too far."""
    if kl > 2.0 * settings.kl_target:
        return coefficient * 1.5
    if kl < 0.5 * settings.kl_target:
        return max(coefficient * 0.5, 1e-4)
    return coefficient
