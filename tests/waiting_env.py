"""A Gymnasium environment whose episodes are cheap, and whose process can be made to wait in the middle of a run.

Where ``WAITING_FIFO`` names a pipe, the 300th episode of every process begins when the pipe has been written to.
"""

import os
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

EPISODES = 300
ID = "waiting_env:Waiting-v0"


class Waiting(gymnasium.Env):
    """Five steps of fresh numbers, as wide as CartPole's; the action is the reward."""

    observation_space = Box(-np.inf, np.inf, (4,), np.float32)
    action_space = Discrete(2)
    begun = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        Waiting.begun += 1
        if Waiting.begun == EPISODES and "WAITING_FIFO" in os.environ:
            Path(os.environ["WAITING_FIFO"]).read_bytes()
        return self._observe(), {}

    def step(self, action):
        return self._observe(), float(action), False, False, {}

    def _observe(self):
        return self.np_random.standard_normal(4, dtype=np.float32)


gymnasium.register("Waiting-v0", Waiting, max_episode_steps=5)
