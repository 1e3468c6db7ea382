"""Vector simulators: an honest one in all variants, and others that break one rule each.

``module:name`` reaches them from the command line.
"""

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

STEPS = 30


class Walk(VectorEnv):
    """A walk of each row with noise of its own, to one of two walls; the reward is what the row moved to the right."""

    def __init__(self, num_envs=1, autoreset="NEXT_STEP"):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode[autoreset]}
        self.mode = AutoresetMode[autoreset]
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space = spaces.Discrete(3, start=5)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.place = np.zeros(num_envs)
        self.marked = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.seeded(seed)
        mask = (options or {}).get("reset_mask")
        if mask is None:
            self.place = self.starts()
            self.ended = np.zeros(self.num_envs, bool)
        else:
            self.restart(mask)
        self.marked = np.zeros(self.num_envs, bool)
        return self.seen(), {}

    def step(self, actions):
        assert self.action_space.contains(actions), actions
        assert not (self.mode is AutoresetMode.DISABLED and self.ended.any()), "a row that is over was stepped"
        moved = self.moves(actions)
        self.place = self.place + moved
        over = np.abs(self.place) > 1
        if self.mode is AutoresetMode.NEXT_STEP:
            self.restart(self.marked)
            moved[self.marked], over[self.marked] = 77.0, False
            self.marked = over
        elif self.mode is AutoresetMode.SAME_STEP:
            self.restart(over)
        else:
            self.ended = over
        return self.seen(), moved, over, np.zeros(self.num_envs, bool), {}

    def seeded(self, seed):
        self.random, self.restarts = (np.random.default_rng([seed, part]) for part in (0, 1))

    def starts(self):
        return self.random.uniform(-0.5, 0.5, self.num_envs)

    def moves(self, actions):
        return (actions - 6) * 0.2 + self.noise()

    def noise(self):
        return self.random.normal(0, 0.1, self.num_envs)

    def restart(self, mask):
        if mask.any():
            self.place = np.where(mask, self.restarts.uniform(-0.5, 0.5, self.num_envs), self.place)
        self.ended = self.ended & ~mask

    def seen(self):
        return np.stack((self.place, self.place**2), axis=1).astype(np.float32)


class StillOver(Walk):
    """Says once more that an episode is over, in the step that starts the row again."""

    def step(self, actions):
        restarted = self.marked
        seen, moved, over, cut, info = super().step(actions)
        return seen, moved, over | restarted, cut, info


class OneBuffer(Walk):
    """Observations are in one array, which every step writes over; so are rewards. Allowed."""

    def seen(self):
        if not hasattr(self, "buffer"):
            self.buffer = np.zeros((self.num_envs, 2), np.float32)
        self.buffer[:] = super().seen()
        return self.buffer


class Torch(Walk):
    """Takes and returns tensors."""

    def reset(self, **given):
        seen, info = super().reset(**given)
        return torch.from_numpy(seen), info

    def step(self, actions):
        *shown, info = super().step(actions.numpy())
        return *(torch.from_numpy(part) for part in shown), info


