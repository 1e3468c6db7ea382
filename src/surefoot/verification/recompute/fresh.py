"""Whether fresh episodes contradict a record: bets that the record of an honest author seldom loses.

An agent that knows the seed of its certificate by heart, or whose simulator does, repeats its record bit for bit in
every rerun. Only episodes whose seed nobody knew before show what it earns.

Bet without replacement. Let the recorded and the fresh returns be independent draws of one distribution. Given all of
them as a set of N numbers, every order is equally likely. So for any scores s that depend on the returns as a set
alone, the i-th fresh score has, given those before it, the mean

    m_i = (sum of all N scores - sum of the first i - 1 fresh scores) / (N - i + 1),

and for every share f in [0, 1) the capital  prod_i (1 + f (m_i - s_i) / (max s - m_i))  is a nonnegative martingale
that starts at 1. So is the average of such capitals over shares and scores, and the probability that it ever reaches
1 / a is at most a (Ville's inequality).

The scores at scaled budget c are the tangent of the worst-case mean  floor + int g_c(S(x)) dx  at the distribution S of
all N returns: s(x) = int up to x of g_c'(S(y)) dy, with g_c'(p) = exp(c Phi^-1(p) - c^2 / 2). At c = 0 this is the
return itself; at large c it counts rare failures for much. Of the lowest returns, of which quantiles, CVaR and
probabilities speak, another score sees more: the return itself up to a cap.

Where a seed has several draws of the noise, seeds are what is exchangeable: each has one score, the mean of those of
its draws. And what is certified there rests on how much the draws of a seed have in common. So there are scores that
see this too: tangents as above, but for each quarter of all draws by the mean of the others of their seed one at the
distribution of that quarter. They rise with what that mean tells of a draw, because g_c is convex. So it is with
numbers that were known at reset.

Against a budget per step early rewards count for more, and two records with the same returns may differ in that. So
sums of rewards that count less and less, at a few rates, are scores too. Where rewards may be negative nothing is sure
before the end, and so returns that count the less the later they are final.

A run that stopped by its returns is no fair sample as a whole. But each block of it is, given those before: so a part
of the fresh returns is bet on against each block, and the capital goes on to the next. Wherever the run stopped, it has
the mean 1 at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]
# Shares of the largest bet that cannot lose all: from nearly everything, for failures that a record does not have, to
# small ones, for means that differ a little.
SHARES = 0.9 * 0.5 ** np.arange(14)
MOST_SCORES = 16  # scaled budgets, and as many caps
MOST_STOPPED_BLOCKS = 1_000  # of a run that stopped by itself: later ones are few, or small
EARLY_RATES = (1.0, 4.0, 16.0)
MOST_RADIUS = 6.0  # beyond it one failure outweighs all else, and exponentials overflow


def log_capital(
    recorded: Floats,
    fresh: Floats,
    radii: Sequence[float],
    shares: Sequence[float] = (),
    thresholds: Sequence[float] = (),
    *,
    n_draws: int = 1,
    sums: Sequence[tuple[Floats, Floats]] = (),
    known: Sequence[tuple[Floats, Floats]] = (),
) -> float:
    """Return the logarithm of the largest capital of bets that the fresh returns are worse than the recorded ones.

    Args:
        radii: Scaled budgets whose worst-case means are bet on; 0 is added.
        shares: Shares of the lowest returns whose mean or end is bet on.
        thresholds: Returns up to which is bet on what is earned.
        n_draws: How many returns in a row are of one seed; neither record ends within a seed.
        sums: Other numbers of recorded and fresh episodes that are bet on, the larger the better.
        known: Numbers that were known of recorded and fresh episodes at reset, on which certified bounds rest.
    """
    pool = np.unique(np.concatenate([recorded, fresh]))
    asked = np.array(sorted({0.0, *(min(float(radius), MOST_RADIUS) for radius in radii)}))
    # Just above the lowest share of all returns: where many are equal, the share may end among them.
    lowest = np.quantile(np.concatenate([recorded, fresh]), shares, method="lower")
    above = pool[np.minimum(np.searchsorted(pool, lowest, side="right"), pool.size - 1)]
    caps = np.unique([*above, *thresholds])
    scores = [_scores(recorded, fresh, radius) for radius in _few(asked)]
    scores += [_capped(recorded, fresh, cap) for cap in _few(caps)]
    told = [np.concatenate(both) for both in known]
    if n_draws > 1:
        told.append(_mean_of_others(np.concatenate([recorded, fresh]), n_draws))
    for one in told:
        scores += [_told_scores(recorded, fresh, radius, one) for radius in _few(asked) if radius > 0]
    scores += [_scaled(*both) for both in sums]
    logs = []
    for both in scores:
        by_seed = [score.reshape(-1, n_draws).mean(axis=1) for score in both]
        logs.append(_log_capitals(by_seed[0], by_seed[1]))
    every = np.concatenate(logs)  # (scores and shares, fresh episodes)
    highest = every.max(axis=0)
    average = highest + np.log(np.exp(every - highest).mean(axis=0))
    return float(max(0.0, average.max()))


def log_capital_by_blocks(recorded: Floats, fresh: Floats, radii: Sequence[float], block_size: int) -> float:
    """Return the same for a run that may have stopped after any block: of the product of what each block wins."""
    asked = _few(np.array(sorted({0.0, *(min(float(radius), MOST_RADIUS) for radius in radii)})))
    n_blocks = min(-(-recorded.size // block_size), fresh.size, MOST_STOPPED_BLOCKS)
    every = np.zeros(asked.size * SHARES.size)
    most = 0.0
    for number, part in enumerate(np.array_split(fresh, n_blocks)):
        block = recorded[number * block_size : (number + 1) * block_size]
        every += np.concatenate([_log_capitals(*_scores(block, part, radius))[:, -1] for radius in asked])
        highest = float(every.max())
        most = max(most, highest + math.log(float(np.exp(every - highest).mean())))
    return most


def early_sums(values: Floats, repeats: NDArray[np.int64], lengths: NDArray[np.int64], n_steps: int) -> list[Floats]:
    """Return sums of each episode's rewards that count e^(-rate t / n_steps) at step t, for a few rates."""
    ends = np.cumsum(repeats)
    starts = np.cumsum(lengths) - lengths
    whose = np.searchsorted(starts, ends - 1, side="right") - 1
    last = ends - starts[whose]
    found = []
    for rate in EARLY_RATES:
        paid = np.concatenate([[0.0], np.cumsum(np.exp(-rate * np.arange(n_steps) / n_steps))])
        each = values * (paid[last] - paid[last - repeats])
        found.append(np.bincount(whose, each, lengths.size).astype(np.float64))
    return found


