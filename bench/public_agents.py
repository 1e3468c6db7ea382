"""What ``surefoot train`` makes in minutes, against public agents at the same sigma.

    python -m bench.public_agents --public DIR             # train and certify; DIR holds agents of RL Baselines3 Zoo
    python -m bench.public_agents --public DIR --steps 1500000 400000    # however long that takes
    python -m bench.public_agents --public DIR --time 9m --jobs 16 --only-train --out runs/mine
    python -m bench.public_agents --public DIR --jobs 16 --only-certify --out runs/mine
    python -m bench.public_agents --public DIR --seed 1 --only Pendulum-v1 --out runs/again    # another seed
    python -m bench.public_agents --write                  # put the table into docs/training.md

Sigma is where the public agent loses about a tenth of its return. Every agent is trained with the defaults, in one
process with one thread: from scratch, and from the public agent (``--init-from``). All are certified next to the public
one, with episodes that training has not seen, and next to the best sequence of actions that ignores observations.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from surefoot.agents.files import load_card
from surefoot.api.setup import resolve_agent
from surefoot.cli.options import parse_minutes
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.noise import Noise
from surefoot.play.baseline import find_baseline
from surefoot.play.environments import make_task
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.task import Task
from surefoot.play.workers import Processes
from surefoot.proof.query import certify
from surefoot.provenance import versions

PUBLIC = "public"
SCRATCH = "from scratch"
STARTED = "from the public agent"
ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "bench" / "results" / "public_agents.json", ROOT / "docs" / "training.md"


class Landed(gymnasium.RewardWrapper[Any, Any]):
    """LunarLander's return as success: it pays exactly 100 for coming to rest."""

    def reward(self, reward: Any) -> float:
        """Return 1 for coming to rest, else 0."""
        return float(reward == 100)


@dataclass(frozen=True)
class Case:
    """An environment, the sigma, and the agent to be better than: a folder of the public ones, or one of ours.

    ``taught``    whether an agent is also trained that starts from the public one
    """

    env: str
    sigma: float
    public: str | None = None
    clip: tuple[float, float] | None = None
    landed: bool = False
    taught: bool = False

    @property
    def options(self) -> list[str]:
        """What ``surefoot train`` is told of the environment."""
        named = ["--env", self.env, "--sigma", f"{self.sigma:g}", "--for-budget", f"{self.sigma:g}"]
        if self.clip is None:
            return named
        low, high = self.clip
        return [*named, "--wrapper", self._clip_wrapper, f"--reward-range={low:g},{high:g}"]

    @property
    def _clip_wrapper(self) -> str:
        assert self.clip is not None
        return f'ClipReward={{"min_reward": {self.clip[0]:g}, "max_reward": {self.clip[1]:g}}}'

    def task(self) -> Task:
        """Return what is certified."""
        if self.landed:
            return make_task(self.env, floor=0, ceiling=1, wrappers=[Landed])
        if self.clip is not None:
            return make_task(self.env, reward_range=self.clip, wrappers=[self._clip_wrapper])
        return make_task(self.env)

    def starts(self, public: Path) -> dict[str, list[str]]:
        """Return what ``surefoot train`` is told besides, by how the training starts."""
        starts: dict[str, list[str]] = {SCRATCH: []}
        if self.taught:
            starts[STARTED] = ["--init-from", str(self.agent(public))]
        return starts

    def key(self, start: str) -> str:
        """Return the name in the results of the training that starts like this."""
        return f"{self.env} {start}"

    def folder(self, out: Path, start: str) -> Path:
        """Return the folder of the agent whose training starts like this."""
        return out / "agents" / self.key(start).replace(" ", "-")

    def agent(self, folder: Path) -> str | None:
        """Return the path or name of the agent to be better than."""
        if self.public is None or "/" not in self.public:
            return self.public
        return str(folder / self.public)


CASES = (
    Case("CartPole-v1", 0.08, "ppo/CartPole-v1_1"),
    Case("Acrobot-v1", 0.2, "ars/Acrobot-v1_1"),
    Case("MountainCar-v0", 0.003, "dqn/MountainCar-v0_1"),
    Case("Pendulum-v1", 0.12, "a2c/Pendulum-v1_1"),
    Case("LunarLander-v3", 0.05, "ppo/LunarLander-v2_1", clip=(-100, 100), landed=True, taught=True),
    Case("LunarLanderContinuous-v3", 0.05, clip=(-100, 100), landed=True),
    Case("BipedalWalker-v3", 0.006, "a2c/BipedalWalker-v3_1", clip=(-1, 1), taught=True),
    Case("HalfCheetah-v5", 0.05, "HalfCheetah-v5-s0.2", clip=(-1, 10)),
    Case("Hopper-v5", 0.007, "trpo/Hopper-v3_1", clip=(0, 10), taught=True),
    Case("Walker2d-v5", 0.02, clip=(0, 10)),
    Case("Swimmer-v5", 0.33, "ppo/Swimmer-v3_1", clip=(-1, 1), taught=True),
)


