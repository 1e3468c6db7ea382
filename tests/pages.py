"""Folders as ``certify`` and ``attack`` leave them, made without playing: what the tests of the page read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import surefoot
from surefoot.files import write_arrays, write_json

SIGMA = 0.2
HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'>{{title}}\u2028\"'&amp;"


def returns_of(count: int = 400) -> np.ndarray:
    """Mostly perfect episodes with some failures."""
    return np.tile([200.0] * 8 + [180.0, 37.0], count // 10)


def certified(
    folder: Path, *, agent: str | None = "agent-a", sigma: float = SIGMA, returns: Any = None, **options: Any
) -> dict[str, Any]:
    """Leave what ``certify`` leaves, and return the certificate's JSON."""
    ask = {
        "budgets": (0, 0.1, 0.2, 0.4, 1.0),
        "confidence": 0.95,
        "method": "per-threshold",
        "threshold_spacing": 1.0,
        **options,
    }
    ceiling = ask.pop("ceiling", 200.0)
    named = {} if agent is None else about(agent)
    record = surefoot.Episodes.from_returns(
        returns_of() if returns is None else returns, sigma=sigma, floor=ask.pop("floor", 0.0), ceiling=ceiling, **named
    )
    made = surefoot.certify(record, **ask).to_json()
    write_json(folder / "certificate.json", made)
    record.save(folder / "episodes.npz")
    write_json(folder / "setup.json", {"schema": 1, **record.setup, "environment": "CartPole-v1"})
    blind = {
        "mean": 40.815,
        "sem": 0.043,
        "n_episodes": 100_000,
        "what": "actions 1 and 0 in turn",
        "command": "baseline",
    }
    facts = {"schema": 1, "versions": {"surefoot": "0.1.0"}, "command": "surefoot certify cartpole-5 --sigma 0.2"}
    write_json(folder / "run.json", {**facts, "step": ask["threshold_spacing"], "baseline": blind, "replay": None})
    return made


def about(agent: str) -> dict[str, Any]:
    """Return what names an agent in a file."""
    return {"task": "cartpole-5", "agent": agent, "agent_sha256": f"hash of {agent}", "seed": 0}


def attacked(
    folder: Path, *, agent: str = "agent-a", sigma: float = SIGMA, means: Any = (170.0, 60.0)
) -> dict[str, Any]:
    """Leave what ``attack`` leaves, at budgets 0.4 and 1, and return its JSON."""
    budgets = [0.4, 1.0]
    spending = [[0.05, 0.03, 0.0, 0.01], [0.4, 0.2, 0.1, 0.0]]
    result = {
        "schema": 1, **about(agent), "sigma": sigma, "method": "paper", "noise_samples": 16, "n_episodes": 100,
        "budgets": budgets,
        "lambdas": [0.0, 0.5], "mean": [[mean, mean + 1] for mean in means], "sem": [[1.5, 1.5], [2.25, 2.0]],
        "curve": list(means), "curve_sem": [1.5, 2.25], "curve_lambda": [0.0, 0.5], "largest_budget_used": 1.0,
        "mean_budget_used": [[0.3, 0.3], [0.8, 0.8]], "budget_used_per_step": spending,
    }  # fmt: skip
    write_json(folder / "attack.json", result)
    write_json(folder / "run.json", {"schema": 1, "versions": {}, "command": "surefoot attack cartpole-5"})
    for budget, margin, mean in zip(budgets, (0.0, 0.5), means, strict=True):
        cell = folder / f"B{budget:g}-lambda{margin:g}"
        record = surefoot.Episodes.from_returns(
            np.full(100, mean), sigma=sigma, floor=0, ceiling=200, **about(agent), budget=budget
        )
        record.save(cell / "episodes.npz")
        write_json(cell / "setup.json", {"schema": 1, **record.setup, "environment": "CartPole-v1"})
    return result


def replayed(
    folder: Path,
    shape: tuple[int, ...] = (4,),
    environment: str = "CartPole-v1",
    steps: int = 12,
    names: tuple[str, str] = ("quiet", "attacked"),
) -> None:
    """Leave a replay of made-up observations: pictures as bytes, anything smaller as numbers."""
    draw = np.random.default_rng(0)
    clean = draw.uniform(0, 1, (steps, *shape))
    first, second = names
    tracks = {
        f"{first}_clean": clean,
        f"{first}_seen": clean + draw.normal(0, 0.1, clean.shape),
        f"{second}_clean": clean[: steps // 2],
        f"{second}_seen": clean[: steps // 2] + 0.2,
    }
    arrays = {name: _as_left(values, len(shape) > 1) for name, values in tracks.items()}
    for name, length in ((first, steps), (second, steps // 2)):
        arrays[f"{name}_actions"] = np.array([-1, *([1, 0] * length)][:length], dtype=np.int32)
        arrays[f"{name}_budget_used"] = np.linspace(0, 0.2, length)
    known = {first: {"sigma": SIGMA, "budget": 0.0}, second: {"sigma": SIGMA, "budget": 0.2}}
    facts = {"schema": 1, "environment": environment, "episode": None, "returns": [], "tracks": known}
    header = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    write_arrays(folder / "replay.npz", {"header": header, **arrays})


def _as_left(values: np.ndarray, pictures: bool) -> np.ndarray:
    return np.clip(values * 255, 0, 255).astype(np.uint8) if pictures else values.astype(np.float32)
