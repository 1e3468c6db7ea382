"""T4: what remains of the mean return when the attacker has a budget for every step instead of the whole episode.

Let each perturbation have an l2 norm of at most e. The reward r_t of step t (0 after the end) depends only on what
happened up to step t, and by then all perturbations together have an l2 norm of at most e sqrt(t). If every reward lies
in [low, high], (r_t - low) / (high - low) is the probability of a yes to some question about those steps, so
Theorem 1 applies to it:

    E[Y] = sum E[r_t] >= sum over t of  low + (high - low) Phi(Phi^-1(p_t) - e sqrt(t) / sigma),

where p_t is the mean of (r_t - low) / (high - low) without attack. The mean of n independent values in [0, 1] is
bounded by Chernoff's inequality in Hoeffding's form (1963, theorem 1), for each step at an even share of alpha:

    p_t >= least m with n KL(mean || m) <= log(steps / alpha).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from surefoot.errors import InputError
from surefoot.proof.bounds.binomial import check_alpha
from surefoot.proof.bounds.gaussian_shift import shift_down

Floats = NDArray[np.float64]

_ENTROPY_ERROR = 1e-9  # relative: more than the rounding of a relative entropy


def step_means(sums: Floats, n: int, alpha: float) -> Floats:
    """Return lower bounds, simultaneously valid, of the means of values in [0, 1] of which n each have these sums."""
    check_alpha(alpha)
    means = np.asarray(sums, dtype=np.float64) / n
    if means.ndim != 1 or means.size == 0 or n < 1 or not np.all((means >= -1e-9) & (means <= 1 + 1e-9)):
        raise InputError("expected one sum per step, of n values between 0 and 1 each")
    # A sum that is rounded up by a rounding error must not count as certain.
    means = np.clip(means * (1 - 1e-12), 0.0, 1.0)
    # the union bound over all steps
    return _means_at_entropy(means, math.log(means.size / alpha) * (1 + _ENTROPY_ERROR) / n)


def _means_at_entropy(means: Floats, most: float) -> Floats:
    """Return, for each mean, an m below it with KL(mean || m) >= most, found by halving."""
    low = np.zeros(means.shape)
    high = means.copy()
    for _ in range(100):
        middle = (low + high) / 2
        with np.errstate(divide="ignore"):
            far = rel_entr(means, middle) + rel_entr(1 - means, 1 - middle) >= most
        low = np.where(far, middle, low)
        high = np.where(far, high, middle)
    return low  # the side at which the relative entropy was found to suffice


def shifted_step_sum(means: Floats, scaled_budget: float) -> float:
    """Return sum over steps t = 1, 2, ... of Phi(Phi^-1(mean_t) - c sqrt(t)), where c = e / sigma."""
    return float(shift_down(means, scaled_budget * np.sqrt(np.arange(1, means.size + 1))).sum())
