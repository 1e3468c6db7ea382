"""Certificates checked by other code than made them: honest runs pass; ``test_forgeries`` has what must not.

A *careless* forger changes one file. A *thorough* one then regenerates hash, setup and certificate, so that only
rerunning the episodes shows it.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import surefoot
from laws import LAWS
from surefoot.agents import files as zoo
from surefoot.agents.networks import weights_hash
from surefoot.attacks.composed import Structured
from surefoot.cli import main as cli
from surefoot.compute import processor_kind
from surefoot.episodes import Episodes
from surefoot.files import read_json, read_npz, write_json, write_npz
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.proof.bounds.bands import Band
from surefoot.proof.bounds.binomial import lower_limit
from surefoot.proof.bounds.from_band import mean_lower, mean_upper
from surefoot.proof.bounds.local_levels import local_level as our_level
from surefoot.proof.bounds.local_levels import violation
from surefoot.proof.planning.bettors import PLANNER_VERSION
from surefoot.proof.query import Query, certify
from surefoot.runs.certified import certified_run
from surefoot.verification.plan_again import check_choice
from surefoot.verification.recompute import bands as recomputed
from surefoot.verification.recompute.auto import recompute_auto
from surefoot.verification.recompute.bands import (
    CannotRecomputeError,
    Claim,
    checked_ranks,
    least_level,
    local_level,
    proportion_at_least,
    recompute,
    risk_of,
)
from surefoot.verification.recompute.distribution import recompute_distribution
from surefoot.verification.verify import verify
from toys import plan_for

AGENT = "cartpole-1-s0.4"


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A real run of four blocks, as the command leaves it."""
    folder = tmp_path_factory.mktemp("honest") / "run"
    plan = Plan(task=get_task("cartpole-1"), policy=zoo.load(AGENT), noise=Noise.of(0.4), n_episodes=100, seed=5)
    certified_run(plan, Query(budgets=(0.0, 0.2, 0.4), method="paper"), folder, figure=False)
    return folder


@pytest.fixture
def run(honest, tmp_path):
    """A copy to tamper with."""
    shutil.copytree(honest, tmp_path / "run")
    return tmp_path / "run"


def failures(verdict):
    return {check.name: check.detail for check in verdict.checks if check.result in ("failed", "impossible")}


# --- honest runs ----------------------------------------------------------------------------------------------------


def test_an_honest_run_is_verified_block_by_block(honest):
    verdict = verify(honest, blocks=None)
    assert verdict.verified
    assert failures(verdict) == {}
    assert verdict.replayed == [0, 1, 2, 3]
    assert [check.name for check in verdict.checks] == [
        "floor and ceiling",
        "setup.json and episode data",
        "run.json and episode data",
        "returns",
        "independence",
        "arrays",
        "certificate and episode data",
        "hash of the episode data",
        "bounds",
        "estimate",
        "sentence",
        "setup and weights",
        "seed",
        "replay",
        "fresh episodes",
    ]


def test_a_block_of_another_kind_of_processor_is_named_where_it_differs(run, monkeypatch):
    here = processor_kind("cpu")
    record = Episodes.load(run / "episodes.npz")
    assert record.processors == ((here, 4),)
    returns = record.returns.copy()
    returns[[35, 95]] -= 1
    replace(record, returns=returns, processors=((here, 1), ("Another CPU", 2), (here, 1))).save(run / "episodes.npz")
    replayed = failures(verify(run, blocks=None, fresh=8))["replay"]
    assert f"rerun {record.returns[35]}); it was run on Another CPU and is now rerun on {here}" in replayed
    assert replayed.count("Another CPU") == 1  # block 3, of this kind, differs for another reason


def test_other_bits_of_another_kind_of_processor_are_no_forgery_and_no_pass(run):
    """Honest runs differ so; and who invents returns must not pass by naming another processor."""
    here = processor_kind("cpu")
    record = Episodes.load(run / "episodes.npz")
    returns = record.returns.copy()
    returns[35] -= 1
    forged = replace(record, returns=returns, processors=((here, 1), ("Another CPU", 3)))
    forged.save(run / "episodes.npz")
    Query(budgets=(0.0, 0.2, 0.4), method="paper").answer(forged).save(run)
    verdict = verify(run, blocks=None, fresh=8)
    assert verdict.verdict == "unchecked"
    (result,) = [check.result for check in verdict.checks if check.name == "replay"]
    assert result == "impossible"
    replayed = failures(verdict)["replay"]
    assert replayed.startswith("such bits may differ honestly; to check them, rerun where the episodes were run")
    assert f"it was run on Another CPU and is now rerun on {here}" in replayed


