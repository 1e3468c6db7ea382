"""Certificates that rest on bets: computed a second time, and no bet may have been placed with hindsight."""

import copy
import functools
import shutil

import numpy as np
import pytest

from laws import LAWS
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.proof.bounds.betting import Sample
from surefoot.proof.bounds.bettors import Seen
from surefoot.proof.bounds.risk_by_radius import split
from surefoot.proof.query import certify
from surefoot.verification.recompute.bands import CannotRecomputeError, Claim
from surefoot.verification.recompute.bets import Bettor, edges_of, recompute_bets
from surefoot.verification.recompute.plans import Law
from surefoot.verification.recompute.shares import shares_of
from surefoot.verification.verify import verify
from verdicts import problems


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A run as the command makes it by default."""
    folder = tmp_path_factory.mktemp("bets") / "run"
    assert cli.main(["certify", "cartpole-1", "--episodes", "700", "--out", str(folder), "--workers", "1"]) == 0
    return folder


@pytest.fixture(scope="module")
def three_budgets(tmp_path_factory):
    """The same at three budgets instead of eleven, which is what a second computation costs."""
    folder = tmp_path_factory.mktemp("bets") / "run"
    few = ("--episodes", "700", "--budgets", "0,0.2,0.4", "--out", str(folder), "--workers", "1")
    assert cli.main(["certify", "cartpole-1", *few]) == 0
    assert read_json(folder / "certificate.json")["choice"]["method"] == "betting"
    return folder


@pytest.fixture
def run(three_budgets, tmp_path):
    """A copy to tamper with."""
    shutil.copytree(three_budgets, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.slow
def test_a_default_run_bets_and_is_verified(honest, capsys):
    assert read_json(honest / "certificate.json")["choice"]["method"] == "betting"
    assert cli.main(["verify", str(honest), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "ok   limits: recomputed from the returns, method auto" in shown


def rewritten(folder, change):
    made = read_json(folder / "certificate.json")
    change(made)
    write_json(folder / "certificate.json", made)


def bet(side, which, key, value):
    """Change one field of a bet: the first that has it, or the last."""

    def change(made):
        row = [row for row in made["bets"][side] if row.get(key) is not None][which]
        row[key] = value(row[key])

    return change


def risk(made):
    """Spend a tenth more at one radius, which makes the limit there better."""
    radius = made["bets"]["lower"][0]["radius"]
    for row in made["bets"]["lower"]:
        row["alpha"] *= 1.1 if row["radius"] == radius else 1


TAMPERED = {
    "a lower limit": lambda made: made["lower"].__setitem__(1, made["lower"][1] + 1e-5),
    "an upper limit": lambda made: made["upper"].__setitem__(0, made["upper"][0] - 1e-5),
    "the confidence": lambda made: made.update(confidence=0.99, joint_confidence=0.98),
    "a score": bet("lower", -1, "cutoff", lambda cutoff: cutoff * 10 ** (1 / 3)),
    "a score of no plan": bet("lower", -1, "cutoff", lambda cutoff: 0.01),
    "a block": bet("lower", 0, "count", lambda count: count - 1),
    "the place of a block": bet("lower", 0, "first", lambda first: first + 1),
    "a radius": bet("lower", 0, "radius", lambda radius: radius + 0.1),
    "the shares of the risk": risk,
    "a bet left out": lambda made: made["bets"]["lower"].pop(),
    "a bet twice": lambda made: made["bets"]["lower"].append(made["bets"]["lower"][0]),
    "one side left out": lambda made: made["bets"].pop("upper"),
    "all bets left out": lambda made: made.update(bets=None),
    "the method": lambda made: made.update(method="band", choice=None),
    "the choice": lambda made: made["choice"].update(method="band"),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_tampering_with_limits_or_bets_is_caught(run, change):
    rewritten(run, change)
    assert "limits" in problems(verify(run, blocks=0))


def test_a_changed_return_is_caught_even_with_a_new_hash(run):
    there = Episodes.load(run / "episodes.npz")
    returns = there.returns.copy()
    low = int(np.argmin(returns[100:])) + 100
    returns[low] = 200.0
    facts = {key: value for key, value in there.setup.items() if key not in ("sigma", "floor", "ceiling")}
    changed = Episodes(returns, there.sigma, there.floor, there.ceiling, facts=facts, lengths=there.lengths)
    changed.save(run / "episodes.npz")
    assert {"hash of the record", "limits"} <= problems(verify(run, blocks=0)).keys()
    rewritten(run, lambda made: made.update(record_sha256=changed.sha256))
    assert "limits" in problems(verify(run, blocks=0))


def made_of(*arguments, **options):
    """Return returns, the claim about them and the certificate, computed once for all tests that ask the same."""
    returns, claim, made = _made_of(*arguments, **options)
    return returns, claim, copy.deepcopy(made)


@functools.cache
def _made_of(law, n, budgets=(0.0, 0.3, 1.1), seed=3, ceiling=True):
    returns = law.draw(np.random.default_rng(seed), (n,))
    top = law.ceiling if ceiling else None
    made = certify(Episodes.of(returns, sigma=0.5, floor=law.floor, ceiling=top), budgets, method="betting").to_json()
    claim = Claim("betting", 1 - made["confidence"], 0.5, made["floor"], made["ceiling"], tuple(made["budgets"]))
    return returns, claim, made


@pytest.mark.parametrize("n", [1, 2, 15, 40, 700, pytest.param(40_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_both_computations_agree_for_all_laws(law, n):
    """With many values past 600 they merge neighbours; from 30,000 on one of them sums by series."""
    returns, claim, made = made_of(law, n)
    lower, upper, wrong = recompute_bets(returns, claim, made["bets"])
    span = law.ceiling - law.floor
    assert wrong == []
    assert np.all(np.abs(lower.best - made["lower"]) <= 2e-9 * span)
    assert np.all(np.abs(upper.best - made["upper"]) <= 2e-9 * span)
    assert np.all(lower.least <= lower.best)
    assert np.all(upper.least >= upper.best)


@pytest.mark.parametrize("factor", [1.01, 0.9, 0.0])
def test_another_stake_than_the_planned_one_is_caught(factor):
    returns, claim, made = made_of(LAWS[0], 700)
    bet("lower", -1, "stake", lambda stake: stake * factor)(made)
    assert len(recompute_bets(returns, claim, made["bets"])[2]) == 1
    bet("lower", -1, "stake", lambda stake: "much")(made)
    with pytest.raises(CannotRecomputeError, match="a bet must say"):
        recompute_bets(returns, claim, made["bets"])


def test_without_a_ceiling_and_at_a_hopeless_budget_too():
    returns, claim, made = made_of(LAWS[0], 500, (0.2, 0.5, 100.0), ceiling=False)
    lower, upper, wrong = recompute_bets(returns, claim, made["bets"])
    assert (upper, wrong, made["upper"]) == (None, [], None)
    assert np.all(np.abs(lower.best - made["lower"]) <= 2e-9 * (LAWS[0].ceiling - LAWS[0].floor))


@pytest.mark.slow
def test_both_kinds_of_stakes_were_played_above():
    """Plain stakes alone, and plain ones followed by hedged ones, so that nothing above passes for lack of bets."""
    kinds = {
        frozenset("hedged" in row for row in made_of(law, n)[2]["bets"]["lower"] if row["radius"] == radius)
        for law in LAWS
        for n in (40, 700, 40_000)
        for radius in (0.0, 2.2)
    }
    assert {frozenset({False}), frozenset({True, False})} <= kinds


@pytest.mark.parametrize("law", [LAWS[0], LAWS[1], LAWS[3]], ids=lambda law: law.name)
def test_scores_and_stakes_planned_with_hindsight_are_caught(law, monkeypatch):
    """The planted error: whoever plans each block from all returns, on laws where that makes for better limits."""
    with monkeypatch.context() as patch:
        whole = Seen.sample
        patch.setattr(Seen, "sample", lambda self, a, b: whole(self, a, self.size if a == 0 else b))
        returns, claim, made = _made_of.__wrapped__(law, 900)
    lower, _, wrong = recompute_bets(returns, claim, made["bets"])
    assert wrong or np.any(made["lower"] > lower.best + 1e-6)


def test_a_plan_that_is_nearly_but_not_quite_the_best_is_refused():
    returns, _, _ = made_of(LAWS[0], 700)
    bettor = Bettor(returns, LAWS[0].floor, 1.0, 0.05, [])
    options = sorted(bettor.options(bettor.edges[0]), key=lambda option: -option.expected)
    row = {"first": bettor.edges[0], "count": bettor.edges[0], "cutoff": options[0].score.cutoff}
    second = next(option for option in options if option.expected < options[0].expected - 1e-6)
    for option, accepted in ((options[0], True), (second, False)):
        named = {**row, "cutoff": option.score.cutoff, "stake": option.stake}
        bettor = Bettor(returns, LAWS[0].floor, 1.0, 0.05, [named])
        assert bettor.settle(bettor.edges[0], 2 * bettor.edges[0], hedged=False).expected == options[0].expected
        assert (bettor.wrong == []) == accepted


@pytest.mark.parametrize("factor", [1.1, 0.9], ids=["too much", "less"])
def test_other_shares_of_the_risk_than_the_pilot_divided_are_caught(factor):
    """Whoever moves risk to where the returns turned out well certifies more, and the sum does not tell."""
    returns, claim, made = made_of(LAWS[0], 700)
    moved = copy.deepcopy(made["bets"])
    radius = moved["lower"][0]["radius"]
    for row in moved["lower"]:
        row["alpha"] *= factor if row["radius"] == radius else 1
    assert len({row["radius"] for row in moved["lower"]}) > 1
    _, _, wrong = recompute_bets(returns, claim, moved)
    assert any("the plan is to risk" in text for text in wrong)
    assert any("the bets risk" in text for text in wrong) == (factor > 1)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
@pytest.mark.parametrize("radii", [[0, 0.6, 2.2, 3.2], [1.0, 40.0], [35.0, 40.0]], ids=str)
def test_shares_are_those_of_the_first_computation(law, radii):
    for n, side in ((30, 1), (900, 1), (900, -1), (20_000, 1)):
        returns = side * law.draw(np.random.default_rng(n), (n,))
        floor, ceiling = sorted((side * law.floor, side * law.ceiling))
        pilot, asked = returns[: edges_of(n)[0]], np.array(radii)
        ours = split(Sample.of(pilot), asked, 0.05, floor, ceiling, n - pilot.size)
        assert np.allclose(shares_of(Law.of(pilot), asked, 0.05, floor, ceiling, n), ours, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    "bets", [None, [], {"lower": []}, {"lower": 1, "upper": 2}, {"lower": [1], "upper": []}], ids=str
)
def test_what_is_no_record_of_bets_cannot_be_computed(bets):
    returns, claim, _ = made_of(LAWS[0], 100)
    with pytest.raises(CannotRecomputeError, match="bet"):
        recompute_bets(returns, claim, bets)
