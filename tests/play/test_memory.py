"""Agents with memory in the loop, against one episode at a time in plain numpy; rows restart and are dropped."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot.agents.memory import FrameStack, Recurrent
from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.recurrent import recurrent_parts
from surefoot.agents.smoothed import PredictableNoiseWarning, SmoothedPolicy
from surefoot.noise import Noise
from surefoot.play import loop
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.row_checks import RowChecks
from surefoot.play.streams import Stream, block_seeds
from surefoot.play.tasks import get_task
from toys import Spy, balancer, geometric, layers, pay_action, pay_first_choice, recurrent, toy_task

SIGMA, CLEAN, LIMIT = 0.5, (0.3, -0.2, 0.1, 0.4), 30


pytestmark = pytest.mark.filterwarnings("ignore:sigma is 0:surefoot.PredictableNoiseWarning")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(arrays, x, state):
    """One step as torch documents it, gate by gate."""
    (ir, iz, i_n), (hr, hz, hn) = (
        np.split(arrays[f"weight_{side}"] @ into + arrays[f"bias_{side}"], 3)
        for side, into in (("ih", x), ("hh", state))
    )
    update = sigmoid(iz + hz)
    return (1 - update) * np.tanh(i_n + sigmoid(ir + hr) * hn) + update * state


def lstm(arrays, x, state):
    hidden, kept = np.split(state, 2)
    gates = arrays["weight_ih"] @ x + arrays["bias_ih"] + arrays["weight_hh"] @ hidden + arrays["bias_hh"]
    into, forget, new, out = np.split(gates, 4)
    kept = sigmoid(forget) * kept + sigmoid(into) * np.tanh(new)
    return np.concatenate((sigmoid(out) * np.tanh(kept), kept))


class Naive:
    """One episode of a recurrent agent, one observation at a time."""

    def __init__(self, policy):
        layout, arrays = recurrent_parts(policy)
        self.policy, self.layout, self.arrays = policy, layout, {k: v.astype(np.float64) for k, v in arrays.items()}
        self.cell, width = (gru, 8) if layout["kind"] == "gru" else (lstm, 16)
        self.state, self.last = np.zeros(width), np.zeros(policy.spaces.n_actions or 1)

    def act(self, seen):
        x = np.concatenate((seen, self.last)) if self.layout["last_action"] else seen
        if self.layout["encoder"]:
            x = np.tanh(self.arrays["encoder0.weight"] @ x + self.arrays["encoder0.bias"])
        self.state = self.cell(self.arrays, x, self.state)
        hidden = np.tanh(self.arrays["head0.weight"] @ self.state[:8] + self.arrays["head0.bias"])
        output = self.arrays["head1.weight"] @ hidden + self.arrays["head1.bias"]
        if self.policy.spaces.n_actions is None:
            if self.layout["squashed"]:
                output = -0.5 + 0.5 * (np.tanh(output) + 1) * 1.2
            self.last = np.clip(output, -0.5, 0.7)
            return float(self.last[0])
        self.last = np.eye(self.policy.spaces.n_actions)[output.argmax()]
        return int(output.argmax())


class NaiveFrames:
    """The same for a stack of frames with past actions."""

    def __init__(self, policy):
        self.policy, self.frames, self.last = policy, None, np.zeros(2)

    def act(self, seen):
        newest = np.concatenate((seen, self.last))
        self.frames = [newest] * 3 if self.frames is None else [*self.frames[1:], newest]
        stack = torch.from_numpy(np.stack(self.frames)[None].astype(np.float32))
        action = int(self.policy.network(stack)[0].argmax())
        self.last = np.eye(2)[action]
        return action


def frames_with_actions():
    weights, biases = layers(np.random.default_rng(3), 3 * 6, 12, 2)
    return Policy(
        MLP(weights, biases), Spaces(shape=(4,), n_actions=2, n_stack=3), FrameStack(3, action_size=2), name="frames"
    )


POLICIES = {
    "gru": (recurrent(), Naive),
    "gru without encoder": (recurrent(encoder=0, seed=1), Naive),
    "gru without actions": (recurrent(last_action=False, seed=2), Naive),
    "gru, clipped": (recurrent(n_actions=None, seed=3), Naive),
    "gru, squashed": (recurrent(n_actions=None, squashed=True, seed=4), Naive),
    "lstm": (recurrent("lstm", seed=5), Naive),
    "frames with actions": (frames_with_actions(), NaiveFrames),
}


def plan_of(policy, done_check_interval=1, **more):
    pay, n_actions = (pay_action, None) if policy.spaces.n_actions is None else (pay_first_choice, 2)
    task = toy_task(
        geometric(0.2, LIMIT),
        pay,
        clean=CLEAN,
        choices=n_actions,
        done_check_interval=done_check_interval,
        floor=-99.0,
        ceiling=99.0,
    )
    deal = {"n_episodes": 36, "n_envs": 9, "episodes_per_env": 4}
    return Plan(task=task, policy=policy, noise=Noise.of(SIGMA), **deal | more)


def gap(policy, naive, done_check_interval):
    """The largest difference of a return between the loop and the reference, on the same noise."""
    plan = plan_of(policy, done_check_interval)
    played = play(plan)
    _, seeds, _, _ = block_seeds(plan.seed, plan.purpose, 0)
    noise = Stream(seeds, torch.device("cpu"))
    noise = np.stack([noise.normal((9, 4)).mul_(SIGMA).numpy() for _ in range(4 * (LIMIT + done_check_interval))])
    slow = []
    for number in range(36):
        # An environment's next episode begins when the loop looks for finished ones.
        before = played.lengths[number % 9 : number : 9]
        first = sum(-(-length // done_check_interval) * done_check_interval for length in before)
        agent = naive(policy)
        seen = np.float32(CLEAN) + noise[first : first + played.lengths[number], number % 9]
        actions = [agent.act(one) for one in seen]
        slow.append(sum(actions) if policy.spaces.n_actions is None else actions.count(0))
    assert played.lengths.min() + played.lengths.max() > 2
    assert len(set(played.lengths)) > 5
    return float(np.abs(played.returns - slow).max())


@pytest.mark.parametrize("done_check_interval", [1, 8])
@pytest.mark.parametrize("name", POLICIES)
def test_the_loop_plays_as_one_episode_at_a_time(name, done_check_interval):
    assert gap(*POLICIES[name], done_check_interval) < 1e-5


def not_reset(self, memory, seen, action=None, episode_start=None, *, honest=Recurrent.advance):
    first = action is None
    return honest(self, memory, seen, action, episode_start if first else None)


def last_action_not_reset(self, memory, seen, action=None, episode_start=None, *, honest=Recurrent.advance):
    kept = memory if episode_start is None else memory.masked_fill(episode_start.unsqueeze(1), 0.0)
    return honest(self, kept, seen, action, None)


def next_row(self, memory, seen, action=None, episode_start=None, *, honest=Recurrent.advance):
    return honest(self, memory.roll(1, 0), seen, action, episode_start)


def forgets(self, memory, seen, action=None, episode_start=None, *, honest=Recurrent.advance):
    return honest(self, torch.zeros_like(memory), seen, action, episode_start)


@pytest.mark.parametrize("planted", [not_reset, last_action_not_reset, next_row, forgets])
def test_planted_errors_are_noticed_by_that_comparison(planted, monkeypatch):
    monkeypatch.setattr(Recurrent, "advance", planted)
    monkeypatch.setattr(RowChecks, "is_due", lambda self: False)  # which notices a memory of other rows too
    assert gap(*POLICIES["gru, clipped"], 1) > 1e-2


def test_a_memory_kept_in_the_wrong_rows_is_noticed(monkeypatch):
    honest = loop.BlockLoop._keep_rows

    def first_rows(self, rows):
        before = self.memory
        honest(self, rows)
        self.memory = before[: len(rows)]

    monkeypatch.setattr(loop.BlockLoop, "_keep_rows", first_rows)
    assert gap(*POLICIES["gru, clipped"], 1) > 1e-2


@pytest.mark.parametrize("name", ["gru", "gru, clipped", "lstm", "frames with actions"])
def test_the_deployed_agent_acts_as_the_loop(name):
    """With its own memory, and with SB3's state and episode_start, whatever its own memory then holds."""
    policy = POLICIES[name][0]
    spy, seen, done = Spy(), [], []

    def watch(step):
        seen.append(step.seen.numpy().copy())
        done.append(None if step.action is None else step.action.numpy().copy())

    play_block(plan_of(policy, attacker=spy, budget=1.0), 0, watch=watch)
    with pytest.warns(PredictableNoiseWarning, match="sigma is 0"):
        own, given = SmoothedPolicy(policy, 0.0), SmoothedPolicy(policy, 0.0)
    state, steps = None, 0
    for now, after, view, then in zip(seen, done[1:], spy.views, spy.views[1:], strict=False):
        if len(after) < 9:  # rows are gone
            break
        begins = view["step"].numpy() == 0
        action, _ = own.predict(now, episode_start=begins)
        again, state = given.predict(now, state=state, episode_start=begins)
        given.predict(now[::-1], state=tuple(part[::-1].copy() for part in state))  # leaves no trace
        assert np.array_equal(action, again)
        going = then["step"].numpy() > 0  # a view of a first step shows no action
        np.testing.assert_allclose(action[going], after[going], atol=1e-6)
        steps += 1
    assert steps > 10


