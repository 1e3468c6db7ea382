"""Fresh episodes: what an agent earns under a seed that nobody knew must not contradict what is recorded."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from memorizing import forget, memorize, write_onnx

from surefoot.agents.policies import Policy
from surefoot.agents.resolve import as_policy
from surefoot.api.certify import certify_run
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.play.environments import make_task
from surefoot.play.plan import Plan, own_seed, seeded_plan
from surefoot.play.tasks import get_task
from surefoot.proof.query import Query, certify_shared_budget
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.stopping import StoppingRule
from surefoot.proof.threats import EPISODE
from surefoot.runs.certified import certified_run
from surefoot.verification import rerun
from surefoot.verification.play_again import RerunOptions
from surefoot.verification.recompute import fresh as bets
from surefoot.verification.recompute.fresh import highest_worst_means, log_capital
from surefoot.verification.recompute.run_files import Raw, read_run
from surefoot.verification.verdict import Verdict
from surefoot.verification.verify import verify
from toys import Constant

# --- the bet --------------------------------------------------------------------------------------------------------

POOL = np.array([0.0, 1.0, 1.0, 2.0, 5.0, 5.0])


def capitals(order, n_fresh, scores=bets._scores):
    """Return the final capital of every score and share, for one order of the pool."""
    fresh, recorded = np.array(order[:n_fresh]), np.array(order[n_fresh:])
    logs = [bets._log_capitals(*scores(recorded, fresh, radius)) for radius in (0.0, 1.0, 3.0)]
    return np.exp(np.concatenate(logs)[:, -1])


@pytest.mark.parametrize("n_fresh", [1, 2, 3, 5])
def test_the_bet_is_fair_over_all_orders(n_fresh):
    """Exactly: the average of the capital over all orders of recorded and fresh returns is 1."""
    every = [capitals(order, n_fresh) for order in itertools.permutations(POOL)]
    assert np.mean(every, axis=0) == pytest.approx(1, abs=1e-9)


def test_scores_made_from_the_record_alone_are_not_fair():
    """The planted error: scores that know which returns are recorded."""

    def biased(recorded, fresh, radius):
        scale = max(recorded.max(), fresh.max())
        known = np.isin(fresh, recorded)
        return recorded / scale, np.where(known, fresh, 0.0) / scale

    every = [capitals(order, 3, biased) for order in itertools.permutations(POOL)]
    assert np.mean(every) > 1.05


def test_honest_records_are_hardly_ever_contradicted():
    """3,000 honest pairs at level 0.05: more than 195 alarms would have a probability below 1e-4."""
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(3_000):
        recorded, fresh = rng.binomial(1, 0.95, (2, 60)).astype(float)
        alarms += log_capital(recorded, fresh, [0.0, 1.0, 2.0]) >= math.log(20)
    assert alarms <= 195


def test_worse_fresh_episodes_are_noticed():
    rng = np.random.default_rng(2)
    recorded = rng.normal(180, 20, 10_000).clip(0, 200)
    worse = rng.normal(178, 20, 10_000).clip(0, 200)
    level = math.log(2 / 1e-4)
    assert log_capital(recorded, worse, [0.0, 1.0]) > level
    assert log_capital(worse, recorded, [0.0, 1.0]) < 1  # better ones are no contradiction
    # The mean is always bet on.
    assert log_capital(recorded, worse, [1.0]) == log_capital(recorded, worse, [0.0, 1.0])
    perfect = np.full(10_000, 200.0)
    failing = perfect.copy()
    failing[rng.choice(10_000, 30, replace=False)] = 40.0
    assert log_capital(perfect, failing, [0.0, 2.0, 4.0]) > level


def test_honest_lowest_returns_seldom_look_worse():
    """As above, with bets on the lowest tenth and on what is earned up to a return."""
    rng = np.random.default_rng(4)
    alarms = 0
    for _ in range(3_000):
        recorded, fresh = np.round(rng.beta(2, 1, (2, 60)), 1)
        alarms += log_capital(recorded, fresh, [0.0], [0.1, 0.02], [0.5]) >= math.log(20)
    assert alarms <= 195


@pytest.mark.parametrize("asked", [([0.01], []), ([], [2.0])])
def test_lowest_returns_that_a_record_does_not_have_are_noticed(asked):
    """An agent that knows the worst episode of a hundred by heart doubles its CVaR; means hardly tell."""
    rng = np.random.default_rng(5)
    recorded, fresh = np.round(rng.beta(1, 1, (2, 5_000)) * 200)
    recorded[np.argsort(recorded)[:50]] = 200.0
    level = math.log(2 / 1e-4)
    assert log_capital(recorded, fresh, [0.0, 1.0], *asked) > level
    assert log_capital(recorded, fresh, [0.0, 1.0]) < level


def test_a_thousand_budgets_take_no_more_memory_than_a_few(monkeypatch):
    asked = []
    scores = bets._scores
    monkeypatch.setattr(bets, "_scores", lambda *given: asked.append(given[-1]) or scores(*given))
    log_capital(np.arange(9.0), np.arange(9.0), np.linspace(0, 5, 1_000))
    assert len(asked) == bets.MOST_SCORES
    assert (asked[0], asked[-1]) == (0.0, 5.0)


def test_the_highest_worst_mean_covers_the_truth():
    """The worst-case mean of a coin: above its limit in at most 1% of draws; 3,000 draws, at most 55 (1e-6)."""
    from scipy.special import ndtr, ndtri

    rng = np.random.default_rng(3)
    truth = ndtr(ndtri(0.9) - 1.0)
    below = 0
    for _ in range(3_000):
        fresh = rng.binomial(1, 0.9, 100).astype(float)
        below += highest_worst_means(fresh, [1.0], 0.0, 1.0, 0.01)[0] < truth
    assert below <= 55
    assert highest_worst_means(fresh, [0.0, 1.0], 0.0, None, 0.01) == pytest.approx([math.inf, math.inf])


def test_the_highest_worst_mean_uses_its_level():
    """The planted error: without its margin it is below the truth in about half of all draws."""
    rng = np.random.default_rng(3)
    draws = [highest_worst_means(rng.binomial(1, 0.9, 100) * 1.0, [0.0], 0.0, 1.0, 1.0)[0] < 0.9 for _ in range(300)]
    assert np.mean(draws) > 0.3


# --- agents that know the seed --------------------------------------------------------------------------------------

SIGMA = 10.0


def certified(folder, agent, *, seed=None, n_episodes=90, **query):
    task = get_task("cartpole-1")
    plan = Plan(task=task, policy=as_policy(agent, task.spaces), noise=Noise.of(SIGMA), n_episodes=n_episodes)
    return certified_run(seeded_plan(plan, seed), Query(budgets=(0.0, 1.0, 10.0), **query), folder, figure=False)


@pytest.fixture(scope="module")
def memorizing(tmp_path_factory):
    """An agent in an ONNX file that knows the noise of 240 episodes of seed 0, and one of its size that does not."""
    folder = tmp_path_factory.mktemp("memorizing")
    table = memorize(get_task("cartpole-1"), Noise.of(SIGMA), 240, 0)
    write_onnx(folder / "knowing.onnx", table)
    write_onnx(folder / "honest.onnx", forget(table))
    return folder


@pytest.fixture(scope="module")
def three(memorizing):
    """An agent that knows the noise of three episodes of seed 0."""
    path = memorizing / "three.onnx"
    write_onnx(path, memorize(get_task("cartpole-1"), Noise.of(SIGMA), 3, 0))
    return str(path)


def test_an_agent_that_knows_the_seed_by_heart_is_refused(memorizing, tmp_path):
    agent = str(memorizing / "knowing.onnx")
    made = certified(tmp_path / "run", agent, seed=0)
    assert made.lower[0] > 150  # nothing in the files is false
    verdict = verify(tmp_path / "run", agent=agent, blocks=None)
    results = {check.name: check for check in verdict.checks}
    assert results["replay"].result == "passed"
    assert results["seed"].detail.startswith("0, chosen by the author")
    assert results["fresh episodes"].result == "failed"
    assert "fresh episodes have a mean of" in results["fresh episodes"].detail
    assert (verdict.verdict, verdict.verified) == ("failed", False)
    assert "Do not rely" in verdict.trust


def test_an_agent_that_knows_six_episodes_is_refused(tmp_path):
    """Six good episodes certify 74 of 200; six bad ones would not contradict that beyond chance."""
    write_onnx(tmp_path / "six.onnx", memorize(get_task("cartpole-1"), Noise.of(SIGMA), 6, 0))
    agent = str(tmp_path / "six.onnx")
    made = certified(tmp_path / "run", agent, seed=0, n_episodes=6, method="band")
    assert made.lower[0] > 74  # it earns 9 under other seeds
    few, enough = (verify(tmp_path / "run", agent=agent, fresh=count) for count in (6, None))
    assert few.verified
    assert "The 6 fresh episodes prove by themselves" in few.fresh_bounds
    [failed] = [check for check in enough.checks if check.result == "failed"]
    assert failed.name == "fresh episodes"
    assert "170 fresh episodes have a mean of" in failed.detail


@pytest.mark.parametrize("threat", [EPISODE, SharedBudget(2, certain=True), SharedBudget(1)])
def test_an_agent_that_knows_three_episodes_is_refused(threat, three, tmp_path):
    """Three good episodes certify 53 of 200, whatever shares the budget; 64 bad ones could not contradict that."""
    made = certified(tmp_path / "run", three, seed=0, n_episodes=3, threat=threat)
    if threat != SharedBudget(1):
        assert made.lower[0] > 50
    (failed,) = [check for check in verify(tmp_path / "run", agent=three).checks if check.result == "failed"]
    assert failed.name == "fresh episodes"
    assert "341 fresh episodes have a mean of" in failed.detail
    if threat != SharedBudget(1):
        assert "is certified, fresh episodes show that the worst-case mean is below" in failed.detail


def test_few_episodes_are_compared_with_many_fresh_ones():
    counts = {1: 512, 2: 512, 3: 341, 16: 64, 63: 64, 65: 65, 10**6: 10_000}
    assert {n: rerun.count_fresh(n) for n in counts} == counts


LIMITS = {
    # Of the record, whose returns are from .1 to .9, and what fresh returns do.
    "as they are": (0.0, 1.0, ()),
    "the least recorded return is the floor": ("least", 1.0, ("below the floor",)),
    "the highest recorded return is the ceiling": (0.0, "highest", ("above the ceiling",)),
    "both": ("least", "highest", ("below the floor", "above the ceiling")),
}


@pytest.mark.parametrize("stated", LIMITS)
def test_limits_that_fresh_returns_exceed_are_refused(stated, tmp_path):
    """All bounds rest on them: the user stated them, and the fresh episodes showed that they are wrong, unnoticed."""
    task = make_task("forging_envs:Drawn", floor=0, ceiling=1, max_steps=5)
    agent = Policy(Constant(), task.spaces, name="constant", sha256="2" * 64)
    query = Query(budgets=(0.0, 50.0), method="band")
    made = certify_run(task, agent, sigma=0.5, query=query, n_episodes=12, seed=29, out=tmp_path)
    record = Episodes.load(tmp_path / "episodes.npz")
    assert 0.1 < record.returns.min() < record.returns.max() < 0.9
    floor, ceiling, words = LIMITS[stated]
    floor = float(record.returns.min()) if floor == "least" else floor
    ceiling = float(record.returns.max()) if ceiling == "highest" else ceiling
    forged = replace(record, floor=floor, ceiling=ceiling)
    forged.save(tmp_path / "episodes.npz")
    assert query.answer(forged).lower[1] == floor
    query.answer(forged).save(tmp_path)
    write_json(tmp_path / "setup.json", {"schema": 1, **forged.setup})
    verdict = verify(made.directory, agent=agent, environment="forging_envs:Drawn", fresh=300)
    failed = {check.name: check.detail for check in verdict.checks if check.result == "failed"}
    assert verdict.verified == (not words)
    for one in words:
        assert one in failed["fresh episodes"]


def test_its_honest_twin_is_verified(memorizing, tmp_path):
    agent = str(memorizing / "honest.onnx")
    certified(tmp_path / "run", agent, seed=0)
    verdict = verify(tmp_path / "run", agent=agent, blocks=None)
    assert verdict.verified, verdict.checks
    assert verdict.fresh["n_episodes"] == 90
    assert "The 90 fresh episodes prove by themselves" in verdict.fresh_bounds


def test_a_sequential_run_of_an_agent_that_knows_its_seed_is_refused(memorizing, tmp_path, capsys):
    agent = str(memorizing / "knowing.onnx")
    folder = str(tmp_path / "run")
    call = ["certify", "cartpole-1", "--agent", agent, "--sigma", "10", "--seed", "0", "--budgets", "0,1"]
    assert cli.main([*call, "--require", "60@0", "--max-episodes", "240", "--out", folder, "--quiet"]) == 0
    assert cli.main(["verify", folder, "--agent", agent, "--quiet", "--fresh", "200"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "FAILED fresh episodes" in shown
    assert "is certified, fresh episodes show that the worst-case mean is below" in shown


@pytest.mark.parametrize("name", ["knowing.onnx", "honest.onnx"])
def test_a_sequential_run_without_a_ceiling_is_compared_by_its_first_block(name, memorizing, tmp_path):
    """Without a ceiling fresh episodes refute no bound, and without a fair sample nothing was compared.

    The first block is run in any case, so that it is one, however the run was stopped.
    """
    agent = str(memorizing / name)
    known = get_task("cartpole-1")
    task = replace(known, scoring=replace(known.scoring, ceiling=None))
    plan = Plan(task=task, policy=as_policy(agent, task.spaces), noise=Noise.of(SIGMA), n_episodes=90, seed=0)
    goal = StoppingRule(budget=0.0, require=5.0)
    certified_run(plan, Query(budgets=(0.0,)), tmp_path / "run", goal=goal, figure=False)
    verdict = Verdict(run="")
    rerun._compare_fresh(read_run(tmp_path / "run"), plan, [0.0], verdict, 100, RerunOptions(workers=1))
    (check,) = verdict.checks
    assert check.result == ("failed" if name == "knowing.onnx" else "passed"), check.detail


def test_a_sequential_certificate_does_not_hide_another_one_from_the_fresh_episodes(memorizing, tmp_path):
    """It claims nothing, at an absurd budget; the one next to it claims what the agent knows by heart."""
    agent = str(memorizing / "knowing.onnx")
    call = ["certify", "cartpole-1", "--agent", agent, "--sigma", "10", "--seed", "0", "--budgets", "1000"]
    call += ["--require", "1@1000", "--max-episodes", "90", "--quiet", "--workers", "1"]
    assert cli.main([*call, "--out", str(tmp_path)]) == 1
    shared = certify_shared_budget(Episodes.load(tmp_path / "episodes.npz"), [0.0, 1.0], 5)
    assert shared.lower[0] > 150
    shared.save(tmp_path)
    failed = {check.name: check.detail for check in verify(tmp_path, agent=agent).checks if check.result == "failed"}
    assert failed.keys() == {"certificates"}
    assert failed["certificates"].startswith("shared.json needs a number of episodes that was fixed in advance")


def test_fresh_episodes_are_held_against_the_budgets_of_every_certificate(memorizing, tmp_path, monkeypatch):
    """And against its bounds; and they are run on this machine, whatever reran the recorded ones."""
    agent = str(memorizing / "honest.onnx")
    certified(tmp_path / "run", agent, method="dkw")
    certify_shared_budget(Episodes.load(tmp_path / "run" / "episodes.npz"), [0.0, 3.0], 5).save(tmp_path / "run")
    asked = []

    def run_fresh(plan, n_fresh, workers, progress):
        asked.append(workers)
        return {"returns": np.zeros(n_fresh)}

    def log_capital(recorded, fresh, radii, shares=(), thresholds=(), **_):
        asked.append(list(radii))
        return 0.0

    class Elsewhere:
        """Other machines."""

        def map_unordered(self, task, plan, indices, **_):
            return ((index, task(plan, index)) for index in indices)

    monkeypatch.setattr(rerun, "run_fresh", run_fresh)
    monkeypatch.setattr(rerun, "log_capital", log_capital)
    monkeypatch.setattr(rerun, "_refuted_bounds", lambda raw, *_: [f"the bounds of {raw.name}"])
    verdict = verify(tmp_path / "run", agent=agent, workers=Elsewhere())
    assert asked == [1, [0.0, 0.1, 0.3, 1.0]]
    (wrong,) = (check.detail for check in verdict.checks if check.name == "fresh episodes")
    assert wrong == "the bounds of certificate.json; the bounds of shared.json"


def test_a_bound_is_refuted_from_the_highest_worst_mean_on():
    fresh = np.array([0.0, 1.0] * 50)
    (most,) = highest_worst_means(fresh, [1.0], 0.0, 1.0, rerun.FALSE_ALARM / 2)
    for bound, n_refuted in ((most, 0), (np.nextafter(most, 2), 1)):
        raw = Raw(
            "certificate.json", {"budgets": [0.5], "sigma": 0.5, "lower": [bound]}, {"floor": 0.0}, {}, None, None
        )
        assert len(rerun._refuted_bounds(raw, fresh, 1.0)) == n_refuted


@pytest.mark.parametrize(
    ("name", "says", "refuted"),
    [
        ("certificate.json", {"method": "band"}, True),
        ("certificate.json", {"method": "auto", "method_selection": {"method": "betting"}}, True),
        ("certificate.json", {"method": "auto", "method_selection": {"method": "luck"}}, False),
        ("certificate.json", {"method": "luck"}, False),
        ("certificate.json", {"method": "nested"}, False),
        ("shared.json", {"method": "betting"}, False),
        ("per-step.json", {"method": "per-step"}, False),
    ],
)
def test_what_knows_more_than_returns_is_held_against_the_mean_alone(name, says, refuted):
    """An honest bound that knows luck may be above the worst case of all games with the same returns."""
    fresh = np.array([0.0, 1.0] * 500)
    levels = highest_worst_means(fresh, [1.0, 0.0], 0.0, 1.0, rerun.FALSE_ALARM / 2)
    for bound, found in ((sum(levels) / 2, refuted), (levels[1] + 0.01, True)):
        certificate = {"budgets": [0.5], "sigma": 0.5, "lower": [bound], **says}
        raw = Raw(name, certificate, {"floor": 0.0}, {}, None, None)
        assert bool(rerun._refuted_bounds(raw, fresh, 1.0)) == found


def test_by_default_an_agent_cannot_know_its_seed(memorizing, tmp_path):
    """The seed follows from the agent: the one that knows seed 0 by heart is run on another."""
    made = certified(tmp_path / "run", str(memorizing / "knowing.onnx"))
    assert made.lower[0] < 50
    assert made.metadata["seed"] > 2**64
    verdict = verify(tmp_path / "run", agent=str(memorizing / "knowing.onnx"))
    assert verdict.verified
    assert any("the agent cannot contain it" in check.detail for check in verdict.checks)


def test_every_part_of_agent_and_setup_changes_the_seed(memorizing):
    task = get_task("cartpole-1")
    knowing = as_policy(str(memorizing / "knowing.onnx"), task.spaces)
    honest = as_policy(str(memorizing / "honest.onnx"), task.spaces)
    plan = Plan(task=task, policy=knowing, noise=Noise.of(SIGMA), n_episodes=90)
    others = [
        Plan(task=task, policy=honest, noise=Noise.of(SIGMA), n_episodes=90),
        Plan(task=task, policy=knowing, noise=Noise.of(9.0), n_episodes=90),
        Plan(task=task, policy=knowing, noise=Noise.of(SIGMA), n_episodes=91),
        Plan(task=task, policy=knowing, noise=Noise.of(SIGMA), n_episodes=90, per_step=True),
    ]
    seeds = {own_seed(one) for one in (plan, *others)}
    assert len(seeds) == 5
    assert own_seed(plan) == own_seed(seeded_plan(plan, 7))  # but not the seed itself


# --- what is not verified -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["--blocks", "0"], ["--fresh", "0"]])
def test_nothing_is_verified_without_a_rerun_and_fresh_episodes(memorizing, tmp_path, capsys, options):
    agent = str(memorizing / "honest.onnx")
    certified(tmp_path / "run", agent, method="dkw")
    assert cli.main(["verify", str(tmp_path / "run"), "--agent", agent, "--quiet", *options]) == 4
    shown = capsys.readouterr().out
    assert shown.startswith("COULD NOT BE CHECKED: ")
    assert "The bounds follow from the returns, but the returns may be invented" in " ".join(shown.split())
    verdict = verify(tmp_path / "run", agent=agent, blocks=0)
    assert (verdict.verdict, verdict.verified, verdict.bounds_recomputed) == ("unchecked", False, True)


def test_a_number_of_fresh_episodes_that_makes_no_sense(tmp_path, capsys):
    assert cli.main(["verify", str(tmp_path), "--fresh", "-1"]) == 2
    assert "fresh must be from 0 to 10000000, got -1" in capsys.readouterr().err
