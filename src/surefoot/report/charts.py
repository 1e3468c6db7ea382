"""Runs as the lines and marks of one chart: every bound is a line, every estimate a mark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.proof.inconsistency import inconsistencies
from surefoot.proof.rounding import format_budget, format_estimate, format_exact
from surefoot.report.curves import BoundCurve, grid_of, line, own_curve, perfect_curve, round_for_drawing
from surefoot.report.finished_run import FinishedRun, scope_words
from surefoot.report.offsets import unit_of_budgets

PERFECT_COLOR = 5  # of the best achievable bound next to a single certificate
_NORMAL_95 = 1.96  # standard errors of an error bar

Series = dict[str, Any]


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Entry:
    """A run with its label and its color."""

    run: FinishedRun
    label: str
    color: int


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one task, to be shown on the same axes."""

    title: str
    entries: Sequence[Entry]

    @property
    def runs(self) -> list[FinishedRun]:
        """All runs."""
        return [entry.run for entry in self.entries]

    @property
    def certified(self) -> list[Entry]:
        """The certificates."""
        return [entry for entry in self.entries if entry.run.certificate is not None]

    @property
    def attacked(self) -> list[Entry]:
        """The attacks."""
        return [entry for entry in self.entries if entry.run.attack is not None]


def group_runs(runs: Sequence[FinishedRun]) -> list[Group]:
    """Put runs of one task together, in the order they came."""
    members: dict[tuple[Any, ...], list[FinishedRun]] = {}
    for run in runs:
        members.setdefault(_axes_of(run), []).append(run)
    groups = []
    for (task, *details), same in members.items():
        title = str(task or "returns given")
        for detail in filter(None, details):
            title += f" ({detail})"
        entries = []
        for run, label, color in zip(same, label_runs(same), color_runs(same), strict=True):
            entries.append(Entry(run, label, color))
        groups.append(Group(title, entries))
    return groups


def _axes_of(run: FinishedRun) -> tuple[Any, ...]:
    """Return what runs must have in common to be drawn on the same axes: task, what the budget is for, discount."""
    task = run.identity.get("task")
    if run.certificate is None:
        return task, run.identity.get("scope"), None
    discount = run.certificate.metadata.get("gamma")
    if discount is None:
        return task, run.certificate.kind, None
    return task, run.certificate.kind, f"discount {discount}"


def label_runs(runs: Sequence[FinishedRun]) -> list[str]:
    """Name each run by its agent and, where that is not enough, by what distinguishes it from the others."""
    details = list(map(_details_of, runs))
    names = []
    for run in runs:
        name = str(run.identity.get("agent") or run.name)
        if run.attack is not None:
            name = f"attack {run.attack.get('method')} on {name}"
        names.append(name)
    for key in ("sigma", "method", "episodes", "confidence", "seed"):
        # What runs of one name have of this kind; where it differs, it is added to all of them.
        found: dict[str, set[str]] = {}
        for name, detail in zip(names, details, strict=True):
            found.setdefault(name, set()).add(detail[key])
        for number, name in enumerate(names):
            if len(found[name]) > 1:
                names[number] = f"{name}, {details[number][key]}"
    # Runs that nothing else tells apart have at least directories of different names.
    repeated = {name for name in names if names.count(name) > 1}
    for number, name in enumerate(names):
        if name in repeated:
            names[number] = f"{name} [{runs[number].name}]"
    return names


def _details_of(run: FinishedRun) -> dict[str, str]:
    """Return what may distinguish runs of one agent; of attacks only sigma does."""
    details = {"sigma": run.noise, "method": "", "episodes": "", "confidence": "", "seed": ""}
    if run.certificate is not None:
        details["method"] = run.certificate.method
        details["episodes"] = f"{run.certificate.n_episodes:,} episodes"
        details["confidence"] = f"confidence {format_exact(run.certificate.confidence)}"
        if run.identity.get("seed") is not None:
            details["seed"] = f"seed {run.identity['seed']}"
    return details


def color_runs(runs: Sequence[FinishedRun]) -> list[int]:
    """Give each certificate a color, and each attack the color of the agent that it attacks."""
    given: list[int] = []
    for run in runs:
        color = max(given, default=-1) + 1
        for earlier, its_color in zip(runs, given, strict=False):
            both_certify = earlier.certificate is not None and run.certificate is not None
            if earlier.matches(run) and not both_certify:
                color = its_color
                break
        given.append(color)
    return given


def find_inconsistencies(group: Group) -> list[str]:
    """Return the attacks whose mean is below a certified bound of the same setup: then one of the two is wrong."""
    found = []
    for certified in group.certified:
        for attacked in group.attacked:
            if certified.run.matches(attacked.run):
                for clash in inconsistencies(certified.run.proved, attacked.run.records):
                    found.append(f"{attacked.label}, against {certified.label}: {clash}")
    return found


# --- a chart ----------------------------------------------------------------------------------------------------------


def chart_data(group: Group) -> dict[str, Any]:
    """Return a chart: its budgets, its range, and everything that can be switched on in it."""
    grid = grid_of(group.runs)
    alone = len(group.certified) == 1
    series: list[Series] = []
    for entry in group.certified:
        series += _certificate_series(entry, grid, alone=alone)
    for entry in group.attacked:
        series.append(_attack_series(entry, grid))
    series += _baseline_series(group, grid)
    for number, one in enumerate(series):
        one["id"] = f"s{number}"
    first = group.runs[0]
    scope = scope_words(first.identity.get("scope"), first.channel)
    if group.certified:
        # All certificates of a group are of one kind, and a chart's budgets are in l2.
        scope = group.certified[0].run.proved.scope.format(norm="l2")
        units = {unit_of_budgets(entry.run.proved.metadata) for entry in group.certified}
        if len(units) == 1 and "" not in units:
            scope += f", in {units.pop()}"
    return {
        "title": group.title,
        "budget": scope,
        "budgets": grid,
        "texts": list(map(format_budget, grid)),
        "start": _initial_budget(group, grid),
        "range": _drawn_range(group, series),
        "series": series,
    }


