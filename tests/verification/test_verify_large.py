"""Very many returns are rounded to a grid; the verification rounds them by its own code and finds the same bounds."""

import numpy as np
import pytest

from surefoot.episodes import Episodes
from surefoot.proof.bounds import samples
from surefoot.proof.query import certify
from surefoot.verification.claims import claim_of
from surefoot.verification.plan_again import recompute_bets
from surefoot.verification.recompute import bands, bets
from surefoot.verification.recompute.bands import recompute

N = 1500


def made_of(returns, method, ceiling):
    episodes = Episodes.from_returns(returns, sigma=1.0, floor=0.0, ceiling=ceiling)
    return certify(episodes, [0.0, 1.0], method=method).to_json()


def recomputed(returns, content):
    claim = claim_of(content)
    if content["method"] == "betting":
        return recompute_bets(returns, claim, content["bets"])
    return *recompute(returns, claim), []


@pytest.fixture
def many(monkeypatch):
    """Let a thousand returns be too many to count their values one by one."""
    for module in (samples, bands, bets):
        monkeypatch.setattr(module, "EXACT", 1000)
    return 200 * np.random.default_rng(4).beta(4, 2, N)


@pytest.mark.parametrize("ceiling", [200.0, None])
@pytest.mark.parametrize("method", ["band", "betting", "dkw"])
def test_both_computations_round_alike(method, ceiling, many):
    content = made_of(many, method, ceiling)
    lower, upper, wrong = recomputed(many, content)
    assert wrong == []
    assert np.all(np.array(content["lower"]) <= lower.best)
    assert np.all(np.array(content["lower"]) >= lower.least - 1e-6)
    if ceiling is not None:
        assert np.all(np.array(content["upper"]) >= upper.best)
        assert np.all(np.array(content["upper"]) <= upper.least + 1e-6)


@pytest.mark.parametrize("method", ["band", "betting"])
def test_planted_returns_rounded_up_are_caught(method, many, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(np, "floor", np.ceil)
        content = made_of(many, method, 200.0)
    lower, _, wrong = recomputed(many, content)
    assert wrong or np.any(np.array(content["lower"]) > lower.best)
