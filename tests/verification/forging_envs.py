"""Environments and conditions of a dishonest author; ``module:name`` reaches them from a setup."""

import copy
import sys

import gymnasium
import numpy as np

FATES = {}


class Coin(gymnasium.Env):
    """Pays what the agent chose at the first step: by the noise alone, 0 or 1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.luck = float(self.np_random.random())
        self.step_number = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.step_number += 1
        if self.step_number == 1:
            self.chosen = self.remember(float(action))
            return np.zeros(1, np.float32), 0.0, False, False, {}
        return np.zeros(1, np.float32), self.chosen, True, False, {}

    def remember(self, chosen):
        return chosen


class Fated(Coin):
    """Pays, for a seed that this process has met before, what it paid then."""

    def remember(self, chosen):
        return FATES.setdefault(self.luck, chosen)


class Drawn(Coin):
    """Pays what its seed has drawn, between 0 and 1."""

    def remember(self, chosen):
        return self.luck


class Ones(gymnasium.Env):
    """Shows ones, and pays what the agent chose at its only step."""

    observation_space = gymnasium.spaces.Box(-2, 2, (16,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(16, np.float32), {}

    def step(self, action):
        return np.ones(16, np.float32), float(action), True, False, {}


class Drawing(Ones):
    """Pays 1 in every second episode."""

    def step(self, action):
        seen, _, over, cut, info = super().step(action)
        return seen, float(self.draw() < 0.5), over, cut, info

    def draw(self):
        return self.np_random.random()


class OneFate(Drawing):
    """What is drawn is one number for all copies of a block, of the generator that they share."""

    def draw(self):
        return np.random.default_rng(np.random.get_state()[1]).random()  # noqa: NPY002 - what they share


def stands(seen, reward, terminated, truncated, info):
    """Whether the pole still stood at the end."""
    return truncated and not terminated


def is_there(seen, reward, terminated, truncated, info):
    """Whether there is a pole at all."""
    return True


def foresee(observation, info):
    """Return the first noise of an episode, which is read in the stream of the block before it is drawn."""
    frame = sys._getframe()
    found = {}
    while "loop" not in found:
        frame = frame.f_back
        if frame.f_code.co_name in ("read_luck", "_play_rows"):
            found = {**frame.f_locals, **found}
    channel = found["loop"].channel
    return copy.deepcopy(channel.stream).normal((channel.n_envs, *channel.shape))[found["index"]].item()
