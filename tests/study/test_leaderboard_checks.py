"""What the leaderboard accepts: a verdict whose checks all passed, with fresh episodes, and attacks that agree."""

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import surefoot
from study import entries, records
from study.entries import ENTRIES, read_entry, refusals, row, used_budget
from study.numbers import CONFIDENCE, every_agent
from study.records_page import BUDGETS, _board
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_json, write_arrays, write_json
from surefoot.proof.forecast import best_achievable
from surefoot.proof.query import certify
from surefoot.verification.verdict import FAILED, IMPOSSIBLE, PASSED, SKIPPED, Verdict

QUICK = "mountain-car-gru-s1"


@pytest.fixture
def entry(tmp_path):
    return shutil.copytree(ENTRIES / QUICK, tmp_path / "copy")


def judged(monkeypatch, result, *, fresh=True):
    """Let the verification have one check with this result, and fresh episodes; return how it was asked."""
    asked = []

    def verify(folder, **options):
        asked.append((folder, options))
        verdict = Verdict(run=str(folder), not_checked=[])
        verdict.judge("bounds", [], "as computed")
        verdict.note("replay", result, "said so")
        verdict.fresh = 100 if fresh else None
        return verdict

    monkeypatch.setattr(surefoot, "verify", verify)
    return asked


@pytest.mark.parametrize("result", [SKIPPED, IMPOSSIBLE, FAILED])
def test_a_check_that_was_impossible_is_no_check_that_passed(monkeypatch, result):
    judged(monkeypatch, result)
    assert refusals(read_entry(ENTRIES / QUICK)) == ["replay: said so"]
    judged(monkeypatch, PASSED)
    assert refusals(read_entry(ENTRIES / QUICK)) == []


def test_nothing_is_accepted_without_fresh_episodes(monkeypatch):
    judged(monkeypatch, PASSED, fresh=False)
    assert refusals(read_entry(ENTRIES / QUICK)) == ["no fresh episodes were run"]


def test_the_entry_itself_is_verified_with_its_own_agent(monkeypatch, entry):
    asked = judged(monkeypatch, PASSED)
    refusals(read_entry(entry), blocks=3, fresh=7)
    (entry / "entry.json").write_text(json.dumps({**read_json(entry / "entry.json"), "agent": "mine.zip"}))
    refusals(read_entry(entry))
    assert asked == [
        (entry, {"agent": None, "blocks": 3, "fresh": 7}),
        (entry, {"agent": str(entry / "mine.zip"), "blocks": "enough", "fresh": None}),
    ]


def test_a_rerun_is_excused_only_of_episodes_of_a_gpu_where_there_is_none(monkeypatch, entry):
    from dataclasses import replace

    judged(monkeypatch, IMPOSSIBLE)
    for recorded, here, reasons in (
        ("cuda", "cpu", []),
        ("cuda", "cuda", ["replay: said so"]),
        ("cpu", "cpu", ["replay: said so"]),
    ):
        record = Episodes.load(entry / "episodes.npz")
        replace(record, metadata={**record.metadata, "device": recorded}).save(entry / "episodes.npz")
        monkeypatch.setattr(entries, "resolve_device", lambda name, here=here: here)
        assert refusals(read_entry(entry), blocks=3) == reasons


@pytest.mark.parametrize(("below", "accepted"), [(4.9, True), (5.1, False)])
def test_an_attack_contradicts_from_five_standard_errors_on(monkeypatch, entry, below, accepted):
    judged(monkeypatch, PASSED)
    path = entry / "attack-structured.json"
    attack = read_json(path)
    (budget,) = attack["budgets"]
    bound = read_entry(entry).certificate.at(budget).lower
    path.write_text(json.dumps({**attack, "curve": [bound - below * 0.001], "curve_sem": [0.001]}))
    assert (refusals(read_entry(entry)) == []) == accepted


