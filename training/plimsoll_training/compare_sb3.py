"""Holds our PPO against the one of Stable-Baselines3: the same environment, network, initial weights, settings and number of steps.

    training/run.sh --setup
    out/training-venv/bin/pip install 'stable-baselines3>=2.7,<3'      # with PyTorch; some 5 GB
    out/training-venv/bin/python -m plimsoll_training.compare_sb3 [--episodes 6000] [--seed 1] [--seeds 3] [--out curves.csv]

Theirs has no term for how far a policy moves (KL), so ours is tried without it, too. Curves are of the episodes that were learned from, with
what is spread around the actions; what was learned is then judged without, on fleets of the fleet simulator.
"""

import argparse
import csv
import dataclasses
import functools
import io
import time

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from . import Fleets, network, ppo, train

COUNT = 80
COLUMNS = ["learner", "seed", "episodes", "return", "share"]
# The parts of training that the table tells of, and the fleets that judge what came of it.
PARTS = [0.05, 0.1, 0.25, 0.5, 1.0]
VALIDATION = 24


class Envs(VecEnv):
    """Our fleets as Stable-Baselines3 wants them."""

    def __init__(self, seed):
        self.fleets = Fleets("graphs", COUNT, seed)
        super().__init__(COUNT, self.fleets.single_observation_space, self.fleets.single_action_space)
        self.rewards, self.shares = [], []

    def reset(self):
        return self.fleets.reset()[0].copy()

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        states, rewards, ended, _, info = self.fleets.step(self.actions)
        self.rewards.append(rewards.sum())
        self.shares.extend(info["share"][ended])
        # Theirs keeps what it is given; ours writes over it.
        return states.copy(), rewards.copy(), ended, [{"terminal_observation": state} if end else {} for state, end in zip(states.copy(), ended)]

    def close(self):
        pass

    def get_attr(self, name, indices=None):
        return [getattr(self, name, None)] * COUNT

    def set_attr(self, name, value, indices=None):
        raise NotImplementedError

    def env_method(self, name, *args, indices=None, **kwargs):
        raise NotImplementedError

    def env_is_wrapped(self, wrapper, indices=None):
        return [False] * COUNT


def layers_of(policy):
    """Their layers by the names of ours."""
    actor, critic = policy.mlp_extractor.policy_net, policy.mlp_extractor.value_net
    return {"actor": [actor[0], actor[2], policy.action_net], "critic": [critic[0], critic[2], policy.value_net]}


def begin_as(policy, params):
    """Theirs are drawn otherwise: four times as small in the first layer. What is compared is how they learn."""
    with torch.no_grad():
        for name, layers in layers_of(policy).items():
            for layer, start in zip(layers, params[name]):
                layer.weight.copy_(torch.tensor(np.array(start["kernel"]).T))
                layer.bias.copy_(torch.tensor(np.array(start["bias"])))


def file_of(policy):
    """What they have learned as one of our files."""
    array = lambda tensor: tensor.detach().numpy()
    params = {
        name: [{"kernel": array(layer.weight).T, "bias": array(layer.bias)} for layer in layers]
        for name, layers in layers_of(policy).items()
    }
    params["log_std"] = array(policy.log_std)[0]
    return network.to_bytes(params, np.full(network.INPUTS, np.finfo(np.float32).max))


class Watch(BaseCallback):
    """A row a rollout, as our training writes them."""

    def __init__(self):
        super().__init__()
        self.rows, self.episodes = [], 0

    def _on_rollout_start(self):
        self.training_env.fleets.set_weights(file_of(self.model.policy))

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        envs = self.training_env
        self.episodes += len(envs.shares)
        self.rows.append({"episodes": self.episodes, "return": sum(envs.rewards) / len(envs.shares), "share": np.mean(envs.shares)})
        envs.rewards, envs.shares = [], []


def theirs(episodes, seed):
    settings = ppo.Settings()
    layers = [network.WIDTH, network.WIDTH]
    policy = {
        "net_arch": {"pi": layers, "vf": layers}, "activation_fn": torch.nn.Softsign,
        "log_std_init": float(np.log(network.SPREAD)), "optimizer_kwargs": {"eps": 1e-8},
    }
    learner = PPO(
        "MlpPolicy", Envs(seed), learning_rate=settings.learning_rate, n_steps=ppo.STEPS, batch_size=settings.minibatch,
        n_epochs=settings.epochs, gamma=settings.discount, gae_lambda=settings.trace, clip_range=settings.clip,
        vf_coef=settings.value_coefficient, max_grad_norm=np.inf, policy_kwargs=policy, seed=seed, device="cpu",
    )
    begin_as(learner.policy, network.fresh(seed))
    watch = Watch()
    learner.learn(episodes * ppo.STEPS, callback=watch)
    return watch.rows, file_of(learner.policy)


def ours(episodes, seed, **settings):
    curves, files = io.StringIO(), []
    score = lambda file: files.append(file) or 0.0  # which one is best does not matter here: the last one is taken
    changed = functools.partial(dataclasses.replace, ppo.Settings(), **settings)
    train.train("graphs", episodes, seed, fleets=COUNT, check_every=episodes, score=score, curves=curves, settings=changed())
    curves.seek(0)
    return [{name: float(row[name]) for name in COLUMNS[2:]} for row in csv.DictReader(curves)], files[-1]


LEARNERS = {"ours": ours, "ours, no KL": functools.partial(ours, kl_coefficient=0.0), "Stable-Baselines3": theirs}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=6_000)
    parser.add_argument("--seed", type=int, default=1, help="the first")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--out", help="where to write the curves")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    points = [max(COUNT, int(part * args.episodes)) for part in PARTS]
    print("share of the best in the last fifth of an episode, at episodes | return at the end | on fleets | steps per CPU second")
    for name, learn in LEARNERS.items():
        for seed in range(args.seed, args.seed + args.seeds):
            began = time.process_time()
            curve, file = learn(args.episodes, seed)
            per_s = args.episodes * ppo.STEPS / (time.process_time() - began)
            rows += [{"learner": name, "seed": seed, **row} for row in curve]
            # The mean of five rollouts up to there: one is 80 episodes of a share that varies by 0.2.
            mean = lambda column, until: np.mean([row[column] for row in curve if row["episodes"] <= until][-5:])
            shares = ", ".join(f"{point}: {mean('share', point):.3f}" for point in points)
            judged = train.validate(file, VALIDATION)
            print(f"{name}, seed {seed}: {shares} | {mean('return', args.episodes):.3f} | {judged:.3f} | {per_s:,.0f}", flush=True)
    if args.out:
        with open(args.out, "w", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
