"""Two training algorithms, compared by their training runs: interquartile means, with bootstrap intervals.

The unit is the training run: its score is the mean return of the agent that it gave. Episodes of one agent say nothing
about other runs of the algorithm, however many there are. Intervals are percentile intervals of the bootstrap over
runs, as rliable (Agarwal and others, NeurIPS 2021) uses them, by ``scipy.stats.bootstrap``. They are approximate, and
too short where runs are few: nothing here is proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import bootstrap, trim_mean

from surefoot.errors import InputError
from surefoot.proof.query import check_confidence
from surefoot.proof.rounding import format_percent

Floats = NDArray[np.float64]

FEW_RUNS = 10
_RESAMPLES = 9_999


@dataclass(frozen=True, kw_only=True)
class AlgorithmComparison:
    """Interquartile means of two algorithms over training runs, and their difference, with intervals.

    >>> compared = compare_training_runs([480, 500, 490, 495, 500], [300, 420, 350, 390, 410])
    >>> [round(value) for value in compared.iqm], compared.n_runs
    ([495, 383], (5, 5))
    """

    iqm: tuple[float, float]  # interquartile means of A's and of B's runs
    intervals: tuple[tuple[float, float], tuple[float, float]]  # their intervals
    difference: float  # a's interquartile mean minus B's
    interval: tuple[float, float]
    n_runs: tuple[int, int]  # numbers of training runs
    confidence: float  # nominal, of each interval

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as JSON data."""
        return {"schema": 1, "unit": "training run", **vars(self)}

    def __str__(self) -> str:
        percent = format_percent(self.confidence)
        lines = []
        for name, iqm, interval, n in zip("AB", self.iqm, self.intervals, self.n_runs, strict=True):
            lines.append(f"{name}: interquartile mean {iqm:.4g} ({interval[0]:.4g} to {interval[1]:.4g}), {n} runs")
        low, high = self.interval
        lines.append(f"A minus B: {self.difference:.4g} ({low:.4g} to {high:.4g})")
        lines.append(
            f"Intervals: bootstrap over training runs, {percent} nominally. They are estimates; nothing is proved."
        )
        if low <= 0 <= high:
            lines.append("Not separated: the interval of the difference contains 0.")
        if min(self.n_runs) < FEW_RUNS:
            lines.append(f"With fewer than {FEW_RUNS} runs of each such intervals are too short.")
        return "\n".join(lines)


def compare_training_runs(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> AlgorithmComparison:
    """Compare two algorithms by the scores of their training runs.

    Args:
        a: One score for each training run of A: the mean return of the agent that it gave.
        b: The same of B.
        confidence: Nominal confidence of each interval.

    Raises:
        InputError: If there are fewer than two runs of one.
    """
    check_confidence(confidence)
    scores = [np.asarray(one, dtype=np.float64) for one in (a, b)]
    for name, one in zip("AB", scores, strict=True):
        if one.ndim != 1 or one.size < 2 or not np.isfinite(one).all():
            raise InputError(f"{name} needs the scores of at least 2 training runs, got {one.size}")
    intervals = [_interval((one,), _iqm, confidence) for one in scores]
    iqm = [float(_iqm(one)) for one in scores]
    return AlgorithmComparison(
        iqm=(iqm[0], iqm[1]),
        intervals=(intervals[0], intervals[1]),
        difference=iqm[0] - iqm[1],
        interval=_interval((scores[0], scores[1]), _iqm_difference, confidence),
        n_runs=(scores[0].size, scores[1].size),
        confidence=confidence,
    )


def _iqm(scores: Floats, axis: int = -1) -> Any:
    return trim_mean(scores, 0.25, axis=axis)


def _iqm_difference(a: Floats, b: Floats, axis: int = -1) -> Any:
    return _iqm(a, axis) - _iqm(b, axis)


def _interval(samples: tuple[Floats, ...], statistic: Any, confidence: float) -> tuple[float, float]:
    # A fixed seed: the same files give the same numbers. scipy before 1.15 called it otherwise.
    name = "rng" if "rng" in signature(bootstrap).parameters else "random_state"
    seeded: dict[str, Any] = {name: np.random.default_rng(0)}
    found = bootstrap(
        samples,
        statistic,
        n_resamples=_RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        **seeded,
    ).confidence_interval
    return float(found.low), float(found.high)
