"""Environments and agents that break one rule each, and ``Honest``, their twin that breaks none.

``module:name`` reaches them from the command line.
"""

import ctypes
import faulthandler
import os
import sys

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

STEPS = 25  # of every episode
HERE = os.getpid()  # of the tests, where they import this: it must not end there as if all tests had passed
shared = np.random.default_rng(0)
started = []  # a copy of an environment for each reset in this process


def leave():
    """End this process, unless it is that of the tests."""
    assert os.getpid() != HERE
    os._exit(0)


class Stopped(BaseException):
    """Not an Exception."""


class Honest(gymnasium.Env):
    """Fresh numbers at every step, and one fair coin at the end."""

    observation_space = Box(-1.0, 1.0, (4,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        started.append(self)
        return self.seen(), {}

    def step(self, action):
        self.clock += 1
        self.misbehave()
        over = self.clock == STEPS
        return self.seen(), self.paid() if over else 0.0, over, False, {}

    def seen(self):
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)

    def paid(self):
        return float(self.np_random.random() < 0.5)

    def misbehave(self):
        """Do nothing."""


class Talks(Honest):
    """Prints, as its libraries in C do."""

    def misbehave(self):
        print("a word of Python")
        os.write(1, b"a word of C\n")


def talk(seen):
    """Answer with a word too much."""
    print("a word of the agent")
    return 0


# --- those that end their process ---


class Exits(Honest):
    def misbehave(self):
        sys.exit(0)


class Leaves(Honest):
    def misbehave(self):
        leave()


class Stops(Honest):
    def misbehave(self):
        raise Stopped("enough")


class Crashes(Honest):
    def misbehave(self):
        assert os.getpid() != HERE
        faulthandler.disable()  # pytest's would print all threads
        ctypes.string_at(0)


class LeavesLate(Honest):
    """Ends its process after more steps than a trial takes."""

    steps = 0

    def misbehave(self):
        LeavesLate.steps += 1
        if LeavesLate.steps > 4_000:
            leave()


class LeavesAtBirth(Honest):
    def __init__(self):
        leave()


# --- those whose episodes depend on each other ---


class LateDraw(Honest):
    """Pays by a generator of its module, which it touches late in an episode."""

    def paid(self):
        return float(shared.random() < 0.5)


class OnceSeeded(Honest):
    """Draws from the operating system in all episodes but the first, which is seeded."""

    def reset(self, *, seed=None, options=None):
        if seed is None:
            self.np_random = np.random.default_rng()
        return super().reset(seed=seed)


class Harder(Honest):
    """Pays less with every reset of a copy."""

    begun = 0

    def reset(self, *, seed=None, options=None):
        self.begun += 1
        return super().reset(seed=seed)

    def paid(self):
        return 1.0 / self.begun


class FatePerObject(Honest):
    """Is good or bad for ever, by what it draws first."""

    fate = None

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        if self.fate is None:
            self.fate = float(self.np_random.random())
        return found

    def paid(self):
        return self.fate


class Touching(Honest):
    """Keeps its clock in the class: copies that are stepped in turn share it."""

    @property
    def clock(self):
        return Touching.now

    @clock.setter
    def clock(self, value):
        Touching.now = value


class Follower(Honest):
    """Sees nothing where an older copy has moved since its own last step; the oldest notices nothing of the others."""

    n_made = 0
    moved = None

    def __init__(self):
        Follower.n_made += 1
        self.number = Follower.n_made

    def reset(self, *, seed=None, options=None):
        Follower.moved = self
        return super().reset(seed=seed)

    def seen(self):
        is_led = Follower.moved.number < self.number
        Follower.moved = self
        return super().seen() * (not is_led)


class Recognizing(Honest):
    """Pays less under a seed that this copy has met before."""

    def __init__(self):
        self.met = []

    def reset(self, *, seed=None, options=None):
        self.met.append(seed)
        return super().reset(seed=seed)

    def paid(self):
        return super().paid() / self.met.count(self.met[-1])


class DeafToSeeds(Honest):
    """Begins with the same numbers whatever the seed."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=None if seed is None else 0)


class Drawless(Honest):
    """Draws nothing, so that all seeds are alike."""

    def seen(self):
        return np.full(4, self.clock / STEPS, dtype=np.float32)

    def paid(self):
        return 1.0


class Drifting(Honest):
    """Differs after a reset by rounding alone, as some simulators do."""

    begun = 0

    def reset(self, *, seed=None, options=None):
        self.begun += 1
        return super().reset(seed=seed)

    def seen(self):
        return (super().seen() * (1 + 1e-6 * self.begun)).clip(-1, 1).astype(np.float32)


class Acting(Honest):
    """Pays the action. All copies have one action space, an attribute of the class."""

    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, float(action), *rest


class GlobalDraws(Honest):
    """Draws from numpy's global generator, which is seeded for every block."""

    def seen(self):
        return np.random.uniform(-1, 1, 4).astype(np.float32)  # noqa: NPY002

    def paid(self):
        return float(np.random.random() < 0.5)  # noqa: NPY002


class Patient(Honest):
    """Is good for the first 300 resets of a process."""

    begun = 0

    def reset(self, *, seed=None, options=None):
        Patient.begun += 1
        return super().reset(seed=seed)

    def paid(self):
        return super().paid() if Patient.begun <= 300 else 0.0


# --- agents ---


def agent(seen):
    return 0


def exits(seen):
    sys.exit(0)


def leaves(seen):
    leave()


class Module(nn.Module):
    """Calls sys.exit in a run, where an environment is in the same process, not on the observations of a trial."""

    def forward(self, seen):
        if started:
            sys.exit(0)
        return torch.stack((torch.ones(len(seen)), torch.zeros(len(seen))), dim=1)


# --- what reads luck ---


def scribbling(observation, info):
    """Change whatever is given."""
    read = float(observation[0])
    observation[:] = 0.0
    info.clear()
    return read
