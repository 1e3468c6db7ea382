"""No two purposes, blocks or seeds share random numbers, and no attacker can compute the noise."""

import ast
import copy
import random
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import surefoot
from surefoot.agents.own_randomness import seeded
from surefoot.agents.smoothed import PredictableNoiseWarning, smooth
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play import loop, streams
from surefoot.play.plan import Plan
from surefoot.play.streams import (
    ACTUATOR,
    WRAPPER,
    Purpose,
    Stream,
    block_seeds,
    direction_seeds,
    policy_seeds,
    seed_sequence,
    training_seeds,
)
from toys import Spy, constant, echo, fixed, geometric, pay_steps, run_episodes, toy_task

SIGMA = 0.5  # a power of two: noise divided by it is what was drawn, to the bit
CPU = torch.device("cpu")
PART = st.integers(0, 2**32 - 1)
SEED = st.integers(0, 2**128 - 1)


# --- keys -----------------------------------------------------------------------------------------------------------


def purposes(number):
    """Every purpose a plan may have, with ``number`` where one has a number of its own."""
    return [(), *((first, *[number] * more) for first, more in streams._NUMBERS.items())]


def keys(number, other):
    """The key of every stream, by what it is for; ``number`` and ``other`` where keys count something."""
    found = {"gymnasium": seed_sequence(0), "wrapper": seed_sequence(0, WRAPPER), "smoothed": seed_sequence(0, 0)}
    found["actuator"] = seed_sequence(0, ACTUATOR)
    for purpose in purposes(number):
        for part, seeds in zip((0, 1, 2, 5), block_seeds(0, purpose, other), strict=True):
            found["plan", purpose, part] = seeds
    for part, seeds in enumerate(training_seeds(0, number)):
        found["training", part] = seeds
    found["direction"] = direction_seeds(0, number)
    return {what: seeds.spawn_key for what, seeds in found.items()}


def test_a_key_of_three_parts_or_more_begins_with_its_purpose_and_shorter_ones_have_lengths_of_their_own():
    """The whole proof: a key tells its purpose by its length or, from three parts on, by its first part."""
    for what, key in keys(7, 8).items():
        if what == "gymnasium":
            assert key == ()
        elif what in ("wrapper", "actuator", "smoothed"):
            assert key == ({"wrapper": WRAPPER, "actuator": ACTUATOR, "smoothed": 0}[what],)
        elif what[:2] == ("plan", ()):
            assert key == (8, what[2])
        else:
            assert len(key) >= 3
            first = {"plan": what[1][0] if what[0] == "plan" else None, "training": Purpose.TRAINING}
            assert key[0] == (Purpose.DIRECTION if what == "direction" else first[what[0]])


@pytest.mark.parametrize("block", [0, 3])
@pytest.mark.parametrize("purpose", purposes(7), ids=str)
def test_the_seeds_of_simulators_begin_in_a_stream_of_their_own(monkeypatch, purpose, block):
    made = []
    make = streams.seed_sequence
    monkeypatch.setattr(streams, "seed_sequence", lambda *key: made.append(key) or make(*key))
    environment = block_seeds(0, purpose, block)[0]
    policy_seeds(0, purpose, block)
    others = set(made)
    made.clear()
    streams.simulator_seed(environment)
    assert made == [(0, *purpose, 0, 6)]
    assert not others & set(made)


def test_the_keys_of_one_purpose_have_one_length():
    lengths = {}
    for numbers in ((0, 0), (7, 8), (2**32 - 1, 101)):
        for key in keys(*numbers).values():
            if len(key) >= 3:
                lengths.setdefault(key[0], set()).add(len(key))
            assert len(key) < 3 or key[0] in set(Purpose)
    assert all(len(found) == 1 for found in lengths.values())
    assert lengths.keys() == set(Purpose)


@given(st.tuples(PART, PART), st.tuples(PART, PART))
def test_two_streams_have_one_key_only_if_they_are_the_same(one, other):
    first, second = keys(*one), keys(*other)
    for what, key in first.items():
        for that, another in second.items():
            if key == another:
                kind = what if isinstance(what, str) else what[0]
                assert kind == (that if isinstance(that, str) else that[0])
    assert len(set(first.values())) == len(first)


@given(st.tuples(SEED, st.lists(PART, max_size=5)), st.tuples(SEED, st.lists(PART, max_size=5)))
def test_other_seeds_or_keys_are_other_random_numbers(one, other):
    states = [tuple(seed_sequence(seed, *key).generate_state(4, np.uint64)) for seed, key in (one, other)]
    assert (states[0] == states[1]) == (one == other)


@pytest.mark.parametrize(("one", "other"), [((5, 2**32 + 8), (5, 8, 1)), ((5 + 3 * 2**128,), (5, 3))])
def test_planted_words_that_run_over_would_be_shared(one, other):
    """Why seeds end at 2^128 and parts of keys at 2^32: beyond, numpy hashes the same words for other keys."""
    states = [np.random.SeedSequence(seed, spawn_key=key).generate_state(4) for seed, *key in (one, other)]
    assert (states[0] == states[1]).all()
    with pytest.raises(InputError, match="below 2\\*\\*"):
        seed_sequence(*one)


@pytest.mark.parametrize("purpose", [(101,), (7,), (8,), (1,), (2, 3), (0,), (3, 1, 1)])
def test_purposes_that_are_not_listed_are_rejected(purpose):
    with pytest.raises(InputError, match="purpose must be"):
        Plan(task=toy_task(fixed(1), pay_steps), policy=constant(), noise=Noise.of(0.1), n_episodes=2, purpose=purpose)


