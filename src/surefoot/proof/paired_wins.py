"""An exact lower bound of a difference of two success probabilities, from pairs of episodes.

Each of n independent pairs is won by A alone with probability a, by B alone with probability b, and else by both or by
neither. The counts (I, J) of the first two are trinomial, and the difference is a - b.

Theorem (after Buehler 1957). Let R(i, j) be sets of outcomes such that (1) y in R(x) for every y that has at least as
many wins of A alone, and at most as many of B alone, as some outcome that ``_rank`` puts at least as high as x. Let x
be the observed outcome, and let d be such that P(R(x)) <= alpha for all (a, b) with a - b = d. Then a - b >= d with
confidence 1 - alpha.

Proof. (2) R(x) is closed under more wins of A and fewer of B. To raise a, or to lower b, at the expense of the other
cells makes I larger or J smaller in every realization of a coupling, so P(R(x)) grows with a and falls with b. Hence if
P(R(x)) <= alpha for all (a, b) with a - b = d, then also for all with a - b < d: from each of these a path on which a
grows or b falls, within a + b <= 1, ends at a difference of d. (3) For the true (a, b) the probability P(R(X)) of the
observed set is at most alpha with probability at most alpha: R(x) contains all outcomes that are ranked at least as
high as x, so P(R(x)) is at least P(rank(Y) >= rank(x)), which is a p-value. If the bound d exceeds a - b, then by (2)
P(R(X)) <= alpha at the true (a, b), which by (3) has probability at most alpha.

The supremum is not needed over all b (Berger and Boos 1994). Let [u, v] be an interval that contains b with probability
1 - gamma (Clopper and Pearson 1934, from J). Then a - b >= d with confidence 1 - alpha as well if P(R(x)) <= alpha -
gamma for all (a, b) on the line a - b = d with b in [u, v], provided that there are any. Proof. From an (a, b) with
a - b < d and b in [u, v] a path as in (2) leads to the line, and stays in [u, v] until there: first a grows, and where
a + b = 1 is reached before, b falls, to (1 - d)/2 at the least, which is above u, as the line has a point in [u, v].
So if d exceeds the true a - b, then b is not in [u, v], or P(R(X)) <= alpha - gamma at the true (a, b): together that
has probability at most alpha. The more pairs there are, the shorter [u, v] is, so that a bound takes seconds at any
number of pairs up to ``MOST_PAIRS``.

The supremum over b in [u, v] is bounded, not searched for: for b in a cell of it, a = b + d is at most the cell's end
plus d, so by (2) P(R(x)) is at most its value there with the b of the cell's begin. Cells for which that is above alpha
- gamma are halved; where that does not help in time, d is not proved.

The rank decides how tight the bound is, never whether it holds: it is the lower end of a Wald interval after
(Agresti and Min 2005) some wins were added.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln, ndtri, xlog1py, xlogy

from surefoot.errors import InputError
from surefoot.proof.bounds.binomial import check_alpha, lower_limit

Floats = NDArray[np.float64]

MOST_PAIRS = 100_000  # with more a bound takes long, and bets are as tight
_NUISANCE_SHARE = 0.02  # of alpha, for the interval of B's wins alone
_TAIL = 6.5  # standard deviations within which counts of B are summed; all others are taken to be in the set
_SUM_ERROR = 1e-9  # relative: more than that of the sums of binomial probabilities
_FIRST_CELLS = 8
_MOST_CELLS = 600  # with 1,500 a bound of 10^4 pairs is 0.7% closer to the estimate, and takes twice as long
_ROWS = 16
_HALVINGS = 10  # of an interval of a few standard errors


def difference_lower(n: int, a_alone: int, b_alone: int, alpha: float) -> float:
    """Return a lower bound of P(A wins) - P(B wins) at confidence 1 - alpha.

    Args:
        n: Number of independent pairs of episodes.
        a_alone: Pairs of which A won its episode and B did not.
        b_alone: Pairs of which B won and A did not.
        alpha: Error probability.

    Raises:
        InputError: If the counts are not those of pairs, or more than ``MOST_PAIRS``.
    """
    check_alpha(alpha)
    if not (1 <= n <= MOST_PAIRS and a_alone >= 0 and b_alone >= 0 and a_alone + b_alone <= n):
        raise InputError(f"expected wins alone of 1 to {MOST_PAIRS:,} pairs, got {a_alone} and {b_alone} of {n}")
    fewest = _fewest_wins(n, a_alone, b_alone, alpha)
    gamma = _NUISANCE_SHARE * alpha
    likely_b = _likely_share(n, b_alone, gamma)
    above = (a_alone - b_alone) / n
    # where the bound is expected, with room below; nothing is known to be proved but -1
    expected = float(_rank(n, np.array([float(a_alone)]), np.array([float(b_alone)]), alpha)[0])
    below = max(-1.0, expected - (above - expected) - 1 / n)
    if not _is_refuted(below, n, fewest, likely_b, alpha - gamma):
        below = -1.0
    # the answer is monotone by (2), so halving finds the largest difference that is proved
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        if _is_refuted(middle, n, fewest, likely_b, alpha - gamma):
            below = middle
        else:
            above = middle
    return below


def _rank(n: int, a_alone: Floats, b_alone: Floats, alpha: float) -> Floats:
    """Return the lower end of an approximate interval: any number that grows with A's wins and falls with B's."""
    errors = float(ndtri(1 - alpha))
    # as many wins of A alone and of B alone are added as the score test of one proportion adds (Wilson)
    total = n + errors**2
    difference = (a_alone - b_alone) / total
    discordant = (a_alone + b_alone + errors**2 / 2) / total
    spread = np.sqrt(np.maximum(discordant - difference**2, 0.0) / total)
    return np.asarray(difference - errors * spread, dtype=np.float64)


def _fewest_wins(n: int, a_alone: int, b_alone: int, alpha: float) -> Floats:
    """Return for each number j of wins of B alone the least i such that (i, j) is in the set R of the observed counts.

    n + 1 where there is none.
    """
    observed = float(_rank(n, np.array([float(a_alone)]), np.array([float(b_alone)]), alpha)[0])
    wins_of_b = np.arange(n + 1.0)
    # the largest i for which all up to it are ranked lower, by halving: where ranks are not monotone, any will do
    low = np.full(n + 1, -1.0)
    high = np.full(n + 1, n + 1.0)
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2)
        is_in = _rank(n, middle, wins_of_b, alpha) >= observed
        high = np.where(is_in & (high - low > 1), middle, high)
        low = np.where(~is_in & (high - low > 1), middle, low)
    # the observed outcome itself, whatever rounding says
    high[b_alone] = min(high[b_alone], a_alone)
    # (1) with fewer wins of B, no more wins of A are needed than with more
    closed = np.minimum.accumulate(high[::-1])[::-1]
    return np.where(closed > n - wins_of_b, n + 1.0, closed)


def _likely_share(n: int, wins: int, gamma: float) -> tuple[float, float]:
    """Return an interval for the probability of a win that is wrong with probability gamma at most."""
    low = float(lower_limit(wins, n, gamma / 2)[0])
    high = 1 - float(lower_limit(n - wins, n, gamma / 2)[0])
    return low, high


def _is_refuted(difference: float, n: int, fewest: Floats, likely_b: tuple[float, float], alpha: float) -> bool:
    """Return whether P(R) <= alpha is shown for all (a, b) with a - b = difference and b in the interval."""
    first = max(0.0, -difference, likely_b[0])
    last = min((1 - difference) / 2, likely_b[1])
    # without a point on the line nothing is refuted
    if first > last:
        return False
    # finer where b is small: there the spread of a count is small too
    edges = first + (last - first) * np.linspace(0, 1, _FIRST_CELLS + 1) ** 2
    low = edges[:-1]
    high = edges[1:]
    n_cells = 0
    while low.size > 0:
        n_cells += low.size
        if n_cells > _MOST_CELLS:
            return False
        still_open = _probabilities(high + difference, low, n, fewest) > alpha
        low = low[still_open]
        high = high[still_open]
        middle = (low + high) / 2
        # one point of a cell is enough to end the search
        if np.any(_probabilities(middle + difference, middle, n, fewest) > alpha):
            return False
        low = np.concatenate([low, middle])
        high = np.concatenate([middle, high])
    return True


def _probabilities(a: Floats, b: Floats, n: int, fewest: Floats) -> Floats:
    """Return P(R), rounded up, for wins of A alone with probability a and of B alone with probability b, each."""
    found = np.empty(b.size)
    # a few rows at a time: each is a sum over all likely counts of B
    for first in range(0, b.size, _ROWS):
        rows = slice(first, first + _ROWS)
        found[rows] = _sum_over_counts(np.clip(a[rows], 0.0, 1 - b[rows]), b[rows], n, fewest)
    return found


def _sum_over_counts(a: Floats, b: Floats, n: int, fewest: Floats) -> Floats:
    spread = _TAIL * np.sqrt(n * b * (1 - b)) + 2 * _TAIL
    begin = int(max(0, np.floor(np.min(n * b - spread))))
    end = int(min(n, np.ceil(np.max(n * b + spread))))
    wins_of_b = np.arange(begin, end + 1.0)
    left = n - wins_of_b
    log_choices = gammaln(n + 1) - gammaln(wins_of_b + 1) - gammaln(left + 1)
    weights = np.exp(log_choices + xlogy(wins_of_b, b[:, None]) + xlog1py(left, -b[:, None]))
    needed = fewest[begin : end + 1]
    some = (needed > 0) & (needed <= left)
    # of the pairs that B did not win alone, A wins each alone with this probability
    share = np.minimum(1.0, a / np.maximum(1 - b, 1e-300))
    inside = np.where(needed <= 0, 1.0, np.zeros((b.size, 1)))
    inside[:, some] = betainc(needed[some], left[some] - needed[some] + 1, share[:, None])
    beyond = np.maximum(0.0, 1 - weights.sum(axis=1))
    return np.asarray(((weights * inside).sum(axis=1) + beyond) * (1 + _SUM_ERROR), dtype=np.float64)
