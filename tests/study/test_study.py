"""The paper's figures and tables from made-up numbers: all of them draw, say what they should, notice what is bad."""

import json
from dataclasses import replace

import numpy as np
import pytest

from studies import CURVE, Made, agents_of, made_up, returns_of, value, write_attack, write_episodes, write_published
from study import claims, documentation
from study import serial as serial_games
from study.__main__ import main
from study.draw import MAKERS, draw, write_index
from study.figures import pong
from study.measure import Place, write_times
from study.numbers import Study, budgets_of, fingerprint, open_study
from study.paper import EVERY, TARGETS, UNITS, find_target
from study.sandwich import Cell
from study.style import attack_curve
from study.tables import Table
from surefoot.errors import InputError
from surefoot.files import read_json, write_json
from surefoot.play.tasks import TASKS
from surefoot.proof.query import certify
from surefoot.proof.rounding import format_lower

pytestmark = pytest.mark.slow

FILES = (".png", ".svg", ".md", ".csv")
FIGURES = [target for target in TARGETS if target.paper.startswith("Figure")]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return made_up(tmp_path_factory.mktemp("study"), Made(episodes=200))


@pytest.fixture(scope="module")
def made(study):
    return {target.name: MAKERS[target.name](study, target.tasks) for target in TARGETS}


@pytest.fixture(scope="module")
def figures(made):
    return {name: figure for name, (figure, _) in made.items()}


def panels(figure):
    return [axes for axes in figure.axes if axes.has_data()]


def texts(figure):
    return " ".join(text.get_text() for axes in figure.axes for text in axes.texts)


def test_there_is_a_maker_for_every_target_and_none_beside():
    assert list(MAKERS) == [target.name for target in TARGETS]
    assert [target.paper for target in FIGURES] == [f"Figure {number}" for number in range(1, 14)]


@pytest.mark.parametrize(("name", "kinds"), [("framework", FILES[:2]), ("certificates", FILES), ("claims", FILES[2:])])
def test_a_target_leaves_its_files(name, kinds, study, tmp_path):
    files = draw(study, find_target(name), EVERY[:1], tmp_path).files
    assert [path.name for path in files] == [f"{name}{kind}" for kind in kinds]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in files)
    for path in files:
        begins = {".png": b"\x89PNG", ".svg": b"<?xml", ".md": b"# ", ".csv": b"agent" if name != "claims" else b"the "}
        assert path.read_bytes().startswith(begins[path.suffix])


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_every_target_has_a_figure_or_a_table_with_rows(target, made):
    figure, table = made[target.name]
    assert (figure is not None) == (target in FIGURES)
    assert table is None or all(len(row) == len(table.heads) for row in table.rows)
    assert (table is not None and len(table.rows) > 0) or target.name in {"framework", "environments"}


def test_an_error_bar_is_one_standard_error_and_the_figure_says_so(figures, study):
    axes = panels(figures["attacks-bare"])[0]
    assert axes.get_title().startswith(UNITS["cartpole-5"].title)
    bars = [segment for box in axes.containers[0].lines[2] for segment in box.get_segments()]
    half = [(top - bottom) / 2 for (_, bottom), (_, top) in bars]
    assert half[1:] == pytest.approx(study.attack(study.bare("cartpole-5"))["curve_sem"])
    said = " ".join(text.get_text() for text in figures["attacks-bare"].legends[0].get_texts())
    assert "± one standard error" in said


@pytest.mark.parametrize("target", FIGURES, ids=lambda target: target.name)
def test_without_numbers_a_panel_says_so(target, tmp_path):
    figure, table = MAKERS[target.name](Study(tmp_path, ()), target.tasks)
    if target.needs:
        assert "no " in texts(figure)
        assert table is None or not table.rows


@pytest.mark.parametrize("target", [one for one in TARGETS if one not in FIGURES], ids=lambda target: target.name)
def test_without_numbers_a_table_says_so(target, tmp_path):
    write_published(tmp_path)
    _, table = MAKERS[target.name](Study(tmp_path, ()), target.tasks)
    assert isinstance(table, Table)
    assert all(len(row) == len(table.heads) for row in table.rows)


