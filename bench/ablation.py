"""What each ingredient of PPO brings to the certificate: one added at a time, the same number of steps, three seeds.

    python -m bench.ablation                    # run what bench/results/ablation.json lacks, seed by seed
    python -m bench.ablation --only Pendulum-v1 # of one task
    python -m bench.ablation --write            # put the tables into docs/training.md

Trainings are short (CartPole by our PPO; Pendulum and HalfCheetah by SB3's), so the tables show what is learned early.
Above them is what others train with: DQN as in the paper, and SB3's PPO with the settings that RL Baselines3 Zoo has
for CartPole. Certified values are those of fresh episodes, not of the validation that chose the weights.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from study.agents_table import put
from study.tables import Table, certified
from surefoot.agents.policies import Policy
from surefoot.episodes import Noise
from surefoot.files import read_json, versions, write_json
from surefoot.play.environments import make_task
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.play.workers import single_thread
from surefoot.proof.query import certify
from surefoot.train.folder import TrainingRun
from surefoot.train.ppo import train_ppo
from surefoot.train.sb3_ppo import CONTINUOUS, Sb3PpoSettings, train_sb3_ppo
from surefoot.train.settings import DqnSettings, PpoSettings
from surefoot.train.train import train

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "bench" / "results" / "ablation.json", ROOT / "docs" / "training.md"
SEEDS, N_EPISODES = (0, 1, 2), 4_096


@dataclass(frozen=True)
class Setup:
    """What is trained, and what each row of its table adds to the settings of the row above it."""

    task: Task
    sigma: float
    budgets: tuple[float, ...]
    plain: PpoSettings | Sb3PpoSettings
    added: dict[str, dict[str, Any]]
    others: dict[str, DqnSettings | Sb3PpoSettings] = field(default_factory=dict)
    episodes: int = N_EPISODES

    @property
    def name(self) -> str:
        """The environment, without its wrappers."""
        return self.task.name.partition(" ")[0]

    def settings(self) -> dict[str, DqnSettings | PpoSettings | Sb3PpoSettings]:
        """Return the settings of every row: what others train with, then what is added one at a time."""
        found: dict[str, DqnSettings | PpoSettings | Sb3PpoSettings] = dict(self.others)
        current = self.plain
        for name, added in self.added.items():
            found[name] = current = replace(current, **added)
        return found

    def facts(self) -> dict[str, Any]:
        """Return what the results say of it, as JSON data."""
        others = {name: one.facts() for name, one in self.others.items()}
        facts = {"sigma": self.sigma, "budgets": self.budgets, "plain": self.plain.facts()}
        return facts | ({"others": others} if others else {})


# As in RL Baselines3 Zoo (rl_zoo3, hyperparams/ppo.yml), with the noise and frames of the task.
ZOO = Sb3PpoSettings(
    total_steps=100_000,
    validation_interval=20_000,
    n_stack=5,
    n_envs=8,
    n_steps=32,
    batch_size=256,
    epochs=20,
    learning_rate=1e-3,
    gamma=0.98,
    trace=0.8,
    entropy=0.0,
    clean_critic=False,
)
CARTPOLE = Setup(
    task=get_task("cartpole-5"),
    sigma=0.3,
    budgets=(0.3, 0.6),
    plain=PpoSettings(
        total_steps=600_000,
        validation_interval=200_000,
        validation_episodes=2_048,
        n_envs=32,
        clean_critic=False,
        auxiliary=0.0,
        entropy=0.0,
        settle=0.0,
    ),
    added={
        "plain PPO, 32 episodes per update": {},
        "256 episodes per update": {"n_envs": 256},
        "+ critic that sees the clean observation": {"clean_critic": True},
        "+ auxiliary loss": {"auxiliary": 1.0},
        "+ entropy bonus that does not fall": {"entropy": 0.05},
        "+ steps that shrink": {"settle": 0.3},
        "+ GRU instead of five frames": {"memory": "gru"},
    },
    others={
        "DQN as in the paper": DqnSettings(),
        "SB3's PPO with the zoo's settings": ZOO,
    },
)
ONE_FRAME = replace(
    CARTPOLE,
    task=get_task("cartpole-1"),
    sigma=0.2,
    budgets=(0.2, 0.4),
    added={name.replace("five frames", "one frame"): one for name, one in CARTPOLE.added.items()},
    others={},
)
# SB3's own defaults, in one environment.
DEFAULTS = replace(
    CONTINUOUS,
    n_envs=1,
    n_steps=2_048,
    batch_size=64,
    learning_rate=3e-4,
    trace=0.95,
    entropy=0.0,
    clean_critic=False,
)
PENDULUM = Setup(
    task=make_task("Pendulum-v1"),
    sigma=0.1,
    budgets=(0.1, 0.2),
    plain=replace(DEFAULTS, total_steps=300_000, validation_interval=60_000),
    added={
        "SB3's PPO with its defaults": {},
        "64 environments times 200 steps": {
            name: getattr(CONTINUOUS, name)
            for name in ("n_envs", "n_steps", "batch_size", "learning_rate", "trace", "entropy")
        },
        "+ critic that sees the clean observation": {"clean_critic": True},
    },
)
CHEETAH = replace(
    PENDULUM,
    task=make_task(
        "HalfCheetah-v5", reward_range=(-1, 10), wrappers=['ClipReward={"min_reward": -1, "max_reward": 10}']
    ),
    sigma=0.2,
    budgets=(0.126, 0.316),
    plain=replace(DEFAULTS, total_steps=300_000, validation_interval=100_000, validation_episodes=50, n_stack=5),
    episodes=500,
)
SETUPS = {setup.name: setup for setup in (CARTPOLE, ONE_FRAME, PENDULUM, CHEETAH)}


def train_with(asked: TrainingRun, chosen: DqnSettings | PpoSettings | Sb3PpoSettings) -> Policy:
    """Return what the trainer of these settings trains."""
    if isinstance(chosen, DqnSettings):
        return train(asked, chosen)
    return train_ppo(asked, chosen) if isinstance(chosen, PpoSettings) else train_sb3_ppo(asked, chosen)


def run(setup: Setup, name: str, seed: int) -> dict[str, Any]:
    chosen = setup.settings()[name]
    with tempfile.TemporaryDirectory() as folder, single_thread():
        asked = TrainingRun(task=setup.task, sigma=setup.sigma, out=Path(folder) / "run", seed=seed)
        began = time.process_time()
        policy = train_with(asked, chosen)
        seconds = time.process_time() - began
        noise = Noise.of(setup.sigma)
        played = play(Plan(task=setup.task, policy=policy, noise=noise, n_episodes=setup.episodes, seed=seed))
    return {
        "task": setup.name,
        "setting": name,
        "seed": seed,
        "mean": float(played.returns.mean()),
        "certified": [float(value) for value in certify(played, setup.budgets).lower],
        "processor_seconds": round(seconds, 1),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Return a table for every task that was trained."""
    parts = []
    for task, setup in SETUPS.items():
        lines = [
            _line(name, [row for row in rows if (row["task"], row["setting"]) == (task, name)])
            for name in setup.settings()
        ]
        heads = [f"{task}, sigma {setup.sigma:g}", "seeds", "median mean"]
        heads += [f"certified at B = {one:g}" for one in setup.budgets]
        if any(lines):
            parts.append(Table([*heads, "processor s"], [line for line in lines if line]).markdown())
    return "\n\n".join(part.rstrip("\n") for part in parts)


