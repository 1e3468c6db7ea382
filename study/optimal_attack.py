"""The best attack there is, where it can be computed: a walk on a ledge, solved by dynamic programming.

The agent stands on one of 2 w + 1 places, is paid 1 for every step, and falls beyond place w on either side. It sees
its place through Gaussian noise, and walks left where it sees a positive number, else right: towards the middle, but
for the noise. An attacker knows place, time and the budget it has left. So the value of the game is a function of these
three, and the best attacker follows from it step by step backwards.

    python -m study.optimal_attack            # the table of docs/attacks.md
    python -m study.optimal_attack --minutes 2
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor, nn

from surefoot.agents.policies import Policy, Spaces
from surefoot.attacks.learning import AttackerTraining, train_attacker
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.task import Backend, Blocks, PaperSetup, Scoring, Task
from surefoot.proof.bounds.gaussian_shift import shift_down

Floats = NDArray[np.float64]

WIDTH = 1
STEPS = 8
SIGMA = 0.5
BUDGETS = (0.5, 1.0, 1.5, 2.0)


class Ledge:
    """The walk, as tensors."""

    done_check_interval = 1

    def __init__(self, n_envs: int, device: torch.device) -> None:
        self.place = torch.zeros(n_envs, dtype=torch.float64, device=device)
        self.clock = torch.zeros_like(self.place)

    def reset(self) -> Tensor:
        """Stand in the middle."""
        return self._observe()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Walk one place: left by action 0, right by action 1."""
        self.place = self.place + (2 * actions - 1)
        self.clock = self.clock + 1
        over = (self.place.abs() > WIDTH) | (self.clock >= STEPS)
        return self._observe(), torch.ones_like(self.place), over

    def restart_rows(self, rows: Tensor) -> Tensor:
        """Stand in the middle again."""
        self.place = self.place.masked_fill(rows, 0.0)
        self.clock = self.clock.masked_fill(rows, 0.0)
        return self._observe()[rows]

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        self.place = self.place[rows]
        self.clock = self.clock[rows]

    def read_state(self) -> Tensor:
        """Return the places."""
        return self.place.unsqueeze(1)

    def close(self) -> None:
        """Nothing to release."""

    def _observe(self) -> Tensor:
        return self.place.unsqueeze(1).float()


class TowardsMiddle(nn.Module):
    """Values of left and right: what is seen, and its opposite."""

    def forward(self, history: Tensor) -> Tensor:
        """Return the two values."""
        seen = history.flatten(1)[:, -1:]
        return torch.cat((seen, -seen), dim=1)


def ledge_plan(n_episodes: int, seed: int = 0) -> Plan:
    """Return the episodes of the agent on the ledge."""
    spaces = Spaces(shape=(1,), n_actions=2)
    task = Task(
        name="ledge",
        environment="Ledge",
        spaces=spaces,
        scoring=Scoring(max_steps=STEPS, floor=0.0, ceiling=float(STEPS), stated=()),
        backend=Backend(batch=lambda n_envs, _, device: Ledge(n_envs, device), open=_refuse_opening),
        blocks=Blocks(n_envs=4_096, episodes_per_env=1),
        paper=PaperSetup(sigma=SIGMA),
    )
    policy = Policy(TowardsMiddle(), spaces, name="towards-the-middle", sha256="ledge")
    return Plan(task=task, policy=policy, noise=Noise.of(SIGMA), n_episodes=n_episodes, seed=seed)


def _refuse_opening() -> Any:
    raise NotImplementedError("the ledge has no Gymnasium environment")


@dataclass(frozen=True, eq=False)
class Optimum:
    """The least mean return that any attacker attains, for squared budgets on a grid: between ``low`` and ``high``.

    Attributes:
        squared: The squared budgets.
        low: No attacker gets below this.
        high: An attacker who spends whole steps of the grid attains this.
    """

    squared: Floats
    low: Floats
    high: Floats

    def at(self, budget: float) -> tuple[float, float]:
        """Return both at a budget of the grid or, on the safe sides, next to it."""
        under = int(np.searchsorted(self.squared, budget**2 * (1 - 1e-12)))
        over = int(np.searchsorted(self.squared, budget**2 * (1 + 1e-12), side="right")) - 1
        return float(self.low[min(under, len(self.low) - 1)]), float(self.high[over])


