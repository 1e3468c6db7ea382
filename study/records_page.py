"""The tables of the records page, as Markdown, from the numbers of ``study.records``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from study.paper import UNITS
from study.tables import Table, certified, digits_of, measured
from surefoot.files import safe_name
from surefoot.play.tasks import TASKS
from surefoot.report.exports import escape_markdown

CARTPOLE = (0.2, 0.4, 0.6, 0.8, 1.0)
BUDGETS = {
    "cartpole-5": CARTPOLE,
    "cartpole-1": CARTPOLE,
    "mountain-car": (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0),
    "freeway": (0.05, 0.1, 0.2, 0.4, 0.6, 0.8),
    "pong-1r": (0.05, 0.1, 0.2, 0.4, 0.6),
    "pong-full": (0.05, 0.1, 0.2, 0.4),
}
# The best of all, whatever the agent remembers: the tasks of one game and of one return.
GAMES = {
    "cartpole": ("cartpole-5", "cartpole-1"),
    **{task: (task,) for task in ("mountain-car", "freeway", "pong-1r", "pong-full")},
}
# Like for like: agents that remember as much as the published ones.
LIKE = {"cartpole-5": "5 frames", "cartpole-1": "1 frame"}
USUAL = 10_000
# The README: a row per game, with the two budgets that it shows.
RESULTS = {
    "cartpole": ("CartPole", (0.4, 1.0)),
    "freeway": ("Freeway, hard", (0.1, 0.4)),
    "pong-1r": ("Pong, one round", (0.1, 0.4)),
    "pong-full": ("Pong, whole game", (0.1, 0.2)),
    "mountain-car": ("Mountain Car", (0.2, 0.4)),
}
Row = Mapping[str, Any]


def fill(found: Row) -> dict[str, str]:
    """Return the blocks of the page by their names."""
    blocks = {f"best-{game}": _best(found, game).markdown() for game in GAMES}
    blocks |= {f"like-{task}": _like(found, task).markdown() for task in LIKE}
    blocks |= {f"board-{game}": _board(found, game).markdown() for game in GAMES}
    return {**blocks, "attacks": _attacks(found).markdown(), "sources": _sources(found).markdown()}


def results(found: Row) -> str:
    """Return the table of the README: of every game, at two budgets, the agent that certifies most at the larger."""
    lines = []
    for game, (title, budgets) in RESULTS.items():
        task = TASKS[GAMES[game][0]]
        scoring, digits = task.scoring, digits_of(task.scoring.ceiling)
        rows = of_game(found, game)
        usual = [row for row in rows if row["n_episodes"] == USUAL] or rows
        own = max(usual, key=lambda row: _at(row, budgets[1]))
        assert task.baseline is not None
        assert scoring.ceiling is not None
        for budget in budgets:
            bound = _at(own, budget)
            shown = certified(bound, digits)
            # What a fixed sequence of actions reaches under any attack proves nothing of an agent.
            if bound > task.baseline.mean:
                shown = f"**{shown}**"
            lines.append(
                [
                    title,
                    f"{scoring.floor:g} to {scoring.ceiling:g}",
                    f"{budget:g}",
                    shown,
                    _published(found, game, budget, digits),
                    f"{task.baseline.mean:.{digits}f}",
                ]
            )
    heads = ["task", "possible returns", "attack budget", "certified here", "best published", "without looking"]
    return Table(heads, lines, left=2).markdown()


def _at(row: Row, budget: float) -> float:
    return float(row["auto"][row["budgets"].index(budget)])


def _published(found: Row, game: str, budget: float, digits: int) -> str:
    """Return the highest valid bound of others at a budget, or "none"."""
    peers = [row for row in found["peers"] if row["task"] in GAMES[game] and row.get("valid", True)]
    values = [row["bounds"][f"{budget:g}"] for row in peers if f"{budget:g}" in row["bounds"]]
    return f"{max(values):.{digits}f}" if values else "none"


def best(rows: Sequence[Row], key: str) -> list[tuple[float, Row]]:
    """Return the highest value at every budget, and the agent that has it."""
    columns = range(len(rows[0]["budgets"]))
    winners = [max(rows, key=lambda row: row[key][column]) for column in columns]
    return [(winner[key][column], winner) for column, winner in enumerate(winners)]


def of_game(found: Row, game: str, **wanted: Any) -> list[Row]:
    """Return the agents of a game with certain properties, by default those run for the usual number of episodes."""
    rows = [row for row in found["agents"] if row["task"] in GAMES[game]]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _best(found: Row, game: str) -> Table:
    """Return the best of all, next to everything that it should be compared with."""
    task, rows = GAMES[game][0], of_game(found, game)
    usual = [row for row in rows if row["n_episodes"] == USUAL] or rows
    scoring, digits = TASKS[task].scoring, digits_of(TASKS[task].scoring.ceiling)
    top = best(usual, "auto")
    lines = [_line("**best certified**, {n} episodes each", top, digits, usual, bold=True), _who(top)]
    for n in sorted({row["n_episodes"] for row in rows if row["n_episodes"] > USUAL}):
        more = best([row for row in rows if row["n_episodes"] == n], "auto")
        lines += [_line("**best certified**, {n} episodes each", more, digits, [more[0][1]], bold=True), _who(more)]
    everyone = f"all {usual[0]['rivals']} agents simultaneously, {{n}} episodes each"
    lines.append(_line(everyone, best(usual, "paid"), digits, usual))
    own = [row for row in usual if row["paper_style"]]
    lines.append(_line("our agents of the paper's kind", best(own, "auto"), digits, own))
    for other in GAMES[game]:
        lines += [_peer(row, BUDGETS[task], digits, other) for row in found["peers"] if row["task"] == other]
    baseline = TASKS[task].baseline
    assert baseline is not None
    lines.append(["open-loop baseline (estimate)", *[f"*{baseline.mean:.{digits}f}*"] * len(top)])
    most = [row["best_achievable"][column] for column, (_, row) in enumerate(top)]
    lines.append(["best achievable at the best agent's sigma", *(f"*{certified(one, digits)}*" for one in most)])
    assert scoring.ceiling is not None
    return Table([f"{UNITS[task].title.split(',')[0]}, maximum {scoring.ceiling:g}", *_heads(task)], lines)


def _like(found: Row, task: str) -> Table:
    """Return agents of one memory by the paper's method, and ours by the default one too."""
    rows = [row for row in found["agents"] if row["memory"] == LIKE[task] and row["task"] == task]
    usual = [row for row in rows if row["n_episodes"] == USUAL]
    digits = digits_of(TASKS[task].scoring.ceiling)
    lines = []
    for name, key in (("`auto`", "auto"), ("the paper's method", "paper")):
        for who, paper_style in (("**ours by PPO**", False), ("ours of the paper's kind", True)):
            group = [row for row in usual if row["paper_style"] is paper_style]
            if group:
                lines.append(_line(f"{who}, {name}", best(group, key), digits, group, bold=not paper_style))
    lines += [_peer(row, BUDGETS[task], digits, task) for row in found["peers"] if row["task"] == task]
    return Table([f"{LIKE[task]}, {USUAL:,} episodes", *_heads(task)], lines)


