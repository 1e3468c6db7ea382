"""T4: limits against a budget per step, their coverage, and adversaries per step through the real channel.

Statistical alarms go off by chance with probability 1e-6 (``laws.FALSE_ALARM``, ``toys.ALARM``), from fixed seeds.
"""

import json
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import waiting_env
from laws import too_many
from surefoot import Episodes, certify, certify_per_step
from surefoot.cli import main as cli
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import View
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.proof.bounds import step_means as bounds
from surefoot.proof.bounds.step_means import shifted_step_sum, step_means
from surefoot.verification.recompute.step_budget import recompute_per_step
from surefoot.verification.verify import verify
from toys import fixed, gate, geometric, pay_first_choice, pay_steps, shifted, too_few, toy_task
from verdicts import problems

SIGMA, STEPS = 0.5, 12
ALPHA = 0.2


# --- the limits -----------------------------------------------------------------------------------------------------


def test_a_mean_without_a_failure_in_closed_form():
    """All n values are 1: KL(1 || m) = -log m, so m = (alpha / steps)^(1/n)."""
    limits = step_means(np.array([50.0, 50.0]), 50, 0.05)
    assert limits == pytest.approx((0.025) ** (1 / 50), rel=1e-6)
    assert np.all(limits <= 0.025 ** (1 / 50))
    assert step_means(np.array([0.0]), 50, 0.05)[0] == 0.0


def test_the_limits_cover_exactly_for_coins():
    """The probability of a limit above the truth, summed over all outcomes of n coins."""
    n, alpha = 40, 0.1
    limits = np.array([step_means(np.array([float(k)]), n, alpha)[0] for k in range(n + 1)])
    for p in np.linspace(0.02, 0.98, 25):
        assert stats.binom.pmf(np.arange(n + 1), n, p)[limits > p].sum() <= alpha


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(1, 500))
def test_limits_lie_below_the_means_and_fall_with_the_radius(means, n):
    limits = step_means(np.array(means) * n, n, 0.05)
    assert np.all((limits >= 0) & (limits <= np.array(means)))
    assert np.all(limits <= step_means(np.array(means) * n, n, 0.3))
    sums = [shifted_step_sum(limits, radius) for radius in (0.0, 0.1, 1.0, 10.0)]
    assert sums == sorted(sums, reverse=True)
    assert sums[0] == pytest.approx(limits.sum())


def test_the_shift_grows_with_the_root_of_time():
    p = np.array([0.9, 0.8, 0.7])
    expected = sum(shifted(p[t], 0.3 * math.sqrt(t + 1)) for t in range(3))
    assert shifted_step_sum(p, 0.3) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("sums", "alpha", "match"),
    [([60.0], 0.05, "one sum per step"), ([-1.0], 0.05, "one sum per step"), ([1.0], 2.0, "alpha must be strictly")],
)
def test_bad_sums_are_named(sums, alpha, match):
    with pytest.raises(InputError, match=match):
        step_means(np.array(sums), 50, alpha)


def drawn(rng, n):
    """Rewards of three steps: 0 or 1; between -1 and 1; rarely -1 and else 0.5."""
    return np.stack(
        [rng.random(n) < 0.7, 2 * rng.beta(5, 2, n) - 1, np.where(rng.random(n) < 0.02, -1, 0.5)], axis=1
    ).astype(float)


MEANS = (np.array([0.7, 3 / 7, 0.47]) + 1) / 2
TRUTH = [sum(-1 + 2 * shifted(p, c * math.sqrt(t + 1)) for t, p in enumerate(MEANS)) for c in (0.0, 0.5, 1.5)]
MIRROR = [sum(1 - 2 * shifted(1 - p, c * math.sqrt(t + 1)) for t, p in enumerate(MEANS)) for c in (0.0, 0.5, 1.5)]


def record(paid, limits=(-1.0, 1.0), most=3.0):
    made = Episodes.from_returns(paid.sum(axis=1), sigma=SIGMA, floor=-most, ceiling=most, reward_range=list(limits))
    return replace(made, reward_sums=paid.sum(axis=0)[None])


def misses(runs, n, claimed=1.0, alpha=ALPHA):
    rng, low, high = np.random.default_rng(31), 0, 0
    for _ in range(runs):
        made = certify_per_step(record(drawn(rng, n)), [c * SIGMA * claimed for c in (0.0, 0.5, 1.5)], 1 - alpha)
        low += bool(np.any(made.lower > np.array(TRUTH) + 1e-8))
        high += bool(np.any(made.upper < np.array(MIRROR) - 1e-8))
    return low, high


def test_limits_miss_no_more_often_than_promised():
    low, high = misses(250, 60)
    assert not too_many(low, 250, ALPHA)
    assert not too_many(high, 250, ALPHA)


def test_planted_half_the_budget():
    low, high = misses(60, 400, claimed=0.5)
    assert too_many(low, 60, ALPHA)
    assert too_many(high, 60, ALPHA)


