"""A training run: what it is asked for, and its directory with curve, checkpoint, and the agent with its card."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surefoot.agents import files as zoo
from surefoot.agents.policies import Policy
from surefoot.episodes import checked_sigma
from surefoot.errors import InputError
from surefoot.files import read_npz, versions, write_npz, write_text
from surefoot.play.task import Task
from surefoot.train.settings import Facts

SCHEMA = 1
MOST = 2**40  # bytes: a checkpoint has a replay buffer, and is the work of the user who resumes it
CHECKPOINTS, REPEATS = "checkpoint*.npz", "repeat-*"

Arrays = dict[str, NDArray[Any]]
COLUMNS = ("step", "mean_return", "std_return", "exploration", "certified")


@dataclass
class Curve:
    """What validation has shown so far.

    Attributes:
        rows: Step, mean and standard deviation of the validation returns, exploration rate; where weights are chosen
            by certified value, that too.
        best: Highest mean return of a validation, or highest certified value.
        best_step: Step of the first validation with that mean, or of the last with that certified value.
        best_weights: Weights validated at that step.
        steps: Environment steps so far.
        seconds: Training time so far, over all resumed parts.
    """

    rows: list[tuple[float, ...]] = field(default_factory=list)
    best: float = -np.inf
    best_step: int = 0
    best_weights: Arrays = field(default_factory=dict)
    steps: int = 0
    seconds: float = 0.0

    def add(
        self, returns: NDArray[np.float64], exploration: float, weights: Arrays, certified: float | None = None
    ) -> float:
        """Add a validation at the current step and return its mean.

        Only a strictly better mean becomes the best; of equal certified values, which mean that nothing failed, the
        later is.
        """
        mean = float(returns.mean())
        if self.rows and (len(self.rows[-1]) == len(COLUMNS)) != (certified is not None):
            self.best = -np.inf  # resumed with another rule: the two kinds of values cannot be compared
        row = (self.steps, mean, float(returns.std()), round(exploration, 4))
        self.rows.append(row if certified is None else (*row, certified))
        if mean > self.best if certified is None else certified >= self.best:
            self.best, self.best_step = mean if certified is None else certified, self.steps
            self.best_weights = weights
        return mean

    def keep(self, returns: NDArray[np.float64], exploration: float, weights: Arrays) -> None:
        """Keep the weights of the current step whatever was kept before; the returns, if any, are of training."""
        self.best = -np.inf
        if len(returns):
            self.add(returns, exploration, weights)
        self.best_step, self.best_weights = self.steps, weights

    @property
    def best_mean(self) -> float:
        """The mean return of the best validation."""
        return next((row[1] for row in self.rows if row[0] == self.best_step), self.best)

    def as_csv(self) -> str:
        """Return the rows as a table."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS[: len(self.rows[0])] if self.rows else COLUMNS[:-1])
        writer.writerows(self.rows)
        return text.getvalue()


# Called after each validation with the steps so far, the steps in total, and what validation has shown so far.
Progress = Callable[[int, int, Curve], None]


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """What every trainer is asked for, in addition to the settings of its algorithm.

    Attributes:
        task: What to train on.
        sigma: Standard deviation of the noise on every new observation.
        out: An empty or new folder, or with ``resume`` one that holds a checkpoint.
        seed: Training seed.
        device: Where to learn; SB3's PPO learns fastest on a CPU, and does so.
        time_limit: Minutes of training, resumed parts included, over which the learning rate then falls: the same steps
            in another time give another agent. With the preset ``fast`` minutes until this part stops. DQN and DDPG
            have none.
        for_budget: The budget at which the certified value chooses the weights, where it does; None: twice sigma.
        resume: Whether to continue from the checkpoint in ``out``.
        preset: The name of the settings, for the model card.
        command: The command line, for the model card.
        progress: Called after each validation with steps so far, steps in total, and what validation has shown.

    Raises:
        InputError: If sigma or the time limit is out of range.
    """

    task: Task
    sigma: float
    out: Path
    seed: int = 0
    device: str = "cpu"
    time_limit: float | None = None
    for_budget: float | None = None
    resume: bool = False
    preset: str = ""
    command: str = ""
    progress: Progress | None = None

    def __post_init__(self) -> None:
        checked_sigma(self.sigma)
        if self.time_limit is not None and not self.time_limit > 0:
            raise InputError(f"the time limit must be > 0 minutes, got {self.time_limit}")

    @property
    def budget(self) -> float:
        """The budget at which the certified value chooses the weights."""
        return 2 * self.sigma if self.for_budget is None else self.for_budget

    def folder(self) -> TrainingFolder:
        """Claim the folder to write to."""
        return TrainingFolder(self.out, resume=self.resume)

    def card(self, algorithm: str, settings: Facts, **more: Any) -> dict[str, Any]:
        """Return what the model card says: task, sigma, and how the agent was trained."""
        training = {"algorithm": algorithm, "preset": self.preset, "settings": settings.facts(), **more}
        training |= {"seed": self.seed, "device": self.device, "command": self.command}
        return {"task": self.task.name, "sigma": self.sigma, "training": training}


