"""Laws of the return whose worst case is known exactly, and the arithmetic of statistical alarms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, stats

from surefoot import Episodes, certify

Floats = NDArray[np.float64]

FALSE_ALARM = 1e-6  # the probability with which a correct program fails one statistical test


@dataclass(frozen=True)
class Law:
    """A law of the return on [floor, ceiling]: how to draw it, and its survival function P(X >= x)."""

    name: str
    floor: float
    ceiling: float
    draw: Callable[[np.random.Generator, tuple[int, ...]], Floats]
    at_least: Callable[[float], float]
    cuts: tuple[float, ...]  # between two neighbours the survival function is smooth (or constant)

    @lru_cache  # noqa: B019 - laws live as long as the tests
    def worst_mean(self, radius: float) -> float:
        """Return floor + int Phi(Phi^-1(S(x)) - radius) dx by quadrature, using nothing of surefoot."""
        return self.floor + self._integral(lambda p: stats.norm.cdf(stats.norm.ppf(p) - radius))

    @lru_cache  # noqa: B019
    def best_mean(self, radius: float) -> float:
        """Return the mirror image: floor + int Phi(Phi^-1(S(x)) + radius) dx."""
        return self.floor + self._integral(lambda p: stats.norm.cdf(stats.norm.ppf(p) + radius))

    @lru_cache  # noqa: B019
    def cvar(self, q: float, shift: float) -> float:
        """Return floor + int max(0, p - 1 + q) / q dx, p = Phi(Phi^-1(S(x)) + shift): the lowest share q."""

        def among_lowest(p: float) -> float:
            return max(0.0, q - float(stats.norm.cdf(-stats.norm.ppf(p) - shift))) / q

        low, high = self.floor, self.ceiling
        for _ in range(60):  # up to the quantile, beyond which nothing counts: quadrature would not find it by itself
            middle = (low + high) / 2
            low, high = (middle, high) if among_lowest(self.at_least(middle)) > 0 else (low, middle)
        return self.floor + self._integral(among_lowest, high)

    def _integral(self, move: Callable[[float], float], end: float = np.inf) -> float:
        total = 0.0
        for left, right in pairwise(sorted({min(cut, end) for cut in self.cuts})):
            # p = S is a constant or a smooth function strictly between two cuts
            value, _ = integrate.quad(lambda x: move(self.at_least(x)), left, right, epsabs=1e-10, limit=200)
            total += value
        return total


def atoms(name: str, floor: float, ceiling: float, values: list[float], weights: list[float]) -> Law:
    """Return a law on finitely many values."""
    x, p = np.array(values, dtype=float), np.array(weights, dtype=float)
    assert abs(p.sum() - 1) < 1e-12
    cuts = tuple(sorted({floor, ceiling, *values}))
    return Law(
        name=name,
        floor=floor,
        ceiling=ceiling,
        draw=lambda rng, shape: rng.choice(x, size=shape, p=p),
        at_least=lambda t: min(1.0, float(p[x >= t].sum())),
        cuts=cuts,
    )


def beta(name: str, floor: float, ceiling: float, a: float, b: float) -> Law:
    """Return a continuous law of beta shape on [floor, ceiling]."""
    width = ceiling - floor
    return Law(
        name=name,
        floor=floor,
        ceiling=ceiling,
        draw=lambda rng, shape: floor + width * rng.beta(a, b, size=shape),
        at_least=lambda t: float(stats.beta.sf((t - floor) / width, a, b)),
        cuts=(floor, ceiling),
    )


LAWS = (
    beta("continuous", 0.0, 10.0, 4.0, 1.5),
    atoms("few atoms", 0.0, 4.0, [0.0, 1.0, 2.0, 4.0], [0.1, 0.2, 0.3, 0.4]),
    atoms("rare catastrophe", 0.0, 100.0, [0.0, 99.0, 100.0], [0.01, 0.49, 0.5]),
    beta("negative floor", -21.0, 21.0, 6.0, 2.0),
    atoms("win or lose", 0.0, 1.0, [0.0, 1.0], [0.2, 0.8]),
)

MORE_LAWS = (
    *LAWS,
    atoms("nearly always won", 0.0, 1.0, [0.0, 1.0], [0.005, 0.995]),
    atoms("perfect", 0.0, 200.0, [200.0], [1.0]),
    atoms("many atoms", 0.0, 30.0, [float(x) for x in range(31)], [1 / 31] * 31),
    beta("mostly perfect", 0.0, 200.0, 20.0, 1.0),
    beta("mostly lost", 0.0, 50.0, 0.5, 4.0),
    atoms("a long low tail", -5.0, 5.0, [-5.0, -3.0, 0.0, 4.0, 5.0], [0.002, 0.01, 0.05, 0.238, 0.7]),
)


def too_many(misses: int, certificates: int, alpha: float) -> bool:
    """Return whether so many misses have probability < FALSE_ALARM if each has probability alpha at most."""
    return bool(stats.binom.sf(misses - 1, certificates, alpha) < FALSE_ALARM)


# Quantile functions on [0, 1], and the means that belong to them.
QUANTILES: dict[str, tuple[Callable[[Floats], Floats], float]] = {
    "uniform": (lambda u: u, 0.5),
    "high": (lambda u: stats.beta.ppf(u, 8, 1), 8 / 9),
    "bowl": (lambda u: stats.beta.ppf(u, 0.3, 0.3), 0.5),
    "rare failure": (lambda u: np.where(u < 0.03, 0.0, 1.0), 0.97),
    "coin": (lambda u: np.where(u < 0.4, 0.0, 1.0), 0.6),
    "three values": (lambda u: np.where(u < 0.2, 0.0, np.where(u < 0.5, 0.4, 1.0)), 0.62),
    "constant": (lambda u: np.full_like(u, 0.7), 0.7),
    "low": (lambda u: stats.beta.ppf(u, 1, 8), 1 / 9),
}
LAWS_OF_PAIRS = (
    ("uniform", "uniform"),
    ("uniform", "bowl"),
    ("high", "uniform"),
    ("rare failure", "rare failure"),
    ("coin", "three values"),
    ("rare failure", "constant"),
    ("high", "low"),
    ("three values", "bowl"),
)
# What the second agent draws, given the first one's draws and others.
DEPENDENCES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "same randomness": lambda u, other: u,
    "opposite": lambda u, other: 1 - u,
    "independent": lambda u, other: other,
}


def draw_pairs(laws: tuple[str, str], dependence: str, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Return n pairs of returns in [0, 1] of two laws of ``QUANTILES``, with one of ``DEPENDENCES`` within a pair."""
    u = rng.random(n)
    v = DEPENDENCES[dependence](u, rng.random(n))
    return QUANTILES[laws[0]][0](u), QUANTILES[laws[1]][0](v)


def cvar_misses(law: Law, alpha: float, *, n: int, runs: int, seed: int, claimed_sigma: float = 1.0) -> tuple[int, int]:
    """Return how many certificates had a lower, and how many an upper bound of a CVaR on the wrong side; sigma is 1."""
    shares = (0.02, 0.1, 0.5)
    budgets = (0.0, 1.0, 2.0)
    truth = np.array([[(law.cvar(q, -c), law.cvar(q, c)) for c in budgets] for q in shares])
    low = high = 0
    for returns in law.draw(np.random.default_rng(seed), (runs, n)):
        episodes = Episodes.from_returns(returns, sigma=claimed_sigma, floor=law.floor, ceiling=law.ceiling)
        made = certify(episodes, budgets, 1 - alpha, cvars=shares).requested
        assert made is not None
        low += bool(np.any(np.array([row["lower"] for row in made["cvars"]]) > truth[:, :, 0] + 1e-7))
        high += bool(np.any(np.array([row["upper"] for row in made["cvars"]]) < truth[:, :, 1] - 1e-7))
    return low, high
