"""T4: limits against a budget per step, their coverage, and adversaries per step through the real channel.

Statistical alarms go off by chance with probability 1e-6 (``laws.FALSE_ALARM``, ``toys.ALARM``), from fixed seeds.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from laws import too_many
from planned import bets_before
from surefoot import Episodes, certify, certify_per_step, certify_shared_budget
from surefoot.cli import main as cli
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import View
from surefoot.play.loop import RewardRecorder
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.proof.bounds.step_scores import OrderedRewards
from surefoot.proof.planning import strategies
from surefoot.verification.plan_again import recompute_step_bets
from surefoot.verification.recompute.bands import Claim
from surefoot.verification.recompute.bets import PlannedBet, PlannedBettor
from surefoot.verification.recompute.step_budget import StepAccount, StepRewards
from surefoot.verification.verify import verify
from toys import fixed, gate, geometric, pay_first_choice, pay_steps, plan_for, run_episodes, shifted, too_few, toy_task
from verdicts import problems

SIGMA, STEPS = 0.5, 12
PUBLISHED = Path(__file__).parents[2] / "study" / "data" / "published" / "cartpole-5.json"
ALPHA = 0.2


# --- the limits -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RewardLaw:
    """Rewards of three steps: how to draw those of n episodes, their range, and the mean at each step."""

    draw: Callable[[np.random.Generator, int], np.ndarray]
    means: tuple[float, float, float]
    low: float = 0.0
    high: float = 1.0

    def worst(self, c: float) -> float:
        """Return the most that may be certified at e / sigma = c: the higher one of T4 and T8."""
        return max(self.by_steps(c), by_sums(self.draw(np.random.default_rng(0), 20_000), c, self.low))

    def best(self, c: float) -> float:
        """Return the mirror image."""
        means = [-mean for mean in self.means]
        mirror = replace(self, draw=lambda rng, n: -self.draw(rng, n), means=means, low=-self.high, high=-self.low)
        return -mirror.worst(c)

    def by_steps(self, c: float) -> float:
        """Return T4."""
        width = self.high - self.low
        shares = (np.array(self.means) - self.low) / width
        return sum(self.low + width * shifted(p, c * math.sqrt(t + 1)) for t, p in enumerate(shares))


def by_sums(paid, c, low):
    """Return T8 in one segment of episodes that are given step by step, nan after their end."""
    steps = paid.shape[1]
    left = np.full(paid.shape, low) * np.arange(steps)[::-1]
    is_over = np.concatenate([np.isnan(paid[:, 1:]), np.ones((len(paid), 1), dtype=bool)], axis=1)
    sure = np.cumsum(np.nan_to_num(paid), axis=1) + np.where(is_over, 0.0, left)
    # every point of a grid at the middle of its cell: finer than a test of so few episodes can tell
    points = np.linspace(steps * low, np.nanmax(sure), 1_001)
    points = (points[1:] + points[:-1]) / 2
    lost = [np.searchsorted(np.sort(column), points) / len(paid) for column in sure.T]
    reached = [stats.norm.sf(stats.norm.ppf(share) + c * math.sqrt(t)) for t, share in enumerate(lost, start=1)]
    return steps * low + (points[1] - points[0]) * np.max(reached, axis=0).sum()


def lives(rng, n):
    """A reward of 1 at each step until a life ends for good."""
    return np.minimum.accumulate(rng.random((n, 3)) < 0.9, axis=1).astype(float)


def mixed(rng, n):
    """0 or 1; between -1 and 1; rarely -1 and else 0.5."""
    columns = [rng.random(n) < 0.7, 2 * rng.beta(5, 2, n) - 1, np.where(rng.random(n) < 0.02, -1, 0.5)]
    return np.stack(columns, axis=1).astype(float)


def over_when_won(rng, n):
    """Over with 1 after the first step or the second, if it is won there; at the last step 1 or -1."""
    time = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    paid = np.where(np.arange(3) == time[:, None], 1.0, np.where(np.arange(3) < time[:, None], 0.0, np.nan))
    paid[(time == 2) & (rng.random(n) < 0.5), 2] = -1.0
    return paid


REWARDS = {
    "coins": RewardLaw(lambda rng, n: (rng.random((n, 3)) < 0.8).astype(float), (0.8, 0.8, 0.8)),
    "lives": RewardLaw(lives, (0.9, 0.81, 0.729)),
    "mixed": RewardLaw(mixed, (0.7, 3 / 7, 0.47), -1.0, 1.0),
    "all or nothing": RewardLaw(lambda rng, n: np.repeat((rng.random((n, 1)) < 0.9) * 1.0, 3, axis=1), (0.9,) * 3),
    "rare failures": RewardLaw(lambda rng, n: (rng.random((n, 3)) < 0.99).astype(float), (0.99,) * 3),
    "perfect": RewardLaw(lambda rng, n: np.ones((n, 3)), (1.0, 1.0, 1.0)),
    "costs": RewardLaw(lambda rng, n: -(rng.random((n, 3)) ** 4), (-0.2, -0.2, -0.2), -1.0, 0.0),
    "at the end": RewardLaw(lambda rng, n: np.outer(rng.random(n) < 0.7, [0.0, 0.0, 1.0]), (0.0, 0.0, 0.7)),
    "mostly nothing": RewardLaw(lambda rng, n: (rng.random((n, 3)) < 0.05) * rng.random((n, 3)), (0.025,) * 3),
    "over when won": RewardLaw(over_when_won, (0.5, 0.3, 0.0), -1.0, 1.0),
    "won at any time": RewardLaw(lambda rng, n: np.eye(4)[rng.integers(0, 4, n)][:, :3], (0.25,) * 3),
}
BUDGETS = (0.5,)  # several are tested where bets are: bets on rewards are slow


def record(paid, limits=(-1.0, 1.0), most=3.0):
    """Return episodes that were paid this at each step, nan after their end."""
    steps = paid.shape[1]
    floor = min(0.0, steps * limits[0])
    facts = {"reward_range": list(limits), "max_steps": steps, "lengths": (~np.isnan(paid)).sum(axis=1)}
    made = Episodes.from_returns(np.nansum(paid, axis=1), sigma=SIGMA, floor=floor, ceiling=most, **facts)
    values = paid[~np.isnan(paid)]
    return replace(made, reward_values=values, reward_repeats=np.ones(values.size, dtype=np.int64))


def misses(law, runs, n, claimed=1.0, alpha=ALPHA):
    rng, low, high = np.random.default_rng(31), 0, 0
    worst = np.array([law.worst(c) for c in BUDGETS])
    best = np.array([law.best(c) for c in BUDGETS])
    for _ in range(runs):
        episodes = record(law.draw(rng, n), (law.low, law.high))
        made = certify_per_step(episodes, [c * SIGMA * claimed for c in BUDGETS], 1 - alpha)
        low += bool(np.any(made.lower > worst + 1e-8))
        high += bool(np.any(made.upper < best - 1e-8))
    return low, high


@pytest.mark.parametrize("name", sorted({*REWARDS} - {"perfect"}))  # whose limits are those of the rules
def test_limits_miss_no_more_often_than_promised(name):
    low, high = misses(REWARDS[name], 20, 30)
    assert not too_many(low, 20, ALPHA)
    assert not too_many(high, 20, ALPHA)


def test_planted_half_the_budget():
    low, high = misses(REWARDS["mixed"], 20, 200, claimed=0.5)
    assert too_many(low, 20, ALPHA)
    assert too_many(high, 20, ALPHA)


def test_planted_half_the_budget_where_sums_are_better():
    low, _ = misses(REWARDS["won at any time"], 12, 200, claimed=0.5)
    assert too_many(low, 12, ALPHA)


@pytest.mark.parametrize(
    ("draw", "low", "planted"),
    [(lives, 0.0, ""), (lives, 0.0, "bets"), (over_when_won, -1.0, ""), (over_when_won, -1.0, "steps")],
)
def test_no_episode_decides_about_a_bet_on_itself(draw, low, planted, monkeypatch):
    """Other rewards from episode 200 on change no bet before; who is shown all episodes is noticed."""
    paid = draw(np.random.default_rng(1), 300)
    other = paid.copy()
    other[200:] = [1.0, 0.0, 0.0]
    if planted == "bets":
        monkeypatch.setattr(
            OrderedRewards, "before", lambda self, index: OrderedRewards(self.rewards, self.outcomes[:index])
        )

    def bets_on(rows):
        if planted == "steps":
            chosen = np.array([1, 3] if rows is paid else [2, 3])
            monkeypatch.setattr("surefoot.proof.planning.strategies.steps_to_ask", lambda *_: chosen)
        return bets_before(200, lambda: certify_per_step(record(rows, (low, 1.0)), [0.1]), monkeypatch)

    one, another = bets_on(paid), bets_on(other)
    assert len(one) > 50
    assert (one == another) == (planted == "")
    by_sums = any(len(guesses) == 3 for _, guesses, _ in one)
    assert by_sums == (draw is over_when_won)


def test_the_pilot_alone_chooses_the_steps(monkeypatch):
    """Nothing is bet on the episodes that it is made of."""
    sizes = []
    choose = strategies.steps_to_ask

    def watched(pilot, *where):
        sizes.append(pilot.size)
        return choose(pilot, *where)

    monkeypatch.setattr(strategies, "steps_to_ask", watched)
    episodes = record(over_when_won(np.random.default_rng(1), 100))
    made = certify_per_step(episodes, [0.1])
    assert sizes == [10, 10]
    assert min(row["first"] for rows in made.betting.values() for row in rows) == 10


@pytest.mark.parametrize(("step", "is_fair"), [(2.0, True), (0.0, False), (2.5, False), (4.0, False)])
def test_planned_steps_that_are_none_are_no_fair_bet(step, is_fair):
    episodes = record(over_when_won(np.random.default_rng(1), 20))
    steps = StepRewards(episodes.reward_values, episodes.reward_repeats, episodes.lengths, 3, -1.0, 1.0)
    account = StepAccount(steps, steps.step_by_step(), -3.0, PlannedBettor(1.0, 0.05, []))
    guesses = (np.array([1.0]), np.array([0.5]), np.array([step]))
    hedge = (np.array([-0.5]), np.array([0.1]))
    account.settle(PlannedBet(first=5, last=9, block=(5, 9), cutoff=None, guesses=guesses, hedge=hedge))
    assert (account.wrong == []) == is_fair


def test_bounds_grow_with_episodes_and_fall_with_budget_and_confidence():
    paid = lives(np.random.default_rng(6), 3_000)
    most = certify_per_step(record(paid), [0.0, 0.1, 0.3]).lower
    assert np.all(np.diff(most) < 0)
    assert np.all(certify_per_step(record(paid[:300]), [0.0, 0.1, 0.3]).lower < most)
    assert np.all(certify_per_step(record(paid), [0.0, 0.1, 0.3], 0.999).lower < most)


def test_one_bet_on_all_steps_loses_little():
    """The paper's published returns of CartPole, of which the length is the return: within 4% of the plug-in."""
    counts = json.loads(PUBLISHED.read_text())["counts_by_sigma"]["0.4"]
    lengths = np.repeat([int(key) for key in counts], list(counts.values()))
    lengths = np.random.default_rng(0).permutation(lengths)[:4_000]
    facts = {"reward_range": [0.0, 1.0], "max_steps": 200, "lengths": lengths}
    episodes = Episodes.from_returns(lengths.astype(float), sigma=0.4, floor=0, ceiling=200, **facts)
    episodes = replace(episodes, reward_values=np.ones(lengths.size), reward_repeats=episodes.lengths)
    means = [(lengths >= t).mean() for t in range(1, 201)]
    plug_in = sum(shifted(p, 0.1 * math.sqrt(t)) for t, p in enumerate(means, start=1))
    assert 0.96 * plug_in < certify_per_step(episodes, [0.04]).lower[0] < plug_in