def test_planted_means_for_limits(monkeypatch):
    monkeypatch.setattr("surefoot.proof.step_budget.step_means", lambda sums, n, alpha: sums / n)
    low, high = misses(200, 60)
    assert too_many(low, 200, ALPHA)
    assert too_many(high, 200, ALPHA)


def lower_of_both(rewards, e):
    """Return the lower limits for e per step: T4, and T2 with the e sqrt(T) that e per step add up to."""
    steps = rewards.shape[1]
    made = Episodes.from_returns(rewards.sum(axis=1), sigma=SIGMA, floor=0, ceiling=steps, reward_range=[0, 1])
    t4 = certify_per_step(replace(made, reward_sums=rewards.sum(axis=0)[None]), [e]).lower[0]
    return t4, certify(made, [e * math.sqrt(steps)], method="band").lower[0]


def test_a_sum_that_was_rounded_up_is_lowered_before_it_is_bounded(monkeypatch):
    monkeypatch.setattr(bounds, "_means_at_entropy", lambda means, most: means)
    means = step_means(np.array([50.0, 50.0 * (1 + 1e-10), 25.0, 0.0]), 50, 0.05)
    assert np.all(means <= np.array([1.0, 1.0, 0.5 * (1 - 0.9e-12), 0.0]))
    assert means[0] < 1


def test_bounds_are_in_the_units_of_the_rewards():
    """Rewards and their range times three: so are all bounds, which the plain range of 1 would not tell."""
    paid, budgets = drawn(np.random.default_rng(5), 80), [0.0, 0.1, 0.5]
    once, thrice = (certify_per_step(record(k * paid, (-k, k), 3.0 * k), budgets) for k in (1.0, 3.0))
    assert thrice.lower == pytest.approx(3 * once.lower, abs=1e-6)
    assert thrice.upper == pytest.approx(3 * once.upper, abs=1e-6)
    uneven = certify_per_step(record(paid, (-1.0, 4.0), 3.0), budgets)
    assert np.all(uneven.lower <= once.lower)
    assert np.all(once.upper <= uneven.upper)


def test_where_it_is_better_than_the_whole_episode_and_where_not():
    """A life that may end at every step loses less by T4; many independent rewards add up to a sum that T2 knows."""
    rng = np.random.default_rng(5)
    lives = np.minimum.accumulate(rng.random((3_000, 100)) < 0.998, axis=1).astype(float)
    t4, t2 = lower_of_both(lives, 0.1)
    assert t4 > t2 + 10
    t4, t2 = lower_of_both((rng.random((3_000, STEPS)) < 0.97).astype(float), 0.2)
    assert t4 < t2


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
    facts = {"ceiling": float(steps), "max_steps": steps, "method": "band", "reward_range": (0.0, 1.0), **more}
    return toy_task(draw or fixed(steps), pay, **facts)


def test_an_adversary_at_every_step_stays_above_the_certificate():
    """Each step is won with 0.95; the offset of a step harms that step alone, so the truth is far above the bound."""
    plan = Plan(
        task=gates(), policy=gate(0.95, SIGMA), noise=Noise.of(SIGMA), n_episodes=4_000, n_envs=500, per_step=True
    )
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


def test_gains_are_the_rewards_of_each_step():
    draw = geometric(0.2, 30)
    plan = Plan(
        task=gates(draw, pay_steps, 30),
        policy=gate(0.5, SIGMA),
        noise=Noise.of(SIGMA),
        n_episodes=50,
        n_envs=7,
        episodes_per_env=3,
        per_step=True,
    )
    played = play(plan)
    assert played.reward_sums.shape == (plan.n_blocks, 30)
    alive = [(played.lengths >= step).sum() for step in range(1, 31)]
    assert played.reward_sums.sum(axis=0).tolist() == alive
    without = play(replace(plan, per_step=False))
    assert np.array_equal(without.returns, played.returns)
    assert without.reward_sums is None
    assert "reward_range" not in without.metadata


