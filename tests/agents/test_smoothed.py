"""The deployed policy: noise added once and kept, memory per row, SB3's conventions, honest refusals."""

import asyncio
import copy
import gc
import pickle
import threading
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch

from surefoot.agents import smoothed as module
from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.resolve import as_policy
from surefoot.agents.smoothed import PredictableNoiseWarning, smooth, system_normal
from surefoot.errors import InputError
from toys import not_normal, recurrent

torch.set_num_threads(1)
# Most tests look at what is shown, not at the noise.
pytestmark = pytest.mark.filterwarnings("ignore:sigma is 0:surefoot.PredictableNoiseWarning")


class Watching(torch.nn.Module):
    """Keeps every history it was shown."""

    def __init__(self, choices):
        super().__init__()
        self.choices = choices
        self.shown = []

    def forward(self, history):
        self.shown.append(history.numpy().copy())
        return history.flatten(1)[:, : self.choices or 2]


def watched(frames=3, shape=(4,), choices=2):
    return Policy(Watching(choices), Spaces(shape=shape, n_actions=choices, n_stack=frames), name="watched")


def seeded(policy, sigma=1.0, seed=0):
    with pytest.warns(PredictableNoiseWarning, match="certificate is void if an attacker can predict the noise"):
        return smooth(policy, sigma, seed=seed)


def drawn(seed, shape):
    """The noise of a seed."""
    return np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0]).standard_normal(shape, dtype=np.float32)


def mlp_policy(frames=2, shape=(4,), choices=2):
    generator = np.random.default_rng(3)
    widths = [frames * int(np.prod(shape)), 8, choices]
    weights = [generator.normal(size=(widths[1], widths[0])), generator.normal(size=(widths[2], widths[1]))]
    return Policy(
        MLP(weights, [np.zeros(8), np.zeros(choices)]),
        Spaces(shape=shape, n_actions=choices, n_stack=frames),
        name="small",
    )


# --- the noise ---


def test_noise_is_added_once_and_stays():
    policy = watched()
    agent = seeded(policy)
    for step in range(6):
        agent.predict(np.full((2, 4), step, dtype=np.float32))
    shown = policy.network.shown
    assert shown[0].shape == (2, 3, 4)
    assert np.array_equal(shown[0][:, 0], shown[0][:, 2])
    for before, after in pairwise(shown):
        assert np.array_equal(after[:, :2], before[:, 1:])
    newest = np.stack([history[:, -1] for history in shown]) - np.arange(6)[:, None, None]
    expected = drawn(0, (6, 2, 4))
    assert np.allclose(newest, expected, atol=1e-6)


def newest_of(agent, observation, steps):
    """What the network saw last at every step."""
    for _ in range(steps):
        agent.predict(observation)
    return np.stack([history[:, -1] for history in agent.policy.network.shown])


def test_noise_has_the_law_that_was_certified():
    seen = newest_of(seeded(watched(1, (100,)), sigma=0.3), np.zeros((20, 100), dtype=np.float32), 60)
    assert not not_normal(seen, 0.3)
    assert not_normal(seen, 0.31)
    assert not_normal(seen * 0, 0.3)


def test_pixels_become_floats_before_the_noise():
    bright = np.full((20, 10, 10), 255, dtype=np.uint8)
    seen = newest_of(seeded(watched(1, (10, 10)), sigma=0.2), bright, 60)
    assert not not_normal(seen - 1, 0.2)
    wrapped = (seen * 255).astype(np.int64).astype(np.uint8) / 255  # the planted error: noise kept as uint8
    assert not_normal(wrapped - 1, 0.2)


def test_pixels_have_the_same_bits_as_in_play():
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    policy = watched(1, (16, 16))
    smooth(policy, 0).predict(pixels)
    assert np.array_equal(policy.network.shown[0][0, 0], torch.from_numpy(pixels).float().div_(255).numpy())


