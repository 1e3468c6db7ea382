"""Algorithm 1 on whole games of Pong on a GPU, with its gradient step replayed as a CUDA graph and without.

python bench/replayed_attack.py --steps 100 --out bench/results/replayed-attack-cuda.json
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

import surefoot.attacks.dqn as algorithm
from study.attack_cells import agent_of
from study.measure import attack_of
from study.sizes import AttackSize
from surefoot.files import versions, write_json
from surefoot.play.plan import Plan
from surefoot.play.rollout import play

CASES = ((0.0, 0.9), (0.0, 0.3), (0.05, 0.1))  # sigma and lambda_Q


class EnoughError(Exception):
    """The steps to be measured are over."""


def seconds(plan: Plan, steps: int) -> float:
    """Return the seconds that the attack takes over some steps of all games, after a tenth of them to warm up."""
    assert plan.attacker is not None
    attack, spent = plan.attacker.propose, [0.0] * (steps + steps // 10)
    done = 0

    def timed(_: Any, view: Any) -> Any:
        nonlocal done
        if done == len(spent):
            raise EnoughError
        _wait()
        began = time.perf_counter()
        proposal = attack(view)
        _wait()
        spent[done] = time.perf_counter() - began
        done += 1
        return proposal

    honest = algorithm.PaperAttack.propose
    algorithm.PaperAttack.propose = timed  # type: ignore[method-assign]
    try:
        play(plan)
    except EnoughError:
        pass
    finally:
        algorithm.PaperAttack.propose = honest  # type: ignore[method-assign]
    return sum(spent[steps // 10 :])


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measured(sigma: float, margin: float, games: int, steps: int, device: str) -> dict[str, Any]:
    """Measure one case both ways."""
    agent = agent_of("pong-full", sigma)
    plan = attack_of(agent, AttackSize((0.4,), (margin,), games), device).plan(0.4, margin)
    row: dict[str, Any] = {"agent": agent.name, "lambda": margin, "budget": 0.4, "games": games, "steps": steps}
    capturable = algorithm.capturable
    row["replayed"] = round(seconds(plan, steps), 3)
    algorithm.capturable = lambda _: False
    try:
        row["launched"] = round(seconds(plan, steps), 3)
    finally:
        algorithm.capturable = capturable
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
