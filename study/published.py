"""Published returns of agents trained with the paper's code, next to ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from study.numbers import CONFIDENCE, DATA, Study, budgets_of
from study.tables import Table, certified
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_json
from surefoot.play.tasks import TASKS
from surefoot.proof.certificate import Certificate
from surefoot.proof.query import certify


def published(study: Study, _tasks: Sequence[str]) -> Table:
    """Return what our five-frame agents are certified, next to returns of two agents trained with the paper's code."""
    shown, rows = (0.0, 0.2, 0.4, 0.6, 0.8), []
    for sigma, record in published_records(study.folder).items():
        agent = next((one for one in study.smoothed("cartpole-5") if one.sigma == sigma), None)
        ours = None if agent is None else study.record(agent)
        for name, played in (("published", record), ("ours", ours)):
            for method in ("per-threshold", "auto") if played is not None else ():
                assert played is not None
                made = certify(played, budgets_of(TASKS["cartpole-5"]), CONFIDENCE, method)
                rows.append([f"{name}, sigma {sigma:g}", method, f"{played.returns.mean():.2f}", *_cells(made, shown)])
    heads = ["agent", "method", "mean, no attack", *(f"B = {budget:g}" for budget in shown)]
    return Table(heads, rows, left=2)


def _cells(made: Certificate, budgets: Sequence[float]) -> list[str]:
    return [certified(made.at(budget).lower, 1) for budget in budgets]


def published_records(folder: Path) -> dict[float, Episodes]:
    """Return published returns of the paper's CartPole, in an order sampled once, because they came as counts."""
    places = (place / "published" / "cartpole-5.json" for place in (folder, DATA))
    path = next(place for place in places if place.is_file())
    counts = read_json(path)["counts_by_sigma"]
    found = {}
    for sigma, table in counts.items():
        returns = np.repeat([float(value) for value in table], list(table.values()))
        if returns.size == 0:
            raise InputError(f"{path} holds no returns for sigma {sigma}")
        drawn = np.random.default_rng(0).permutation(returns)
        found[float(sigma)] = Episodes.from_returns(drawn, sigma=float(sigma), floor=0, ceiling=200)
    return found
