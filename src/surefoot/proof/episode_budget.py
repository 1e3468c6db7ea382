"""Episodes in, Certificate out: the one place where a confidence is turned into a risk and handed to a band.

The risk alpha = 1 - confidence is spent once on the lower family of the band and once on the upper one.
Whatever a certificate says (means, probabilities, quantiles, at the budgets that were asked for and at any
other) follows from that one band, so all its lower limits hold at once with the stated confidence, and so do
all its upper limits.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import Episodes, checked_returns
from surefoot.errors import InputError
from surefoot.proof.auto import choose
from surefoot.proof.bounds import bands as cdf
from surefoot.proof.bounds import from_band as worst_case
from surefoot.proof.bounds.bands import Band
from surefoot.proof.bounds.from_bets import Means, both_sides
from surefoot.proof.rounding import decimals, discount_of, exact, features_of, limit_table, noise_of, percent, return_of

SCHEMA = 1
METHODS = ("auto", "paper", "betting", "sequential", "band", "per-threshold", "dkw", "dkw-one-sided", "binary")

_MOST_THRESHOLDS = 1_000_000
_OUTWARD = 1e-9  # of the range: far more than floating-point error, far less than anybody can see


@dataclass(frozen=True)
class Limits:
    """Certified limits at one budget; ``upper`` is None where nothing is known to hold the value down."""

    budget: float
    lower: float
    upper: float | None


@dataclass(frozen=True, eq=False)
class Certificate:
    """What is proved about an agent's return under every adversary of an l2 budget over the whole episode.

    ``budgets``       the budgets asked for, in the units of the observations
    ``lower``         certified lower limit of the expected return at each budget, rounded down
    ``upper``         certified upper limit at each budget, rounded up, or None without a known ceiling
    ``estimate``      plain mean of the unattacked play: an estimate, never a bound
    ``estimate_sem``  its standard error, or None for a single episode
    ``confidence``    of all lower limits together, and of all upper limits together
    ``method``        how the band was made
    ``episodes``      how many there were
    ``sigma``         the noise they were played with
    ``facts``         what the record says about the setup
    ``band``          the confidence band that everything is derived from, or None where bets were made on means
    ``means``         what was bet on the means and what it proved, or None where there is a band
    ``choice``        how many episodes ``auto`` looked at, the first ones, and what it chose for the others; else None
    ``step``          distance of the thresholds, where the method has any
    ``record_sha256`` hash of the record that was certified, setup included
    ``asked``         limits of probabilities and quantiles that go into the file, as JSON data
    """

    budgets: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64] | None
    estimate: float
    estimate_sem: float | None
    confidence: float
    method: str
    episodes: int
    sigma: float
    floor: float
    ceiling: float | None
    facts: Mapping[str, Any]
    band: Band | None
    means: Means | None = None
    choice: Mapping[str, Any] | None = None
    step: float | None = None
    record_sha256: str = ""
    asked: Mapping[str, Any] = field(default_factory=dict)

    def at(self, budget: float) -> Limits:
        """Return the limits of the expected return at any budget >= 0: one band, or the bets made, cover them all."""
        lower, upper = _mean_limits(self._source, self.floor, self.ceiling, np.array([self._radius(budget)]))
        return Limits(float(budget), float(lower[0]), None if upper is None else float(upper[0]))

    def probability(self, threshold: float, budget: float) -> Limits:
        """Return limits of the probability that the return is at least ``threshold``, whoever attacks."""
        if not math.isfinite(threshold):
            raise InputError(f"threshold must be a finite number, got {threshold}")
        where = (self._whole_law, float(threshold), self._radius(budget), self.floor, self.ceiling)
        lower, upper = float(worst_case.reach_lower(*where)), float(worst_case.reach_upper(*where))
        lower = lower if lower == 1 else lower * (1 - _OUTWARD)  # exactly 1 means certain, not rounded
        return Limits(float(budget), lower, min(1.0, upper * (1 + _OUTWARD)))

    def quantile(self, q: float, budget: float) -> Limits:
        """Return limits of the q-quantile of the return, whoever attacks with that budget."""
        where = (self._whole_law, q, self._radius(budget), self.floor, self.ceiling)
        upper = float(worst_case.quantile_upper(*where))
        return Limits(float(budget), float(worst_case.quantile_lower(*where)), upper if math.isfinite(upper) else None)

    @property
    def joint_confidence(self) -> float:
        """Confidence with which all lower and all upper limits hold together."""
        # without a ceiling too: probabilities and quantiles have upper limits even then
        if self._joint:
            return self.confidence
        # In decimal arithmetic: 0.95 gives 0.9, and nothing below 1 is rounded to 1.
        return max(0.0, float(2 * Decimal(repr(self.confidence)) - 1))

    @property
    def statement(self) -> str:
        """The certificate as a sentence."""
        sides = (
            "and so do all upper limits"
            + (", jointly with the lower ones" if self._joint else "")
            + f"; lower and upper limits hold together with confidence {exact(self.joint_confidence)} at least"
        )
        return (
            "Under every adversary whose offsets to the observations have an l2 norm of at most the budget "
            f"over the whole episode, the expected {return_of(self.facts)} of the smoothed agent "
            f"(noise {noise_of(self.sigma, self.facts)}) is at least 'lower'"
            + ("" if self.upper is None else " and at most 'upper'")
            + f". With confidence {exact(self.confidence)} all lower limits hold, for all budgets at once"
            + ("." if self.upper is None else f", {sides}.")
        )

    def __str__(self) -> str:
        """Return a short table, every limit rounded against us, and what it says."""
        digits = decimals(self.floor, self.ceiling, self.estimate)
        lines = limit_table(self.budgets, self.lower, self.upper, digits)
        sides = "" if self.upper is None else ", and so do all upper limits"
        lines.append(
            f"Certified limits of the expected return under every attack of each l2 budget (noise "
            f"{noise_of(self.sigma, self.facts)}, {self.episodes} episodes): with {percent(self.confidence)} "
            f"confidence all lower limits hold at once{sides}."
        )
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as strict JSON data; 'lower' and 'upper' are bounds, 'estimate' is not."""
        return {
            "schema": SCHEMA,
            "task": self.facts.get("task"),
            "agent": self.facts.get("agent"),
            "agent_sha256": self.facts.get("agent_sha256"),
            "seed": self.facts.get("seed"),
            "sigma": self.sigma,
            "confidence": self.confidence,
            "joint_confidence": self.joint_confidence,
            "episodes": self.episodes,
            "method": self.method,
            "step": self.step,
            "record_sha256": self.record_sha256,
            "floor": self.floor,
            "ceiling": self.ceiling,
            "budgets": self.budgets.tolist(),
            "lower": self.lower.tolist(),
            "upper": None if self.upper is None else self.upper.tolist(),
            "estimate": self.estimate,
            "estimate_sem": self.estimate_sem,
            "choice": self.choice,
            "bets": None if self.means is None else _bets(self.means),
            **self.asked,
            **discount_of(self.facts),
            **features_of(self.facts),
            "statement": self.statement,
        }

    @property
    def _joint(self) -> bool:
        return self.band is not None and self.band.joint

    @property
    def _source(self) -> Band | Means:
        source = self.band if self.band is not None else self.means
        assert source is not None
        return source

    @property
    def _whole_law(self) -> Band:
        if self.band is None:
            raise InputError(
                "this certificate spent its risk on means, so it says nothing of probabilities and quantiles; "
                "ask for them with method='band', on the same episodes if that was settled before looking"
            )
        return self.band

    def _radius(self, budget: float) -> float:
        return _checked_budget(budget) / self.sigma