def lower_of_both(rewards, e):
    """Return the lower limits for e per step, and by T2 for the e sqrt(T) that e per step add up to."""
    steps = rewards.shape[1]
    episodes = record(rewards, (0.0, 1.0), steps)
    per_step = certify_per_step(episodes, [e]).lower[0]
    return per_step, certify(episodes, [e * math.sqrt(steps)], method="band").lower[0]


def test_bounds_are_in_the_units_of_the_rewards():
    """Rewards and their range times three: so are all bounds, which the plain range of 1 would not tell."""
    paid, budgets = mixed(np.random.default_rng(5), 80), [0.0, 0.1, 0.5]
    once, thrice = (certify_per_step(record(k * paid, (-k, k), 3.0 * k), budgets) for k in (1.0, 3.0))
    assert thrice.lower == pytest.approx(3 * once.lower, abs=1e-6)
    assert thrice.upper == pytest.approx(3 * once.upper, abs=1e-6)


def test_where_it_is_better_than_the_whole_episode_and_where_not():
    """A life that may end at every step loses less by T4; of many independent rewards T8 knows the sum, as T2 does."""
    rng = np.random.default_rng(5)
    long_lives = np.minimum.accumulate(rng.random((3_000, 100)) < 0.998, axis=1).astype(float)
    per_step, whole = lower_of_both(long_lives, 0.1)
    assert per_step > whole + 10
    coins = (rng.random((3_000, STEPS)) < 0.97).astype(float)
    per_step, whole = lower_of_both(coins, 0.2)
    t4 = sum(shifted(p, 0.2 / SIGMA * math.sqrt(t)) for t, p in enumerate(coins.mean(axis=0), start=1))
    assert max(t4, 0.99 * whole) < per_step


