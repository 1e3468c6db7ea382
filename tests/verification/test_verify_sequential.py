"""Runs that stopped by themselves: limits and bets computed a second time, and the reason for stopping looked into."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from laws import LAWS, MORE_LAWS
from surefoot.agents import files as zoo
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.play.task import Blocks
from surefoot.play.tasks import TASKS, get_task
from surefoot.proof.bounds.samples import OrderedOutcomes
from surefoot.proof.query import Query, certify
from surefoot.proof.stopping import Monitor, StoppingRule
from surefoot.runs.certified import certified_run
from surefoot.verification import rerun
from surefoot.verification.plan_again import recompute_bets
from surefoot.verification.recompute.bands import Claim
from surefoot.verification.recompute.sequential import read_stop
from surefoot.verification.verify import verify
from toys import plan_for
from verdicts import problems

pytestmark = pytest.mark.slow

# A goal that takes more than two blocks to prove, so that there are bets and looks to tamper with: the better the bets,
# the higher it has to be.
BUDGETS, GOAL = (0.0, 0.1), StoppingRule(budget=0.1, require=124.0)


def plan(most=3_000):
    return plan_for(get_task("cartpole-1"), zoo.load("cartpole-1-s0.4"), 0.4, most, seed=5)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A run that stopped because something was proved."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    certificate = certified_run(plan(), Query(budgets=BUDGETS), folder, goal=GOAL, figure=False)
    assert certificate.method_selection["stopped"] == "proved"
    assert 150 < certificate.n_episodes < 1_000
    return folder


@pytest.fixture
def run(honest, tmp_path):
    """A copy to tamper with."""
    shutil.copytree(honest, tmp_path / "run")
    return tmp_path / "run"


def test_a_run_that_proved_its_goal_is_verified(honest, capsys):
    assert cli.main(["verify", str(honest), "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "ok bounds recomputed from the returns, method sequential" in " ".join(shown.split())
    assert "- that the run should not have stopped earlier" in shown


def test_fresh_episodes_are_compared_block_by_block(honest, monkeypatch):
    """All episodes up to a good moment are no fair sample; each block is, given those before."""
    compared = []

    def noted(recorded, fresh, radii, block_size):
        compared.append((recorded, block_size))
        return capital(recorded, fresh, radii, block_size)

    capital = rerun.log_capital_by_blocks
    monkeypatch.setattr(rerun, "log_capital_by_blocks", noted)
    monkeypatch.setattr(rerun, "log_capital", None)
    assert verify(honest).verified
    ((recorded, block_size),) = compared
    assert recorded.tolist() == Episodes.load(honest / "episodes.npz").returns.tolist()
    assert block_size == plan().block_size


def test_blocks_are_rerun_in_another_order(honest, monkeypatch):
    """An environment that remembers earlier episodes would meet the same past as before."""
    orders = []

    def noted(raw, plan, blocks, workers, progress=None):
        orders.append(list(blocks))
        return again(raw, plan, blocks, workers, progress)

    again = rerun.rerun_blocks
    monkeypatch.setattr(rerun, "rerun_blocks", noted)
    n_blocks = -(-len(Episodes.load(honest / "episodes.npz")) // plan().block_size)
    in_order = [
        seed for seed in range(40) if np.all(np.diff(np.random.default_rng(seed).choice(n_blocks, 2, False)) > 0)
    ]
    assert verify(honest, blocks=2, fresh=0, seed=in_order[0]).replayed == sorted(orders[0])
    assert orders[0] != sorted(orders[0])


def interrupted(done, of, note):
    if done >= 120:
        raise KeyboardInterrupt


# Why a run stops: its length, its goal, who interrupts it, and the reasons that its files refute.
OTHERS = {
    "close enough": (300, StoppingRule(budget=0.1, tolerance=100.0), None, {"proved", "refuted", "all played"}),
    "all played": (120, StoppingRule(budget=0.1, tolerance=1e-6), None, {"proved", "refuted"}),
    "stopped by hand": (3_000, GOAL, interrupted, {"proved", "close enough", "all played"}),
    "refuted": (4_000, StoppingRule(budget=0.1, require=199.0), None, {"proved", "close enough", "all played"}),
}


@pytest.mark.parametrize("reason", OTHERS)
def test_every_reason_to_stop_is_verified_and_none_that_its_files_refute(reason, tmp_path, monkeypatch):
    most, goal, progress, refuted = OTHERS[reason]
    if reason == "refuted":  # which is asked for when there are many returns: larger blocks are faster
        large = Blocks(n_envs=250, episodes_per_env=1)
        monkeypatch.setitem(TASKS, "cartpole-1", replace(TASKS["cartpole-1"], blocks=large))
    certificate = certified_run(
        plan(most), Query(budgets=BUDGETS), tmp_path, goal=goal, progress=progress, figure=False
    )
    assert certificate.method_selection["stopped"] == reason
    assert verify(tmp_path, blocks=2).verified, problems(verify(tmp_path, blocks=0))
    for other in refuted:
        retold(other)(tmp_path)
        assert "bounds" in problems(verify(tmp_path, blocks=0)), other


# --- careless: one file is changed ----------------------------------------------------------------------------------


def in_certificate(change):
    def tamper(folder):
        made = read_json(folder / "certificate.json")
        change(made)
        write_json(folder / "certificate.json", made)

    return tamper


def in_notes(name, **changes):
    return lambda folder: write_json(folder / name, {**read_json(folder / name), **changes})


def retold(reason):
    """Another reason to have stopped, in both files that tell it."""

    def tamper(folder):
        in_certificate(lambda made: made["method_selection"].update(stopped=reason))(folder)
        in_notes("run.json", stopped=reason)(folder)

    return tamper


def regoaled(**changes):
    """Another goal, in both files that tell it."""

    def tamper(folder):
        in_certificate(lambda made: made["method_selection"].update(changes))(folder)
        in_notes("run.json", goal={**read_json(folder / "run.json")["goal"], **changes})(folder)

    return tamper


def of_bets(side, which, **changes):
    return in_certificate(lambda made: made["bets"][side][which].update(changes))


def more_risk(made):
    for row in made["bets"]["upper"]:
        row["alpha"] *= 1.5


def bets_exchanged(made):
    rows = made["bets"]["lower"]
    rows[0], rows[1] = rows[1], rows[0]


def shorter(made):
    """The record of fewer returns than the last bets were made on."""
    made["bets"]["lower"][0]["count"] += 30


CARELESS = {
    "a lower limit": in_certificate(lambda made: made["lower"].__setitem__(1, made["lower"][1] + 1e-4)),
    "a lower limit, made worse": in_certificate(lambda made: made["lower"].__setitem__(1, made["lower"][1] - 1e-3)),
    "an upper limit": in_certificate(lambda made: made["upper"].__setitem__(0, made["upper"][0] - 1e-4)),
    "the confidence": in_certificate(lambda made: made.update(confidence=0.99, joint_confidence=0.98)),
    "the reason": retold("close enough"),
    "the reason, of all episodes": retold("all played"),
    "the reason, in one file": in_certificate(lambda made: made["method_selection"].update(stopped="stopped by hand")),
    "the reason, in the notes": in_notes("run.json", stopped="stopped by hand"),
    "no reason": in_certificate(lambda made: made.update(method_selection=None)),
    "an unknown reason": retold("tired"),
    "the required value": regoaled(require=130.0),
    "a smaller required value": regoaled(require=115.0),
    "nothing required": regoaled(require=None),
    "the goal, in one file": in_certificate(lambda made: made["method_selection"].update(require=122.5)),
    "the goal's budget": regoaled(budget=0.0),
    "the goal's budget, to another": regoaled(budget=0.2),
    "a stake": of_bets("lower", 0, stake=1e-3),
    "a score": of_bets("lower", -1, cutoff=0.3),
    "a block": in_certificate(shorter),
    "the place of a block": of_bets("lower", -1, first=1),
    "who bet": in_certificate(bets_exchanged),
    "the shares of the risk": in_certificate(more_risk),
    "a bet left out": in_certificate(lambda made: made["bets"]["lower"].pop()),
    "a bet twice": in_certificate(lambda made: made["bets"]["upper"].append(made["bets"]["upper"][0])),
    "all bets left out": in_certificate(lambda made: made.update(bets=None)),
    "bets that are none": in_certificate(lambda made: made["bets"].update(lower=[1])),
}


@pytest.mark.parametrize("tamper", CARELESS.values(), ids=CARELESS)
def test_careless_tampering_is_caught_without_playing(run, tamper):
    tamper(run)
    assert "bounds" in problems(verify(run, blocks=0))


def test_a_run_that_stopped_early_has_no_other_method(run):
    """Its episodes are fewer than planned: of these no bounds are computed."""
    in_certificate(lambda made: made.update(method="betting", method_selection=None))(run)
    verdict = verify(run, blocks=0)
    assert problems(verdict).keys() == {"setup.json and episode data", "certificate and episode data"}
    assert "3000 episodes were planned" in problems(verdict)["certificate and episode data"]
    assert not verdict.bounds_recomputed


# --- thorough: everything else is made to agree ---------------------------------------------------------------------


def forged(folder, change, *, reason="proved", goal=GOAL):
    """Change the record, then regenerate certificate and notes, as an able forger would."""
    there = Episodes.load(folder / "episodes.npz")
    arrays, setup = {"returns": there.returns.copy(), "lengths": there.lengths.copy()}, dict(there.setup)
    change(arrays, setup)
    limits = {key: setup.pop(key) for key in ("sigma", "floor", "ceiling")}
    made = Episodes(**limits, metadata=setup, **arrays)
    made.save(folder / "episodes.npz")
    monitor = Monitor(goal, confidence=0.95, sigma=made.sigma, floor=made.floor, ceiling=made.ceiling)
    write_json(folder / "certificate.json", monitor.certificate(made, budgets=BUDGETS, stopped=reason).to_json())
    write_json(folder / "setup.json", {"schema": 1, **made.setup, "sequential": True, "goal": goal.to_json()})
    in_notes("run.json", goal=goal.to_json(), stopped=reason, agent_sha256=made.setup["agent_sha256"])(folder)


def better_return(arrays, setup):
    arrays["returns"][int(np.argmin(arrays["returns"]))] = 200.0


def block_skipped(arrays, setup):
    """A bad block in the middle is left out."""
    for name in arrays:
        arrays[name] = np.concatenate([arrays[name][:60], arrays[name][90:]])


def blocks_sorted(arrays, setup):
    """The best blocks first, so that bets find it easier."""
    order = np.argsort([-part.mean() for part in np.split(arrays["returns"], arrays["returns"].size // 30)])
    for name in arrays:
        arrays[name] = np.concatenate([np.split(arrays[name], arrays[name].size // 30)[k] for k in order])


def half_a_block(arrays, setup):
    for name in arrays:
        arrays[name] = arrays[name][:-15].copy()


def setup_of(**changes):
    return lambda arrays, setup: setup.update(changes)


THOROUGH = {
    "a return": (better_return, "replay"),
    "a block left out": (block_skipped, "replay"),
    "the best blocks first": (blocks_sorted, "replay"),
    "half a block": (half_a_block, "certificate and episode data"),
    "sigma": (setup_of(sigma=0.8), "replay"),
    "the seed": (setup_of(seed=6), "replay"),
    "the size of a block": (setup_of(n_envs=15, block_size=15), "setup and weights"),
    "the agent": (setup_of(agent="cartpole-1-s0.2"), "setup and weights"),
    "the floor": (setup_of(floor=5.0), "setup and weights"),
}


@pytest.mark.parametrize(("change", "where"), THOROUGH.values(), ids=THOROUGH)
def test_thorough_tampering_is_caught_by_playing_again(run, change, where):
    forged(run, change)
    assert where in problems(verify(run, blocks=None, fresh=8))


def test_a_limit_for_a_settled_number_at_a_chosen_stopping_time_is_caught(run):
    """A run stopped at a favorable moment may not be certified as if its length had been fixed in advance."""
    episodes = Episodes.load(run / "episodes.npz")
    hidden = replace(episodes, metadata={**episodes.metadata, "n_planned": len(episodes)})  # else `certify` rejects it
    for method in ("auto", "betting", "band", "per-threshold"):
        made = certify(hidden, BUDGETS, method=method).to_json()
        write_json(run / "certificate.json", {**made, "record_sha256": episodes.sha256})
        assert "3000 episodes were planned" in problems(verify(run, blocks=0))["certificate and episode data"]


def test_a_run_stopped_by_hand_earlier_has_a_certificate_too(run):
    """It holds at every stopping time, so this is no forgery."""

    def earlier(arrays, setup):
        for name in arrays:
            arrays[name] = arrays[name][:-60].copy()

    forged(run, earlier, reason="stopped by hand")
    assert verify(run, blocks=2).verified
    forged(run, lambda arrays, setup: None, reason="all played")
    assert "bounds" in problems(verify(run, blocks=0))


# --- the second computation -----------------------------------------------------------------------------------------


def made_of(law, n, budgets=(0.0, 0.3, 1.1)):
    returns = law.draw(np.random.default_rng(n), (n,))
    episodes = Episodes.from_returns(returns, sigma=0.5, floor=law.floor, ceiling=law.ceiling)
    claim = Claim("sequential", 1 - 0.95, 0.5, law.floor, law.ceiling, budgets)
    return returns, claim, certify(episodes, budgets, method="sequential").to_json()


@pytest.mark.parametrize("law", [*LAWS, MORE_LAWS[6]], ids=lambda law: law.name)
def test_both_computations_agree_for_all_laws(law):
    for n in (94, 800):
        returns, claim, made = made_of(law, n)
        lower, upper, wrong = recompute_bets(returns, claim, made["bets"], None)
        assert wrong == []
        for side, name in ((lower, "lower"), (upper, "upper")):
            assert np.all(np.abs(side.best - made[name]) <= 2e-9 * (law.ceiling - law.floor))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_a_proof_is_found_again(law):
    returns = law.draw(np.random.default_rng(8), (2_000,))
    episodes = Episodes.from_returns(returns, sigma=0.5, floor=law.floor, ceiling=law.ceiling)
    for share in (0.5, 0.9, 1.1):
        goal = StoppingRule(budget=0.3, require=law.floor + share * (law.worst_mean(0.6) - law.floor))
        monitor = Monitor(goal, confidence=0.95, sigma=0.5, floor=law.floor, ceiling=law.ceiling)
        made = monitor.certificate(episodes, budgets=(0.0, 0.3), stopped="stopped by hand").to_json()
        claim = Claim("sequential", 1 - 0.95, 0.5, law.floor, law.ceiling, (0.0, 0.3))
        stop = read_stop(made["method_selection"], claim.budgets)
        lower, _, wrong = recompute_bets(returns, claim, made["bets"], stop)
        assert wrong == []
        assert np.all(np.abs(lower.best - made["lower"]) <= 2e-9 * (law.ceiling - law.floor))


@pytest.mark.parametrize("law", [LAWS[0], LAWS[3]], ids=lambda law: law.name)
def test_bets_planned_with_hindsight_are_caught(law, monkeypatch):
    """The planted error: a planner that plans each block from all returns."""
    with monkeypatch.context() as patch:
        patch.setattr(OrderedOutcomes, "before", lambda self, _: self)
        returns, claim, made = made_of(law, 900)
        assert recompute_bets(returns, claim, made["bets"], None)[2]  # the planner that peeks finds nothing to see
    assert recompute_bets(returns, claim, made["bets"], None)[2]
