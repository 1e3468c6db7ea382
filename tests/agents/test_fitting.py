"""Where agents are fitted to environments and found on disk: what nearly fits is refused, and no file is guessed."""

import math
from dataclasses import replace

import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from stand_ins import SpacesOnly
from surefoot.agents.fit import Restacked, fit_to, scale_pixels
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.resolve import as_policy
from surefoot.errors import InputError
from toys import balancer

SPACES = Spaces(shape=(4,), n_actions=2)


class Flat(torch.nn.Module):
    """Puts out what it is given."""

    def forward(self, history):
        return history.flatten(1)


def seen_by(shape, n_stack=1):
    return Policy(Flat(), Spaces(shape=shape, n_actions=None, n_stack=n_stack), name="flat")


def test_an_agent_that_stacks_already_is_not_given_stacks_of_its_stacks():
    """Three frames of (4, 4) are not four frames of (4,) as well: it was made for other observations."""
    assert fit_to(seen_by((5, 4)), (4,)).spaces.n_stack == 5
    for shape in ((4,), (4, 2), (4, 4, 4)):
        with pytest.raises(InputError, match=r"made for observations of shape \(4, 4\), the environment gives"):
            fit_to(seen_by((4, 4), n_stack=3), shape)


def test_frames_are_laid_out_oldest_first():
    """(rows, frames, features) as the network knows them: one after the other, or along the last axis."""
    history = torch.arange(24.0).reshape(1, 3, 4, 2)
    first_axis = fit_to(seen_by((3, 4, 2)), (4, 2)).network(history)
    assert torch.equal(first_axis, history.flatten(1))
    last_axis = fit_to(seen_by((4, 6)), (4, 2)).network(history)
    assert torch.equal(last_axis, torch.cat([history[:, frame] for frame in range(3)], dim=-1).flatten(1))
    images = torch.arange(3 * 5 * 6 * 2.0).reshape(1, 3, 5, 6, 2)
    channels = fit_to(seen_by((6, 5, 6)), (5, 6, 2)).network(images).reshape(6, 5, 6)
    for frame in range(3):
        for channel in range(2):
            assert torch.equal(channels[2 * frame + channel], images[0, frame, :, :, channel])


@pytest.mark.parametrize(
    ("low", "high"),
    [((-1.0, -2.0), (1.0, 3.0)), ((-1.0, -3.0), (1.0, 2.0)), ((-1.0,), (1.0,)), ((-2.0, -1.0), (2.0, 1.0))],
)
def test_actions_with_other_bounds_are_refused(low, high):
    """Either bound, and each of its entries: clipped to others it would be another agent."""
    agent = Spaces(shape=(2,), n_actions=None, low=(-1.0, -2.0), high=(1.0, 2.0))
    agent.check_agent(agent)
    with pytest.raises(InputError, match="the agent's actions range from"):
        Spaces(shape=(2,), n_actions=None, low=low, high=high).check_agent(agent)


def test_bytes_and_fractions_are_not_the_same_agent():
    pictures = replace(SPACES, pixels=True)
    known = replace(balancer(), sha256="known")
    as_bytes, doubled, plain = (scale_pixels(known, pictures, most) for most in (255.0, 2.0, 1))
    assert len({as_bytes.sha256, doubled.sha256, plain.sha256}) == 3
    assert plain.sha256 == "known"
    for most in (0.0, float("inf")):
        with pytest.raises(InputError, match="pixel"):
            scale_pixels(known, pictures, most)


def test_a_stack_that_an_agent_does_not_have_is_refused():
    """Its number of frames is its own; planted: another one that is taken in silence."""
    spaces = replace(SPACES, n_stack=5)
    assert as_policy("cartpole-5-s0.2", spaces, n_stack=5).spaces.n_stack == 5
    for agent, own, wrong in (("cartpole-5-s0.2", 5, 3), (balancer(2), 2, 5), ("cartpole-1-s0.2", 1, 5)):
        with pytest.raises(InputError, match=f"the agent stacks {own} observations, got n_stack={wrong}"):
            as_policy(agent, spaces, n_stack=wrong)
    assert as_policy(lambda seen: 0, SPACES, n_stack=3).spaces.n_stack == 3


# --- on disk ----------------------------------------------------------------------------------------------------------


def saved(path):
    """Save a model and return its environment with statistics."""
    env = VecNormalize(DummyVecEnv([lambda: SpacesOnly(Box(-np.inf, np.inf, (4,), np.float32), Discrete(2))]))
    env.obs_rms.mean = np.arange(4.0)
    model = stable_baselines3.PPO("MlpPolicy", env, policy_kwargs={"net_arch": [4]}, device="cpu", seed=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    model.save(path)
    return env


def test_of_two_files_of_statistics_none_is_guessed(tmp_path):
    env = saved(tmp_path / "model.zip")
    home = tmp_path / "model"
    home.mkdir()
    env.save(str(home / "vecnormalize.pkl"))
    assert as_policy(tmp_path / "model.zip").network.statistics.mean.tolist() == [0, 1, 2, 3]
    env.obs_rms.mean = np.ones(4)
    env.save(str(home / "best_vecnormalize.pkl"))
    with pytest.raises(InputError, match="may hold the statistics its observations were normalized with"):
        as_policy(tmp_path / "model.zip")
    (home / "config.yml").write_text("normalize: true\n")
    with pytest.raises(InputError, match=r"holds best_vecnormalize\.pkl, vecnormalize\.pkl: give the file as"):
        as_policy(tmp_path / "model.zip")
    (home / "best_vecnormalize.pkl").unlink()
    assert as_policy(tmp_path / "model.zip").network.statistics.mean.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 4, 3), (2, 4, 5, 3)])
def test_frames_side_by_side_are_those_of_vec_frame_stack(shape):
    """In observations of any number of axes: the last one has the frames next to each other, oldest first."""
    history = torch.arange(2.0 * 5 * math.prod(shape)).reshape(2, 5, *shape)
    stored = (*shape[:-1], 5 * shape[-1])
    expected = torch.cat(history.unbind(1), dim=-1)
    assert torch.equal(Restacked(torch.nn.Identity(), stored, last_axis=True)(history)[:, 0], expected)
