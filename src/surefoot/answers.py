"""Which certificate answers which question: the attacker of a whole episode, of a shared budget, or of every step."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.certify import Certificate, certify
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.per_step import certify_per_step
from surefoot.shared import certify_shared
from surefoot.threats import ThreatCertificate

Answer = Certificate | ThreatCertificate


def answer(
    episodes: Episodes,
    budgets: Sequence[float],
    confidence: float,
    method: str | None,
    step: float,
    shared_by: int | None,
    per_step: bool,
) -> Answer:
    """Certify against the attacker that was asked for."""
    if per_step:
        if shared_by is not None or method is not None:
            raise InputError("a budget per step has a method of its own and is not shared; give --per-step alone")
        return certify_per_step(episodes, budgets, confidence)
    if shared_by is not None:
        return certify_shared(episodes, budgets, shared_by, confidence, method)
    return certify(episodes, budgets, confidence, method, step)
