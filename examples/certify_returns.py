"""Certify precomputed returns, from any simulator, in any language."""

from math import floor

import numpy as np

import surefoot

SIGMA = 0.5
# What the rules allow, not the smallest and largest return that happened to be observed.
FLOOR, CEILING = -21.0, 21.0
BUDGETS = (0.0, 0.25, 0.5, 1.0)


def precomputed_returns(episodes: int) -> np.ndarray:
    """Stand in for your own log: independent episodes, all run to their ends, with noise and without attack."""
    wins = np.random.default_rng(0).binomial(42, 0.9, size=episodes)
    return wins.astype(np.float64) - 21


def main(episodes: int = 10_000) -> surefoot.Certificate:
    record = surefoot.Episodes.from_returns(
        precomputed_returns(episodes),
        sigma=SIGMA,
        floor=FLOOR,
        ceiling=CEILING,
        task="my environment",
        agent="my agent",
    )
    certificate = surefoot.certify(record, BUDGETS, method="band")
    for budget in certificate.budgets:
        lower = certificate.at(budget).lower
        print(f"budget {budget:g}: mean return at least {floor(100 * lower) / 100}")  # rounded down, never up
    return certificate


if __name__ == "__main__":
    main()
