"""Certificates against an attacker with one l2 budget for a whole episode (T1 to T3).

The error probability alpha = 1 - confidence is used once for the lower bounds and once for the upper ones. Everything
in a certificate (means, probabilities, quantiles, CVaR, at the budgets asked for and at any other) follows from one
band or from the bets made, so all its lower bounds hold simultaneously with the stated confidence, and so do all upper
bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from surefoot.episodes import MOST_THRESHOLDS, Episodes
from surefoot.errors import InputError
from surefoot.files import number
from surefoot.proof.bounds import bands as cdf
from surefoot.proof.bounds import from_band as worst_case
from surefoot.proof.bounds.bands import Band
from surefoot.proof.bounds.reset_luck import LuckyReturns
from surefoot.proof.certificate import (
    Bounds,
    Certificate,
    Floats,
    checked_budget,
    checked_episodes,
    common_fields,
)
from surefoot.proof.planning.auto import choose_method
from surefoot.proof.planning.bettors import PLANNER_VERSION
from surefoot.proof.planning.strategies import (
    BoundedMeans,
    bets_as_json,
    both_sides,
    bound_group_means,
    bound_lucky_means,
)
from surefoot.proof.rounding import OUTWARD, format_exact, rounded_lower, rounded_upper

if TYPE_CHECKING:
    from surefoot.proof.query import Query

# The paper bounds the probability of each number of steps there.
PER_THRESHOLD_TASKS = ("cartpole-1", "cartpole-5")
BANDS = ("band", "per-threshold", "dkw", "binary")
METHODS = ("auto", "paper", "betting", "sequential", "nested", "luck", *BANDS)
# methods that decide on earlier returns what they do with later ones
PLANNED = ("auto", "betting", "sequential", "nested", "luck")


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class EpisodeCertificate(Certificate):
    """Bounds on the mean return under every attack with an l2 budget for the perturbations of one whole episode.

    Attributes:
        threshold_spacing: Distance between thresholds, for the method "per-threshold".
        betting: The bets that were made and what they proved, as JSON data; None where there is a band.
        planner: Version of the planner that selected the method or the bets; None for other methods.
        source: The band or the bets that everything is derived from; None when read from a file.

    Example:
        >>> import surefoot
        >>> returns = [3.0, 4.0, 9.0, 9.0] * 100
        >>> episodes = surefoot.Episodes.from_returns(returns, sigma=1.0, floor=0, ceiling=10)
        >>> certificate = surefoot.certify(episodes, [0.0, 0.5], method="band")
        >>> certificate.probability(4.0, budget=0.2).lower > 0.5
        True
        >>> certificate.quantile(0.5, budget=0.0)
        Bounds(budget=0.0, lower=4.0, upper=9.0)
        >>> round(certificate.cvar(0.5, budget=0.0).lower, 2)  # of the worse half of all episodes: 3.5
        3.27
    """

    kind: ClassVar[str | None] = None
    file: ClassVar[str] = "certificate.json"

    threshold_spacing: float | None = None
    betting: Mapping[str, Any] | None = None
    planner: int | None = None
    source: Band | BoundedMeans | None = None

    def _mean_bounds(self, budgets: Sequence[float]) -> tuple[Floats, Floats | None] | None:
        source = self.source
        # One by one: a quotient too large for a float is infinite, at which only what is certain remains.
        scaled = np.array([budget / self.budget_sigma for budget in budgets])
        if source is None:
            return None
        if isinstance(source, Band):
            # T2: the worst case over all distributions in the band.
            lower = worst_case.mean_lower(source, self.floor, scaled)
            if self.ceiling is None:
                return lower, None
            return lower, worst_case.mean_upper(source, self.ceiling, scaled)
        # T3: the upper side has bet on minus the return.
        if source.mirror is None:
            return source.lower.at(scaled), None
        return source.lower.at(scaled), -source.mirror.at(scaled)

    def probability(self, threshold: float, budget: float) -> Bounds:
        """Return bounds on the probability that the return is at least ``threshold``, under any attack."""
        if not math.isfinite(threshold):
            raise InputError(f"threshold must be a finite number, got {threshold}")
        scaled = checked_budget(budget) / self.budget_sigma
        where = (self._band_or_error, float(threshold), scaled, self.floor, self.ceiling)
        lower = float(worst_case.probability_lower(*where))
        upper = float(worst_case.probability_upper(*where))
        # Exactly 1 means certain, because the threshold is the floor or below: nothing was computed that could round.
        if lower != 1:
            lower *= 1 - OUTWARD
        return Bounds(float(budget), lower, min(1.0, upper * (1 + OUTWARD)))

    def quantile(self, q: float, budget: float) -> Bounds:
        """Return bounds on the q-quantile of the return, under any attack with that budget."""
        where = (self._band_or_error, q, checked_budget(budget) / self.budget_sigma, self.floor, self.ceiling)
        lower = float(worst_case.quantile_lower(*where))
        upper = float(worst_case.quantile_upper(*where))
        # Without a ceiling nothing bounds a quantile that few or no returns have reached.
        if not math.isfinite(upper):
            return Bounds(float(budget), lower, None)
        return Bounds(float(budget), lower, upper)

    def cvar(self, q: float, budget: float) -> Bounds:
        """Return bounds on the mean of the lowest share q of returns (CVaR), under any attack with that budget."""
        band = self._band_or_error
        where = (band, q, checked_budget(budget) / self.budget_sigma, self.floor, self.ceiling)
        assert self.observed is not None
        lower = float(rounded_lower(worst_case.cvar_lower(*where), self.floor, self.observed))
        upper = float(worst_case.cvar_upper(*where))
        # Without a ceiling nothing bounds the lowest returns where too few are known to be so low.
        if not math.isfinite(upper):
            return Bounds(float(budget), lower, None)
        top = max(float(band.points[-1]), self.observed[1])
        if self.ceiling is not None:
            top = self.ceiling
        return Bounds(float(budget), lower, float(rounded_upper(upper, top, self.observed)))

    def distribution(self, query: Query) -> dict[str, Any]:
        """Return the bounds on P(return >= threshold), quantiles and CVaR that a query asks for, as JSON data.

        They follow from the band that the means come from: all hold simultaneously, at no cost in confidence.
        """
        found: dict[str, Any] = {}
        for name, key, asked, bounds_at in (
            ("probabilities", "at_least", query.thresholds, self.probability),
            ("quantiles", "q", query.quantiles, self.quantile),
            ("cvars", "q", query.cvars, self.cvar),
        ):
            rows = []
            for value in asked:
                bounds = [bounds_at(value, budget) for budget in self.budgets]
                rows.append({key: float(value), **_as_columns(bounds)})
            if rows:
                found[name] = rows
        return found

    @property
    def joint_confidence(self) -> float:
        """Confidence with which all lower and all upper bounds hold simultaneously."""
        # DKW's band is two-sided: both sides hold together. Others use alpha once for each side, which adds up; without
        # a ceiling too, because probabilities and quantiles have upper bounds even then.
        if self.method == "dkw":
            return self.confidence
        # In decimal arithmetic: 0.95 gives 0.9, and nothing below 1 is rounded to 1.
        return max(0.0, float(2 * Decimal(repr(self.confidence)) - 1))

    @property
    def scope(self) -> str:
        """What the budget bounds, in words."""
        return f"total {{norm}} norm of the perturbations of one episode{self.divided}"

    @property
    def scope_of_pairs(self) -> str:
        """What a pair of budgets bounds."""
        return "l2 norms of all perturbations of observations and of actions in one episode"

    @property
    def attack_clause(self) -> str:
        """Which attacks the bounds hold against."""
        what = f"{self.channel} of one episode{self.divided_inside}"
        return f"whose perturbations of the {what} have a total l2 norm of at most budgets[i]"

    @property
    def joint_clause(self) -> str:
        """What holds for lower and upper bounds jointly."""
        with_lower = ""
        if self.method == "dkw":
            with_lower = ", jointly with the lower ones"
        joint = format_exact(self.joint_confidence)
        return f"{with_lower}; lower and upper bounds hold jointly with confidence {joint} or more"

    def _own_json(self) -> dict[str, Any]:
        return {
            "joint_confidence": self.joint_confidence,
            "threshold_spacing": self.threshold_spacing,
            "method_selection": self.method_selection,
            "planner": self.planner,
            "bets": self.betting,
        }

    @classmethod
    def _own_fields(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        spacing = content.get("threshold_spacing")
        if spacing is not None:
            spacing = number(spacing)
        return {
            "threshold_spacing": spacing,
            "betting": content.get("bets"),
            "planner": content.get("planner"),
        }

    @property
    def _band_or_error(self) -> Band:
        if isinstance(self.source, Band):
            return self.source
        if self.source is None:
            raise InputError("a certificate read from a file bounds no other probabilities; certify its episodes again")
        raise InputError(
            "this certificate used its alpha for means, so it bounds no probabilities, quantiles and CVaR; ask for "
            "them in advance: certify(..., thresholds=[...], quantiles=[...], cvars=[...]), or method='band'"
        )


@dataclass(frozen=True)
class EpisodeBudget:
    """The attacker has one l2 budget for each whole episode."""

    certificate: ClassVar[type[Certificate]] = EpisodeCertificate

    def certify(self, episodes: Episodes, query: Query) -> EpisodeCertificate:
        """Answer a query about this attacker."""
        method = query.method or "auto"
        if episodes.draws_per_seed > 1 or method == "nested":
            method = _nested_method(method, query, episodes.draws_per_seed)
        if query.wants_distribution:
            method = _band_method(query.method)
        if method == "paper":
            method = _paper_method(episodes.metadata)
        returns = checked_episodes(episodes, stopped=method == "sequential", by_seed=method == "nested")
        source, selection = _prove_bounds(method, returns, episodes, query)
        spacing = None
        if method == "per-threshold":
            spacing = float(query.threshold_spacing)
        made = certificate_of(
            episodes,
            budgets=query.budgets,
            confidence=query.confidence,
            method=method,
            source=source,
            method_selection=selection,
            threshold_spacing=spacing,
        )
        if not query.wants_distribution:
            return made
        return replace(made, requested=made.distribution(query))


def certificate_of(
    episodes: Episodes,
    *,
    budgets: Sequence[float],
    confidence: float,
    method: str,
    source: Band | BoundedMeans,
    method_selection: Mapping[str, Any] | None,
    threshold_spacing: float | None = None,
) -> EpisodeCertificate:
    """Return what a band or bets at alpha = 1 - confidence have proved about episodes."""
    betting = None
    if isinstance(source, BoundedMeans):
        betting = bets_as_json(source)
    made = EpisodeCertificate(
        **common_fields(
            episodes,
            budgets,
            confidence,
            stopped=method == "sequential",
            by_seed=method == "nested",
        ),
        method=method,
        method_selection=method_selection,
        threshold_spacing=threshold_spacing,
        betting=betting,
        planner=PLANNER_VERSION if method in PLANNED else None,
        source=source,
    )
    return made._with_bounds()


def _prove_bounds(
    method: str, returns: Floats, episodes: Episodes, query: Query
) -> tuple[Band | BoundedMeans, Mapping[str, Any] | None]:
    """Return the band or the bets that all bounds follow from, and how the method was selected."""
    floor = episodes.floor
    ceiling = episodes.ceiling
    alpha = 1 - query.confidence
    scaled = np.array([budget / float(episodes.noise.budget_sigma) for budget in query.budgets])
    if method in ("betting", "sequential"):
        return both_sides(returns, scaled, alpha, floor, ceiling, anytime=method == "sequential"), None
    if method == "nested":
        groups = returns.reshape(-1, episodes.draws_per_seed)
        return bound_group_means(groups, scaled, alpha, floor, ceiling), None
    if method == "luck":
        return bound_lucky_means(_lucky_returns(returns, episodes), scaled, alpha, floor, ceiling), None
    if method != "auto":
        return _fixed_band(method, returns, episodes, alpha, query.threshold_spacing), None
    declared = bool(episodes.metadata.get("binary"))
    choice = choose_method(returns, scaled, alpha, floor, ceiling, declared=declared, features=episodes.luck)
    if choice.method == "luck":
        return bound_lucky_means(_lucky_returns(returns, episodes), scaled, alpha, floor, ceiling), choice.to_json()
    if choice.method == "betting":
        # All returns: bets are made one after the other, on nothing that they have seen.
        means = both_sides(returns, scaled, alpha, floor, ceiling, n_inspected=choice.pilot)
        return means, choice.to_json()
    # A band must not contain the pilot episodes that selected it.
    rest = returns[choice.pilot :]
    if choice.method == "band":
        return cdf.tail_tight(rest, alpha), choice.to_json()
    return cdf.spread_thresholds(rest, choice.points, choice.survival_alphas, choice.cdf_alphas), choice.to_json()


def _lucky_returns(returns: Floats, episodes: Episodes) -> LuckyReturns:
    """Return the returns with what was recorded at reset."""
    if episodes.luck is None:
        raise InputError("method 'luck' needs to know how each episode began; run episodes with luck=")
    return LuckyReturns(returns, episodes.luck)


def _nested_method(method: str, query: Query, n_draws: int) -> str:
    """Return the method for several draws of the noise per seed; reject what takes them for independent episodes."""
    if n_draws == 1:
        raise InputError("method 'nested' needs several draws of the noise per seed; run episodes with draws_per_seed=")
    if method not in ("auto", "nested"):
        raise InputError(
            f"method {method!r} takes episodes for independent, and these have {n_draws} draws of the noise for each "
            "seed; omit the method"
        )
    if query.wants_distribution:
        raise InputError(
            "draws_per_seed= gives bounds on means alone; leave thresholds=, quantiles= and cvars= out, or run one "
            "episode per seed"
        )
    return "nested"


def _paper_method(setup: Mapping[str, Any]) -> str:
    """Return the method by which the paper certifies a task; of the return with a discount it says nothing."""
    if setup.get("gamma") is not None:
        return "band"
    if setup.get("binary"):
        return "binary"
    if setup.get("task") in PER_THRESHOLD_TASKS:
        return "per-threshold"
    return "dkw"


def _band_method(method: str | None) -> str:
    """Return a method that makes a band, which all but means need; reject those that may bet."""
    if method in PLANNED:
        raise InputError(
            f"probabilities, quantiles and CVaR need a band, and the method {method!r} bets; use method='band'"
        )
    return "band" if method is None else method


def _fixed_band(method: str, returns: Floats, episodes: Episodes, alpha: float, spacing: float) -> Band:
    floor = episodes.floor
    match method:
        case "band":
            return cdf.tail_tight(returns, alpha)
        case "dkw":
            return cdf.dkw(returns, alpha)
        case "per-threshold":
            top = _known_ceiling(episodes, method)
            return cdf.per_threshold(returns, _spaced_thresholds(floor, top, spacing), alpha, floor, top)
        case "binary":
            return cdf.binary(returns, floor, _known_ceiling(episodes, method), alpha)
    raise InputError(f"method must be one of {', '.join(METHODS)}, got {method!r}")


def _as_columns(bounds: Sequence[Bounds]) -> dict[str, list[float | None]]:
    lower: list[float | None] = []
    upper: list[float | None] = []
    for one in bounds:
        lower.append(one.lower)
        upper.append(one.upper)
    return {"lower": lower, "upper": upper}


def _spaced_thresholds(floor: float, ceiling: float, spacing: float) -> Floats:
    """Return floor, floor + spacing, ... and the ceiling last."""
    count = (ceiling - floor) / spacing
    if count > MOST_THRESHOLDS:
        raise InputError(
            f"a threshold spacing of {spacing:g} from {floor:g} to {ceiling:g} makes {count:.0f} thresholds, "
            f"expected at most {MOST_THRESHOLDS}; use a larger spacing or the method 'band'"
        )
    # No threshold a rounding error below the ceiling.
    below = np.arange(max(1, math.ceil(count - 1e-9)))
    return np.append(floor + spacing * below, ceiling)


def _known_ceiling(episodes: Episodes, method: str) -> float:
    if episodes.ceiling is None:
        raise InputError(f"the method {method!r} needs a known ceiling of the return, got none; use 'band'")
    return episodes.ceiling
