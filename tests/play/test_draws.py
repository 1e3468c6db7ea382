"""Several draws of the noise per seed: one environment, and noise that nothing else has."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

from surefoot import make_task, rollout
from surefoot.agents.policies import Policy, Spaces
from surefoot.episodes import Episodes, mean_by_seed
from surefoot.errors import DependentRowsError, InputError
from surefoot.noise import Noise
from surefoot.play.independence import check_independence
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose, block_seeds, draw_seeds
from toys import dependent, gate, not_normal, short_pole

SIGMA = 0.2


def plan_of(n_draws, n_episodes=36, sigma=SIGMA, **more):
    task = replace(short_pole(30), name="short")
    return Plan(
        task=task,
        policy=gate(0.5, SIGMA, 4),
        noise=Noise.of(sigma),
        n_episodes=n_episodes,
        n_envs=4,
        episodes_per_env=1,
        draws_per_seed=n_draws,
        **more,
    )


def watched(plan, index=0):
    """Return what was observed at the first step of each draw, and the noise on it."""
    steps = []

    def keep(step):
        if step.action is None:
            steps.append((step.observation.clone(), (step.seen - step.observation) / SIGMA))

    play_block(plan, index, watch=keep)
    observed, noise = zip(*steps, strict=True)
    return torch.stack(observed).double(), torch.stack(noise).double()


def test_all_draws_of_a_seed_begin_alike_and_have_noise_of_their_own():
    observed, noise = watched(plan_of(100, n_episodes=400))
    assert observed.shape[:2] == (100, 4)
    assert torch.equal(observed, observed[:1].expand_as(observed))
    assert len({row.numpy().tobytes() for row in observed[0]}) == 4
    assert not not_normal(noise)
    assert not dependent(noise[:-1], noise[1:])
    assert len({row.numpy().tobytes() for row in noise.flatten(0, 1)}) == 400


def test_planted_noise_that_repeats_within_a_seed(monkeypatch):
    from surefoot.play import loop

    monkeypatch.setattr(loop, "draw_seeds", lambda seed, draw, block: draw_seeds(seed, 1, block))
    _, noise = watched(plan_of(3, n_episodes=12))
    assert dependent(noise[:-1], noise[1:])


def test_without_noise_all_draws_of_a_seed_are_one_episode():
    returns = rollout_of(plan_of(3, sigma=0.0)).reshape(-1, 3)
    assert np.ptp(returns, axis=1).max() == 0
    returns = rollout_of(plan_of(3, n_episodes=300)).reshape(-1, 3)
    assert np.ptp(returns, axis=1).max() > 0


def rollout_of(plan):
    return play(plan).returns


def test_the_number_of_workers_and_the_last_block_do_not_matter():
    """36 episodes of 3 draws: blocks of 4 seeds; with 10 seeds the last block has 2."""
    plan = plan_of(3, n_episodes=30)
    assert [plan.block_length(index) for index in range(plan.n_blocks)] == [12, 12, 6]
    assert np.array_equal(rollout_of(plan), play(plan, workers=2).returns)
    assert np.array_equal(rollout_of(plan)[:24], rollout_of(replace(plan, n_episodes=24)))


def test_draws_that_are_run_backwards_are_the_same_episodes():
    """Verification runs them so; each stays in its place."""
    plan = plan_of(3, n_episodes=24)
    forwards, backwards = (play_block(plan, 0, backwards=way) for way in (False, True))
    assert np.ptp(forwards.returns) > 0
    assert forwards.returns.tolist() == backwards.returns.tolist()
    assert forwards.lengths.tolist() == backwards.lengths.tolist()


def test_streams_of_draws_are_those_of_nothing_else():
    keys = []
    for draw in (1, 2):
        for block in (0, 1):
            environment, *others = draw_seeds(5, draw, block)
            assert environment.spawn_key == (Purpose.DRAWS, 0, block, 0)
            keys += [one.spawn_key for one in others]
    assert len(set(keys)) == len(keys) == 12
    assert not set(keys) & {one.spawn_key for block in (0, 1) for one in block_seeds(5, (), block)}
    with pytest.raises(ValueError, match="count from 1"):
        draw_seeds(5, 0, 0)


class Drawing(torch.nn.Module):
    """Chooses at random."""

    def forward(self, history):
        return torch.rand(len(history), 2)


def test_an_agent_that_draws_draws_anew_in_every_draw_of_a_seed():
    """Planted: one stream for all of them. What the agent drew would look like the luck of the seed."""
    plan = plan_of(3, n_episodes=300, sigma=0.0)
    policy = Policy(Drawing(), Spaces(shape=(4,), n_actions=2), name="drawing", stochastic=True)
    returns = rollout_of(replace(plan, policy=policy)).reshape(-1, 3)
    assert np.ptp(returns, axis=1).max() > 0
    assert not dependent(returns[:, 0], returns[:, 1])


def test_means_of_seeds_are_what_is_looked_at_for_independence():
    """Draws that agree are no blocks that repeat: an agent may ignore what it sees."""
    episodes = play(plan_of(6, n_episodes=720, sigma=0.0))
    check_independence(episodes)
    # Taken for six turns of four environments they are not independent.
    turns = episodes.returns.reshape(-1, 4, 6).transpose(0, 2, 1).ravel()
    alone = replace(episodes, returns=turns, metadata={**episodes.metadata, "draws_per_seed": 1})
    with pytest.raises(InputError, match="not independent"):
        check_independence(alone)


def test_the_return_of_a_seed_is_the_mean_of_all_its_draws():
    returns, block = mean_by_seed(np.array([1.0, 3.0, 5.0, 9.0]), {"draws_per_seed": 2, "block_size": 4})
    assert (returns.tolist(), block) == ([2.0, 7.0], 2)
    returns, block = mean_by_seed(np.array([1.0, 3.0]), {"block_size": 4})
    assert (returns.tolist(), block) == ([1.0, 3.0], 4)


def test_seeds_of_one_block_that_resemble_each_other_are_found():
    """Planted: what a block of four seeds shares, in all six draws; counted in blocks of 24 seeds nothing is found."""
    random = np.random.default_rng(0)
    shared = np.repeat(random.normal(size=80), 24)
    setup = {"draws_per_seed": 6, "block_size": 24, "n_envs": 4}
    known = {"sigma": 0.2, "floor": -99, "ceiling": 99}
    noise = random.normal(0, 0.01, shared.size)
    check_independence(Episodes.from_returns(noise, **known, **setup))
    with pytest.raises(InputError, match="the 4 returns of a block resemble each other"):
        check_independence(Episodes.from_returns(shared + noise, **known, **setup))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"n_episodes": 10}, "a multiple of draws_per_seed"),
        ({"draws_per_seed": 0}, "at least 1"),
        ({"draws_per_seed": 101, "n_episodes": 101}, "at most 100"),
    ],
)
def test_plans_that_make_no_sense_are_refused(change, what):
    with pytest.raises(InputError, match=what):
        replace(plan_of(3), **change)


class Shared(gymnasium.Env):
    """Pays what a generator draws that all environments share."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(np.random.random() < 0.5), True, False, {}  # noqa: NPY002


def test_an_environment_whose_randomness_is_not_its_seed_s_is_refused():
    task = make_task(Shared, floor=0, ceiling=1, max_steps=1)
    from surefoot import as_policy

    policy = as_policy(lambda seen: np.zeros(len(seen), dtype=int), task.spaces)
    plan = Plan(task=task, policy=policy, noise=Noise.of(0.1), n_episodes=8, n_envs=4, episodes_per_env=1)
    assert len(play(plan)) == 8
    with pytest.raises(DependentRowsError, match="a generator that all its copies share"):
        play(replace(plan, draws_per_seed=2))
    assert rollout(task, policy, sigma=0.1, n_episodes=4).draws_per_seed == 1
