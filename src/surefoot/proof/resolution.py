"""What a run could not see: the smallest loss or difference that so many episodes could have shown.

Every certificate, comparison and attack says it in one sentence. "Nothing was found" means little without it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.planning.strategies import worst_means
from surefoot.proof.rounding import format_upper

Floats = NDArray[np.float64]


def smallest_loss(outcomes: Floats, confidence: float, floor: float, ceiling: float | None = None) -> float:
    """Return how far below the mean of these outcomes the true mean may be, at this confidence.

    A loss below that cannot be told from chance with so many episodes. Where two runs share their random numbers
    (clean and attacked episodes of one seed), the outcomes are the differences, from minus the range to the range.

    Args:
        outcomes: Returns, or differences of returns, in the order in which they were run.
        confidence: That of the lower bound of the mean.
        floor: Lowest outcome that is possible.
        ceiling: Highest outcome that is possible, if there is one.

    >>> import numpy as np
    >>> wins = np.tile([1.0] * 9 + [0.0], 10)
    >>> round(smallest_loss(wins, 0.95, 0.0, 1.0), 2)
    0.07
    """
    lower = float(worst_means(outcomes, [0.0], 1 - confidence, floor, ceiling).at(0.0))
    # In an order that is not random, a bound may be above the mean.
    return max(0.0, float(outcomes.mean()) - lower)


def could_not_see(smallest: float, n_episodes: int, what: str = "a loss of mean return", digits: int = 2) -> str:
    """Return the sentence: what is below the smallest visible loss or difference was not looked at by this run.

    >>> could_not_see(4.07, 100, "a difference")
    'What this run could not see: with 100 episodes a difference below 4.07 cannot be told from chance.'
    """
    return (
        f"What this run could not see: with {n_episodes:,} episodes {what} below {format_upper(smallest, digits)} "
        "cannot be told from chance."
    )
