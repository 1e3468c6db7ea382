"""From names to a finished run: whom to play, where to keep it, what to leave behind."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surefoot.agents.sb3 import read as sb3
from surefoot.agents import files as zoo
from surefoot.proof.query import Answer, answer
from surefoot.episodes import Episodes, parted_sigma
from surefoot.errors import InputError
from surefoot.files import read_json, safe_name, sha256, write_json, versions
from surefoot.proof.norms import Norm
from surefoot.play.loop import Plan, Progress, play
from surefoot.agents.policies import Policy, from_callable
from surefoot.runs.taped_episode import attacked_plan, record_replay
from surefoot.runs.finish import leave_certificate
from surefoot.report.page import leave_report
from surefoot.report.sentences import headline_budget
from surefoot.runs.folder import RunFolder
from surefoot.play.tasks import Task, find_task
from surefoot.proof.certificate import ThreatCertificate


@dataclass(frozen=True)
class Questions:
    """What is asked of the episodes, settled before they are played."""

    budgets: Sequence[float]
    confidence: float = 0.95
    method: str | None = None
    step: float = 1.0
    shared_by: int | None = None
    per_step: bool = False
    thresholds: Sequence[float] = ()
    quantiles: Sequence[float] = ()
    norm: Norm | None = None

    def answer(self, episodes: Episodes) -> Answer:
        """Certify."""
        rest = (self.method, self.step, self.shared_by, self.per_step, self.thresholds, self.quantiles, self.norm)
        return answer(episodes, self.budgets, self.confidence, *rest)

    def check(self, task: Task, sigma: float) -> None:
        """Raise now what would otherwise be raised after hours of play."""
        floor, ceiling = task.floor, task.ceiling
        probe = [floor] if ceiling is None else [floor, ceiling]
        facts = {"method": task.method, "rewards": task.rewards, "discount": task.discount}
        tried = Episodes.of(probe, sigma=sigma, floor=floor, ceiling=ceiling, **facts)
        self.answer(replace(tried, gains=np.zeros((1, task.limit))) if self.per_step else tried)


def rollout(
    task: str | Task,
    agent: Any,
    *,
    sigma: float | Sequence[float],
    episodes: int = 10_000,
    seed: int = 0,
    device: str = "cpu",
    workers: int = 1,
    slots: int | None = None,
    progress: Progress | None = None,
) -> Episodes:
    """Play ``episodes`` episodes of a smoothed agent and return the record, ready to be certified.

    ``task``     a task's name, or a Task (``surefoot.task_of_environment`` makes one of any Gymnasium id)
    ``agent``    a shipped name, a path, a Stable-Baselines3 model or zip, a Policy, or a function of one observation
    ``sigma``    standard deviation of the noise on every new observation, in the observation's units, or one for
                 each feature; budgets then count the offset of feature i divided by sigma_i / (the least sigma)
    ``workers``  processes to play with; they do not change the results
    """
    task = find_task(task) if isinstance(task, str) else task
    least, features = parted_sigma(sigma)
    plan = Plan(task, find_agent(agent, task), least, episodes, seed, find_device(device), slots, features=features)
    return play(plan, workers=workers, progress=progress)


def find_agent(agent: Any, task: Task, *, trust_pickle: bool = False) -> Policy:
    """Turn whatever names or is an agent into a policy that fits the task, or say why it does not."""
    if isinstance(agent, Policy):
        return agent
    if isinstance(agent, str | Path):
        if not str(agent).endswith(".zip"):
            return zoo.load(str(agent))
        policy = sb3.read_zip(agent, trust_pickle=trust_pickle, action_space=_actions_of(task))
        return sb3.fit_to(policy, task.shape)
    if hasattr(agent, "policy") and hasattr(agent, "predict") and hasattr(agent, "observation_space"):
        policy = sb3.from_model(agent)
        sb3.check_actions(policy, _actions_of(task))
        return sb3.fit_to(policy, task.shape)
    if callable(agent):
        return from_callable(agent, shape=task.shape, choices=task.choices, frames=task.frames)
    raise InputError(
        "agent must be a name, a path, an SB3 model, a Policy or a function of one observation, "
        f"got {type(agent).__name__}"
    )


def _actions_of(task: Task) -> Any:
    opened = task.open()
    opened.close()
    return opened.action_space


def shipped_agent(task: Task, sigma: float) -> str:
    """Return the name of the agent that is shipped for a task and a sigma, or say that there is none."""
    name = f"{task.name}-s{sigma:g}"
    if name not in zoo.shipped():
        there = ", ".join(other for other in zoo.shipped() if other.startswith(f"{task.name}-")) or "none"
        raise InputError(
            f"no agent is shipped for {task.name} at sigma {sigma:g}; name one with --agent (there: {there})"
        )
    return name


def find_device(name: str) -> str:
    """Return "cpu" or "cuda", resolving "auto"."""
    if name not in {"auto", "cpu", "cuda"}:
        raise InputError(f"device must be auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but torch sees no CUDA device; use --device cpu")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def run_name(plan: Plan) -> str:
    """Return the name of a run's folder: all that usually differs between runs."""
    agent = plan.policy.name if plan.policy.name.startswith(plan.task.name) else f"{plan.task.name}-{plan.policy.name}"
    where = "-cuda" if plan.device == "cuda" else ""
    name = (
        f"{agent}-sigma{_noise_name(plan)}-seed{plan.seed}-n{plan.episodes}{where}{'-steps' if plan.per_step else ''}"
    )
    name += "" if plan.task.discount is None else f"-discount{plan.task.discount:g}"
    return safe_name(name)