def test_an_attack_on_other_noise_or_another_task_is_refused(entry):
    path = entry / "attack-structured.json"
    honest = read_json(path)
    for change in ({"sigma": 5.0}, {"task": "cartpole-1"}, {"agent_sha256": "0" * 64}, {"action_sigma": 0.5}):
        path.write_text(json.dumps({**honest, **change}))
        with pytest.raises(InputError, match="an attack is on another task, agent or noise than the certified ones"):
            read_entry(entry)
    path.write_text(json.dumps(honest))
    assert read_entry(entry).attacks[0]["sigma"] == honest["sigma"]


@pytest.mark.parametrize("agent", ["../cartpole-1-s0.2/agent.zip", "/tmp/agent.onnx", "", ".."])
def test_the_agent_of_an_entry_is_a_file_in_its_directory(entry, agent):
    (entry / "entry.json").write_text(json.dumps({**read_json(entry / "entry.json"), "agent": agent}))
    with pytest.raises(InputError, match="agent must be the name of a file in the directory"):
        read_entry(entry)


def test_a_comparison_in_an_entry_does_not_stand_in_for_its_certificate(entry):
    """Verification would have been about the honest comparison, and the forged certificate listed."""
    write_json(entry / "comparison.json", {"schema": 1})
    with pytest.raises(InputError, match=r"has comparison\.json and certificate\.json"):
        refusals(read_entry(entry))


@pytest.mark.parametrize("n_reasons", [0, 1, 2])
def test_one_reason_is_enough_to_stop_the_page_and_so_are_two(n_reasons, monkeypatch, capsys):
    monkeypatch.setattr(records, "read_entries", lambda: [read_entry(ENTRIES / QUICK)])
    monkeypatch.setattr(records, "refusals", lambda *_, **__: ["false"] * n_reasons)
    if n_reasons == 0:
        records.verify_entries()
        return
    with pytest.raises(SystemExit):
        records.verify_entries()
    assert capsys.readouterr().err.count("refused: false") == n_reasons


@pytest.mark.parametrize(("task", "fresh"), [("cartpole-5", None), ("pong-1r", records.GAME_FRESH)])
def test_only_games_are_compared_with_fewer_fresh_episodes(task, fresh, monkeypatch):
    asked = []
    certificate = SimpleNamespace(metadata={"task": task})
    listed = SimpleNamespace(certificate=certificate, folder=ENTRIES / QUICK)
    monkeypatch.setattr(records, "read_entries", lambda: [listed])
    monkeypatch.setattr(records, "refusals", lambda entry, **options: asked.append((entry, options)) or [])
    records.verify_entries(blocks=3)
    assert asked == [(listed, {"blocks": 3, "fresh": fresh})]


def test_an_entry_without_the_budgets_of_the_page_is_refused(entry):
    episodes = Episodes.load(entry / "episodes.npz")
    for budgets, accepted in (([0.0, 1.0], True), ([0.0, 0.9], False)):
        certify(episodes, budgets, CONFIDENCE, "band").save(entry)
        if accepted:
            assert read_entry(entry).certificate.at(1.0).lower > 0
            continue
        with pytest.raises(InputError, match=r"its budgets end at 0\.9, the page shows up to 1"):
            read_entry(entry)


@pytest.mark.parametrize("damage", [lambda _: {}, lambda attack: {**attack, "mean_budget_used": [[]]}])
def test_an_attack_that_cannot_be_read_is_named(entry, damage):
    path = entry / "attack-structured.json"
    path.write_text(json.dumps(damage(read_json(path))))
    with pytest.raises(InputError, match=r"attack-structured.json is not a readable result of an attack"):
        read_entry(entry)


def test_what_an_entry_says_of_itself_cannot_change_the_page(entry):
    """Neither cells of its row, which could show other numbers, nor HTML."""
    shown = row(read_entry(entry), BUDGETS["mountain-car"])
    for key in ("by", "memory", "license"):
        shown[key] = "me | 99.9 | <script>alert(1)</script>\n| [x](javascript:0)"
    table = _board({"board": [{**shown, "agent": "x` | 99.9 | `y"}]}, "mountain-car").markdown()
    *_, line = table.splitlines()
    assert len(table.splitlines()) == 3
    assert len(re.findall(r"(?<!\\)\|", line)) == len(re.findall(r"(?<!\\)\|", table.splitlines()[0]))
    assert not re.search(r"(?<!\\)<", line)


