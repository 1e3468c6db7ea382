"""Dependent episodes are found in their returns; independent ones are not rejected more often than stated."""

import itertools
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play import independence
from surefoot.play.independence import ALARM, _log_chance, check_independence, dependent_returns, repeated_blocks
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.workers import Processes
from toys import Timed, constant, geometric, pay_short, toy_task, with_env

SETUP = {"block_size": 256, "n_envs": 32}  # 8 turns
RECORDS = sorted((Path(__file__).parents[2] / "records").glob("*/episodes.npz"))


def coins(seed, shape, chance=0.5):
    return (np.random.default_rng(seed).random(shape) < chance).astype(np.float64)


def spread(values, turns=8, envs=32):
    """Return returns of whole blocks from values of a shape that fits to (blocks, turns, environments)."""
    return np.broadcast_to(values, (np.shape(values)[0], turns, envs)).reshape(-1).copy()


# --- the level ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1, 1), (1, 2, 3, 4, 5, 6), (1, 1, 1, 1, 3, 0)])
def test_the_bound_holds_exactly_for_every_choice_of_signs(sizes):
    """All 2^12 signs of two pairs of groups that differ, and eight that do not.

    The planted twin, the bound to the fourth power, is broken.
    """
    equal = np.zeros((8, 6))
    signs = itertools.product((-1, 1), repeat=12)
    differing = (np.array(each).reshape(2, 6) * np.array(sizes, dtype=float) for each in signs)
    bounds = [_log_chance(np.concatenate([one, equal]), (1,)) for one in differing]
    bounds = np.sort(np.round(bounds, 9))
    share = np.arange(1, len(bounds) + 1) / len(bounds)
    last = np.flatnonzero(np.append(np.diff(bounds) > 0, True))  # of equal bounds, all count
    assert (share[last] <= np.exp(bounds[last]) + 1e-8).all()
    assert (share[last] > np.exp(4 * bounds[last])).any()


@pytest.mark.parametrize("seed", range(20))
def test_independent_returns_are_accepted(seed):
    """False-alarm level 1e-6 each: coins fair and rare, heavy tails, all alike; whole runs, parts of blocks."""
    rng = np.random.default_rng(seed)
    for n in (2, 100, 300, 5_000):
        kinds = (coins(seed, n), coins(seed, n, 0.01), rng.standard_cauchy(n), rng.exponential(size=n), np.ones(n))
        for returns in kinds:
            assert dependent_returns(returns, SETUP) == []
            assert repeated_blocks(returns, 256) == []


def test_independent_returns_hardly_ever_come_near_the_level():
    """A thousand runs: the smallest bound stays above 1e-6 (probability 3e-3 that it does not; the seed is fixed)."""
    least = 0.0
    for seed in range(1_000):
        table = np.random.default_rng(seed).random((10, 8, 32))
        least = min(least, _log_chance(table[:5] - table[5:], (1, 2)))
    assert math.log(ALARM) < least < 0


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.parent.name)
def test_the_records_are_accepted(path):
    check_independence(Episodes.load(path))


def test_there_are_records():
    assert len(RECORDS) >= 26


# --- dependence -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returns", "what"),
    [
        (spread(coins(0, (40, 1, 1))), "256 returns of a block"),
        (spread(coins(0, (2, 1, 1))) + 1e-3 * coins(1, 512), "256 returns of a block"),
        (spread(coins(0, (10, 1, 32))), "8 returns of one copy"),
        (spread(coins(3, (40, 1, 32), 0.01)), "8 returns of one copy"),
        (spread(coins(0, (4, 8, 32), np.linspace(1, 0.1, 8)[:, None])), "later returns"),
    ],
    ids=["fate per block", "two blocks", "fate per copy", "rare fate per copy", "harder with every reset"],
)
def test_planted_dependence_is_found(returns, what):
    """The same returns in random order are accepted."""
    assert any(what in line for line in dependent_returns(returns, SETUP))
    shuffled = np.random.default_rng(5).permutation(returns)
    assert dependent_returns(shuffled, SETUP) == []


