"""What each ingredient of PPO brings to the certificate: one added at a time, the same number of steps, three seeds.

    python bench/ablation.py                    # run what bench/results/ablation.json lacks, seed by seed
    python bench/ablation.py --write            # put the table into docs/training.md

Trainings are short (CartPole, five frames, sigma 0.3), so the table shows what is learned early. Certified values are
those of fresh episodes, not of the validation that chose the weights.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from study.agents_table import put
from study.tables import Table, certified
from surefoot.episodes import Noise
from surefoot.files import read_json, versions, write_json
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.play.workers import single_thread
from surefoot.proof.query import certify
from surefoot.train.folder import TrainingRun
from surefoot.train.ppo import train_ppo
from surefoot.train.settings import PpoSettings

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "bench" / "results" / "ablation.json", ROOT / "docs" / "training.md"
TASK, SIGMA, BUDGETS, SEEDS, N_EPISODES = "cartpole-5", 0.3, (0.3, 0.6), (0, 1, 2), 4_096
PLAIN = PpoSettings(
    total_steps=600_000,
    validation_interval=200_000,
    validation_episodes=2_048,
    n_envs=32,
    clean_critic=False,
    auxiliary=0.0,
    entropy=0.0,
    settle=0.0,
)
# Each row adds one thing to the row above it.
STEPS: dict[str, dict[str, Any]] = {
    "plain PPO, 32 episodes per update": {},
    "256 episodes per update": {"n_envs": 256},
    "+ critic that sees the clean observation": {"clean_critic": True},
    "+ auxiliary loss": {"auxiliary": 1.0},
    "+ entropy bonus that does not fall": {"entropy": 0.05},
    "+ steps that shrink": {"settle": 0.3},
    "+ GRU instead of five frames": {"memory": "gru"},
}


def settings() -> dict[str, PpoSettings]:
    found, current = {}, PLAIN
    for name, added in STEPS.items():
        found[name] = current = replace(current, **added)
    return found


def run(name: str, chosen: PpoSettings, seed: int) -> dict[str, Any]:
    task, noise = get_task(TASK), Noise.of(SIGMA)
    with tempfile.TemporaryDirectory() as folder, single_thread():
        began = time.process_time()
        policy = train_ppo(TrainingRun(task=task, sigma=SIGMA, out=Path(folder) / "run", seed=seed), chosen)
        seconds = time.process_time() - began
        played = play(Plan(task=task, policy=policy, noise=noise, n_episodes=N_EPISODES, seed=seed))
    lower = [float(value) for value in certify(played, BUDGETS).lower]
    mean = float(played.returns.mean())
    return {"setting": name, "seed": seed, "mean": mean, "certified": lower, "processor_seconds": round(seconds, 1)}


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for name in STEPS:
        own = [row for row in rows if row["setting"] == name]
        if own:
            mean = f"{statistics.median(row['mean'] for row in own):.1f}"
            cells = [_spread([row["certified"][place] for row in own]) for place in range(len(BUDGETS))]
            seconds = f"{statistics.median(row['processor_seconds'] for row in own):.0f}"
            lines.append([name, str(len(own)), mean, *cells, seconds])
    heads = ["training", "seeds", "median mean", *(f"certified at B = {one:g}" for one in BUDGETS), "processor s"]
    return Table(heads, lines).markdown()


def _spread(values: list[float]) -> str:
    low, middle, high = (certified(one, 1) for one in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/training.md; nothing is run")
    rows: list[dict[str, Any]] = read_json(RESULTS)["rows"] if RESULTS.is_file() else []
    if parser.parse_args().write:
        put(PAGE, "ablation", table(rows))
        return
    done = {(row["setting"], row["seed"]) for row in rows}
    for seed in SEEDS:
        for name, chosen in settings().items():
            if (name, seed) not in done:
                rows.append(run(name, chosen, seed))
                print(rows[-1], flush=True)
                facts = {
                    "task": TASK,
                    "sigma": SIGMA,
                    "budgets": BUDGETS,
                    "episodes": N_EPISODES,
                    "plain": PLAIN.facts(),
                }
                write_json(RESULTS, {"schema": 1, **facts, "rows": rows, "versions": versions()})


if __name__ == "__main__":
    main()