def test_a_row_is_that_of_the_certificate_and_the_strongest_attack(entry):
    made = read_entry(entry)
    found = row(made, [0.1, 1.0])
    record = Episodes.load(entry / "episodes.npz")
    assert found["lower"] == [made.certificate.at(0.1).lower, made.certificate.at(1.0).lower]
    assert found["lower"][0] > found["lower"][1]
    assert (found["mean"], found["n_episodes"]) == (pytest.approx(record.returns.mean()), len(record))
    assert found["sem"] == pytest.approx(record.returns.std(ddof=1) / len(record) ** 0.5)
    assert (found["sigma"], found["device"]) == (record.sigma, record.metadata["device"])
    means = {
        (budget, mean)
        for attack in made.attacks
        for budget, mean, used in zip(attack["budgets"], attack["curve"], used_budget(attack), strict=True)
        if used
    }
    strongest = min(means, key=lambda one: one[1])
    assert (found["attack"]["budget"], found["attack"]["mean"]) == strongest
    assert found["attacked_bound"] == made.certificate.at(strongest[0]).lower


# --- the numbers of the page, computed again --------------------------------------------------------------------------

FOUND = read_json(records.NUMBERS)


def small(agent, count=400):
    """Return the first episodes of an agent's record, as if no more had been planned."""
    record = Episodes.load(records.RECORDS / "episodes" / f"{agent.name}.npz")
    from dataclasses import replace

    return replace(record[:count], metadata={**record.metadata, "n_planned": count})


def test_the_row_of_an_agent_is_computed_from_its_episodes():
    """With and without paying for the choice among rivals, by the default method and the paper's."""
    agent = next(one for one in every_agent() if one.name == "cartpole-5-gru-s0.35")
    record = small(agent)
    made = records._certified(agent, record, False, 7)
    budgets = BUDGETS["cartpole-5"]
    assert made["budgets"] == list(budgets)
    assert made["auto"] == pytest.approx(certify(record, budgets, CONFIDENCE).lower)
    assert made["paper"] == pytest.approx(certify(record, budgets, CONFIDENCE, "paper").lower)
    assert made["paid"] == pytest.approx(certify(record, budgets, 1 - (1 - CONFIDENCE) / 7).lower)
    assert all(paid < auto for paid, auto in zip(made["paid"], made["auto"], strict=True))
    assert (made["rivals"], made["n_episodes"], made["memory"]) == (7, 400, "GRU")
    assert made["mean"] == record.returns.mean()
    assert made["sem"] == pytest.approx(record.returns.std(ddof=1) / 20)
    assert (made["sigma"], made["agent_sha256"]) == (agent.sigma, agent.sha256)
    achievable = [best_achievable(400, budget / agent.sigma, 1 - CONFIDENCE, 0.0, 200.0) for budget in budgets]
    assert made["best_achievable"] == achievable
    shown = next(one for one in FOUND["agents"] if one["agent"] == agent.name and one["n_episodes"] == 10_000)
    assert {key: made[key] for key in ("agent", "task", "training", "memory")} == {
        key: shown[key] for key in ("agent", "task", "training", "memory")
    }


def test_episodes_of_other_weights_are_noticed():
    from dataclasses import replace

    agent = next(one for one in every_agent() if one.name == "cartpole-5-gru-s0.35")
    record = small(agent)
    other = replace(record, metadata={**record.metadata, "agent_sha256": "0" * 64})
    with pytest.raises(AssertionError, match="are of other weights"):
        records._certified(agent, other, False, 7)


