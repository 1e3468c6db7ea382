"""System B: order, budget, noise, and what an adversary is shown."""

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import EPISODE, Channel, Ledger, Rows, Scope, View, _perturbation_norms
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Stream
from toys import Spy, dependent, echo, fixed, not_normal, pay_action, toy_task

CPU = torch.device("cpu")
SIGMA = 0.5


def stream(*seed):
    return Stream(np.random.SeedSequence(7, spawn_key=seed), CPU)


def record(rows, size=2, step=0, episode_start=None):
    return Rows(
        episode=torch.arange(rows),
        step=torch.full((rows,), step),
        episode_start=episode_start,
        observation=torch.zeros(rows, size),
        state=None,
        memory=torch.zeros(rows, 1, size),
        action=None,
    )


def quiet(sigma, rows, shape, stream, ledger=None):
    return Channel(noise=Noise.of(sigma), n_envs=rows, shape=shape, stream=stream, ledger=ledger)


def attacked(adversary, budget=1.0, rows=4, size=2, sigma=SIGMA, scope=EPISODE):
    ledger = Ledger(
        attacker=adversary,
        budget=budget,
        policy=echo(size),
        stream=stream(2),
        n_envs=rows,
        shape=(size,),
        max_steps=1,
        scope=scope,
    )
    return quiet(sigma, rows, (size,), stream(1), ledger)


# --- noise ----------------------------------------------------------------------------------------------------------


def sent(seed, steps=200, rows=50, size=4, sigma=SIGMA):
    channel = quiet(sigma, rows, (size,), stream(seed))
    clean = torch.arange(rows * size, dtype=torch.float32).reshape(rows, size) / 100
    return np.stack([(channel.send(clean) - clean).numpy() for _ in range(steps)])


def test_noise_is_normal_with_the_stated_spread():
    noise = sent(0)
    assert noise.dtype == np.float32
    assert not not_normal(noise, SIGMA)
    for spoilt in (noise * 1.05, noise + 0.05 * SIGMA, np.round(noise * 4) / 4, np.zeros_like(noise)):
        assert not_normal(spoilt, SIGMA)


def test_noise_is_independent_across_steps_rows_features_and_blocks():
    noise, other = sent(0), sent(1)
    assert not dependent(noise[:-1], noise[1:])
    assert not dependent(noise[:, :-1], noise[:, 1:])
    assert not dependent(noise[..., :-1], noise[..., 1:])
    assert not dependent(noise, other)
    assert not dependent(noise**2, other**2)


def test_planted_dependence_alarms():
    noise, other = sent(0), sent(1)
    assert dependent(noise, noise)
    assert dependent(noise, 0.05 * noise + other)


def test_noise_never_passes_through_an_integer_dtype():
    seen = quiet(0.2, 100, (50,), stream(0)).send(torch.zeros(100, 50))
    assert seen.dtype == torch.float32
    assert (seen < 0).float().mean() > 0.4  # wrapped in uint8 there would be none
    assert len(seen.unique()) > 4_000


def test_a_slot_keeps_its_noise_when_others_are_gone():
    whole, part = quiet(1.0, 6, (3,), stream(0)), quiet(1.0, 6, (3,), stream(0))
    for stay, kept in (([1, 2, 4], [1, 2, 4]), ([0, 2], [1, 4])):
        part.keep_rows(torch.tensor(stay))
        for _ in range(2):
            everything = whole.send(torch.zeros(6, 3))
            assert torch.equal(part.send(torch.zeros(len(kept), 3)), everything[kept])


def test_many_streams_are_all_different():
    """Three float32 draws of 2,000 streams agree by chance with probability below 1e-12."""
    assert len({tuple(stream(k).normal((3,)).tolist()) for k in range(2_000)}) == 2_000
    assert len({int(stream(k).generator.initial_seed()) for k in range(2_000)}) == 2_000