def certify(
    episodes: Episodes,
    budgets: Sequence[float],
    confidence: float = 0.95,
    method: str | None = None,
    step: float = 1.0,
) -> Certificate:
    """Certify the expected return of a smoothed agent against every adversary of each l2 budget.

    ``episodes``    a record of unattacked play with noise; sigma, floor and ceiling are read from it
    ``budgets``     l2 sizes of the offsets over a whole episode, in the units of the observations
    ``confidence``  that all lower limits hold at once, whatever the budgets; likewise all upper limits
    ``method``      one of METHODS, fixed before looking; by default "auto": a pilot of the first episodes chooses,
                    and what is certified rests on the others. "paper" is the one that the facts name, else "dkw"
    ``step``        distance of the thresholds from floor to ceiling, for "per-threshold" only
    """
    returns = _checked_record(episodes)
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    if not (math.isfinite(step) and step > 0):
        raise InputError(f"step must be a finite number > 0, got {step}")
    asked = _checked_budgets(budgets)
    name = "auto" if method is None else method
    if name == "paper":
        name = episodes.facts.get("method") or "dkw"
    # One by one: a quotient too large for a float is infinite, at which only what is certain remains.
    radii = np.array([budget / float(episodes.sigma) for budget in asked])
    source, choice = _limits_of(name, returns, episodes, radii, 1 - confidence, step)
    distance = float(step) if name == "per-threshold" else None
    return certificate_of(episodes, asked, confidence, name, source, choice, distance)


def certificate_of(
    episodes: Episodes,
    budgets: Sequence[float],
    confidence: float,
    method: str,
    source: Band | Means,
    choice: Mapping[str, Any] | None = None,
    step: float | None = None,
) -> Certificate:
    """Write down what a band or bets at risk 1 - confidence have proved about checked episodes."""
    radii = np.array([budget / float(episodes.sigma) for budget in budgets])
    lower, upper = _mean_limits(source, episodes.floor, episodes.ceiling, radii)
    returns, n = episodes.returns, len(episodes)
    return Certificate(
        budgets=_fixed(np.array(budgets, dtype=np.float64)),
        lower=lower,
        upper=upper,
        estimate=float(returns.mean()),
        estimate_sem=float(returns.std(ddof=1)) / math.sqrt(n) if n > 1 else None,
        confidence=float(confidence),
        method=method,
        episodes=n,
        sigma=float(episodes.sigma),
        floor=float(episodes.floor),
        ceiling=None if episodes.ceiling is None else float(episodes.ceiling),
        facts=dict(episodes.facts),
        band=source if isinstance(source, Band) else None,
        means=source if isinstance(source, Means) else None,
        choice=choice,
        step=step,
        record_sha256=episodes.sha256,
    )


