"""Every action certified against the return certified."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from study import step_wise
from study.numbers import DATA, Study, shipped_agents
from surefoot.agents.policies import Policy, Spaces
from surefoot.play.streams import Stream

SIGMA, PLACE = 0.5, 0.3


class Sign(nn.Module):
    """Two actions, of which the sign of the observation decides: the true radius is its distance from 0."""

    def forward(self, memory):
        return torch.cat([-memory[:, -1], memory[:, -1]], dim=1)


def votes(n):
    policy = Policy(Sign(), Spaces(shape=(1,), n_actions=2))
    stream = Stream(np.random.SeedSequence(1), torch.device("cpu"))
    return step_wise.vote(policy, torch.full((n, 1), PLACE), SIGMA, stream)


@pytest.mark.parametrize(("alpha", "false_alarms"), [(step_wise.ALPHA, (0, 90)), (0.5, (400, 1_000))])
def test_a_radius_exceeds_the_true_one_as_rarely_as_its_alpha_says(monkeypatch, alpha, false_alarms):
    """1,000 votes. At 5% more than 90 are expected once in ten million times; without confidence it is every second."""
    monkeypatch.setattr(step_wise, "ALPHA", alpha)
    found = step_wise.radii(votes(1_000).max(1), SIGMA)
    assert false_alarms[0] <= (found > PLACE).sum() <= false_alarms[1]
    assert np.median(found) == pytest.approx(PLACE, abs=0.05)


def test_an_undecided_vote_certifies_nothing():
    assert step_wise.radii(np.array([500, 510]), SIGMA).tolist() == [0.0, 0.0]
    certain = step_wise.radii(np.array([1_000]), SIGMA)[0]
    assert certain == pytest.approx(SIGMA * 2.748, abs=1e-3)  # 0.05 ** (1 / 1000) = 0.997


def test_votes_count_every_sample():
    found = votes(3)
    assert found.sum(1).tolist() == [step_wise.SAMPLES] * 3
    assert (found[:, 1] > found[:, 0]).all()  # 0.3 is positive


def test_what_is_earned_before_the_first_uncertified_action_is_counted(monkeypatch):
    """Radii of 9, 0.03, 9, ...: the first step is certain at every budget, all steps at budgets up to 0.03."""
    turns = iter([9.0, 0.03, *[9.0] * 300])
    monkeypatch.setattr(step_wise, "SAMPLES", 20)
    monkeypatch.setattr(step_wise, "radii", lambda votes, sigma: np.full(len(votes), next(turns)))
    agent = next(one for one in shipped_agents() if one.name == "cartpole-1-s0.2")
    found = step_wise.voted(agent, 3)
    assert found["smallest_radius"] == [0.03] * 3
    for budget, certain in zip(step_wise.BUDGETS, found["certain"], strict=True):
        assert certain == (found["returns"] if budget <= 0.03 else [1.0] * 3)


def test_the_smallest_radius_of_episodes_is_measured(monkeypatch):
    monkeypatch.setattr(step_wise, "SAMPLES", 20)
    agent = next(one for one in shipped_agents() if one.name == "cartpole-1-s0.2")
    found = step_wise.voted(agent, 3)
    assert all(1 <= one <= 200 for one in found["returns"])
    assert all(0 <= one < 0.3 for one in found["smallest_radius"])
    assert np.all(np.diff(found["certain"], axis=0) <= 0)


def test_the_claim_is_judged_by_what_was_measured(tmp_path):
    study = Study(DATA, shipped_agents())
    assert step_wise.farther_than_actions(study, "cartpole-1").verdict.startswith("yes, at B = 0.01")
    found = study.step_wise()
    sure = [{**row, "certain": [row["returns"]] * len(found["budgets"])} for row in found["agents"]]
    strong = {**found, "agents": sure}
    for path in DATA.glob("episodes/cartpole-1*"):
        (tmp_path / "episodes").mkdir(exist_ok=True)
        (tmp_path / "episodes" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "step-wise.json").write_text(json.dumps(strong))
    assert step_wise.farther_than_actions(Study(tmp_path, shipped_agents()), "cartpole-1").verdict == "no"
    (tmp_path / "step-wise.json").unlink()
    assert "not measured" in step_wise.farther_than_actions(Study(tmp_path, shipped_agents()), "cartpole-1").verdict


def test_other_weights_are_noticed():
    agents = tuple(replace(one, sha256="0") if one.name == "cartpole-1-s0.4" else one for one in shipped_agents())
    assert "certified actions of cartpole-1-s0.4" in Study(DATA, agents).stale()
    assert not [line for line in Study(DATA, shipped_agents()).stale() if line.startswith("certified")]
