"""The simulator as a Gymnasium vector environment."""

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from . import _native


class Fleets(gymnasium.vector.VectorEnv):
    """Many fleets, each under the rate control of production, with an agent in the place of what says by how much.

    `source` is "graphs", the paper's simulator; "fleets", random fleets of the fleet simulator; or the path of one of its scenarios. A state is
    goodput over rate limits and the logarithm of one and the tail latency in SLOs. An action is the part of the rates to add, or where
    negative to take away, in a second. The reward is the change of goodput as a part of what could be had, less a tenth of what
    latency is above the SLO. Arrays that are returned are written again by the next step.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, source="graphs", num_envs=80, seed=1):
        self._fleets = _native.Fleets(source, num_envs, seed)
        self.num_envs = num_envs
        inputs = self._fleets.INPUTS
        self.single_observation_space = gymnasium.spaces.Box(0.0, np.inf, (inputs,), np.float32)
        self.single_action_space = gymnasium.spaces.Box(-0.5, 0.5, (1,), np.float32)
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self._states = np.zeros((num_envs, inputs), np.float32)
        self._rewards = np.zeros(num_envs, np.float32)
        self._ended = np.zeros(num_envs, np.uint8)
        self._shares = np.zeros(num_envs, np.float32)
        self._never = np.zeros(num_envs, bool)

    def set_weights(self, weights):
        """Whoever is asked beside the agent in a step is answered by this network from now on."""
        self._fleets.set_weights(weights)

    def reset(self, *, seed=None, options=None):
        """Begins new episodes. Fleets are drawn from the seed that the environment was made with."""
        self._fleets.reset(self._states)
        return self._states, {}

    def step(self, actions):
        """A step of each fleet. `info["share"]` says, where an episode ended, what part of the best its last fifth had."""
        actions = np.ascontiguousarray(np.reshape(actions, self.num_envs), np.float32)
        self._fleets.step(actions, self._states, self._rewards, self._ended, self._shares)
        return self._states, self._rewards, self._ended.astype(bool), self._never, {"share": self._shares}