def test_uniform_draws_stay_inside_and_are_uniform():
    draws = stream(5).uniform(-0.05, 0.05, (20_000,))
    assert draws.dtype == torch.float64
    assert float(draws.min()) >= -0.05
    assert float(draws.max()) < 0.05
    assert abs(float(draws.mean())) < 5 * 0.1 / np.sqrt(12 * 20_000)


# --- order and view -------------------------------------------------------------------------------------------------


def test_noise_is_drawn_after_the_adversary_spoke():
    said = []

    class Logged(Stream):
        def normal(self, shape):
            said.append("noise")
            return super().normal(shape)

    def propose(view):
        said.append("offset")
        return torch.zeros_like(view.observation)

    channel = attacked(Spy(propose))
    channel.stream = Logged(np.random.SeedSequence(0), CPU)
    for step in range(3):
        channel.send(torch.zeros(4, 2), record(4, step=step))
    assert said == ["offset", "noise"] * 3


def test_the_view_has_these_fields_and_no_others():
    """Who adds a field must show that the lemma allows it; the noise of the present step it does not."""
    names = "episode step observation chosen state memory clean action last_perturbation noise budget_left scope policy"
    assert [f.name for f in fields(View)] == [*names.split(), "stream"]


def test_the_view_shows_the_noise_and_the_offset_of_the_step_before():
    spy = Spy(lambda view: torch.full_like(view.observation, 0.01))
    channel = attacked(spy, rows=5)
    true_noise = []
    for step in range(6):
        clean = torch.full((5, 2), float(step))
        rows = replace(record(5, step=step), observation=clean)
        seen = channel.send(clean, rows)
        channel.ledger.note_observation(rows)
        true_noise.append(seen - clean - 0.01)
    for step, view in enumerate(spy.views):
        assert torch.equal(view["observation"], torch.full((5, 2), float(step)))
        if step == 0:
            assert not view["noise"].any()
            assert not view["last_perturbation"].any()
        else:
            torch.testing.assert_close(view["noise"], true_noise[step - 1], atol=1e-6, rtol=0)
            torch.testing.assert_close(view["last_perturbation"], torch.full((5, 2), 0.01))
            assert torch.equal(view["clean"][:, 0], torch.full((5, 2), float(step - 1)))


def tells(views, noises):
    """Whether anything an adversary is shown correlates with the noise of the same step."""
    pairs = list(zip(views, noises, strict=True))

    def column(name):
        return torch.cat([view[name].reshape(noise.shape).flatten() for view, noise in pairs])

    noise = torch.cat([noise.flatten() for noise in noises])
    columns = [column(name) for name in ("observation", "memory", "clean", "last_perturbation", "noise")]
    return any(column.std() > 0 and dependent(column, noise) for column in columns)


def test_nothing_in_the_view_tells_the_present_noise():
    spy = Spy()
    channel = attacked(spy, rows=50)
    noises, seen = [], torch.zeros(50, 2)
    for step in range(100):
        seen = channel.send(seen.tanh(), record(50, step=step)) if step else channel.send(seen, record(50))
        noises.append(channel.last_noise.clone())
    assert not tells(spy.views, noises)
    assert tells(spy.views[1:], noises[:-1])  # the twin: yesterday's noise is shown, and would be today's if leaked


def test_offsets_and_noise_reach_the_agent_once():
    spy = Spy(lambda view: torch.full_like(view.observation, 0.25))
    channel = attacked(spy, budget=1e6, sigma=0.0)
    for step in range(3):
        assert torch.equal(channel.send(torch.ones(4, 2), record(4, step=step)), torch.full((4, 2), 1.25))


