"""The records page: it shows the committed data, its bounds are the certificates', and nothing contradicts them."""

import re
from pathlib import Path

import pytest
import torch

from study import records
from study.measure import Place
from study.numbers import every_agent
from study.records import NUMBERS, RECORDS, fingerprint, new_agents
from study.records_figure import curves
from study.records_page import USUAL, best, fill, polished
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.play.tasks import get_task
from surefoot.proof.query import certify
from surefoot.proof.rounding import format_lower

ROOT = Path(__file__).resolve().parents[2]
FOUND = read_json(NUMBERS)
POLE = "cartpole-5-ppo-s0.2"
PAGE = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")


def block(name):
    return re.search(rf"<!-- begin: {name} -->\n\n(.*?)\n\n<!-- end: {name} -->", PAGE, re.DOTALL)[1]


def test_the_page_was_made_from_the_committed_data():
    """Red after any of them changes until python -m study.records --write has been run."""
    assert FOUND["data_sha256"] == fingerprint()


def test_the_page_shows_these_numbers():
    for name, content in fill(FOUND).items():
        assert block(name) == content


@pytest.mark.parametrize(
    ("name", "table", "digits"),
    [("cartpole-5-gru-s0.35", "board-cartpole", 1), ("mountain-car-gru-s1", "board-mountain-car", 3)],
)
def test_the_numbers_are_those_of_certificates(name, table, digits):
    row = next(row for row in FOUND["agents"] if row["agent"] == name and row["n_episodes"] == 10_000)
    record = Episodes.load(RECORDS / "episodes" / f"{name}.npz")
    assert certify(record, row["budgets"]).lower == pytest.approx(row["auto"], abs=1e-9)
    assert certify(record, row["budgets"], method="paper").lower == pytest.approx(row["paper"], abs=1e-9)
    assert certify(record, row["budgets"], 1 - 0.05 / row["rivals"]).lower == pytest.approx(row["paid"], abs=1e-9)
    assert not record.attacked
    assert format_lower(row["auto"][-1], digits) in block(table)


def test_every_new_agent_has_its_episodes_and_they_are_of_its_weights():
    weights = {agent.name: agent.sha256 for agent in every_agent()}
    shown = {row["agent"]: row["agent_sha256"] for row in FOUND["agents"]}
    assert {agent.name for agent in new_agents()} <= set(shown)
    assert all(weights[name] == sha for name, sha in shown.items())


def test_a_run_in_other_blocks_than_the_tasks_own_is_no_entry():
    """Its verification could rerun none of them; the study's whole games are such runs."""
    own = [(agent, record) for agent, record in records.entries() if len(record) <= USUAL]
    assert len({agent.name for agent, _ in own}) == len(own)
    for agent, record in own:
        there = record.metadata["device"]
        envs, each = get_task(agent.task).blocks.on(torch.device(there), recurrent="memory" in record.metadata)
        assert record.metadata["block_size"] == envs * each, agent.name
    whole = {agent.name: len(record) for agent, record in own if agent.task == "pong-full"}
    assert whole == {"pong-full-s0.05": 1_000, "pong-full-s0.1": 1_024, "pong-full-student-s0.2": 1_024}


def test_an_attack_with_another_lambda_or_at_fewer_budgets_is_made_again(tmp_path, monkeypatch):
    student, pole = (next(one for one in new_agents() if one.name == name) for name in ("pong-1r-student-s0.2", POLE))
    known = {(student, "paper"): [26.1], (student, "adaptive"): [0.0], (student, "structured"): [None]}
    for (agent, method), lambdas in {**known, (pole, "paper"): [0.7]}.items():
        budgets = records.ATTACKED_BUDGETS[agent.task]
        facts = {"agent_sha256": agent.sha256, "lambdas": lambdas, "budgets": [*budgets]}
        write_json(tmp_path / "attacks" / f"{agent.name}-{method}.json", facts)
    made = []
    monkeypatch.setattr(records, "attack_agent", lambda agent, size, place, method: made.append((method, size.lambdas)))
    place = Place(tmp_path, tmp_path / "work", "cpu")
    records.measure("attacks", [student], place, ("paper", "adaptive", "structured"))
    assert made == [("paper", (0.0,))]
    records.measure("attacks", [pole], place, ("paper",))  # the median of its gaps, whatever it is, stays
    assert len(made) == 1
    path = tmp_path / "attacks" / f"{student.name}-adaptive.json"
    write_json(path, {**read_json(path), "budgets": [0.2]})
    records.measure("attacks", [student], place, ("adaptive", "structured"))
    assert made[1:] == [("adaptive", (0.0,))]