def test_tables_hold_what_certify_says_rounded_down(study):
    _, table = MAKERS["certificates"](study, ("cartpole-5",))
    agent = study.smoothed("cartpole-5")[0]
    expected = certify(study.record(agent), budgets_of(TASKS["cartpole-5"]), 0.95, "per-threshold").lower[::2]
    (row,) = [row for row in table.rows if row[0] == f"`{agent.name}`"]
    assert row[2] == "`per-threshold`\u00a0(paper)"
    assert row[4:] == [format_lower(value, 1) for value in expected]


@pytest.mark.parametrize(("task", "method"), [("freeway", "dkw"), ("pong-full", "dkw"), ("pong-1r", "binary")])
def test_the_papers_method_is_the_papers_and_nothing_certified_exceeds_the_most(study, task, method):
    _, table = MAKERS["certificates"](study, (task,))
    paper, default, most = table.rows[1:4]
    assert paper[2] == f"`{method}`\u00a0(paper)"
    assert most[2] == "*best achievable*"
    for one, limit in zip((*paper[4:9], *default[4:9]), most[4:9] * 2, strict=True):
        assert float(one) <= float(limit)


def test_the_most_of_ten_thousand_episodes_is_what_the_theory_says(tmp_path):
    """A perfect agent of 200 steps, the paper's method, budgets of one to five sigmas."""
    agents = [agent for agent in agents_of(("cartpole-5",)) if agent.sigma == 0.2]
    write_episodes(tmp_path, agents[0], returns_of("cartpole-5", 0.5, 10_000))
    most = Study(tmp_path, tuple(agents)).most(agents[0])
    found = [most.at(0.2 * ratio).lower for ratio in (1, 2, 3, 4, 5)]
    assert found == pytest.approx([196.8, 174.8, 111.6, 39.3, 6.4], abs=0.06)


def test_attack_curves_begin_with_unattacked_play(study):
    agent = study.bare("cartpole-5")
    budgets, means, errors = attack_curve(study, agent, study.attack(agent))
    assert budgets == [0, 0.25, 0.5]
    assert means[0] == pytest.approx(study.record(agent).returns.mean())
    assert errors[0] > 0
    assert means[1:] == [value("cartpole-5", 0.2)] * 2


def test_one_lambda_is_its_own_column(study):
    agent = study.bare("cartpole-5")
    low, high = (attack_curve(study, agent, study.attack(agent), column)[1][1:] for column in (0, 1))
    assert [b - a for a, b in zip(low, high, strict=True)] == pytest.approx([2, 2])


# Claims: each verdict turns when the numbers do.


@pytest.mark.parametrize(("attacked", "verdict"), [(0.01, "yes, at B = 0.25, 0.5"), (0.99, "no")])
def test_a_certificate_above_the_attacked_bare_agent_is_not_vacuous(tmp_path, attacked, verdict):
    study = made_up(tmp_path, Made(bare_attacked=attacked), ("cartpole-5",))
    assert claims.non_vacuous(study, "cartpole-5").verdict.startswith(verdict)


def test_a_claim_that_holds_at_some_budgets_is_reproduced_in_part(tmp_path):
    study = made_up(tmp_path, Made(bare_attacked=0.01), ("cartpole-5",))
    path = tmp_path / "attacks" / "cartpole-5-s0-paper.json"
    found = read_json(path)
    write_json(path, {**found, "curve": [found["curve"][0], 199.0]})
    verdict = claims.non_vacuous(Study(study.folder, study.agents), "cartpole-5").verdict
    assert verdict.startswith("yes, at B = 0.25; no, at B = 0.5")
    assert documentation.marked(verdict).startswith("partly: yes")


def test_the_strongest_attack_is_the_lowest_of_those_within_a_budget(study, monkeypatch):
    """Planted: one with more budget than that is no attack with it, and one on other weights is none at all."""
    agent = study.bare("cartpole-5")
    cells = []
    for budget, mean in ((0.1, 30.0), (0.4, 20.0), (0.6, 0.0)):
        cells.append(
            Cell(
                agent=agent.name,
                budget=budget,
                lower=None,
                mean=mean,
                sem=0.5,
                method="learned",
                episodes=64,
                before=None,
            )
        )
    monkeypatch.setattr(claims, "cells", lambda name: cells)
    monkeypatch.setattr(claims, "load_card", lambda name: {"sha256": agent.sha256})
    found = claims.strongest(study, agent)
    assert found["budgets"] == [0.25, 0.5]
    assert found["curve"] == (30.0, 20.0)
    assert found["sizes"] == (64, 64)
    assert "20.0 ± 0.5" in claims.effective(study, "cartpole-5", claims.strongest).measured
    monkeypatch.setattr(claims, "load_card", lambda name: {"sha256": "others"})
    assert list(claims.strongest(study, agent)["curve"]) == study.attack(agent)["curve"]


