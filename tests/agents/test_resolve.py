"""Names, paths, models, policies and functions as agents: one set of rules for all callers."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from surefoot.agents import files as zoo
from surefoot.agents.files import default_agent
from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.resolve import _fitted_sb3, as_policy, locate
from surefoot.errors import InputError
from surefoot.play.tasks import get_task

TASK = get_task("cartpole-5")


def test_the_pretrained_agent_of_a_sigma():
    assert default_agent(TASK.name, 0.2) == "cartpole-5-s0.2"
    with pytest.raises(
        InputError, match=r"there is no pretrained agent for cartpole-5 at sigma 0.3; name one with agent="
    ):
        default_agent(TASK.name, 0.3)


def test_names_paths_and_policies_are_one_agent(tmp_path):
    named = as_policy("cartpole-5-s0.2", TASK.spaces)
    assert isinstance(named, Policy)
    assert as_policy(named, TASK.spaces) is named
    zoo.save(named, tmp_path / "agent", {"task": "cartpole-5", "sigma": 0.2})
    paths = [tmp_path, tmp_path / "agent.json", tmp_path / "agent.npz", tmp_path / "agent", str(tmp_path)]
    assert {as_policy(path, TASK.spaces).sha256 for path in paths} == {named.sha256}


@pytest.mark.parametrize("agent", [3, None, [1, 2], {"a": 1}, b"cartpole"])
def test_other_things_are_no_agents(agent):
    with pytest.raises(InputError, match=f"agent must be a name, .* got {type(agent).__name__}"):
        as_policy(agent, TASK.spaces)


def test_a_bare_name_is_the_pretrained_agent_whatever_lies_in_the_working_directory(tmp_path, monkeypatch):
    other = zoo.load("cartpole-1-s0.2")
    zoo.save(other, tmp_path / "cartpole-5-s0.2", {})
    monkeypatch.chdir(tmp_path)
    assert as_policy("cartpole-5-s0.2").spaces.shape == (4,)
    assert as_policy("cartpole-5-s0.2").spaces.n_stack == 5
    assert locate("cartpole-5-s0.2").parent == zoo.agents_dir()
    assert as_policy("./cartpole-5-s0.2").spaces.n_stack == 1
    assert zoo.load_card("cartpole-5-s0.2")["task"] == "cartpole-5"


def linear(shape, outputs, **more):
    width = int(np.prod(shape))
    return MLP([np.eye(outputs, width)], [np.zeros(outputs)], **more)


@pytest.mark.parametrize(
    ("shape", "several"), [((2,), False), ((3,), False), ((7,), False), ((4,), True), ((9,), True), ((2, 3), True)]
)
def test_an_observation_of_an_sb3_model_may_be_a_stack_where_it_can_be_cut_into_equal_parts(shape, several):
    """Whoever deploys it is asked which it is, and not where it cannot be one."""
    policy = Policy(linear(shape, 2), Spaces(shape=shape, n_actions=2))
    assert _fitted_sb3(policy, None).may_be_stack == several
    assert not _fitted_sb3(policy, Spaces(shape=shape, n_actions=2)).may_be_stack


def test_a_policy_over_stacks_is_fitted_like_a_file():
    policy = Policy(linear((3, 4), 2), Spaces(shape=(3, 4), n_actions=2))
    fitted = as_policy(policy, Spaces(shape=(4,), n_actions=2))
    assert (fitted.spaces.n_stack, fitted.spaces.shape) == (3, (4,))
    history = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(fitted.act(history), policy.act(history[:, None]))
    assert as_policy(policy) is policy


def test_a_function_of_continuous_actions_may_return_whole_numbers_where_they_have_bounds():
    still = Spaces(shape=(2,), n_actions=None)
    history = torch.zeros(1, 1, 2)
    assert as_policy(lambda seen: [1], replace(still, low=(-1.0,), high=(1.0,))).act(history).tolist() == [[1.0]]
    with pytest.raises(InputError, match=r"returned \[1\] where float actions were expected; give n_actions="):
        as_policy(lambda seen: [1], still).act(history)
    with pytest.raises(InputError, match="a function needs the spaces of its environment"):
        as_policy(lambda seen: 0)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"no file nowhere\.zip"):
        locate("nowhere.zip")
    with pytest.raises(
        InputError, match=r"unknown agent 'nowhere'; pretrained agents: HalfCheetah-v5-s0\.2, Hopper-v5-s0\.15, "
    ):
        locate("nowhere")


def test_an_agent_without_bounds_acts_within_those_of_its_environment():
    """Floors rely on it: what the environment pays for an action beyond them, no rule says."""
    policy = Policy(linear((2,), 1), Spaces(shape=(2,), n_actions=None))
    far = torch.tensor([[[9.0, 0.0]], [[-9.0, 0.0]], [[0.5, 0.0]]])
    assert policy.act(far).flatten().tolist() == [9.0, -9.0, 0.5]
    fitted = as_policy(policy, Spaces(shape=(2,), n_actions=None, low=(-1.0,), high=(2.0,)))
    assert fitted.act(far).flatten().tolist() == [2.0, -1.0, 0.5]
