"""An attacked mean below its certified bound means a bug, ours or theirs: find it and say so loudly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.episodes import Episodes
from surefoot.proof.bounds.bands import tail_tight
from surefoot.proof.bounds.from_band import mean_upper

# How rarely an honest pair of certificate and attack may be reported, apart from the certificate's own risk.
FALSE_ALARM = 1e-6


@dataclass(frozen=True)
class Contradiction:
    """An attacked mean whose upper confidence limit lies below the certified lower bound at its budget."""

    budget: float
    certified: float
    attacked: float
    attacked_upper: float

    def __str__(self) -> str:
        return (
            f"at budget {self.budget:g} the attacked mean is {self.attacked:.3f}, with confidence 1 - {FALSE_ALARM:g} "
            f"at most {self.attacked_upper:.3f}, but {self.certified:.3f} was certified"
        )


def contradictions(certificate: Mapping[str, Any], attacked: Sequence[Episodes]) -> list[Contradiction]:
    """Compare attacked records with a certificate (its JSON) of the same agent, task and sigma; others are passed over.

    The numbers are taken as they were published. Between the certificate's budgets the next larger one counts, for a
    bound at a larger budget holds at a smaller one. The attacked mean's upper limit comes from a simultaneous band over
    its returns and needs their ceiling.
    """
    found = []
    for record in attacked:
        certified = _certified(certificate, float(record.facts["budget"]))
        if record.ceiling is None or certified is None or not same_setup(certificate, record.facts, record.sigma):
            continue
        upper = float(mean_upper(tail_tight(record.returns, FALSE_ALARM), record.ceiling, 0.0))
        if upper < certified:
            found.append(Contradiction(record.facts["budget"], certified, float(record.returns.mean()), upper))
    return found


def same_setup(certificate: Mapping[str, Any], facts: Mapping[str, Any], sigma: float) -> bool:
    """Tell whether both are about the same agent in the same task behind the same noise."""
    keys = ("task", "agent_sha256") if certificate.get("agent_sha256") else ("task", "agent")
    noise = certificate.get("sigma") == sigma and certificate.get("features") == facts.get("features")
    return noise and all(certificate.get(key) == facts.get(key) for key in keys)


def _certified(certificate: Mapping[str, Any], budget: float) -> float | None:
    pairs = sorted(zip(certificate["budgets"], certificate["lower"], strict=True))
    return next((float(lower) for listed, lower in pairs if listed >= budget - 1e-12), None)
