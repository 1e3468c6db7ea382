"""The whole case through the public interface: ``python -m cases.drone``, or with ``--quick`` on few episodes.

Without ``--quick`` the numbers go to cases/drone/data.json and the picture to docs/cases/drone.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # crazyflow asks for it, before scipy is imported

import surefoot
from cases.drone import pilot
from cases.drone.spoofer import EvenSpoof, LateSpoof

HERE = Path(__file__).parent
SIGMAS = (0.8, 0.15, 1.0, 0.9, 0.3, 0.6)  # m, the headline's first
HEADLINE = 0.8  # m
NOISELESS = 0.001  # m: too little to matter to a pilot, and it says what a spoofer can reach
DATA = HERE / "data.json"


def landing(**others: Any) -> surefoot.Task:
    """Return the task: 10 s at 50 Hz, positions in meters."""
    return surefoot.make_task(
        "crazyflow.envs:DroneLanding-v0",
        env_kwargs={"freq": 50, "max_episode_time": 10.0},
        max_steps=500,
        wrappers=["cases.drone.landing:SensorsOnly"],
        feature_units={"pos": "m", "vel": "m/s"},
        **others,
    )


def certified(task: surefoot.Task, agent: surefoot.Policy, sigma: float, n_episodes: int, out: Path) -> dict[str, Any]:
    """Certify a pilot at twice sigma, and return what is worth keeping."""
    budget = 2 * sigma
    run = surefoot.certify_run(
        task, agent, sigma={"pos": sigma}, query=surefoot.Query(budgets=(budget,)), n_episodes=n_episodes, out=out
    )
    certificate = run.certificate
    if sigma == HEADLINE:
        print(certificate, flush=True)
    return {
        "agent": agent.name,
        "sigma": sigma,
        "budget": budget,
        "n_episodes": n_episodes,
        "estimate": certificate.estimate,
        "lower": float(certificate.lower[0]),
        "method": certificate.method,
        "seed": str(certificate.metadata["seed"]),
    }


def attacked(
    task: surefoot.Task,
    agent: surefoot.Policy,
    sigma: float,
    budgets: list[float],
    method: surefoot.Attacker,
    n_episodes: int,
    out: Path,
) -> dict[str, Any]:
    """Attack a pilot, and return what is worth keeping."""
    curve = surefoot.attack(
        task, agent, budgets=budgets, sigma={"pos": sigma}, method=method, n_episodes=n_episodes, record=True, out=out
    )
    row = {"agent": agent.name, "sigma": sigma, "attack": type(method).__name__, "n_episodes": n_episodes}
    return {**row, "budgets": budgets, "mean": curve.lowest.tolist(), "sem": curve.lowest_sem.tolist()}


def main() -> None:
    """Run the case."""
    parser = argparse.ArgumentParser(prog="python -m cases.drone", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few episodes, nothing is written")
    quick = parser.parse_args().quick
    n_episodes, n_others = 10_000, 2_000
    if quick:
        n_episodes, n_others = 512, 512
    found: dict[str, list[dict[str, Any]]] = {"certified": [], "attacked": [], "return": []}

    def keep(kind: str, row: dict[str, Any]) -> None:
        print(json.dumps(row), flush=True)
        found[kind].append(row)
        if not quick:
            DATA.write_text(json.dumps(found, indent=1) + "\n")

    task = landing(success="cases.drone.landing:landed")
    with tempfile.TemporaryDirectory() as kept:
        runs = Path(kept)
        keep("certified", certified(task, pilot.averaging(), HEADLINE, n_episodes, runs / "headline"))
        for undefended in (pilot.quick(), pilot.believing()):
            out = runs / undefended.name.replace(" ", "-")
            budgets = [0.3, 2 * HEADLINE] if not quick else [2 * HEADLINE]
            keep("attacked", attacked(task, undefended, NOISELESS, budgets, LateSpoof(), 512, out))
        even = [2 * HEADLINE]
        keep("attacked", attacked(task, pilot.averaging(), HEADLINE, even, EvenSpoof(), 512, runs / "even"))
        if not quick:
            from cases.drone.picture import draw_flights

            draw_flights(runs / "quick-pilot" / "replay.npz", runs / "even" / "replay.npz")
        for other in (pilot.open_loop(), pilot.blind(), pilot.believing()):
            name = f"{other.name.replace(' ', '-')}-smoothed"
            keep("certified", certified(task, other, HEADLINE, n_others, runs / name))
        if quick:
            return
        rewarded = landing(floor=-1, ceiling=500, reward_range=(-1, 1))
        keep("return", certified(rewarded, pilot.averaging(), HEADLINE, n_episodes, runs / "return"))
        for sigma in SIGMAS[1:]:
            keep("certified", certified(task, pilot.averaging(), sigma, n_episodes, runs / f"averaging-{sigma}"))


if __name__ == "__main__":
    main()