def early_ends(returns: Floats, lengths: NDArray[np.int64], n_steps: int, floor: float) -> list[Floats]:
    """Return how far above the floor each return is, which counts e^(-rate t / n_steps) if it is final at step t."""
    return [(returns - floor) * np.exp(-rate * lengths / n_steps) for rate in EARLY_RATES]


def _scaled(recorded: Floats, fresh: Floats) -> tuple[Floats, Floats]:
    """Return both between 0 and 1."""
    least = min(recorded.min(), fresh.min())
    way = max(max(recorded.max(), fresh.max()) - least, np.finfo(np.float64).tiny)
    return (recorded - least) / way, (fresh - least) / way


def _few(asked: Floats) -> Floats:
    """Return some of many numbers, from the first to the last: each costs memory for every fresh episode."""
    chosen = np.linspace(0, asked.size - 1, min(asked.size, MOST_SCORES)).astype(np.int64)
    return np.asarray(asked[chosen], dtype=np.float64)


def _capped(recorded: Floats, fresh: Floats, cap: float) -> tuple[Floats, Floats]:
    """Return how far recorded and fresh returns get on the way from the lowest of all to the cap."""
    least = min(recorded.min(), fresh.min())
    way = max(cap - least, np.finfo(np.float64).tiny)
    return np.clip((recorded - least) / way, 0, 1), np.clip((fresh - least) / way, 0, 1)


