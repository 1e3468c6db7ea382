"""Memory, networks and callables."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FrameStackObservation
from torch import nn

from surefoot.agents.memory import FrameStack, GRUWeights, Recurrent, gru_step
from surefoot.agents.networks import ACTIVATIONS, MLP, weights_hash
from surefoot.agents.policies import Policy, Spaces
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from toys import fixed, from_callable, pay_steps, toy_task


def frame(*values):
    return torch.tensor(values, dtype=torch.float32).unsqueeze(1)


ALL = torch.tensor(True)


def test_the_first_observation_fills_the_stack_and_the_oldest_goes_first():
    stack = FrameStack(3)
    memory = stack.advance(stack.empty(frame(1, 10)), frame(1, 10), episode_start=ALL.expand(2))
    assert memory[:, :, 0].tolist() == [[1, 1, 1], [10, 10, 10]]
    for newest, expected in (
        (frame(2, 20), [[1, 1, 2], [10, 10, 20]]),
        (frame(3, 30), [[1, 2, 3], [10, 20, 30]]),
        (frame(4, 40), [[2, 3, 4], [20, 30, 40]]),
    ):
        memory = stack.advance(memory, newest)
        assert memory[:, :, 0].tolist() == expected


def test_fresh_rows_are_refilled_and_only_they():
    stack = FrameStack(3)
    memory = stack.advance(torch.zeros(3, 3, 1), frame(1, 10, 100), episode_start=ALL.expand(3))
    pushed = stack.advance(memory, frame(2, 20, 200), episode_start=torch.tensor([False, True, False]))
    assert pushed[:, :, 0].tolist() == [[1, 1, 2], [20, 20, 20], [100, 100, 200]]


def test_a_memory_that_was_handed_out_does_not_change_later():
    given = torch.arange(6.0).view(2, 3, 1)
    before = given.clone()
    FrameStack(3).advance(given, frame(3, 4), episode_start=torch.tensor([True, False]))
    assert torch.equal(given, before)


def test_a_step_of_the_gru_is_torchs_with_its_gradient():
    """Also for large inputs, where sigmoid and tanh are flat."""
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(5, 7)
    for scale in (0.01, 1.0, 50.0):
        inputs = (scale * torch.randn(200, 5)).requires_grad_()
        state = torch.rand(200, 7) * 2 - 1
        ours, theirs = gru_step(GRUWeights.of_cell(cell), inputs, state), cell(inputs, state)
        torch.testing.assert_close(ours, theirs, atol=1e-6 * max(scale, 1), rtol=0)  # as sums are rounded
        found, expected = (torch.autograd.grad(after.square().sum(), inputs)[0] for after in (ours, theirs))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_step_of_the_gru_without_gradients_has_the_same_bits_and_leaves_its_arguments():
    """Without gradients results reuse the memory of what they replace."""
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(5, 7)
    inputs, state = torch.randn(200, 5), torch.rand(200, 7) * 2 - 1
    before = inputs.clone(), state.clone()
    expected = gru_step(GRUWeights.of_cell(cell), inputs, state).detach()
    with torch.inference_mode():
        found = gru_step(GRUWeights.of_cell(cell), inputs, state)
    assert torch.equal(found, expected)
    assert torch.equal(inputs, before[0])
    assert torch.equal(state, before[1])


def test_a_memory_that_was_played_with_can_be_attacked_by_gradients_later():
    """Weights are prepared at the first step, and tables of actions; runs without an attacker keep no gradients."""
    torch.manual_seed(0)
    memory = Recurrent(torch.nn.Identity(), torch.nn.GRUCell(5, 7), action_size=2)
    seen, action = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    with torch.inference_mode():
        expected = memory.advance(memory.empty(seen), seen, action)
    given = seen.clone().requires_grad_()
    found = memory.advance(memory.empty(seen), given, action)
    assert torch.equal(found.detach(), expected)
    [slope] = torch.autograd.grad(found.sum(), given)
    assert slope.abs().min() > 0


class Tape(gymnasium.Env):
    """Shows a fixed tape of observations; an episode has seven of them."""

    observation_space = Box(-np.inf, np.inf, (2, 3), np.float32)
    action_space = Discrete(2)

    def __init__(self):
        self.tape = iter(np.random.default_rng(0).normal(size=(100, 2, 3)).astype(np.float32))
        self.shown = []

    def _show(self):
        self.shown.append(next(self.tape))
        return self.shown[-1]

    def reset(self, *, seed=None, options=None):
        self.clock = 0
        return self._show(), {}

    def step(self, action):
        self.clock += 1
        return self._show(), 0.0, self.clock == 6, False, {}


@pytest.mark.parametrize("frames", [2, 5])
def test_the_stack_is_gymnasiums(frames):
    tape = Tape()
    theirs, ours = FrameStackObservation(tape, frames, padding_type="reset"), FrameStack(frames)
    mine = ours.empty(torch.zeros(1, 2, 3))
    for _ in range(4):
        stacked, over = theirs.reset()[0], False
        episode_start = torch.tensor([True])
        while not over:
            mine = ours.advance(mine, torch.from_numpy(tape.shown[-1]).unsqueeze(0), episode_start=episode_start)
            assert (mine[0].numpy() == stacked).all()
            episode_start = None
            stacked, _, over, *_ = theirs.step(0)


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_mlp_equals_torch(activation):
    names = {
        "relu": nn.ReLU,
        "tanh": nn.Tanh,
        "elu": nn.ELU,
        "leaky_relu": nn.LeakyReLU,
        "silu": nn.SiLU,
        "gelu": nn.GELU,
    }
    torch.manual_seed(0)
    theirs = nn.Sequential(nn.Flatten(), nn.Linear(6, 8), names[activation](), nn.Linear(8, 3))
    layers = [theirs[1], theirs[3]]
    ours = MLP([x.weight.detach().numpy() for x in layers], [x.bias.detach().numpy() for x in layers], activation)
    history = torch.randn(5, 2, 3)
    torch.testing.assert_close(ours(history), theirs(history))
    assert not any(parameter.requires_grad for parameter in ours.parameters())


def test_discrete_policies_take_the_best_and_continuous_ones_are_clipped():
    values = torch.tensor([[[0.0, 3.0, 2.0]], [[5.0, -5.0, 0.5]]])
    assert Policy(nn.Flatten(), Spaces(shape=(3,), n_actions=3)).act(values).tolist() == [1, 0]
    clipped = Policy(nn.Flatten(), Spaces(shape=(3,), n_actions=None, low=[-1.0], high=[1.0])).to("cpu")
    assert clipped.act(values).tolist() == [[0, 1, 1], [1, -1, 0.5]]
    assert Policy(nn.Flatten(), Spaces(shape=(3,), n_actions=None)).act(values).tolist() == values[:, 0].tolist()


def test_a_callable_sees_one_observation_or_its_frames():
    seen = []

    def watch(observation):
        seen.append(observation)
        return 1

    one = from_callable(watch, shape=(3,), n_actions=2)
    assert one.act(torch.zeros(4, 1, 3)).tolist() == [1, 1, 1, 1]
    assert one.name == "watch"
    assert one.sha256 == ""
    from_callable(watch, shape=(3,), n_actions=2, n_stack=5).act(torch.zeros(1, 5, 3))
    assert [x.shape for x in seen] == [(3,)] * 4 + [(5, 3)]


@pytest.mark.parametrize("answer", [0, 1, True, 1.0, np.int64(1), np.array(1), np.array([1]), np.float32(0)])
def test_a_callable_may_answer_in_many_ways(answer):
    assert (
        from_callable(lambda seen: answer, shape=(1,), n_actions=2).act(torch.zeros(3, 1, 1)).tolist()
        == [int(np.ravel(answer)[0])] * 3
    )


@pytest.mark.parametrize("answer", [2, -1, 0.5, float("nan"), None, "left", (1, None), [0, 1], np.zeros(3)])
def test_an_invalid_action_is_named(answer):
    policy = from_callable(lambda seen: answer, shape=(1,), n_actions=2)
    with pytest.raises(InputError, match="must choose an action from 0 to 1, got "):
        play(Plan(task=toy_task(fixed(2), pay_steps, ceiling=2.0), policy=policy, noise=Noise.of(0.1), n_episodes=3))


def test_the_hash_changes_with_every_bit():
    arrays = {"0.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "0.bias": np.ones(2, dtype=np.float32)}
    layout = {"kind": "mlp", "n_stack": 1}
    known = weights_hash(arrays, layout)
    assert known == weights_hash(dict(reversed(arrays.items())), dict(reversed(layout.items())))
    others = {known}
    for name, array in arrays.items():
        raw = array.tobytes()
        for bit in range(8 * len(raw)):
            flipped = bytearray(raw)
            flipped[bit // 8] ^= 1 << bit % 8
            changed = np.frombuffer(bytes(flipped), dtype=np.float32).reshape(array.shape)
            others.add(weights_hash({**arrays, name: changed}, layout))
    others.add(weights_hash({**arrays, "0.weight": arrays["0.weight"].reshape(3, 2)}, layout))
    others.add(weights_hash({**arrays, "0.bias": arrays["0.bias"].astype(np.float64)}, layout))
    others.add(weights_hash(arrays, {**layout, "n_stack": 2}))
    assert len(others) == 1 + 8 * 32 + 3


def test_a_memory_of_other_frames_than_the_spaces_say_is_refused():
    with pytest.raises(InputError, match="a memory of 3 frames does not fit n_stack=2"):
        Policy(nn.Flatten(), Spaces(shape=(4,), n_actions=2, n_stack=2), FrameStack(3))


def test_bounds_may_be_the_arrays_of_a_box():
    box = Box(np.float32([-1, -2]), np.float32([1, 2]))
    spaces = Spaces(shape=(3,), n_actions=None, low=box.low, high=box.high)
    assert spaces == Spaces(shape=(3,), n_actions=None, low=(-1.0, -2.0), high=(1.0, 2.0))
    assert spaces.n_outputs == 2
