"""The strongest attack of all kinds: every method that fits the agent, chosen budget by budget on selection episodes.

What is chosen is measured on fresh episodes like any other attack, so that the choice does not flatter it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from surefoot.attacks.registry import METHODS
from surefoot.errors import InputError
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.workers import Workers
from surefoot.runs.attacked import AttackGrid, Trial

# Most promising first: what is left when the time is over is not tried.
BATTERY = (
    "learned",
    "flips",
    "paper",
    "adaptive",
    "constant-direction",
    "uniform",
    "single-step",
    "structured",
    "random",
)
SELECTION_EPISODES = 200
LEARNING_ROUND = 2**16  # the round of selection episodes; those of an attacker's training count from 0


def choose_strongest(grid: AttackGrid, *, seconds: float, workers: int | Workers = 1) -> AttackGrid:
    """Return the grid with the trials of a battery, from which it takes the strongest at each budget.

    Args:
        grid: The attacks; with a learned attacker this is one of those tried.
        seconds: How long; a trial that has begun is finished, and there is one at every budget.
        workers: What runs the episodes.
    """
    deadline = time.monotonic() + seconds
    trials: list[Trial] = []
    for number, one in enumerate(_battery(grid)):
        for budget, lambda_ in one.configurations():
            if number > 0 and time.monotonic() > deadline:
                return replace(grid, trials=tuple(trials))
            trial = replace(
                one.plan(budget, lambda_),
                n_episodes=min(SELECTION_EPISODES, grid.base.n_episodes),
                purpose=(Purpose.ATTACK_SELECTION, LEARNING_ROUND),
            )
            mean = float(play(trial, workers=workers).returns.mean())
            trials.append(Trial(budget=budget, method=one.method, lambda_=lambda_, mean=mean))
    return replace(grid, trials=tuple(trials))


def _battery(grid: AttackGrid) -> Iterator[AttackGrid]:
    """Yield the attacks of every method that fits the agent, with the lambdas that it has by default."""
    for name in BATTERY:
        if METHODS[name].is_learned and grid.attacker is None:
            continue
        try:
            one = replace(grid, method=name, lambdas=(0.0,))
            yield replace(one, lambdas=one.default_lambdas())
        except InputError:
            # It needs gradients, values or a critic that this agent does not have.
            continue
