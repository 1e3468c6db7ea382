"""Certificates that rest on bets: computed a second time, and no bet may have been placed with hindsight."""

import copy
import dataclasses
import functools
import shutil

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from laws import LAWS, atoms
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.proof.bounds import settle, tangent_scores
from surefoot.proof.bounds.betting import Capital
from surefoot.proof.bounds.samples import OrderedOutcomes
from surefoot.proof.planning import strategies
from surefoot.proof.planning.bettors import PLANNER_VERSION
from surefoot.proof.planning.hedged_bets import HedgedPlanner
from surefoot.proof.query import certify
from surefoot.verification.plan_again import recompute_bets
from surefoot.verification.recompute.bands import CannotRecomputeError, Claim
from surefoot.verification.recompute.bets import Account, PlannedBet, PlannedBettor, bounds_of, settled
from surefoot.verification.recompute.shares import unshared
from surefoot.verification.verify import verify
from verdicts import problems


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A run as the command makes it by default."""
    folder = tmp_path_factory.mktemp("bets") / "run"
    assert cli.main(["certify", "cartpole-1", "--episodes", "150", "--out", str(folder), "--workers", "1"]) == 0
    return folder


@pytest.fixture(scope="module")
def three_budgets(tmp_path_factory):
    """The same at three budgets instead of eleven, which is what a second computation costs."""
    folder = tmp_path_factory.mktemp("bets") / "run"
    few = ("--episodes", "200", "--budgets", "0,0.2,0.4", "--out", str(folder), "--workers", "1")
    assert cli.main(["certify", "cartpole-1", *few]) == 0
    assert read_json(folder / "certificate.json")["method_selection"]["method"] == "betting"
    return folder


@pytest.fixture
def run(three_budgets, tmp_path):
    """A copy to tamper with."""
    shutil.copytree(three_budgets, tmp_path / "run")
    return tmp_path / "run"


def test_a_default_run_bets_and_is_verified(honest, capsys):
    assert read_json(honest / "certificate.json")["method_selection"]["method"] == "betting"
    assert cli.main(["verify", str(honest), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "ok bounds recomputed from the returns, method auto" in " ".join(shown.split())


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
    "the method": lambda made: made.update(method="band", method_selection=None),
    "the choice": lambda made: made["method_selection"].update(method="band"),
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_tampering_with_limits_or_bets_is_caught(run, change):
    rewritten(run, change)
    assert "bounds" in problems(verify(run, blocks=0))


def test_a_changed_return_is_caught_even_with_a_new_hash(run):
    there = Episodes.load(run / "episodes.npz")
    returns = there.returns.copy()
    low = int(np.argmin(returns[100:])) + 100
    returns[low] = 200.0
    facts = {key: value for key, value in there.setup.items() if key not in ("sigma", "floor", "ceiling")}
    changed = Episodes(returns, there.sigma, there.floor, there.ceiling, metadata=facts, lengths=there.lengths)
    changed.save(run / "episodes.npz")
    # Of episodes that the certificate does not name no bounds are computed.
    verdict = verify(run, blocks=0)
    assert problems(verdict).keys() == {"hash of the episode data"}
    assert not verdict.bounds_recomputed
    rewritten(run, lambda made: made.update(record_sha256=changed.sha256))
    assert {"bounds", "estimate"} <= problems(verify(run, blocks=0)).keys()


def made_of(*arguments, **options):
    """Return returns, the claim about them and the certificate, computed once for all tests that ask the same."""
    returns, claim, made = _made_of(*arguments, **options)
    return returns, claim, copy.deepcopy(made)


@functools.cache
def _made_of(law, n, budgets=(0.0, 0.3, 1.1), seed=3, ceiling=True, method="betting"):
    returns = law.draw(np.random.default_rng(seed), (n,))
    top = law.ceiling if ceiling else None
    made = certify(
        Episodes.from_returns(returns, sigma=0.5, floor=law.floor, ceiling=top), budgets, method=method
    ).to_json()
    claim = Claim(method, 1 - made["confidence"], 0.5, made["floor"], made["ceiling"], tuple(made["budgets"]))
    return returns, claim, made


NEARLY = atoms("nearly perfect", 0.0, 200.0, [10.0, 150.0, 200.0], [0.002, 0.004, 0.994])  # alpha is never split
PERFECT = atoms("perfect so far", 0.0, 200.0, [100.0, 180.0, 200.0], [0.02, 0.04, 0.94])  # and here it is
EVERY = (*LAWS, NEARLY, PERFECT)
LONG = (LAWS[0], LAWS[2])  # many values and few: these take a second each
SIZES = [(law, n) for law in EVERY for n in (1, 2, 15, 40, 31_000 if law in LONG else 700)]


@pytest.mark.parametrize(("law", "n"), SIZES, ids=[f"{law.name}-{n}" for law, n in SIZES])
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
    returns, claim, made = made_of(LAWS[0], 700, method="sequential")
    bet("lower", -1, "stake", lambda stake: stake * factor)(made)
    assert len(recompute_bets(returns, claim, made["bets"])[2]) == 1
    bet("lower", -1, "stake", lambda stake: "much")(made)
    with pytest.raises(CannotRecomputeError, match="a bet must have"):
        recompute_bets(returns, claim, made["bets"])


def test_without_a_ceiling_and_at_a_hopeless_budget_too():
    returns, claim, made = made_of(LAWS[0], 500, (0.2, 0.5, 100.0), ceiling=False)
    lower, upper, wrong = recompute_bets(returns, claim, made["bets"])
    assert (upper, wrong, made["upper"]) == (None, [], None)
    assert np.all(np.abs(lower.best - made["lower"]) <= 2e-9 * (LAWS[0].ceiling - LAWS[0].floor))


@pytest.mark.parametrize("ceiling", [4.0, 400.0])
def test_bets_on_the_mean_alone_are_verified_and_none_on_what_selected_them(ceiling):
    """Of a hundred returns five have selected bets, and without a selection the first is bet on."""
    x = LAWS[1].draw(np.random.default_rng(6), (100,))
    episodes = Episodes.from_returns(x, sigma=1.0, floor=0.0, ceiling=ceiling)
    selected = certify(episodes, [0.0])
    begun_at_once = certify(episodes, [0.0], method="betting")
    claim = Claim("auto", 1 - selected.confidence, 1.0, 0.0, ceiling, (0.0,))
    n_inspected = selected.method_selection["pilot"]
    for made, inspected in ((selected, n_inspected), (begun_at_once, 0)):
        lower, upper, wrong = recompute_bets(x, claim, made.betting, n_inspected=inspected)
        assert wrong == []
        assert made.lower[0] == pytest.approx(lower.best[0], rel=1e-6)
        assert made.upper[0] == pytest.approx(upper.best[0], rel=1e-6)
    # bets that no selection has waited for, in a certificate that has selected
    assert recompute_bets(x, claim, begun_at_once.betting, n_inspected=n_inspected)[2] != []


def test_both_kinds_of_stakes_were_played_above():
    """One stake against all claims, and one against each, so that nothing above passes for lack of bets."""
    for method, kind in (("betting", "hedged"), ("sequential", "stake")):
        rows = made_of(LAWS[0], 700, method=method)[2]["bets"]["lower"]
        assert {row["radius"] for row in rows} >= {0.0, 2.2}
        assert all(kind in row for row in rows)
    for law, kinds in ((NEARLY, {True}), (PERFECT, {True, False})):
        assert {"unsplit" in row for row in made_of(law, 700)[2]["bets"]["lower"]} == kinds


@pytest.mark.parametrize(("n", "kinds"), [(150, {True}), (300, {True, False})])
def test_one_budget_alone_is_verified_before_and_after_a_second_failure(n, kinds):
    returns, claim, made = made_of(NEARLY, n, (1.1,))
    lower, _, wrong = recompute_bets(returns, claim, made["bets"])
    assert np.count_nonzero(returns < NEARLY.ceiling) == len(kinds)
    assert {"unsplit" in row for row in made["bets"]["lower"]} == kinds
    assert wrong == []
    assert np.all(np.abs(lower.best - made["lower"]) <= 4e-7)


UNSPLIT = {
    "said to be split": lambda row: row.pop("unsplit"),
    "more alpha": lambda row: row.update(alpha=1.1 * row["alpha"]),
    "another radius": lambda row: row.update(radius=2.2),
    "a cut-off": lambda row: row.update(cutoff=0.1),
}


@pytest.mark.parametrize("change", UNSPLIT.values(), ids=UNSPLIT)
def test_other_bets_before_alpha_was_split_are_caught(change):
    returns, claim, made = made_of(PERFECT, 700)
    for row in made["bets"]["lower"]:
        if "unsplit" in row:
            change(row)
    assert recompute_bets(returns, claim, made["bets"])[2] != []


def test_alpha_said_to_be_unsplit_for_bets_at_one_budget_is_caught():
    returns, claim, made = made_of(LAWS[0], 700)
    made["bets"]["lower"][0]["unsplit"] = True
    assert recompute_bets(returns, claim, made["bets"])[2] != []


def generous(self, before, ceiling):
    """The planted error: after the split nothing was lost before it, wherever the worst case may be."""
    inherit(self, before, ceiling)
    self.log_capital = np.maximum(self.log_capital, 0.0)
    self.log_capital_above = 0.0


inherit = settle.CapitalAccount.inherit_from


def test_capital_that_was_lost_before_the_split_is_not_given_back(monkeypatch):
    """It is given back when proving and when plans are repeated: only the second settlement notices."""
    monkeypatch.setattr(settle.CapitalAccount, "inherit_from", generous)
    returns = np.full(400, 200.0)
    returns[np.arange(20, 60, 5)] = 150.0
    episodes = Episodes.from_returns(returns, sigma=0.5, floor=0.0, ceiling=200.0)
    made = certify(episodes, (0.3, 1.1), method="betting").to_json()
    lower, _, wrong = recompute_bets(returns, Claim("betting", 0.05, 0.5, 0.0, 200.0, (0.3, 1.1)), made["bets"])
    assert wrong == []
    assert np.any(made["lower"] > lower.best + 1e-6)


def hindsight(self, index):
    """The planted error: all that is known for all that was known then, which is what planners plan with."""
    past = before(self, index)
    past.sample = lambda first=0, last=None: self.sample()
    return past


before = OrderedOutcomes.before


@pytest.mark.parametrize("both", [False, True], ids=["when proving", "when verifying too"])
@pytest.mark.parametrize("law", [LAWS[0], LAWS[1], LAWS[3]], ids=lambda law: law.name)
def test_scores_and_stakes_planned_with_hindsight_are_caught(law, both, monkeypatch):
    """A planner that plans each block from all returns, on laws where that makes for better limits.

    It is caught though the very same planner is re-run: there are no later returns for it to find.
    """
    with monkeypatch.context() as patch:
        patch.setattr(OrderedOutcomes, "before", hindsight)
        returns, claim, made = _made_of.__wrapped__(law, 500)
        if both:
            lower, _, wrong = recompute_bets(returns, claim, made["bets"])
    if not both:
        lower, _, wrong = recompute_bets(returns, claim, made["bets"])
    assert wrong or np.any(made["lower"] > lower.best + 1e-6)
    assert any("the plan" in text for text in wrong)


def peeking(self, past, account):
    """The planted error: bet sizes against single claims, which are not recorded, only where the bet will be won."""
    bet = planned(self, past, account)
    if bet is None or bet.hedge is None:
        return bet
    behind = past.outcomes if past.outcomes.base is None else past.outcomes.base
    claims, stakes = bet.hedge
    won = behind[bet.first : bet.last].mean() > np.median(claims)
    return dataclasses.replace(bet, hedge=(claims, stakes * won))


planned = HedgedPlanner.next_bet


def test_bet_sizes_that_peek_into_the_batch_are_caught(monkeypatch):
    monkeypatch.setattr(HedgedPlanner, "next_bet", peeking)
    returns, claim, made = _made_of.__wrapped__(LAWS[0], 900)
    assert any("hedged" in row for row in made["bets"]["lower"])
    lower, _, wrong = recompute_bets(returns, claim, made["bets"])
    assert wrong == []  # the record is the same: only what was won tells
    assert np.any(made["lower"] > lower.best + 0.1)


# --- errors of the settlement, in the code that proves and that is re-run for the plans -----------------------------

limit, with_round, logs, tangents = (
    settle.joint_limit,
    Capital.with_round,
    settle.sums_of_logs,
    tangent_scores.tangent_scores,
)


def without_losses(self, played):
    lost = Capital([played]).log_capital(float(np.average(played.outcomes.values)))[0] < -0.05
    return self if lost else with_round(self, played)


def with_a_wrong_sign(capitals, shares):
    return limit(capitals, [share / sum(shares) ** 2 for share in shares])


def promising(*given):
    return [dataclasses.replace(score, lowest=score.lowest + 0.1) for score in tangents(*given)]


PLANTED = {
    "a sign": (settle, "joint_limit", with_a_wrong_sign),
    "a sign against single claims": (settle, "sums_of_logs", lambda *arguments: -logs(*arguments)),
    "a block left out": (Capital, "with_round", without_losses),
    "a score that promises more": (tangent_scores, "tangent_scores", promising),
}


@pytest.mark.parametrize("error", PLANTED.values(), ids=PLANTED)
def test_planted_errors_of_the_settlement_are_caught(error, monkeypatch):
    """The error stands while the verifier re-runs the plans: its own settlement must not share it."""
    monkeypatch.setattr(*error)
    cases = [(LAWS[0], 60, "betting"), (LAWS[2], 60, "betting"), (LAWS[4], 300, "betting"), (LAWS[0], 700, "betting")]
    cases += [(LAWS[0], 700, "sequential"), (LAWS[2], 700, "sequential")]  # plain stakes to the end
    assert any(_settled_otherwise(law, n, method) for law, n, method in cases)


def _settled_otherwise(law, n, method):
    """Return whether verification fails: it does where bounds are too high, and where the same bets prove more."""
    returns, claim, made = _made_of.__wrapped__(law, n, method=method)
    lower, upper, wrong = recompute_bets(returns, claim, made["bets"])
    below, above = np.array(made["lower"]), np.array(made["upper"])
    false = np.any(below > lower.best + 1e-6) or np.any(above < upper.best - 1e-6)
    return bool(wrong or false or np.any(below < lower.least - 1e-6) or np.any(above > upper.least + 1e-6))


@pytest.mark.parametrize("method", ["betting", "sequential"])
def test_without_a_planted_error_nothing_is_settled_otherwise(method):
    assert not any(_settled_otherwise(law, n, method) for law, n in ((LAWS[0], 700), (LAWS[2], 60), (LAWS[4], 300)))


def test_a_share_used_twice_proves_nothing(monkeypatch):
    monkeypatch.setattr(strategies, "split", lambda past, scaled, alpha, *rest: np.full(scaled.size, alpha))
    with pytest.raises(ValueError, match=r"the shares of alpha sum to 0\.15"):
        _made_of.__wrapped__(LAWS[0], 60, method="betting")


def test_shares_of_one_alpha():
    assert unshared([0.02, 0.0, 0.03], 0.05) == []
    assert "the bets use alpha 0.06" in unshared([0.02, 0.04], 0.05)[0]
    assert unshared([0.06, -0.01], 0.05) == ["a share of alpha is below 0"]
    assert unshared([float("nan")], 0.05) != []


WINS = np.ones(40)
FAIR = {"first": 0, "last": 40, "block": (0, 40), "cutoff": 0.1, "stake": 0.5}
SCORED = {**FAIR, "guesses": (np.array([0.5, 1.0]), np.array([0.9, 0.8]))}
EACH = (np.array([0.1, 0.2]), np.array([0.5, 0.5]))
UNFAIR = {
    "returns before the first": {**SCORED, "first": -1},
    "returns after the last": {**SCORED, "last": 41},
    "a stake below 0": {**SCORED, "stake": -0.1},
    "a stake against one claim below 0": {**SCORED, "hedge": (EACH[0], np.array([0.5, -0.5]))},
    "all that is owned and more": {**SCORED, "hedge": (EACH[0], np.array([0.5, 50.0]))},
    "the return itself under attack": {**FAIR, "guesses": None},
    "a guess of 1": {**FAIR, "guesses": (np.array([0.5, 1.0]), np.array([1.0, 0.8]))},
    "points in no order": {**FAIR, "guesses": (np.array([1.0, 0.5]), np.array([0.9, 0.8]))},
}


@pytest.mark.parametrize("bet", UNFAIR.values(), ids=UNFAIR)
def test_what_is_no_fair_bet_is_not_settled(bet):
    account = Account(WINS, 0.0, PlannedBettor(1.0, 0.05, []))
    account.settle(PlannedBet(**bet))
    assert len(account.wrong) == 1
    assert bounds_of([account])[0] == -np.inf


def test_returns_are_bet_on_once_and_claims_are_settled_once():
    account = Account(WINS, 0.0, PlannedBettor(1.0, 0.05, []))
    account.settle(PlannedBet(**{**SCORED, "last": 20, "hedge": EACH}))
    account.settle(PlannedBet(**{**SCORED, "first": 20, "hedge": EACH}))
    assert account.wrong == []
    account.settle(PlannedBet(**{**SCORED, "first": 39, "hedge": EACH}))
    assert "is not fair" in account.wrong[0]
    other = Account(WINS, 0.0, PlannedBettor(1.0, 0.05, []))
    other.settle(PlannedBet(**{**SCORED, "hedge": (EACH[0][::-1], EACH[1])}))
    assert "claims are in no order" in other.wrong[0]


def test_another_claim_starts_with_the_least_of_those_that_it_meets():
    account = Account(WINS, 0.0, PlannedBettor(1.0, 0.05, []))
    account.claims, account.owned, account.above = np.array([0.1, 0.2, 0.3]), np.array([1.0, -2.0, 3.0]), -0.5
    account.most = np.array([9.0, -2.0, 9.0])
    account._replace(np.array([0.05, 0.15, 0.25, 0.28, 0.35]))
    assert account.owned.tolist() == [1.0, -2.0, -2.0, 3.0, -0.5]
    assert account.most.tolist() == [9.0, -2.0, -2.0, 9.0, -np.inf]
    account._replace(np.array([0.1]))
    assert (account.owned.tolist(), account.above) == ([-2.0], -2.0)


def test_after_the_split_a_claim_starts_with_the_least_that_may_be_owned():
    before, after = (Account(WINS, 0.0, PlannedBettor(radius, 0.05, [])) for radius in (0.0, 1.0))
    before.claims, before.owned, before.above = np.array([0.2, 0.5, 0.8]), np.array([1.0, -2.0, 3.0]), 0.5
    before.most = np.array([9.0, -2.0, 9.0])
    after.inherit(before, 1.0)
    assert after.claims == pytest.approx(ndtr(ndtri([0.2, 0.5, 0.8]) - 1), abs=1e-9)
    assert (after.owned.tolist(), after.above) == ([1.0, -2.0, -2.0], -2.0)
    assert after.most.tolist() == [np.inf, -np.inf, -np.inf]


def test_a_claim_counts_only_if_all_below_it_are_refuted():
    account = Account(WINS, 0.0, PlannedBettor(1.0, 0.05, []))
    account.claims = np.array([0.1, 0.2, 0.3])
    for most, bound in (([9.0, 0.0, 9.0], 0.1), ([0.0, 9.0, 9.0], -np.inf), ([9.0, 9.0, 9.0], 0.3)):
        account.most = np.array(most)
        assert bounds_of([account])[0] == bound


def test_a_share_that_two_bettors_use_is_caught():
    claim = Claim("betting", 0.05, 1.0, 0.0, None, (1.0,))
    one = PlannedBettor(1.0, 0.04, [PlannedBet(**SCORED)])
    for bettors in ([one], [one, one]):
        rows = [row for bettor in bettors for row in bettor.rows()]
        _, wrong = settled(WINS, claim, (0.0, None), bettors, rows)
        assert wrong == ([] if len(bettors) == 1 else ["the bets use alpha 0.08, the certificate 0.05"])


def test_bets_of_another_planner_version_are_not_verified(run):
    """Bets that happen to be the same are settled, others cannot be; everything else is checked in both cases."""
    for version in (None, PLANNER_VERSION - 1):
        rewritten(run, lambda made, version=version: made.update(planner=version))
        verdict = verify(run, blocks=0)
        assert problems(verdict).keys() == {"choice"}
        assert "that the bets were planned on earlier returns alone" in verdict.not_checked
    rewritten(run, bet("lower", -1, "cutoff", lambda cutoff: cutoff * 10 ** (1 / 3)))
    assert problems(verify(run, blocks=0)).keys() == {"choice", "bounds"}
    checks = {check.name: check.result for check in verify(run, blocks=0).checks}
    assert checks["bounds"] == "impossible"
    assert checks["estimate"] == "passed"


def test_betting_and_sequential_name_their_planner():
    episodes = Episodes.from_returns(np.ones(200), sigma=1.0, floor=0.0, ceiling=1.0)
    versions = {method: certify(episodes, [0.5], method=method).planner for method in ("betting", "sequential", "band")}
    assert versions == {"betting": PLANNER_VERSION, "sequential": PLANNER_VERSION, "band": None}


@pytest.mark.parametrize("factor", [1.1, 0.9], ids=["too much", "less"])
def test_other_shares_of_the_risk_than_the_pilot_divided_are_caught(factor):
    """Moving alpha to where the returns turned out well certifies more, and the sum does not show it."""
    returns, claim, made = made_of(LAWS[0], 700)
    moved = copy.deepcopy(made["bets"])
    radius = moved["lower"][0]["radius"]
    for row in moved["lower"]:
        row["alpha"] *= factor if row["radius"] == radius else 1
    assert len({row["radius"] for row in moved["lower"]}) > 1
    _, _, wrong = recompute_bets(returns, claim, moved)
    assert any("the planned alpha is" in text for text in wrong)
    assert any("the bets use alpha" in text for text in wrong) == (factor > 1)


@pytest.mark.parametrize(
    "bets", [None, [], {"lower": []}, {"lower": 1, "upper": 2}, {"lower": [1], "upper": []}], ids=str
)
def test_what_is_no_record_of_bets_cannot_be_computed(bets):
    returns, claim, _ = made_of(LAWS[0], 100)
    with pytest.raises(CannotRecomputeError, match="bet"):
        recompute_bets(returns, claim, bets)