class TrainingFolder:
    """Where one training run writes.

    Args:
        path: An empty or new folder, or with ``resume`` one that holds a checkpoint.
        resume: Whether the caller will ``load`` that checkpoint.

    Raises:
        InputError: If the folder holds something else, or cannot be written to.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        _claim(path, resume)
        self.path, self.curve = path, Curve()
        self._began = time.monotonic()

    def save(self, header: Mapping[str, Any], **parts: Arrays) -> None:
        """Write the curve and a checkpoint.

        Args:
            header: What the trainer needs in addition to arrays, as JSON data.
            parts: Arrays by file (``checkpoint_a`` is written to ``checkpoint-a.npz``). The best weights go into the
                first, which is written last: parts that are older or newer than it, after a kill, are not loaded.
        """
        self.count_seconds()
        curve = self.curve
        shown = {
            "rows": curve.rows,
            "best": curve.best if np.isfinite(curve.best) else None,
            "best_step": curve.best_step,
        }
        stamp = {"schema": SCHEMA, **header, "curve": shown, "steps": curve.steps, "seconds": curve.seconds}
        first, *others = (name.replace("_", "-") for name in parts)
        arrays = dict(zip((first, *others), parts.values(), strict=True))
        arrays[first] = arrays[first] | {f"best.{name}": value for name, value in curve.best_weights.items()}
        for name in (*others, first):
            # Weights and noise do not compress.
            write_npz(self.path / f"{name}.npz", stamp, arrays[name], compress=False)
        write_text(self.path / "curve.csv", curve.as_csv())

    def load(self) -> tuple[dict[str, Any], dict[str, Arrays]]:
        """Read the checkpoint into ``curve`` and return the header and the parts that belong together, by file."""
        first, *others = sorted(self.path.glob(CHECKPOINTS))
        header, arrays = read_npz(first, "checkpoint", most=MOST)
        if header.get("schema") != SCHEMA:
            raise InputError(f"{first} is a checkpoint of another task or version; choose another --out")
        shown = header["curve"]
        self.curve = Curve(
            rows=[tuple(row) for row in shown["rows"]],
            best=-np.inf if shown["best"] is None else shown["best"],
            best_step=shown["best_step"],
            best_weights=under(arrays, "best."),
            steps=header["steps"],
            seconds=header["seconds"],
        )
        self._began = time.monotonic()
        read = {path.stem: read_npz(path, "checkpoint", most=MOST) for path in others}
        return header, {first.stem: arrays} | {name: part for name, (stamp, part) in read.items() if stamp == header}

    def finish(self, policy: Policy, card: Mapping[str, Any], *, keep_checkpoint: bool = False) -> None:
        """Write the agent, its model card and the curve.

        Args:
            policy: The agent.
            card: Task, sigma, and under ``training`` how it was trained; what the curve says is added here.
            keep_checkpoint: Whether training can be resumed from here with more steps.
        """
        self.count_seconds()
        curve = self.curve
        shown = {
            "steps": curve.steps,
            "seconds": round(curve.seconds, 1),
            "best_step": curve.best_step,
            **({"best_validation": curve.best_mean} if np.isfinite(curve.best) else {}),
            **({} if curve.best == curve.best_mean else {"best_certified": curve.best}),
        }
        write_text(self.path / "curve.csv", curve.as_csv())
        facts = {**card, "training": {**card["training"], **shown}, "curve": [list(row[:2]) for row in curve.rows]}
        zoo.save(policy, self.path / "agent", {**facts, "versions": versions()})
        if not keep_checkpoint:
            for path in self.path.glob(CHECKPOINTS):
                path.unlink()

    def spent(self, steps: int, total_steps: int, time_limit: float | None) -> float:
        """Return which fraction of the training is over: of the minutes where they are limited, else of the steps."""
        if time_limit is not None:
            return min(1.0, self.count_seconds() / (60 * time_limit))
        return min(1.0, steps / total_steps)

    def count_seconds(self) -> float:
        """Bring the training time up to date and return it."""
        now = time.monotonic()
        self.curve.seconds, self._began = self.curve.seconds + now - self._began, now
        return self.curve.seconds


def has_checkpoint(path: Path) -> bool:
    """Return whether a training run can be resumed in the folder."""
    return any(path.glob(CHECKPOINTS)) or any(path.glob(REPEATS))


def under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Return the arrays whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}


def optimizer_arrays(optimizer: torch.optim.Optimizer, prefix: str) -> Arrays:
    """Return Adam's moments as plain arrays."""
    states = optimizer.state_dict()["state"]
    return {f"{prefix}{i}.{name}": v.cpu().numpy() for i, state in states.items() for name, v in state.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, arrays: Arrays) -> None:
    """Restore what ``optimizer_arrays`` returned, without its prefix."""
    state: dict[int, dict[str, Any]] = {}
    for name, value in arrays.items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = torch.from_numpy(value)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def copy_agent(agent: str, target: Path, name: str | None = None, **changes: Any) -> None:
    """Copy an agent, with another name or other entries in its model card."""
    card, policy = zoo.load_card(agent) | changes, zoo.load(agent)
    facts = {key: value for key, value in card.items() if key not in {"schema", "name", "layout", "sha256"}}
    zoo.save(policy if name is None else replace(policy, name=name), target, facts)


def candidate(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the card of a chosen agent keeps of every training run it was chosen from."""
    training = card["training"]
    kept = ("preset", "seed", "steps", "seconds", "best_step", "best_validation", "trained_on")
    shown = {key: training[key] for key in kept if key in training}
    return {**shown, "selection": card.get("selection"), "curve": card["curve"]}


def identity(policy: Policy) -> dict[str, str]:
    """Return what a model card says of another agent."""
    return {"name": policy.name, "sha256": policy.sha256}


def _claim(path: Path, resume: bool) -> None:
    if (path / "agent.json").exists() and not any(path.glob(CHECKPOINTS)):
        raise InputError(f"{path} already holds a trained agent; choose another --out")
    if resume and not has_checkpoint(path):
        raise InputError(
            f"{path} contains no checkpoint to resume from; start without --resume, with an empty directory as --out"
        )
    if not resume and path.is_dir() and any(path.iterdir()):
        way = "give --resume to continue the training run there, or choose" if has_checkpoint(path) else "choose"
        raise InputError(f"{path} is not empty; {way} another --out")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror}; choose another --out") from error
