"""Runs that stop by themselves: at the same episode for everybody, valid whenever, and with an exit code to rely on."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from laws import LAWS, too_many
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.proof import stopping
from surefoot.proof.bounds.bands import tail_tight
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.episode_budget import METHODS
from surefoot.proof.forecast import best_achievable, forecast
from surefoot.proof.planning.proposals import plug_in_means
from surefoot.proof.planning.strategies import CLAIM_SHARE
from surefoot.proof.query import Query, certify
from surefoot.proof.stopping import Monitor, StoppingRule, worst_mean_upper
from surefoot.runs.certified import certified_run
from surefoot.runs.rollout import rollout
from toys import constant, geometric, pay_steps, toy_task

pytestmark = pytest.mark.usefixtures("own_folder")


def plan(most=20_000):
    """Episodes of 1 to 10 steps that pay their length; the worst-case mean at budget 0.5 is about 3.44."""
    task = toy_task(geometric(0.1, 10), pay_steps, floor=0.0, ceiling=10.0, n_envs=100, episodes_per_env=1)
    return Plan(task=task, policy=constant(), noise=Noise.of(0.5), n_episodes=most)


QUESTIONS = Query(budgets=(0.0, 0.5))


def watched(folder, goal, most=20_000, **options):
    certificate = certified_run(plan(most), QUESTIONS, Path(folder), goal=goal, **options, figure=False)
    return certificate, (certificate.method_selection or {}).get("stopped")


PROVED = StoppingRule(budget=0.5, require=3.2)


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """One run that stopped with a proof, for all tests that read it: its folder, certificate and reason."""
    folder = tmp_path_factory.mktemp("proved") / "run"
    return folder, *watched(folder, PROVED)


@pytest.fixture
def copied(own_folder, proved):
    """Its folder, copied into the working directory."""
    return Path(shutil.copytree(proved[0], "run"))


def test_a_proof_stops_the_run_and_can_be_read_off_the_folder(proved, copied):
    _, certificate, why = proved
    assert why == "proved"
    assert 100 < certificate.n_episodes < 10_000
    assert certificate.at(0.5).lower >= 3.2
    assert certificate.method == "sequential"
    assert certificate.method_selection == {"budget": 0.5, "tolerance": None, "require": 3.2, "stopped": "proved"}
    assert len(Episodes.load("run/episodes.npz")) == certificate.n_episodes
    assert json.loads(Path("run/run.json").read_text())["stopped"] == "proved"
    assert certificate.lower[0] < certificate.estimate < certificate.upper[0]


def test_workers_and_interruptions_do_not_move_the_stop(proved):
    _, alone, _ = proved
    crowd, _ = watched("crowd", PROVED, workers=2)
    assert crowd.to_json() == alone.to_json()
    first, why = watched("pieces", PROVED, most=20_000, progress=interrupt_after(300))
    assert (first.n_episodes, why) == (300, "stopped by hand")
    assert first.lower[1] <= alone.lower[1]
    again, _ = watched("pieces", PROVED)
    assert again.to_json() == alone.to_json()


def interrupt_after(episodes):
    def progress(done, of, note):
        if done >= episodes:
            raise KeyboardInterrupt

    return progress


def test_another_goal_does_not_bet_on_returns_already_seen(proved, copied):
    for other in (
        StoppingRule(budget=0.5, require=3.3),
        StoppingRule(budget=0.5, tolerance=0.3),
        StoppingRule(budget=0.25, require=3.2),
    ):
        with pytest.raises(InputError, match="holds a run with another setup"):
            watched("run", other)
    again, _ = watched("run", PROVED)
    assert again.to_json() == proved[1].to_json()


def test_a_record_that_stopped_is_for_the_sequential_method_only(proved):
    episodes = Episodes.load(proved[0] / "episodes.npz")
    for method in (None, *METHODS):
        # That of several draws per seed is refused because there is one.
        if method in ("sequential", "nested"):
            continue
        with pytest.raises(InputError, match=f"has {len(episodes)} of 20000 planned episodes.*method='sequential'"):
            certify(episodes, [0.5], method=method)
    # The first of them: how a record was stopped, not how long it is, decides.
    assert certify(episodes[:200], [0.5], method="sequential").lower[0] > 2.0


@pytest.mark.usefixtures("copied")
def test_all_ways_to_certify_a_stopped_record_are_refused(capsys):
    for options in ((), ("--method", "band"), ("--shared-episodes", "3")):
        assert cli.main(["certify", "--returns", "run/episodes.npz", "--budgets", "0.5", *options]) == 2
        assert "of 20000 planned episodes" in capsys.readouterr().err
    assert cli.main(["certify", "--returns", "run/episodes.npz", "--budgets", "0.5", "--method", "sequential"]) == 0


def stopped_by_looking(rng, wins, n):
    """Return wins and losses up to the first look, every 100 episodes, at which `binary` proves more than the truth."""
    returns = (rng.random(n) < wins).astype(float)
    for size in range(100, n + 1, 100):
        seen = Episodes.from_returns(returns[:size], sigma=1, floor=0, ceiling=1)
        if certify(seen, [0.0], method="binary").lower[0] > wins:
            return returns[:size]
    return returns


def test_planted_a_record_that_does_not_say_how_many_were_planned():
    """200 runs that stop by looking: without the plan `binary` misses too often at 5%; with it none is certified."""
    rng, missed, refused = np.random.default_rng(7), 0, 0
    for _ in range(200):
        returns = stopped_by_looking(rng, 0.9, 1_000)
        unplanned = Episodes.from_returns(returns, sigma=1, floor=0, ceiling=1)
        missed += bool(certify(unplanned, [0.0], method="binary").lower[0] > 0.9)
        if returns.size < 1_000:
            with pytest.raises(InputError, match="of 1000 planned episodes"):
                certify(
                    Episodes.from_returns(returns, sigma=1, floor=0, ceiling=1, n_planned=1_000), [0.0], method="binary"
                )
            refused += 1
    assert too_many(missed, 200, 0.05)
    assert 0 < refused <= missed  # the last look is at the planned end, where `binary` may be asked


def test_what_cannot_be_proved_is_refuted():
    certificate, why = watched("run", StoppingRule(budget=0.5, require=5.0), most=5_000)
    assert why == "refuted"
    assert certificate.n_episodes < 5_000
    assert 0 < certificate.at(0.5).lower < 3.45


def test_close_enough_and_all_played():
    near, why = watched("near", StoppingRule(budget=0.5, tolerance=0.5))
    assert why == "close enough"
    estimate = plug_in_means(Sample.of(Episodes.load("near/episodes.npz").returns), np.array([1.0]), 0.0)[0]
    assert estimate - 0.5 - 1e-6 <= near.at(0.5).lower < 3.45
    short, why = watched("short", StoppingRule(budget=0.5, tolerance=1e-6), most=300)
    assert (short.n_episodes, why) == (300, "all played")


def test_refuting_is_valid():
    law = LAWS[0]
    x = law.draw(np.random.default_rng(1), (2000,))
    for radius in (0.0, 1.0, 3.0):
        upper = worst_mean_upper(tail_tight(x, 0.05), law.floor, law.ceiling, radius)
        assert law.worst_mean(radius) < upper < law.worst_mean(radius) + 1


def test_what_is_required_is_bet_on_at_the_budget_in_sigmas():
    """Elsewhere it would be proved late, and nothing else would tell."""
    for sigma in (0.25, 1.0):
        monitor = Monitor(StoppingRule(budget=0.5, require=0.7), confidence=0.95, sigma=sigma, floor=0.0, ceiling=1.0)
        assert monitor.bets.strategy.claim == (0.5 / sigma, 0.7)
        assert monitor.bets.strategy.scaled_budgets.tolist() == [0.5 / sigma]


def test_upper_bounds_of_a_run_that_stopped_hold_at_any_time_too(monkeypatch):
    """They are computed once, at the end: but when that was depended on the returns."""
    asked = []
    own = stopping.worst_means

    def spy(*given, **more):
        asked.append((*given, more))
        return own(*given, **more)

    monkeypatch.setattr(stopping, "worst_means", spy)
    returns = np.array([0.0, 1.0, 1.0, 1.0] * 20)
    monitor = Monitor(StoppingRule(budget=0.5, require=0.1), confidence=0.9, sigma=0.25, floor=0.0, ceiling=1.0)
    episodes = Episodes.from_returns(returns, sigma=0.25, floor=0, ceiling=1)
    made = monitor.certificate(episodes, budgets=[0.0, 0.5], stopped="proved")
    ((mirrored, scaled, alpha, floor, ceiling, more),) = asked
    assert mirrored.tolist() == (-returns).tolist()
    assert (scaled, alpha, floor, ceiling) == ([2.0], pytest.approx(0.1), -1.0, 0.0)
    assert more == {"anytime": True}
    assert made.upper[1] == pytest.approx(-float(own(-returns, [2.0], 0.1, -1.0, 0.0, anytime=True).at(2.0)), abs=1e-6)


def test_a_monitor_looks_at_settled_places_only():
    """Between two looks nothing is computed, whatever the returns."""
    rule = StoppingRule(budget=0.5, require=0.5)
    monitor = Monitor(rule, confidence=0.95, sigma=0.5, floor=0.0, ceiling=1.0)
    assert monitor.reason_to_stop(np.ones(1000)) == "proved"
    assert monitor.reason_to_stop(np.ones(1001)) is None


def test_all_refutations_together_spend_alpha_once(monkeypatch):
    """Five looks, none of which refutes anything."""
    alphas = []
    monkeypatch.setattr(stopping, "tail_tight", lambda returns, alpha: alphas.append(alpha))
    monkeypatch.setattr(stopping, "worst_mean_upper", lambda *_: math.inf)
    rule = StoppingRule(budget=0.5, require=9.0)
    monitor = Monitor(rule, confidence=0.95, sigma=0.5, floor=0.0, ceiling=10.0)
    returns = LAWS[0].draw(np.random.default_rng(1), (16_000,))
    # In between, and before there are twice as many episodes, nothing is asked: alpha would be gone too early.
    sizes = (1_000, 1_500, 2_000, 3_000, 4_000, 7_000, 8_000, 9_000, 16_000)
    assert [monitor.reason_to_stop(returns[:size]) for size in sizes] == [None] * len(sizes)
    assert len(alphas) == 5
    assert 0 < sum(alphas) <= 1 - 0.95


def run(capsys, *arguments):
    code = cli.main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    assert code in (0, 1), shown.err
    return code, shown.out


QUICK = ("certify", "cartpole-5", "--quiet", "--workers", 1, "--json")


def test_required_and_proved_or_not(capsys):
    code, shown = run(capsys, *QUICK, "--episodes", 300, "--require", "100@0.15")
    made = json.loads(shown)
    assert (code, made["require"]) == (0, {"mean": 100.0, "budget": 0.15, "proved": True})
    assert 0.15 in made["budgets"]
    code, shown = run(capsys, *QUICK, "--episodes", 300, "--require", "199@0.4")
    assert (code, json.loads(shown)["require"]["proved"]) == (1, False)
    code, shown = run(capsys, *QUICK[:-1], "--episodes", 300, "--require", "199@0.4")
    assert code == 1
    assert "NOT proved: a mean of 199 at budget 0.4." in shown
    said = "under any observation attack with budget 0.4 (total l2 norm of the perturbations of one episode)."
    assert said in " ".join(shown.split())
    assert said in Path("runs/cartpole-5-s0.2-sigma0.2-n300/report.html").read_text()


def test_returns_may_be_required_too(capsys):
    np.save("returns.npy", np.full(1000, 10.0))
    given = ("certify", "--returns", "returns.npy", "--sigma", 0.5, "--floor", 0, "--ceiling", 10, "--require")
    assert run(capsys, *given, "9@0.1")[0] == 0
    assert run(capsys, *given, "9.99@1.0")[0] == 1


def test_the_command_stops_by_itself(capsys):
    code, shown = run(capsys, *QUICK, "--require", "120@0.2", "--max-episodes", 3000)
    made = json.loads(shown)
    assert code == 0
    assert made["method_selection"]["stopped"] == "proved"
    assert made["n_episodes"] < 3000
    assert Path("runs/cartpole-5-s0.2-sigma0.2-n3000-sequential/certificate.json").exists()


BAD = {
    "--require 100": "must look like 150@0.4",
    "--require nan@0.4": "a finite mean and a budget >= 0",
    "--tol -1": "tolerance must be a number > 0",
}


@pytest.mark.parametrize("options", BAD)
def test_wrong_calls_are_one_line(capsys, options):
    assert cli.main(["certify", "cartpole-5", "--quiet", *options.split()]) == 2
    assert BAD[options] in capsys.readouterr().err


def test_a_plan_knows_the_ceiling_of_n_episodes(capsys):
    assert best_achievable(10_000, 0.0, 0.05, 0.0, 200.0) == pytest.approx(200 * 0.05 ** (1 / 10_000))
    assert best_achievable(1000, 2.0, 0.05, 0.0, 200.0) < best_achievable(10_000, 2.0, 0.05, 0.0, 200.0) < 200
    assert best_achievable(1000, 2.0, 0.05, 0.0, None) == math.inf
    code, shown = run(capsys, "plan", "cartpole-5", "--require", "120@0.2", "--pilot-episodes", 500, "--json",
                      "--quiet", "--sigmas", "0.2,0.4", "--workers", 1)  # fmt: skip
    made = json.loads(shown)
    assert code == 0
    assert made["best"]["sigma"] == 0.2
    first, second = made["forecasts"]
    assert (first["sigma"], second["sigma"]) == (0.2, 0.4)
    assert 0 < first["least"] <= first["sequential"] <= first["fixed"] * 5 < 100_000
    assert made["most"] > 190


def test_a_plan_says_never():
    law = LAWS[0]
    record = Episodes.from_returns(law.draw(np.random.default_rng(1), (1000,)), sigma=1.0, floor=0, ceiling=10)
    predicted = forecast(record, budget=1.0, alpha=0.05, n_episodes=10_000, require=9.0)
    assert (predicted.fixed, predicted.sequential) == (None, None)
    assert predicted.least is not None
    soon = forecast(record, budget=1.0, alpha=0.05, n_episodes=10_000, require=4.5)
    assert soon.least < soon.fixed < 2000
    assert law.worst_mean(1.0) - 0.5 < soon.limit < soon.worst
    # Of as many episodes as are asked for, whatever the pilot has.
    few = forecast(record, budget=1.0, alpha=0.05, n_episodes=100, require=4.5)
    assert few.limit < forecast(record, budget=1.0, alpha=0.05, n_episodes=1_000).limit < soon.limit
    assert (few.episodes, few.pilot, few.fixed) == (100, 1000, soon.fixed)


@pytest.mark.parametrize("require", [0.99, 0.995])
def test_a_run_of_a_perfect_agent_is_planned_to_end_soon_after_the_best_bet_would(require):
    """Whoever knew that no episode fails would need log(1 / share of alpha) / log(1 / require) of them."""
    pilot = Episodes.from_returns(np.ones(100), sigma=1.0, floor=0, ceiling=1)
    predicted = forecast(pilot, budget=0.0, alpha=0.05, n_episodes=1_000, require=require)
    soonest = np.log(1 / (0.05 * CLAIM_SHARE)) / np.log(1 / require)
    assert soonest < predicted.sequential < 2 * soonest
    assert predicted.least <= predicted.fixed < predicted.sequential


def test_tuning_certifies_on_other_episodes(capsys):
    """As many of both: on one stream of random numbers they would be the same episodes, with the same mean."""
    shared = ("tune", "cartpole-5", "--budget", 0.2, "--sigmas", "0.2,0.4", "--pilot-episodes", 300, "--episodes", 300,
              "--workers", 1, "--json", "--quiet")  # fmt: skip
    made = json.loads(run(capsys, *shared)[1])
    (chosen,) = made["certificates"]
    assert (chosen["sigma"], chosen["confidence"], chosen["n_episodes"]) == (0.2, 0.95, 300)
    assert "selected on 300 other episodes" in made["how"]
    assert [one["sigma"] for one in made["forecasts"]] == [0.2, 0.4]
    assert made["forecasts"][0]["estimate"] != chosen["estimate"]
    own = rollout("cartpole-5", "cartpole-5-s0.2", sigma=0.2, n_episodes=300)
    assert chosen["estimate"] == own.returns.mean()  # those that surefoot certify would run
    both = json.loads(run(capsys, *shared, "--all-sigmas")[1])
    assert [one["confidence"] for one in both["certificates"]] == [0.975, 0.975]
    assert both["forecasts"] == []


def test_tuning_prints_and_refuses(capsys):
    code, shown = run(capsys, "tune", "cartpole-5", "--budget", 0.2, "--sigmas", "0.2", "--pilot-episodes", 100,
                      "--episodes", 100,                      "--workers", 1, "--quiet")  # fmt: skip
    assert code == 0
    assert "at no cost in confidence" in shown
    assert cli.main(["tune", "cartpole-5", "--budget", "0.2", "--sigmas", "0"]) == 2
    assert "sigmas must be > 0, got [0.0]" in capsys.readouterr().err
    assert cli.main(["plan", "cartpole-5", "--require", "1@0.2", "--confidence", "2"]) == 2
    assert "confidence must be strictly between 0 and 1" in capsys.readouterr().err