def test_other_bits_of_other_versions_are_no_forgery_and_no_pass(run):
    record = Episodes.load(run / "episodes.npz")
    returns = record.returns.copy()
    returns[35] -= 1
    forged = replace(record, returns=returns)
    forged.save(run / "episodes.npz")
    Query(budgets=(0.0, 0.2, 0.4), method="paper").answer(forged).save(run)
    assert verify(run, blocks=None, fresh=8).verdict == "failed"
    content = json.loads((run / "run.json").read_text())
    content["versions"]["numpy"] = "1.0"
    (run / "run.json").write_text(json.dumps(content))
    verdict = verify(run, blocks=None, fresh=8)
    assert verdict.verdict == "unchecked"
    assert "it was run with numpy 1.0 (here " in failures(verdict)["replay"]


@pytest.mark.parametrize("nonsense", [5, [["A"]], [["A", "B"]], [["A", -1]], {"A": 1}])
def test_nonsense_about_processors_is_not_verified(run, nonsense):
    header, arrays = read_npz(run / "episodes.npz", "record")
    write_npz(run / "episodes.npz", {**header, "processors": nonsense}, arrays)
    assert "which processors" in failures(verify(run, blocks=0))["episode data"]


def test_a_sample_says_what_it_would_have_missed(honest):
    verdict = verify(honest, blocks=1, seed=3)
    assert verdict.verified
    assert len(verdict.replayed) == 1
    assert verdict.not_checked[0] == "the 3 blocks, 90 episodes, that were not rerun"
    assert "If one block (30 episodes) had been forged" in verdict.trust
    assert "would have missed it with probability 0.75" in verdict.trust
    assert verdict.to_json()["miss_one_forged_block"] == 0.75
    assert verify(honest, blocks=1, seed=3, fresh=0).replayed == verdict.replayed
    chosen = {verify(honest, blocks=1, fresh=0).seed for _ in range(2)}
    assert len(chosen) == 2  # 63 random bits


def test_a_forgery_of_two_blocks_is_missed_less_often_than_one_of_one(honest, monkeypatch):
    monkeypatch.setattr("surefoot.verification.rerun.least_forgery", lambda *_: 2)
    verdict = verify(honest, blocks=1, fresh=64)
    assert (verdict.miss_one, verdict.miss_least, verdict.forged_blocks) == (0.75, 0.5, 2)
    assert "needs at least 2 of the 4 blocks, and would have been missed with probability 0.5 " in verdict.trust
    assert verdict.to_json()["miss_least_forgery"] == 0.5


def test_every_block_may_be_among_those_played_again(honest, monkeypatch):
    """Otherwise a forger of the others is never caught, whatever probability the verdict states."""
    monkeypatch.setattr("surefoot.verification.rerun.rerun_blocks", lambda *_: ([], []))
    for count, seeds, choices in ((1, 20, 4), (2, 40, 6)):
        assert (
            len({tuple(verify(honest, blocks=count, seed=seed, fresh=0).replayed) for seed in range(seeds)}) == choices
        )