class Frozen:
    """An array that nobody can write into, as JAX has them."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **given):
        return self.array.__dlpack__(**given)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return Frozen

    @classmethod
    def from_dlpack(cls, given):
        return cls(np.from_dlpack(given))


class Immutable(Walk):
    """Takes and returns arrays like those of JAX."""

    def reset(self, **given):
        seen, info = super().reset(**given)
        return Frozen(seen), info

    def step(self, actions):
        assert isinstance(actions, Frozen)
        *shown, info = super().step(actions.array)
        return *(Frozen(part) for part in shown), info


class Parts(Walk):
    """Observations and actions in parts."""

    def __init__(self, num_envs=1, autoreset="NEXT_STEP"):
        super().__init__(num_envs, autoreset)
        self.single_observation_space = spaces.Dict(
            picture=spaces.Box(0, 255, (2, 2), np.uint8),
            place=spaces.Box(-np.inf, np.inf, (2,), np.float32),
            which=spaces.Tuple(
                (spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 3], start=[1, 0]), spaces.MultiBinary(2))
            ),
        )
        self.single_action_space = spaces.MultiDiscrete([2, 3], start=[0, 5])
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def moves(self, actions):
        return super().moves(actions[:, 1]) * np.where(actions[:, 0] == 0, 1, -1)

    def seen(self):
        side = np.sign(np.round(2 * self.place)).astype(int)
        signs = np.stack((side > 0, side < 0), axis=1).astype(int)
        return {
            "picture": np.full((self.num_envs, 2, 2), 51, np.uint8) * (side[:, None, None] + 1).astype(np.uint8),
            "place": super().seen(),
            "which": (side, np.stack((1 + (side > 0), side + 1), axis=1), signs),
        }


# --- rules that are broken -------------------------------------------------------------------------------------------


class SharedNoise(Walk):
    """One walk in all rows."""

    def starts(self):
        return np.full(self.num_envs, self.random.uniform(-0.5, 0.5))

    def noise(self):
        return np.full(self.num_envs, self.random.normal(0, 0.1))


class Twins(Walk):
    """Every row has a twin."""

    def starts(self):
        return np.repeat(super().starts()[: -(-self.num_envs // 2)], 2)[: self.num_envs]

    def noise(self):
        return np.repeat(super().noise()[: -(-self.num_envs // 2)], 2)[: self.num_envs]


class SharedWind(Walk):
    """Rows walk for themselves, in one wind."""

    def noise(self):
        return super().noise() + self.wind

    def seeded(self, seed):
        super().seeded(seed)
        self.wind = self.random.normal(0, 0.1)


class Crowd(Walk):
    """Rows push each other away, a little."""

    def moves(self, actions):
        return super().moves(actions) + 1e-6 * (self.place - self.place.mean())


class Pushed(Walk):
    """Rows with an even number are pushed, a little, by the row behind them."""

    def moves(self, actions):
        pushed = np.arange(self.num_envs) % 2 == 0
        return super().moves(actions) + 1e-6 * pushed * np.roll(self.place, -1)


class Pulled(Walk):
    """Rows with an odd number are pulled, a little, by the row in front of them."""

    def moves(self, actions):
        pulled = np.arange(self.num_envs) % 2 == 1
        return super().moves(actions) + 1e-6 * pulled * np.roll(self.place, 1)


class OneGenerator(Walk):
    """How many rows are restarted decides which numbers the others draw."""

    def restart(self, mask):
        self.place[mask] = self.random.uniform(-0.5, 0.5, mask.sum())
        self.ended = self.ended & ~mask


class DeafToMask(Walk):
    """Says that rows can be restarted alone, and restarts all of them."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs, "DISABLED")

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)


class Unrepeatable(Walk):
    """Draws from the operating system."""

    def noise(self):
        return np.random.default_rng().normal(0, 0.1, self.num_envs)


class DeafToSeed(Walk):
    """Every seed is one."""

    def seeded(self, seed):
        super().seeded(0)


class Aging(Walk):
    """Gets slower with every reset."""

    age = 0

    def reset(self, *, seed=None, options=None):
        self.age += 1
        return super().reset(seed=seed, options=options)

    def moves(self, actions):
        return super().moves(actions) * (1 - 1e-6 * self.age)


class Herd(Walk):
    """Pays more where there are more rows than in any trial."""

    def step(self, actions):
        seen, moved, *others = super().step(actions)
        return seen, moved + (self.num_envs > 32), *others


class BornDifferent(Walk):
    """No two copies are alike."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs)
        self.speed = np.random.default_rng().uniform(0.5, 1)

    def moves(self, actions):
        return super().moves(actions) * self.speed


class Terrains(Walk):
    """Every row is harder than the one before."""

    def moves(self, actions):
        return super().moves(actions) - np.linspace(0, 0.2, self.num_envs)


class NotFinite(Walk):
    """Divides by 0 after a while."""

    def seen(self):
        seen = super().seen()
        seen[np.abs(seen) > 0.9] = np.nan
        return seen


class Flat(Walk):
    """Forgets the rows of its rewards."""

    def step(self, actions):
        seen, reward, *others = super().step(actions)
        return seen, float(reward.sum()), *others


class Silent(Walk):
    """Does not say what it does with rows that are over."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs)
        self.metadata = {}


class Stubborn(Walk):
    """Has always seven rows."""

    def __init__(self, num_envs=1):
        super().__init__(7)
