"""Algorithm 1 on whole games of Pong on a GPU, with its gradient step replayed as a CUDA graph and without.

python bench/replayed_attack.py --steps 100 --out bench/results/replayed-attack-cuda.json
"""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from numpy.typing import NDArray
from torch import Tensor

from study.attack_cells import agent_of
from study.measure import attack_of
from study.sizes import AttackSize
from surefoot.files import write_json
from surefoot.play.channel import Attacker, View
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.provenance import versions

CASES = ((0.0, 0.9), (0.0, 0.3), (0.05, 0.1))  # sigma and lambda_Q


class EnoughError(Exception):
    """The steps to be measured are over."""


class Timed:
    """An attack whose steps are timed, after a tenth of them to warm up."""

    def __init__(self, attack: Attacker, steps: int) -> None:
        self.attack, self.left, self.warm, self.seconds = attack, steps + steps // 10, steps, 0.0

    def propose(self, view: View) -> Tensor | NDArray[Any]:
        """Propose what the attack proposes."""
        if self.left == 0:
            raise EnoughError
        _wait()
        began = time.perf_counter()
        proposal = self.attack.propose(view)
        _wait()
        self.seconds += time.perf_counter() - began if self.left <= self.warm else 0.0
        self.left -= 1
        return proposal

    def describe(self) -> dict[str, Any]:
        """Return what the attack says of itself."""
        return self.attack.describe()


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(plan: Plan, steps: int) -> float:
    """Return the seconds that the attack takes over some steps of all games."""
    assert plan.attacker is not None
    timed = Timed(plan.attacker, steps)
    with suppress(EnoughError):
        play(replace(plan, attacker=timed))
    return round(timed.seconds, 3)


def measured(sigma: float, margin: float, games: int, steps: int, device: str) -> dict[str, Any]:
    """Measure one case both ways."""
    agent = agent_of("pong-full", sigma)
    plan = attack_of(agent, AttackSize((0.4,), (margin,), games), device).plan(0.4, margin)
    row: dict[str, Any] = {"agent": agent.name, "lambda": margin, "budget": 0.4, "games": games, "steps": steps}
    row["replayed"] = seconds(plan, steps)
    with patch("surefoot.attacks.dqn.can_capture", return_value=False):
        row["launched"] = seconds(plan, steps)
    print(row, flush=True)
    return row


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=64)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = [measured(*case, arguments.games, arguments.steps, arguments.device) for case in CASES]
    if arguments.out is not None:
        name = torch.cuda.get_device_name() if arguments.device == "cuda" else "cpu"
        write_json(arguments.out, {"schema": 1, "gpu": name, "rows": rows, "versions": versions()})


if __name__ == "__main__":
    main()