def polished(found: Row) -> str:
    """Return the table of the training page: agents before and after their last layer was searched."""
    usual = {row["agent"]: row for row in found["agents"] if row["n_episodes"] == USUAL}
    pairs = [(usual[row["training"]["init_from"]], row) for row in usual.values() if "init_from" in row["training"]]
    heads = ["agent", "begun with", "mean before", "after", *(f"B = {budget:g}" for budget in CARTPOLE)]
    return Table(heads, [_change(before, after) for before, after in pairs], left=2).markdown()


def _change(before: Row, after: Row) -> list[str]:
    digits = digits_of(TASKS[after["task"]].scoring.ceiling)
    shown = [[certified(row["auto"][place], digits) for row in (before, after)] for place in range(len(CARTPOLE))]
    means = [measured(row["mean"], row["sem"], digits + 1) for row in (before, after)]
    return [f"`{after['agent']}`", f"`{before['agent']}`", *means, *(f"{one}, {other}" for one, other in shown)]


def _board(found: Row, game: str) -> Table:
    """Return the entries of a game: first those that every machine can rerun, the highest bound first."""
    digits = digits_of(TASKS[GAMES[game][0]].scoring.ceiling)
    rows = [row for row in found["board"] if row["task"] in GAMES[game]]
    rows.sort(key=lambda row: (row["device"] != "cpu", -row["lower"][-1]))
    lines = [
        [
            f"`{safe_name(row['agent'])}`" + ("" if row["device"] == "cpu" else " (GPU)"),
            *(certified(value, digits) for value in row["lower"]),
            measured(row["mean"], row["sem"], digits + 1),
            *_strongest(row, digits),
            f"{row['sigma']:g}",
            escape_markdown(row["memory"]),
            f"{row['n_episodes']:,}",
            escape_markdown(row["by"]),
            f"[{escape_markdown(row['license'])}, `{row['agent_sha256'][:8]}`](../records/{row['name']}/entry.json)",
        ]
        for row in rows
    ]
    heads = ["agent", *_heads(GAMES[game][0]), "mean, no attack", "strongest attack so far", "gap", "sigma"]
    return Table([*heads, "memory", "episodes", "by", "license, weights"], lines)


