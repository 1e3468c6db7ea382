"""Pilots of the landing, by what they do with the position: average it, believe it, or ignore it.

``averaging``  the pilot that is certified: it averages out the noise of all readings so far
``believing``  the same controller, which takes the newest reading for the truth
``quick``      the believing pilot with a stiffer controller
``blind``      the same controller, which ignores all readings
``open_loop``  a fixed descent, without any sensor

The positions that arrive are perturbed and noisy; velocity and attitude are the drone's own and trusted. What the drone
has travelled since its start follows from the velocity, so every reading less that way is a reading of one and the same
point, the start. After n readings their mean is off by sigma / sqrt(n): 500 readings with 1 m of noise know the start
up to 4.5 cm. An attacker with an l2 budget B moves that mean by at most B / sqrt(n), with one offset on all of them.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path

import torch
from torch import Tensor, nn

import surefoot

# An observation: angular velocity, position, attitude, velocity, the parts of the Dict in the order of its space.
SHAPE = (13,)
POSITION = slice(3, 6)
VELOCITY = slice(10, 13)
GOAL = torch.tensor([0.0, 0.0, 0.1])
# Where drones start, which their operator knows.
START_LOW = torch.tensor([-1.0, -1.0, 1.0])
START_HIGH = torch.tensor([1.0, 1.0, 2.0])
STEP = 0.02  # s
GRAVITY = 9.81
# Of crazyflow's cf2x_L250: mass, and how many times the commanded thrust acts.
MASS = 0.0328
THRUST_GAIN = 1.0232246
LIMITS = ((-math.pi / 2,) * 3 + (4 * 0.012817577,), (math.pi / 2,) * 3 + (4 * 0.12,))
# Of the controller: it comes to rest within about two seconds; the quick one within less than one.
STIFFNESS = 4.0  # 1/s^2
QUICK = 36.0
HARDEST = 3.0  # m/s^2
# The goal is approached at this height, and from above only once many readings have been averaged.
HOVERING = 0.8  # m
DESCENT = (225, 400)  # readings


class Averaging:
    """The memory of readings: how many, the mean start, the way since then, the newest velocity and position."""

    has_action = False

    def empty(self, observation: Tensor) -> Tensor:
        """Return zeros."""
        return observation.new_zeros(len(observation), 13)

    def advance(
        self,
        memory: Tensor,
        seen: Tensor,
        action: Tensor | None = None,  # noqa: ARG002
        episode_start: Tensor | None = None,
    ) -> Tensor:
        """Take in one more reading."""
        count, start, way, before, _ = memory.split((1, 3, 3, 3, 3), dim=1)
        velocity = seen[:, VELOCITY]
        way = way + STEP / 2 * (before + velocity)
        if episode_start is not None:
            first = episode_start.unsqueeze(1)
            count = count.masked_fill(first, 0.0)
            start = start.masked_fill(first, 0.0)
            way = way.masked_fill(first, 0.0)
        count = count + 1
        start = start + (seen[:, POSITION] - way - start) / count
        return torch.cat((count, start, way, velocity, seen[:, POSITION]), dim=1)

    def to(self, device: torch.device | str) -> Averaging:  # noqa: ARG002
        """Return itself: there are no weights."""
        return self

    def describe(self) -> str:
        """Return what it is."""
        return "the mean of all position readings, moved along with the velocity"


class Controller(nn.Module):
    """Attitude and thrust that lead from an estimated position and a velocity to rest at the goal.

    Attributes:
        stiffness: How much acceleration a meter away from the target asks for, 1/s^2; damped so that it does not
            overshoot.
    """

    def __init__(self, stiffness: float = STIFFNESS) -> None:
        super().__init__()
        self.stiffness = stiffness

    def forward(self, memory: Tensor) -> Tensor:
        """Return roll, pitch, yaw and thrust."""
        position, velocity, readings = self.estimate(memory)
        begin, end = DESCENT
        left = ((end - readings) / (end - begin)).clamp(0.0, 1.0)
        target = GOAL.to(position).expand_as(position).clone()
        target[:, 2] += left * (HOVERING - target[:, 2])
        wanted = self.stiffness * (target - position) - 2 * math.sqrt(self.stiffness) * velocity
        size = wanted.norm(dim=1, keepdim=True)
        wanted = wanted * (HARDEST / size.clamp(min=HARDEST))
        upward = wanted[:, 2] + GRAVITY
        roll = -torch.atan2(wanted[:, 1], upward)
        pitch = torch.atan2(wanted[:, 0], upward)
        thrust = MASS / THRUST_GAIN * torch.sqrt(wanted[:, 0] ** 2 + wanted[:, 1] ** 2 + upward**2)
        return torch.stack((roll, pitch, torch.zeros_like(roll), thrust), dim=1)

    def estimate(self, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return where the drone is, as far as it knows, how fast, and the number of readings so far."""
        start = torch.clamp(memory[:, 1:4], START_LOW.to(memory), START_HIGH.to(memory))
        return start + memory[:, 4:7], memory[:, 7:10], memory[:, 0]


