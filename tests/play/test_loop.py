"""The loop: the theory's worst case is attained, short episodes are not favoured, and nothing but the plan matters."""

import math
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from surefoot.agents.memory import FrameStack
from surefoot.agents.policies import Policy, Spaces
from surefoot.attacks.composed import Structured
from surefoot.compute import row_norms
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play import channel
from surefoot.play.channel import Channel, Ledger
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Stream
from surefoot.play.tasks import get_task
from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.query import certify
from toys import (
    Mean,
    Spy,
    Timed,
    along_the_noise,
    balancer,
    constant,
    echo,
    fixed,
    from_callable,
    gate,
    geometric,
    geometric_mean,
    listed,
    mean_off,
    not_normal,
    off,
    pay_action,
    pay_first_choice,
    pay_short,
    pay_steps,
    plan_for,
    run_episodes,
    shifted,
    ten_times_too_much,
    too_few,
    toy_task,
    with_env,
)

SIGMA, P, N = 0.3, 0.9, 40_000
ONE_STEP = toy_task(fixed(1), pay_first_choice, clean=(0.0, 5.0), n_envs=1_000, episodes_per_env=2)


def worst_case(adversary=None, budget=0.0, *, two_sided=False, seed=3):
    """Play Appendix A's one-step game (or its two-sided sister) with the real loop."""
    policy = gate(P, SIGMA, 2, two_sided=two_sided)
    return run_episodes(ONE_STEP, policy, SIGMA, N, seed=seed, attacker=adversary, budget=budget)


# --- Appendix A -----------------------------------------------------------------------------------------------------


def test_without_an_adversary_the_gate_opens_with_its_probability():
    assert not off(worst_case().returns.sum(), N, P)
    assert not off(worst_case(two_sided=True).returns.sum(), N, P)


@pytest.mark.parametrize("radius", [0.25, 1.0, 2.5])
def test_structured_adversary_attains_the_bound(radius):
    played = worst_case(Structured(), radius * SIGMA)
    assert not off(played.returns.sum(), N, shifted(P, radius))
    assert shift_down(P, radius) == pytest.approx(shifted(P, radius))
    assert played.budget_used == pytest.approx(radius * SIGMA, rel=1e-6)


def test_the_other_sign_raises_the_probability():
    assert not off(worst_case(Structured(-1), SIGMA).returns.sum(), N, shifted(P, -1))


def test_the_structured_adversary_spends_everything_at_once_and_in_one_place():
    task = toy_task(fixed(3), pay_steps, clean=(0.0, 5.0), ceiling=3.0)
    spy = Spy(Structured(-1).propose)
    play(Plan(task=task, policy=constant(2), noise=Noise.of(SIGMA), n_episodes=4, n_envs=4, attacker=spy, budget=0.5))
    first, second = (view["last_perturbation"] for view in spy.views[1:])
    torch.testing.assert_close(first, torch.tensor([[-0.5, 0.0]] * 4))
    assert not second.any()


def test_the_certificate_holds_for_the_worst_case():
    lower = certify(worst_case(), [SIGMA], method="binary").lower[0]
    assert shifted(P, 1) - 0.02 < lower < worst_case(Structured(), SIGMA, seed=4).returns.mean() + 0.01


def test_planted_sigma_doubled_is_noticed(monkeypatch):
    """The channel adds half the noise it says: the same adversary then beats the bound of the stated sigma."""
    plan = plan_for(ONE_STEP, gate(P, SIGMA, 2), SIGMA, N, seed=3, attacker=Structured(), budget=SIGMA)
    monkeypatch.setattr(Channel, "send", _with_half_the_noise(Channel.send))
    assert off(play(plan).returns.sum(), N, shifted(P, 1))


def _with_half_the_noise(send):
    def halved(self, observation, rows=None):
        self.sigmas /= 2
        try:
            return send(self, observation, rows)
        finally:
            self.sigmas *= 2

    return halved


# --- an adversary that is shown the present noise ------------------------------------------------------------------


