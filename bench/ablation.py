"""What each ingredient of PPO brings to the certificate: one added at a time, the same number of steps, three seeds.

    python -m bench.ablation                    # run what bench/results/ablation.json lacks, the longest first
    python -m bench.ablation --jobs 16          # in so many processes with one thread each
    python -m bench.ablation --device cuda      # DQN learns on a GPU, which is seven times as fast
    python -m bench.ablation --only cartpole-1  # of one task
    python -m bench.ablation --out FILE         # begin with the results that are there, write all of them to FILE
    python -m bench.ablation --write            # put the tables into docs/training.md

The results are written after every training run, so a run that was stopped loses only what had not finished.

Trainings are short, so the tables show what is learned early. Above them is what the paper trains with, DQN.
Certified values are those of fresh episodes, not of the validation that chose the weights.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from study.agents_table import put
from study.tables import Table, certified
from surefoot.compute import single_thread
from surefoot.files import read_json, write_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.play.workers import Processes
from surefoot.proof.query import certify
from surefoot.provenance import versions
from surefoot.train.folder import TrainingRun
from surefoot.train.off_policy import train_off_policy
from surefoot.train.ppo import train_ppo
from surefoot.train.settings import DqnSettings, PpoSettings

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "bench" / "results" / "ablation.json", ROOT / "docs" / "training.md"
SEEDS, N_EPISODES = (0, 1, 2), 4_096
AnySettings = DqnSettings | PpoSettings


@dataclass(frozen=True)
class Setup:
    """What is trained, and what each row of its table adds to the settings of the row above it."""

    task: Task
    sigma: float
    budgets: tuple[float, ...]
    plain: PpoSettings
    added: dict[str, dict[str, Any]]
    others: dict[str, DqnSettings] = field(default_factory=dict)
    episodes: int = N_EPISODES

    @property
    def name(self) -> str:
        """The environment, without its wrappers."""
        return self.task.name.partition(" ")[0]

    def settings(self) -> dict[str, AnySettings]:
        """Return the settings of every row: what others train with, then what is added one at a time."""
        found: dict[str, AnySettings] = dict(self.others)
        current = self.plain
        for name, added in self.added.items():
            found[name] = current = replace(current, **added)
        return found

    def facts(self) -> dict[str, Any]:
        """Return what the results say of it, as JSON data."""
        others = {name: one.as_dict() for name, one in self.others.items()}
        facts = {"sigma": self.sigma, "budgets": self.budgets, "plain": self.plain.as_dict()}
        return facts | ({"others": others} if others else {})


CARTPOLE = Setup(
    task=get_task("cartpole-5"),
    sigma=0.3,
    budgets=(0.3, 0.6),
    plain=PpoSettings(
        total_steps=600_000,
        validations=3,
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
    others={"DQN as in the paper": DqnSettings()},
)
ONE_FRAME = replace(
    CARTPOLE,
    task=get_task("cartpole-1"),
    sigma=0.2,
    budgets=(0.2, 0.4),
    added={name.replace("five frames", "one frame"): one for name, one in CARTPOLE.added.items()},
    others={},
)
SETUPS = {setup.name: setup for setup in (CARTPOLE, ONE_FRAME)}


def gradient_steps(chosen: AnySettings) -> float:
    """Return about how many gradient steps a training takes, which is most of its time."""
    if isinstance(chosen, DqnSettings):
        return chosen.total_steps * chosen.gradient_steps / chosen.train_interval
    return chosen.epochs * chosen.minibatches


def run(setup: Setup, name: str, seed: int, device: str) -> dict[str, Any]:
    """Train and certify; a GPU is for DQN, whose time is counted by the clock there."""
    chosen = setup.settings()[name]
    device = device if isinstance(chosen, DqnSettings) else "cpu"
    clock = time.process_time if device == "cpu" else time.monotonic
    with tempfile.TemporaryDirectory() as folder, single_thread():
        asked = TrainingRun(
            task=setup.task, noise=Noise.of(setup.sigma), out=Path(folder) / "run", seed=seed, device=device
        )
        began = clock()
        policy = train_off_policy(asked, chosen) if isinstance(chosen, DqnSettings) else train_ppo(asked, chosen)
        seconds = clock() - began
        noise = Noise.of(setup.sigma)
        played = play(Plan(task=setup.task, policy=policy, noise=noise, n_episodes=setup.episodes, seed=seed))
    return {
        "task": setup.name,
        "setting": name,
        "seed": seed,
        "mean": float(played.returns.mean()),
        "certified": [float(value) for value in certify(played, setup.budgets).lower],
        "seconds": round(seconds, 1),
        "device": device,
        "versions": versions(),
    }


Job = tuple[str, str, int]  # task, setting, seed


def missing(rows: list[dict[str, Any]], only: str | None) -> list[Job]:
    """Return the training runs that have no result yet, the longest first."""
    done = {(row["task"], row["setting"], row["seed"]) for row in rows}
    kept = [setup for task, setup in SETUPS.items() if only in (None, task)]
    every = [(setup.name, name, seed) for seed, setup in product(SEEDS, kept) for name in setup.settings()]
    return sorted(set(every) - done, key=lambda job: (-gradient_steps(SETUPS[job[0]].settings()[job[1]]), job))


def _do(jobs: list[tuple[Job, str]], index: int) -> dict[str, Any] | None:
    (task, name, seed), device = jobs[index]
    try:
        return run(SETUPS[task], name, seed, device)
    except (RuntimeError, OSError, MemoryError):  # a GPU without memory left, for example: the others go on
        print(f"{task}, {name}, seed {seed} failed:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        return None


def measure(jobs: list[tuple[Job, str]], rows: list[dict[str, Any]], out: Path, n_processes: int) -> None:
    """Run the jobs, each on its device; write all results after every one of them; at the end say if some failed."""
    facts = {task: one.facts() for task, one in SETUPS.items()}
    failed = 0
    for _, row in Processes(n_processes).map_unordered(_do, jobs, range(len(jobs))):
        if row is None:
            failed += 1
            continue
        rows.append(row)
        print({key: value for key, value in row.items() if key != "versions"}, flush=True)
        write_json(out, {"schema": 3, "episodes": N_EPISODES, "setups": facts, "rows": rows})
    if failed:
        sys.exit(f"{failed} of {len(jobs)} training runs failed")


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
    seconds = f"{statistics.median(row['seconds'] for row in own):.0f}"
    seconds += " of a GPU" if own[0]["device"] == "cuda" else ""
    return [name, str(len(own)), mean, *cells, seconds]


def _spread(values: list[float]) -> str:
    low, middle, high = (certified(one, 1) for one in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SETUPS, help="run the trainings of this task")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="training runs at a time (default: 1)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where DQN and DDPG learn")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the results (default: bench/results/ablation.json)")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/training.md; nothing is run")
    arguments = parser.parse_args()
    begun = arguments.out if arguments.out.is_file() else RESULTS
    rows: list[dict[str, Any]] = read_json(begun)["rows"] if begun.is_file() else []
    if arguments.write:
        put(PAGE, "ablation", table(rows))
        return
    jobs = [(job, arguments.device) for job in missing(rows, arguments.only)]
    measure(jobs, rows, arguments.out, arguments.jobs)


if __name__ == "__main__":
    main()