def test_episodes_that_all_ended_alike_leave_doubt():
    assert claims.doubt(0.0, 1_000, "pong-1r") == pytest.approx(0.003)
    assert claims.doubt(0.0, 2, "pong-1r") > 1
    assert claims.doubt(0.5, 1_000, "cartpole-5") == 1.0


@pytest.mark.parametrize(("attacked", "verdict"), [(0.9, "yes"), (0.0, "no: at B = ")])
def test_an_attack_below_the_bound_is_noticed(tmp_path, attacked, verdict):
    study = made_up(tmp_path, Made(smoothed_attacked=attacked), ("cartpole-5",))
    assert claims.above_bound(study, "cartpole-5").verdict.startswith(verdict)


def test_a_mean_above_its_bound_by_less_than_its_doubt_proves_nothing(tmp_path):
    study = made_up(tmp_path, Made(smoothed_attacked=0.9), ("cartpole-5",))
    agent = study.smoothed("cartpole-5")[0]
    path = tmp_path / "attacks" / f"{agent.name}-paper.json"
    found = read_json(path)
    write_json(path, {**found, "sem": [[found["sem"][0][0]] * 2, [500.0] * 2]})
    verdict = claims.above_bound(Study(study.folder, study.agents), "cartpole-5").verdict
    assert verdict == f"yes; too few episodes to tell at sigma {agent.sigma:g}, B = 0.5"
    assert documentation.marked(verdict).startswith("partly: yes")


def test_point_wise_limits_are_compared_with_dkw(study):
    assert claims.point_wise_better(study, "cartpole-5").verdict == "yes"


@pytest.mark.parametrize(("five", "one", "verdict"), [(0.1, 0.5, "yes"), (0.5, 0.1, "no")])
def test_which_bare_agent_is_more_vulnerable(tmp_path, five, one, verdict):
    study = made_up(tmp_path, Made(), EVERY[:2])
    for task, share in (("cartpole-5", five), ("cartpole-1", one)):
        write_attack(tmp_path, study.bare(task), share)
    assert claims.more_vulnerable(study, "cartpole-1").verdict == verdict


def test_what_is_not_measured_is_not_claimed(tmp_path):
    table = claims.claims(Study(tmp_path, ()), EVERY)
    assert {row[-1] for row in table.rows} == {claims.UNMEASURED}
    assert {row[2] for row in table.rows} == {UNITS[task].title for task in EVERY}


@pytest.mark.parametrize(
    ("attacked", "verdict"),
    [(0.1, "yes, at B = 0.25, 0.5"), (0.8, "hardly, at B = 0.25, 0.5"), (0.95, "no, at B = 0.25, 0.5")],
)
def test_an_attack_is_effective_if_it_takes_half_of_what_can_be_taken(tmp_path, attacked, verdict):
    study = made_up(tmp_path, Made(bare_attacked=attacked), ("cartpole-5",))
    finding = claims.effective(study, "cartpole-5")
    assert finding.verdict == verdict
    assert "open-loop baseline 40.8" in finding.measured


def test_where_an_open_loop_policy_is_as_good_an_attack_counts_down_to_the_floor(tmp_path):
    study = made_up(tmp_path, Made(bare_attacked=0.3), ("mountain-car",))
    assert claims.effective(study, "mountain-car").verdict.startswith("yes")


def test_the_table_of_a_claim_has_the_best_bound_and_the_attacked_mean_of_every_budget(study):
    table, attack = claims.non_vacuous(study, "cartpole-5").numbers, study.attack(study.bare("cartpole-5"))
    assert table.heads[1:] == [f"B = {budget:g}" for budget in attack["budgets"]]
    for place, budget in enumerate(attack["budgets"], 1):
        bounds = {f"{one.sigma:g}": study.certificate(one).at(budget).lower for one in study.smoothed("cartpole-5")}
        bound, sigma, mean = (row[place] for row in table.rows)
        assert bound == format_lower(max(bounds.values()), 1)
        assert bounds[sigma] == max(bounds.values())
        assert mean.startswith(f"{attack['curve'][place - 1]:.1f} ± ")