def test_default_noise_is_the_systems(monkeypatch):
    asked = []

    def recorded(shape):
        asked.append(shape)
        return np.ones(shape, dtype=np.float32)

    monkeypatch.setattr(module, "system_normal", recorded)
    policy = watched(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent = smooth(policy, 0.5)
    agent.predict(np.zeros((3, 4), dtype=np.float32))
    assert asked == [(3, 4)]
    assert np.array_equal(policy.network.shown[0], np.full((3, 1, 4), 0.5))


def test_instances_and_calls_differ():
    one, two = watched(1), watched(1)
    still = np.zeros(4, dtype=np.float32)
    for agent in (smooth(one, 1.0), smooth(two, 1.0)):
        agent.predict(still)
        agent.predict(still)
    shown = [history.tobytes() for network in (one.network, two.network) for history in network.shown]
    assert len(set(shown)) == 4


@pytest.mark.parametrize("deterministic", [False, True])
def test_noise_is_drawn_whatever_deterministic_says(deterministic):
    policy = watched(1)
    smooth(policy, 1.0).predict(np.zeros(4, dtype=np.float32), deterministic=deterministic)
    assert (policy.network.shown[0] != 0).all()


# --- the system's generator ---


@pytest.fixture
def fixed_bytes(monkeypatch):
    monkeypatch.setattr(module.os, "urandom", np.random.default_rng(5).bytes)


def test_system_normal_is_normal(fixed_bytes):
    draws = system_normal((500, 400))
    assert draws.dtype == np.float64
    assert draws.shape == (500, 400)
    assert not not_normal(draws, 1.0)


@pytest.mark.parametrize("fill", [0x00, 0xFF])
def test_extreme_bytes_stay_finite(monkeypatch, fill):
    monkeypatch.setattr(module.os, "urandom", lambda count: bytes([fill]) * count)
    draws = system_normal(3)
    assert np.isfinite(draws).all()
    assert 8.1 < abs(draws[0]) < 8.3
    assert (draws[0] < 0) == (fill == 0)


def test_system_normal_ignores_numpy_and_torch_seeds():
    pairs = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        pairs.append(system_normal(8))
    assert not np.array_equal(*pairs)


# --- memory ---


def rolled(agent, observations, starts, passing):
    state, actions = None, []
    for observation, start in zip(observations, starts, strict=True):
        action, after = agent.predict(observation, state=state if passing else None, episode_start=start)
        state = after
        actions.append(action)
    return np.array(actions), state


def test_passing_the_state_is_the_same_as_keeping_it():
    generator = np.random.default_rng(1)
    observations = generator.normal(size=(30, 5, 4)).astype(np.float32)
    starts = generator.random((30, 5)) < 0.2
    results = [rolled(seeded(mlp_policy(3)), observations, starts, passing) for passing in (False, True)]
    assert np.array_equal(results[0][0], results[1][0])
    assert len(np.unique(results[0][0])) == 2
    assert np.array_equal(results[0][1][0], results[1][1][0])


def test_a_call_with_a_state_leaves_the_own_memory_alone():
    agent = smooth(watched(2), 0)
    _, another = smooth(watched(2), 0).predict(np.full(4, 5.0))
    _, first = agent.predict(np.zeros(4))
    for state in (first, another):
        agent.predict(np.full(4, 9.0), state=state)
    _, after = agent.predict(np.ones(4))
    assert after[0][0, :, 0].tolist() == [0, 1]


def test_changing_a_returned_state_changes_nothing():
    agent = smooth(watched(2), 0)
    _, state = agent.predict(np.zeros(4))
    state[0][:] = 5
    assert agent.predict(np.ones(4))[1][0][0, :, 0].tolist() == [0, 1]


def test_rows_that_begin_an_episode_are_refilled():
    policy = watched(3)
    agent = seeded(policy)
    zeros = np.zeros((2, 4), dtype=np.float32)
    agent.predict(zeros)
    agent.predict(zeros, episode_start=np.array([False, True]))
    before, after = policy.network.shown
    assert np.array_equal(after[0, :2], before[0, 1:])
    assert np.array_equal(after[1, 0], after[1, 2])
    assert np.array_equal(after[1, 1], after[1, 2])
    assert not np.array_equal(after[1, 2], before[1, 2])


def test_reset_forgets_and_allows_another_number_of_rows():
    agent = smooth(watched(2), 0)
    agent.predict(np.zeros((2, 4)))
    with pytest.raises(InputError, match=r"expected 2 rows as in the last call, got 3; call reset\(\)"):
        agent.predict(np.zeros((3, 4)))
    agent.predict(np.ones((3, 4)), episode_start=np.ones(3, dtype=bool))
    agent.reset()
    assert agent.predict(np.ones(4))[1][0].ravel().tolist() == [1] * 8


def test_single_and_vectorised_agree():
    observations = np.random.default_rng(1).normal(size=(20, 4)).astype(np.float32)
    single, rows = seeded(mlp_policy()), seeded(mlp_policy())
    for observation in observations:
        one, state = single.predict(observation)
        many, states = rows.predict(observation[None])
        assert (one.shape, many.shape) == ((), (1,))
        assert one == many[0]
        assert np.array_equal(state[0], states[0])


def growth(agent, steps=300):
    """Bytes of numpy and number of tensors that ``steps`` calls leave behind."""
    observation = np.zeros((10, 50), dtype=np.float32)

    def left_after(calls):
        for _ in range(calls):
            agent.predict(observation)
        gc.collect()
        tensors = sum(type(thing) is torch.Tensor for thing in gc.get_objects())
        return np.array([tracemalloc.get_traced_memory()[0], tensors])

    tracemalloc.start()
    try:
        return -left_after(50) + left_after(steps)
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow():
    size, tensors = growth(smooth(mlp_policy(4, (50,)), 0.1))
    assert size < 20_000  # one kept observation per step would be 600,000 bytes
    assert tensors < 20
    assert growth(smooth(watched(4, (50,)), 0.1))[0] > 600_000  # the planted twin keeps what it sees


# --- SB3's conventions ---


def test_discrete_actions_look_like_sb3s():
    one, _ = smooth(mlp_policy(), 0.1).predict(np.zeros(4))
    many, _ = smooth(mlp_policy(), 0.1).predict(np.zeros((3, 4)))
    assert isinstance(one, np.ndarray)
    assert (one.shape, one.dtype, many.shape, many.dtype) == ((), np.int64, (3,), np.int64)


def test_continuous_actions_are_clipped_and_look_like_sb3s():
    policy = Policy(Watching(None), Spaces(shape=(4,), n_actions=None, low=[-0.5, -0.5], high=[0.5, 0.25]))
    one, _ = smooth(policy, 0).predict(np.full(4, 3.0))
    many, _ = smooth(policy, 0).predict(np.full((3, 4), 3.0))
    assert one.tolist() == [0.5, 0.25]
    assert (one.dtype, many.shape) == (np.float32, (3, 2))


@pytest.mark.parametrize("rows", [1, 3])
def test_evaluate_policy_of_sb3_plays_it(rows):
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    env = make_vec_env("CartPole-v1", n_envs=rows, seed=0)
    agent = smooth(mlp_policy(5), 0.2)
    for _ in range(2):  # twice: nothing is left over that would hinder another evaluation
        rewards, lengths = evaluate_policy(agent, env, n_eval_episodes=6, return_episode_rewards=True)
        assert len(rewards) == 6
        assert rewards == lengths
    env.close()


def test_rows_of_gymnasiums_vector_environment_begin_again_on_their_own():
    env = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    policy = watched(2)
    agent = smooth(policy, 0)
    observed, _ = env.reset(seed=0)
    before = observed
    begins = np.ones(3, dtype=bool)
    was_last = np.zeros(3, dtype=bool)
    n_begun = 0
    for _ in range(40):
        actions, _ = agent.predict(observed, episode_start=begins)
        remembered = np.where(begins[:, None], observed, before)
        assert np.array_equal(policy.network.shown[-1], np.stack((remembered, observed), axis=1))
        n_begun += begins.sum()
        before = observed
        observed, _, ended, cut, _ = env.step(actions)
        # The step after the last one of a row resets it.
        begins = was_last
        was_last = ended | cut
    env.close()
    assert 6 <= n_begun < 40


def test_a_pretrained_agent_balances_the_poles_of_a_vector_environment():
    env = gymnasium.make_vec("CartPole-v1", 8, vectorization_mode="vector_entry_point")
    agent = smooth("cartpole-5-s0.2", 0.2)
    observed, _ = env.reset(seed=0)
    fallen = np.zeros(8, dtype=bool)
    for step in range(100):
        actions, _ = agent.predict(observed, episode_start=np.full(8, step == 0))
        observed, _, ended, _, _ = env.step(actions)
        fallen |= ended
    env.close()
    # Each falls in 100 steps with a probability of about .01; without control all do.
    assert fallen.sum() <= 3


def test_two_threads_do_not_share_a_frame_stack():
    agent = smooth(watched(2), 0.1)
    agent.predict(np.zeros(4))
    with ThreadPoolExecutor(1) as other:
        with pytest.raises(InputError, match="is used by another thread"):
            other.submit(agent.predict, np.zeros(4)).result()
        _, state = smooth(watched(2), 0.1).predict(np.zeros(4))
        other.submit(agent.predict, np.zeros(4), state).result()  # a state of its own
        agent.reset()
        other.submit(agent.predict, np.zeros(4)).result()


def test_threads_one_after_the_other_do_not_share_a_frame_stack():
    """The number of a thread that has ended is given to the next one; the thread itself is remembered."""
    agent, numbers, refused = smooth(watched(2), 0.1), [], []

    def work():
        numbers.append(threading.get_ident())
        try:
            agent.predict(np.zeros(4))
        except InputError as error:
            refused.append(str(error))

    for _ in range(5):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(set(numbers)) < 5  # else this test shows nothing
    assert len(refused) == 4
    assert "is used by another thread" in refused[0]


def test_coroutines_do_not_share_a_frame_stack():
    agent = smooth(watched(2), 0.1)

    async def step(state=None):
        return agent.predict(np.zeros(4), state)[1]

    async def both():
        first = asyncio.create_task(step())
        state = await first
        await asyncio.create_task(step(state))  # a state of its own
        with pytest.raises(InputError, match="used by another thread or coroutine"):
            await asyncio.create_task(step())
        agent.reset()
        await asyncio.create_task(step())

    asyncio.run(both())
    with pytest.raises(InputError, match="used by another thread or coroutine"):
        agent.predict(np.zeros(4))


async def steps_of_one_coroutine(agent):
    for _ in range(3):
        agent.predict(np.zeros(4))
        await asyncio.sleep(0)


def test_one_coroutine_goes_on_with_its_own_frames():
    agent = smooth(watched(2), 0.1)
    asyncio.run(steps_of_one_coroutine(agent))
    assert len(agent.policy.network.shown) == 3


def test_copies_are_nobodys_and_have_other_noise():
    agent = smooth(mlp_policy(), 0.1)
    agent.predict(np.zeros(4))
    for twin in (copy.deepcopy(agent), pickle.loads(pickle.dumps(agent))):
        with ThreadPoolExecutor(1) as other:
            _, (frames,) = other.submit(twin.predict, np.zeros(4)).result()
        _, (own,) = copy.deepcopy(agent).predict(np.zeros(4))
        assert np.array_equal(frames[:, 0], own[:, 0])
        assert not np.array_equal(frames[:, 1], own[:, 1])


@pytest.mark.parametrize(("kind", "most", "said"), [(np.float32, 2.0**13, "8192"), (np.float64, 2.0**42, r"4.4e\+12")])
@pytest.mark.parametrize("sigma", [0.2, [0.2, 0.4, 0.4, 0.4]])
def test_observations_that_certify_refuses_are_refused(kind, most, said, sigma):
    """What is rounded before the noise is added must not be coarser than it: single precision is beyond 2^13 sigma."""
    agent = smooth(watched(1), sigma)
    largest = 0.2 * most
    agent.predict(np.array([0.999 * largest, 0, 0, 0], dtype=kind))
    agent.reset()
    agent.predict(np.array([[0.999 * largest, 0, 0, 0], [-0.999 * largest, 0, 0, 0]], dtype=kind))
    for value in (1.01 * largest, -1.01 * largest, 2.0**11 * largest):
        with pytest.raises(InputError, match=f"as the sigma of its noise, expected at most {said} times"):
            agent.predict(np.array([[0, 0, 0, 0], [value, 0, 0, 0]], dtype=kind))
    assert len(agent.policy.network.shown) == 2


def test_features_without_noise_may_be_large():
    agent = smooth(watched(1), [0.2, 0.0, 0.2, 0.2])
    agent.predict(np.array([0, 1e6, 0, 0.0], dtype=np.float32))
    with pytest.raises(InputError, match="expected at most 8192 times"):
        agent.predict(np.array([0, 0, 1e6, 0.0], dtype=np.float32))


@pytest.mark.parametrize("sigma", [1e-46, 1e-40, 1e38, 1e39, 1e300, [0.1, 0.1, 1e-46, 0.1]])
def test_noise_that_single_precision_does_not_have_is_refused(sigma):
    with pytest.raises(InputError, match=r"a sigma must be 0 or from 1e-37 to 1e\+37, got .*vanish, or be infinite"):
        smooth(watched(1), sigma)


@pytest.mark.parametrize("sigma", [1e-37, 1e37])
def test_noise_at_the_ends_of_single_precision_is_there(sigma):
    _, (frame,) = smooth(watched(1), sigma).predict(np.zeros(4))
    assert np.isfinite(frame).all()
    assert (np.abs(frame) > sigma * 1e-9).all()  # a false alarm with a probability of 4e-9


def test_the_noise_is_added_before_anything_is_rounded():
    """A perturbation of half a spacing of single precision must not become a whole one."""
    policy = watched(1)
    spacing = float(np.spacing(np.float32(1000.0)))
    observation = np.full((500, 4), 1000.0 + 0.51 * spacing)
    with pytest.warns(PredictableNoiseWarning):
        agent = smooth(policy, 0.5, seed=1)
    _, (seen,) = agent.predict(observation)
    noise = drawn(1, (500, 4))
    exact = observation + np.float64(np.float32(0.5)) * noise
    assert np.array_equal(seen[:, 0], exact.astype(np.float32))
    assert np.mean(seen[:, 0] != observation.astype(np.float32) + np.float32(0.5) * noise) > 0.3


def test_functions_are_smoothed():
    agent = smooth(lambda seen: int(seen[0] > 0), 0, Spaces(shape=(4,), n_actions=2))
    assert agent.predict(np.array([[1.0, 0, 0, 0], [-1, 0, 0, 0]]))[0].tolist() == [1, 0]
    stacked = smooth(lambda seen: int(seen.shape == (3, 4)), 0, Spaces(shape=(4,), n_actions=2, n_stack=3))
    assert stacked.predict(np.zeros(4))[0] == 1
    moving = smooth(lambda seen: -seen[:2], 0, Spaces(shape=(4,), n_actions=None))
    assert moving.predict(np.ones((5, 4)))[0].shape == (5, 2)


# --- refusals ---


@pytest.mark.parametrize(
    ("observation", "match"),
    [
        (np.zeros(5), r"expected an observation of shape \(4,\), or rows \(n, \*\(4,\)\), got \(5,\)"),
        (np.zeros((2, 2, 4)), r"expected an observation of shape \(4,\)"),
        (np.zeros((0, 4)), r"expected an observation of shape \(4,\)"),
        (np.array(0.0), r"expected an observation of shape \(4,\)"),
        (np.zeros(4, dtype=np.int64), "expected float observations or uint8 pixels, got int64; turn them"),
        (np.zeros(4, dtype=bool), "expected float observations or uint8 pixels, got bool"),
        (np.array([0, np.nan, 0, 0]), "observation contains NaN or infinity"),
        (np.array([0, 1e300, 0, 0]), "observation contains NaN or infinity"),
        (np.zeros(4, dtype=np.uint8), "expected floats, got a vector of uint8; divide by 255 if these are pixels"),
        (np.ma.masked_invalid([0, np.nan, 0, 0]), "observation has masked entries; fill them in"),
        ({"a": 1}, "expected an observation as one array, got a dict"),
        ((np.zeros(4), {}), r"got a tuple; env.reset\(\) of gymnasium returns \(observation, info\)"),
    ],
)
def test_bad_observations_are_refused(observation, match):
    agent = smooth(watched(2), 0.1)
    agent.predict(np.zeros(4))
    with pytest.raises(InputError, match=match):
        agent.predict(observation)
    assert len(agent.policy.network.shown) == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"episode_start": np.ones(3, dtype=bool)}, r"episode_start must have one entry per observation \(1\), got"),
        ({"state": (np.zeros((1, 2, 5)),)}, r"state must be the tuple an earlier predict returned.*got \(1, 2, 5\)"),
        ({"state": np.zeros((1, 2, 4))}, "state must be the tuple an earlier predict returned.*got ndarray"),
        ({"state": (np.zeros((3, 2, 4)),)}, "expected 3 rows as in the last call, got 1"),
        ({"state": (np.full((1, 2, 4), np.nan),)}, "an earlier predict returned, got NaN, infinities or other things"),
        ({"state": (np.full((1, 2, 4), -np.inf),)}, "an earlier predict returned, got NaN, infinities"),
        ({"state": (np.ma.masked_equal(np.zeros((1, 2, 4)), 0),)}, "an earlier predict returned, got NaN, infinities"),
        ({"state": (np.zeros((1, 2, 4), dtype=complex),)}, "an earlier predict returned, got NaN, infinities"),
    ],
)
def test_bad_memory_is_refused(options, match):
    with pytest.raises(InputError, match=match):
        smooth(watched(2), 0.1).predict(np.zeros(4), **options)