def _line(name: str, own: list[dict[str, Any]]) -> list[str]:
    if not own:
        return []
    mean = f"{statistics.median(row['mean'] for row in own):.1f}"
    cells = [_spread(list(values)) for values in zip(*(row["certified"] for row in own), strict=True)]
    seconds = f"{statistics.median(row['processor_seconds'] for row in own):.0f}"
    return [name, str(len(own)), mean, *cells, seconds]


def _spread(values: list[float]) -> str:
    low, middle, high = (certified(one, 1) for one in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SETUPS, help="run the trainings of this task")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/training.md; nothing is run")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = read_json(RESULTS)["rows"] if RESULTS.is_file() else []
    if arguments.write:
        put(PAGE, "ablation", table(rows))
        return
    done = {(row["task"], row["setting"], row["seed"]) for row in rows}
    kept = [setup for task, setup in SETUPS.items() if arguments.only in (None, task)]
    for seed, setup in product(SEEDS, kept):
        for name in setup.settings():
            if (setup.name, name, seed) not in done:
                rows.append(run(setup, name, seed))
                print(rows[-1], flush=True)
                facts = {task: one.facts() for task, one in SETUPS.items()}
                content = {"schema": 2, "episodes": N_EPISODES, "setups": facts, "rows": rows, "versions": versions()}
                write_json(RESULTS, content)


if __name__ == "__main__":
    main()
