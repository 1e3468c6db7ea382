"""A share of a run is refused before it runs where nothing can be certified of all shares together."""

import pytest

import surefoot
from surefoot.api.certify import certify_share
from surefoot.errors import InputError
from surefoot.proof.query import Query
from surefoot.proof.shared_budget import SharedBudget
from surefoot.runs.shares import Share


def test_a_share_of_what_cannot_be_certified_runs_nothing(tmp_path):
    impossible = Query(budgets=(0.2,), thresholds=(100.0,), threat=SharedBudget(2))
    given = {"share": Share(1, 2), "n_episodes": 8, "out": tmp_path / "share"}
    with pytest.raises(InputError, match="cannot be combined with a shared budget"):
        certify_share(surefoot.get_task("cartpole-1"), "cartpole-1-s0.2", query=impossible, **given)
    assert not (tmp_path / "share").exists()
