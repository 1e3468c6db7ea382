"""Names and colors that distinguish the runs of one page."""

from __future__ import annotations

from collections.abc import Sequence

from surefoot.proof.rounding import exact
from surefoot.report.finished_run import FinishedRun


def labels(runs: Sequence[FinishedRun]) -> list[str]:
    """Name each run by its agent and, where that is not enough, by what distinguishes it from the others."""
    folders = [run.name for run in runs]
    agents = [str(run.identity.get("agent") or folder) for run, folder in zip(runs, folders, strict=True)]
    parts = [_parts(run) for run in runs]
    named = [part["attack"] + agent for agent, part in zip(agents, parts, strict=True)]
    for key in ("sigma", "method", "episodes", "confidence", "seed"):
        twins = {name for name in named if len({p[key] for n, p in zip(named, parts, strict=True) if n == name}) > 1}
        named = [f"{name}, {p[key]}" if name in twins else name for name, p in zip(named, parts, strict=True)]
    twins = {name for name in named if named.count(name) > 1}
    return [f"{name} [{folder}]" if name in twins else name for name, folder in zip(named, folders, strict=True)]


def colors(runs: Sequence[FinishedRun]) -> list[int]:
    """Give each certificate a color, and each attack the color of the agent that it attacks."""
    given: list[int] = []
    for number, run in enumerate(runs):
        same = (given[other] for other in range(number) if _attack_on(runs[other], run))
        given.append(next(same, max(given, default=-1) + 1))
    return given


def _attack_on(one: FinishedRun, other: FinishedRun) -> bool:
    both_certify = one.certificate is not None and other.certificate is not None
    return one.matches(other) and not both_certify


def _parts(run: FinishedRun) -> dict[str, str]:
    stated, seed = run.certificate, run.identity.get("seed")
    return {
        "sigma": f"sigma {exact(run.sigma)}",
        "method": "" if stated is None else stated.method,
        "episodes": "" if stated is None else f"{stated.n_episodes:,} episodes",
        "confidence": "" if stated is None else f"confidence {exact(stated.confidence)}",
        "seed": "" if stated is None or seed is None else f"seed {seed}",
        "attack": "" if run.attack is None else f"attack {run.attack.get('method')} on ",
    }