def _certificate_series(entry: Entry, grid: list[float], *, alone: bool) -> list[Series]:
    """Return the lines of a certificate: its bounds and the best achievable bound; and its estimate."""
    run = entry.run
    certificate = run.proved
    lead = f"{entry.label}: "
    how = ""
    short = entry.label
    perfect_color = entry.color
    if alone:
        lead = ""
        how = f" ({certificate.method})"
        short = "lower bound"
        perfect_color = PERFECT_COLOR

    def add(role: str, name: str, curve: BoundCurve, side: str = "lower", **options: Any) -> None:
        color = perfect_color if role == "perfect" else entry.color
        options = {"prefix": "at least", "suffix": "", "on": False, **line(curve, certificate, grid, side), **options}
        series.append(_make_series(role, lead + name, color, **options))

    series: list[Series] = []
    curve = own_curve(run, grid)
    add("lower", f"certified lower bound{how}", curve, on=True, short=short)
    if curve.upper is not None:
        add("upper", "certified upper bound", curve, "upper", prefix="at most", on=alone, short="upper bound")
    perfect = perfect_curve(run, grid)
    if perfect is not None:
        most = f"best achievable bound with {certificate.n_episodes:,} episodes"
        add("perfect", most, perfect, prefix="at most", on=alone, short="best achievable")

    # The estimate is about budget 0, the first of the grid.
    beyond = [None] * (len(grid) - 1)
    estimate = _make_series(
        "estimate",
        f"{lead}mean without attack (an estimate)",
        entry.color,
        "(estimate, not a bound)",
        y=[certificate.estimate, *beyond],
        error=[_NORMAL_95 * (certificate.estimate_sem or 0.0), *beyond],
        text=[format_estimate(certificate.estimate, certificate.estimate_sem, run.digits), *beyond],
    )
    return [*series, estimate]


def _make_series(role: str, label: str, color: int, suffix: str, **options: Any) -> Series:
    """Return a line or marks as the page's data; without other options it is an estimate, and shown."""
    return {"role": role, "label": label, "colour": color, "on": True, "prefix": "about", "suffix": suffix, **options}


def _attack_series(entry: Entry, grid: list[float]) -> Series:
    attack = entry.run.measured
    index_of = {budget: index for index, budget in enumerate(attack["budgets"])}
    means: list[float | None] = []
    errors: list[float | None] = []
    texts: list[str | None] = []
    for budget in grid:
        if budget not in index_of:
            means.append(None)
            errors.append(None)
            texts.append(None)
            continue
        mean = float(attack["curve"][index_of[budget]])
        sem = float(attack["curve_sem"][index_of[budget]])
        means.append(mean)
        errors.append(_NORMAL_95 * sem)
        texts.append(format_estimate(mean, sem, entry.run.digits))
    label = f"{entry.label}: mean under attack (measured)"
    suffix = "(measured, not a bound)"
    return _make_series(
        "attack", label, entry.color, suffix, y=round_for_drawing(means), error=round_for_drawing(errors), text=texts
    )


def _baseline_series(group: Group, grid: list[float]) -> list[Series]:
    """Return the open-loop baseline, once for each that is known."""
    known = {}
    for run in group.runs:
        if run.baseline is not None:
            known[run.baseline.mean, run.baseline.what] = run.digits
    series = []
    for (mean, what), digits in known.items():
        label = "open-loop baseline"
        if len(known) > 1:
            label += f" ({what})"
        series.append(
            _make_series(
                "baseline",
                label,
                0,
                "(estimate)",
                y=round_for_drawing([mean] * len(grid)),
                text=[f"{mean:.{digits}f}"] * len(grid),
                fine=True,
                marks=[],
                short="open-loop baseline",
            )
        )
    return series


def _initial_budget(group: Group, grid: list[float]) -> int:
    """Return where the slider begins: at the headline's budget, or at an attack's last."""
    if group.certified:
        run = group.certified[0].run
        return grid.index(run.proved.budgets[run.headline_index])
    return grid.index(group.attacked[0].run.measured["budgets"][-1])


def _drawn_range(group: Group, series: Sequence[Series]) -> list[float]:
    """Return the least and the largest return to draw: floor and ceiling where they are known.

    Measured means alone would be a dot in a corner where they are far from both, and are then drawn larger.
    """
    values: list[float] = []
    errors: list[float] = []
    for one in series:
        for value in one["y"]:
            # None is a gap of the line, 0 a value of it.
            if value is not None:
                values.append(value)
        errors += filter(None, one.get("error", ()))
    limits = []
    for entry in group.certified:
        limits += [entry.run.proved.floor, entry.run.proved.ceiling]
    for run in group.runs:
        limits += [run.setup.get("floor"), run.setup.get("ceiling")]
    # A setup is a file of others: limits that are no numbers are left out, as unknown ones are.
    known = [float(limit) for limit in limits if isinstance(limit, int | float)]
    low = min(values + known)
    high = max(values + known)
    room = max(errors, default=0.0)
    span = max(values) - min(values) + 2 * room
    if not group.certified and 0 < span < (high - low) / 5:
        return [min(values) - room - span / 10, max(values) + room + span / 10]
    # Where all returns are equal, the axis still needs a length.
    if low == high:
        high = low + 1
    return [low, high]