# --- adversaries per step through the channel -----------------------------------------------------------------------


@dataclass
class EveryStep:
    """Adds ``size`` to the coordinate that counts, at every step; the channel's own budget is out of the way."""

    size: float

    def propose(self, view: View) -> Tensor:
        offset = torch.zeros_like(view.observation)
        offset[:, 0] = self.size
        return offset

    def describe(self):
        return {"name": "every step"}


def gates(draw=None, pay=pay_first_choice, steps=STEPS, **more):
    facts = {"ceiling": float(steps), "max_steps": steps, "reward_range": (0.0, 1.0), **more}
    return toy_task(draw or fixed(steps), pay, **facts)


def test_an_adversary_at_every_step_stays_above_the_certificate():
    """Each step is won with 0.95; the offset of a step harms that step alone, so the truth is far above the bound."""
    plan = plan_for(gates(), gate(0.95, SIGMA), SIGMA, 4_000, n_envs=500, per_step=True)
    made = certify_per_step(play(plan), [0.1], 0.999)
    attacked = play(replace(plan, attacker=EveryStep(0.1), budget=100.0))
    wins, count = attacked.returns.sum(), STEPS * len(attacked)
    assert not too_few(wins, count, made.lower[0] / STEPS)
    assert too_few(wins, count, 0.95)
    assert attacked.budget_used.max() <= 0.1 * math.sqrt(STEPS) * (1 + 1e-6)


