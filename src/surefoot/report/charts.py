"""Runs as the lines and marks of one chart: every bound a line, every estimate a mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.proof.certificate import Certificate
from surefoot.proof.contradiction import inconsistencies
from surefoot.proof.rounding import decimals, format_budget
from surefoot.proof.wording import digits_for
from surefoot.report.curves import Curve, drawn, grid_of, line, other_methods, own_curve, perfect_curve
from surefoot.report.finished_run import FinishedRun
from surefoot.report.labels import colors, labels

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
        base = {"role": role, "label": lead + name, "colour": color, "prefix": "at least", "suffix": "", "on": False}
        return {**base, **line(shown, stated, grid, side), **options}

    entries = [entry("lower", f"certified lower bound{how}", curve, on=True)]
    if curve.upper is not None:
        entries.append(entry("upper", "certified upper bound", curve, "upper", prefix="at most", on=not several))
    entries += [
        entry("method", f"the method {method} on the same episodes", other, suffix="(for comparison)")
        for method, other in other_methods(run, grid).items()
    ]
    if perfect is not None:
        most = f"best achievable bound with {stated.n_episodes:,} episodes"
        entries.append(entry("perfect", most, perfect, prefix="at most", on=not several))
    return [*entries, _estimate(stated, lead, color, grid)]


def _estimate(stated: Certificate, lead: str, color: int, grid: list[float]) -> dict[str, Any]:
    digits = digits_for(stated)
    error = "" if stated.estimate_sem is None else f" ± {stated.estimate_sem:.{digits}f}"
    return {
        "role": "estimate",
        "label": f"{lead}mean without attack (an estimate)",
        "colour": color,
        "on": True,
        "prefix": "about",
        "suffix": "(estimate, not a bound)",
        "y": _at_zero(stated.estimate, grid),
        "error": _at_zero(1.96 * (stated.estimate_sem or 0.0), grid),
        "text": [f"{stated.estimate:.{digits}f}{error}" if index == 0 else None for index in range(len(grid))],
    }


def _of_attack(run: FinishedRun, label: str, color: int, grid: list[float]) -> dict[str, Any]:
    attack = run.attack
    assert attack is not None
    digits = digits_of(run)
    at = {budget: number for number, budget in enumerate(attack["budgets"])}
    known = [at.get(budget) for budget in grid]
    mean = [None if number is None else float(attack["curve"][number]) for number in known]
    sem = [None if number is None else float(attack["curve_sem"][number]) for number in known]
    return {
        "role": "attack",
        "label": f"{label}: mean under attack (measured)",
        "colour": color,
        "on": True,
        "prefix": "about",
        "suffix": "(measured, not a bound)",
        "y": drawn(mean),
        "error": drawn([None if error is None else 1.96 * error for error in sem]),
        "text": [
            None if value is None else f"{value:.{digits}f} ± {error:.{digits}f}"
            for value, error in zip(mean, sem, strict=True)
        ],
    }


def _baselines(group: Group, grid: list[float]) -> list[dict[str, Any]]:
    """Return the open-loop baseline, once for each that is known."""
    known = {(run.baseline.mean, run.baseline.what): digits_of(run) for run in group.runs if run.baseline is not None}
    return [
        {
            "role": "blind",
            "label": f"open-loop baseline ({what})" if what else "open-loop baseline",
            "colour": 0,
            "on": True,
            "prefix": "about",
            "suffix": "(estimate)",
            "y": drawn([mean] * len(grid)),
            "text": [f"{mean:.{digits}f}"] * len(grid),
            "fine": True,
            "marks": [],
        }
        for (mean, what), digits in known.items()
    ]


def _at_zero(value: float, grid: list[float]) -> list[float | None]:
    return [value, *[None] * (len(grid) - 1)]


def _start(group: Group, grid: list[float]) -> int:
    """Return the initial budget of the slider: at the headline's budget."""
    for run, _, _ in group.certified:
        assert run.certificate is not None
        return grid.index(run.certificate.budgets[run.headline_index])
    (run, _, _), *_ = group.attacked
    assert run.attack is not None
    return grid.index(run.attack["budgets"][-1])


def _range(group: Group, series: Sequence[dict[str, Any]]) -> list[float]:
    """Return the least and the largest return to draw: floor and ceiling where they are known."""
    values = [value for entry in series for value in entry["y"] if value is not None]
    limits = [run.certificate for run, _, _ in group.certified if run.certificate is not None]
    values += [stated.floor for stated in limits] + [s.ceiling for s in limits if s.ceiling is not None]
    values += [float(run.setup[key]) for run in group.runs for key in ("floor", "ceiling")
               if isinstance(run.setup.get(key), int | float)]  # fmt: skip
    low, high = min(values), max(values)
    return [low, high if high > low else low + 1]
