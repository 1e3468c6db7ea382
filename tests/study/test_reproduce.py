"""Numbers measured end to end, small but real; and the committed ones are whole and of the shipped weights."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scripts import load_script
from study.__main__ import main
from study.measure import Place, attack_agent, play_episodes, timed_agents, unattacked, write_times
from study.numbers import Study, fingerprint, open_study, shipped_agents
from study.paper import TARGETS
from study.serial import serial
from study.sizes import AttackSize, Sizes, full, quick
from surefoot.compute import processor_kind
from surefoot.episodes import Episodes
from surefoot.files import read_arrays, read_json
from surefoot.noise import Noise
from surefoot.play.loop import play_block
from surefoot.play.tasks import TASKS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
STUDY = open_study(ROOT / "study" / "data")
PAGE = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
TASK = "cartpole-1"
RECORDED_ON = "AMD EPYC family 25 model 17, AVX512"  # the CartPole records of the study, which do not say it themselves


def tiny(task):
    """Return sizes for seconds."""
    cells = AttackSize((0.05, 0.1), (0.0, 0.1), 4, draws=2)
    training = replace(quick(task).training, total_steps=600, validation_interval=300, gradient_steps=2)
    return Sizes(40, cells, replace(cells, episodes=2), (4, 2), training)


@pytest.fixture
def two_agents(monkeypatch):
    found = tuple(agent for agent in shipped_agents() if agent.name in {"cartpole-1-s0", "cartpole-1-s0.2"})
    monkeypatch.setattr("study.numbers.shipped_agents", lambda: found)
    monkeypatch.setattr("study.sizes.quick", tiny)
    return found


def test_a_task_is_measured_and_drawn_in_one_command(two_agents, tmp_path, capsys):
    pytest.importorskip("stable_baselines3")
    call = [TASK, "--quick", "--out", str(tmp_path), "--workers", "1", "--device", "cpu", "--json"]
    assert main(call) == 0
    made = json.loads(capsys.readouterr().out)["made"]
    assert set(made) == {target.name for target in TARGETS if TASK in target.tasks}
    for agent in two_agents:
        assert len(read_arrays(tmp_path / "data" / "episodes" / f"{agent.name}.npz")["returns"]) == 40
        attack = read_json(tmp_path / "data" / "attacks" / f"{agent.name}-paper.json")
        assert (attack["budgets"], attack["agent_sha256"]) == ([0.05, 0.1], agent.sha256)
        curve = read_json(tmp_path / "data" / "training" / f"{agent.name}.json")["curve"]
        assert [step for step, _ in curve] == [300, 600]
    times = read_json(tmp_path / "data" / "times.json")["attacks"]
    assert [(row["sigma"], row["budget"]) for row in times] == [(0, 0.05), (0, 0.1), (0.2, 0.05), (0.2, 0.1)]
    assert all(row["seconds"] > 0 for row in times)
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "made for this page; do not compare them with the paper" in page


def test_the_same_command_again_plays_nothing(two_agents, tmp_path):
    place = Place(tmp_path / "data", tmp_path / "work")
    for _ in range(2):
        play_episodes(two_agents[1], 40, place)
    facts = read_json(tmp_path / "data" / "episodes" / "cartpole-1-s0.2.json")
    assert facts["seconds"] > 0
    assert facts["command"] == "surefoot certify cartpole-1 --agent cartpole-1-s0.2 --sigma 0.2 --episodes 40"
    lines = [attack_agent(two_agents[0], tiny(TASK).bare, place) for _ in range(2)]
    assert lines[0] == lines[1]


def test_blocks_of_another_size_are_named_in_the_command_that_runs_the_same(two_agents, tmp_path):
    place = Place(tmp_path / "data", tmp_path / "work")
    play_episodes(two_agents[1], 40, place, (5, 4))
    kept = Episodes.load(tmp_path / "data" / "episodes" / "cartpole-1-s0.2.npz")
    assert (kept.metadata["n_envs"], kept.metadata["block_size"]) == (5, 20)
    facts = read_json(tmp_path / "data" / "episodes" / "cartpole-1-s0.2.json")
    assert facts["command"].endswith("--agents cartpole-1-s0.2 --episodes 40 --block 5 4 --device cpu")
    # A block depends on its number, not on how many there are: the first two are all of a run of 40.
    longer = unattacked(two_agents[1], 60, "cpu", (5, 4))
    blocks = [play_block(longer, index).returns for index in (0, 1)]
    assert np.array_equal(np.concatenate(blocks), kept.returns)


def test_times_of_other_agents_stay(tmp_path):
    place = Place(tmp_path, tmp_path)
    rows = [
        {"task": "a", "agent": name, "sigma": 0.0, "budget": 0.1, "seconds": seconds}
        for name, seconds in (("one", 1.0), ("two", 2.0))
    ]
    write_times(rows, place)
    write_times([{**rows[0], "seconds": 9.0}], place)
    assert [row["seconds"] for row in read_json(tmp_path / "times.json")["attacks"]] == [2.0, 9.0]


def test_the_times_are_those_of_the_bare_agent_and_of_the_least_noise():
    found = {agent.name for agent in timed_agents(shipped_agents())}
    assert {"cartpole-5-s0", "cartpole-5-s0.2", "mountain-car-s0"} <= found
    assert "cartpole-5-s0.4" not in found


@pytest.mark.parametrize("task", ["cartpole-5", "mountain-car", "pong-1r", "pong-full", "freeway"])
def test_small_sizes_are_smaller_and_full_ones_the_papers(task):
    small, large = quick(task), full(task)
    assert large.episodes == 10_000
    assert large.bare.episodes == large.smoothed.episodes == (250 if task == "mountain-car" else 1_000)
    assert large.smoothed.draws == 128
    assert small.episodes < large.episodes
    assert small.training.total_steps < large.training.total_steps
    assert set(small.bare.lambdas) <= set(large.bare.lambdas)


# The scripts next to the committed numbers.


def test_what_is_missing_or_stale_is_to_be_renewed(two_agents, tmp_path):
    renew = load_script("study/renew.py")
    bare, smoothed = two_agents
    study = Study(tmp_path, two_agents)
    assert renew.wanting(study, ["freeway"]) == {"episodes": [], "attacks": [], "times": [], "episode-times": []}
    assert renew.wanting(study, None) == {
        "episodes": [bare, smoothed],
        "attacks": [bare, smoothed],
        "times": [bare, smoothed],
        "episode-times": [],
    }
    renew.renew("episodes", [bare, smoothed], Place(tmp_path, tmp_path / "work"), episodes=5)
    path = tmp_path / "episodes" / f"{smoothed.name}.json"
    path.write_text(json.dumps({**read_json(path), "seconds": None}))  # as of a run that was resumed
    assert renew.wanting(Study(tmp_path, two_agents), None)["episode-times"] == [smoothed]
    renew.renew("episode-times", [smoothed], Place(tmp_path, tmp_path / "work"), episodes=5)
    assert Study(tmp_path, two_agents).timed(smoothed)["seconds"] > 0
    assert renew.wanting(Study(tmp_path, two_agents), None)["episode-times"] == []
    retrained = replace(smoothed, sha256="other weights")
    assert renew.wanting(Study(tmp_path, (bare, retrained)), None)["episodes"] == [retrained]
    assert renew.wanting(Study(tmp_path, two_agents), None)["episodes"] == []


def test_rounds_and_games_are_measured_by_the_script(tmp_path):
    pytest.importorskip("ale_py")
    serial(tmp_path, tmp_path / "runs", jobs=1, grid=(("pong-1r", 0.0, 2), ("pong-1r", 0.02, 1)))
    made = read_json(tmp_path / "serial.json")
    assert [(row["task"], row["budget"], len(row["returns"])) for row in made["rows"]] == [
        ("pong-1r", 0.0, 2),
        ("pong-1r", 0.02, 1),
    ]
    assert set(made["rows"][0]["returns"]) <= {0.0, 1.0}


def test_attacks_are_measured_by_the_script_and_configurations_that_are_run_later_are_added(
    tmp_path, monkeypatch, capsys
):
    def call(*grid, out=tmp_path):
        places = ["--tasks", TASK, "--sigmas", "0", "--out", str(out), "--work", str(tmp_path / "work")]
        monkeypatch.setattr("sys.argv", ["attack_cells.py", *places, *grid])
        load_script("study/attack_cells.py").main()

    few = ["--budgets", "0.05", "--margins", "0", "0.1", "--episodes", "2"]
    many = ["--budgets", "0.05", "--margins", "0", "--episodes", "3"]
    call(*few)
    call(*many, out=tmp_path / "other")
    assert "cartpole-1-s0 paper: " in capsys.readouterr().out
    path, other = (place / "attacks" / "cartpole-1-s0-paper.json" for place in (tmp_path, tmp_path / "other"))
    before, longer = read_json(path), read_json(other)
    call(*many, "--add")
    found = read_json(path)
    assert (found["n_episodes"], found["n_episodes_of_cells"], found["lambdas"]) == (2, [[3, 2]], [0.0, 0.1])
    for key in ("mean", "sem", "mean_budget_used"):
        assert found[key] == [[pytest.approx(longer[key][0][0]), pytest.approx(before[key][0][1])]]
    assert found["did_not_attack"] == [[used < 0.01 * 0.05 for used in found["mean_budget_used"][0]]]
    assert found["curve"] == [min(found["mean"][0])]
    arrays = read_arrays(path.with_suffix(".npz"))
    assert {name: array.size for name, array in arrays.items() if name.endswith("returns")} == {
        "B0.05-lambda0.returns": 3,
        "B0.05-lambda0.1.returns": 2,
    }
    call(*few, "--add")
    assert read_json(path) == found, "a shorter run adds nothing"
    with pytest.raises(SystemExit, match=r"no configuration B0\.1-lambda0\.1"):
        call("--budgets", "0.1", "--margins", "0", "--episodes", "3", "--add")
    assert read_json(path) == found


def test_of_equal_means_the_lambda_named_before_stays_with_its_use_of_the_budget():
    same = dict.fromkeys(("task", "agent", "agent_sha256", "sigma", "method", "noise_samples", "seed"), 0)
    one = {
        **same,
        "lambdas": [0.001, 0.0001],
        "budgets": [0.5],
        "curve_lambda": [0.001],
        "budget_used_per_step": [[0.5]],
    }
    two = {**one, "budgets": [1.0], "budget_used_per_step": [[0.25, 0.75]]}
    arrays = {
        budget: {
            f"{budget}-lambda{margin}.{part}": np.ones(3)
            for margin in (0.001, 0.0001)
            for part in ("returns", "budget_used")
        }
        for budget in ("B0.5", "B1")
    }
    found, _ = load_script("study/attack_cells.py").joined(one, arrays["B0.5"], two, arrays["B1"])
    assert found["curve_lambda"] == [0.001, 0.001]
    assert found["budget_used_per_step"] == [[0.5], [0.25, 0.75]]


# The committed numbers.


def test_the_committed_numbers_are_of_the_shipped_weights():
    """Red after retraining until study/renew.py has been run, as CONTRIBUTING.md says."""
    assert STUDY.stale() == []


@pytest.mark.parametrize("agent", shipped_agents(), ids=lambda agent: agent.name)
def test_every_shipped_agent_has_its_episodes(agent):
    record, facts = STUDY.record(agent), STUDY.played(agent)
    assert len(record) == facts["n_episodes"]
    assert record.sha256 == facts["record_sha256"]
    assert (record.sigma, record.metadata["task"], record.attacked) == (agent.sigma, agent.task, False)
    assert record.metadata.get("binary", False) == TASKS[agent.task].scoring.binary


@pytest.mark.parametrize(
    "agent", [agent for agent in shipped_agents() if STUDY.attack(agent)], ids=lambda agent: agent.name
)
def test_attacked_means_are_those_of_the_episodes(agent):
    found, cells = STUDY.attack(agent), read_arrays(ROOT / "study" / "data" / "attacks" / f"{agent.name}-paper.npz")
    for row, budget in enumerate(found["budgets"]):
        for column, margin in enumerate(found["lambdas"]):
            cell = f"B{budget:g}-lambda{margin:g}"
            assert cells[f"{cell}.returns"].mean() == pytest.approx(found["mean"][row][column], abs=1e-9)
            assert cells[f"{cell}.budget_used"].max() <= budget + 1e-9
            sizes = found.get("n_episodes_of_cells")
            assert cells[f"{cell}.returns"].size == (sizes[row][column] if sizes else found["n_episodes"])
    assert found["n_episodes"] == min(array.size for array in cells.values())


def test_the_episodes_are_those_that_certify_plays():
    """The first block of a fresh run is the first block of the committed record, bit for bit where both have the same
    kind of processor. On another one last bits differ, and few episodes end otherwise; with another seed most do.
    """
    from surefoot.agents.files import load
    from surefoot.play.loop import play_block
    from surefoot.play.plan import Plan
    from surefoot.play.tasks import get_task

    agent = next(agent for agent in STUDY.agents if agent.name == "cartpole-5-s0.4")
    plan = Plan(task=get_task(agent.task), policy=load(agent.name), noise=Noise.of(agent.sigma))
    block = play_block(plan, 0)
    record = STUDY.record(agent)
    recorded = record.returns[: len(block)]
    if processor_kind("cpu") == RECORDED_ON:
        assert np.array_equal(block.returns, recorded)
    assert np.mean(block.returns != recorded) < 0.05
    other_seed = play_block(replace(plan, seed=plan.seed + 1), 0)
    assert np.mean(other_seed.returns != recorded) > 0.5


# What the documentation shows was drawn from them.


def test_the_documentation_was_made_from_the_committed_numbers():
    """Red after new numbers until study/documentation.py --write has been run."""
    made = read_json(ROOT / "docs" / "figures" / "study" / "made-from.json")
    assert made["data_sha256"] == fingerprint(STUDY)


def test_the_documentation_shows_every_figure_and_table():
    for target in TARGETS:
        assert f"python -m study {target.name}" in PAGE, target.name
        pages = PAGE + "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "tasks").glob("*.md"))
        if target.paper.startswith("Figure"):
            shown = set(re.findall(rf"figures/study/({target.name}(?:-[\w-]+)?\.svg)", pages))
            assert shown, target.name
            assert all((ROOT / "docs" / "figures" / "study" / name).is_file() for name in shown)
        elif target.name != "training-settings":
            assert re.search(rf"<!-- begin: {target.name} -->\n\n(\||\*\*)", PAGE), target.name
    for name in re.findall(r"figures/study/([\w-]+\.svg)", pages):
        assert (ROOT / "docs" / "figures" / "study" / name).is_file(), name


def test_the_tables_of_the_documentation_are_those_of_the_numbers():
    from study.documentation import by_claim
    from study.draw import MAKERS

    for target in TARGETS:
        if target.name in {"claims", "attack-settings", "training-times", "evaluation-times", "attack-times"}:
            _, table = MAKERS[target.name](STUDY, target.tasks)
            assert (by_claim(STUDY, target.tasks) if target.name == "claims" else table.markdown()) in PAGE, target.name
            assert "not measured" not in {cell for row in table.rows for cell in row}, "a reason belongs next to it"