class LeakyChannel(Channel):
    """Draws the noise before the adversary speaks and shows it: what the lemma forbids."""

    def send(self, observation, rows=None):
        noise = self.stream.normal((self.n_envs, *self.shape)).mul_(self.sigmas)
        noise = noise if self.env is None else noise[self.env]
        self.last_noise = noise
        return observation + self.ledger.admit_perturbation(observation, rows, self) + noise


def test_who_waits_for_the_noise_gains_nothing():
    wins = worst_case(Spy(along_the_noise), SIGMA, two_sided=True).returns.sum()
    assert not too_few(wins, N, shifted(P, 1))


def test_planted_present_noise_shown_is_caught(monkeypatch):
    monkeypatch.setattr(channel, "Channel", LeakyChannel)
    wins = worst_case(Spy(along_the_noise), SIGMA, two_sided=True).returns.sum()
    assert too_few(wins, N, shifted(P, 1))


# --- an adversary that wants more than its budget -------------------------------------------------------------------


def over_budget(spent, budget):
    return bool((spent > budget).any())


def test_greed_is_clipped():
    played = worst_case(Spy(ten_times_too_much), SIGMA)
    assert not over_budget(played.budget_used, SIGMA)
    assert not off(played.returns.sum(), N, shifted(P, 1))


def test_planted_ledger_without_clipping_is_caught(monkeypatch):
    def unclipped(self, proposal, left, dtype, unit):
        return proposal.to(dtype), row_norms(proposal) ** 2

    monkeypatch.setattr(Ledger, "_clip_to_budget", unclipped)
    played = worst_case(Spy(ten_times_too_much), SIGMA)
    assert over_budget(played.budget_used, SIGMA)
    assert too_few(played.returns.sum(), N, shifted(P, 1))


def test_every_episode_of_a_slot_has_the_whole_budget():
    task = toy_task(fixed(3), pay_steps, clean=(0.0, 5.0), ceiling=3.0)
    spy = Spy(ten_times_too_much)
    played = run_episodes(task, constant(2), SIGMA, 60, n_envs=4, episodes_per_env=5, attacker=spy, budget=0.7)
    assert played.budget_used == pytest.approx(0.7, rel=1e-6)
    assert not over_budget(played.budget_used, 0.7)
    for view in spy.views:
        first = view["step"] == 0
        assert (view["budget_left"][first] == 0.7).all()
        assert (view["budget_left"][~first] < 1e-3).all()


def test_nothing_is_spent_on_episodes_that_are_over():
    """Also where the environment lets rows that are over wait for others: every step but theirs is booked."""
    task = toy_task(geometric(0.3, 50), pay_steps, clean=(1.0, 2.0), ceiling=50.0, done_check_interval=8)
    spy = Spy(lambda view: torch.full_like(view.observation, 0.1))
    deal = {"n_episodes": 40, "n_envs": 8, "episodes_per_env": 5}
    plan = Plan(task=task, policy=constant(2), noise=Noise.of(SIGMA), attacker=spy, budget=100.0, **deal)
    played = play(plan)
    assert played.budget_used**2 == pytest.approx(0.02 * played.lengths, rel=1e-6)
    assert played.budget_used_per_step.sum() == pytest.approx(0.02 * played.lengths.sum(), rel=1e-6)


def test_nothing_is_stepped_once_the_last_step_is_over():
    """Whatever the interval of the looks is: a simulator of many rows is slow, and the step limit is known."""
    steps = []
    task = toy_task(fixed(10), pay_steps, ceiling=10.0, max_steps=10, done_check_interval=8)
    game = partial(
        Timed, draw=fixed(10), pay=lambda *shown: steps.append(1) or pay_steps(*shown), done_check_interval=8
    )
    played = play(
        Plan(
            task=with_env(task, game),
            policy=constant(),
            noise=Noise.of(0.1),
            n_episodes=12,
            n_envs=6,
            episodes_per_env=1,
        )
    )
    assert played.lengths.tolist() == [10] * 12
    assert len(steps) == 20