class BelievingController(Controller):
    """The same, with the newest reading in place of the mean."""

    def estimate(self, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the newest position, the velocity, and the number of readings so far."""
        return memory[:, 10:], memory[:, 7:10], memory[:, 0]


class BlindController(Controller):
    """The same, as if every drone had started in the middle of where they start."""

    def estimate(self, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return where the drone would be, the velocity, and the number of readings so far."""
        return (START_LOW + START_HIGH).to(memory) / 2 + memory[:, 4:7], memory[:, 7:10], memory[:, 0]


class Descent(nn.Module):
    """Level flight with a little less thrust than weight, then with a little more, by the clock."""

    def forward(self, steps: Tensor) -> Tensor:
        """Return roll, pitch, yaw and thrust of rows that have flown so many steps."""
        seconds = steps.float() * STEP
        # From 1.5 m at rest to the ground in ten seconds: 0.25 m/s down, reached and lost within half a second.
        upward = torch.where(seconds < 0.5, -0.3, torch.where(seconds > 9.5, 0.3, 0.0))
        thrust = MASS / THRUST_GAIN * (GRAVITY + upward)
        level = torch.zeros_like(thrust)
        return torch.stack((level, level, level, thrust), dim=1)


def averaging() -> surefoot.Policy:
    """Return the pilot that averages."""
    return _policy(Controller(), "averaging pilot", Averaging())


def believing() -> surefoot.Policy:
    """Return the pilot that believes every reading."""
    return _policy(BelievingController(), "believing pilot", Averaging())


def quick() -> surefoot.Policy:
    """Return the believing pilot that follows the position more quickly: the better one while nobody interferes."""
    return _policy(BelievingController(QUICK), "quick pilot", Averaging())


def blind() -> surefoot.Policy:
    """Return the pilot that ignores the position and trusts its velocity, so that spoofing does not concern it."""
    return _policy(BlindController(), "blind pilot", Averaging())


def open_loop() -> surefoot.Policy:
    """Return the fixed descent."""
    return _policy(Descent(), "open-loop descent", open_loop=True)


def _policy(
    network: nn.Module, name: str, memory: Averaging | None = None, *, open_loop: bool = False
) -> surefoot.Policy:
    low, high = LIMITS
    spaces = surefoot.Spaces(shape=SHAPE, n_actions=None, low=low, high=high)
    # There are no weights: all of the agent is in this file.
    digest = hashlib.sha256(f"{name}\n".encode() + Path(__file__).read_bytes()).hexdigest()
    return surefoot.Policy(
        network,
        spaces,
        memory=memory,  # type: ignore[arg-type]
        name=name,
        sha256=digest,
        open_loop=open_loop,
    )
