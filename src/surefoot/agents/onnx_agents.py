"""Agents in ONNX files, run by onnxruntime: data, not a program of Python; nothing is unpickled.

Weights may be in a second file, ``NAME.onnx.data``, as exporters write them, which is read here; a model that would
make onnxruntime open another one is rejected.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.agents.callables import probe_policy
from surefoot.agents.onnx_model import needs_data_file
from surefoot.agents.policies import Policy, Spaces
from surefoot.errors import InputError
from surefoot.files import MOST_ARRAYS, read_bytes, untrusted
from surefoot.provenance import sha256

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

INPUT_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


class Onnx(nn.Module):
    """A model of onnxruntime; the session is opened when it is first needed, in every process once."""

    def __init__(self, content: bytes, weights: dict[str, bytes]) -> None:
        super().__init__()
        self.content = content
        self.weights = weights
        self.session: InferenceSession | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A session cannot be sent to another process, which opens its own.
        return {**self.__dict__, "session": None}

    def open_session(self) -> InferenceSession:
        """Return the session."""
        if self.session is None:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            # One thread: the same bits whatever else runs, and nothing that a forked process would wait for.
            options.intra_op_num_threads = options.inter_op_num_threads = 1
            # Its log has names out of the model, escape codes and all.
            options.log_severity_level = 4
            # Else the bytes themselves choose a format, and the other one was not looked at.
            options.add_session_config_entry("session.load_model_format", "ONNX")
            for name, content in self.weights.items():
                options.add_external_initializers_from_files_in_memory([name], [content], [len(content)])
            self.session = onnxruntime.InferenceSession(self.content, options, providers=["CPUExecutionProvider"])
        return self.session

    def forward(self, seen: Tensor) -> Tensor:
        """Return the first output; a model that was exported for one row at a time is given one at a time."""
        session = self.open_session()
        source = session.get_inputs()[0]
        target = session.get_outputs()[0]
        rows = seen.detach().cpu().numpy().astype(INPUT_TYPES[source.type])
        n_parts = len(rows) if source.shape[0] == 1 else 1
        answers = []
        for part in np.split(rows, n_parts):
            (answer,) = session.run([target.name], {source.name: part})
            answers.append(np.atleast_1d(answer))
        return torch.from_numpy(np.concatenate(answers))


def read_onnx(path: Path, spaces: Spaces) -> Policy:
    """Read an ONNX file as a policy over its own observation shape.

    Args:
        path: The file.
        spaces: Of the environment: its actions, and the shape of observations where the file leaves it open.
    """
    weights = {}
    external = path.with_name(f"{path.name}.data")
    with untrusted(path, "ONNX model"):
        content = read_bytes(path, "ONNX model", MOST_ARRAYS)
    if needs_data_file(path, content):
        try:
            weights[external.name] = read_bytes(external, "file of weights of an ONNX model", MOST_ARRAYS)
        except FileNotFoundError as error:
            raise InputError(f"no file {external}, where {path.name} keeps its weights") from error
    inner = Onnx(content, weights)
    shape = _input_shape(path, inner, spaces)
    try:
        policy = probe_policy(inner, replace(spaces, shape=shape, n_stack=1), stochastic=False)
    except Exception as error:
        raise InputError(f"{path} does not answer as an agent of this environment: {_one_line(error)}") from error
    # The model names the second file, so its content and name are hashed with it.
    digest = sha256(len(content).to_bytes(8, "big"), content, *weights.values())
    return replace(policy, name=path.stem, sha256=digest)


def _input_shape(path: Path, inner: Onnx, spaces: Spaces) -> tuple[int, ...]:
    """Return the shape of one observation that the model takes, or say what is wrong with the model."""
    try:
        inputs = inner.open_session().get_inputs()
    except ImportError as error:
        raise InputError(
            "ONNX agents need onnxruntime, which is not installed; from a checkout: pip install '.[onnx]'"
        ) from error
    except Exception as error:
        raise InputError(f"{path} is not an ONNX model that onnxruntime can run: {_one_line(error)}") from error
    if len(inputs) != 1 or inputs[0].type not in INPUT_TYPES:
        got = ", ".join(f"{one.name} {one.type}" for one in inputs) or "none"
        raise InputError(
            f"{path} must have one input, rows of float observations, got {got}; make an agent with memory, or with "
            "several inputs, a surefoot.Policy"
        )
    first, *rest = inputs[0].shape or [None]
    if isinstance(first, int) and first != 1:
        raise InputError(f"{path} takes {first} rows only; export it with a dynamic batch axis, or for one row")
    if not rest or not all(isinstance(length, int) for length in rest):
        return spaces.shape
    return tuple(rest)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