# --- ledger ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    budget=st.floats(0, 1e3),
    proposals=st.lists(st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3), min_size=1, max_size=25),
)
def test_the_ledger_is_never_over_budget(budget, proposals):
    moves = iter(torch.tensor(proposals, dtype=torch.float64))
    channel = attacked(Spy(lambda view: next(moves).unsqueeze(0)), budget, rows=1, size=3, sigma=0)
    through = [channel.send(torch.zeros(1, 3), record(1, 3, step)) for step in range(len(proposals))]
    spent = float(torch.cat(through).double().norm())
    assert float(channel.ledger.budget_used[0]) <= budget  # to the bit
    assert spent <= budget * (1 + 1e-14)  # computed again, in another order
    assert float(channel.ledger.budget_used[0]) == pytest.approx(spent, rel=1e-9, abs=1e-12)
    wanted = float(torch.tensor(proposals, dtype=torch.float64).norm())
    assert spent >= min(wanted, budget) * (1 - 1e-3) - 1e-6


def test_the_budget_holds_over_many_small_steps():
    generator = torch.Generator().manual_seed(0)
    spy = Spy(lambda view: torch.randn(view.observation.shape, generator=generator) * 0.1)
    channel = attacked(spy, budget=1.0, rows=20, sigma=0)
    through = torch.stack([channel.send(torch.zeros(20, 2), record(20, step=k)) for k in range(1_000)])
    spent = through.double().square().sum(dim=(0, 2)).sqrt()
    assert (channel.ledger.budget_used <= 1).all()
    assert (spent <= 1 + 1e-14).all()
    assert (spent > 0.999).all()


@pytest.mark.parametrize("budget", [0.1, 0.3, 0.7, 1e-3, 3e-44, 1e-160, 1e30])
@pytest.mark.parametrize("unit", [None, torch.tensor([1.0, 1.7, 3.3], dtype=torch.float64)], ids=["plain", "features"])
def test_what_is_exactly_the_budget_is_not_rounded_over_it(budget, unit):
    """float32(0.1) is more than 0.1: all of the budget, proposed as it is, would be spent and a bit more."""
    channel = attacked(Spy(lambda view: view.budget_left[:, None] * torch.tensor([1.0, 0.0, 0.0])), budget, 1, 3, 0)
    channel.unit = unit
    for step in range(4):
        channel.send(torch.zeros(1, 3), record(1, 3, step))
        assert float(channel.ledger.budget_used[0]) <= budget
    assert float(channel.ledger.budget_used[0]) >= budget * (1 - 1e-6) or budget < 1e-40


def test_planted_a_ledger_that_does_not_look_again_is_caught(monkeypatch):
    def once(self, proposal, left, dtype, unit):
        return proposal.to(dtype), _perturbation_norms(proposal.to(dtype), unit) ** 2

    monkeypatch.setattr(Ledger, "_clip_to_budget", once)
    with pytest.raises(AssertionError):
        test_what_is_exactly_the_budget_is_not_rounded_over_it(0.1, None)


# --- a budget for each step -----------------------------------------------------------------------------------------

NUMBERS = Scope(per_step=True, norm="linf")
LENGTHS = Scope(per_step=True)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    budget=st.floats(0, 1e3),
    proposals=st.lists(st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3), min_size=1, max_size=9),
)
def test_no_number_of_any_step_is_over_a_budget_in_linf(budget, proposals):
    moves = iter(torch.tensor(proposals, dtype=torch.float64))
    channel = attacked(Spy(lambda view: next(moves).unsqueeze(0)), budget, rows=1, size=3, sigma=0, scope=NUMBERS)
    for step, wanted in enumerate(torch.tensor(proposals, dtype=torch.float64)):
        through = channel.send(torch.zeros(1, 3), record(1, 3, step))[0].double()
        assert float(through.abs().max()) <= budget  # to the bit
        # What is inside stays, and what is not is as far out as it may be.
        assert through.tolist() == pytest.approx(wanted.clamp(-budget, budget).tolist(), rel=2e-7, abs=1e-44)
        # Every step begins with the whole budget.
        assert float(channel.ledger.budget_left[0]) == pytest.approx(budget, rel=1e-15, abs=1e-150)
    assert float(channel.ledger.budget_used[0]) <= budget


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    budget=st.floats(0, 1e3),
    proposals=st.lists(st.lists(st.floats(-1e4, 1e4, width=32), min_size=3, max_size=3), min_size=1, max_size=9),
)
def test_every_step_has_the_whole_budget_and_no_more(budget, proposals):
    moves = iter(torch.tensor(proposals, dtype=torch.float64))
    channel = attacked(Spy(lambda view: next(moves).unsqueeze(0)), budget, rows=1, size=3, sigma=0, scope=LENGTHS)
    sizes = []
    for step, wanted in enumerate(torch.tensor(proposals, dtype=torch.float64)):
        size = float(channel.send(torch.zeros(1, 3), record(1, 3, step)).double().norm())
        assert size <= budget * (1 + 1e-15)
        assert size >= min(float(wanted.norm()), budget) * (1 - 1e-3) - 1e-6
        sizes.append(size)
    assert float(channel.ledger.budget_used[0]) == pytest.approx(max(sizes), rel=1e-9, abs=1e-12)
    assert float(channel.ledger.budget_used[0]) <= budget