def train_all(cases: Sequence[Case], public: Path, limits: dict[str, list[str]], out: Path) -> None:
    """Train every agent at the same time, each in a folder of its own below ``out``; ``limits``: when each ends."""
    running = {}
    for case in cases:
        for start, more in case.starts(public).items():
            folder = case.folder(out, start)
            words = ["train", *case.options, *more, *limits[start], "--device", "cpu", "--quiet", "--out", str(folder)]
            folder.parent.mkdir(parents=True, exist_ok=True)
            log = folder.with_suffix(".log").open("w")
            one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
            running[case.key(start)] = subprocess.Popen(
                [sys.executable, "-m", "surefoot", *words], stdout=log, stderr=log, env=one_thread
            )
    for key, process in running.items():
        if process.wait() != 0:
            print(key, "failed", flush=True)


def trained_in(cases: Sequence[Case], public: Path, out: Path) -> dict[str, dict[str, Any]]:
    """Return what the cards of all agents below ``out`` say of their training."""
    trained = {}
    for case in cases:
        for start in case.starts(public):
            folder = case.folder(out, start)
            if not (folder / "agent.json").exists():
                continue
            card = load_card(str(folder))["training"]
            # Without the folders of the machine.
            command = re.sub(r" --out \S+", "", card["command"])
            command = re.sub(r"--init-from \S+", f"--init-from {case.agent(Path('rl-trained-agents'))}", command)
            trained[case.key(start)] = {
                "command": command,
                "validated": card.get("best_certified", card.get("best_validation")),
                "steps": card["steps"],
                "seconds": card["seconds"],
            }
    return trained


@dataclass(frozen=True)
class Job:
    """One block of one agent's episodes."""

    key: str
    plan: Plan
    block: int


def _run_job(jobs: Sequence[Job], index: int) -> Episodes:
    job = jobs[index]
    return play_block(job.plan, job.block)


def certify_all(
    cases: Sequence[Case], agents: dict[str, tuple[Case, str]], n_episodes: int, n_processes: int, found: dict[str, Any]
) -> None:
    """Certify agents by their keys, blocks of all of them in one pool; add what is certified to ``found``."""
    tasks = {case.env: case.task() for case in cases}
    jobs: list[Job] = []
    for key, (case, agent) in agents.items():
        task = tasks[case.env]
        plan = Plan(
            task=task,
            policy=resolve_agent(agent, task),
            noise=Noise.of(case.sigma),
            n_episodes=n_episodes,
            n_envs=min(32, task.blocks.n_envs),
            episodes_per_env=1,
        )
        jobs += [Job(key, plan, block) for block in range(plan.n_blocks)]
    # Short episodes first: a run that is stopped has most of the agents.
    jobs.sort(key=lambda job: job.plan.task.scoring.max_steps)
    blocks: dict[str, dict[int, Episodes]] = {}
    for index, block in Processes(n_processes).map_unordered(_run_job, jobs, range(len(jobs))):
        job = jobs[index]
        own = blocks.setdefault(job.key, {})
        own[job.block] = block
        if len(own) == job.plan.n_blocks:
            case = agents[job.key][0]
            found[job.key] = describe_episodes([own[number] for number in sorted(own)], case)
            print(job.key, found[job.key], flush=True)


def measure_baselines(cases: Sequence[Case], n_processes: int, found: dict[str, Any]) -> None:
    """Add the open-loop baselines of environments that ``found`` lacks."""
    for case in cases:
        if case.env not in found:
            baseline = find_baseline(case.task(), workers=n_processes)
            found[case.env] = {"mean": baseline.mean, "error": baseline.sem, "what": baseline.what}
            print(case.env, found[case.env], flush=True)


def describe_episodes(blocks: Sequence[Episodes], case: Case) -> dict[str, Any]:
    """Return mean and certified values of all episodes."""
    first = blocks[0]
    returns = np.concatenate([block.returns for block in blocks])
    played = Episodes.from_returns(returns, sigma=first.sigma, floor=first.floor, ceiling=first.ceiling)
    lower = certify(played, (0.0, case.sigma, 2 * case.sigma)).lower
    error = float(returns.std() / np.sqrt(len(returns)))
    return {"episodes": len(returns), "mean": float(returns.mean()), "error": error, "lower": lower.tolist()}


