"""T9, luck that is known at reset: bounds against the truth, laws, what decides about bets, and planted errors.

Statistical alarms go off by chance with probability 1e-6 (``laws.FALSE_ALARM``), from fixed seeds.
"""

from dataclasses import replace

import numpy as np
import pytest

from laws import too_many
from lucks import ALPHA, FEW_LUCKS, LUCKS, NOISE, lucky_misses
from planned import bets_before
from surefoot import Episodes, certify, certify_per_step, certify_shared_budget
from surefoot.errors import InputError
from surefoot.proof.bounds import reset_luck
from surefoot.proof.bounds.reset_luck import LuckyReturns, OrderedLuck
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.planning import auto, luck_fit, proposals
from surefoot.proof.planning.bettors import pilot_size
from surefoot.proof.planning.strategies import bets_as_json, bound_lucky_means
from surefoot.verification.plan_again import check_choice, recompute_luck_bets
from surefoot.verification.recompute.bands import Claim

RUNS = 9


def drawn(luck, seed, n):
    return luck.draw_known(np.random.default_rng(seed), n)


@pytest.mark.parametrize("luck", FEW_LUCKS, ids=lambda luck: luck.name)
def test_bounds_miss_no_more_often_than_promised(luck):
    """Few, because bets are slow: ``bench/luck.py`` counts more of them."""
    low, high = lucky_misses(luck, runs=RUNS, n=20, c=1.0)
    assert not too_many(low, RUNS, ALPHA)
    assert not too_many(high, RUNS, ALPHA)


def test_planted_luck_is_read_after_the_noise():
    def read_late(episodes):
        return replace(episodes, features=episodes.returns[:, None])

    low, _ = lucky_misses(NOISE, runs=RUNS, n=150, c=2.0, change=read_late, ceiling=None)
    assert too_many(low, RUNS, ALPHA)


def test_planted_the_fit_sees_certified_episodes(monkeypatch):
    """Twenty numbers that say nothing: on the episodes that they were fitted to they seem to say much."""
    every = []

    def with_noise(episodes):
        features = np.random.default_rng(episodes.size).normal(0, 1, (episodes.size, 20))
        every[:] = [LuckyReturns(episodes.returns, features)]
        return every[0]

    def fit_all(past):
        return luck_fit.fit_luck(every[0])

    def missed():
        return lucky_misses(NOISE, runs=RUNS, n=60, c=2.0, change=with_noise, ceiling=None)[0]

    assert not too_many(missed(), RUNS, ALPHA)
    monkeypatch.setattr(proposals, "fit_luck", fit_all)
    monkeypatch.setattr(luck_fit, "_RIDGE", 1e-9)
    assert too_many(missed(), RUNS, ALPHA)


def test_planted_a_bet_size_that_depends_on_the_luck_of_its_episode(monkeypatch):
    """Nothing is bet on unlucky episodes, so that the lucky ones refute what is true of all."""

    def bet_on_lucky(self, score, first, last):
        episodes = self.episodes.rows(first, last)
        lucky = episodes.features[:, 0] < 1
        return Sample.of(score(LuckyReturns(episodes.returns[lucky], episodes.features[lucky])))

    monkeypatch.setattr(OrderedLuck, "scored", bet_on_lucky)
    low, _ = lucky_misses(LUCKS[2], runs=RUNS, n=120, c=1.0, ceiling=None)
    assert too_many(low, RUNS, ALPHA)


def test_planted_moved_luck_is_added_with_one_too_much(monkeypatch):
    made = reset_luck.LuckScore.__call__
    monkeypatch.setattr(reset_luck.LuckScore, "__call__", lambda self, episodes: made(self, episodes) + 1.0)
    low, _ = lucky_misses(LUCKS[8], runs=RUNS, n=400, c=1.0, ceiling=None)
    assert too_many(low, RUNS, ALPHA)


@pytest.mark.parametrize("planted", [False, True])
@pytest.mark.parametrize("what", ["returns", "features"])
def test_no_episode_decides_about_a_bet_on_itself(what, planted, monkeypatch):
    """Other returns and other luck from episode 200 on change no bet before; a planner that is shown all is noticed."""
    if planted:
        every = OrderedLuck

        def show_all(self, index):
            shown = every(self.episodes, self.samples)
            shown.size = index
            return shown

        monkeypatch.setattr(OrderedLuck, "before", show_all)
    episodes = drawn(LUCKS[2], 1, 300)
    changed = getattr(episodes, what).copy()
    changed[200:] = changed[200:][::-1] * 0.5
    one, another = (
        bets_before(200, lambda known=known: bound_lucky_means(known, [1.0], 0.05, 0.0, None), monkeypatch)
        for known in (episodes, replace(episodes, **{what: changed}))
    )
    assert len(one) > 50
    assert (one == another) != planted


