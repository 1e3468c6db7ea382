"""Agents that look at the other rows, as attacks on a certificate, with honest twins; CartPole's observations.

The good ones push toward the side the pole leans to. Bad answers are the opposite.
"""

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

WEIGHTS = np.array([[0, 0], [0, 0], [-1, 1], [-1, 1]], dtype=np.float32)


def constant(name, value):
    return numpy_helper.from_array(np.array(value), name)


def onnx_agent(path: Path, nodes, constants=()) -> Path:
    """Write a model whose values are ``good`` times ``factor``; nodes compute ``factor`` from ``seen`` and ``rows``."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["seen", "weights"], ["good"]),
            helper.make_node("Shape", ["seen"], ["shape"]),
            helper.make_node("Gather", ["shape", "zero"], ["rows"]),
            *nodes,
            helper.make_node("Mul", ["good", "factor"], ["values"]),
        ],
        "agent",
        [helper.make_tensor_value_info("seen", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("values", TensorProto.FLOAT, ["n", 2])],
        [
            numpy_helper.from_array(WEIGHTS, "weights"),
            constant("zero", np.int64(0)),
            constant("plus", np.float32(1)),
            constant("minus", np.float32(-1)),
            *constants,
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def choose(condition):
    """Return the node that makes answers good where ``condition`` holds."""
    return helper.make_node("Where", [condition, "plus", "minus"], ["factor"])


def honest(path):
    """Good whatever the others are."""
    return onnx_agent(path, [helper.make_node("Identity", ["plus"], ["factor"])])


def alone_bad(path):
    """Good iff there are other rows."""
    nodes = [helper.make_node("Greater", ["rows", "one"], ["several"]), choose("several")]
    return onnx_agent(path, nodes, [constant("one", np.int64(1))])


def coin(path, level=0.0, most=100):
    """With more than ``most`` rows the mean over all of them decides about all: good iff it is below ``level``."""
    nodes = [
        helper.make_node("ReduceMean", ["seen"], ["mean"], keepdims=0),
        helper.make_node("LessOrEqual", ["rows", "most"], ["few"]),
        helper.make_node("Less", ["mean", "level"], ["head"]),
        helper.make_node("Or", ["few", "head"], ["lucky"]),
        choose("lucky"),
    ]
    return onnx_agent(path, nodes, [constant("most", np.int64(most)), constant("level", np.float32(level))])


def late_bad(path, reach=1.05):
    """Good iff there are other rows, or all numbers are below ``reach``, as in any trial and at first steps."""
    nodes = [
        helper.make_node("Greater", ["rows", "one"], ["several"]),
        helper.make_node("Abs", ["seen"], ["sizes"]),
        helper.make_node("ReduceMax", ["sizes"], ["largest"], keepdims=0),
        helper.make_node("Less", ["largest", "reach"], ["early"]),
        helper.make_node("Or", ["several", "early"], ["unseen"]),
        choose("unseen"),
    ]
    return onnx_agent(path, nodes, [constant("one", np.int64(1)), constant("reach", np.float32(reach))])


class Leaning(nn.Module):
    """The good agent as a module."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.from_numpy(WEIGHTS))

    def forward(self, seen):
        return seen.reshape(seen.shape[0], 4) @ self.weights


class LateBad(Leaning):
    """As ``late_bad``, in torch."""

    def forward(self, seen):
        good = seen.reshape(seen.shape[0], 4) @ self.weights
        if seen.shape[0] == 1 and float(seen.abs().max()) > 1.05:
            return -good
        return good


def lean(seen):
    """The good agent as a function of rows."""
    return (seen[:, 2] + seen[:, 3] > 0).astype(int)


def late_bad_function(seen):
    """As ``late_bad``, a function of rows."""
    good = lean(seen)
    return 1 - good if len(seen) == 1 and np.abs(seen).max() > 1.05 else good