def test_planted_two_part_keys_of_training_are_those_of_a_certificate():
    """Training once drew its emulators' seeds from (101, first step): the environment's stream of block 101."""
    assert seed_sequence(0, 101, 0).spawn_key == block_seeds(0, (), 101)[0].spawn_key
    assert seed_sequence(0, 101, 0).spawn_key not in {seeds.spawn_key for seeds in training_seeds(0, 0)}


def test_the_streams_of_certificates_validations_and_selections_stay_as_they_are():
    """Committed records were run with these."""
    for purpose in ((), (1, 4), (2,), (3, 9), (4,), (5,), (6,), (9,)):
        before = np.random.SeedSequence(3, spawn_key=(*purpose, 12)).spawn(3)
        for old, new in zip(before, block_seeds(3, purpose, 12)[:3], strict=True):
            assert (old.generate_state(8) == new.generate_state(8)).all()
    wrapper = np.random.SeedSequence(3, spawn_key=(0x5F00,))
    assert (wrapper.generate_state(8) == seed_sequence(3, WRAPPER).generate_state(8)).all()


def test_seeded_noise_of_a_smoothed_agent_has_a_stream_of_its_own():
    """An environment that is reset with the same seed draws from the seed as it is: its numbers must not come again."""
    with pytest.warns(PredictableNoiseWarning):
        agent = smooth(echo(4), 1.0, seed=7)
    noise = agent._normal((3, 4))
    assert np.array_equal(noise, np.random.default_rng(seed_sequence(7, 0)).standard_normal((3, 4), dtype=np.float32))
    assert not np.isclose(noise, np.random.default_rng(7).standard_normal((3, 4), dtype=np.float32)).any()


def test_no_other_module_makes_keys():
    package = Path(surefoot.__file__).parent
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text())
        named = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
        assert "spawn_key" not in named or path == package / "play" / "streams.py", path


# --- the noise is not to be computed ----------------------------------------------------------------------------------


def drawn_from(stream, rows, shape):
    """Everything an attacker might compute from a stream of its own, without changing it."""
    size = int(np.prod(shape))
    for count in (rows, 1, 4):
        for draw in (
            lambda own, n=count: own.normal((n, *shape)),
            lambda own, n=count: own.normal((n * size,)),
            lambda own, n=count: own.uniform(0.0, 1.0, (n, *shape)),
            lambda own, n=count: torch.randn((n, *shape), generator=own.generator),
            lambda own, n=count: torch.from_numpy(own._numpy.standard_normal((n, *shape))),
        ):
            own = Stream(np.random.SeedSequence(0), CPU)
            own.generator = stream.generator.clone_state()
            own._numpy = copy.deepcopy(stream._numpy)
            for _ in range(3):  # now, after one draw and after two
                yield draw(own).float().ravel().numpy()


def predicted():
    """How many of the noises shown a step later were among what the attacker could draw, and how many were shown."""
    guesses, hits, shown = set(), 0, 0

    def peek(view):
        nonlocal hits, shown
        if int(view.step.max()) > 0 and view.noise.any():
            values = (view.noise[view.step > 0] / SIGMA).ravel().numpy()
            shown += values.size
            hits += sum(value in guesses for value in values.tolist())
        guesses.clear()
        for values in drawn_from(view.stream, len(view.observation), tuple(view.observation.shape[1:])):
            guesses.update(values.tolist())
        view.stream.normal(tuple(view.observation.shape))  # and it may use them up, too
        return torch.zeros_like(view.observation)

    task = toy_task(geometric(0.1, 30), pay_steps, clean=(0.0, 5.0), ceiling=30.0)
    run_episodes(task, constant(2), SIGMA, 24, n_envs=3, episodes_per_env=4, attacker=Spy(peek), budget=1.0)
    return hits, shown


def test_what_an_attacker_can_draw_never_is_the_noise_of_the_present_step():
    hits, shown = predicted()
    assert shown > 200
    assert hits == 0


def test_planted_an_attacker_that_is_given_the_noise_stream_is_caught(monkeypatch):
    def shared(seed, purpose, block):
        game, noise, _, actuator = block_seeds(seed, purpose, block)
        return game, noise, noise, actuator

    monkeypatch.setattr(loop, "block_seeds", shared)
    hits, shown = predicted()
    assert hits > shown / 2 > 100


def test_the_streams_of_a_block_are_four_different_ones():
    made = [Stream(seeds, CPU).normal((1_000,)) for seeds in block_seeds(0, (), 0)]
    for one, other in combinations(made, 2):
        assert not np.isin(one.numpy(), other.numpy()).any()


@pytest.mark.parametrize("place", range(8))
def test_every_word_of_a_seed_reaches_the_global_generators(place):
    """With one word of 32 bits two of 10,000 blocks would share what an agent draws, with a chance of 1 in 100."""

    def drawn(words):
        seeds = SimpleNamespace(generate_state=lambda n: np.array(words[:n], dtype=np.uint32))
        with seeded(seeds, 0):
            return random.random(), np.random.random()  # noqa: NPY002

    words = [5] * 8
    assert drawn(words) == drawn(words)
    other = [*words[:place], 6, *words[place + 1 :]]
    assert not set(drawn(other)) & set(drawn(words))
