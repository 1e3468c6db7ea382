"""How many blocks are rerun: every forgery that raises a bound by more than 1% is noticed with probability 0.99."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from surefoot.agents import files as zoo
from surefoot.episodes import Episodes
from surefoot.noise import Noise
from surefoot.play.environments import make_task
from surefoot.play.plan import Plan
from surefoot.play.tasks import get_task
from surefoot.play.workers import Processes
from surefoot.proof.query import Query
from surefoot.proof.step_budget import StepBudget
from surefoot.runs.certified import certified_run
from surefoot.verification import rerun
from surefoot.verification.play_again import RerunOptions
from surefoot.verification.recompute.run_files import COMPARED, Raw
from surefoot.verification.recompute.sampling import enough_blocks, least_forgery, miss_probability
from surefoot.verification.verdict import Verdict
from surefoot.verification.verify import verify
from toys import balancer, short_pole

QUERY = Query(budgets=(0.0, 0.2), method="band")


@pytest.mark.parametrize(("n_blocks", "n_forged"), [(1, 1), (4, 1), (20, 1), (200, 1), (200, 3), (2_000, 20), (50, 50)])
def test_enough_blocks_are_rerun_and_not_one_more(n_blocks, n_forged):
    """By counting all ways to draw a sample."""
    count = enough_blocks(n_blocks, n_forged)
    miss = [Fraction(math.comb(n_blocks - n_forged, k), math.comb(n_blocks, k)) for k in (count - 1, count)]
    assert miss[1] <= Fraction(1, 100) < miss[0]
    assert miss_probability(n_blocks, n_forged, count) == pytest.approx(float(miss[1]))
    assert miss_probability(n_blocks, n_forged, n_blocks) == 0
    assert miss_probability(n_blocks, n_forged, 0) == 1


def test_one_forged_block_of_2000_is_noticed_where_rare_failures_decide():
    """A million nearly perfect episodes at B = 5 sigma: one block of failures decides the bound."""
    returns = np.full(1_000_000, 200.0)
    returns[:7] = 40.0
    assert least_forgery(returns, 500, [0.0, 1.0, 5.0], 0.0) == 1
    assert enough_blocks(2_000, 1) == 1_980
    assert miss_probability(2_000, 1, 410) == pytest.approx(0.795)


def test_means_without_attack_hang_on_one_episode_in_a_hundred():
    """At budget 0 a forgery of one block of a thousand moves the mean by at most 0.1%; more than ten are needed."""
    returns = np.full(100_000, 200.0)
    assert least_forgery(returns, 100, [0.0], 0.0) == 11


def test_the_least_forgery_is_the_least():
    """Against the worst-case mean computed by its definition, for every number of blocks."""
    rng = np.random.default_rng(0)
    returns = np.round(rng.beta(8, 2, 2_000) * 200)
    radii = [0.0, 1.0, 2.0]

    def worst(values, radius):
        points = np.unique(values)
        survival = np.array([(values >= point).mean() for point in points])
        return float(np.sum(np.diff(points, prepend=0.0) * ndtr(ndtri(survival) - radius)))

    changes = []
    for n_forged in range(1, 21):
        true = np.sort(returns)[: returns.size - n_forged * 20]
        true = np.concatenate([np.zeros(n_forged * 20), true])
        changes.append(any(worst(true, r) < 0.99 * worst(returns, r) for r in radii))
    assert least_forgery(returns, 20, radii, 0.0) == 1 + changes.index(True)
    assert least_forgery(returns + 50, 20, radii, 50.0) == 1 + changes.index(True)


# --- whole verifications ----------------------------------------------------------------------------------------------


def certified(folder, task, n_episodes):
    plan = Plan(task=task, policy=zoo.load("cartpole-1-s0.4"), noise=Noise.of(0.4), n_episodes=n_episodes)
    return certified_run(plan, QUERY, folder, figure=False)


def invent(folder, returns):
    """Write other returns, and make everything else agree."""
    record = Episodes.load(folder / "episodes.npz")
    forged = replace(record, returns=returns(record.returns))
    forged.save(folder / "episodes.npz")
    QUERY.answer(forged).save(folder)


def failed(verdict):
    return {check.name: check.detail for check in verdict.checks if check.result == "failed"}


@pytest.mark.parametrize("ceiling", [None, 0.5])
def test_without_a_ceiling_one_forged_block_decides(tmp_path, monkeypatch, ceiling):
    """Where returns are bounded three blocks would be needed here; where they are not, one return is enough."""
    monkeypatch.setattr(rerun, "least_forgery", lambda *_: 3)
    penalty = {"sutton_barto_reward": True}  # rules that are not in the table
    certified(tmp_path, make_task("CartPole-v1", env_kwargs=penalty, max_steps=10, floor=-1, ceiling=ceiling), 300)
    honest = verify(tmp_path)
    assert honest.verified
    assert honest.forged_blocks == (1 if ceiling is None else 3)
    if ceiling is None:
        invent(tmp_path, lambda returns: np.append(returns[:-1], 1e12))
        assert failed(verify(tmp_path)).keys() == {"replay"}


def test_one_forged_block_decides_where_a_quantile_is(tmp_path, monkeypatch):
    """Three blocks are needed to raise a mean here; of a quantile or a CVaR nobody has measured it."""
    monkeypatch.setattr(rerun, "least_forgery", lambda *_: 3)
    certified(tmp_path, get_task("cartpole-1"), 120)
    assert verify(tmp_path).forged_blocks == 3
    asked = replace(QUERY, cvars=(0.1,))
    asked.answer(Episodes.load(tmp_path / "episodes.npz")).save(tmp_path)
    verdict = verify(tmp_path)
    assert verdict.verified
    assert verdict.forged_blocks == 1


def test_one_forged_block_decides_when_rewards_come(tmp_path, monkeypatch):
    """Earlier rewards raise a bound per step, and the returns by which blocks are counted stay as they are."""
    monkeypatch.setattr(rerun, "least_forgery", lambda *_: 3)
    plan = Plan(
        task=get_task("cartpole-1"),
        policy=zoo.load("cartpole-1-s0.4"),
        noise=Noise.of(0.4),
        n_episodes=90,
        per_step=True,
    )
    certified_run(plan, Query(budgets=(0.0, 0.01), threat=StepBudget()), tmp_path, figure=False)
    verdict = verify(tmp_path)
    assert verdict.verified
    assert verdict.forged_blocks == 1


ONE_EACH = {"n_envs": 10, "n_episodes": 60}


@pytest.mark.parametrize(
    ("options", "name", "asked", "n_forged"),
    [
        ({"episodes_per_env": 1}, "certificate.json", {}, 3),
        ({"draws_per_seed": 2}, "certificate.json", {}, 1),
        ({"luck": "0"}, "certificate.json", {}, 1),
        ({"episodes_per_env": 1, "per_step": True}, "per-step.json", {}, 1),
        ({"episodes_per_env": 1}, COMPARED, {}, 1),
        ({"episodes_per_env": 1}, "certificate.json", {"probabilities": []}, 1),
        ({"episodes_per_env": 1}, "certificate.json", {"quantiles": []}, 1),
        ({"episodes_per_env": 1}, "certificate.json", {"cvars": []}, 1),
    ],
)
def test_one_forged_block_may_decide_wherever_nobody_has_measured_more(options, name, asked, n_forged, monkeypatch):
    """Draws that repeat, or luck that tells more, raise bounds and no return."""
    monkeypatch.setattr(rerun, "least_forgery", lambda *_: 3)
    monkeypatch.setattr(rerun, "rerun_blocks", lambda *_: ([], []))
    plan = Plan(task=short_pole(10), policy=balancer(), noise=Noise.of(0.2), **ONE_EACH, **options)
    second = Raw(name, asked, {"floor": 0.0}, {"returns": np.ones(60)}, None, None)
    verdict = Verdict(run="")
    first = second if name == COMPARED else replace(second, name="certificate.json", certificate={})
    rerun._rerun_sample([first, second], plan, [0.0], verdict, RerunOptions(blocks=1))
    assert verdict.forged_blocks == n_forged


@pytest.mark.parametrize(
    ("wrong", "ambiguous", "result"),
    [([], [], "passed"), ([], ["other bits"], "impossible"), (["w"], [], "failed"), (["w"], ["other bits"], "failed")],
)
def test_bits_that_may_differ_honestly_excuse_no_others(wrong, ambiguous, result, monkeypatch):
    """Whoever names another processor for one block would else only be unchecked, whatever is forged in the others."""
    monkeypatch.setattr(rerun, "rerun_blocks", lambda *_: (list(wrong), list(ambiguous)))
    plan = Plan(task=short_pole(10), policy=balancer(), noise=Noise.of(0.2), **ONE_EACH, episodes_per_env=1)
    raw = Raw("certificate.json", {}, {"floor": 0.0}, {"returns": np.ones(60)}, None, None)
    verdict = Verdict(run="")
    rerun._rerun_sample([raw], plan, [0.0], verdict, RerunOptions(blocks=None))
    (check,) = verdict.checks
    assert (check.name, check.result) == ("replay", result)
    assert all(line in check.detail for line in wrong + ambiguous)


class LyingCluster:
    """Machines that answer with the record itself; they do not run anything."""

    def __init__(self, folder):
        self.record = Episodes.load(folder / "episodes.npz")

    def map_unordered(self, work, plan, indices, *, gpu=0.0):
        for index in indices:
            begin = index * plan.block_size
            yield index, self.record[begin : begin + plan.block_size]

    def describe(self):
        return "a cluster"

    def n_parallel(self, gpu):
        return 8


def test_other_machines_that_lie_are_noticed(tmp_path):
    certified(tmp_path, get_task("cartpole-1"), 120)
    honest = verify(tmp_path, blocks=None, workers=LyingCluster(tmp_path))
    assert honest.verified
    [detail] = [check.detail for check in honest.checks if check.name == "replay"]
    assert "by other machines, which are trusted, but for 1 random blocks rerun on this one" in detail
    assert verify(tmp_path, blocks=None, workers=Processes(1)).verified
    record = Episodes.load(tmp_path / "episodes.npz")
    replace(record, lengths=np.full(120, 200)).save(tmp_path / "episodes.npz")
    invent(tmp_path, lambda returns: np.full(returns.size, 200.0) - (np.arange(returns.size) % 7 == 0))
    assert failed(verify(tmp_path, blocks=None, workers=LyingCluster(tmp_path))).keys() == {"replay"}


def test_which_blocks_are_rerun_here_cannot_be_foreseen_by_other_machines(tmp_path, monkeypatch):
    """Planted: always the first ones, which a cluster would then play honestly."""
    certified(tmp_path, get_task("cartpole-1"), 120)
    asked = []

    def noted(raw, plan, blocks, workers, progress=None):
        asked.append(tuple(blocks))
        return [], []

    monkeypatch.setattr(rerun, "rerun_blocks", noted)
    for _ in range(20):
        verify(tmp_path, blocks=None, fresh=0, workers=LyingCluster(tmp_path))
    # Of four blocks: one of them, and not always the same (4^-19).
    assert {len(blocks) for blocks in asked[1::2]} == {1}
    assert len(set(asked[1::2])) > 1
