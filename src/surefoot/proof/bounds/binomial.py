"""Exact one-sided confidence bounds for a proportion (Clopper and Pearson 1934).

If k of n independent trials succeeded, each with probability p, then p >= lower_limit(k, n, alpha) with
confidence 1 - alpha: the bound is the p at which k or more successes would have had probability alpha, and

    P(Bin(n, p) >= k) = I_p(k, n - k + 1),   the regularized incomplete beta function.

The inverse of I_p is only good to about 1e-7 for large n, whereas I_p itself is good to 1e-11. So the inverse
is a first guess, and the bound that is returned is one at which I_p was evaluated and found to be at most
alpha.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv

from surefoot.errors import InputError

Floats = NDArray[np.float64]

_BETAINC_ERROR = 1e-10  # relative: more than betainc's for up to 10^9 trials (checked against mpmath)


def lower_limit(successes: ArrayLike, trials: ArrayLike, alpha: ArrayLike) -> Floats:
    """Return a lower bound of the success probability at confidence 1 - alpha; arrays broadcast."""
    k, n, error = _checked_counts(successes, trials, alpha)
    # a little less than alpha, by more than the rounding of what the bound is checked with
    safe = error * (1 - _BETAINC_ERROR)
    limit = np.zeros(k.shape)
    some = k > 0
    guess: Floats = betaincinv(k[some], n[some] - k[some] + 1, safe[some]).astype(np.float64)
    limit[some] = _lower_to_valid(guess, k[some], n[some], safe[some])
    return limit


def check_alpha(alpha: ArrayLike) -> None:
    """Reject what is not an error probability."""
    error = np.asarray(alpha, dtype=np.float64)
    if not np.all((error > 0) & (error < 1)):
        raise InputError(f"alpha must be strictly between 0 and 1, got {alpha!r}")


def checked_outcomes(outcomes: ArrayLike, floor: float | None = None) -> Floats:
    """Return outcomes as an array, or say what is wrong with them."""
    x = np.asarray(outcomes, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all():
        raise InputError(f"outcomes must be a non-empty list of finite numbers, got shape {x.shape}")
    if floor is not None and not (math.isfinite(floor) and x.min() >= floor):
        raise InputError(f"no outcome may be below {floor:g}, got {x.min():g}; give the true floor")
    return x


def _lower_to_valid(limit: Floats, k: Floats, n: Floats, alpha: Floats) -> Floats:
    """Step down, in doubling steps, wherever P(Bin(n, bound) >= k) is still above alpha."""
    step = 2.0**-52
    while True:
        bad = np.flatnonzero(~(betainc(k, n - k + 1, limit) <= alpha))
        if bad.size == 0:
            return limit
        limit[bad] *= max(0.0, 1 - step)
        step *= 2


def _checked_counts(successes: ArrayLike, trials: ArrayLike, alpha: ArrayLike) -> tuple[Floats, Floats, Floats]:
    check_alpha(alpha)
    given = [np.atleast_1d(np.asarray(x, np.float64)) for x in (successes, trials, alpha)]
    k, n, error = np.broadcast_arrays(*given)
    if not (np.all(n >= 1) and np.all(n == np.floor(n))):
        raise InputError("trials must be whole numbers >= 1")
    if not (np.all((k >= 0) & (k <= n)) and np.all(k == np.floor(k))):
        raise InputError("successes must be whole numbers between 0 and the number of trials")
    return k, n, error
