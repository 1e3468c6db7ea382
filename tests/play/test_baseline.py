"""The blind floor: what a clock alone achieves, found on some episodes and measured on others."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play import baseline as blind
from surefoot.play.baseline import (
    HALF_PERIODS,
    MOST_PROMISING,
    Clockwork,
    Wave,
    candidate_waves,
    count_episodes,
    find_baseline,
    names_of,
    open_loop_policy,
)
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.task import BaselineSearch
from surefoot.play.tasks import TASKS, get_task
from toys import fixed, geometric, pay_action, pay_steps, run_episodes, toy_task

Z = 4.8916  # two-sided 1e-6


def actions(wave, steps=24, choices=3):
    return Clockwork(wave, torch.eye(choices))(torch.arange(steps)).argmax(dim=1).tolist()


def test_a_wave_plays_each_half_as_long_as_it_says():
    assert actions(Wave(0, 2, 3, 0)) == ([0] * 3 + [2] * 3) * 4
    assert actions(Wave(2, 0, 1, 0)) == [2, 0] * 12


def test_a_wave_may_begin_inside_its_first_half():
    assert actions(Wave(1, 0, 4, 2), 14) == [1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0]


def test_waves_say_what_they_do():
    names = ["a", "b"]
    assert Wave(1, 1, 1, 0).describe(names) == "action b at every step"
    assert Wave(1, 0, 1, 0).describe(names) == "actions b and a alternating every step"
    assert Wave(1, 0, 4, 0).describe(names) == "actions b and a alternating every 4 steps"
    assert Wave(1, 0, 4, 1).describe(names) == "action b for 3 steps, then a and b alternating every 4 steps"
    assert Wave(1, 0, 2, 1).describe(names) == "action b for 1 step, then a and b alternating every 2 steps"


@pytest.mark.parametrize("choices", [1, 2, 3])
def test_every_candidate_once(choices):
    found = list(candidate_waves(range(choices)))
    pairs = choices * (choices - 1)
    phases = sum(1 if half == 1 else 2 for half in HALF_PERIODS)
    assert len(found) == len(set(found)) == choices + pairs * phases
    assert {wave.first for wave in found} == set(range(choices))


def pay_wave(wave):
    """One for every action the wave would have chosen; the clock counts from 1 after the step."""

    def pay(actions, clock, length):
        right = Clockwork(wave, torch.eye(3))(clock - 1).argmax(dim=1)
        return actions == right

    return pay


@pytest.mark.parametrize("wave", [Wave(2, 2, 1, 0), Wave(2, 0, 3, 0), Wave(0, 1, 4, 2)])
def test_the_known_best_is_found(wave):
    task = toy_task(fixed(24), pay_wave(wave), choices=3, ceiling=24.0)
    found = find_baseline(task, search=2, measure=3)
    assert (found.mean, found.sem, found.n_episodes, found.what) == (24.0, 0.0, 3, wave.describe("012"))


def test_the_search_is_not_the_measurement(monkeypatch):
    """Lengths are pure luck: the best of the search looks better than it is, its measurement must not."""
    plans = []
    monkeypatch.setattr(blind, "play", lambda plan, **more: plans.append(plan) or play(plan, **more))
    task = toy_task(geometric(0.1, 200), pay_steps, ceiling=200.0)
    found = find_baseline(task, search=20, measure=4_000)
    alternating = len(list(candidate_waves((), range(2))))
    assert [plan.n_episodes for plan in plans] == [20] * 2 + [4] * alternating + [20] * MOST_PROMISING + [4_000]
    assert len({(plan.seed, plan.purpose) for plan in plans}) == len(list(candidate_waves(range(2)))) + 1
    assert sum(plan.n_episodes for plan in plans) == count_episodes(
        replace(task, baseline_search=BaselineSearch(n_search=20, n_measure=4_000))
    )
    assert all(plan.purpose != () for plan in plans)  # and neither is any certificate's
    assert abs(found.mean - 10) < Z * found.sem + 0.01
    luckiest = max(play(plan).returns.mean() for plan in plans[:-1])
    assert luckiest > 10 + 3 * math.sqrt(90 / 20) / 2  # what the search alone would have claimed


@pytest.mark.parametrize(("search", "n_envs"), [(2, 2), (4, 4), (32, 4)])
def test_a_search_with_emulators_loads_few_of_them(monkeypatch, search, n_envs):
    """Loading a cartridge takes as long as a few episodes; the best wave is measured in blocks of the task's own."""
    plans = []

    def play(plan, **_):
        plans.append(plan)
        return Episodes.from_returns([0.0, 1.0], sigma=0.0, floor=0)

    monkeypatch.setattr(blind, "play", play)
    find_baseline(TASKS["freeway"], search=search, measure=64)
    assert {plan.n_envs for plan in plans[:-1]} == {n_envs}
    assert (plans[-1].n_envs, plans[-1].block_envs) == (None, TASKS["freeway"].blocks.n_envs)