def test_continuous_actions_are_attacked_by_the_methods_that_the_agent_has_what_it_takes_for(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(records, "attack_agent", lambda agent, size, place, method: made.append((method, size.lambdas)))
    agents = {agent.name: agent for agent in every_agent()}
    place = Place(tmp_path, tmp_path / "work", "cpu")
    records.measure("attacks", [agents["mountain-car-ppo-s0.3"]], place, ("paper", "adaptive", "structured"))
    assert made == [("adaptive", (0.0, 0.75, 0.95)), ("structured", (0.0,))]  # paper asks a critic, PPO has none
    records.measure("attacks", [agents["mountain-car-s0.2"]], place, ("paper",))
    assert [method for method, _ in made[2:]] == ["paper"]


def test_only_three_attacks_on_whole_games_are_missing():
    """The page says which, and why."""
    made = {(row["agent"], row["budget"], row["method"]) for row in FOUND["attacks"]}
    wanted = {
        (agent, budget, method)
        for agent in new_agents()
        for budget in records.ATTACKED_BUDGETS.get(agent.task, ())
        for method in records.ATTACKS
    }
    missing = {(agent, method) for agent, budget, method in wanted if (agent.name, budget, method) not in made}
    possible = {(agent.name, method) for agent, method in missing if records.attackable(agent, method)}
    assert possible == {("pong-full-student-s0.2", method) for method in records.ATTACKS if method != "paper"}


def test_paying_for_the_choice_costs_and_no_bound_exceeds_what_is_achievable():
    for row in FOUND["agents"]:
        assert all(paid <= auto for paid, auto in zip(row["paid"], row["auto"], strict=True))
        assert all(auto <= most for auto, most in zip(row["auto"], row["best_achievable"], strict=True))


def test_no_attack_contradicts_a_certificate():
    for row in FOUND["attacks"]:
        assert row["mean"] + 5 * row["sem"] >= row["bound"]


def test_the_figure_draws_the_best_of_each_group():
    drawn = {label: values for label, _, values in curves(FOUND)}
    usual = [row for row in FOUND["agents"] if row["task"] == "cartpole-5" and row["n_episodes"] == 10_000]
    top = best([row for row in usual if row["memory"] == "GRU"], "auto")
    assert drawn["ours with memory (GRU)"] == [value for value, _ in top]
    assert (ROOT / "docs" / "figures" / "records.svg").is_file()


def test_another_value_on_the_page_is_noticed():
    for rows, key in (("agents", "auto"), ("board", "lower")):
        changed = {**FOUND, rows: [{**row, key: [value + 1 for value in row[key]]} for row in FOUND[rows]]}
        assert any(block(name) != content for name, content in fill(changed).items())


def test_the_training_page_shows_the_measured_ablation():
    from bench.ablation import PAGE, RESULTS, table

    rows = read_json(RESULTS)["rows"]
    assert table(rows) in PAGE.read_text(encoding="utf-8")
    assert len({(row["task"], row["setting"], row["seed"]) for row in rows}) == len(rows)


def test_the_training_page_shows_what_polishing_brought():
    shown = polished(FOUND)
    assert shown in (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    assert "`cartpole-5-gru-polished-s0.35` | `cartpole-5-gru-polished-s0.3`" in shown
