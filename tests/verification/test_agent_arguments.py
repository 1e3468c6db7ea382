"""What the caller of ``verify`` gave, and what the setup says of the agent, arrives where the agent is loaded."""

from dataclasses import fields

import pytest

from stand_ins import Reached
from surefoot.agents import bundle
from surefoot.episodes import Episodes
from surefoot.play.tasks import get_task
from surefoot.proof.query import certify
from surefoot.verification import play_again, rerun
from surefoot.verification.play_again import RerunOptions
from surefoot.verification.verify import verify

# What of the options is about the environment, or about how episodes are run, and has tests of its own.
ELSEWHERE = {"blocks", "fresh", "seed", "environment", "wrappers", "env_modules", "env_kwargs", "success", "luck"}
ELSEWHERE |= {"workers", "progress"}
SETUP = {"agent": "mine", "agent_sha256": "0" * 64, "n_stack": 5, "stochastic": True, "pixel_max": 255}


@pytest.mark.parametrize(
    ("options", "setup", "expected"),
    [
        ({"agent": "a.onnx"}, {}, {"agent": "a.onnx", "n_stack": 5, "stochastic": True, "pixel_max": 255.0}),
        ({"agent": "a.zip"}, {}, {"agent": "a.zip", "n_stack": None}),
        ({"agent": "a.onnx"}, {"stochastic": 1, "pixel_max": None}, {"stochastic": False, "pixel_max": None}),
        ({"agent": "a.zip", "vecnormalize": "s.pkl"}, {}, {"vecnormalize": "s.pkl", "allow_pickle": False}),
        ({"agent": "a.zip", "allow_pickle": True}, {}, {"vecnormalize": None, "allow_pickle": True}),
        ({}, {"agent": "cartpole-1-s0.2"}, {"agent": "cartpole-1-s0.2"}),
    ],
)
def test_the_agent_is_loaded_as_it_was_certified_and_as_the_caller_allows(options, setup, expected, monkeypatch):
    given = {}

    def as_policy(agent, spaces, **named):
        given.update(agent=agent, spaces=spaces, **named)
        raise Reached

    monkeypatch.setattr(play_again, "as_policy", as_policy)
    task = get_task("cartpole-1")
    with pytest.raises(Reached):
        play_again._load_policy({**SETUP, **setup}, task, RerunOptions(**options))
    assert given["spaces"] == task.spaces
    assert {key: given[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("given", "bundled", "agent", "vecnormalize"),
    [
        ({}, "s.pkl", "in the bundle", "s.pkl"),
        ({}, "none", "in the bundle", "none"),
        ({"vecnormalize": "mine.pkl"}, "s.pkl", "in the bundle", "mine.pkl"),
        ({"agent": "mine.zip"}, "s.pkl", "mine.zip", None),
        ({"agent": "mine.zip", "vecnormalize": "mine.pkl"}, "s.pkl", "mine.zip", "mine.pkl"),
    ],
)
def test_agent_and_statistics_of_a_bundle_are_rerun_unless_others_are_given(
    given, bundled, agent, vecnormalize, tmp_path, monkeypatch
):
    """Without its statistics an agent is another one, and an honest run would be called forged."""
    episodes = Episodes.from_returns([9.0, 10.0] * 10, sigma=0.1, floor=0, ceiling=10)
    episodes.save(tmp_path / "episodes.npz")
    certify(episodes, [0.0]).save(tmp_path)
    arrived = []
    monkeypatch.setattr(bundle, "read_bundle", lambda _: bundle.Bundle("in the bundle", bundled, {}))
    monkeypatch.setattr(rerun, "rerun_episodes", lambda *arguments: arrived.append(arguments[-1]))
    verify(tmp_path, **given)
    (options,) = arrived
    assert (options.agent, options.vecnormalize) == (agent, vecnormalize)


def test_every_option_is_about_the_agent_or_has_tests_elsewhere():
    assert {one.name for one in fields(RerunOptions)} == ELSEWHERE | {"agent", "allow_pickle", "vecnormalize"}