@pytest.fixture
def attacks(tmp_path, monkeypatch):
    """Made-up attacks at two budgets, with two lambdas each, on an agent that certifies 100 and 50 there."""
    agent = next(one for one in every_agent() if one.name == "cartpole-5-gru-s0.35")
    found = {
        "agent_sha256": agent.sha256,
        "budgets": [0.4, 1.0],
        "lambdas": [0.0, 0.5],
        "curve": [150.0, 90.0],
        "curve_sem": [1.0, 2.0],
        "curve_lambda": [0.5, 0.0],
        "mean_budget_used": [[0.4, 0.4], [0.001, 1.0]],
        "n_episodes": 1_000,
    }
    means = {"B0.4-lambda0": 160.0, "B0.4-lambda0.5": 150.0, "B1-lambda0": 90.0, "B1-lambda0.5": 95.0}

    def write(**changes):
        write_json(tmp_path / "attacks" / f"{agent.name}-paper.json", {**found, **changes.pop("found", {})})
        arrays = {f"{name}.returns": np.full(1_000, changes.get(name, mean)) for name, mean in means.items()}
        write_arrays(tmp_path / "attacks" / f"{agent.name}-paper.npz", arrays)
        rows = [{"agent": agent.name, "budgets": [0.2, 0.4, 1.0], "auto": [120.0, 100.0, 50.0]}]
        return list(records._attacked(agent, "paper", rows))

    monkeypatch.setattr(records, "RECORDS", tmp_path)
    return write


def test_every_attacked_mean_stands_next_to_the_bound_at_its_budget(attacks):
    keys = ("budget", "mean", "sem", "bound", "used", "n_episodes")
    assert [tuple(row[key] for key in keys) for row in attacks()] == [
        (0.4, 150.0, 1.0, 100.0, True, 1_000),
        (1.0, 90.0, 2.0, 50.0, False, 1_000),
    ]


@pytest.mark.parametrize("place", ["B0.4-lambda0", "B0.4-lambda0.5", "B1-lambda0", "B1-lambda0.5"])
def test_an_attacked_mean_below_the_bound_is_noticed_with_whichever_lambda_it_was_reached(attacks, place):
    with pytest.raises(AssertionError, match="attacked mean at most"):
        attacks(**{place: 30.0})


def test_attacks_on_other_weights_are_noticed(attacks):
    with pytest.raises(AssertionError, match="are on other weights"):
        attacks(found={"agent_sha256": "0" * 64})


def test_rivals_are_the_agents_of_one_game():
    agents = {one.name: one for one in every_agent()}
    found = [(agents[name], None) for name in ("cartpole-5-s0.2", "cartpole-1-s0.2", "cartpole-1-s0.4", "freeway-s0.1")]
    found += [(agents["cartpole-5-s0.2"], None)]  # its million episodes: the same agent again
    assert records._rivals(agents["cartpole-5-s0.2"], found) == 3
    assert records._rivals(agents["freeway-s0.1"], found) == 1
    pong = [(agents[name], None) for name in agents if name.startswith("pong")]
    whole = {agent.name for agent, _ in pong if agent.task == "pong-full"}
    assert records._rivals(agents[min(whole)], pong) == len(whole)


def test_all_numbers_of_the_page_are_computed_again_from_the_committed_data(monkeypatch):
    """``records.numbers()`` itself, on the agent and the attacks of Mountain Car, whose certificates take a moment."""
    names = {"mountain-car-gru-s1"}
    monkeypatch.setattr(records, "every_agent", lambda: [one for one in every_agent() if one.name in names])
    monkeypatch.setattr(records, "shipped_agents", list)
    monkeypatch.setattr(records, "read_entries", lambda: [read_entry(ENTRIES / QUICK)])
    monkeypatch.setattr(records, "fingerprint", lambda: "known")
    made = records.numbers()
    shown = [one for one in FOUND["agents"] if one["agent"] in names]
    assert len(made["agents"]) == len(shown) >= 1
    changed = {"rivals", "paid", "paper_style"}  # among fewer agents
    for one, known in zip(made["agents"], shown, strict=True):
        assert one.keys() == known.keys()
        for key in known.keys() - changed:
            assert one[key] == (pytest.approx(known[key], abs=1e-9) if key in {"auto", "paper"} else known[key]), key
        assert one["paid"] == pytest.approx(one["auto"])  # it has no rival here
        assert all(np.array(known["paid"]) <= np.array(known["auto"]))
    assert made["attacks"] == [one for one in FOUND["attacks"] if one["agent"] in names]
    assert len(made["attacks"]) >= 2
    assert made["board"] == [one for one in FOUND["board"] if one["name"] == QUICK]
    assert (made["data_sha256"], made["peers"]) == ("known", FOUND["peers"])
