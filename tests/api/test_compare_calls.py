"""What is given of each agent reaches that agent, and episodes that prove nothing of B's worst case are refused."""

import pytest

import surefoot
from surefoot.api import compared_agents
from surefoot.errors import InputError


class StoppedError(Exception):
    pass


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [(0.2, None), (0.8, None)]),
        ({"sigma": 0.3}, [(0.3, None), (0.8, None)]),
        ({"sigma_b": 0.0}, [(0.2, None), (0.0, None)]),
        ({"vecnormalize": "a.pkl"}, [(0.2, "a.pkl"), (0.8, None)]),
        ({"vecnormalize_b": "b.pkl"}, [(0.2, None), (0.8, "b.pkl")]),
    ],
)
def test_noise_and_statistics_are_those_of_each_agent(given, expected, monkeypatch):
    """By default an agent has the noise that its own model card names."""
    planned = []

    def plan(agent, task, sigma, options, vecnormalize):
        planned.append((sigma, vecnormalize))
        if len(planned) == 2:
            raise StoppedError

    monkeypatch.setattr(compared_agents, "_plan_agent", plan)
    with pytest.raises(StoppedError):
        surefoot.compare("cartpole-1-s0.2", "cartpole-1-s0.8", **given)
    assert planned == expected


def test_attacked_episodes_of_b_bound_its_worst_case_at_no_other_budget():
    """Attacked with a larger budget than is asked for, B would look worse than any allowed attack makes it."""
    known = {"sigma": 0.2, "floor": 0, "ceiling": 1}
    a = surefoot.Episodes.from_returns([0.5, 0.4] * 20, **known)
    b = surefoot.Episodes.from_returns([0.1, 0.0] * 20, **known, attacker={"name": "random"}, budget=5.0)
    assert surefoot.compare(a, b).attacked == ()
    with pytest.raises(InputError, match="B's episodes were attacked"):
        surefoot.compare(a, b, budgets=[0.1])