def test_bounds_grow_with_episodes_and_fall_with_budget_and_confidence():
    episodes = drawn(LUCKS[2], 6, 500)
    cs = [0.0, 1.0]

    def lower(known, alpha):
        return bound_lucky_means(known, cs, alpha, 0.0, None).lower.at(cs)

    most = lower(episodes, 0.05)
    assert np.all(np.diff(most) < 0)
    assert np.all(lower(episodes.rows(0, 60), 0.05) < most)
    assert np.all(lower(episodes, 0.001) < most)


def record_of(episodes, **more):
    return Episodes.from_returns(
        episodes.returns, luck=episodes.features, sigma=1.0, floor=0, **{"ceiling": 10.0, **more}
    )


def test_luck_is_selected_where_it_decides_the_return_and_costs_nothing_elsewhere():
    """Luck 90, noise 45, c = 2: a quarter less is lost; of numbers that say nothing the bounds are the usual ones."""
    rng = np.random.default_rng(8)
    luck = rng.normal(0, 90, 2_000)
    returns = np.clip(350 + luck + rng.normal(0, 45, 2_000), 0, 700)
    known = LuckyReturns(returns, luck[:, None])
    useless = LuckyReturns(returns, rng.normal(0, 1, (2_000, 4)))
    with_luck, without = (certify(record_of(each, ceiling=None), [2.0]) for each in (known, useless))
    assert with_luck.method_selection == {"method": "luck", "pilot": pilot_size(2_000)}
    assert 350 - with_luck.lower[0] < 0.75 * (350 - without.lower[0])
    assert without.method_selection["method"] == "betting"
    plain = certify(Episodes.from_returns(returns, sigma=1.0, floor=0), [2.0])
    assert without.lower[0] == plain.lower[0]


def test_few_episodes_that_seem_to_know_their_luck_do_not(monkeypatch):
    """The fewer there are, and the more weights, the more must be predicted: by chance some of it always is."""
    rng = np.random.default_rng(3)
    features, rest = rng.normal(0, 1, (60, 1)), rng.normal(0, 1, 60)
    slightly, clearly = (LuckyReturns(share * features[:, 0] + rest, features) for share in (0.575, 0.7))
    assert luck_fit.knows_luck(clearly)
    assert not luck_fit.knows_luck(slightly)
    monkeypatch.setattr(luck_fit, "_BY_CHANCE", 0.0)
    assert luck_fit.knows_luck(slightly)


@pytest.mark.parametrize("budgets", [(1.0,), (0.0, 1.0)])
def test_what_selects_luck_is_not_bet_on(budgets):
    """Luck is judged on the returns that the method without it leaves out: on no other, and at no cost."""
    rng = np.random.default_rng(9)
    features = rng.normal(0, 1, (4000, 1))
    claim = Claim("auto", 0.05, 1.0, 0.0, 10.0, budgets)
    where = (np.array(budgets), 0.05, 0.0, 10.0)
    # a start at one end, after which bets begin early, shows no luck
    perfect = np.full(4000, 10.0)
    perfect[40:] = np.where(features[40:, 0] > 0, 10.0, 4.7)
    assert auto.choose_method(perfect, *where, features=features).method == "betting"
    wins = np.where(features[:, 0] > 0, 10.0, 0.0)
    many = 5 + np.clip(features[:, 0], -3, 3) + rng.uniform(0, 1, 4000)
    for returns, method in ((wins, "binary"), (many, "betting")):
        usual = auto.choose_method(returns, *where)
        assert usual.method == method
        idle = auto.choose_method(returns, *where, features=rng.normal(0, 1, (4000, 1)))
        assert idle.to_json() == usual.to_json()
        choice = auto.choose_method(returns, *where, features=features)
        assert (choice.method, choice.pilot) == ("luck", pilot_size(4000))
        other = np.concatenate([features[: usual.pilot], rng.normal(0, 1, (4000 - usual.pilot, 1))])
        assert auto.choose_method(returns, *where, features=other).method == "luck"
        assert check_choice(returns, claim, choice.to_json(), features=features) == []
        assert check_choice(returns, claim, choice.to_json()) != []
        assert check_choice(returns, claim, usual.to_json(), features=features) != []