def serial(folder, round_share, game_share):
    """Return a study in which rounds and games keep these shares at budgets 0.1 and 0.2; unattacked they keep .9."""
    study = made_up(folder, Made(episodes=4_000), ("pong-1r", "pong-full"))
    write_attack(folder, study.bare("pong-1r"), round_share)
    write_attack(folder, study.bare("pong-full"), game_share)
    return study


def test_the_budget_of_a_whole_game_is_held_against_that_of_a_round(tmp_path):
    study = serial(tmp_path / "kept", 0.0, 0.89)
    finding = serial_games.root_law(study, "pong-full")
    assert finding.verdict == (
        "not contradicted: no game is even up to B = 0.2 = 4.0 b; the law asks for 4.6 to 6.4 b; the root not shown"
    )
    assert "half of that at b = 0.050" in finding.measured
    assert "of 21 to 41 rounds, at 0.23 to 0.32" in finding.measured
    assert "3.6 goals lost at B = 0.2 if that is spread over 4 rounds" in finding.measured
    ruined = serial_games.root_law(serial(tmp_path / "ruined", 0.0, 0.1), "pong-full")
    assert ruined.verdict == "no: even at 1.0 b; the law asks for 4.6 to 6.4 b"
    assert serial_games.root_law(serial(tmp_path / "safe", 0.8, 0.8), "pong-full").verdict == "not measured far enough"


def test_rounds_and_games_of_one_agent_are_compared(tmp_path):
    study = made_up(tmp_path, Made(episodes=4_000), ("pong-1r", "pong-full"))
    rows = [
        ("pong-1r", 0.0, [1, 1]),
        ("pong-1r", 1.0, [1, 0]),
        ("pong-full", 2.0, [20, 10]),
        ("pong-full", 6.0, [-9, 3]),
    ]
    made = [{"task": task, "budget": budget, "returns": returns} for task, budget, returns in rows]
    facts = {"agent": "pong-full-s0", "agent_sha256": study.bare("pong-full").sha256}
    (tmp_path / "serial.json").write_text(json.dumps({**facts, "rows": made}))
    finding = serial_games.root_law_of_one_agent(study, "pong-full")
    assert "half of that at b = 1.000" in finding.measured
    assert "15.0 ± 5.0 at B = 2, -3.0 ± 6.0 at B = 6" in finding.in_words()
    assert finding.numbers.heads == ["", "B = 0", "B = 1", "B = 2", "B = 6"]
    assert finding.numbers.rows[0][1:] == ["1.000 ± 0.000", "0.500 ± 0.500", "", ""]
    assert finding.verdict == "yes: even at 5.3 b; the law asks for 4.6 to 6.4 b"
    assert study.stale() == []
    (tmp_path / "serial.json").write_text(json.dumps({**facts, "agent_sha256": "other", "rows": made}))
    assert Study(tmp_path, study.agents).stale() == ["rounds and games of pong-full-s0"]


def test_a_budget_is_interpolated_between_those_that_were_measured():
    assert serial_games.falls_to(0.5, [0.0, 0.1, 0.2], [1.0, 0.8, 0.3]) == pytest.approx(0.16)
    assert serial_games.falls_to(0.2, [0.0, 0.1, 0.2], [1.0, 0.8, 0.3]) is None
    goals, rounds = serial_games.spread_best(0.4, [0.0, 0.1, 0.2], [1.0, 0.9, 0.2])
    assert (goals, rounds) == (pytest.approx(3.2), 4)
    assert serial_games.spread_best(4.0, [0.0, 0.1], [1.0, 0.9]) == (pytest.approx(2.1), 21), (
        "a game has no more rounds"
    )


# Full Pong: which loses more, the theorem or the band, and what one budget for 21 rounds is worth.


