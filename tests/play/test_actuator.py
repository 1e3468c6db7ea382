"""The actuator channel: noise on actions behind the attacker, one ledger for both channels, and what it certifies.

The game of one step below is the worst case of a mixed budget: its return depends on the sum of both noises alone, so
that an attacker who splits its budget as the noise is split attains the bound exactly.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from scipy import stats

import surefoot
from laws import too_many
from surefoot.agents.smoothed import PredictableNoiseWarning
from surefoot.api.attack import attack_grid
from surefoot.attacks.actions import EachChannel, Push, find_push, opposite_push
from surefoot.attacks.composed import EveryStep, Structured
from surefoot.attacks.learned import load_attacker
from surefoot.attacks.learning import AttackerTraining, train_attacker
from surefoot.attacks.registry import METHODS, Configuration
from surefoot.attacks.victim import Smoothing
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play import channel as channels
from surefoot.play import loop
from surefoot.play.channel import Channel, Ledger, Scope
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.proof.query import Query, certify
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget
from surefoot.proof.stopping import StoppingRule
from surefoot.proof.threats import EPISODE
from surefoot.runs.attacked import AttackGrid
from surefoot.runs.strongest import choose_strongest
from toys import (
    Spy,
    Timed,
    actor_with_critic,
    constant,
    dependent,
    echo,
    fixed,
    not_normal,
    off,
    shifted,
    toy_task,
    with_env,
)
from toys import too_few as too_few_wins

OBS, ACT = 0.3, 0.4  # the sigma of the sum of both is 0.5
TOTAL = math.hypot(OBS, ACT)
P, N = 0.9, 40_000
BOTH = ("observations", "actions")
EACH_STEP = Scope(per_step=True)


def limited(task, limit=8.0):
    return replace(task, spaces=replace(task.spaces, low=(-limit,), high=(limit,)))


def pay_below(sigma, *, two_sided=False):
    """Pay 1 where the executed action, noise of this sigma alone, is below a threshold: with probability P."""
    omega = float(sigma * stats.norm.ppf((1 + P) / 2 if two_sided else P))
    return lambda actions, clock, length: (actions[:, 0].abs() if two_sided else actions[:, 0]) <= omega


def game(sigma, **options):
    return limited(toy_task(fixed(1), pay_below(sigma, **options), choices=None, n_envs=1_000, episodes_per_env=2))


def plan_of(task, noise, **more):
    return Plan(task=task, policy=echo(), noise=noise, **{"n_episodes": N, "seed": 3, **more})


def split(share_on_observations):
    """The attacker who spends so much of its whole budget on the observation, and the rest on the action."""

    def propose(view):
        if view.chosen is None:
            return view.budget_left[:, None] * share_on_observations
        return view.budget_left[:, None]

    return Spy(propose)


# --- what is learned -------------------------------------------------------------------------------------------------


LEARNING = AttackerTraining(iterations=20, n_envs=256, width=8, learning_rate=0.01)


@pytest.mark.parametrize(
    ("noise", "channel", "sigma"),
    [
        (Noise.of(0.0, ACT), "actions", ACT),
        (Noise.of(OBS, ACT), "actions", ACT),
        (Noise.of(OBS, ACT), "observations", OBS),
        (Noise.of(0.0), "actions", ACT),
    ],
    ids=["actions", "actions of both", "observations of both", "undefended"],
)
def test_an_attacker_learns_to_perturb_either_channel(noise, channel, sigma, tmp_path):
    """In units of the channel: what it takes from the budget attains the bound up to a twentieth, never more."""
    total = math.hypot(noise.sigma, noise.action_sigma)
    plan = plan_of(game(total or 0.25), noise, channels=(channel,), n_episodes=2_000, budget=1.0, n_envs=1_000)
    radius = 2.0
    budget = radius * noise.budget_sigma or radius * sigma
    # Who observes knows how many numbers the agent answers with.
    plan = replace(plan, policy=replace(plan.policy, spaces=plan.task.spaces))
    attacker = train_attacker(plan, [budget], LEARNING)
    attacker.save(tmp_path / "attacker.npz")
    grid = AttackGrid(base=plan, budgets=[budget], method="learned", attacker=load_attacker(tmp_path / "attacker.npz"))
    wins = float(play(grid.plan(budget, None)).returns.mean())
    least = 0.0
    if total > 0:
        # Of the noise that decides, the part that this channel has.
        least = float(shifted(P, radius * sigma / total))
    assert least - 0.04 <= wins <= least + 0.05
    other = {"actions": "observations", "observations": "actions"}[channel]
    with pytest.raises(InputError, match=f"was trained to perturb {channel}, and {other} are attacked"):
        attacker.check_fit(plan.task, plan.policy, other)


def test_the_strongest_attack_on_actions_is_chosen_among_all():
    plan = plan_of(game(ACT), Noise.of(0.0, ACT), channels=("actions",), n_episodes=200)
    grid = AttackGrid(base=plan, budgets=[ACT], method="strongest").with_push()
    chosen = choose_strongest(grid, seconds=60.0)
    assert {"adaptive", "uniform", "structured", "random"} <= {trial.method for trial in chosen.trials}
    assert float(play(chosen.plan(ACT, None)).returns.mean()) < 0.75


# --- the bound, attained -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [0.0, 0.5, 1.0, 2.5])
@pytest.mark.parametrize(
    ("noise", "attacked", "on_observations"),
    [(Noise.of(0.0, ACT), ("actions",), 0.0), (Noise.of(OBS, ACT), BOTH, OBS / TOTAL)],
    ids=["actions", "both"],
)
def test_the_worst_attack_attains_the_bound_in_either_channel(noise, attacked, on_observations, radius):
    """Exact binomial, false-alarm level 1e-6 each; the sum of both noises is what decides, and what is shifted."""
    task = game(math.hypot(noise.sigma, noise.action_sigma))
    budget = radius * noise.budget_sigma
    played = play(plan_of(task, noise, attacker=split(on_observations), budget=budget, channels=attacked))
    assert not off(played.returns.sum(), N, shifted(P, radius))
    assert (played.budget_used <= budget).all()
    assert played.budget_used == pytest.approx(budget, rel=1e-3, abs=1e-12)


def wins_of_the_double_spender():
    """An attacker who asks for all of its budget in each channel."""
    played = play(plan_of(game(TOTAL), Noise.of(OBS, ACT), attacker=split(1.0), budget=1.0, channels=BOTH))
    return played.returns.sum()


def test_one_budget_is_not_counted_twice():
    assert not too_few_wins(wins_of_the_double_spender(), N, shifted(P, 1))


def test_planted_a_budget_for_each_channel_is_caught(monkeypatch):
    admit = Ledger.admit_perturbation

    def forgetful(self, clean, rows, channel):
        self.used_squared = torch.zeros_like(self.used_squared)
        return admit(self, clean, rows, channel)

    monkeypatch.setattr(Ledger, "admit_perturbation", forgetful)
    assert too_few_wins(wins_of_the_double_spender(), N, shifted(P, 1))


def wins_of_who_waits_for_the_noise():
    """Against a two-sided threshold it would pay to know the sign of the noise."""

    def propose(view):
        return view.budget_left[:, None] * torch.where(view.noise < 0, -1.0, 1.0)

    task = game(ACT, two_sided=True)
    attack = {"attacker": Spy(propose), "budget": ACT, "channels": ("actions",)}
    return play(plan_of(task, Noise.of(0.0, ACT), **attack)).returns.sum()


class NoiseFirst(Channel):
    """Adds the noise before the attacker speaks: an agent that sends noisy commands over an attacked wire."""

    def send(self, clean, rows=None):
        noise = self.stream.normal((self.n_envs, *self.shape)).mul_(self.sigmas)
        self.last_noise = noise if self.env is None else noise[self.env]
        noisy = clean + self.last_noise
        if self.ledger is None:
            return noisy
        return noisy + self.ledger.admit_perturbation(noisy, rows, self)


def test_noise_is_added_behind_the_attacker():
    assert not too_few_wins(wins_of_who_waits_for_the_noise(), N, shifted(P, 1))


def test_planted_noisy_commands_over_an_attacked_wire_are_caught(monkeypatch):
    monkeypatch.setattr(channels, "Channel", NoiseFirst)
    assert too_few_wins(wins_of_who_waits_for_the_noise(), N, shifted(P, 1))


# --- what arrives ---------------------------------------------------------------------------------------------------


def executed_actions(noise, *, limit, steps=40, **more):
    """Return every executed action of 50 episodes of an agent that always commands 0.25, (steps, episodes)."""
    kept = []

    class Kept(Timed):
        def step(self, actions):
            kept.append(actions[:, 0].clone())
            return super().step(actions)

    draw, pay = fixed(steps), pay_below(1.0)
    task = limited(toy_task(draw, pay, clean=(0.25,), choices=None, ceiling=float(steps), n_envs=50), limit)
    task = with_env(task, lambda n, stream: Kept(n, stream, draw=draw, pay=pay, clean=(0.25,)))
    play(plan_of(task, noise, n_episodes=50, **more))
    return torch.stack(kept).numpy()


def test_noise_on_actions_is_normal_and_independent_of_that_on_observations():
    """False-alarm level 1e-6 each; the agent repeats what it sees, so that its noise is in the executed action too."""
    alone = executed_actions(Noise.of(0.0, ACT), limit=100.0, steps=400) - 0.25
    both = executed_actions(Noise.of(OBS, ACT), limit=100.0, steps=400) - 0.25
    seen = executed_actions(Noise.of(OBS), limit=100.0, steps=400) - 0.25
    assert not not_normal(alone, ACT)
    assert not not_normal(both, TOTAL)
    assert both == pytest.approx(alone + seen, abs=1e-5)  # the same streams, each its own
    assert not dependent(alone, seen)
    assert not dependent(alone[1:], alone[:-1])
    assert not_normal(alone, 1.05 * ACT)


def outside(actions, limit):
    return bool((np.abs(actions) > limit).any())


def test_actions_are_clipped_after_the_noise():
    noise = Noise.of(0.0, ACT)
    free = executed_actions(noise, limit=100.0)
    clipped = executed_actions(noise, limit=0.5)
    assert not outside(clipped, 0.5)
    assert clipped == pytest.approx(np.clip(free, -0.5, 0.5))


def test_planted_clipping_before_the_noise_is_caught(monkeypatch):
    send = Channel.send

    def early(self, clean, rows=None):
        if self.limits is None:
            return send(self, clean, rows)
        low, high = self.limits
        self.limits = None
        try:
            return send(self, torch.clamp(clean, low, high), rows)
        finally:
            self.limits = (low, high)

    monkeypatch.setattr(Channel, "send", early)
    assert outside(executed_actions(Noise.of(0.0, ACT), limit=0.5), 0.5)


def test_without_noise_on_actions_nothing_is_drawn_for_them(monkeypatch):
    noise = Noise.of(OBS)
    before = executed_actions(noise, limit=100.0)
    monkeypatch.setattr(loop, "action_channel", None)  # would raise where it is called
    assert np.array_equal(executed_actions(noise, limit=100.0), before)


# --- the view -------------------------------------------------------------------------------------------------------


def test_the_attacker_sees_the_past_and_the_clean_action_but_no_present_noise():
    """What it is shown before an action: observation and memory of this step, noise and perturbation of the last."""
    spy = Spy(lambda view: torch.full_like(view.target, 0.01))
    noise = Noise.of(OBS, ACT)
    arrived = executed_actions(noise, limit=100.0, steps=30, attacker=spy, budget=1e6, channels=BOTH)
    before_actions = spy.views[1::2]
    assert all(view["chosen"] is None for view in spy.views[::2])
    present = []
    for step, view in enumerate(before_actions):
        assert torch.equal(view["chosen"], view["memory"][:, -1])  # the agent repeats what it has seen
        assert torch.equal(view["clean"][:, -1], view["observation"])
        present.append(torch.from_numpy(arrived[step][:, None]) - view["chosen"] - 0.01)
        if step > 0:
            torch.testing.assert_close(view["noise"], present[step - 1], atol=1e-5, rtol=0)
    for name in ("chosen", "memory", "noise"):
        shown = torch.cat([view[name].reshape(-1) for view in before_actions])
        assert not dependent(shown, torch.cat(present).reshape(-1))
    # The twin: the noise of the step before is shown, and would be the present one if it leaked.
    shown = torch.cat([view["noise"].reshape(-1) for view in before_actions[1:]])
    assert dependent(shown, torch.cat(present[:-1]).reshape(-1))


def test_the_view_of_a_new_episode_shows_no_noise_of_an_action_of_the_one_before():
    spy = Spy(lambda view: torch.full_like(view.target, 0.01))
    attack = {"attacker": spy, "budget": 5.0, "channels": ("actions",), "n_episodes": 8, "n_envs": 4}
    play(plan_of(game(ACT), Noise.of(0.0, ACT), **attack, episodes_per_env=2))
    first, second = spy.views
    assert not first["noise"].any()
    assert second["step"].tolist() == [0] * 4
    assert not second["noise"].any()
    assert not second["last_perturbation"].any()


@pytest.mark.parametrize(("noise", "movable"), [(Noise.of(0.0, ACT), False), (Noise.of(OBS, ACT), None)])
def test_observations_without_noise_are_not_moved_to_excuse_an_agent(noise, movable, monkeypatch):
    """With noise on actions alone no observation is noisy: an agent may know that a moved one is none of its own."""
    given = []
    real = loop.RowChecks
    monkeypatch.setattr(loop, "RowChecks", lambda policy, noisy: given.append(noisy) or real(policy, noisy))
    play(plan_of(game(ACT), noise, n_episodes=4))
    assert [None if noisy is None else bool(noisy.any()) for noisy in given] == [movable]


def test_the_budget_left_is_in_the_units_of_what_is_perturbed():
    spy = Spy(lambda view: view.budget_left[:, None] / (math.sqrt(2) if view.chosen is None else 1))
    attack = {"attacker": spy, "budget": 2.0, "channels": BOTH, "n_episodes": 4, "n_envs": 4}
    play(plan_of(game(TOTAL), Noise.of(OBS, ACT), **attack))
    first, second = (float(view["budget_left"][0]) for view in spy.views)
    assert first == pytest.approx(2.0 * OBS)
    assert second == pytest.approx(math.sqrt(2.0) * ACT, rel=1e-6)


def test_a_budget_for_both_counts_each_feature_in_its_own_sigma():
    """All of the budget on the second feature, which has twice the noise, moves it by the budget times its sigma."""
    task = limited(toy_task(fixed(2), pay_below(1.0), clean=(0.1, 0.2), ceiling=2.0, choices=None, n_envs=4))
    spy = Spy(lambda view: torch.tensor([[0.0, 100.0]] * 4) if view.chosen is None else torch.zeros(4, 1))
    attack = {"attacker": spy, "budget": 1.5, "channels": BOTH, "n_episodes": 4}
    policy = surefoot.as_policy(lambda seen: seen[:, :1], task.spaces, batched=True)
    played = play(Plan(task=task, policy=policy, noise=Noise.of((OBS, 2 * OBS), ACT), **attack))
    assert played.budget_used == pytest.approx(1.5, rel=1e-6)
    # The view of the second step shows what was let through in the first.
    assert spy.views[2]["last_perturbation"].tolist() == [[0.0, pytest.approx(1.5 * 2 * OBS, rel=1e-6)]] * 4


def test_actions_of_an_undefended_agent_are_attacked_too():
    """Without any noise: what it commands, 0.25, is moved by all of the budget, and then it is left alone."""
    attack = {"attacker": Spy(lambda view: view.budget_left[:, None]), "budget": 0.5, "channels": ("actions",)}
    executed = executed_actions(Noise.of(0.0), limit=100.0, steps=3, **attack)
    assert executed == pytest.approx(np.array([[0.75], [0.25], [0.25]]).repeat(50, axis=1), abs=1e-6)


# --- certificates ---------------------------------------------------------------------------------------------------

RETURNS = np.random.default_rng(5).beta(8, 2, 400)
BUDGETS = [0.0, 0.05, 0.1, 0.37]


def made_up(returns, sigma, action_sigma=0.0):
    return Episodes.from_returns(returns, sigma=sigma, action_sigma=action_sigma, floor=0, ceiling=1)


def same(one, other):
    return np.array_equal(one.lower, other.lower) and np.array_equal(one.upper, other.upper)


@pytest.mark.parametrize("method", ["betting", "band", "dkw"])
def test_the_limit_of_one_channel_is_its_certificate_bit_for_bit(method):
    few = RETURNS[:60]
    known = certify(made_up(few, ACT), BUDGETS, method=method)
    assert same(known, certify(made_up(few, 0.0, ACT), BUDGETS, method=method))
    on_actions = made_up(few, OBS, ACT)
    query = Query.for_task(None, on_actions.noise, mixed=[(0.0, budget) for budget in BUDGETS], method=method)
    assert same(known, query.answer(on_actions))
    on_observations = made_up(few, ACT, OBS)
    query = Query.for_task(None, on_observations.noise, mixed=[(budget, 0.0) for budget in BUDGETS], method=method)
    assert same(known, query.answer(on_observations))
    assert not same(known, certify(made_up(few, 0.0, 2 * ACT), BUDGETS, method=method))


def of_steps(episodes):
    """The same episodes with the rewards of each step: all at the last of three."""
    n = len(episodes)
    rewards = np.stack([np.zeros(n), episodes.returns], axis=1).ravel()
    return replace(
        episodes,
        lengths=np.full(n, 3),
        reward_values=rewards,
        reward_repeats=np.tile([2, 1], n),
        metadata={**episodes.metadata, "reward_range": [0.0, 1.0], "max_steps": 3},
    )


THREATS = {
    "per step": lambda episodes, budgets: surefoot.certify_per_step(of_steps(episodes), budgets),
    "shared": lambda episodes, budgets: surefoot.certify_shared_budget(episodes, budgets, 3),
    "shared, certain": lambda episodes, budgets: surefoot.certify_shared_budget(episodes, budgets, 3, certain=True),
}


@pytest.mark.parametrize("threat", THREATS)
def test_other_budgets_of_actions_are_those_of_observations_with_the_same_noise(threat):
    budgets = [0.0, 0.1, 0.4]
    known = THREATS[threat](made_up(RETURNS[:60], ACT), budgets)
    on_actions = THREATS[threat](made_up(RETURNS[:60], 0.0, ACT), budgets)
    assert same(known, on_actions)
    assert known.at(0.2).lower == on_actions.at(0.2).lower
    # With noise on both, budgets count standard deviations.
    on_both = THREATS[threat](made_up(RETURNS[:60], OBS, ACT), budgets)
    assert same(THREATS[threat](made_up(RETURNS[:60], 1.0), budgets), on_both)
    assert "observation" not in on_actions.statement
    assert "action" in str(on_actions).partition("attack budget")[0]
    assert "each divided by the sigma of its noise" in on_both.statement


@pytest.mark.parametrize(
    ("threat", "words"),
    [
        (EPISODE, "all perturbations of observations and of actions in one episode"),
        (StepBudget(), "the perturbations of each single observation and of the action after it"),
        (SharedBudget(3), "all perturbations of observations and of actions in 3 episodes together, root mean square"),
    ],
    ids=["episode", "per step", "shared"],
)
def test_a_pair_of_budgets_is_said_to_be_of_what_it_is(threat, words):
    episodes = of_steps(made_up(RETURNS[:60], OBS, ACT))
    certificate = Query.for_task(None, episodes.noise, mixed=[(0.01, 0.02)], threat=threat).answer(episodes)
    assert f"with budget obs 0.01, act 0.02 (l2 norms of {words}" in " ".join(str(certificate).split())


def test_a_largest_change_of_actions_counts_the_numbers_of_an_action():
    """Three observed numbers, two of an action: the root is of two numbers at each of four steps."""
    task = limited(toy_task(fixed(1), pay_below(1.0), clean=(0.1, 0.2, 0.3), choices=None, max_steps=4))
    task = replace(task, spaces=replace(task.spaces, low=(-1.0, -1.0), high=(1.0, 1.0)))
    query = Query.for_task(task, Noise.of(0.0, ACT), budgets=[0.1], norm="linf")
    assert query.norm.factor == math.sqrt(2 * 4)
    few = made_up(RETURNS[:60], 0.0, ACT)
    made = query.answer(few)
    assert made.lower[0] == certify(few, [0.1 * math.sqrt(8) * (1 + 1e-12)]).lower[0]


@pytest.mark.parametrize("seed", range(5))
def test_a_mixed_budget_costs_the_root_of_the_scaled_squares(seed):
    random = np.random.default_rng(seed)
    sigma, action_sigma, one, other = np.exp(random.uniform(-5, 5, 4))
    episodes = made_up(RETURNS, sigma, action_sigma)
    certificate = Query.for_task(None, episodes.noise, mixed=[(one, other)], method="band").answer(episodes)
    expected = np.sqrt(np.square(one / sigma) + np.square(other / action_sigma))
    assert certificate.budgets[0] == pytest.approx(expected, rel=1e-9)
    assert certificate.requested["mixed"] == [{"observations": one, "actions": other}]
    known = certify(made_up(RETURNS, 1.0), [expected], method="band").lower[0]
    assert certificate.lower[0] == pytest.approx(known, rel=1e-9, abs=1e-12)


def test_probabilities_quantiles_and_cvar_are_those_of_the_scaled_budget():
    known = certify(made_up(RETURNS, 1.0), [0.5], method="band")
    on_actions = certify(made_up(RETURNS, 0.0, ACT), [0.5 * ACT], method="band")
    for ask in ("probability", "quantile", "cvar"):
        wanted = getattr(known, ask)(0.3, 0.5)
        found = getattr(on_actions, ask)(0.3, 0.5 * ACT)
        assert (found.lower, found.upper) == (wanted.lower, wanted.upper)


def misses(claimed, *, runs=300, n=60, alpha=0.2):
    """Return how many certificates of the worst-case game were above what the worst attack attains there."""
    noise = Noise.of(OBS, ACT)
    returns = play(plan_of(game(TOTAL), noise, n_episodes=runs * n)).returns.reshape(runs, n)
    pair = (OBS / 2, ACT)
    truth = shifted(P, math.hypot(0.5, 1.0))
    count = 0
    for some in returns:
        episodes = made_up(some, OBS, claimed)
        query = Query.for_task(None, episodes.noise, mixed=[pair], confidence=1 - alpha, method="binary")
        count += query.answer(episodes).lower[0] > truth
    return too_many(count, runs, alpha)


def test_mixed_certificates_miss_no_more_often_than_promised():
    assert not misses(ACT)


def test_planted_a_larger_sigma_on_actions_than_was_run_is_caught():
    assert misses(4 * ACT)


@pytest.mark.parametrize(("sigma", "unit"), [(0.0, ACT), (OBS, 1.0)])
def test_a_sequential_run_divides_budgets_as_its_certificate_does(sigma, unit, monkeypatch, tmp_path):
    """By the noise on actions, or by 1 where both have noise: by the noise on observations it would stop at chance."""

    class AskedError(Exception):
        pass

    def monitor(goal, **given):
        raise AskedError(given["sigma"])

    monkeypatch.setattr("surefoot.runs.certified.Monitor", monitor)
    stop = StoppingRule(budget=0.1, tolerance=0.5)
    noise = {"sigma": sigma, "action_sigma": ACT}
    with pytest.raises(AskedError) as asked:
        surefoot.certify_run("mountain-car", "mountain-car-s0.2", **noise, stop=stop, out=tmp_path / "run")
    assert asked.value.args == (unit,)


def test_an_attack_is_compared_with_certificates_of_the_same_noise_on_actions_alone():
    certificate = certify(replace(made_up(RETURNS, 0.0, ACT), metadata={"action_sigma": ACT, "agent_sha256": "x"}), [1])
    assert certificate.is_about({"action_sigma": ACT, "agent_sha256": "x"}, 0.0)
    assert not certificate.is_about({"action_sigma": OBS, "agent_sha256": "x"}, 0.0)
    assert not certificate.is_about({"agent_sha256": "x"}, 0.0)


# --- attackers ------------------------------------------------------------------------------------------------------


def acted(channel, method, **more):
    """Return the attacked plan of a small agent with a critic."""
    task = limited(
        toy_task(fixed(5), pay_below(1.0), clean=(0.1, 0.2), ceiling=5.0, choices=None, max_steps=5, n_envs=8), 1.0
    )
    task = replace(task, spaces=replace(task.spaces, n_stack=5))
    noise = Noise.of(OBS, ACT)
    chosen = Configuration(
        task=task, policy=actor_with_critic(), budget=2.0, smoothing=Smoothing(OBS, 4), noise=noise, channels=channel
    )
    attacker = METHODS[method].attacker(chosen)
    return Plan(
        task=task,
        policy=chosen.policy,
        noise=noise,
        n_episodes=8,
        attacker=attacker,
        budget=2.0,
        channels=channel,
        **more,
    )


@pytest.mark.parametrize("attacked", [("actions",), BOTH], ids=["actions", "both"])
@pytest.mark.parametrize(
    "method", [name for name, method in METHODS.items() if not method.needs_learning and name != "flips"]
)
def test_every_method_attacks_actions_within_its_budget(method, attacked):
    played = play(acted(attacked, method))
    assert (played.budget_used <= 2.0).all()
    assert (played.budget_used > 0.2).all()
    assert played.metadata["channels"] == list(attacked)
    assert isinstance(acted(attacked, method).attacker, EachChannel) == (len(attacked) == 2)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_budget_for_each_step_is_kept_and_used_at_every_action(norm, monkeypatch):
    scope = Scope(per_step=True, norm=norm)
    base = replace(acted(("actions",), "random"), attacker=None, noise=Noise.of(0.0, ACT), scope=scope)
    played = play(AttackGrid(base=base, budgets=(0.3,), method="uniform").plan(0.3, None))
    assert played.budget_used_per_step == pytest.approx([8 * 0.3**2] * 5)
    assert (played.budget_used <= 0.3).all()
    tried = []

    def run(trial, block):
        tried.append(trial.attacker.timing)
        return made_up([0.0], 0.0, ACT)

    # A fifth of it is what a push of a whole episode would be looked for with.
    monkeypatch.setattr("surefoot.attacks.actions.play_block", run)
    find_push(base, 0.3)
    assert tried == [EveryStep()] * 4


def test_the_gradient_of_the_critic_goes_down_further_than_chance():
    """Mean value of the executed actions by the agent's own critic: lowest under the descent, on the same noise."""
    values = {}
    for method in ("paper", "random"):
        plan = acted(("actions",), method)
        spy = Spy(plan.attacker.propose)
        play(replace(plan, attacker=spy))
        means = []
        for view, after in zip(spy.views, spy.views[1:], strict=False):
            moved = (view["chosen"] + after["last_perturbation"] + after["noise"]).clamp(-1, 1)
            means.append(float(plan.policy.critic(view["clean"], moved).mean()))
        values[method] = np.mean(means)
    assert values["paper"] < values["random"]


