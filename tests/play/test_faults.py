"""How large faults are: known exactly where the sensor counts its steps."""

import json
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

import surefoot
from surefoot.api import faults
from surefoot.api.faults import _sizes
from surefoot.cli.main import main
from surefoot.errors import InputError
from surefoot.play.envs import trial
from surefoot.play.task import Blocks


class Clock(gymnasium.Env):
    """Shows a number that grows by 2 with every step, and noise that nobody certifies; twenty steps."""

    observation_space = gymnasium.spaces.Dict(
        other=gymnasium.spaces.Box(-9, 9, (1,), np.float32), count=gymnasium.spaces.Box(0, 99, (1,), np.float32)
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.seen(), {}

    def step(self, action):
        self.count += 1
        return self.seen(), 0.0, self.count == 20, False, {}

    def seen(self):
        return {"count": np.float32([2 * self.count]), "other": self.np_random.random(1, dtype=np.float32)}


@pytest.fixture(autouse=True)
def brief_trial(monkeypatch):
    monkeypatch.setattr(trial, "SECONDS", 0.0)


def measured(**others):
    # Of several blocks, which other processes could not hand back.
    task = replace(
        surefoot.make_task(Clock, floor=0, ceiling=1, max_steps=20), blocks=Blocks(n_envs=8, episodes_per_env=2)
    )
    agent = surefoot.as_policy(lambda seen: torch.zeros(len(seen), dtype=torch.int64), task.spaces, batched=True)
    given = {"sigma": {"count": 0.5}, "steps": (1, 3), "n_episodes": 32} | others
    return {(one.fault, one.steps): one for one in surefoot.measure_faults(task, agent, **given)}


def test_sizes_are_known():
    found = measured()
    # Frozen while the truth goes on by 2, 4 and 6.
    assert found["freeze", 1].median == pytest.approx(2)
    assert found["freeze", 3].mild == found["freeze", 3].median == pytest.approx(np.sqrt(4 + 16 + 36))
    # All of the 17 observations that follow the first three are 6 too low.
    assert found["delay", 3].median == pytest.approx(6 * np.sqrt(17))
    # Every episode counts alike.
    assert found["replay", 3].median == 0
    # The truth is between 2 and 38 where it is dropped.
    assert 2 <= found["dropout", 1].mild < found["dropout", 1].median <= 38
    assert found["freeze", 1].n_episodes == 32


def test_what_is_replayed_is_another_episode():
    """Of the same steps; where there is no other one that is long enough, nothing is measured."""
    rng = np.random.default_rng(0)
    counted = np.arange(9.0)[:, None]
    assert _sizes("replay", 4, [counted, counted + 3], rng).tolist() == [6.0, 6.0]
    assert _sizes("replay", 4, [counted, counted + 3, counted + 3], rng).tolist() == [6.0, 0.0, 6.0]
    assert _sizes("replay", 4, [counted], rng).tolist() == []
    assert _sizes("replay", 8, [counted, counted[:5]], rng).tolist() == []


def test_a_tenth_of_the_episodes_have_a_smaller_fault_than_the_mild_one(monkeypatch):
    monkeypatch.setattr(faults, "_clean_episodes", lambda plan: [])
    monkeypatch.setattr(faults, "_sizes", lambda *_: np.arange(11.0))
    found = measured(steps=(1,))["freeze", 1]
    assert (found.mild, found.median, found.n_episodes) == (1.0, 5.0, 11)


def test_sizes_count_as_budgets_do():
    """With two noises a perturbation of the coarser feature counts by the ratio of both; the finer one is the unit."""
    both = measured(sigma={"count": 2.0, "other": 0.5})
    alone = measured(sigma={"count": 2.0})
    assert alone["freeze", 3].median == pytest.approx(np.sqrt(56))
    # A quarter of that, and less than 1 for each of the other's.
    assert np.sqrt(56) / 4 < both["freeze", 3].median < np.sqrt(56 / 16 + 3)


def test_bad_input():
    with pytest.raises(InputError, match="at least 1, got"):
        measured(steps=(0,))
    with pytest.raises(InputError, match="sigma= above 0"):
        measured(sigma=0.0)
    with pytest.raises(InputError, match="give n_episodes= fewer"):
        measured(n_episodes=2_000_000)


def test_command(capsys):
    assert main(["explain-fault", "cartpole-1", "--episodes", "8", "--steps", "1,5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["faults"]
    assert [(one["fault"], one["steps"]) for one in found][:3] == [("freeze", 1), ("freeze", 5), ("dropout", 1)]
    assert main(["explain-fault", "cartpole-1", "--episodes", "8", "--steps", "1,5"]) == 0
    assert "a tenth is below" in capsys.readouterr().out
    assert main(["explain-fault", "cartpole-1", "--sigma", "0", "--agent", "cartpole-1-s0"]) == 2
    assert "give --sigma above 0" in capsys.readouterr().err
