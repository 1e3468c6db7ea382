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
from surefoot.provenance import install_command, sha256

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

INPUT_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


class Onnx(nn.Module):
    """A model of onnxruntime; the session is opened when it is first needed, in every process once."""

    def __init__(self, content: bytes, weights: dict[str, bytes]) -> None:
        super().__init__()
        self.content = content
        self.weights = weights
        # Of several inputs: which numbers of an observation each is given.
        self.columns: dict[str, tuple[int, int]] = {}
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
        """Return the first output; a model that was exported for one row, or without rows, is given one at a time."""
        session = self.open_session()
        sources = session.get_inputs()
        target = session.get_outputs()[0]
        rows = seen.detach().cpu().numpy()
        shape = sources[0].shape
        has_rows = len(shape) > 1
        n_parts = 1
        if not has_rows or shape[0] == 1:
            n_parts = len(rows)
        answers = []
        for part in np.split(rows, n_parts):
            given = {}
            for source in sources:
                columns = part
                if self.columns:
                    begin, end = self.columns[source.name]
                    columns = part[:, begin:end]
                if not has_rows:
                    columns = columns[0]
                given[source.name] = columns.astype(INPUT_TYPES[source.type])
            (answer,) = session.run([target.name], given)
            answers.append(np.atleast_1d(answer) if has_rows else np.atleast_1d(answer)[None])
        return torch.from_numpy(np.concatenate(answers))


def read_onnx(path: Path, spaces: Spaces) -> Policy:
    """Read an ONNX file as a policy over its own observation shape, by default that of ``spaces``."""
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
            f"ONNX agents need onnxruntime, which is not installed; install it with: {install_command('onnx')}"
        ) from error
    except Exception as error:
        raise InputError(f"{path} is not an ONNX model that onnxruntime can run: {_one_line(error)}") from error
    odd = not inputs or any(one.type not in INPUT_TYPES for one in inputs)
    if not odd and len(inputs) > 1:
        inner.columns = _locate_columns(inputs, spaces)
        odd = not inner.columns
    if odd:
        got = ", ".join(f"{one.name} {one.type}" for one in inputs) or "none"
        raise InputError(
            f"{path} must have one input, rows of float observations, or one for each part of the environment's, by "
            f"their names, got {got}; make an agent with memory a surefoot.Policy"
        )
    if inner.columns:
        return spaces.shape
    shape = inputs[0].shape or [None]
    if len(shape) == 1:
        # Without rows: the policies of many robots take one observation.
        return tuple(shape) if isinstance(shape[0], int) else spaces.shape
    first, *rest = shape
    if isinstance(first, int) and first != 1:
        raise InputError(f"{path} takes {first} rows only; export it with a dynamic batch axis, or for one row")
    if not all(isinstance(length, int) for length in rest):
        return spaces.shape
    return tuple(rest)


def _locate_columns(inputs: Any, spaces: Spaces) -> dict[str, tuple[int, int]]:
    """Return which numbers of an observation in parts each input is given, by its name; nothing if they do not fit."""
    columns = {}
    begin = 0
    for name, size in spaces.parts or ():
        columns[name] = (begin, begin + size)
        begin += size
    lengths = {one.name: one.shape[-1] for one in inputs if len(one.shape) in (1, 2)}
    fits = columns.keys() == lengths.keys() and len({len(one.shape) for one in inputs}) == 1
    for name, length in lengths.items():
        first, last = columns.get(name, (0, 0))
        fits = fits and (not isinstance(length, int) or length == last - first)
    return columns if fits else {}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
