"""Which certificate answers which question: the attacker of a whole episode, of a shared budget, or of every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.certificate import ThreatCertificate
from surefoot.proof.episode_budget import Certificate, Limits, certify
from surefoot.proof.norms import Norm
from surefoot.proof.shared_budget import certify_shared
from surefoot.proof.step_budget import certify_per_step

Answer = Certificate | ThreatCertificate


def answer(
    episodes: Episodes,
    budgets: Sequence[float],
    confidence: float,
    method: str | None,
    step: float,
    shared_by: int | None,
    per_step: bool,
    thresholds: Sequence[float] = (),
    quantiles: Sequence[float] = (),
    norm: Norm | None = None,
) -> Answer:
    """Certify against the attacker that was asked for; ``norm`` is that of the budgets, by default l2."""
    if norm is not None:
        rest = (confidence, method, step, shared_by, per_step, thresholds, quantiles)
        made = answer(episodes, norm.in_l2(budgets), *rest)
        return replace(made, asked={**made.asked, "norm": norm.to_json(budgets)})
    if (thresholds or quantiles) and (per_step or shared_by is not None):
        raise InputError(
            "probabilities and quantiles are for whole episodes; leave --shared-episodes and --per-step out"
        )
    if per_step:
        if shared_by is not None or method is not None:
            raise InputError("a budget per step has a method of its own and is not shared; give --per-step alone")
        return certify_per_step(episodes, budgets, confidence)
    if shared_by is not None:
        return certify_shared(episodes, budgets, shared_by, confidence, method)
    if thresholds or quantiles:
        return with_law(certify(episodes, budgets, confidence, _for_laws(method), step), thresholds, quantiles)
    return certify(episodes, budgets, confidence, method, step)


def _for_laws(method: str | None) -> str:
    """Return a method that makes a band, which probabilities and quantiles need; refuse those that may bet."""
    if method in ("auto", "betting", "sequential"):
        raise InputError(f"probabilities and quantiles need a band, and the method {method!r} bets; use --method band")
    return "band" if method is None else method


def with_law(certificate: Certificate, thresholds: Sequence[float], quantiles: Sequence[float]) -> Certificate:
    """Return the certificate with limits of P(return >= threshold) and of quantiles, at each of its budgets.

    They follow from the band that the means come from: all hold together, without further risk.
    """
    asked: dict[str, Any] = {}
    if thresholds:
        asked["probabilities"] = [
            {"at_least": float(x), **_columns([certificate.probability(x, b) for b in certificate.budgets])}
            for x in thresholds
        ]
    if quantiles:
        asked["quantiles"] = [
            {"q": float(q), **_columns([certificate.quantile(q, b) for b in certificate.budgets])} for q in quantiles
        ]
    return replace(certificate, asked=asked)


def _columns(limits: Sequence[Limits]) -> dict[str, list[float | None]]:
    return {"lower": [limit.lower for limit in limits], "upper": [limit.upper for limit in limits]}