def test_the_command_says_it_in_words_and_in_json(honest, capsys):
    assert cli.main(["verify", str(honest), "--blocks", "1", "--seed", "1", "--workers", "1"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Verified: ")
    words = " ".join(shown.out.split())
    assert "checks passed; 1 of 4 blocks rerun" in words
    assert "1 of 4 blocks, 30 of 100 episodes, every return and length bit for bit" in words
    assert max(map(len, shown.out.splitlines()[1:])) <= 78
    assert "Not checked:\n- the 3 blocks, 70 episodes, that were not rerun" in shown.out
    assert cli.main(["verify", str(honest), "--blocks", "1", "--seed", "1", "--workers", "1", "--verbose"]) == 0
    whole = " ".join(capsys.readouterr().out.split())
    assert cli.main(["verify", str(honest), "--blocks", "all", "--json", "--workers", "2"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert all(f"- {line}" in whole for line in made["not_checked"])
    assert (made["schema"], made["verified"], made["blocks"]) == (1, True, 4)
    assert {check["result"] for check in made["checks"]} == {"passed"}
    assert len(made["not_checked"]) == 4


# --- careless tampering: one file is changed ------------------------------------------------------------------------


def certificate(**changes):
    def tamper(folder):
        path = folder / "certificate.json"
        made = read_json(path)
        write_json(path, {**made, **{key: change(made[key]) for key, change in changes.items()}})

    return tamper


def notes(name, **changes):
    def tamper(folder):
        write_json(folder / name, {**read_json(folder / name), **changes})

    return tamper


def record(change):
    """Change arrays (in place or by returning others) or the setup of the record."""

    def tamper(folder):
        there = Episodes.load(folder / "episodes.npz")
        arrays = {"returns": there.returns.copy(), "lengths": there.lengths.copy()}
        setup = dict(there.setup)
        change(arrays, setup)
        limits = {key: setup.pop(key) for key in ("sigma", "floor", "ceiling")}
        Episodes(**limits, metadata=setup, **arrays).save(folder / "episodes.npz")

    return tamper


def one_return(arrays, setup):
    arrays["returns"][41] = 200.0 if arrays["returns"][41] != 200 else 199.0


def block_missing(arrays, setup):
    for name in arrays:
        arrays[name] = arrays[name][30:].copy()


def raised(limits):
    return [limits[0], limits[1] + 0.01, limits[2]]


def test_an_unknown_method_is_never_passed(run, capsys):
    certificate(method=lambda m: "magic")(run)
    assert cli.main(["verify", str(run), "--blocks", "0"]) == 4
    assert capsys.readouterr().out.startswith("COULD NOT BE CHECKED: ")
    assert cli.main(["verify", str(run), "--blocks", "0", "--json"]) == 4
    found = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert found["bounds"]["result"] == "impossible"
    assert "the method 'magic' is not computed here" in found["bounds"]["detail"]


def test_a_method_without_a_second_computation_is_not_verified(run, monkeypatch):
    monkeypatch.setattr(recomputed, "METHODS", ("band",))
    assert failures(verify(run, blocks=0)).keys() == {"bounds"}


def test_probabilities_and_quantiles_in_the_file_are_checked(run):
    band = certify(Episodes.load(run / "episodes.npz"), [0.0, 0.2], method="paper")
    asked = Query(budgets=(0.0, 0.2), thresholds=(100.0, 150.0), quantiles=(0.05, 0.5), cvars=(0.05, 0.5))
    made = replace(band, requested=band.distribution(asked)).to_json()
    write_json(run / "certificate.json", made)
    assert verify(run, blocks=0).bounds_recomputed
    for kind in ("probabilities", "quantiles", "cvars"):
        for side, change in (("lower", 1e-4), ("upper", -1e-4), ("lower", "high")):
            rows = json.loads(json.dumps(made[kind]))
            rows[1][side][1] = change if isinstance(change, str) else rows[1][side][1] + change
            write_json(run / "certificate.json", {**made, kind: rows})
            assert "bounds" in failures(verify(run, blocks=0))
    for rows in ([{"q": 0.5}], "all", [{"at_least": 1.0, "lower": [1.0], "upper": [1.0]}]):
        write_json(run / "certificate.json", {**made, "probabilities": rows})
        assert "bounds" in failures(verify(run, blocks=0))


def auto_claim(run):
    made = read_json(run / "certificate.json")
    returns = Episodes.load(run / "episodes.npz").returns
    return returns, Claim("auto", 0.05, made["sigma"], made["floor"], made["ceiling"], (0.0, 0.2, 0.4))


def after_the_pilot(run):
    """Return the episodes from the eleventh on, as a run would have recorded them that planned no others."""
    rest = Episodes.load(run / "episodes.npz")[10:]
    return replace(rest, metadata={**rest.metadata, "n_planned": len(rest)})


def test_a_band_that_a_pilot_chose_is_recomputed_without_the_pilot(run):
    made = certify(after_the_pilot(run), [0.0, 0.2, 0.4], method="band")
    lower, upper = recompute_auto(*auto_claim(run), {"method": "band", "pilot": 10})
    assert np.all((lower.least - 1e-6 <= made.lower) & (made.lower <= lower.best))
    assert np.all((upper.least + 1e-6 >= made.upper) & (made.upper >= upper.best))
    returns, claim = auto_claim(run)
    assert check_choice(returns, claim, {"method": "band", "pilot": 11}) == [
        "the method is selected on 10 episodes, not on 11"
    ]
    pilots = [{"method": "band", "pilot": size} for size in (-1, returns.size, 10.0, True, None)]
    for choice in (*pilots, {"method": "dkw", "pilot": 10}, {}, None):
        with pytest.raises(CannotRecomputeError, match="is not computed here"):
            recompute_auto(*auto_claim(run), choice)


def test_thresholds_with_risks_of_their_own_are_recomputed(run):
    returns, claim = auto_claim(run)
    points, reach, stay = [50.0, 120.0, 200.0], [0.01, 0.03, 0.01], [0.02, 0.02, 0.0]
    limits = [
        [
            float(lower_limit((keep(returns[10:], x)).sum(), returns.size - 10, risk)[0]) if risk else 0.0
            for x, risk in zip(points, risks, strict=True)
        ]
        for keep, risks in ((np.greater_equal, reach), (np.less_equal, stay))
    ]
    band = Band(np.array(points), np.array(limits[0]), np.array(limits[1]), 0.05)
    radii = np.array(claim.budgets) / claim.sigma
    choice = {"method": "per-threshold", "pilot": 10, "thresholds": points, "reach": reach, "stay": stay}
    lower, upper = recompute_auto(returns, claim, choice)
    assert lower.best == pytest.approx(mean_lower(band, 0.0, radii), abs=1e-6)
    assert upper.best == pytest.approx(mean_upper(band, 200.0, radii), abs=1e-6)
    for change in ({"reach": [0.01, 0.05, 0.01]}, {"thresholds": [50.0, 50.0, 200.0]}, {"reach": [0.05]}):
        with pytest.raises(CannotRecomputeError, match="thresholds"):
            recompute_auto(returns, claim, {**choice, **change})


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_what_auto_has_certified_is_recomputed(law, tmp_path):
    returns = law.draw(np.random.default_rng(3), (150,))
    episodes = Episodes.from_returns(returns, sigma=0.5, floor=law.floor, ceiling=law.ceiling)
    episodes.save(tmp_path / "episodes.npz")
    write_json(tmp_path / "certificate.json", certify(episodes, [0, 0.3, 1.1]).to_json())
    assert failures(verify(tmp_path, blocks=0)) == {}
    certificate(lower=lambda lower: [low + 1e-5 * (law.ceiling - law.floor) for low in lower])(tmp_path)
    assert failures(verify(tmp_path, blocks=0)).keys() == {"bounds"}


def test_another_method_than_the_one_the_pilot_chose_is_refused(run):
    """The band of the very same episodes, all true: but who chose it, and when?"""
    made = certify(after_the_pilot(run), [0.0, 0.2, 0.4], method="band")
    forged = {
        "method": "auto",
        "threshold_spacing": None,
        "method_selection": {"method": "band", "pilot": 10},
        "bets": None,
        "planner": PLANNER_VERSION,
    }
    limits = {"lower": made.lower.tolist(), "upper": made.upper.tolist()}
    write_json(run / "certificate.json", {**read_json(run / "certificate.json"), **forged, **limits})
    assert "select the method 'betting', not 'band'" in failures(verify(run, blocks=0))["bounds"]


def test_a_choice_by_another_planner_version_is_not_verified_and_says_so(run):
    """Everything else is checked; who writes another version into a forged certificate gains nothing."""
    episodes = Episodes.load(run / "episodes.npz")
    for version in (None, PLANNER_VERSION - 1, PLANNER_VERSION + 1):
        made = certify(episodes, [0.0, 0.2, 0.4]).to_json()
        write_json(run / "certificate.json", {**made, "planner": version})
        verdict = verify(run, blocks=0)
        assert failures(verdict).keys() == {"choice"}
        assert "that the method was selected on the pilot episodes alone" in verdict.not_checked
        certificate(lower=raised)(run)
        assert failures(verify(run, blocks=0)).keys() == {"choice", "bounds"}


FIELDS = ("task", "agent", "agent_sha256", "seed", "sigma", "confidence", "joint_confidence", "n_episodes", "method")
FIELDS += (
    "threshold_spacing",
    "record_sha256",
    "floor",
    "ceiling",
    "budgets",
    "lower",
    "upper",
    "estimate",
    "estimate_sem",
)
FIELDS += ("statement", "method_selection", "bets", "norm", "probabilities", "quantiles", "cvars", "gamma", "kind")


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", ["x", [], True, {"name": "linf", "method": "band"}], ids=str)
def test_nonsense_in_any_field_is_not_verified_and_no_crash(run, name, value):
    write_json(run / "certificate.json", {**read_json(run / "certificate.json"), name: value})
    empty_is_nothing = name in ("probabilities", "quantiles", "cvars") and value == []
    assert verify(run, blocks=0).bounds_recomputed == empty_is_nothing


# --- thorough tampering: everything else is made to agree -----------------------------------------------------------


def renewed(folder):
    """Regenerate certificate, hash and setup.json from a forged record, as an able forger would."""
    episodes = Episodes.load(folder / "episodes.npz")
    write_json(folder / "certificate.json", certify(episodes, [0.0, 0.2, 0.4], method="paper").to_json())
    write_json(folder / "setup.json", {"schema": 1, **episodes.setup})
    notes("run.json", agent_sha256=episodes.setup["agent_sha256"])(folder)


def setup_of(**changes):
    return record(lambda arrays, setup: setup.update(changes))


def test_without_playing_again_a_thorough_forger_passes_and_the_verdict_says_so(run):
    record(one_return)(run)
    renewed(run)
    verdict = verify(run, blocks=0)
    assert verdict.bounds_recomputed
    assert verdict.verdict == "unchecked"
    assert verdict.not_checked[0] == "where the returns come from: no block was rerun"


def test_a_dropped_block_with_the_plan_shortened_is_caught(run):
    record(lambda arrays, setup: (block_missing(arrays, setup), setup.update(n_planned=70)))(run)
    renewed(run)
    assert "replay" in failures(verify(run, blocks=None, fresh=8))


def test_attacked_play_in_disguise(tmp_path):
    """Episodes that an adversary has *helped*, with its name and spending taken out of the record."""
    task, agent = get_task("cartpole-1"), zoo.load(AGENT)
    attacked = plan_for(task, agent, 0.4, 30, n_envs=30, attacker=Structured(), budget=2.0)
    played = play(attacked)
    setup = {**played.setup, "attacker": None, "budget": None}
    limits = {key: setup.pop(key) for key in ("sigma", "floor", "ceiling")}
    forged = Episodes(played.returns, lengths=played.lengths, metadata=setup, **limits)
    (tmp_path / "run").mkdir()
    forged.save(tmp_path / "run" / "episodes.npz")
    write_json(tmp_path / "run" / "certificate.json", certify(forged, [0.1], method="paper").to_json())
    assert "replay" in failures(verify(tmp_path / "run", blocks=None, fresh=8))
    played.save(tmp_path / "run" / "episodes.npz")
    assert "were attacked" in failures(verify(tmp_path / "run", blocks=0))["certificate and episode data"]


# --- the agent ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("card_too", [False, True])
def test_a_changed_weight_is_caught(run, tmp_path, card_too):
    for suffix in (".npz", ".json"):
        shutil.copy(zoo.agents_dir() / f"{AGENT}{suffix}", tmp_path / f"{AGENT}{suffix}")
    path = tmp_path / AGENT
    assert verify(run, blocks=1, fresh=8, agent=str(path)).verified
    with np.load(f"{path}.npz") as there:
        arrays = dict(there)
    arrays["0.weight"][0, 0] = np.nextafter(arrays["0.weight"][0, 0], np.float32(9))
    np.savez(f"{path}.npz", **arrays)
    if card_too:
        card = read_json(Path(f"{path}.json"))
        write_json(Path(f"{path}.json"), {**card, "sha256": weights_hash(arrays, card["layout"])})
    assert "have hash" in failures(verify(run, blocks=1, fresh=8, agent=str(path)))["setup and weights"]


def test_an_agent_that_is_not_shipped_must_be_given(run):
    setup_of(agent="mine")(run)
    renewed(run)
    verdict = verify(run, blocks=1, fresh=8)
    assert "give its file, or code, with --agent" in failures(verdict)["replay"]
    assert verify(run, blocks=0).bounds_recomputed


def test_a_certificate_cannot_make_us_import_a_module(run, tmp_path, monkeypatch):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    setup_of(task="other", environment="evil:Game-v0")(run)
    renewed(run)
    assert "would import a module" in failures(verify(run, blocks=1, fresh=8))["replay"]


# --- returns from elsewhere, environments, bad input ----------------------------------------------------------------


LIMITS = ("--sigma", "0.1", "--floor", "-21", "--ceiling", "21")


def test_returns_from_elsewhere_are_recomputed_but_not_played(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("r.npy", np.random.default_rng(0).normal(0, 3, 500).clip(-21, 21))
    assert cli.main(["certify", "--returns", "r.npy", *LIMITS, "--method", "band", "--out", "made"]) == 0
    capsys.readouterr()
    assert cli.main(["verify", "made", "--blocks", "0"]) == 4
    assert "where the returns come from" in capsys.readouterr().out
    assert cli.main(["verify", "made"]) == 4
    assert "precomputed returns" in capsys.readouterr().out


def test_an_environment_and_an_agent_file(tmp_path):
    import stable_baselines3

    model = stable_baselines3.DQN(
        "MlpPolicy", "CartPole-v1", buffer_size=2, policy_kwargs={"net_arch": [8]}, device="cpu", seed=0
    )
    model.save(tmp_path / "model.zip")
    arguments = ["certify", "--env", "CartPole-v1", "--agent", tmp_path / "model.zip", "--sigma", 0.1, "--floor", 0]
    arguments += ["--episodes", 20, "--workers", 1, "--out", tmp_path / "run", "--quiet", "--json"]
    arguments += ["--method", "band"]
    assert cli.main([str(argument) for argument in arguments]) == 0
    assert verify(tmp_path / "run", agent=str(tmp_path / "model.zip"), fresh=8).verified
    with pytest.raises(surefoot.InputError, match="got --env Acrobot-v1"):
        verify(tmp_path / "run", agent=str(tmp_path / "model.zip"), environment="Acrobot-v1")


@pytest.mark.parametrize(
    ("prepare", "options", "match"),
    [
        (shutil.rmtree, (), "no directory"),
        (lambda run: (run / "certificate.json").unlink(), (), "contains no certificate.json"),
        (lambda run: (run / "certificate.json").write_text("{"), (), "not a readable JSON file"),
        (lambda run: (run / "certificate.json").write_text("[1]"), (), "must hold a JSON object"),
        (notes("certificate.json", schema=3), (), "has schema 3, this version reads 1"),
        (lambda run: None, ("--agent", "nobody"), "unknown agent 'nobody'"),
        (lambda run: None, ("--agent", "nobody.zip"), "no file nobody.zip"),
        (lambda run: None, ("--blocks", "some"), "--blocks: must be a whole number or 'all', got 'some'"),
        (lambda run: None, ("--blocks", "-1"), "--blocks: must be a whole number"),
        (lambda run: None, ("--blocks", "9" * 5000), "--blocks: must be a whole number"),
        (lambda run: None, ("--seed", "-1"), "seed must be at least 0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(run, capsys, prepare, options, match):
    prepare(run)
    assert cli.main(["verify", str(run), *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert match in shown.err


# --- the second computation -----------------------------------------------------------------------------------------

PAIRS = [(m, law) for m in recomputed.METHODS for law in LAWS if m != "binary" or law.name == "win or lose"]


@pytest.mark.parametrize(("method", "law"), PAIRS, ids=[f"{m}, {law.name}" for m, law in PAIRS])
@pytest.mark.parametrize("n", [1, 7, 400])
def test_two_computations_agree(method, law, n):
    returns = law.draw(np.random.default_rng(n), (n,))
    step = (law.ceiling - law.floor) / 7.3
    for ceiling in (law.ceiling, None) if method in ("band", "dkw") else (law.ceiling,):
        for confidence in (0.5, 0.95, 0.9999):
            episodes = Episodes.from_returns(returns, sigma=0.5, floor=law.floor, ceiling=ceiling)
            made = certify(episodes, [0, 0.3, 1.1, 3], confidence, method, step)
            claim = Claim(method, 1 - confidence, 0.5, law.floor, ceiling, (0, 0.3, 1.1, 3), step)
            lower, upper = recompute(returns, claim)
            width = law.ceiling - law.floor
            assert np.all(made.lower <= lower.best + 1e-12 * width)
            assert np.all(made.lower >= lower.least - 1e-7 * width)
            assert (upper is None) == (made.upper is None)
            if upper is not None:
                assert np.all(made.upper >= upper.best - 1e-12 * width)
                assert np.all(made.upper <= upper.least + 1e-7 * width)


@pytest.mark.parametrize(("method", "law"), PAIRS, ids=[f"{m}, {law.name}" for m, law in PAIRS])
def test_probabilities_quantiles_and_cvar_agree(method, law):
    returns = law.draw(np.random.default_rng(9), (150,))
    width = law.ceiling - law.floor
    step = width / 7.3
    for ceiling in (law.ceiling, None) if method in ("band", "dkw") else (law.ceiling,):
        made = certify(
            Episodes.from_returns(returns, sigma=0.5, floor=law.floor, ceiling=ceiling),
            [0, 0.3, 1.1],
            0.9,
            method,
            step,
        )
        claim = Claim(method, 1 - 0.9, 0.5, law.floor, ceiling, (0, 0.3, 1.1), step)
        for share in (-0.1, 0.0, 0.2, 0.77, 0.99, 1.0, 1.1):
            found = recompute_distribution(returns, claim, [("probabilities", law.floor + share * width)])[0]
            limits = [made.probability(law.floor + share * width, budget) for budget in made.budgets]
            agree(limits, found)
        for q in (0.01, 0.3, 0.5, 0.9, 0.999):
            quantile, cvar = recompute_distribution(returns, claim, [("quantiles", q), ("cvars", q)])
            agree([made.quantile(q, budget) for budget in made.budgets], quantile)
            agree([made.cvar(q, budget) for budget in made.budgets], cvar)


def agree(limits, found):
    for limit, ((least, best), (top, loose)) in zip(limits, found, strict=True):
        assert least <= limit.lower <= best
        assert top <= (np.inf if limit.upper is None else limit.upper) <= loose


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.05), (2, 0.3), (30, 1e-4), (200, 0.05), (1000, 0.05)])
def test_the_local_level_is_found_again(n, alpha):
    level = local_level(n, alpha)
    assert 0.99 * level <= our_level(n, alpha) <= level * (1 + 1e-6)
    ranks = checked_ranks(n)
    limits = proportion_at_least(ranks, n, level)
    assert risk_of(n, ranks, limits) == pytest.approx(alpha, rel=1e-3)
    assert violation(n, ranks, limits, alpha) == pytest.approx(alpha, rel=1e-3)


@pytest.mark.parametrize("alpha", [1e-12, 3e-8, 1e-6])
@pytest.mark.parametrize("n", [1, 30, 1000, 20_000])
def test_the_local_level_is_found_again_for_a_tiny_alpha(n, alpha):
    """Where rounding could matter both take the union bound; just before, the search makes allowance for it."""
    level, size = local_level(n, alpha), checked_ranks(n).size
    assert 0.96 * level <= least_level(n, alpha) <= our_level(n, alpha) <= level * (1 + 1e-6)
    if 4e-12 * (size + 10) > 0.02 * alpha:
        assert level == our_level(n, alpha) == alpha / size


def test_the_risk_of_two_uniforms_in_closed_form():
    """P(min < a or max < b) = 1 - P(both > a, not both < b) = 1 - ((1 - a)^2 - (b - a)^2)."""
    a, b = 0.1, 0.3
    assert risk_of(2, [1, 2], np.array([a, b])) == pytest.approx(1 - ((1 - a) ** 2 - (b - a) ** 2), abs=1e-12)


def test_what_a_method_does_not_allow_is_not_recomputed():
    returns = np.array([0.0, 0.5, 1.0])
    with pytest.raises(CannotRecomputeError, match="only the returns floor and ceiling"):
        recompute(returns, Claim("binary", 0.05, 1.0, 0.0, 1.0, (0.1,)))
    with pytest.raises(CannotRecomputeError, match="need a ceiling and the spacing"):
        recompute(returns, Claim("per-threshold", 0.05, 1.0, 0.0, 1.0, (0.1,)))
