"""Certify a plain Python function; here a controller written by hand that averages its last observations."""

from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

import surefoot

SIGMA = 0.1
BUDGETS = (0.0, 0.1, 0.2)
# How strongly position, speed, angle and angular speed push to the right.
GAINS = np.array([0.1, 0.3, 3.0, 1.0])


def controller(frames: NDArray[Any]) -> int:
    """Push towards where the pole falls; ``frames`` is (5, 4), oldest first.

    The function must depend on its argument alone: it is called for many episodes in turn.
    """
    return int(frames.mean(axis=0) @ GAINS > 0)


def main(episodes: int = 500) -> surefoot.Certificate:
    played = surefoot.rollout("cartpole-5", controller, sigma=SIGMA, n_episodes=episodes)
    certificate = surefoot.certify(played, BUDGETS)
    # Bounds are rounded down when printed, never to the nearest digit.
    for budget, lower in zip(certificate.budgets, certificate.lower, strict=True):
        print(f"budget {budget:g}: mean return at least {floor(100 * lower) / 100}")
    print(f"without attack about {certificate.estimate:.2f} (an estimate)")
    return certificate


if __name__ == "__main__":
    main()