def test_a_state_of_another_agent_is_rejected():
    agent = SmoothedPolicy(recurrent(), 0.1)
    with pytest.raises(ValueError, match=r"array \(n, \*\(8,\)\) and the last actions, got tuple"):
        agent.predict(np.zeros(4, np.float32), state=(np.zeros((1, 8), np.float32),))
    with pytest.raises(ValueError, match=r"and the last actions, got \(1, 9\) and \(1,\)"):
        agent.predict(np.zeros(4, np.float32), state=(np.zeros((1, 9), np.float32), np.zeros(1, np.int64)))


def test_a_first_view_shows_nothing_of_the_episode_before():
    spy = Spy(lambda view: torch.full_like(view.observation, 0.01))
    play(replace(plan_of(recurrent()), attacker=spy, budget=1.0))
    firsts = 0
    for view in spy.views:
        first = view["step"] == 0
        firsts += int(first.sum())
        assert not view["memory"][first].any()
        assert not view["clean"][first].any()
        assert len(view["memory"][~first]) == 0 or view["memory"][~first].abs().max() > 0
    assert firsts == 36


def test_blocks_of_recurrent_agents_are_larger():
    task = get_task("cartpole-1")
    sizes = [Plan(task=task, policy=policy, noise=Noise.of(SIGMA)).block_envs for policy in (recurrent(), balancer())]
    assert sizes == [1_000, 500]
    assert Plan(task=task, policy=recurrent(), noise=Noise.of(SIGMA), n_envs=70).block_envs == 70