def test_differences_of_the_mean_return_find_the_harmful_direction():
    """Reward falls with the executed action, so that the push that harms goes up; the twin pays the other way."""
    for sign in (1.0, -1.0):

        def pay(actions, clock, length, sign=sign):
            return torch.sigmoid(-4 * sign * actions[:, 0])

        task = limited(toy_task(fixed(5), pay, choices=None, ceiling=5.0, n_envs=16), 1.0)
        policy = replace(echo(), spaces=replace(echo().spaces, low=(-1.0,), high=(1.0,)))
        attack = {"budget": 0.5, "attacker": Spy(), "channels": ("actions",)}
        plan = Plan(task=task, policy=policy, noise=Noise.of(0.0, 0.1), n_episodes=4, **attack)
        push = find_push(plan, 0.5)
        assert push.constant == (sign,)
    assert opposite_push(2) == Push((0.0, 0.0), (-1.0, -1.0))


def test_the_push_is_looked_for_with_the_largest_budget_in_units_of_actions(monkeypatch):
    """A budget of both channels counts standard deviations: of an action it buys so many of its own."""
    asked = []

    def find(plan, reach):
        asked.append((plan.budget, reach))
        return opposite_push(1)

    monkeypatch.setattr("surefoot.runs.attacked.find_push", find)
    for noise, where, reach in ((Noise.of(OBS, ACT), BOTH, 2.0 * ACT), (Noise.of(0.0, ACT), ("actions",), 2.0)):
        base = replace(acted(("actions",), "random"), attacker=None, noise=noise, channels=where)
        AttackGrid(base=base, budgets=(0.5, 2.0, 1.0), method="adaptive").with_push()
        assert asked.pop() == (2.0, pytest.approx(reach))


