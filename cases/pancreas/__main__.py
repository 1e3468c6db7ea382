"""The whole case through the public interface: ``python -m cases.pancreas``, or with ``--quick`` on few episodes.

Without ``--quick`` the numbers go to cases/pancreas/data.json and the picture to docs/cases/pancreas.svg.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import surefoot
from cases.pancreas import controller
from cases.pancreas.forger import EvenBias, HiddenMeal
from cases.pancreas.patient import READINGS, Patients

HERE = Path(__file__).parent
DATA = HERE / "data.json"
PICTURE = HERE.parents[1] / "docs" / "cases" / "pancreas.svg"
SIGMAS = (20.0, 40.0, 80.0, 120.0)  # mg/dL
HEADLINE = 40.0
LONGER_RUNS = ((20.0, 100_000), (40.0, 100_000), (20.0, 1_000_000))  # sigma and episodes
DOSES = (1.8, 2.0)  # basal rates
DRAWS = 4


def make(**others: Any) -> surefoot.Task:
    """Return the task: 8 hours, a reading every 5 minutes."""
    return surefoot.make_task(
        "cases.pancreas.patient:Patients",
        max_steps=READINGS,
        n_stack=controller.REMEMBERED,
        feature_units={"glucose": "mg/dL"},
        **others,
    )


def in_range(**others: Any) -> surefoot.Task:
    """Return the task whose return is the number of readings in range."""
    return make(reward_range=(0.0, 1.0), **others)


def certified(task: surefoot.Task, agent: Any, sigma: float, n_episodes: int, out: Path, **how: Any) -> dict[str, Any]:
    """Certify a controller without attack and at twice sigma, and return what is worth keeping."""
    policy = surefoot.as_policy(agent, task.spaces, batched=True)
    run = surefoot.certify_run(
        task,
        policy,
        sigma={"glucose": sigma},
        query=surefoot.Query(budgets=(2 * sigma,)),
        n_episodes=n_episodes,
        seed=0,
        out=out,
        **how,
    )
    made = run.certificate
    print(f"\n{policy.name}, sigma {sigma:g} mg/dL, {how}\n{made}", flush=True)
    return {
        "controller": policy.name,
        "sigma": sigma,
        "budget": 2 * sigma,
        "n_episodes": n_episodes,
        **how,
        "method": made.method,
        "estimate": made.estimate,
        "lower": float(made.lower[0]),
        "spread": float(surefoot.Episodes.load(out / "episodes.npz").returns.std()),
    }


def attacked(task: surefoot.Task, sigma: float, method: surefoot.Attacker, n: int, out: Path) -> dict[str, Any]:
    """Attack the controller with twice the headline's sigma, and return what is worth keeping."""
    policy = surefoot.as_policy(controller.proportional, task.spaces, batched=True)
    budget = 2 * HEADLINE
    noise = {"glucose": sigma} if sigma else 0.0
    curve = surefoot.attack(task, policy, budgets=[budget], sigma=noise, method=method, n_episodes=n, seed=0, out=out)
    print(f"{type(method).__name__}, sigma {sigma:g}: {curve.lowest[0]:.2f} ± {curve.lowest_sem[0]:.2f}", flush=True)
    row = {**method.describe(), "sigma": sigma, "budget": budget, "n_episodes": n}
    return {**row, "mean": float(curve.lowest[0]), "sem": float(curve.lowest_sem[0])}


def one_day(agent: Any, sigma: float, offset: float) -> np.ndarray[Any, Any]:
    """Return blood glucose of one patient, with the same meal, noise and readings that are all moved by an offset."""
    day = Patients(1)
    shown, _ = day.reset(seed=3)
    noise = np.random.default_rng(4)
    remembered: list[np.ndarray[Any, Any]] = []
    glucose = []
    for _ in range(READINGS):
        seen = float(shown["glucose"][0, 0]) + offset + sigma * noise.standard_normal()
        frame = np.array([seen, float(shown["minutes"][0, 0])])
        remembered = [*(remembered or [frame] * controller.REMEMBERED)[1:], frame]
        shown, *_ = day.step(agent(np.stack(remembered)[None]).numpy())
        glucose.append(float(day.glucose[0]))
    return np.array(glucose)


def draw() -> None:
    """Draw one day: clean, attacked without noise, attacked with it."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "pancreas"
    offset = -2 * HEADLINE / READINGS**0.5
    hours = np.arange(1, READINGS + 1) / 12
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    axes.axhspan(70, 180, color="#dcefdc", zorder=0)
    for label, sigma, moved, style in (
        ("no noise, no attack", 0.0, 0.0, "k-"),
        (f"no noise, every reading {offset:.0f} mg/dL", 0.0, offset, "r--"),
        (f"noise of {HEADLINE:g} mg/dL, no attack", HEADLINE, 0.0, "b-"),
        (f"noise of {HEADLINE:g} mg/dL, every reading {offset:.0f} mg/dL", HEADLINE, offset, "b--"),
    ):
        axes.plot(hours, one_day(controller.proportional, sigma, moved), style, label=label, linewidth=1.2)
    axes.set(xlabel="hours", ylabel="blood glucose (mg/dL)", xlim=(0, 8))
    axes.legend(fontsize=7)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    """Run the case."""
    parser = argparse.ArgumentParser(prog="python -m cases.pancreas", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few episodes; nothing is written")
    quick = parser.parse_args().quick
    n = 1_000 if quick else 10_000
    n_open_loop = 500 if quick else 2_000
    n_attacked = 100 if quick else 400
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        task = in_range()
        rows = [certified(task, controller.proportional, HEADLINE, n, out / "plain")]
        for sigma in (HEADLINE,) if quick else SIGMAS:
            name = out / f"nested-{sigma:g}"
            rows.append(certified(task, controller.proportional, sigma, n, name, draws_per_seed=DRAWS))
        if not quick:
            for sigma, count in LONGER_RUNS:
                name = out / f"nested-{sigma:g}-{count}"
                rows.append(certified(task, controller.proportional, sigma, count, name, draws_per_seed=DRAWS))
        for agent in (*map(controller.constant, DOSES), controller.schedule):
            rows.append(certified(task, agent, HEADLINE, n_open_loop, out / agent.__name__))
        never_low = make(success="never_low")
        for draws in (1, DRAWS):
            name = out / f"low-{draws}"
            low = certified(never_low, controller.proportional, HEADLINE, n, name, draws_per_seed=draws)
            rows.append({**low, "event": "never_low"})
        attacks = []
        for sigma in (HEADLINE, 0.0):
            for number, method in enumerate((EvenBias(-1.0), EvenBias(1.0), HiddenMeal())):
                attacks.append(attacked(task, sigma, method, n_attacked, out / f"attack-{sigma:g}-{number}"))
    by_name = {}
    for row in rows:
        if row["n_episodes"] == n:
            by_name[row["controller"], row["sigma"], row.get("draws_per_seed", 1), row.get("event")] = row
    plain = by_name["proportional", HEADLINE, 1, None]
    nested = by_name["proportional", HEADLINE, DRAWS, None]
    lost = plain["estimate"] - plain["lower"]
    kept = (nested["lower"] - plain["lower"]) / lost
    print(f"\nOf {lost:.2f} readings that T2 loses, {kept:.0%} are kept with {DRAWS} draws per patient.")
    if not quick:
        DATA.write_text(json.dumps({"certified": rows, "attacked": attacks}, indent=1) + "\n")
        draw()


if __name__ == "__main__":
    main()
