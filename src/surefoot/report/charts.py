"""Runs as the lines and marks of one chart: every bound a line, every estimate a mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.proof.certificate import Certificate
from surefoot.proof.inconsistency import inconsistencies
from surefoot.proof.rounding import decimals, exact, format_budget, format_estimate
from surefoot.report.certificate_text import digits_for
from surefoot.report.curves import Curve, drawn, grid_of, line, other_methods, own_curve, perfect_curve
from surefoot.report.finished_run import FinishedRun

HUES = {"method": 3, "perfect": 5}
ATTACK_SCOPE = "total l2 norm of the perturbations of one episode"  # what the budget of a measured attack bounds


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one task, to be shown on the same axes, with a label and a color for each."""

    title: str
    runs: Sequence[FinishedRun]
    labels: Sequence[str]
    colors: Sequence[int]

    @property
    def certified(self) -> list[tuple[FinishedRun, str, int]]:
        """The certificates, with label and color."""
        return [entry for entry in self._entries() if entry[0].certificate is not None]

    @property
    def attacked(self) -> list[tuple[FinishedRun, str, int]]:
        """The attacks, with label and color."""
        return [entry for entry in self._entries() if entry[0].attack is not None]

    def _entries(self) -> list[tuple[FinishedRun, str, int]]:
        return list(zip(self.runs, self.labels, self.colors, strict=True))


def grouped(runs: Sequence[FinishedRun]) -> list[Group]:
    """Put runs of one task together, in the order they came."""
    groups = []
    for axes in dict.fromkeys(_axes(run) for run in runs):
        members = [run for run in runs if _axes(run) == axes]
        title = str(axes[0] or "returns given") + "".join(f" ({what})" for what in axes[1:] if what)
        groups.append(Group(title, members, labels(members), colors(members)))
    return groups


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


def _axes(run: FinishedRun) -> tuple[Any, ...]:
    """Return what runs must have in common to be drawn on the same axes: task, what the budget is for, discount."""
    if run.certificate is None:
        return run.identity.get("task"), None, None
    discount = run.certificate.metadata.get("discount")
    counted = None if discount is None else f"discount {discount}"
    return run.identity.get("task"), run.certificate.kind, counted


def chart_data(group: Group) -> dict[str, Any]:
    """Return a chart: its budgets, its range, and everything that can be switched on in it."""
    grid = grid_of(group.runs)
    several = len(group.certified) > 1
    series: list[dict[str, Any]] = []
    for run, label, color in group.certified:
        series += _of_certificate(run, label if several else "", color, grid, several)
    for run, label, color in group.attacked:
        series.append(_of_attack(run, label, color, grid))
    series += _baselines(group, grid)
    for number, entry in enumerate(series):
        entry["id"] = f"s{number}"
    return {
        "title": group.title,
        "budget": _budget_words(group),
        "budgets": grid,
        "texts": [format_budget(budget) for budget in grid],
        "start": _start(group, grid),
        "range": _range(group, series),
        "series": series,
    }


def _budget_words(group: Group) -> str:
    """Return what the budgets of a chart bound; its certificates are all of one kind, its budgets are in l2."""
    scopes = [run.certificate.scope for run in group.runs if run.certificate is not None]
    return scopes[0].format(norm="l2") if scopes else ATTACK_SCOPE


def inconsistent(group: Group) -> list[str]:
    """Return the attacks whose mean is below a certified bound of the same setup: then one of the two is wrong."""
    found = []
    for certified, name, _ in group.certified:
        for attacked, label, _ in group.attacked:
            if certified.certificate is not None and certified.matches(attacked):
                found += [
                    f"{label}, against {name}: {clash}"
                    for clash in inconsistencies(certified.certificate, attacked.records)
                ]
    return found


def digits_of(run: FinishedRun) -> int:
    """Return how many decimals the numbers of a run are shown with."""
    if run.certificate is not None:
        return digits_for(run.certificate)
    assert run.attack is not None
    floor, ceiling = run.setup.get("floor"), run.setup.get("ceiling")
    known = isinstance(floor, int | float)
    return decimals(float(floor) if known and floor is not None else 0.0, ceiling, max(run.attack["curve"]))