def test_an_adaptive_attack_on_actions_has_the_push_that_was_found(monkeypatch):
    found = Push((0.5,), (1.0,))
    monkeypatch.setattr("surefoot.runs.attacked.find_push", lambda plan, reach: found)
    options = {"lambdas": None, "noise_samples": 4, "n_episodes": 4, "seed": 0, "device": "cpu", "workers": 1}
    options |= {"budgets": [0.5], "method": "adaptive", "sigma": 0.0, "action_sigma": ACT}
    grid = attack_grid("mountain-car", actor_with_critic(), **options)
    assert grid.push == found
    assert grid.plan(0.5, 0.0).attacker.direction == found


def test_of_two_attackers_that_of_observations_leaves_half_of_what_is_left():
    """Of the squared budget: the other one, asked after it, may use all. Each counts in units of its own noise."""
    plan = acted(BOTH, "random")
    spies = [Spy(), Spy(lambda view: torch.zeros_like(view.chosen))]
    play(replace(plan, attacker=EachChannel(*spies), n_episodes=4, n_envs=4, episodes_per_env=1))
    seen, chosen = (torch.stack([view["budget_left"] for view in spy.views]) for spy in spies)
    assert all(view["chosen"] is None for view in spies[0].views)
    assert all(view["chosen"] is not None for view in spies[1].views)
    assert torch.allclose(seen, torch.full_like(seen, OBS * plan.budget / math.sqrt(2)))
    assert torch.allclose(chosen, torch.full_like(chosen, ACT * plan.budget))


