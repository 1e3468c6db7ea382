"""Games whose seeds differ in luck, with worst cases that are known exactly, and errors to plant into their bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from laws import Floats, Law, atoms, beta
from surefoot.proof.bounds.reset_luck import LuckyReturns
from surefoot.proof.bounds.seed_groups import SeedGroups
from surefoot.proof.planning.strategies import bound_group_means, bound_lucky_means

ALPHA = 0.2


@dataclass(frozen=True)
class Luck:
    """Seeds of a few kinds, each with its own law of the return between 0 and 10."""

    name: str
    chances: tuple[float, ...]
    given: tuple[Law, ...]

    def draw(self, rng: np.random.Generator, n_groups: int, n_draws: int) -> Floats:
        """Return a table of returns, a row for each seed."""
        kinds = rng.choice(len(self.given), n_groups, p=self.chances)
        drawn = [law.draw(rng, (n_groups, n_draws)) for law in self.given]
        return np.stack(drawn)[kinds, np.arange(n_groups)]

    def draw_known(self, rng: np.random.Generator, n: int) -> LuckyReturns:
        """Return one return of each seed, with its kind and a number that says nothing."""
        kinds = rng.choice(len(self.given), n, p=self.chances)
        drawn = np.stack([law.draw(rng, (n,)) for law in self.given])[kinds, np.arange(n)]
        return LuckyReturns(drawn, np.stack([kinds.astype(np.float64), rng.normal(0, 1, n)], axis=1))

    def worst(self, c: float) -> float:
        """Return the mean over seeds of the worst-case mean given the seed."""
        return float(np.dot(self.chances, [law.worst_mean(c) for law in self.given]))

    def best(self, c: float) -> float:
        """Return the mirror image."""
        return float(np.dot(self.chances, [law.best_mean(c) for law in self.given]))


def tens(values: list[float], weights: list[float]) -> Law:
    """Return a law on some values between 0 and 10."""
    return atoms("atoms", 0.0, 10.0, values, weights)


WIDE, HIGH, LOW = (
    beta("wide", 0.0, 10.0, 2.0, 2.0),
    beta("high", 0.0, 10.0, 20.0, 2.0),
    beta("low", 0.0, 10.0, 3.0, 20.0),
)
COIN, SURE, NEVER = tens([0.0, 10.0], [0.2, 0.8]), tens([10.0], [1.0]), tens([0.0], [1.0])
RARELY = tens([0.0, 9.0], [0.01, 0.99])
LUCKS = (
    Luck("no luck", (1.0,), (WIDE,)),
    Luck("luck alone", (0.7, 0.3), (SURE, NEVER)),
    Luck("good and bad seeds", (0.5, 0.5), (HIGH, LOW)),
    Luck("few bad seeds", (0.95, 0.05), (HIGH, NEVER)),
    Luck("coins by seed", (0.5, 0.5), (COIN, tens([0.0, 10.0], [0.6, 0.4]))),
    Luck("rare failures", (0.6, 0.4), (RARELY, HIGH)),
    Luck("perfect", (1.0,), (SURE,)),
    Luck("few values", (0.3, 0.7), (tens([0.0, 1.0, 2.0], [0.3, 0.3, 0.4]), tens([4.0, 5.0, 8.0], [0.2, 0.2, 0.6]))),
    Luck("three kinds", (0.2, 0.5, 0.3), (LOW, WIDE, HIGH)),
    Luck("a coin or sure", (0.5, 0.5), (COIN, SURE)),
)

# Where whole certificates are computed, which takes a hundred times as long as a score; bench/ has all of them.
FEW_LUCKS = tuple(LUCKS[place] for place in (0, 1, 3, 4, 7, 8))


def misses(
    luck: Luck,
    *,
    runs: int,
    n_groups: int,
    n_draws: int,
    c: float,
    change: Callable[[Floats], Floats] | None = None,
    ceiling: float | None = 10.0,
) -> tuple[int, int]:
    """Return how many lower and how many upper bounds are on the wrong side; without a ceiling none is an upper one."""
    rng = np.random.default_rng(17)
    low = high = 0
    for _ in range(runs):
        table = luck.draw(rng, n_groups, n_draws)
        made = bound_group_means(table if change is None else change(table), [c], ALPHA, 0.0, ceiling)
        low += float(made.lower.at(c)) > luck.worst(c) + 1e-9
        high += made.mirror is not None and -float(made.mirror.at(c)) < luck.best(c) - 1e-9
    return low, high


def lucky_misses(
    luck: Luck,
    *,
    runs: int,
    n: int,
    c: float,
    change: Callable[[LuckyReturns], LuckyReturns] | None = None,
    ceiling: float | None = 10.0,
) -> tuple[int, int]:
    """Return how many lower and how many upper bounds of episodes whose luck is known are on the wrong side."""
    rng = np.random.default_rng(17)
    low = high = 0
    for _ in range(runs):
        episodes = luck.draw_known(rng, n)
        made = bound_lucky_means(episodes if change is None else change(episodes), [c], ALPHA, 0.0, ceiling)
        low += float(made.lower.at(c)) > luck.worst(c) + 1e-9
        high += made.mirror is not None and -float(made.mirror.at(c)) < luck.best(c) - 1e-9
    return low, high


# Noise alone, which must not be taken for luck.
NOISE = Luck("noise alone", (1.0,), (COIN,))


def with_own_draw(self: SeedGroups, reach: float) -> Floats:
    """Return what decides about a guess, with the draw itself among it: the planted error."""
    return np.repeat(self.means[:, None], self.n_draws, axis=1)