def test_a_new_episode_shows_nothing_of_the_one_before():
    task = toy_task(geometric(0.3, 50), pay_steps, clean=(1.0, 2.0), ceiling=50.0)
    spy = Spy(lambda view: torch.full_like(view.observation, 0.01))
    single = gate(0.5, SIGMA, 2)
    policy = replace(single, spaces=replace(single.spaces, n_stack=3), memory=FrameStack(3))
    run_episodes(task, policy, SIGMA, 200, n_envs=8, episodes_per_env=5, attacker=spy, budget=1.0)
    firsts, names, shown = 0, {"memory", "clean", "noise", "last_perturbation", "action"}, set()
    for view in spy.views:
        first = view["step"] == 0
        firsts += int(first.sum())
        for name in names:
            if view[name] is not None:
                assert not view[name][first].any(), name
                shown |= {name} if view[name][~first].any() else set()
    assert firsts == 200
    assert shown == names  # later steps show all of it


# --- returns that depend on the length ------------------------------------------------------------------------------

END, LIMIT, MOST = 0.1, 80, 6
SHORT = 1 - (1 - END) ** MOST
DEALS = [(7, 1_680, 4), (64, 5_120, 4), (1_000, 12_000, 3)]


def length_biased(lengths, shorts):
    mean, variance = geometric_mean(END, LIMIT)
    return mean_off(lengths, mean, variance, LIMIT), off(shorts, len(lengths), SHORT)


@pytest.mark.parametrize("done_check_interval", [1, 8])
@pytest.mark.parametrize(("slots", "episodes", "rounds"), DEALS)
def test_short_episodes_are_not_favoured(slots, episodes, rounds, done_check_interval):
    task = toy_task(geometric(END, LIMIT), pay_steps, ceiling=float(LIMIT), done_check_interval=done_check_interval)
    played = run_episodes(task, constant(), 0.1, episodes, seed=slots, n_envs=slots, episodes_per_env=rounds)
    assert len(played) == episodes
    assert (played.returns == played.lengths).all()
    assert length_biased(played.returns, (played.returns <= MOST).sum()) == (False, False)


@pytest.mark.parametrize(("slots", "episodes", "rounds"), DEALS)
def test_short_episodes_are_not_favoured_where_they_alone_are_paid(slots, episodes, rounds):
    task = toy_task(geometric(END, LIMIT), pay_steps, ceiling=float(LIMIT))
    short = run_episodes(
        with_env(task, _paying_short(task)), constant(), 0.1, episodes, n_envs=slots, episodes_per_env=rounds
    )
    assert not off(short.returns.sum(), episodes, SHORT)


def _paying_short(task):
    return lambda slots, stream: Timed(
        slots, stream, draw=geometric(END, LIMIT), pay=pay_short(MOST), done_check_interval=1
    )


def first_finished(slots, count, seed):
    """The planted error: let every slot run on and take the first ``count`` episodes that end."""
    game = Timed(
        slots, Stream(np.random.SeedSequence(seed), torch.device("cpu")), draw=geometric(END, LIMIT), pay=pay_steps
    )
    game.reset()
    found: list[int] = []
    while len(found) < count:
        over = game.step(torch.zeros(slots))[2]
        found += game.clock[over].tolist()
        game.restart_rows(over)
    return np.array(found[:count])