def _limits_of(
    method: str, returns: NDArray[np.float64], episodes: Episodes, radii: NDArray[np.float64], alpha: float, step: float
) -> tuple[Band | Means, Mapping[str, Any] | None]:
    floor, ceiling = episodes.floor, episodes.ceiling
    if method in ("betting", "sequential"):
        return both_sides(returns, radii, alpha, floor, ceiling, anytime=method == "sequential"), None
    if method != "auto":
        return _band(method, returns, episodes, alpha, step), None
    choice = choose(returns, radii, alpha, floor, ceiling)
    rest = returns[choice.pilot :]
    if choice.method == "betting":  # which bets on nothing before the pilot's end
        return both_sides(returns, radii, alpha, floor, ceiling), choice.to_json()
    if choice.method == "band":
        return cdf.tail_tight(rest, alpha), choice.to_json()
    return cdf.spread_thresholds(rest, choice.points, choice.reach, choice.stay), choice.to_json()


def _band(method: str, returns: NDArray[np.float64], episodes: Episodes, alpha: float, step: float) -> Band:
    floor, ceiling = episodes.floor, episodes.ceiling
    match method:
        case "band":
            return cdf.tail_tight(returns, alpha)
        case "dkw":
            return cdf.dkw(returns, alpha)
        case "dkw-one-sided":
            return cdf.dkw_one_sided(returns, alpha)
        case "per-threshold":
            top = _needed_ceiling(ceiling, method)
            return cdf.per_threshold(returns, _thresholds(floor, top, step), alpha, floor, top)
        case "binary":
            return cdf.binary(returns, floor, _needed_ceiling(ceiling, method), alpha)
    raise InputError(f"method must be one of {', '.join(METHODS)}, got {method!r}")


def _mean_limits(
    source: Band | Means, floor: float, ceiling: float | None, radii: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Return the limits of the expected return, widened so that floating-point error is on our side."""
    highest = source.points[-1] if isinstance(source, Band) else source.lower.limits.max()
    top = float(highest) if ceiling is None else ceiling
    slack = _OUTWARD * (top - floor) + 16 * sys.float_info.epsilon * max(abs(floor), abs(top))
    low = worst_case.mean_lower(source, floor, radii) if isinstance(source, Band) else source.lower.at(radii)
    lower = np.clip(low - slack, floor, top)
    if ceiling is None:
        return _fixed(lower), None
    if isinstance(source, Band):
        high = worst_case.mean_upper(source, ceiling, radii)
    else:
        assert source.mirror is not None
        high = -source.mirror.at(radii)
    return _fixed(lower), _fixed(np.clip(high + slack, floor, ceiling))


def _bets(means: Means) -> dict[str, Any]:
    """Return what was staked, in the units of the radius; the upper side bet on minus the return."""
    sides = {"lower": means.lower, "upper": means.mirror}
    return {side: [dict(bet) for bet in made.bets] for side, made in sides.items() if made is not None}


def _fixed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    values.setflags(write=False)
    return values


def _thresholds(floor: float, ceiling: float, step: float) -> NDArray[np.float64]:
    """Return floor, floor + step, ... and the ceiling last."""
    count = (ceiling - floor) / step
    if count > _MOST_THRESHOLDS:
        raise InputError(
            f"a step of {step:g} from {floor:g} to {ceiling:g} makes {count:.0f} thresholds, "
            f"expected at most {_MOST_THRESHOLDS}; use a larger step or the method 'band'"
        )
    below = np.arange(max(1, math.ceil(count - 1e-9)))  # no threshold a rounding error below the ceiling
    return np.append(floor + step * below, ceiling)


def _needed_ceiling(ceiling: float | None, method: str) -> float:
    if ceiling is None:
        raise InputError(f"the method {method!r} needs a known ceiling of the return, got none; use 'band'")
    return ceiling


def _checked_record(episodes: Episodes) -> NDArray[np.float64]:
    if episodes.attacked:
        raise InputError("a certificate needs episodes without an adversary, got a record of attacked play")
    if not (math.isfinite(episodes.sigma) and episodes.sigma > 0):
        raise InputError(f"sigma must be > 0, got {episodes.sigma}: without noise nothing is certified")
    return checked_returns(episodes.returns, episodes.floor, episodes.ceiling)


def _checked_budgets(budgets: Sequence[float]) -> tuple[float, ...]:
    if np.ndim(budgets) != 1:
        raise InputError(f"budgets must be a list of numbers, got {budgets!r}; for one budget write [0.5]")
    asked = tuple(_checked_budget(budget) for budget in budgets)
    if not asked:
        raise InputError("expected at least one budget, got none")
    return asked


def _checked_budget(budget: float) -> float:
    if not (math.isfinite(budget) and budget >= 0):
        raise InputError(f"a budget must be a finite number >= 0, got {budget}")
    return float(budget)