UNIT = torch.tensor([1.0, 1.7, 3.3], dtype=torch.float64)


@pytest.mark.parametrize("scope", [LENGTHS, NUMBERS], ids=["l2", "linf"])
@pytest.mark.parametrize("budget", [0.1, 0.7, 3e-44, 1e-160, 1e30])
@pytest.mark.parametrize("unit", [None, UNIT], ids=["plain", "features"])
def test_what_is_exactly_the_budget_of_a_step_is_not_rounded_over_it(budget, unit, scope):
    channel = attacked(
        Spy(lambda view: view.budget_left[:, None] * torch.tensor([0.0, 0.0, 3.3])), budget, 1, 3, 0, scope
    )
    channel.unit = unit
    units = torch.ones(3, dtype=torch.float64) if unit is None else unit
    for step in range(3):
        through = channel.send(torch.zeros(1, 3), record(1, 3, step))[0].double() / units
        assert float(through.abs().max()) <= budget
        assert float(channel.ledger.budget_used[0]) <= budget
        assert float(through[2]) >= budget * (1 - 1e-6) or budget < 1e-40


def test_planted_rounding_that_nobody_looks_at_again_is_over_a_budget_in_linf(monkeypatch):
    def once(self, proposal, left, dtype, unit):
        offset = proposal.clamp(-left[:, None], left[:, None]).to(dtype)
        return offset, offset.double().abs().amax(dim=1) ** 2

    monkeypatch.setattr(Ledger, "_clip_numbers", once)
    with pytest.raises(AssertionError):
        test_what_is_exactly_the_budget_of_a_step_is_not_rounded_over_it(0.1, None, NUMBERS)


def test_planted_a_budget_that_is_not_given_back_at_every_step_is_caught(monkeypatch):
    monkeypatch.setattr(Ledger, "_spent", property(lambda self: self.used_squared))
    with pytest.raises(AssertionError):
        test_every_step_has_the_whole_budget_and_no_more.hypothesis.inner_test(1.0, [[3.0, 0, 0], [3.0, 0, 0]])


def test_what_has_no_noise_is_out_of_reach_of_every_budget():
    for scope in (EPISODE, LENGTHS, NUMBERS):
        channel = attacked(Spy(lambda view: torch.full_like(view.observation, 9)), 1.0, 1, 3, 0, scope)
        channel.unit = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
        through = channel.send(torch.zeros(1, 3), record(1, 3))[0]
        assert float(through[1]) == 0
        assert float(through[0]) > 0.5


@pytest.mark.parametrize(
    ("given", "match"),
    [({"norm": "l1"}, "norm must be one of l2, linf"), ({"norm": "linf"}, "goes with a budget for each step")],
)
def test_scopes_that_there_are_not_are_refused(given, match):
    with pytest.raises(InputError, match=match):
        Scope(**given)