class Remembers(torch.nn.Module):
    """Chooses by the sum of all it has seen: the worst agent for T4, which it makes nearly tight at the last step."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, history: Tensor) -> Tensor:
        total = history.flatten(1).sum(dim=1)
        return torch.stack((torch.full_like(total, self.limit), total), dim=1)


def test_an_agent_that_sums_what_it_sees_is_harmed_by_the_root_of_time():
    """Reward at the last step only, won if the sum of four observations is small: T4's shift e sqrt(4) is attained."""
    from surefoot.agents.policies import Policy, Spaces

    def pay_last(actions, clock, length):
        return (actions == 0) & (clock == length)

    p, e, steps = 0.95, 0.3, 4
    limit = SIGMA * math.sqrt(steps) * stats.norm.ppf(p)
    task = gates(pay=pay_last, steps=steps, n_stack=steps, ceiling=1.0)
    agent = Policy(Remembers(float(limit)), Spaces(shape=(1,), n_actions=2, n_stack=steps), name="remembers")
    plan = Plan(task=task, policy=agent, noise=Noise.of(SIGMA), n_episodes=20_000, n_envs=1_000, per_step=True)
    made = certify_per_step(play(plan), [e], 0.999)
    truth = shifted(p, e * math.sqrt(steps) / SIGMA)
    attacked = play(replace(plan, attacker=EveryStep(e), budget=100.0, seed=1))
    wins, count = attacked.returns.sum(), len(attacked)
    assert stats.binomtest(int(wins), count, truth).pvalue > 1e-6
    assert not too_few(wins, count, made.lower[0])
    assert truth - 0.03 < made.lower[0] < truth
    assert too_few(wins, count, shifted(p, e / SIGMA))  # the planted error: one step's budget for the whole episode


