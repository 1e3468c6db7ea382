"""An attacked mean below its certified bound means a bug, in the proof or in the attack: find it and report it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surefoot.episodes import Episodes
from surefoot.proof.bounds.bands import tail_tight
from surefoot.proof.bounds.from_band import mean_upper
from surefoot.proof.certificate import Certificate
from surefoot.proof.planning.strategies import worst_means

# Probability of reporting a correct pair of certificate and attack, apart from the certificate's own alpha.
INCONSISTENCY_ALPHA = 1e-6


@dataclass(frozen=True)
class Inconsistency:
    """An attacked mean whose upper confidence bound is below the certified lower bound at its budget."""

    budget: float
    certified: float
    attacked: float
    attacked_upper: float

    def __str__(self) -> str:
        return (
            f"at budget {self.budget:g} the attacked mean is {self.attacked:.3f}, "
            f"with confidence 1 - {INCONSISTENCY_ALPHA:g} "
            f"at most {self.attacked_upper:.3f}, but {self.certified:.3f} was certified"
        )


def inconsistencies(certificate: Certificate, attacked: Sequence[Episodes]) -> list[Inconsistency]:
    """Compare attacked episodes with a certificate of the same agent, task and sigma; others are skipped.

    Between the certificate's listed budgets the next larger one counts, because a bound at a larger budget also holds
    at a smaller one. The attacked mean's upper bound needs their ceiling.
    """
    found = []
    for episodes in attacked:
        if episodes.ceiling is None or not certificate.is_about(episodes.metadata, episodes.sigma):
            continue
        budget = float(episodes.metadata["budget"])
        certified = _certified_at(certificate, budget)
        # An upper bound of the mean is above the mean: most attacks need none.
        if certified is None or episodes.returns.mean() >= certified:
            continue
        upper = _mean_at_most(episodes)
        if upper < certified:
            found.append(Inconsistency(budget, certified, float(episodes.returns.mean()), upper))
    return found


def _mean_at_most(episodes: Episodes) -> float:
    """Return an upper bound of the mean return, at confidence 1 - INCONSISTENCY_ALPHA.

    The lower of two, which have half of alpha each: a bet on the mean (T3 at budget 0, on minus the returns), and a
    band over all returns, which is better for about a hundred episodes or fewer.
    """
    assert episodes.ceiling is not None
    alpha = INCONSISTENCY_ALPHA / 2
    # A lower bound of the mean of minus the returns is minus an upper bound of theirs.
    mirror = worst_means(-episodes.returns, [0.0], alpha, -episodes.ceiling, -episodes.floor)
    by_bet = -float(mirror.at(0.0))
    by_band = float(mean_upper(tail_tight(episodes.returns, alpha), episodes.ceiling, 0.0))
    return min(by_bet, by_band)


def _certified_at(certificate: Certificate, budget: float) -> float | None:
    """Return the lower bound at the smallest listed budget that includes this one; None if there is none."""
    # An attack's budget may differ from the listed one by a rounding error.
    larger = [index for index, listed in enumerate(certificate.budgets) if listed >= budget - 1e-12]
    if not larger:
        return None
    return float(certificate.lower[min(larger, key=lambda index: float(certificate.budgets[index]))])