def test_other_code_computes_the_same():
    episodes = drawn(LUCKS[8], 9, 150)
    made = bound_lucky_means(episodes, [0.0, 1.0], 0.05, 0.0, 10.0)
    claim = Claim("luck", 0.05, 1.0, 0.0, 10.0, (0.0, 1.0))
    lower, upper, wrong = recompute_luck_bets(episodes.returns, episodes.features, claim, bets_as_json(made))
    assert not wrong
    assert np.all(lower.least <= made.lower.at([0.0, 1.0]))
    assert made.lower.at([0.0, 1.0]) == pytest.approx(lower.best, abs=1e-9)
    assert -made.mirror.at([0.0, 1.0]) == pytest.approx(upper.best, abs=1e-9)


def test_planted_other_code_notices_moved_luck_that_is_not_added(monkeypatch):
    made = reset_luck.LuckScore.__call__

    def wrong(self, episodes):
        return made(self, episodes) - self.move * np.clip(episodes.luck(self.weights), *self.ends)

    monkeypatch.setattr(reset_luck.LuckScore, "__call__", wrong)
    episodes = drawn(LUCKS[8], 9, 200)
    bound = bound_lucky_means(episodes, [1.0], 0.05, 0.0, 10.0)
    claim = Claim("luck", 0.05, 1.0, 0.0, 10.0, (1.0,))
    lower, _, found = recompute_luck_bets(episodes.returns, episodes.features, claim, bets_as_json(bound))
    assert found or abs(lower.best[0] - bound.lower.at(1.0)) > 1e-3


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: certify(record_of(drawn(NOISE, 1, 30), draws_per_seed=2), [1.0], method="luck"), "omit the method"),
        (lambda: certify(Episodes.from_returns([1.0] * 30, sigma=1.0, floor=0), [1.0], method="luck"), "how each epi"),
        (lambda: certify(record_of(drawn(NOISE, 1, 30)), [1.0], method="luck", quantiles=[0.5]), "need a band"),
        (lambda: Episodes.from_returns([1.0, 2.0], sigma=1.0, floor=0, luck=[[1.0]]), "a row of 1 to 32 numbers"),
        (lambda: Episodes.from_returns([1.0, 2.0], sigma=1.0, floor=0, luck=[1.0, 2.0]), "a row of 1 to 32 numbers"),
        (lambda: Episodes.from_returns([1.0], sigma=1.0, floor=0, luck=[[np.nan]]), "finite numbers"),
        (lambda: Episodes.from_returns([1.0], sigma=1.0, floor=0, luck=[[1e61]]), "finite numbers"),
    ],
)
def test_wrong_calls_are_refused(ask, what):
    with pytest.raises(InputError, match=what):
        ask()


def test_features_of_any_size_are_no_error():
    rng = np.random.default_rng(3)
    for size in (1e-300, 1e-40, 1e-9, 1e60):
        features = size * np.clip(rng.normal(0, 0.3, (60, 1)), -1, 1)
        made = bound_lucky_means(LuckyReturns(rng.uniform(0, 10, 60), features), [1.0], 0.05, 0.0, None)
        assert np.isfinite(made.lower.at(1.0))


def test_other_threats_take_no_notice_of_luck():
    record = record_of(drawn(LUCKS[2], 1, 60))
    plain = Episodes.from_returns(record.returns, sigma=1.0, floor=0, ceiling=10.0)
    one = certify_shared_budget(record, [1.0], 2)
    assert one.lower.tolist() == certify_shared_budget(plain, [1.0], 2).lower.tolist()
    with pytest.raises(InputError):
        certify_per_step(record, [1.0])


def test_a_record_keeps_luck(tmp_path):
    record = record_of(drawn(LUCKS[2], 1, 60))
    record.save(tmp_path / "episodes.npz")
    again = Episodes.load(tmp_path / "episodes.npz")
    assert np.array_equal(again.luck, record.luck)
    assert again.sha256 == record.sha256 != replace(record, luck=record.luck + 1.0).sha256
    assert np.array_equal(Episodes.concat([record[:20], record[20:]]).luck, record.luck)