def test_clipping_keeps_the_direction():
    channel = attacked(Spy(lambda view: torch.tensor([[3.0, 4.0]])), budget=1.0, rows=1, sigma=0)
    torch.testing.assert_close(channel.send(torch.zeros(1, 2), record(1)), torch.tensor([[0.6, 0.8]]))


def test_a_restart_gives_the_budget_back_to_the_rows_that_begin():
    channel = attacked(Spy(lambda view: torch.ones_like(view.observation) * 9), budget=1.0)
    channel.send(torch.zeros(4, 2), record(4))
    channel.ledger.restart_rows(torch.tensor([True, False, False, True]))
    torch.testing.assert_close(
        channel.ledger.budget_left, torch.tensor([1, 0, 0, 1], dtype=torch.float64), atol=1e-3, rtol=0
    )
    channel.ledger.keep_rows(torch.tensor([0, 1]))
    assert channel.ledger.budget_left.shape == (2,)


def test_rows_that_stay_keep_what_is_theirs():
    """What each has spent, its last perturbation, noise and frames, when others between them are dropped."""
    spy = Spy(lambda view: torch.arange(4)[:, None] * torch.tensor([0.1, 0.0]))
    channel, rows = attacked(spy), torch.tensor([1, 3])
    channel.send(torch.arange(8.0).reshape(4, 2), record(4))
    ledger = channel.ledger
    before = (ledger.budget_used, channel.last_perturbation, channel.last_noise, ledger.clean)
    channel.keep_rows(rows)
    ledger.keep_rows(rows)
    after = (ledger.budget_used, channel.last_perturbation, channel.last_noise, ledger.clean)
    assert all(torch.equal(old[rows], new) for old, new in zip(before, after, strict=True))
    assert ledger.budget_used.tolist() == pytest.approx([0.1, 0.3])


def test_budgets_of_their_own_stay_with_their_rows():
    channel = attacked(Spy(lambda view: torch.ones(len(view.episode), 2)), sigma=0)
    channel.ledger.budget_squared = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64).square()
    channel.keep_rows(torch.tensor([1, 3]))
    channel.ledger.keep_rows(torch.tensor([1, 3]))
    assert channel.ledger.budget_left.tolist() == pytest.approx([0.2, 0.4])


@pytest.mark.parametrize(
    ("what", "match"),
    [
        (lambda view: torch.full_like(view.observation, torch.nan), "proposed a perturbation that is not finite"),
        (lambda view: torch.full_like(view.observation, torch.inf), "proposed a perturbation that is not finite"),
        (lambda view: torch.zeros(4, 3), r"must propose perturbations of shape \(4, 2\), got \(4, 3\)"),
        (lambda view: torch.zeros(2), r"must propose perturbations of shape \(4, 2\), got \(2,\)"),
        (lambda view: None, r"must propose perturbations of shape \(4, 2\), got NoneType"),
    ],
)
def test_bad_proposals_are_refused(what, match):
    class Bad(Spy):
        def propose(self, view):
            return what(view)

    with pytest.raises(InputError, match=match):
        attacked(Bad()).send(torch.zeros(4, 2), record(4))


def test_who_scribbles_on_a_view_changes_nothing():
    """Not even through numpy, which torch does not notice."""

    class Scribbler(Spy):
        def propose(self, view):
            for shown in vars(view).values():
                if isinstance(shown, torch.Tensor):
                    shown.numpy()[...] = 1
            return torch.zeros_like(view.observation)

    channel, observation, rows = attacked(Scribbler()), torch.zeros(4, 2), record(4)
    shown = [value for value in vars(rows).values() if isinstance(value, torch.Tensor)]
    before = [value.clone() for value in (observation, *shown)]
    channel.send(observation, rows)
    assert all(torch.equal(old, new) for old, new in zip(before, (observation, *shown), strict=True))
    task = toy_task(fixed(3), pay_action, choices=None, floor=-1e3, ceiling=1e3)
    shared = {"task": task, "policy": echo(), "noise": Noise.of(0.1), "n_episodes": 4, "budget": 1.0}
    quiet, scribbled = (play(Plan(attacker=one, **shared)) for one in (Spy(), Scribbler()))
    assert scribbled.returns.tolist() == quiet.returns.tolist()
    assert not scribbled.budget_used.any()


