"""The network: as it is trained, and as it is written for `crates/ratecontrol`."""

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load, save

WIDTH = 32
INPUTS = 2
# What is spread around the action at first.
SPREAD = 0.2


def fresh(seed):
    """Weights before training: an actor, a critic of the same shape, and how much to try around what the actor says."""
    rng = np.random.default_rng(seed)

    def layers(last):
        shapes = [(INPUTS, WIDTH), (WIDTH, WIDTH), (WIDTH, 1)]
        scales = [1.0, 1.0, last]
        return [
            {
                "kernel": jnp.asarray(rng.normal(0.0, scale * (2.0 / shape[0]) ** 0.5, shape), jnp.float32),
                "bias": jnp.zeros(shape[1], jnp.float32),
            }
            for shape, scale in zip(shapes, scales)
        ]

    return {"actor": layers(0.01), "critic": layers(1.0), "log_std": jnp.log(jnp.float32(SPREAD))}


def forward(layers, states):
    """One number a state."""
    for layer in layers[:-1]:
        states = jax.nn.soft_sign(states @ layer["kernel"] + layer["bias"])
    return (states @ layers[-1]["kernel"] + layers[-1]["bias"])[..., 0]


def to_bytes(params, highest, metadata=None):
    """A safetensors file. `highest` is the highest of each input in training; the lowest is zero, below which there is none."""
    tensors = {"log_std": params["log_std"], "inputs.low": np.zeros(INPUTS), "inputs.high": np.asarray(highest)}
    for name in ("actor", "critic"):
        for at, layer in enumerate(params[name]):
            for part, values in layer.items():
                tensors[f"{name}.{at}.{part}"] = values
    # In the order of C: `save` writes memory as it lies.
    return save({name: np.array(values, np.float32, order="C") for name, values in tensors.items()}, metadata)


def from_bytes(file):
    """The weights in a file, and the highest of each input."""
    tensors = load(file)

    def layers(name):
        return [
            {part: jnp.asarray(tensors[f"{name}.{at}.{part}"]) for part in ("kernel", "bias")} for at in range(3)
        ]

    params = {"actor": layers("actor"), "critic": layers("critic"), "log_std": jnp.asarray(tensors["log_std"])}
    return params, tensors["inputs.high"]