def whole_games(folder, won=0.95, count=10_000):
    """Leave games with mean 17 and spread 3, and rounds won with probability ``won``."""
    agents = [agent for agent in agents_of(("pong-1r", "pong-full")) if agent.sigma == 0.05]
    random = np.random.default_rng(1)
    games = np.clip(np.round(17 + 3 * random.standard_normal(count)), -21, 21)
    rounds = (np.arange(count) < won * count).astype(float)
    for agent, returns in zip(agents, (rounds, games), strict=True):
        write_episodes(folder, agent, returns)
    return Study(folder, tuple(agents))


def test_the_ways_to_certify_a_whole_game_rank_as_the_theory_says(tmp_path):
    found = {way.name: float(way.lower([0.1])[0]) for way in pong.ways(whole_games(tmp_path), 0.05)}
    assert list(found) == [
        "DKW",
        "per threshold",
        "T3, by betting",
        "21 rounds, one budget: T5",
        "21 rounds, B for each: T1",
    ]
    assert found["DKW"] == pytest.approx(-1.6, abs=0.4)
    assert found["DKW"] < found["per threshold"] < found["T3, by betting"] < 10.9


def test_one_budget_for_all_rounds_is_worth_much_more_than_one_for_each(tmp_path):
    """Rounds won with .95 and four sigmas: by T1 about .009 a round, by T5 about .67, less what 10,000 rounds cost."""
    found = {way.name: float(way.lower([0.2])[0]) for way in pong.ways(whole_games(tmp_path), 0.05)}
    together, each = ((found[name] / 21 + 1) / 2 for name in list(found)[3:])
    assert each == pytest.approx(0.009, abs=0.002)
    assert 0.63 < together < 0.67


def test_whole_games_without_rounds_or_a_bare_agent_are_judged_as_far_as_they_go(tmp_path):
    study = whole_games(tmp_path, count=500)
    assert claims.full_pong_vacuous(study, "pong-full").verdict == "undefended agent not attacked yet"
    alone = Study(tmp_path, study.agents[1:])
    assert [way.name for way in pong.ways(alone, 0.05)] == ["DKW", "per threshold", "T3, by betting"]


@pytest.mark.parametrize(
    ("share", "words"), [(0.0, "vacuous by no method"), (1.0, "nowhere above the undefended agent by any method")]
)
def test_a_whole_game_is_vacuous_where_the_bare_agent_keeps_more(tmp_path, share, words):
    study = made_up(tmp_path, Made(clean=0.97, episodes=200), ("pong-1r", "pong-full"))
    write_attack(tmp_path, study.bare("pong-full"), share)
    assert words in claims.full_pong_vacuous(study, "pong-full").verdict


# The data.


def test_numbers_of_other_weights_are_called_stale(study, tmp_path):
    assert study.stale() == []
    agents = agents_of(("cartpole-5",))
    made_up(tmp_path, Made(), ("cartpole-5",))
    other = tuple(type(agent)(agent.name, agent.task, agent.sigma, "other", agent.card) for agent in agents)
    found = Study(tmp_path, other).stale()
    assert found[:2] == ["episodes of cartpole-5-s0", "attacks on cartpole-5-s0"]
    assert "times of cartpole-5-s0.4" in found


def test_a_file_that_says_too_little_is_refused(tmp_path):
    study = made_up(tmp_path, Made(episodes=20), ("cartpole-1",))
    (tmp_path / "attacks" / "cartpole-1-s0-paper.json").write_text('{"budgets": [1]}')
    with pytest.raises(
        InputError, match=r"cartpole-1-s0-paper.json does not say its agent_sha256, n_episodes, lambdas"
    ):
        study.attack(study.bare("cartpole-1"))


def test_a_run_that_was_resumed_has_no_time_until_other_episodes_are_timed(tmp_path):
    study = made_up(tmp_path, Made(episodes=20), ("cartpole-1",))
    path = tmp_path / "episodes" / "cartpole-1-s0.2.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "seconds": None}))
    _, table = MAKERS["evaluation-times"](study, ("cartpole-1",))
    assert table.rows[0][3:5] == ["not measured: the run was resumed", "0.2"]
    row = {**study.times()[-1], "agent": "cartpole-1-s0.2", "n_episodes": 8, "seconds": 4.0}
    write_times([row], Place(tmp_path, tmp_path), "episodes")
    again = Study(tmp_path, study.agents)
    assert again.times() == study.times()
    _, table = MAKERS["evaluation-times"](again, ("cartpole-1",))
    assert table.rows[0][3:5] == ["0.5", "0.2"]
    assert table.rows[0][-1] == "1 core (8 episodes), 2 cores (20 episodes)"