def test_an_attackers_stream_does_not_know_the_seed_of_the_noise():
    own, same = Stream(np.random.SeedSequence(7, spawn_key=(3, 2)), CPU), stream(3, 2)
    assert own._numpy.bit_generator.seed_seq.entropy == 0
    assert own._numpy.bit_generator.seed_seq.spawn_key == ()
    expected = np.random.Generator(np.random.SFC64(np.random.SeedSequence(7, spawn_key=(3, 2))))
    assert np.array_equal(same.normal((5,)).numpy(), expected.standard_normal(5, dtype=np.float32))


# --- single precision -----------------------------------------------------------------------------------------------


def test_perturbation_and_noise_are_added_before_anything_is_rounded():
    """Near 2^23 sigma half a spacing would otherwise become a whole one: a certified .486 was played at .158."""
    spacing = float(np.spacing(np.float32(1000.0)))
    nudge = Spy(lambda view: torch.full_like(view.observation, 0.51 * spacing))
    channel = attacked(nudge, rows=2_000, sigma=0.5)
    clean = torch.full((2_000, 2), 1000.0)
    seen = channel.send(clean, record(2_000))
    exact = clean.double() + channel.last_perturbation.double() + channel.last_noise.double()
    assert channel.last_perturbation.any()
    assert seen.dtype == torch.float32
    assert torch.equal(seen, exact.float())
    rounded_first = (clean + channel.last_perturbation) + channel.last_noise
    assert (rounded_first != seen).float().mean() > 0.3


@pytest.mark.parametrize("under_attack", [False, True])
def test_an_observation_with_more_digits_is_rounded_once_after_the_noise(under_attack):
    """As a deployed agent does it: rounded before, the agent would be certified on another observation."""
    still = Spy(lambda view: torch.zeros_like(view.observation))
    channel = attacked(still, rows=2_000, sigma=0.5) if under_attack else quiet(0.5, 2_000, (2,), stream(1))
    clean = torch.full((2_000, 2), 1000 / 3, dtype=torch.float64)
    seen = channel.send(clean, record(2_000) if under_attack else None)
    noise = channel.last_noise if under_attack else 0.5 * stream(1).normal((2_000, 2))
    assert seen.dtype == torch.float32
    assert torch.equal(seen, (clean + noise.double()).float())
    rounded_first = (clean.float() + noise).float()
    assert (rounded_first != seen).float().mean() > 0.3


def test_large_doubles_carry_their_noise_into_single_precision():
    """At 2^26 sigma an agent sees the neighbors of single precision alone, and which of them the noise still decides.

    Rounded before it, an observation between two of them would be one of the two whatever the noise and the attacker.
    """
    sigma = 0.5
    shift = 0.25
    push = Spy(lambda view: torch.full_like(view.observation, shift))
    base = 2.0**26 * sigma
    halfway = base + 0.5 * float(np.spacing(np.float32(base)))
    for attacker, expected in ((None, 0.5), (push, norm.cdf(shift / sigma))):
        channel = quiet(sigma, 20_000, (1,), stream(1))
        if attacker is not None:
            channel = attacked(attacker, budget=1.0, rows=20_000, sigma=sigma, size=1)
        clean = torch.full((20_000, 1), halfway, dtype=torch.float64)
        seen = channel.send(clean, None if attacker is None else record(20_000, 1))
        assert float((seen.double() > halfway).double().mean()) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("clean", "sigma", "match"),
    [
        (8193.0, 1.0, r"8\.19e\+03 times as large as the sigma of its noise, expected at most 8192"),
        (82.0, 0.01, "times as large as the sigma of its noise"),
        (float("nan"), 1.0, "an observation that is not finite"),
        (float("inf"), 0.0, "an observation that is not finite"),
        (-float("inf"), 0.1, "an observation that is not finite"),
    ],
)
def test_observations_that_single_precision_cannot_tell_from_noise_are_refused(clean, sigma, match):
    channel = quiet(sigma, 3, (2,), stream(1))
    channel.check(torch.tensor(8000.0 * sigma))
    with pytest.raises(InputError, match=match):
        channel.check(torch.tensor(clean))


