"""Mountain Car equals Gymnasium's over whole episodes, bit for bit; the reward is the paper's."""

import numpy as np
import pytest
import torch

from surefoot.agents.policies import Policy, Spaces
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.envs import mountain_car
from surefoot.play.envs.mountain_car import MountainCar
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Stream
from surefoot.play.tasks import get_task

CPU = torch.device("cpu")
TASK = get_task("mountain-car")


def game(slots, seed=5, limit=999):
    return MountainCar(slots, Stream(np.random.SeedSequence(seed), CPU), limit)


def environments(starts):
    """Gymnasium's environments, put where the batch starts: a start is double precision there too."""
    opened = [TASK.backend.open() for _ in starts]
    for environment, start in zip(opened, starts, strict=True):
        environment.reset(seed=0)
        environment.unwrapped.state = np.array([start, 0.0])
    return opened


def moves(slots, seed=0):
    """Waves with noise of several strengths, beyond the limits of the force too; some reach the goal."""
    rng = np.random.default_rng(seed)
    half, noise = rng.integers(20, 40, slots), rng.choice([0, 0.1, 0.5, 1.5], slots)
    for step in range(999):
        wave = np.where((step // half) % 2 == 0, 1, -1)
        yield (wave + noise * rng.standard_normal(slots)).astype(np.float32)


def differences(slots):
    """Play both in lock step to the end of every episode; return how often anything differed, and the successes."""
    batch = game(slots)
    batch.reset()
    opened = environments(batch.position.numpy().copy())
    alive, different, reached = np.ones(slots, dtype=bool), 0, 0.0
    for action in moves(slots):
        seen, reward, over = (value.numpy() for value in batch.step(torch.from_numpy(action)[:, None]))
        for row in np.flatnonzero(alive):
            theirs, pay, terminated, truncated, _ = opened[row].step(action[row : row + 1])
            same = (theirs == seen[row]).all() and pay == reward[row] and (terminated or truncated) == over[row]
            different += not same
            reached += pay
        alive &= ~over
    assert not alive.any()
    return different, reached


def test_random_episodes_are_gymnasiums_bit_for_bit():
    """Twenty would do to notice one rounding, as below."""
    different, reached = differences(100)
    assert different == 0
    assert 30 < reached < 90  # both ends of an episode were seen: goal and time


def test_a_slip_of_one_rounding_is_noticed_by_that_comparison(monkeypatch):
    honest = MountainCar._advance_car
    monkeypatch.setattr(MountainCar, "_advance_car", lambda self, action, kind: honest(self, action, torch.float64))
    assert differences(20)[0] > 0


def test_starts_are_gymnasiums():
    starts = game(4_000).reset().numpy()
    theirs = np.array([TASK.backend.open().reset(seed=seed)[0] for seed in range(400)])
    for values in (starts, theirs):
        assert -0.6 <= values[:, 0].min() < -0.59
        assert -0.41 < values[:, 0].max() <= -0.4
        assert (values[:, 1] == 0).all()
    assert abs(starts[:, 0].mean() + 0.5) < 5 * 0.2 / np.sqrt(12 * 4_000)


def test_a_restarted_row_begins_where_it_would_have_alone():
    one, other = game(6), game(6)
    for batch in (one, other):
        batch.reset()
        batch.step(torch.zeros(6, 1))
    first = torch.tensor([True, False, False, True, False, False])
    alone = one.restart_rows(first)
    other.keep_rows(torch.tensor([0, 3, 4]))
    again = other.restart_rows(torch.tensor([True, True, False]))
    assert torch.equal(alone, again)
    assert (one.clock.steps == torch.tensor([0, 1, 1, 0, 1, 1])).all()
    # The first step of a restarted row is in double precision, its neighbours' second is not.
    opened = environments([float(one.position[0])])[0]
    seen, _, _ = one.step(torch.full((6, 1), 0.3))
    assert (opened.step(np.array([0.3], dtype=np.float32))[0] == seen[0].numpy()).all()


def test_time_runs_out_without_reward():
    batch = game(3, limit=7)
    batch.reset()
    for step in range(7):
        _, reward, over = batch.step(torch.zeros(3, 1))
        assert (reward == 0).all()
        assert over.tolist() == [step == 6] * 3


class Push(torch.nn.Module):
    def forward(self, history):
        """Push where it seems to go: enough to get out of the valley without noise."""
        return torch.sign(history[:, -1, 1:] + 1e-9)


def test_pushing_along_reaches_the_goal():
    policy = Policy(Push(), Spaces(shape=(2,), n_actions=None, low=(-1.0,), high=(1.0,)), name="push")
    played = play(Plan(task=TASK, policy=policy, noise=Noise.of(0.0), n_episodes=200, n_envs=64, episodes_per_env=2))
    assert played.returns.tolist() == [1.0] * 200
    assert 60 < played.lengths.mean() < 200


def test_fuel_costs_nothing():
    environment = mountain_car.open_mountain_car(5)
    environment.reset(seed=1)
    assert [environment.step(np.array([1.0], dtype=np.float32))[1] for _ in range(5)] == [0.0] * 5
    with pytest.raises(InputError, match="max_steps= must be from 1 to"):
        mountain_car.open_mountain_car(-1)
