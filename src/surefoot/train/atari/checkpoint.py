"""Where a fast training stands, in three files of plain arrays; the replay buffer is left out.

A resumed training plays other episodes in fresh emulators and collects ``learning_starts`` steps with the network it
has before it learns on. Nothing learned is lost; frames are.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surefoot.errors import InputError
from surefoot.files import read_arrays, write_whole

SCHEMA = 1
# Each below 16 MiB: what acts and its first moments; the second moments and the average; the best so far.
FIRST, SECOND, BEST = "checkpoint-a.npz", "checkpoint-b.npz", "best.npz"


@dataclass
class Progressed:
    """How far a training has come and what validation has shown.

    ``rows``          step, mean and spread of the validation returns, exploration rate
    ``started_from``  name and SHA-256 of the agent whose weights it began with, if any
    """

    steps: int = 0
    seconds: float = 0.0
    rows: list[tuple[int, float, float, float]] = field(default_factory=list)
    best: float = -np.inf
    best_step: int = 0
    best_weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    started_from: dict[str, str] | None = None

    def as_csv(self) -> str:
        """Return the curve as a table."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("step", "mean_return", "std_return", "exploration"))
        writer.writerows(self.rows)
        return text.getvalue()


def save_fast(out: Path, learner: Any, so_far: Progressed) -> None:
    """Write everything needed to go on, but for the buffer."""
    header = {
        "schema": SCHEMA,
        "steps": so_far.steps,
        "seconds": so_far.seconds,
        "updates": learner.updates,
        "rows": so_far.rows,
        "best": so_far.best if so_far.rows else None,
        "best_step": so_far.best_step,
        "started_from": so_far.started_from,
    }
    stamp = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    states = [learner.optimizer.state.get(parameter, {}) for parameter in learner.online.parameters()]
    first = {"header": stamp} | _weights("online", learner.online) | _moments(states, "exp_avg")
    second = {"header": stamp} | _weights("average", learner.average) | _moments(states, "exp_avg_sq")
    first |= {f"step.{i}": state["step"].cpu().numpy() for i, state in enumerate(states) if state}
    best = {name: value.astype(np.float16) for name, value in so_far.best_weights.items()}
    for name, arrays in ((BEST, best), (SECOND, second), (FIRST, first)):
        _write(out / name, arrays)


def load_fast(out: Path, learner: Any, so_far: Progressed) -> None:
    """Put the learner and the progress where ``save_fast`` left them."""
    first, second = read_arrays(out / FIRST), read_arrays(out / SECOND)
    header = json.loads(first["header"].tobytes())
    fits = all(first[f"online.{name}"].shape == part.shape for name, part in learner.online.named_parts())
    if header.get("schema") != SCHEMA or not fits:
        raise InputError(f"{out} holds a checkpoint of another task or version; choose another --out")
    so_far.steps, so_far.seconds, learner.updates = header["steps"], header["seconds"], header["updates"]
    so_far.rows = [tuple(row) for row in header["rows"]]
    so_far.best = -np.inf if header["best"] is None else header["best"]
    so_far.best_step, so_far.started_from = header["best_step"], header.get("started_from")
    so_far.best_weights = {name: value.astype(np.float32) for name, value in read_arrays(out / BEST).items()}
    # Killed between two files: the average starts again from the weights, the second moments from nothing.
    whole = first["header"].tobytes() == second["header"].tobytes()
    _put(learner.online, first, "online")
    _put(learner.target, first, "online")
    _put(learner.average, second if whole else first, "average" if whole else "online")
    if whole:
        _put_moments(learner, first, second)


def claim(out: Path, resume: bool) -> None:
    """Make the folder ours, or say why it cannot be."""
    if resume and not all((out / name).exists() for name in (FIRST, SECOND, BEST)):
        raise InputError(f"{out} holds no checkpoint to go on from; start without --resume")
    if not resume and out.is_dir() and any(out.iterdir()):
        raise InputError(f"{out} is not empty; give --resume to go on from a checkpoint, or choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to {out}: {error.strerror}; choose another --out") from error


def _write(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    save: Any = np.savez
    write_whole(path, lambda file: save(file, **arrays))


def _weights(prefix: str, network: Any) -> dict[str, NDArray[Any]]:
    parts = network.named_parts()
    return {f"{prefix}.{name}": part.detach().cpu().contiguous().numpy() for name, part in parts}


def _moments(states: list[Any], key: str) -> dict[str, NDArray[Any]]:
    return {f"{key}.{i}": state[key].cpu().contiguous().numpy() for i, state in enumerate(states) if state}


@torch.no_grad()
def _put(network: Any, arrays: dict[str, NDArray[Any]], prefix: str) -> None:
    for name, part in network.named_parts():
        part.copy_(torch.from_numpy(arrays[f"{prefix}.{name}"]))


def _put_moments(learner: Any, first: dict[str, NDArray[Any]], second: dict[str, NDArray[Any]]) -> None:
    parameters = list(learner.online.parameters())
    if "step.0" not in first:
        return
    state = {
        i: {
            "step": torch.from_numpy(first[f"step.{i}"]),
            "exp_avg": _like(parameter, first[f"exp_avg.{i}"]),
            "exp_avg_sq": _like(parameter, second[f"exp_avg_sq.{i}"]),
        }
        for i, parameter in enumerate(parameters)
    }
    learner.optimizer.load_state_dict({"state": state, "param_groups": learner.optimizer.state_dict()["param_groups"]})
    # Loading replaces the tensor that the learner turns.
    learner.optimizer.param_groups[0]["lr"] = learner.rate


def _like(parameter: torch.Tensor, values: NDArray[Any]) -> torch.Tensor:
    """Return the values in the parameter's order of memory, which the fused optimiser insists on."""
    return torch.empty_like(parameter, requires_grad=False).copy_(torch.from_numpy(values))
