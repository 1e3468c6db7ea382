"""A training run and its directory.

``TrainingRun`` is what every trainer is asked for, ``TrainingCurve`` what validation has shown, ``TrainingFolder`` the
directory with curve, checkpoint, agent and model card, and ``Checkpoint`` what a resumed training begins with.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surefoot.agents import files as agent_files
from surefoot.agents.policies import Policy
from surefoot.errors import InputError
from surefoot.files import safe_name, untrusted, write_text, write_whole
from surefoot.noise import Noise
from surefoot.play.task import Task
from surefoot.play.tasks import TASKS
from surefoot.provenance import sha256, versions
from surefoot.train.settings import TrainingSettings

CHECKPOINT_SCHEMA = 1
CHECKPOINT = "checkpoint.pt"
REPEATS = "repeat-*"
CURVE_COLUMNS = ("step", "mean_return", "std_return", "exploration", "certified")

NamedArrays = dict[str, NDArray[Any]]
Networks = Mapping[str, torch.nn.Module]
Optimizers = Mapping[str, torch.optim.Optimizer]


@dataclass
class TrainingCurve:
    """What validation has shown so far."""

    # Step, mean and standard deviation of the validation returns, exploration rate; where weights are chosen by
    # certified value, that too.
    rows: list[tuple[float, ...]] = field(default_factory=list)
    best: float = -np.inf  # highest mean return of a validation, or highest certified value
    best_step: int = 0  # step of the first validation with that mean, or of the last with that certified value
    best_weights: NamedArrays = field(default_factory=dict)  # weights validated at that step
    steps: int = 0  # environment steps so far
    seconds: float = 0.0  # training time so far, over all resumed parts

    def add(
        self, returns: NDArray[np.float64], exploration: float, weights: NamedArrays, certified: float | None = None
    ) -> float:
        """Add a validation at the current step and return its mean.

        Only a strictly better mean becomes the best; of equal certified values, which mean that nothing failed, the
        later is.
        """
        mean = float(returns.mean())
        # The last column is there only where weights are chosen by certified value.
        row: tuple[float, ...] = (self.steps, mean, float(returns.std()), round(exploration, 4))
        if certified is not None:
            row = (*row, certified)
        if self.rows and len(self.rows[-1]) != len(row):
            # Resumed with another rule: the two kinds of values cannot be compared.
            self.best = -np.inf
        self.rows.append(row)
        if certified is None:
            value = mean
            is_best = value > self.best
        else:
            value = certified
            is_best = value >= self.best
        if is_best:
            self.best = value
            self.best_step = self.steps
            self.best_weights = weights
        return mean

    @property
    def best_mean(self) -> float:
        """The mean return of the best validation."""
        for row in self.rows:
            if row[0] == self.best_step:
                return row[1]
        return self.best

    def as_csv(self) -> str:
        """Return the rows as a table."""
        n_columns = len(self.rows[0]) if self.rows else len(CURVE_COLUMNS) - 1
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(CURVE_COLUMNS[:n_columns])
        writer.writerows(self.rows)
        return text.getvalue()


# Called after each validation with the steps so far, the steps in total, and what validation has shown so far.
TrainingProgress = Callable[[int, int, TrainingCurve], None]


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """What every trainer is asked for, in addition to the settings of its algorithm.

    Raises:
        InputError: If the time limit is out of range.
    """

    task: Task  # what to train on
    noise: Noise  # the noise on every new observation, and with PPO on every action
    out: Path  # an empty or new folder, or with ``resume`` one that holds a checkpoint
    seed: int = 0  # training seed
    device: str = "cpu"  # where to learn
    # Minutes of training, resumed parts included, over which the learning rate then falls: the same steps in another
    # time give another agent. DQN and DDPG have none.
    time_limit: float | None = None
    # The budget at which the certified value chooses the weights, where it does; None: twice sigma.
    for_budget: float | None = None
    resume: bool = False  # whether to continue from the checkpoint in ``out``
    preset: str = ""  # the name of the settings, for the model card
    command: str = ""  # the command line, for the model card
    # Called after each validation with steps so far, steps in total, and what validation has shown.
    progress: TrainingProgress | None = None
    imitated: Policy | None = None  # an agent whose actions on clean observations are imitated first; only PPO can

    def __post_init__(self) -> None:
        if self.time_limit is not None and not self.time_limit > 0:
            raise InputError(f"the time limit must be > 0 minutes, got {self.time_limit}")

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise; where features differ, the least of theirs."""
        return self.noise.sigma

    @property
    def budget(self) -> float:
        """The budget at which the certified value chooses the weights."""
        return 2 * self.noise.budget_sigma if self.for_budget is None else self.for_budget

    def open_folder(self) -> TrainingFolder:
        """Claim the folder to write to."""
        return TrainingFolder(self.out, resume=self.resume)

    def card(self, algorithm: str, settings: TrainingSettings, **more: Any) -> dict[str, Any]:
        """Return what the model card says: task, sigma, and how the agent was trained."""
        training = {
            "algorithm": algorithm,
            "preset": self.preset,
            "settings": settings.as_dict(),
            **more,
            "seed": self.seed,
            "device": self.device,
            "command": self.command,
        }
        if self.imitated is not None:
            training["init_from"] = {"name": self.imitated.name, "sha256": self.imitated.sha256}
        card = {"task": self.task.name, "sigma": self.sigma, **self.noise.setup, "training": training}
        if self.task.name not in TASKS:
            # So that an agent of any environment can be certified from its card alone.
            card["environment"] = {
                "env": self.task.environment,
                **self.task.made_with,
                "floor": self.task.scoring.floor,
                "ceiling": self.task.scoring.ceiling,
                "max_steps": self.task.scoring.max_steps,
            }
        return card


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    path: Path  # the file
    counters: Mapping[str, Any]  # what the trainer stored in addition to arrays, as JSON data
    arrays: NamedArrays  # the trainer's own arrays
    networks: Mapping[str, Any]  # weights by the names of networks
    moments: Mapping[str, Any]  # the state of Adam by the names of optimizers

    def restore(self, networks: Networks, optimizers: Optimizers) -> None:
        """Restore networks and optimizers, by the names that they were saved under.

        Raises:
            InputError: If the networks are of other sizes.
        """
        try:
            for name, network in networks.items():
                network.load_state_dict(self.networks[name])
        except (KeyError, RuntimeError) as error:
            raise InputError(
                f"{self.path.parent} contains a checkpoint of another task or version; give another out="
            ) from error
        for name, optimizer in optimizers.items():
            # Loading replaces a tensor that holds the learning rate, which a captured graph reads.
            rates = [group["lr"] for group in optimizer.param_groups]
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": self.moments[name], "param_groups": groups})
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate


class TrainingFolder:
    """Where one training run writes.

    Args:
        path: An empty or new folder, or with ``resume`` one that holds a checkpoint.
        resume: Whether the caller will ``load_checkpoint``.

    Raises:
        InputError: If the folder holds something else, or cannot be written to.
    """

    def __init__(self, path: Path, *, resume: bool) -> None:
        _claim_folder(path, resume)
        self.path = path
        self.curve = TrainingCurve()
        self._began = time.monotonic()

    def save_checkpoint(
        self,
        counters: Mapping[str, Any],
        networks: Networks,
        optimizers: Optimizers,
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Write the curve and a checkpoint, which replaces the one before.

        Args:
            counters: What the trainer needs in addition to arrays, as JSON data.
            networks: Networks by name.
            optimizers: Adam by name.
            arrays: Other arrays of the trainer.
        """
        self.count_seconds()
        curve = self.curve
        header = {
            "schema": CHECKPOINT_SCHEMA,
            "counters": dict(counters),
            "curve": curve.rows,
            "best": curve.best if np.isfinite(curve.best) else None,
            "best_step": curve.best_step,
            "steps": curve.steps,
            "seconds": curve.seconds,
        }
        content = {
            "header": json.dumps(header, allow_nan=False),
            "networks": {name: network.state_dict() for name, network in networks.items()},
            "moments": {name: optimizer.state_dict()["state"] for name, optimizer in optimizers.items()},
            "arrays": _as_tensors(arrays or {}),
            "best": _as_tensors(curve.best_weights),
        }
        write_whole(self.path / CHECKPOINT, lambda file: torch.save(content, file))
        write_text(self.path / "curve.csv", curve.as_csv())

    def load_checkpoint(self) -> Checkpoint:
        """Read the checkpoint, the curve into ``curve``."""
        path = self.path / CHECKPOINT
        with untrusted(path, "checkpoint"):
            content = torch.load(path, map_location="cpu", weights_only=True)
            header = json.loads(content["header"])
        if header.get("schema") != CHECKPOINT_SCHEMA:
            raise InputError(f"{self.path} contains a checkpoint of another task or version; give another out=")
        self.curve = TrainingCurve(
            rows=[tuple(row) for row in header["curve"]],
            best=-np.inf if header["best"] is None else header["best"],
            best_step=header["best_step"],
            best_weights=_as_arrays(content["best"]),
            steps=header["steps"],
            seconds=header["seconds"],
        )
        # The seconds of the earlier parts are in the curve; this part begins now.
        self._began = time.monotonic()
        return Checkpoint(
            path, header["counters"], _as_arrays(content["arrays"]), content["networks"], content["moments"]
        )

    def finish(self, policy: Policy, card: Mapping[str, Any], *, keep_checkpoint: bool = False) -> None:
        """Write the agent, its curve and its model card: the given one, and what the curve says under ``training``.

        ``keep_checkpoint`` leaves what training can be resumed from with more steps.
        """
        self.count_seconds()
        curve = self.curve
        training = {
            **card["training"],
            "steps": curve.steps,
            "seconds": round(curve.seconds, 1),
            "best_step": curve.best_step,
        }
        if np.isfinite(curve.best):
            training["best_validation"] = curve.best_mean
        if curve.best != curve.best_mean:
            training["best_certified"] = curve.best
        means = [list(row[:2]) for row in curve.rows]
        write_text(self.path / "curve.csv", curve.as_csv())
        # The checkpoint goes last: if the agent cannot be written, training can be resumed.
        facts = {**card, "training": training, "curve": means, "versions": versions()}
        agent_files.save(policy, self.path / "agent", facts)
        if not keep_checkpoint:
            (self.path / CHECKPOINT).unlink(missing_ok=True)

    def fraction_done(self, steps: int, total_steps: int, time_limit: float | None) -> float:
        """Return which fraction of the training is over: of the minutes where they are limited, else of the steps."""
        if time_limit is not None:
            return min(1.0, self.count_seconds() / (60 * time_limit))
        return min(1.0, steps / total_steps)

    def count_seconds(self) -> float:
        """Bring the training time up to date and return it."""
        now = time.monotonic()
        self.curve.seconds += now - self._began
        self._began = now
        return self.curve.seconds


def has_checkpoint(path: Path) -> bool:
    """Return whether a training run can be resumed in the folder."""
    return (path / CHECKPOINT).exists() or any(path.glob(REPEATS))


def _as_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _as_arrays(tensors: Mapping[str, torch.Tensor]) -> NamedArrays:
    return {name: tensor.numpy() for name, tensor in tensors.items()}


def short_name(task: Task) -> str:
    """Return the name of a task as a part of names of agents and folders, which may be pasted anywhere.

    What was changed about an environment is in the agent's card in full, and here as a few digits of a hash.
    """
    name = task.name
    if task.environment and task.name not in TASKS and task.name != task.environment:
        name = f"{task.environment}-{sha256(task.name.encode())[:6]}"
    return safe_name(name)


def copy_agent(agent: str, target: Path, name: str | None = None, **changes: Any) -> None:
    """Copy an agent, with another name or other entries in its model card."""
    card = agent_files.load_card(agent) | changes
    policy = agent_files.load(agent)
    if name is not None:
        policy = replace(policy, name=name)
    # What is said of the weights themselves is written anew.
    facts = {key: value for key, value in card.items() if key not in {"schema", "name", "layout", "sha256"}}
    agent_files.save(policy, target, facts)


def candidate(card: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the card of a chosen agent keeps of every training run it was chosen from."""
    training = card["training"]
    kept = ("preset", "seed", "steps", "seconds", "best_step", "best_validation", "trained_on")
    shown = {key: training[key] for key in kept if key in training}
    return {**shown, "selection": card.get("selection"), "curve": card["curve"]}


def _claim_folder(path: Path, resume: bool) -> None:
    """Make the folder, or raise InputError if it cannot be used."""
    if (path / "agent.json").exists() and not (path / CHECKPOINT).exists():
        raise InputError(f"{path} already holds a trained agent; give another out=")
    if resume and not has_checkpoint(path):
        raise InputError(
            f"{path} contains no checkpoint to resume from; start without resume=True, with an empty directory as out="
        )
    if not resume and path.is_dir() and any(path.iterdir()):
        if has_checkpoint(path):
            raise InputError(f"{path} is not empty; give resume=True to continue the training there, or another out=")
        raise InputError(f"{path} is not empty; give another out=")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror}; give another out=") from error