@pytest.mark.parametrize("sigma", [0.2, (0.2, 0.1), 0.0])
def test_scaled_noise_is_scaled_on_observations_and_on_actions(sigma):
    """A curriculum of training begins with little of both."""
    halved = [each / 2 for each in np.atleast_1d(sigma)]
    assert Noise.of(sigma, 0.4).scaled(0.5) == Noise.of(halved, 0.2)
    assert Noise.of(sigma, 0.4).scaled(1) == Noise.of(sigma, 0.4)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Noise.of(0.1, -1.0), "action_sigma must be a finite number >= 0, got -1"),
        (lambda: Noise.of(0.1, math.nan), "action_sigma must be a finite number >= 0, got nan"),
        (lambda: Noise.of(0.1).mixed_budget(0.1, 0.2), r"act=0.2 is a budget for what has no noise.*action_sigma="),
        (lambda: Noise.of(0.0, 0.1).mixed_budget(0.1, 0.2), r"obs=0.1 is a budget for what has no noise.*sigma="),
        (lambda: Noise.of(0.1, 0.1).mixed_budget(-1, 0), r"must have finite numbers >= 0, got obs=-1"),
        (
            lambda: Plan(task=toy_task(fixed(1), pay_below(1.0)), policy=constant(), noise=Noise.of(0, 0.1)),
            "need continuous ones, toy has discrete",
        ),
        (
            lambda: plan_of(toy_task(fixed(1), pay_below(1.0), choices=None), Noise.of(0, 0.1)),
            "need finite limits of them, toy has none",
        ),
        (lambda: plan_of(game(1.0), Noise.of(0.0, 1e-5)), "an action is 8e.05 times as large as the sigma"),
        (
            lambda: plan_of(game(1.0), Noise.of(0.1), attacker=Structured(), channels=("actions",)),
            "perturbs actions, which have no noise",
        ),
        (
            lambda: plan_of(game(1.0), Noise.of(0.0, 0.1), attacker=Structured()),
            "perturbs observations, which have no noise",
        ),
        # Of two that are attacked, one without noise is one too many.
        (
            lambda: plan_of(game(1.0), Noise.of(0.1), attacker=Structured(), channels=BOTH),
            "perturbs actions, which have no noise",
        ),
        (
            lambda: plan_of(game(1.0), Noise.of(0.0, 0.1), attacker=Structured(), channels=BOTH),
            "perturbs observations, which have no noise",
        ),
        # The largest action may be the lowest.
        (
            lambda: plan_of(
                replace(game(1.0), spaces=replace(game(1.0).spaces, low=(-900.0,))), Noise.of(0.0, 0.1)
            ),
            "an action is 9e.03 times as large as the sigma",
        ),
        (lambda: plan_of(game(1.0), Noise.of(0.1), channels=("wires",)), "channels must be one of"),
        # What is learned perturbs one of the two.
        (
            lambda: AttackGrid(
                base=plan_of(game(1.0), Noise.of(OBS, ACT), channels=BOTH), budgets=[1.0], method="learned"
            ),
            "perturbs observations or actions; choose one with channel=",
        ),
        (
            lambda: Query.for_task(None, Noise.of(OBS, ACT), budgets=[1.0], norm="l1"),
            "norm= is of observations or of actions; with noise on both omit it",
        ),
        (
            lambda: Query.for_task(None, OBS, budgets=[1.0], norm="l1").answer(made_up(RETURNS, 0, ACT)),
            "the norm counts observations, and the episodes have no noise on them",
        ),
        (
            lambda: Query.for_task(None, Noise.of(OBS, ACT), mixed=[(0.1, 0.1)], norm="l1"),
            "mixed= gives l2 norms; it cannot be combined with norm=",
        ),
        (
            lambda: plan_of(game(1.0), Noise.of(0.1, 0.1), attacker=Structured(), channels=BOTH, scope=EACH_STEP),
            "a budget for each step is on observations or on actions; choose one with channel=",
        ),
        (
            lambda: Query.for_task(None, Noise.of(OBS, ACT), budgets=[1.0], mixed=[(0.1, 0.1)]),
            "budgets= cannot be combined with mixed=",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(make, match):
    with pytest.raises(InputError, match=match):
        make()


# --- deployed -------------------------------------------------------------------------------------------------------


def test_the_deployed_noise_is_the_certified_one_and_comes_from_the_operating_system(monkeypatch):
    """Normal with sigma, clipped afterwards (false-alarm level 1e-6); two actuators never repeat each other."""
    env = surefoot.ActuatorNoise(gymnasium.make("Pendulum-v1"), sigma=0.2)
    zero = np.zeros(1, dtype=np.float32)
    drawn = np.array([env.action(zero)[0] for _ in range(4_000)])
    assert not not_normal(drawn, 0.2)
    assert env.action(zero).dtype == env.action_space.dtype
    near_the_limit = np.array([env.action(np.full(1, 1.9))[0] for _ in range(500)])
    assert near_the_limit.max() == 2.0
    assert 0.2 < (near_the_limit == 2.0).mean() < 0.45  # P(Z > 0.5) = 0.31
    # A command far beyond the limit stays beyond it: clipped before the noise, half of them would not.
    assert [float(env.action(np.full(1, 5.0))[0]) for _ in range(50)] == [2.0] * 50
    other = surefoot.ActuatorNoise(gymnasium.make("Pendulum-v1"), sigma=0.2)
    env.unwrapped.np_random = other.unwrapped.np_random = np.random.default_rng(0)
    assert env.action(zero) != other.action(zero)
    monkeypatch.setattr("surefoot.agents.smoothed.os.urandom", lambda count: bytes(count))
    assert env.action(zero) == env.action(zero)


class TwoMotors(gymnasium.Env):
    """Two numbers make an action."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)


def test_the_deployed_noise_of_each_number_of_an_action_is_its_own():
    """Planted: the same noise on both, of whose difference an attacker would be sure."""
    env = surefoot.ActuatorNoise(TwoMotors(), sigma=0.2)
    drawn = np.array([env.action(np.zeros(2)) for _ in range(2_000)])
    assert not not_normal(drawn, 0.2)
    assert not dependent(*drawn.T)


def test_seeded_or_missing_noise_at_the_actuator_is_warned_of():
    make = gymnasium.make
    with pytest.warns(PredictableNoiseWarning, match="seeded with 3"):
        seeded = [surefoot.ActuatorNoise(make("Pendulum-v1"), 0.2, seed=3).action(np.zeros(1)) for _ in range(2)]
    assert seeded[0] == seeded[1]
    with pytest.warns(PredictableNoiseWarning, match="no noise is added"):
        surefoot.ActuatorNoise(make("Pendulum-v1"), 0.0)
    with pytest.raises(InputError, match="needs Box actions with finite limits"):
        surefoot.ActuatorNoise(make("CartPole-v1"), 0.2)
    for low, high in ((-np.inf, 1.0), (-1.0, np.inf)):
        endless = gymnasium.wrappers.TransformAction(make("Pendulum-v1"), None, gymnasium.spaces.Box(low, high, (1,)))
        with pytest.raises(InputError, match="needs Box actions with finite limits"):
            surefoot.ActuatorNoise(endless, 0.2)
    for action in (np.full(1, np.nan), np.zeros(2)):
        with pytest.raises(InputError, match="expected a finite action of shape"):
            surefoot.ActuatorNoise(make("Pendulum-v1"), 0.2).action(action)


def test_what_arrives_is_rounded_after_the_noise():
    """Single precision does not have 2**24 + 1: rounded before the noise, what an attacker adds could grow."""

    class Far(gymnasium.Env):
        observation_space = action_space = gymnasium.spaces.Box(-1e9, 1e9, (1,), np.float32)

    env = surefoot.ActuatorNoise(Far(), sigma=1.0)
    env._random = SimpleNamespace(standard_normal=np.ones)
    assert env.action([2.0**24 + 1]).tolist() == [2.0**24 + 2]