@pytest.mark.parametrize("n_blocks", [1, 2, 7])
@pytest.mark.parametrize("asked", range(3))
def test_three_questions_at_every_number_of_blocks_share_one_level(asked, n_blocks, monkeypatch):
    """A run may have been stopped after any of them: 1 / (G (G + 1)) of it adds up to 1 over all G."""
    level = math.log(independence.ALARM / 3 / (n_blocks * (n_blocks + 1)))
    returns = coins(0, 256 * n_blocks)
    for answer, found in ((level - 1e-6, 1), (level + 1e-6, 0)):
        answers = iter([answer if number == asked else 0.0 for number in range(3)])
        monkeypatch.setattr(independence, "_log_chance", lambda *_, answers=answers: next(answers))
        assert len(dependent_returns(returns, SETUP)) == found


def test_setups_that_do_not_say_how_to_ask_are_not_asked():
    returns = spread(coins(0, (40, 1, 32)))
    for setup in ({}, {"block_size": 256}, {"block_size": 256, "n_envs": 33}, {"block_size": "256", "n_envs": 32}):
        assert dependent_returns(returns, setup) == []


def test_units_do_not_matter():
    returns = spread(coins(3, (40, 1, 32), 0.01))
    assert all(dependent_returns(scale * returns, SETUP) for scale in (1e-140, 1e-3, 1e140))


def record(returns, **more):
    return Episodes.from_returns(returns, sigma=0.1, floor=-1, ceiling=2, **SETUP, **more)


def test_repeated_blocks_are_named_and_what_to_do():
    """Blocks of equal returns repeat each other by chance, if all returns are equal."""
    one = coins(0, 256)
    with pytest.raises(InputError, match=r"block 1 repeats block 0 in every return.*reset\(seed\)"):
        check_independence(record(np.concatenate([one, one])))
    check_independence(record(np.concatenate([one, coins(1, 256)])))
    check_independence(record(np.ones(512)))


def test_attackers_may_learn():
    """Dependent returns of attacked episodes are the attacker's business; repeated blocks are not."""
    fates = spread(coins(0, (10, 1, 32)))
    words = "episodes are not independent: the 8 returns of one copy .* with a probability of at most 1e-[0-9]+; the"
    with pytest.raises(InputError, match=words):
        check_independence(record(fates))
    check_independence(record(fates, attacker={"name": "learner"}))
    with pytest.raises(InputError, match="repeats block"):
        check_independence(record(np.tile(coins(0, 256), 2), attacker={"name": "learner"}))


# --- runs -----------------------------------------------------------------------------------------------------------


class Fated(Timed):
    """Draws the length of its first episode, and keeps it."""

    def restart_rows(self, rows):
        self.clock = self.clock.masked_fill(rows, 0)
        return self._observe()[rows]


def plan_of(draw, environment=Timed):
    task = toy_task(draw, pay_short(1), n_envs=32, episodes_per_env=8)
    task = with_env(task, partial(environment, draw=draw, pay=pay_short(1)))
    return Plan(task=task, policy=constant(), noise=Noise.of(0.1), n_episodes=2_560)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_of_dependent_episodes_is_an_error(workers):
    assert len(play(plan_of(geometric(0.5, 4)), workers=workers)) == 2_560
    with pytest.raises(InputError, match="the 8 returns of one copy of the environment resemble each other"):
        play(plan_of(geometric(0.5, 4), Fated), workers=workers)


def test_a_generator_that_processes_share_is_found():
    """Both forked workers draw the same numbers from it: of the first blocks two are one."""
    shared = torch.Generator().manual_seed(0)

    def draw(rows, stream):
        return torch.randint(1, 3, (rows,), generator=shared)

    with pytest.raises(InputError, match=r"block [12] repeats block 0"):
        play(plan_of(draw), workers=Processes(2))