def _noise_name(plan: Plan) -> str:
    if plan.features is None:
        return f"{plan.sigma:g}"
    shown = "_".join(f"{sigma:g}" for sigma in plan.features[:8])
    return shown if len(plan.features) <= 8 else f"{shown}_{sha256(repr(plan.features).encode())[:12]}"


def certified_run(
    plan: Plan,
    questions: Questions,
    folder: Path,
    *,
    workers: int = 1,
    progress: Progress | None = None,
    command: str | None = None,
) -> Answer:
    """Play what is not yet played, certify, and leave episodes, certificate, figure, facts and page in ``folder``.

    ``command`` is what somebody typed to get this; the page shows it to those who want to repeat it.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    questions.check(plan.task, plan.sigma)
    began = time.monotonic()
    with RunFolder(folder, plan.setup()).opened() as store:
        reused = store.record.exists()
        resumed = reused or bool(store.finished())
        episodes = store.recorded(lambda place: play(plan, workers=workers, store=place, progress=progress))
        played = time.monotonic()
        certificate = questions.answer(episodes)
        figure = leave_certificate(certificate, folder, plan.task.blind)
        ended = time.monotonic()
        unseen = record_replay(plan, _attacked(plan, certificate), folder)
        play_facts = {
            "versions": versions(),
            "wall_seconds": round(ended - began, 3),
            "play_seconds": round(played - began, 3),
            "workers": workers,
        }
        write_json(
            folder / "run.json",
            {
                "schema": 1,
                "agent_sha256": plan.policy.sha256 or None,
                **(_facts_of_play(folder / "run.json", play_facts) if reused else play_facts),
                "resumed": resumed,
                "certified_with": versions(),
                "certify_seconds": round(ended - played, 3),
                "figure": figure,
                "step": questions.step,
                "blind": None if plan.task.blind is None else asdict(plan.task.blind),
                "replay": unseen,
                "command": command,
            },
        )
        leave_report(folder, certificate)
    return certificate


def _attacked(plan: Plan, certificate: Answer) -> Plan | None:
    """Return an attack to show beside the quiet episode; none where the budget is not that of one episode."""
    if isinstance(certificate, ThreatCertificate):
        return None
    return attacked_plan(plan, headline_budget(certificate))


def _facts_of_play(path: Path, keys: Iterable[str]) -> dict[str, Any]:
    """Return what the run that played has written down; None for what it did not live to write."""
    written = read_json(path) if path.exists() else {}
    return {key: written.get(key) for key in keys}