# --- play, record, command ------------------------------------------------------------------------------------------


def test_rewards_are_those_of_each_step_of_each_episode():
    """Environments that pay at every second step, several episodes each, in blocks; step by step what was paid."""
    draw = geometric(0.2, 30)

    def pay_second(actions, clock, length):
        return (clock % 2 == 0) | (clock == 1)

    plan = plan_for(
        gates(draw, pay_second, 30), gate(0.5, SIGMA), SIGMA, 50, n_envs=7, episodes_per_env=3, per_step=True
    )
    played = play(plan)
    paid = np.repeat(played.reward_values, played.reward_repeats)
    clock = np.concatenate([np.arange(1, length + 1) for length in played.lengths])
    assert paid.tolist() == ((clock % 2 == 0) | (clock == 1)).tolist()
    without = play(replace(plan, per_step=False))
    assert np.array_equal(without.returns, played.returns)
    assert without.reward_values is without.reward_repeats is None
    assert "reward_range" not in without.metadata


def test_rows_that_idle_after_their_end_are_paid_nothing():
    """Where finished rows are not dropped at once they are stepped on, and asked to end their runs again."""
    recorder = RewardRecorder(2, (0.0, 1.0))
    episode, both, first = torch.tensor([0, 1]), torch.tensor([True, True]), torch.tensor([True, False])
    recorder.add_rewards(episode, both, torch.tensor([1.0, 0.5], dtype=torch.float64))
    recorder.end_runs(~first, episode)
    for _ in range(3):
        recorder.add_rewards(episode, first, torch.tensor([1.0, 0.0], dtype=torch.float64))
        recorder.end_runs(~first, episode)
    recorder.end_runs(both, episode)
    values, repeats = recorder.runs()
    assert (values.tolist(), repeats.tolist()) == ([1.0, 0.5], [4, 1])


def test_rewards_are_kept_on_disk_joined_and_cut(tmp_path):
    plan = Plan(task=gates(), policy=gate(0.9, SIGMA), noise=Noise.of(SIGMA), n_episodes=40, n_envs=10, per_step=True)
    played = play(plan, workers=2)
    played.save(tmp_path / "e.npz")
    there = Episodes.load(tmp_path / "e.npz")
    assert np.array_equal(there.reward_values, played.reward_values)
    assert np.array_equal(there.reward_repeats, played.reward_repeats)
    assert there.sha256 == played.sha256
    parts = [played[:7], played[7:7], played[7:33], played[33:]]
    joined = Episodes.concat([part for part in parts if len(part)])
    assert joined.sha256 == played.sha256
    assert played[::2].reward_values is None