@pytest.mark.parametrize(("slots", "episodes", "rounds"), DEALS)
def test_planted_first_finished_episodes_are_caught(slots, episodes, rounds):
    block = slots * rounds
    lengths = np.concatenate([first_finished(slots, block, seed) for seed in range(episodes // block)])
    assert length_biased(lengths, (lengths <= MOST).sum()) == (True, True)


@pytest.mark.parametrize("done_check_interval", [1, 3, 8])
def test_episode_k_is_played_by_slot_k_mod_slots(done_check_interval):
    task = toy_task(listed([3, 1, 9, 4]), pay_steps, ceiling=9.0, done_check_interval=done_check_interval)
    # Four slots and ten episodes: slots 0 and 1 play three, slots 2 and 3 play two. Lists only fit four rows.
    task = with_env(task, lambda slots, stream: _BySlot(stream, [3, 1, 9, 4], done_check_interval))
    played = play(Plan(task=task, policy=constant(), noise=Noise.of(0.1), n_episodes=10, n_envs=4, episodes_per_env=3))
    assert played.returns.tolist() == [3, 1, 9, 4, 3, 1, 9, 4, 3, 1]
    assert played.lengths.tolist() == played.returns.tolist()


class _BySlot(Timed):
    """Every slot has one length for all its episodes."""

    def __init__(self, stream, lengths, done_check_interval=1):
        super().__init__(
            len(lengths), stream, draw=listed(lengths), pay=pay_steps, done_check_interval=done_check_interval
        )

    def restart_rows(self, rows):
        self.clock = self.clock.masked_fill(rows, 0)
        return self._observe()[rows]


# --- row i is fixed before anything runs ---------------------------------------------------------------------------


def test_noise_of_a_row_does_not_depend_on_its_neighbours():
    def returns(lengths):
        task = toy_task(listed(lengths), pay_action, choices=None, floor=-1e3, ceiling=1e3)
        return play(Plan(task=task, policy=echo(), noise=Noise.of(1.0), n_episodes=6, seed=9, n_envs=6)).returns

    alone, together = returns([40, 40, 1, 1, 2, 40]), returns([40, 40, 60, 70, 80, 40])
    assert (alone[[0, 1, 5]] == together[[0, 1, 5]]).all()
    assert (alone[[2, 3, 4]] != together[[2, 3, 4]]).all()


def test_returns_of_noise_alone_have_the_law_of_their_sum():
    """One noise per observation: its sum over 16 steps has spread 4 sigma, within and across blocks."""
    task = toy_task(fixed(16), pay_action, choices=None, floor=-1e3, ceiling=1e3)
    returns = run_episodes(task, echo(), 0.5, 8_000, n_envs=100, episodes_per_env=4).returns
    assert not not_normal(returns, 2.0)
    assert not_normal(returns, 2.1)
    assert len(np.unique(returns)) == 8_000


def test_memory_keeps_the_noise_an_observation_was_first_seen_with():
    """With frames f, the mean of the memory is (f-1)/f first + 1/f second: noise is not redrawn."""
    task = toy_task(fixed(2), lambda a, clock, length: a[:, 0] * (clock == 2), choices=None, floor=-9.0, ceiling=9.0)
    returns = run_episodes(
        task, Policy(Mean(), Spaces(shape=(1,), n_actions=None, n_stack=4)), 1.0, 20_000, n_envs=500
    ).returns
    assert not not_normal(returns, math.sqrt(0.75**2 + 0.25**2))
    assert not_normal(returns, 0.5)  # four noises of their own


def test_workers_do_not_change_attacked_play_with_several_rounds():
    task = toy_task(geometric(0.2, 40), pay_steps, clean=(0.0, 0.0), ceiling=40.0)
    plan = plan_for(task, gate(0.5, 1.0, 2), 1.0, 500, n_envs=7, episodes_per_env=3, attacker=Structured(), budget=0.5)
    one, two = play(plan), play(plan, workers=2)
    assert one.returns.tobytes() == two.returns.tobytes()
    assert one.lengths.tobytes() == two.lengths.tobytes()
    assert one.budget_used.tobytes() == two.budget_used.tobytes()
    assert one.setup == two.setup


def test_a_block_is_a_function_of_plan_and_index():
    plan = Plan(task=get_task("cartpole-1"), policy=balancer(), noise=Noise.of(0.4), n_episodes=250, n_envs=50)
    whole = play(plan)
    assert [play_block(plan, k).returns.tolist() for k in (4, 0)] == [
        whole[200:250].returns.tolist(),
        whole[0:50].returns.tolist(),
    ]


def test_a_longer_run_begins_like_a_shorter_one():
    plan = Plan(task=get_task("cartpole-1"), policy=balancer(), noise=Noise.of(0.4), n_episodes=100, n_envs=50)
    assert play(replace(plan, n_episodes=200)).returns[:100].tolist() == play(plan).returns.tolist()


def test_seeds_and_streams_share_no_episodes():
    task = toy_task(fixed(2), pay_action, choices=None, floor=-1e3, ceiling=1e3)
    plans = [
        Plan(task=task, policy=echo(), noise=Noise.of(1.0), n_episodes=2_000, seed=seed, n_envs=50, purpose=s)
        for seed in (0, 1)
        for s in ((), (1, 1), (2,))
    ]
    returns = np.concatenate([play(plan).returns for plan in plans])
    assert len(np.unique(returns)) == len(returns)


def test_progress_tells_how_many_are_done():
    said = []
    play(
        Plan(task=ONE_STEP, policy=constant(2), noise=Noise.of(0.1), n_episodes=10, n_envs=4, episodes_per_env=1),
        progress=lambda done, of: said.append((done, of)),
    )
    assert said == [(0, 10), (4, 10), (8, 10), (10, 10)]


def test_the_game_is_closed_even_when_the_policy_fails():
    made = []

    def build(slots, stream):
        made.append(Timed(slots, stream, draw=fixed(2), pay=pay_steps))
        return made[-1]

    task = with_env(toy_task(fixed(2), pay_steps), build)
    with pytest.raises(ZeroDivisionError):
        run_episodes(task, from_callable(lambda seen: 1 // 0, shape=(1,), n_actions=2), 0.1, 2)
    assert made[0].closed


def test_the_number_of_threads_is_given_back():
    before = torch.get_num_threads()
    worst_case()
    assert torch.get_num_threads() == before


FAULTS = """
import resource
from surefoot.agents.files import load
from surefoot.noise import Noise
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.tasks import get_task

plan = Plan(task=get_task("cartpole-5"), policy=load("cartpole-5-gru-s0.3"), noise=Noise.of(0.3), n_envs=1_000)
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    record = play_block(plan, 0)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / record.lengths.max())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="is about glibc")
def test_a_step_reuses_the_memory_of_the_step_before():
    """A recurrent agent of width 128 allocates 4 MiB in a step, 1,000 pages; in a process whose memory is fresh."""
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 20


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"n_episodes": 0}, "n_episodes must be at least 1, got 0"),
        ({"n_episodes": 10_000_001}, "n_episodes must be at most 10000000, got 10000001"),
        ({"n_episodes": 200_001, "n_envs": 1, "episodes_per_env": 1}, "make 200,001 blocks, expected at most 200,000"),
        ({"draws_per_seed": 0}, "draws_per_seed must be at least 1, got 0"),
        ({"seed": -1}, r"seed must be at least 0 and below 2\*\*128, got -1"),
        ({"n_envs": 0}, "n_envs must be at least 1, got 0"),
        ({"episodes_per_env": 0}, "episodes_per_env must be at least 1, got 0"),
        ({"sigma": -0.1}, "sigma must be a finite number >= 0, got -0.1"),
        ({"sigma": math.nan}, "sigma must be a finite number >= 0, got nan"),
        ({"budget": -1.0}, "budget must be a finite number >= 0, got -1.0"),
        ({"budget": math.inf}, "budget must be a finite number >= 0, got inf"),
        ({"policy": constant(3)}, r"expects observations of shape \(3,\), toy gives \(2,\)"),
        ({"policy": echo(2)}, "has continuous actions, toy takes 2 discrete actions"),
    ],
)
def test_bad_plans_are_refused_before_anything_runs(change, match):
    with pytest.raises(InputError, match=match):
        Plan(**{"task": ONE_STEP, "policy": constant(2), "noise": Noise.of(change.pop("sigma", 0.1)), **change})


def test_an_attacker_is_shown_the_number_of_each_episode_in_the_whole_run():
    """Of three blocks, the last one shorter: counted from 0 in every block, an attack would repeat itself in each."""
    spy = Spy()
    task = toy_task(geometric(0.5, 4), pay_steps, ceiling=4.0)
    plan = plan_for(task, constant(), 0.5, 11, n_envs=2, episodes_per_env=2, attacker=spy, budget=1.0)
    assert plan.n_blocks == 3
    record = play(plan)
    seen = torch.cat([view["episode"] for view in spy.views])
    assert sorted(set(seen.tolist())) == list(range(11))
    steps = torch.bincount(seen, minlength=11)
    assert steps.tolist() == record.lengths.tolist()  # each as often as it had steps