def test_memory_and_last_actions_of_other_numbers_of_rows_are_refused():
    agent = smooth(recurrent(), 0.1)
    _, (memory, actions) = agent.predict(np.zeros((3, 4)))
    agent.predict(np.zeros((3, 4)), (memory, actions))
    with pytest.raises(InputError, match="state must be the tuple an earlier predict returned"):
        agent.predict(np.zeros((3, 4)), (memory, actions[:2]))
    with pytest.raises(InputError, match="state must be the tuple an earlier predict returned"):
        agent.predict(np.zeros((3, 4)), (memory,))


@pytest.mark.parametrize(
    ("agent", "options", "match"),
    [
        (42, {}, "agent must be a name, a path, .* a torch module, a surefoot.Policy or a function .*got int"),
        (lambda seen: 0, {}, "a function needs the spaces of its environment"),
        (smooth(watched(), 0.1), {}, "got SmoothedPolicy; smooth the policy inside it"),
        ("none.zip", {}, "no file none.zip"),
        (watched(3), {"n_stack": 2}, "the agent stacks 3 observations, got n_stack=2"),
        (watched(1), {"n_stack": 3}, r"observations of shape \(4,\) are not a stack of 3 frames"),
        (
            watched(3),
            {"spaces": Spaces(shape=(5,), n_actions=2)},
            r"made for observations of shape \(4,\), the environment gives \(5,\)",
        ),
        (
            watched(),
            {"spaces": Spaces(shape=(4,), n_actions=7)},
            "the agent has 2 actions from 0, the environment takes 7 actions from 0",
        ),
    ],
)
def test_bad_agents_are_refused(agent, options, match):
    with pytest.raises(InputError, match=match):
        smooth(as_policy(agent, **options), 0.1)


def test_a_masked_array_without_masked_entries_is_taken():
    smooth(watched(2), 0.1).predict(np.ma.masked_invalid(np.zeros(4)))