def test_seeds_change_the_measurement_and_nothing_else_does():
    task = toy_task(geometric(0.1, 200), pay_steps, ceiling=200.0)
    first, again, other = (find_baseline(task, seed=seed, search=2, measure=50) for seed in (0, 0, 1))
    assert first == again
    assert first.mean != other.mean
    assert find_baseline(task, search=2, measure=50, workers=2) == first


def test_blind_policies_see_nothing():
    task = get_task("cartpole-1")
    policy = open_loop_policy(task, Wave(1, 0, 4, 2))
    noiseless, drowned = (
        play(Plan(task=task, policy=policy, noise=Noise.of(sigma), n_episodes=300, n_envs=100)).returns
        for sigma in (0.0, 50.0)
    )
    assert np.array_equal(noiseless, drowned)


@pytest.mark.parametrize(("search", "measure"), [(0, 10), (10, 1), (10, 0), (10, -5)])
def test_too_few_episodes_are_refused_before_anything_runs(monkeypatch, search, measure):
    monkeypatch.setattr(blind, "play", lambda plan: pytest.fail("played"))
    with pytest.raises(InputError, match="at least"):
        find_baseline(get_task("cartpole-5"), search=search, measure=measure)


def test_continuous_actions_without_limits_are_refused():
    task = toy_task(fixed(1), pay_action, choices=None)
    for actions in ((None, None), ((-1.0,), (math.inf,))):
        with pytest.raises(InputError, match="discrete actions or continuous ones with limits"):
            find_baseline(replace(task, spaces=replace(task.spaces, low=actions[0], high=actions[1])))


def test_waves_of_continuous_actions_use_the_ends_and_the_middle():
    toy = toy_task(fixed(4), pay_action, choices=None, ceiling=12.0)
    task = replace(toy, spaces=replace(toy.spaces, low=(1.0,), high=(3.0,)))
    assert names_of(task) == ["1", "2", "3"]
    found = find_baseline(task, search=2, measure=3)
    assert (found.mean, found.what) == (12.0, "action 3 at every step")
    wide = replace(task, spaces=replace(task.spaces, low=(-1.0, 0.0), high=(1.0, 0.5)))
    assert names_of(wide) == ["(-1, 0)", "(0, 0.25)", "(1, 0.5)"]


@pytest.mark.parametrize("name", sorted(name for name, task in TASKS.items() if task.cartridge is None))
def test_the_stored_floor_is_what_is_measured(name):
    """A z-test at 1e-6 on episodes that were not used for it."""
    task = get_task(name)
    assert task.baseline is not None
    names = names_of(task)
    (wave,) = [wave for wave in candidate_waves(range(len(names))) if wave.describe(names) == task.baseline.what]
    policy = open_loop_policy(task, wave)
    returns = run_episodes(task, policy, 0.0, 4_000, seed=77, purpose=(Purpose.PILOT,)).returns
    error = math.hypot(task.baseline.sem, returns.std(ddof=1) / math.sqrt(returns.size))
    assert abs(returns.mean() - task.baseline.mean) <= Z * error
    assert abs(returns.mean() - 1.1 * task.baseline.mean) > Z * error  # the test would notice a tenth


@pytest.mark.parametrize(("name", "episodes", "wrong"), [("pong-1r", 48, 0.5), ("freeway", 16, 5.0)])
def test_the_stored_floor_of_an_atari_task_is_plausible(name, episodes, wrong):
    """A few episodes, for emulators are slow: Hoeffding at 1e-6 lets the stored mean pass, and a wrong one not."""
    pytest.importorskip("ale_py")
    task = get_task(name)
    names = names_of(task)
    (wave,) = [wave for wave in candidate_waves(range(len(names))) if wave.describe(names) == task.baseline.what]
    policy = open_loop_policy(task, wave)
    returns = run_episodes(task, policy, 0.0, episodes, seed=77, n_envs=8, purpose=(Purpose.PILOT,)).returns
    reach = (task.scoring.ceiling - task.scoring.floor) * math.sqrt(math.log(2e6) / (2 * episodes))
    assert abs(returns.mean() - task.baseline.mean) < reach
    assert abs(returns.mean() - wrong) > reach


def test_the_clock_beats_the_constants_at_cartpole():
    """What makes the floor worth plotting: about 40 instead of 9, at any budget."""
    task = get_task("cartpole-5")
    still = open_loop_policy(task, Wave(0, 0, 1, 0))
    assert (
        play(Plan(task=task, policy=still, noise=Noise.of(0.0), n_episodes=500)).returns.mean()
        < 12
        < task.baseline.mean
    )