def _strongest(row: Row, digits: int) -> tuple[str, str]:
    """Return the lowest attacked mean, where it was reached, and how far above the bound at that budget it is."""
    attack = row["attack"]
    if attack is None:
        return "not attacked", ""
    gap = attack["mean"] - row["attacked_bound"]
    return f"{attack['mean']:.{digits}f} at B = {attack['budget']:g}", f"{gap:.{digits}f}"


def _attacks(found: Row) -> Table:
    """Return what every attack achieved, next to what is certified: a row per agent and budget."""
    tasks = {row["agent"]: row["task"] for row in found["agents"]}
    methods = list(dict.fromkeys(row["method"] for row in found["attacks"]))
    cells = {(row["agent"], row["budget"], row["method"]): row for row in found["attacks"]}
    lines = []
    for agent, budget in dict.fromkeys((row["agent"], row["budget"]) for row in found["attacks"]):
        own = [cells.get((agent, budget, method)) for method in methods]
        digits = digits_of(TASKS[tasks[agent]].scoring.ceiling)
        bound = next(row["bound"] for row in own if row is not None)
        means = ["" if row is None else _under_attack(row, digits + 1) for row in own]
        lines.append([f"`{agent}`", f"{budget:g}", certified(bound, digits), *means])
    return Table(["agent", "B", "certified", *(_with_episodes(found, method) for method in methods)], lines)


def _with_episodes(found: Row, method: str) -> str:
    sizes = sorted({row["n_episodes"] for row in found["attacks"] if row["method"] == method})
    return f"`{method}` ({' or '.join(f'{size:,}' for size in sizes)})"


def _under_attack(row: Row, digits: int) -> str:
    """Return the mean under attack; what used no budget is no attack, its mean is one without."""
    return measured(row["mean"], row["sem"], digits) if row["used"] else "did not attack"


def _sources(found: Row) -> Table:
    """Return where the numbers of others come from."""
    lines = [[UNITS[row["task"]].title, row["who"], row["source"]] for row in found["peers"]]
    return Table(["task", "who", "source of the numbers"], lines, left=3)


def _heads(task: str) -> list[str]:
    return [f"B = {budget:g}" for budget in BUDGETS[task]]


def _line(
    name: str, values: Sequence[tuple[float, Row]], digits: int, rows: Sequence[Row], *, bold: bool = False
) -> list[str]:
    mark = "**" if bold else ""
    sizes = sorted({row["n_episodes"] for row in rows})
    counted = name.replace("{n}", " or ".join(f"{size:,}" for size in sizes))
    return [counted, *(f"{mark}{certified(value, digits)}{mark}" for value, _ in values)]


def _who(values: Sequence[tuple[float, Row]]) -> list[str]:
    """Name the agents, without the task, which the table is about."""
    return ["by", *(f"`{row['agent'].removeprefix(row['task']).removeprefix('-')}`" for _, row in values)]


def _peer(row: Row, budgets: Sequence[float], digits: int, task: str) -> list[str]:
    known = [row["bounds"].get(f"{budget:g}") for budget in budgets]
    frames = f"; {LIKE[task]}" if task in LIKE else ""
    return [f"{row['who']}{frames}", *("" if value is None else f"{value:.{digits}f}" for value in known)]
