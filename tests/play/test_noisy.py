"""The noise: its law, its unpredictability, its dtype, and that it is added once."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FrameStackObservation

from surefoot.errors import InputError
from surefoot.play.envs.noisy import NoisyObservation
from toys import not_normal


class Still(gymnasium.Env):
    """Shows the same observation for ever, so that all that changes is the noise."""

    def __init__(self, space, value=0):
        self.observation_space = space
        self.action_space = Discrete(2)
        self.value = np.full(space.shape, value, dtype=space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.value, {}

    def step(self, action):
        return self.value, 0.0, False, False, {}


def floats(side=4, value=0.0):
    return Still(Box(-1, 1, (side,), np.float32), value)


def test_noise_of_the_wrapper_is_normal():
    env = NoisyObservation(floats(side=200), sigma=0.3, seed=1)
    env.reset(seed=2)
    seen = np.stack([env.step(0)[0] for _ in range(500)])
    assert seen.dtype == np.float32
    assert not not_normal(seen, sigma=0.3)
    assert not_normal(seen, sigma=0.31)


def test_images_are_scaled_and_noise_never_wraps():
    env = NoisyObservation(Still(Box(0, 255, (40, 40), np.uint8), 255), sigma=0.2, seed=1)
    first, _ = env.reset(seed=2)
    seen = np.stack([first, *(env.step(0)[0] for _ in range(60))])
    assert seen.dtype == np.float32
    assert not not_normal(seen - 1, sigma=0.2)
    wrapped = (seen * 255).astype(np.int64).astype(np.uint8) / 255  # what the paper's replay buffer kept
    assert not_normal(wrapped - 1, sigma=0.2)


def test_space_is_unbounded_and_holds_the_observations():
    env = NoisyObservation(floats(value=1.0), sigma=5.0)
    assert env.observation_space == Box(-np.inf, np.inf, (4,), np.float32)
    assert env.observation_space.contains(env.reset(seed=0)[0])
    doubles = NoisyObservation(Still(Box(-1, 1, (3,), np.float64), 0.5), sigma=0.1)
    assert doubles.reset(seed=0)[0].dtype == np.float32


def test_reset_with_a_seed_repeats_the_noise():
    env = NoisyObservation(floats(), sigma=1.0)
    one = [env.reset(seed=7)[0], env.step(0)[0]]
    two = [env.reset(seed=7)[0], env.step(0)[0]]
    other = [env.reset(seed=8)[0], env.step(0)[0]]
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_reset_without_a_seed_goes_on():
    env = NoisyObservation(floats(), sigma=1.0, seed=3)
    assert not np.array_equal(env.reset()[0], env.reset()[0])
    again = NoisyObservation(floats(), sigma=1.0, seed=3)
    assert np.array_equal(again.reset()[0], NoisyObservation(floats(), sigma=1.0, seed=3).reset()[0])


def test_unseeded_wrappers_differ():
    assert not np.array_equal(*(NoisyObservation(floats(), sigma=1.0).reset()[0] for _ in range(2)))


def test_noise_is_not_the_stream_of_the_environment():
    env = NoisyObservation(floats(side=50), sigma=1.0)
    seen, _ = env.reset(seed=7)
    own = np.random.Generator(np.random.PCG64(7)).standard_normal(50, dtype=np.float32)
    assert abs(np.corrcoef(seen, own)[0, 1]) < 0.6  # |r| of 50 independent pairs exceeds this with chance < 1e-5
    assert np.array_equal(env.unwrapped.np_random.standard_normal(50, dtype=np.float32), own)


def test_sigma_zero_passes_through():
    env = NoisyObservation(floats(value=0.25), sigma=0)
    assert np.array_equal(env.reset(seed=0)[0], np.full(4, 0.25, dtype=np.float32))


def test_frames_outside_keep_the_noise_they_were_seen_with():
    env = FrameStackObservation(NoisyObservation(floats(), sigma=1.0), 3, padding_type="reset")
    before, _ = env.reset(seed=0)
    assert np.array_equal(before[0], before[2])
    assert np.array_equal(before[1], before[2])
    for _ in range(5):
        after = env.step(0)[0]
        assert np.array_equal(after[:2], before[1:])
        assert not np.array_equal(after[2], before[2])
        before = after


def test_noise_inside_a_stack_of_noise_would_be_noticed():
    """The planted twin: noise outside the stack changes the past at every step."""
    env = NoisyObservation(FrameStackObservation(floats(), 3, padding_type="reset"), sigma=1.0)
    before, _ = env.reset(seed=0)
    assert not np.array_equal(env.step(0)[0][:2], before[1:])


def test_spec_can_make_the_wrapper_again():
    env = NoisyObservation(gymnasium.make("CartPole-v1"), sigma=0.2, seed=4)
    again = gymnasium.make(env.spec)
    assert isinstance(again, NoisyObservation)
    assert np.array_equal(env.reset(seed=1)[0], again.reset(seed=1)[0])


@pytest.mark.parametrize(
    ("space", "match"),
    [
        (Discrete(3), "noise needs Box observations or a Dict of plain parts, got Discrete; wrap"),
        (
            Box(0, 9, (2,), np.int64),
            "int64 observations from .* noise needs floats or uint8 images from 0 to 255: turn them",
        ),
        (Box(0, 1, (2,), np.uint8), "uint8 observations from 0 to 1; noise needs floats or uint8 images"),
    ],
)
def test_other_spaces_are_refused(space, match):
    env = floats()
    env.observation_space = space
    with pytest.raises(InputError, match=match):
        NoisyObservation(env, sigma=0.1)