def test_the_fingerprint_changes_with_any_number(tmp_path):
    study = made_up(tmp_path, Made(episodes=20), ("cartpole-1",))
    before = fingerprint(study)
    write_attack(tmp_path, study.bare("cartpole-1"), 0.3)
    assert fingerprint(study) != before
    assert fingerprint(Study(tmp_path, ())) != fingerprint(study)


def test_a_lent_agent_shows_no_training_of_another_task(tmp_path):
    own, lent = agents_of(("pong-full",))[:2]
    there = {"trained_on": "pong-1r"}
    candidates = [{**one, **there} for one in lent.card["candidates"]]
    card = {**lent.card, "training": {**lent.card["training"], **there}, "candidates": candidates}
    study = Study(tmp_path, (own, replace(lent, card=card)))
    assert study.trainings(study.agents[0])
    assert study.trainings(study.agents[1]) == []
    alone = Study(tmp_path, study.agents[1:])
    assert "agents trained on pong-1r" in texts(MAKERS["training"](alone, ("pong-full",))[0])


def test_trainings_of_the_folder_replace_those_of_the_cards(tmp_path, monkeypatch):
    monkeypatch.setattr("study.numbers.shipped_agents", lambda: agents_of(("cartpole-1",)))
    (tmp_path / "training").mkdir()
    run = {"name": "freeway-s0.1", "task": "freeway", "sigma": 0.1, "curve": CURVE, "seconds": 3.0, "device": "cpu"}
    (tmp_path / "training" / "freeway-s0.1.json").write_text(json.dumps({**run, "training": {"settings": {}}}))
    study = open_study(tmp_path, trained=True)
    assert [len(study.trainings(agent)) for agent in study.agents] == [0, 0, 0, 1]
    assert [len(open_study(tmp_path).trainings(agent)) for agent in open_study(tmp_path).agents] == [2, 2, 2]
    figure, table = MAKERS["training"](study, ("freeway", "cartpole-1"))
    assert [row[0] for row in table.rows] == ["`freeway-s0.1`"]
    assert "no training yet" in texts(figure)


# The command.


def test_the_command_draws_from_a_folder_of_numbers(study, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("study.numbers.shipped_agents", lambda: study.agents)
    assert main(["rotation", "--data", str(study.folder), "--out", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer["made"]) == {"rotation"}
    assert (tmp_path / "rotation.png").is_file()
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'src="rotation.svg"' in page
    assert "along the first coordinate" in page
    assert json.loads((tmp_path / "index.json").read_text())["data_sha256"] == fingerprint(study)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["figure-9"], "unknown figure, table or task 'figure-9'; there are all, toy, framework, environments, cert"),
        (["all", "--data", "nowhere"], "no directory nowhere"),
        (["toy", "--quick", "--data", "."], "--data names committed numbers; --quick measures its own"),
        (["toy", "--quick", "--full"], "not allowed with argument"),
        (["toy", "--quick", "--workers", "0"], "workers must be at least 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(given, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*given]) == 2
    errors = capsys.readouterr().err
    assert words in errors
    assert errors.count("\n") == 1


def test_stale_numbers_are_told(tmp_path, monkeypatch, capsys):
    agents = made_up(tmp_path / "data", Made(episodes=50), ("cartpole-1",)).agents
    other = tuple(type(agent)(agent.name, agent.task, agent.sigma, "other", agent.card) for agent in agents)
    monkeypatch.setattr("study.numbers.shipped_agents", lambda: other)
    call = ["attack-times", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    assert main(call) == 0
    assert "other weights than those in the zoo: episodes of cartpole-1-s0," in capsys.readouterr().err
    assert "Measured on other weights" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")


def test_a_page_escapes_what_it_shows(study, tmp_path):
    made = draw(study, find_target("attack-times"), EVERY, tmp_path)
    bad = type(made)(made.target, made.files, Table(["<b>"], [["<script>"]]), 0.0)
    write_index(study, [bad], tmp_path, "<i>")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
