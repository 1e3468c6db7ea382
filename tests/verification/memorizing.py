"""An agent that knows the noise of one seed by heart: a table of answers, looked up by a hash of what it sees."""

import numpy as np
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from surefoot.agents.policies import Policy, Spaces
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan


class Cheat(nn.Module):
    """Balances by the true state, which an agent cannot see, and writes down what it saw and did."""

    def __init__(self):
        super().__init__()
        self.state = None
        self.seen = []
        self.done = []

    def forward(self, history):
        x, speed, angle, turning = self.state.unbind(1)
        push = (angle + 0.3 * turning + 0.02 * x + 0.05 * speed > 0).long()
        self.seen.append(history[:, 0].numpy().copy())
        self.done.append(push.numpy().copy())
        return nn.functional.one_hot(push, 2).float()


WEIGHTS = np.array([[12.9898, 78.233, 37.719, 93.9898]], dtype=np.float64).T
BALANCING = np.array([[0.02, 0.05, 1.0, 0.3]], dtype=np.float64).T
SLOTS = 2**24  # an episode with a collision is lost: what it sees afterward was not memorized


def slots_of(seen):
    """Return the place in the table: the fraction of a weighted sum, which differs for observations that differ."""
    spread = seen.astype(np.float64) @ WEIGHTS * 10.0
    return np.floor((spread - np.floor(spread))[:, 0] * SLOTS).astype(np.int64)


def memorize(task, noise, n_episodes, seed):
    """Return the table of answers that balances every episode of a run."""
    cheat = Cheat()
    run(cheat, task, noise, n_episodes, seed)
    table = np.zeros(SLOTS, dtype=np.int8)
    table[slots_of(np.concatenate(cheat.seen))] = np.concatenate(cheat.done)
    return table


def run(cheat, task, noise, n_episodes, seed):
    # Declared stochastic, so that no row is asked again alone: it answers the state, not what it is asked with.
    spaces = Spaces(shape=task.spaces.shape, n_actions=task.spaces.n_actions)
    policy = Policy(cheat, spaces, differentiable=False, stochastic=True)
    plan = Plan(task=task, policy=policy, noise=noise, n_episodes=n_episodes, seed=seed)

    def watch(step):
        cheat.state = step.observation.clone()

    for block in range(plan.n_blocks):
        play_block(plan, block, watch=watch)


class Faller(Cheat):
    """Does the opposite of what balances, by what it sees."""

    def forward(self, history):
        self.seen.append(history[:, 0].numpy().copy())
        push = 1 - (history[:, 0] @ torch.tensor(BALANCING, dtype=torch.float32) > 0).long().flatten()
        return nn.functional.one_hot(push, 2).float()


def sabotage(task, noise, n_episodes, seed):
    """Return the table of what is seen in a run in which every action is the wrong one."""
    cheat = Faller()
    run(cheat, task, noise, n_episodes, seed)
    table = np.zeros(SLOTS, dtype=np.int8)
    table[slots_of(np.concatenate(cheat.seen))] = 1
    return table


def write_onnx(path, table, *, balances=False):
    """Write a model that answers from the table, one row for itself: what an honest agent is, too.

    With ``balances`` it balances, but does the opposite where the table has a 1.
    """
    initializers = [
        numpy_helper.from_array(WEIGHTS * 10.0, "weights"),
        numpy_helper.from_array(np.array(float(SLOTS)), "n_envs"),
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array([1]), "axis"),
    ]
    nodes = [
        helper.make_node("Cast", ["seen"], ["precise"], to=TensorProto.DOUBLE),
        helper.make_node("MatMul", ["precise", "weights"], ["spread"]),
        helper.make_node("Floor", ["spread"], ["whole"]),
        helper.make_node("Sub", ["spread", "whole"], ["fraction"]),
        helper.make_node("Mul", ["fraction", "n_envs"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["wide"], to=TensorProto.INT64),
        helper.make_node("Squeeze", ["wide", "axis"], ["slot"]),
        helper.make_node("Gather", ["table", "slot"], ["answer"], axis=0),
    ]
    if balances:
        initializers.append(numpy_helper.from_array(BALANCING.astype(np.float32), "balancing"))
        initializers.append(numpy_helper.from_array(np.array(0, dtype=np.float32), "zero"))
        nodes += [
            helper.make_node("MatMul", ["seen", "balancing"], ["lean"]),
            helper.make_node("Greater", ["lean", "zero"], ["falls_right"]),
            helper.make_node("Squeeze", ["falls_right", "axis"], ["push"]),
            helper.make_node("Cast", ["answer"], ["known"], to=TensorProto.BOOL),
            helper.make_node("Xor", ["push", "known"], ["chosen"]),
        ]
    nodes.append(helper.make_node("Cast", ["chosen" if balances else "answer"], ["action"], to=TensorProto.INT64))
    graph = helper.make_graph(
        nodes,
        "agent",
        [helper.make_tensor_value_info("seen", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("action", TensorProto.INT64, ["rows"])],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def forget(table):
    """Return a table of the same size that knows nothing."""
    return torch.randint(0, 2, (table.size,), generator=torch.Generator().manual_seed(0)).numpy().astype(np.int8)