def _scores(recorded: Floats, fresh: Floats, radius: float) -> tuple[Floats, Floats]:
    """Return the scores of recorded and fresh returns: tangents at the distribution of both together."""
    pool = np.concatenate([recorded, fresh])
    values, n_below = np.unique(np.sort(pool), return_index=True)
    # P(X >= value) in the pool; at the least value it is 1, which nothing is scored for.
    survival = 1 - n_below / pool.size
    slope = np.exp(radius * ndtri(survival[1:]) - radius**2 / 2)
    rises = np.concatenate([[0.0], np.cumsum(slope * np.diff(values))])
    scores = rises / max(rises[-1], np.finfo(np.float64).tiny)
    return scores[np.searchsorted(values, recorded)], scores[np.searchsorted(values, fresh)]


def _mean_of_others(returns: Floats, n_draws: int) -> Floats:
    """Return for each draw the mean of the other draws of its seed."""
    table = returns.reshape(-1, n_draws)
    return np.asarray((table.sum(axis=1, keepdims=True) - table) / (n_draws - 1), dtype=np.float64).ravel()


def _told_scores(recorded: Floats, fresh: Floats, radius: float, told: Floats) -> tuple[Floats, Floats]:
    """Return scores of returns by what a number tells of them: tangents at the distribution in each quarter of it."""
    pool = np.concatenate([recorded, fresh])
    quarter = np.searchsorted(np.quantile(told, [0.25, 0.5, 0.75]), told)
    scores = np.empty(pool.size)
    for number in np.unique(quarter):
        inside = quarter == number
        values, place, counts = np.unique(pool[inside], return_inverse=True, return_counts=True)
        # P(X >= value) in this quarter, for all values but the least, which all of it reaches.
        survival = 1 - np.cumsum(counts)[:-1] / counts.sum()
        slope = np.exp(radius * ndtri(survival) - radius**2 / 2)
        widths = np.diff(values)
        paid_anyway = values[0] + np.sum(widths * (ndtr(ndtri(survival) - radius) - survival * slope))
        scores[inside] = paid_anyway + np.concatenate([[0.0], np.cumsum(slope * widths)])[place]
    scores -= scores.min()
    scores /= max(scores.max(), np.finfo(np.float64).tiny)
    return scores[: recorded.size], scores[recorded.size :]


def _log_capitals(recorded: Floats, fresh: Floats) -> Floats:
    """Return the logarithm of the capital of every share after every fresh episode."""
    n_left = recorded.size + fresh.size - np.arange(fresh.size)
    sum_left = recorded.sum() + np.cumsum(fresh[::-1])[::-1]
    mean = np.clip(sum_left / n_left, 0.0, 1.0)
    # Where nothing but the best score is left there is nothing to bet on.
    room = np.where(1 - mean > 1e-12, 1 - mean, np.inf)
    gain = (mean - fresh) / room
    return np.cumsum(np.log1p(SHARES[:, None] * np.maximum(gain, -1.0)), axis=1)


def highest_worst_means(
    fresh: Floats, radii: Sequence[float], floor: float, ceiling: float | None, level: float
) -> Floats:
    """Return what the worst-case means cannot be above, but with probability ``level``, by the fresh returns alone.

    With probability 1 - level P(X >= x) is at most the share of returns that are at least x, plus
    sqrt(log(1 / level) / (2 n)), for all x simultaneously (Dvoretzky, Kiefer, Wolfowitz; Massart), and the worst-case
    mean rises with it. Without a ceiling nothing bounds what was not seen.
    """
    if ceiling is None:
        return np.full(len(radii), np.inf)
    n = fresh.size
    margin = math.sqrt(math.log(1 / level) / (2 * n))
    ordered = np.sort(fresh)
    edges = np.concatenate([[floor], ordered, [ceiling]])
    # P(X >= x) for x between two neighbors, from above the floor to the ceiling.
    survival = np.minimum(1 - np.arange(n + 1) / n + margin, 1.0)
    widths = np.diff(edges)
    return np.array([floor + float(np.sum(widths * ndtr(ndtri(survival) - radius))) for radius in radii])
