"""The difference of two mean returns: which episodes belong together, and an interval for E X - E Y.

Returns are between ``floor`` and ``ceiling``; R is their range. X_i and Y_i are the returns of episode i of A and of B.

Theorem 1 (pairs). If the pairs (X_i, Y_i) are independent and of one distribution, whatever the dependence within a
pair, then D_i = X_i - Y_i are independent, from -R to R, with mean E X - E Y. So lower bounds of the mean of D and of
the mean of -D, each with confidence 1 - alpha/2, make an interval with confidence 1 - alpha. Bets give these bounds
(T3 at budget 0, ``proof.bounds.settle``), at a number of pairs fixed in advance or at all numbers at once. Where only
the returns floor and ceiling can occur, ``proof.paired_wins`` gives them from the numbers of pairs that one
agent won alone. Neither says anything about the dependence within a pair: the more the two have in common (starts,
noise), the less D varies, and the shorter is the interval.

Theorem 2 (unpaired). If X and Y are all independent, X_i and the mean of a group of k returns Y are a pair as well: D_i
is still between -R and R and has the mean E X - E Y. So runs of different lengths are used whole.

Theorem 3 (unknown). If nothing is known about how X and Y depend on each other, one-sided bounds of either mean, four
of them with confidence 1 - alpha/4 each, make an interval with confidence 1 - alpha: the lower bound of E X minus the
upper bound of E Y, and the other way round (union bound).

Rows that were put together wrongly are not pairs. If Y is shifted by one, D_i = X_i - Y_(i+1) and D_(i+1) = X_(i+1) -
Y_(i+2) have X_(i+1) and Y_(i+1) in common, and are not independent. So rows are only paired by what they were run with,
their seeds, and never by their place in two files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.bounds.binomial import lower_limit
from surefoot.proof.paired_wins import MOST_PAIRS, difference_lower
from surefoot.proof.planning.strategies import worst_means
from surefoot.proof.rounding import rounded_lower, rounded_upper

Floats = NDArray[np.float64]
Pairing = Literal["seeds", "independent", "unknown"]

# What two agents that are compared may differ in: themselves, their noise, and which episodes were run where.
MAY_DIFFER = frozenset(
    """
    agent agent_sha256 sigma sigma_per_feature action_sigma n_stack memory stochastic pixel_max seed purpose n_planned
    n_envs block_size device attacker budget scope reward_range stated_by_user episode_seeds binary
    """.split()
)
# What the random numbers of episode i follow from.
_SAME_RANDOMNESS = ("seed", "purpose", "n_envs", "block_size", "device")


@dataclass(frozen=True, eq=False)
class Pairs:
    """Returns of two agents, put together.

    ``pairing``  by "seeds" (theorem 1), "independent" (theorem 2) or "unknown" (theorem 3)
    ``a``, ``b``  returns; of one length unless the pairing is unknown
    ``names``    what each pair is called: the number of the episode or its seed; empty if rows have nothing in common
    ``only_wins``  whether only floor and ceiling can occur, by what the runs declare
    """

    pairing: Pairing
    a: Floats
    b: Floats
    floor: float
    ceiling: float
    names: tuple[int, ...] = ()
    only_wins: bool = False

    @property
    def differences(self) -> Floats:
        """X_i - Y_i."""
        return self.a - self.b

    @property
    def size(self) -> int:
        """Number of pairs; where there are none, of the episodes of the shorter run."""
        return min(self.a.size, self.b.size)


def pair_up(a: Episodes, b: Episodes) -> Pairs:
    """Put the episodes of two agents together, by what the records say of their random numbers.

    Raises:
        InputError: If the two are not of one task with one known range of the return.
    """
    check_same_task(a, b)
    if a.draws_per_seed > 1 or b.draws_per_seed > 1:
        raise InputError("agents are compared on independent episodes; run both with draws_per_seed=1")
    assert a.ceiling is not None
    only_wins = a.metadata.get("binary") is True and b.metadata.get("binary") is True
    if only_wins and not all(np.isin(one.returns, (a.floor, a.ceiling)).all() for one in (a, b)):
        raise InputError(f"only the returns {a.floor:g} and {a.ceiling:g} are won or lost; leave only_wins= out")
    pairing = _find_pairing(a.metadata, b.metadata)
    first, second, names = _aligned(a, b, pairing)
    # A mean of several episodes is neither won nor lost.
    grouped = pairing == "independent" and max(len(a), len(b)) >= 2 * min(len(a), len(b))
    return Pairs(pairing, first, second, a.floor, a.ceiling, names, only_wins and not grouped)


def check_same_task(a: Episodes, b: Episodes) -> None:
    """Refuse two records whose difference says nothing: of two tasks, or without a common range of the return."""
    differing = []
    for key in sorted({*a.setup, *b.setup} - MAY_DIFFER):
        if a.setup.get(key) != b.setup.get(key):
            differing.append(f"{key} {a.setup.get(key)} and {b.setup.get(key)}")
    if differing:
        raise InputError(f"two agents are compared on one task; these runs have {', '.join(differing[:3])}")
    if a.ceiling is None:
        raise InputError("a comparison needs a ceiling: without it the mean has no upper bound; give ceiling=")


def _find_pairing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Pairing:
    if a.get("episode_seeds") is not None and b.get("episode_seeds") is not None:
        return "seeds"
    if not all(isinstance(one.get("block_size"), int) and isinstance(one.get("seed"), int) for one in (a, b)):
        # Returns of others do not say what they were drawn with.
        return "unknown"
    if (a["seed"], a.get("purpose")) != (b["seed"], b.get("purpose")):
        return "independent"
    # Episodes that follow each other in one environment begin at another step of its noise for each agent, and what an
    # agent or an attacker draws itself depends on how many rows there are: episode i of one may then share draws with
    # episode j of the other.
    same = all(a.get(key) == b.get(key) for key in _SAME_RANDOMNESS)
    draws = a.get("stochastic") or b.get("stochastic") or (a.get("budget") and b.get("budget"))
    if same and a.get("n_envs") == a.get("block_size") and not draws:
        return "seeds"
    return "unknown"


def _aligned(a: Episodes, b: Episodes, pairing: Pairing) -> tuple[Floats, Floats, tuple[int, ...]]:
    """Return the returns that belong together in the order of A, and what the pairs are called."""
    if pairing == "unknown":
        return a.returns, b.returns, ()
    if pairing == "independent":
        n = min(len(a), len(b))
        return _group_means(a.returns, n), _group_means(b.returns, n), ()
    seeds = a.metadata.get("episode_seeds")
    if seeds is None:
        n = min(len(a), len(b))
        return a.returns[:n], b.returns[:n], tuple(range(n))
    for one in (a, b):
        if not len(set(one.metadata["episode_seeds"])) == len(one.metadata["episode_seeds"]) == len(one):
            raise InputError("episode_seeds must have one seed for each episode, and none twice: they are independent")
    rows = {seed: row for row, seed in enumerate(b.metadata["episode_seeds"])}
    common = [row for row, seed in enumerate(seeds) if seed in rows]
    if not common:
        raise InputError("the two files have no seed in common; compare episodes of the same seeds, or leave seeds out")
    names = tuple(seeds[row] for row in common)
    return a.returns[common], b.returns[[rows[name] for name in names]], names


def _group_means(returns: Floats, n: int) -> Floats:
    """Return n means of as many returns each as there are (theorem 2)."""
    size = returns.size // n
    groups = returns[: n * size].reshape(n, size)
    # rounded, a mean of equal numbers may be another one, beyond floor or ceiling
    means: Floats = np.clip(groups.mean(axis=1), groups.min(axis=1), groups.max(axis=1))
    return means


@dataclass(frozen=True)
class Interval:
    """Bounds of E X - E Y, rounded outward."""

    low: float
    high: float

    @property
    def resolution(self) -> float:
        """The smallest difference that is told from none, whichever its sign: half of the width."""
        return (self.high - self.low) / 2


def difference_interval(pairs: Pairs, alpha: float) -> Interval:
    """Return an interval for E X - E Y with confidence 1 - alpha; the number of episodes was fixed in advance."""
    span = pairs.ceiling - pairs.floor
    if pairs.pairing == "unknown":
        # (3)
        quarter = alpha / 4
        low = _mean_lower(pairs.a, quarter, pairs) - _mean_upper(pairs.b, quarter, pairs)
        high = _mean_upper(pairs.a, quarter, pairs) - _mean_lower(pairs.b, quarter, pairs)
        return Interval(low, high)
    differences = pairs.differences
    if pairs.only_wins and pairs.size <= MOST_PAIRS:
        a_alone = int((differences > 0).sum())
        b_alone = int((differences < 0).sum())
        low = span * difference_lower(pairs.size, a_alone, b_alone, alpha / 2)
        high = -span * difference_lower(pairs.size, b_alone, a_alone, alpha / 2)
    else:
        low = float(worst_means(differences, [0.0], alpha / 2, -span, span).at(0.0))
        high = -float(worst_means(-differences, [0.0], alpha / 2, -span, span).at(0.0))
    return rounded_interval(low, high, differences, span)


def rounded_interval(low: float, high: float, differences: Floats, span: float) -> Interval:
    """Return the interval rounded outward, and not beyond what was observed."""
    observed = (float(differences.min()), float(differences.max()))
    return Interval(
        float(rounded_lower(low, -span, observed)),
        float(rounded_upper(high, span, observed)),
    )


def _mean_lower(returns: Floats, alpha: float, pairs: Pairs) -> float:
    observed = (float(returns.min()), float(returns.max()))
    if pairs.only_wins:
        wins = float((returns == pairs.ceiling).sum())
        share = float(lower_limit(wins, returns.size, alpha)[0])
        bound = pairs.floor + (pairs.ceiling - pairs.floor) * share
    else:
        bound = float(worst_means(returns, [0.0], alpha, pairs.floor, pairs.ceiling).at(0.0))
    return float(rounded_lower(bound, pairs.floor, observed))


def _mean_upper(returns: Floats, alpha: float, pairs: Pairs) -> float:
    mirrored = Pairs(pairs.pairing, -pairs.a, -pairs.b, -pairs.ceiling, -pairs.floor, (), pairs.only_wins)
    return -_mean_lower(-returns, alpha, mirrored)