def test_gains_are_kept_on_disk_and_joined(tmp_path):
    plan = Plan(task=gates(), policy=gate(0.9, SIGMA), noise=Noise.of(SIGMA), n_episodes=40, n_envs=10, per_step=True)
    played = play(plan, workers=2)
    played.save(tmp_path / "e.npz")
    there = Episodes.load(tmp_path / "e.npz")
    assert np.array_equal(there.reward_sums, played.reward_sums)
    assert there.sha256 == played.sha256
    assert played[:10].reward_sums is None


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda: Plan(task=toy_task(fixed(1), pay_steps), policy=gate(0.9, 1.0), noise=Noise.of(1.0), per_step=True),
            "limits of a step's reward",
        ),
        (
            lambda: play(
                Plan(
                    task=replace(gates(), scoring=replace(gates().scoring, reward_range=(0.0, 0.5))),
                    policy=gate(0.9, 1.0),
                    noise=Noise.of(1.0),
                    n_episodes=5,
                    per_step=True,
                )
            ),
            "every reward must be between 0 and 0.5",
        ),
        (
            lambda: certify_per_step(Episodes.from_returns([1.0], sigma=1, floor=0), [0.1]),
            "run them with per_step=True",
        ),
        (
            lambda: certify_per_step(replace(record(np.ones((5, 3))), reward_sums=None), [0.1]),
            "run them with per_step=True",
        ),
        (lambda: certify_per_step(replace(record(np.ones((5, 3))), metadata={}), [0.1]), "run them with per_step=True"),
        (lambda: certify_per_step(record(np.ones((5, 3)), (1, 2)), [0.1]), "must contain 0"),
        (lambda: certify_per_step(record(np.ones((5, 3))), [-1]), "budget must be a finite number"),
    ],
)
def test_bad_input_is_named(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_the_command_certifies_per_step_and_verify_checks_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = ["certify", "cartpole-1", "--sigma", "0.4", "--episodes", "700", "--workers", "1", "--out", "run"]
    assert cli.main([*run, "--per-step", "--budgets", "0,0.02"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "attack with budget 0.02 (l2 norm of the perturbation of each single observation)." in said
    made = json.loads((tmp_path / "run" / "per-step.json").read_text())
    assert (made["kind"], made["n_steps"], made["reward_range"]) == ("per-step", 200, [0, 1])
    assert verify("run", blocks=None).verified
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
    gains = there.reward_sums.copy()
    gains[0, 150], gains[0, 151] = gains[0, 150] - 1, gains[0, 151] + 1
    forged = replace(there, reward_sums=gains)
    forged.save("run/episodes.npz")
    (tmp_path / "run" / "per-step.json").write_text(json.dumps(certify_per_step(forged, [0, 0.02]).to_json()))
    failed = {check.name: check.detail for check in verify("run", blocks=None).checks if check.result == "failed"}
    assert "block 0: the sums of the gains differ" in failed["replay"]


def test_rewards_that_do_not_add_up_to_the_returns_are_refused_without_playing(tmp_path, monkeypatch):
    """A forger who regenerates hash and bounds from rewards that no episode had."""
    monkeypatch.chdir(tmp_path)
    run = ["certify", "cartpole-1", "--sigma", "0.4", "--episodes", "60", "--workers", "1", "--out", "run", "--quiet"]
    assert cli.main([*run, "--per-step", "--budgets", "0,0.02"]) == 0
    there = Episodes.load("run/episodes.npz")
    for gains, right in ((there.reward_sums, True), (np.minimum(there.reward_sums + 20, 60), False)):
        forged = replace(there, reward_sums=gains.copy())
        forged.save("run/episodes.npz")
        (tmp_path / "run" / "per-step.json").write_text(json.dumps(certify_per_step(forged, [0, 0.02]).to_json()))
        wrong = problems(verify("run", blocks=0))
        assert wrong == {} if right else "do not add up to its returns" in wrong["arrays"]


def test_wrong_calls(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("r.npy", np.ones(10))
    returns = ["certify", "--returns", "r.npy", "--sigma", "1", "--floor", "0", "--per-step"]
    task = ["certify", "cartpole-1", "--per-step"]
    more = ("--agent", "cartpole-1-s0.2", "--sigma", "0.2", "--floor", "0", "--per-step")
    unknown, known = (["certify", "--env", name, *more] for name in (waiting_env.ID, "CartPole-v1"))
    for wrong, match in (
        (returns, "run them with --per-step"),
        ([*task, "--shared-episodes", "2"], "a budget per step is not shared"),
        ([*task, "--method", "dkw"], "has only one method, got 'dkw'; omit the method"),
        ([*task, "--reward-range", "0,1"], "--reward-range cannot be combined with a task"),
        (unknown, "needs the limits of a step's reward"),
        ([*known, "--reward-range", "0"], "--reward-range: must look like -1,1"),
        ([*known, "--reward-range", "2,1"], "LOW,HIGH with LOW <= HIGH, got 2.0,1.0"),
    ):
        assert cli.main(wrong) == 2
        assert match in capsys.readouterr().err, wrong


def test_the_second_computation_agrees():
    for n in (1, 7, 400):
        rewards = drawn(np.random.default_rng(n), n)
        made = certify_per_step(record(rewards), [0.0, 0.1, 1.0], 0.9)
        lower, upper = recompute_per_step(rewards.sum(axis=0)[None], n, (-1.0, 1.0), 1 - 0.9, [0.0, 0.2, 2.0])
        assert made.lower == pytest.approx(np.clip(lower, -3, 3), abs=1e-7)
        assert made.upper == pytest.approx(np.clip(upper, -3, 3), abs=1e-7)