def _of_certificate(run: FinishedRun, label: str, color: int, grid: list[float], several: bool) -> list[dict[str, Any]]:
    stated = run.certificate
    assert stated is not None
    lead = f"{label}: " if label else ""
    how = "" if several else f" ({stated.method})"
    curve, perfect = own_curve(run, grid), perfect_curve(run, grid)

    def entry(role: str, name: str, shown: Curve, side: str = "lower", **options: Any) -> dict[str, Any]:
        options = {"prefix": "at least", "suffix": "", "on": False, **line(shown, stated, grid, side), **options}
        # Where one certificate is alone, other colors are free for what it is compared with.
        hue = color if several else HUES.get(role, color)
        return _series(role, lead + name, hue, **options)

    entries = [entry("lower", f"certified lower bound{how}", curve, on=True, short=label or "lower bound")]
    if curve.upper is not None:
        entries.append(
            entry(
                "upper", "certified upper bound", curve, "upper", prefix="at most", on=not several, short="upper bound"
            )
        )
    entries += [
        entry("method", f"method {method} on the same episodes", other, suffix="(for comparison)", short=method)
        for method, other in other_methods(run, grid).items()
    ]
    if perfect is not None:
        most = f"best achievable bound with {stated.n_episodes:,} episodes"
        entries.append(entry("perfect", most, perfect, prefix="at most", on=not several, short="best achievable"))
    return [*entries, _estimate(stated, lead, color, grid)]


def _series(role: str, label: str, color: int, suffix: str, **options: Any) -> dict[str, Any]:
    """Return a line or marks as the page's data; without other options it is an estimate, and shown."""
    return {"role": role, "label": label, "colour": color, "on": True, "prefix": "about", "suffix": suffix, **options}


def _estimate(stated: Certificate, lead: str, color: int, grid: list[float]) -> dict[str, Any]:
    text = format_estimate(stated.estimate, stated.estimate_sem, digits_for(stated))
    beyond = [None] * (len(grid) - 1)
    return _series(
        "estimate",
        f"{lead}mean without attack (an estimate)",
        color,
        "(estimate, not a bound)",
        y=[stated.estimate, *beyond],
        error=[1.96 * (stated.estimate_sem or 0.0), *beyond],
        text=[text, *beyond],
    )


def _of_attack(run: FinishedRun, label: str, color: int, grid: list[float]) -> dict[str, Any]:
    attack, digits = run.attack, digits_of(run)
    assert attack is not None
    measured = {
        budget: (float(mean), float(sem))
        for budget, mean, sem in zip(attack["budgets"], attack["curve"], attack["curve_sem"], strict=True)
    }
    known = [measured.get(budget) for budget in grid]
    return _series(
        "attack",
        f"{label}: mean under attack (measured)",
        color,
        "(measured, not a bound)",
        y=drawn([None if one is None else one[0] for one in known]),
        error=drawn([None if one is None else 1.96 * one[1] for one in known]),
        text=[None if one is None else format_estimate(*one, digits) for one in known],
    )


def _baselines(group: Group, grid: list[float]) -> list[dict[str, Any]]:
    """Return the open-loop baseline, once for each that is known."""
    known = {(run.baseline.mean, run.baseline.what): digits_of(run) for run in group.runs if run.baseline is not None}
    return [
        _series(
            "blind",
            f"open-loop baseline ({what})" if len(known) > 1 else "open-loop baseline",
            0,
            "(estimate)",
            y=drawn([mean] * len(grid)),
            text=[f"{mean:.{digits}f}"] * len(grid),
            fine=True,
            marks=[],
            short="open-loop baseline",
        )
        for (mean, what), digits in known.items()
    ]


def _start(group: Group, grid: list[float]) -> int:
    """Return the initial budget of the slider: at the headline's budget."""
    for run, _, _ in group.certified:
        assert run.certificate is not None
        return grid.index(run.certificate.budgets[run.headline_index])
    (run, _, _), *_ = group.attacked
    assert run.attack is not None
    return grid.index(run.attack["budgets"][-1])


def _range(group: Group, series: Sequence[dict[str, Any]]) -> list[float]:
    """Return the least and the largest return to draw: floor and ceiling where they are known.

    Measured means alone would be a dot in a corner where they are far from both, and are then drawn larger.
    """
    values = [value for entry in series for value in entry["y"] if value is not None]
    limits = [run.certificate for run, _, _ in group.certified if run.certificate is not None]
    known = [stated.floor for stated in limits] + [s.ceiling for s in limits if s.ceiling is not None]
    known += [float(run.setup[key]) for run in group.runs for key in ("floor", "ceiling")
              if isinstance(run.setup.get(key), int | float)]  # fmt: skip
    low, high = min(values + known), max(values + known)
    room = max((error or 0.0 for entry in series for error in entry.get("error") or ()), default=0.0)
    span = max(values) - min(values) + 2 * room
    if not limits and 0 < span < (high - low) / 5:
        return [min(values) - room - span / 10, max(values) + room + span / 10]
    return [low, high if high > low else low + 1]
