"""From a figure's or table's name to files: PNG, SVG, Markdown, CSV, and one page that shows them all."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from study import claims, published
from study.figures import attacks, certificates, diagrams, environments, pong, training
from study.numbers import Study, fingerprint
from study.paper import EVERY, TARGETS, Target, find_target
from study.tables import Table
from surefoot.errors import InputError
from surefoot.files import write_json, write_text, write_whole
from surefoot.provenance import versions

Made = tuple[Figure | None, Table | None]
Maker = Callable[[Study, Sequence[str]], Made]


def _only_table(make: Callable[[Study, Sequence[str]], Table]) -> Maker:
    return lambda study, tasks: (None, make(study, tasks))


MAKERS: dict[str, Maker] = {
    "toy": diagrams.toy,
    "framework": diagrams.framework,
    "environments": environments.environments,
    "certificates": certificates.certificates,
    "attacks": attacks.attacks,
    "rotation": diagrams.rotation,
    "cartpole": certificates.cartpole,
    "full-pong": pong.full_pong,
    "clean-test": certificates.clean_test,
    "training": training.training,
    "attacks-bare": attacks.attacks_bare,
    "attacks-smoothed": attacks.attacks_smoothed,
    "point-wise": certificates.point_wise,
    "training-settings": _only_table(training.training_settings),
    "attack-settings": _only_table(training.attack_settings),
    "training-times": _only_table(training.training_times),
    "evaluation-times": _only_table(training.evaluation_times),
    "attack-times": _only_table(training.attack_times),
    "published": _only_table(published.published),
    "claims": _only_table(claims.claims),
}


@dataclass(frozen=True)
class Drawn:
    """A figure or table that was made: its target, its files, the table's text, and how long it took."""

    target: Target
    files: tuple[Path, ...]
    table: Table | None
    seconds: float


def chosen(what: str) -> tuple[list[Target], tuple[str, ...]]:
    """Return the figures and tables that a name asks for, and the tasks to show in them."""
    if what == "all":
        return list(TARGETS), EVERY
    if what in EVERY:
        return [target for target in TARGETS if what in target.tasks], (what,)
    found = find_target(what)
    if found is None:
        names = ", ".join(target.name for target in TARGETS)
        raise InputError(f"unknown figure, table or task {what!r}; there are all, {names}, {', '.join(EVERY)}")
    return [found], EVERY


def draw(study: Study, target: Target, tasks: Sequence[str], out: Path) -> Drawn:
    """Make one figure or table and write its files."""
    began = time.process_time()  # which does not depend on what else is running
    shown = tuple(task for task in target.tasks if task in tasks)
    figure, table = MAKERS[target.name](study, shown)
    files = []
    for kind in ("png", "svg") if figure is not None else ():
        assert figure is not None
        files.append(out / f"{target.name}.{kind}")
        write_figure(figure, files[-1], kind)
    if table is not None and table.rows:
        files += [out / f"{target.name}.md", out / f"{target.name}.csv"]
        write_text(files[-2], f"# {target.title}\n\n{table.markdown()}\n")
        write_text(files[-1], table.comma_separated())
    return Drawn(target, tuple(files), table, time.process_time() - began)


def write_figure(figure: Figure, path: Path, kind: str) -> None:
    """Write a figure as PNG or SVG."""
    # Without a date the same numbers give the same file.
    facts: dict[str, Any] = {"Software": None} if kind == "png" else {"Date": None}
    with rc_context({"svg.hashsalt": "surefoot"}):
        write_whole(path, lambda file: figure.savefig(file, format=kind, dpi=110, metadata=facts))


def write_index(study: Study, drawn: Sequence[Drawn], out: Path, mode: str) -> None:
    """Write the page that shows everything, and what it was made from."""
    write_json(
        out / "index.json",
        {
            "schema": 1,
            "mode": mode,
            "data_sha256": fingerprint(study),
            "stale": study.stale(),
            "made": {one.target.name: round(one.seconds, 2) for one in drawn},
            "versions": versions(),
        },
    )
    body = "\n".join(_section(one) for one in drawn)
    write_text(out / "index.html", _PAGE.format(mode=html.escape(mode), stale=_stale(study), body=body))


def _stale(study: Study) -> str:
    found = study.stale()
    return f"<p><strong>Measured on other weights: {html.escape(', '.join(found))}.</strong></p>" if found else ""


def _section(one: Drawn) -> str:
    name, title = one.target.name, html.escape(one.target.title)
    origin = f" <small>({html.escape(one.target.paper)} of the paper)</small>" if one.target.paper else ""
    parts = [f'<h2 id="{name}">{title}{origin}</h2>', f"<p><code>python -m study {name}</code></p>"]
    if any(path.suffix == ".png" for path in one.files):
        parts.append(f'<img src="{name}.svg" alt="{title}">')
    if one.table is not None and one.table.rows:
        parts.append(f"<details open><summary>Numbers</summary>{one.table.html()}")
        parts.append(f'<p><a href="{name}.csv">{name}.csv</a></p></details>')
    return "\n".join(parts)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Surefoot: the paper's figures and tables</title>
<meta name="viewport" content="width=device-width">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a;
  background: #fff; }}
img {{ max-width: 100%; height: auto; background: #fff; }}
table {{ border-collapse: collapse; font-size: 0.85rem; display: block; overflow-x: auto; }}
td, th {{ border: 1px solid #8885; padding: 0.2rem 0.5rem; text-align: left; vertical-align: top; }}
.number {{ text-align: right; white-space: nowrap; }}
@media (prefers-color-scheme: dark) {{ body {{ color: #e8eaec; background: #14181c; }} a {{ color: #86bdf0; }} }}
</style></head><body>
<h1>The paper's figures and tables, from our agents</h1>
<p>Made {mode}. Bounds hold with 95% confidence each; what is marked ± is an estimate with its standard error.</p>
{stale}
{body}
</body></html>
"""
