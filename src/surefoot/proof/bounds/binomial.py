"""Exact one-sided confidence bounds for a proportion (Clopper and Pearson 1934).

If k of n independent trials succeeded, each with probability p, then p >= lower_limit(k, n, alpha) with
confidence 1 - alpha: the bound is the p at which k or more successes would have had probability alpha, and

    P(Bin(n, p) >= k) = I_p(k, n - k + 1),   the regularized incomplete beta function.

The inverse of I_p is only good to about 1e-7 for large n, whereas I_p itself is good to 1e-11. So the inverse
is a first guess, and the bound that is returned is one at which I_p was evaluated and found to be at most
alpha.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv

from surefoot.errors import InputError

_SLACK = 1e-10  # relative; more than the rounding error of betainc for up to 10^7 trials (checked against mpmath)


def lower_limit(successes: ArrayLike, trials: ArrayLike, alpha: float) -> NDArray[np.float64]:
    """Return a lower bound of the success probability at confidence 1 - alpha; arrays broadcast."""
    k, n = _checked(successes, trials, alpha)
    safe = alpha * (1 - _SLACK)
    limit = np.zeros(k.shape)
    some = k > 0
    guess: NDArray[np.float64] = betaincinv(k[some], n[some] - k[some] + 1, safe).astype(np.float64)
    limit[some] = _lowered(guess, k[some], n[some], safe)
    return limit


def _lowered(
    limit: NDArray[np.float64], k: NDArray[np.float64], n: NDArray[np.float64], alpha: float
) -> NDArray[np.float64]:
    """Step down, in doubling steps, wherever P(Bin(n, bound) >= k) is still above alpha."""
    step = 2.0**-52
    while True:
        bad = np.flatnonzero(~(betainc(k, n - k + 1, limit) <= alpha))
        if bad.size == 0:
            return limit
        limit[bad] = limit[bad] * (1 - step) if step < 1 else 0.0
        step *= 2


def _checked(successes: ArrayLike, trials: ArrayLike, alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if not 0 < alpha < 1:
        raise InputError(f"alpha must lie strictly between 0 and 1, got {alpha}")
    k, n = np.broadcast_arrays(np.asarray(successes, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    if not (np.all(n >= 1) and np.all(n == np.floor(n))):
        raise InputError("trials must be whole numbers >= 1")
    if not (np.all((k >= 0) & (k <= n)) and np.all(k == np.floor(k))):
        raise InputError("successes must be whole numbers between 0 and the number of trials")
    return np.atleast_1d(k), np.atleast_1d(n)
