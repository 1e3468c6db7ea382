"""Certify a robot's policy that was exported with its history and its last command as inputs, with a few lines of glue.

Such policies take one long vector: the last readings side by side, often the newest first, and what was commanded
last. The history is the agent's own, behind attacker and noise, so that every reading is perturbed once: ``n_stack``.
The last command is no sensor: it is a part of the observation without noise.
"""

from __future__ import annotations

import tempfile
import warnings
from math import floor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

import surefoot

FRAMES = 4
READINGS, COMMANDS = 3, 1
SIGMA = {"sensors": 0.1}
BUDGETS = (0.0, 0.1, 0.2)


class Exported(nn.Module):
    """What a robot's training leaves: four readings, the newest first, then the last command; here untrained."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(FRAMES * READINGS + COMMANDS, 32), nn.ELU(), nn.Linear(32, COMMANDS))

    def forward(self, seen: Tensor) -> Tensor:
        """Return commands in the units of the motor."""
        commands: Tensor = 2 * torch.tanh(self.network(seen))
        return commands


class ShowLastCommand(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Show the last command next to the sensors."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict({"sensors": env.observation_space, "commanded": env.action_space})

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin with a command of 0."""
        sensors, info = self.env.reset(**options)
        return {"sensors": sensors, "commanded": np.zeros(COMMANDS, np.float32)}, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Show what has just been commanded."""
        sensors, *rest = self.env.step(action)
        return {"sensors": sensors, "commanded": np.asarray(action, np.float32)}, *rest  # type: ignore[return-value]


class AsExported(nn.Module):
    """The order in which the file wants what the agent has seen."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.policy = torch.jit.load(str(path))  # type: ignore[no-untyped-call]

    def forward(self, frames: Tensor) -> Tensor:
        """Take the last frames, the oldest first; each has its parts in the order of the space, sorted by name."""
        commanded = frames[..., :COMMANDS]
        readings = frames[..., COMMANDS:]
        commands: Tensor = self.policy(torch.cat([readings.flip(1).flatten(1), commanded[:, -1]], dim=1))
        return commands


def main(episodes: int = 100) -> surefoot.Certificate:
    task = surefoot.make_task("Pendulum-v1", wrappers=[ShowLastCommand], reward_range=(-17, 0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.pt"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch prefers newer formats; robots have files of this one
            torch.jit.script(Exported()).save(path)  # type: ignore[no-untyped-call]
            policy = surefoot.as_policy(AsExported(path), task.spaces, n_stack=FRAMES)
        played = surefoot.rollout(task, policy, sigma=SIGMA, n_episodes=episodes)
    certificate = surefoot.certify(played, BUDGETS)
    for budget, lower in zip(certificate.budgets, certificate.lower, strict=True):
        print(f"budget {budget:g}: mean return at least {floor(lower)}")
    return certificate


if __name__ == "__main__":
    main()