def test_a_block_with_such_observations_is_refused():
    for clean in (1e5, -1e5):
        task = toy_task(fixed(3), pay_action, choices=None, floor=-1e3, ceiling=1e3, clean=(clean,))
        with pytest.raises(InputError, match=r"1e\+06 times as large"):
            play(Plan(task=task, policy=echo(), noise=Noise.of(0.1), n_episodes=4))
    wide = toy_task(fixed(3), pay_action, choices=None, floor=-1e3, ceiling=1e3, clean=(0.0, 1e5))
    assert len(play(Plan(task=wide, policy=echo(2), noise=Noise.of((0.1, 100.0)), n_episodes=4))) == 4
    with pytest.raises(InputError, match="times as large"):
        play(Plan(task=wide, policy=echo(2), noise=Noise.of((100.0, 0.1)), n_episodes=4))


def changed_observations(task, change):
    """Return the task with ``change(number, observation)`` shown in each step."""

    def batch(n_envs, seeds, device):
        env = task.backend.batch(n_envs, seeds, device)
        reset, step = env.reset, env.step
        numbers = itertools.count()

        def changed_step(actions):
            observation, *others = step(actions)
            return change(next(numbers), observation), *others

        env.reset = lambda: change(next(numbers), reset())
        env.step = changed_step
        return env

    return replace(task, backend=replace(task.backend, batch=batch))


def test_double_precision_may_be_larger():
    """Nothing is rounded before the noise is added; one observation of single precision has been."""
    honest = toy_task(fixed(4), pay_action, choices=None, floor=-1e9, ceiling=1e9, clean=(1e5,))
    plan = Plan(task=honest, policy=echo(), noise=Noise.of(0.1), n_episodes=4, n_envs=4, episodes_per_env=1)
    double = changed_observations(honest, lambda _, observation: observation.double())
    assert len(play(replace(plan, task=double))) == 4
    for single in (0, 2):
        once = changed_observations(
            honest, lambda number, observation, single=single: observation if number == single else observation.double()
        )
        with pytest.raises(InputError, match=r"1e\+06 times as large .* or show it in double precision"):
            play(replace(plan, task=once))
    channel = quiet(0.1, 3, (2,), stream(1))
    channel.check(torch.tensor(0.1 * 2.0**41), is_double=True)
    with pytest.raises(InputError, match=r"8\.8e\+12 times as large .* double precision would be too coarse"):
        channel.check(torch.tensor(0.1 * 2.0**43), is_double=True)


@pytest.mark.parametrize("large", [0, 1, 3])
@pytest.mark.parametrize("row", [0, 2])
def test_one_such_observation_is_enough(large, row):
    """In whichever step and row of a block."""
    honest = toy_task(fixed(4), pay_action, choices=None, floor=-1e9, ceiling=1e9)

    def enlarge(number, observation):
        shown = observation.clone()
        if number == large:
            shown[row] = -1e5
        return shown

    task = changed_observations(honest, enlarge)
    plan = Plan(task=task, policy=echo(), noise=Noise.of(0.1), n_episodes=4, n_envs=4, episodes_per_env=1)
    with pytest.raises(InputError, match=r"1e\+06 times as large"):
        play(plan)
    assert len(play(replace(plan, task=honest))) == 4


@pytest.mark.parametrize("budget", [-1.0, float("nan")])
def test_bad_budgets_are_refused(budget):
    with pytest.raises(InputError, match="budget must be >= 0"):
        attacked(Spy(), budget)
