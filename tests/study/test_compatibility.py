"""Rows of docs/compatibility.md, with fewer episodes; and what each forgotten part would look like."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from study.compatibility import ALLOWED, ROOT, ROWS, Row, run
from surefoot.agents.normalization import Normalized

torch.set_num_threads(1)
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
FEW = 12


def name(row):
    return f"{row.agent}, {row.env}, {row.given}".replace(" ", "-")


def way(row):
    """What stands between an environment and an agent; which algorithm that is, agents/test_sb3.py compares."""
    given = (row.given, row.made_by, row.policy, bool(row.env_kwargs), row.stochastic)
    return (*given, row.stack > 1, row.normalized, row.time_left)


FIRST_OF_EACH_WAY = {way(row): row for row in reversed(ROWS)}.values()


@pytest.mark.parametrize("row", FIRST_OF_EACH_WAY, ids=name)
def test_agents_are_those_of_stable_baselines3(row):
    result = run(row, FEW)
    assert result.same == 1
    assert result.apart < ALLOWED
    assert row.floor <= result.lower <= result.mean + 4 * result.sem


def test_the_page_has_every_row():
    for row in ROWS:
        assert f"| {row.agent} | `{row.env}`" in PAGE
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and ("100%" in line or "| drawn |" in line)]
    assert len(lines) == len(ROWS) >= 25
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert cells[4] == ("drawn" if "draws its actions" in cells[0] else "100%")
        assert float(cells[7]) <= ALLOWED


def normalized_row() -> Row:
    return next(row for row in ROWS if row.agent == "PPO with VecNormalize (MuJoCo)")


def test_forgotten_statistics_show():
    """Planted: the certificate of another agent, which is what VecNormalize without its statistics is."""

    def forget(policy):
        assert isinstance(policy.network, Normalized)
        return replace(policy, network=policy.network.network)

    result = run(normalized_row(), FEW, change=forget)
    assert result.same < 0.5
    assert result.apart > ALLOWED


def test_statistics_a_little_off_show():
    def shift(policy):
        statistics = policy.network.statistics
        other = replace(statistics, mean=statistics.mean + 0.05 * np.sqrt(statistics.var))
        return replace(policy, network=Normalized(policy.network.network, other))

    assert run(normalized_row(), 8, change=shift).same < 1


def test_actions_in_other_units_show():
    """Planted: an exported actor whose actions are not scaled to the environment's bounds."""
    row = next(row for row in ROWS if row.agent == "the actor of TD3")

    def unscaled(policy):
        return replace(policy, network=Halved(policy.network))

    assert run(row, 4, change=unscaled).same < 1


class Halved(torch.nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, history):
        return self.network(history) / 2