def solve(largest: float, n_grid: int = 2_000) -> Optimum:
    """Return the optimum for all budgets up to the largest.

    With j + k steps of the grid left, an attacker who spends j has k left. Who spends an amount between j and j + 1
    steps is in ``high`` not allowed; in ``low`` it pays j and moves the agent as far as j + 1 would. So every attacker
    there is does no better than ``low``, and ``high`` is attained.
    """
    grid = np.linspace(0.0, largest**2, n_grid + 1)
    return Optimum(grid, _solve_one(grid, 1), _solve_one(grid, 0))


def _solve_one(grid: Floats, ahead: int) -> Floats:
    n_grid = len(grid) - 1
    sizes = np.sqrt(grid[1] * (np.arange(n_grid + 1) + ahead))
    # The last places are beyond the ledge, where nothing more is paid.
    places = np.arange(-WIDTH - 1, WIDTH + 2)
    after = np.zeros((len(places), n_grid + 1))
    for _ in range(STEPS):
        now = np.zeros_like(after)
        for index in range(1, len(places) - 1):
            best = np.full(n_grid + 1, np.inf)
            for sign in (-1, 1):
                # The agent walks left where place + perturbation + noise > 0.
                left = norm.cdf((places[index] + sign * sizes) / SIGMA)
                for spent in range(n_grid + 1):
                    rest = slice(0, n_grid + 1 - spent)
                    value = left[spent] * after[index - 1, rest] + (1 - left[spent]) * after[index + 1, rest]
                    best[spent:] = np.minimum(best[spent:], value)
            now[index] = 1 + best
        after = now
    middle: Floats = after[WIDTH + 1]
    return middle


def survival() -> Floats:
    """Return the probabilities of a return of at least 1, 2, ... without attack."""
    alive = np.zeros(2 * WIDTH + 3)
    alive[WIDTH + 1] = 1.0
    places = np.arange(-WIDTH - 1, WIDTH + 2)
    left = norm.cdf(places / SIGMA)
    chances = []
    for _ in range(STEPS):
        chances.append(alive[1:-1].sum())
        inside = np.where(np.abs(places) <= WIDTH, alive, 0.0)
        alive = np.zeros_like(alive)
        alive[:-1] += (inside * left)[1:]
        alive[1:] += (inside * (1 - left))[:-1]
    return np.array(chances)


def certified(budget: float) -> float:
    """Return what infinitely many episodes would certify: T1 at every threshold, summed (T2)."""
    return float(np.sum(shift_down(survival(), budget / SIGMA)))


def learned(training: AttackerTraining, n_episodes: int, seed: int = 0) -> list[tuple[float, float]]:
    """Return mean return and standard error at each budget under one attacker that was learned for all."""
    plan = ledge_plan(n_episodes, seed)
    attacker = train_attacker(plan, BUDGETS, training)
    measured = []
    for budget in BUDGETS:
        returns = play(replace(plan, attacker=attacker, budget=budget, purpose=(Purpose.ATTACK,))).returns
        measured.append((float(returns.mean()), float(returns.std(ddof=1)) / n_episodes**0.5))
    return measured


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--episodes", type=int, default=65_536)
    arguments = parser.parse_args()
    optimum = solve(max(BUDGETS))
    found = learned(AttackerTraining(minutes=arguments.minutes, n_envs=4_096), arguments.episodes)
    print(f"without attack {survival().sum():.4f}")
    print("| attack budget | certified | best attack | learned | learned above the best |")
    print("|---:|---:|---:|---:|---:|")
    for budget, (mean, sem) in zip(BUDGETS, found, strict=True):
        low, high = optimum.at(budget)
        above = 100 * (mean / high - 1)
        best = f"{low:.4f} to {high:.4f}"
        print(f"| {budget:g} | {certified(budget):.4f} | {best} | {mean:.4f} ± {sem:.4f} | {above:.1f}% |")


if __name__ == "__main__":
    main()