def test_more_rewards_than_a_file_may_have_are_refused_after_the_first_block(monkeypatch):
    monkeypatch.setattr("surefoot.play.rollout.MOST_ARRAYS", 1000)
    plan = Plan(task=gates(), policy=gate(0.9, SIGMA), noise=Noise.of(SIGMA), n_episodes=400, n_envs=10, per_step=True)
    with pytest.raises(InputError, match="the rewards of 400 episodes is too large for a record"):
        play(plan)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: Plan(task=toy_task(fixed(1), pay_steps), policy=gate(0.9, 1.0), noise=Noise.of(1.0), per_step=True),
            "limits of a step's reward",
        ),
        (
            lambda: run_episodes(
                replace(gates(), scoring=replace(gates().scoring, reward_range=(0.0, 0.5))),
                gate(0.9, 1.0),
                1.0,
                5,
                per_step=True,
            ),
            "every reward must be between 0 and 0.5",
        ),
        (
            lambda: certify_per_step(Episodes.from_returns([1.0], sigma=1, floor=0), [0.1]),
            "run them with per_step=True",
        ),
        (
            lambda: certify_per_step(replace(record(np.ones((5, 3))), reward_values=None), [0.1]),
            "run them with per_step=True",
        ),
        (lambda: certify_per_step(replace(record(np.ones((5, 3))), metadata={}), [0.1]), "run them with per_step=True"),
        (lambda: certify_per_step(record(np.ones((5, 3)), (1, 2)), [0.1]), "must contain 0"),
        (
            lambda: certify_per_step(replace(record(np.ones((5, 3))), returns=np.ones(5), ceiling=2.0), [0.1]),
            "add up to 3 to 3, expected from the floor -3 to the ceiling 2",
        ),
        (
            lambda: certify_per_step(replace(record(-np.ones((5, 3)), (-1, 0)), returns=np.zeros(5), floor=0.0), [0.1]),
            "add up to at most 0 in 3 steps, expected more than the floor 0",
        ),
        (lambda: certify_per_step(record(np.ones((5, 3))), [-1]), "budget must be a finite number"),
    ],
)
def test_bad_input_is_named(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_the_command_certifies_per_step_and_verify_checks_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = ["certify", "cartpole-1", "--sigma", "0.4", "--episodes", "300", "--workers", "1", "--out", "run"]
    assert cli.main([*run, "--per-step", "--budgets", "0,0.02"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "attack with budget 0.02 (l2 norm of the perturbation of each single observation)." in said
    made = json.loads((tmp_path / "run" / "per-step.json").read_text())
    assert (made["kind"], made["n_steps"], made["reward_range"]) == ("per-step", 200, [0, 1])
    assert verify("run", blocks=None, fresh=8).verified
    for change in (
        {"lower": [made["lower"][0] + 0.01, made["lower"][1]]},
        {"n_steps": 10},
        {"reward_range": [0.0, 0.5]},
    ):
        (tmp_path / "run" / "per-step.json").write_text(json.dumps({**made, **change}))
        failed = {check.name for check in verify("run", blocks=0).checks if check.result in ("failed", "impossible")}
        assert "per-step.json: bounds" in failed
    (tmp_path / "run" / "per-step.json").write_text(json.dumps(made))
    there = Episodes.load("run/episodes.npz")
    # The first episode that ended early is said to have been paid nothing at its first step, and twice at none.
    forged = replace(
        there,
        returns=there.returns - np.eye(1, len(there))[0],
        reward_values=np.concatenate([[0.0], there.reward_values]),
        reward_repeats=np.concatenate([[1, there.reward_repeats[0] - 1], there.reward_repeats[1:]]),
    )
    forged.save("run/episodes.npz")
    (tmp_path / "run" / "per-step.json").write_text(json.dumps(certify_per_step(forged, [0, 0.02]).to_json()))
    failed = {
        check.name: check.detail for check in verify("run", blocks=None, fresh=8).checks if check.result == "failed"
    }
    assert "block 0: the rewards of its steps differ" in failed["replay"]


def test_rewards_that_do_not_add_up_to_the_returns_are_refused_without_playing(tmp_path, monkeypatch):
    """A forger who regenerates hash and bounds from rewards that no episode had."""
    monkeypatch.chdir(tmp_path)
    run = ["certify", "cartpole-1", "--sigma", "0.4", "--episodes", "60", "--workers", "1", "--out", "run", "--quiet"]
    assert cli.main([*run, "--per-step", "--budgets", "0,0.02"]) == 0
    there = Episodes.load("run/episodes.npz")
    for values, right in ((there.reward_values, True), (there.reward_values * 0.9, False)):
        forged = replace(there, reward_values=values.copy())
        forged.save("run/episodes.npz")
        (tmp_path / "run" / "per-step.json").write_text(json.dumps(certify_per_step(forged, [0, 0.02]).to_json()))
        wrong = problems(verify("run", blocks=0))
        assert wrong == {} if right else "do not add up to its return" in wrong["arrays"]


def test_wrong_calls(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    task = ["certify", "cartpole-1", "--per-step"]
    more = ("--agent", "cartpole-1-s0.2", "--sigma", "0.2", "--floor", "0", "--per-step")
    known = ["certify", "--env", "CartPole-v1", *more]
    for wrong, match in (
        ([*task, "--method", "dkw"], "has only one method, got 'dkw'; omit the method"),
        ([*task, "--reward-range", "0,1"], "--reward-range cannot be combined with a task"),
        ([*known, "--reward-range", "0"], "--reward-range: must look like -1,1"),
        ([*known, "--reward-range", "2,1"], "LOW,HIGH with LOW <= HIGH, got 2.0,1.0"),
    ):
        assert cli.main(wrong) == 2
        assert match in capsys.readouterr().err, wrong


@pytest.mark.parametrize("name", REWARDS)
def test_the_second_computation_agrees(name):
    law = REWARDS[name]
    for n in (1, 7, 100):
        episodes = record(law.draw(np.random.default_rng(n), n), (law.low, law.high), 3.0)
        made = certify_per_step(episodes, [0.0, 0.1, 1.0], 0.9)
        steps = StepRewards(episodes.reward_values, episodes.reward_repeats, episodes.lengths, 3, law.low, law.high)
        claim = Claim("per-step", 1 - 0.9, SIGMA / math.sqrt(3), 3 * law.low, 3 * law.high, (0.0, 0.1, 1.0))
        lower, upper, wrong = recompute_step_bets(steps, claim, made.betting)
        assert wrong == []
        floor, top = episodes.floor, episodes.ceiling
        assert np.all(made.lower <= np.maximum(lower.best, floor))
        assert np.all(made.lower >= np.clip(lower.least, floor, episodes.returns.max()) - 1e-7)
        assert np.all(made.upper >= np.minimum(upper.best, top))
        assert np.all(made.upper <= np.clip(upper.least, episodes.returns.min(), top) + 1e-7)


def test_planted_bets_that_were_not_planned_are_found():
    episodes = record(lives(np.random.default_rng(2), 300), (0.0, 1.0))
    made = certify_per_step(episodes, [0.1])
    steps = StepRewards(episodes.reward_values, episodes.reward_repeats, episodes.lengths, 3, 0.0, 1.0)
    claim = Claim("per-step", 0.05, SIGMA / math.sqrt(3), 0.0, 3.0, (0.1,))
    for change in ({"alpha": 0.06}, {"first": 3}, {"cutoff": 0.5}):
        rows = [{**row, **change} for row in made.betting["lower"]]
        *_, wrong = recompute_step_bets(steps, claim, {**made.betting, "lower": rows})
        assert any(text.startswith("lower: ") for text in wrong)


@pytest.mark.parametrize(
    ("sigma", "action_sigma", "unit"), [(0.5, 0.0, 0.5), (0.0, 0.25, 0.25), (0.5, 0.25, 1.0), (0.25, 2.0, 1.0)]
)
@pytest.mark.parametrize("ask", [certify_per_step, certify, partial(certify_shared_budget, n_shared_episodes=3)])
def test_budgets_are_counted_in_the_only_noise_or_in_sigmas(ask, sigma, action_sigma, unit):
    """Of attacks on actions, and on both: with the sigma of observations alone bounds would be others."""
    rewards = {
        "lengths": np.full(60, 3),
        "reward_values": np.tile([1.0, 0.0], 60),
        "reward_repeats": np.tile([2, 1], 60),
    }
    known = {"floor": 0.0, "ceiling": 3.0, **rewards}
    facts = {"reward_range": [0.0, 1.0], "max_steps": 3}
    returns = np.full(60, 2.0)
    plain = ask(Episodes(returns.copy(), sigma=1.0, metadata=facts, **known), [0.0, 0.1, 1.0])
    noise = {"action_sigma": action_sigma} if action_sigma else {}
    made = ask(Episodes(returns.copy(), sigma=sigma, metadata={**facts, **noise}, **known), [0.0, 0.1 * unit, unit])
    assert made.lower == pytest.approx(plain.lower)
    assert made.upper == pytest.approx(plain.upper)
    assert made.at(0.5 * unit).lower == pytest.approx(plain.at(0.5).lower)