def table(results: dict[str, Any]) -> str:
    """Return the table of docs/training.md."""
    # Not where agents are trained: they need matplotlib.
    from study.tables import Table, certified

    rows = []
    for case in CASES:
        for key in sorted(results["certified"], key=lambda key: not key.endswith(" public")):
            env, _, start = key.partition(" ")
            if env != case.env:
                continue
            label = f"`{case.public}`"
            steps = ""
            if start != "public":
                label = start
                facts = results["trained"][key]
                steps = f"{facts['steps'] / 1e6:.2f} million, {facts['seconds']:.0f} s"
            measured = results["certified"][key]
            values = [certified(value, 2 if case.landed else 1) for value in measured["lower"]]
            mean = f"{measured['mean']:.2f} ± {measured['error']:.2f}"
            n_episodes = f"{measured['episodes']:,}"
            baseline = f"{results['baselines'][case.env]['mean']:.{2 if case.landed else 1}f}"
            rows.append([case.env, f"{case.sigma:g}", label, steps, n_episodes, mean, *values, baseline])
    heads = ["environment", "sigma", "agent", "training", "episodes", "mean, no attack"]
    heads += ["B = 0", "B = sigma", "B = 2 sigma", "open loop"]
    return Table(heads, rows).markdown().rstrip("\n")


def main() -> None:
    """Train, certify, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public", type=Path, help="folder with agents, as rl-trained-agents has them")
    parser.add_argument("--time", type=parse_minutes, default=5.0, help="of every training (default: 5m)")
    parser.add_argument(
        "--steps", type=int, nargs=2, metavar=("SCRATCH", "STARTED"), help="steps of the trainings, instead of a time"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the trainings (default: 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes that certify (default: 2)")
    parser.add_argument("--episodes", type=int, default=2_000, help="of every certificate (default: 2000)")
    parser.add_argument("--only", nargs="*", help="environments (default: all)")
    parser.add_argument("--only-train", action="store_true", help="certify nothing yet")
    parser.add_argument(
        "--only-certify",
        action="store_true",
        help="what --only-train left in --out",
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "public-agents", help="for agents and results.json")
    parser.add_argument("--write", action="store_true", help="put the table into docs/training.md; nothing is run")
    arguments = parser.parse_args()
    if arguments.write:
        from study.agents_table import put

        put(PAGE, "public agents", table(read_json(RESULTS)))
        return
    began = time.monotonic()
    cases = [case for case in CASES if arguments.only is None or case.env in arguments.only]
    if not arguments.only_certify:
        limits = {start: ["--time", f"{arguments.time:g}m"] for start in (SCRATCH, STARTED)}
        if arguments.steps is not None:
            for start, steps in zip((SCRATCH, STARTED), arguments.steps, strict=True):
                limits[start] = ["--set", f"total_steps={steps}"]
        limits = {start: [*words, "--seed", str(arguments.seed)] for start, words in limits.items()}
        train_all(cases, arguments.public, limits, arguments.out)
        print("trained after", round(time.monotonic() - began), "s", flush=True)
    if arguments.only_train:
        return
    path = arguments.out / "results.json"
    results: dict[str, Any] = {"schema": 1, "trained": {}, "certified": {}, "baselines": {}}
    if path.exists():
        results = dict(read_json(path))
    results["trained"] |= trained_in(cases, arguments.public, arguments.out)
    results["versions"] = versions()
    agents: dict[str, tuple[Case, str]] = {}
    for case in cases:
        for start in case.starts(arguments.public):
            if case.key(start) in results["trained"]:
                agents[case.key(start)] = (case, str(case.folder(arguments.out, start)))
        public = case.agent(arguments.public)
        if public is not None:
            agents[case.key(PUBLIC)] = (case, public)
    # A run that was stopped goes on.
    missing = {key: agent for key, agent in agents.items() if key not in results["certified"]}
    try:
        certify_all(cases, missing, arguments.episodes, arguments.jobs, results["certified"])
        measure_baselines(cases, arguments.jobs, results["baselines"])
    finally:
        write_json(path, results)
        print(json.dumps(results["certified"]), "after", round(time.monotonic() - began), "s", flush=True)


if __name__ == "__main__":
    main()
