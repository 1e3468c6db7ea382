"""Training runs of CartPole with the paper's settings: each attacked once, and the page says what came of them."""

import numpy as np
import pytest

from study import paper_preset
from study.agents_table import ROOT
from surefoot.agents.files import load_card
from surefoot.train.folder import copy_agent

pytestmark = pytest.mark.slow
FEW = {"TASKS": ("cartpole-5",), "CARTPOLE_BUDGETS": (1.0,)}


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return a folder of a training run without and one with noise, measured; a few episodes count as many."""
    folder = tmp_path_factory.mktemp("runs")
    card = load_card("cartpole-5-s0")
    for name, seed in (("cartpole-5-s0", 7), ("cartpole-5-s0.8", 7)):
        training = {**load_card(name)["training"], "seed": seed}
        copy_agent(name, folder / f"{name}-paper-seed{seed}" / "agent", name, training=training)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**FEW, "FOLDER": folder / "data", "EPISODES": 2, "CERTIFIED": 50}.items():
            patch.setattr(paper_preset, name, value)
        patch.setattr(paper_preset, "load_card", lambda agent: {**load_card(agent), "sha256": agent})
        patch.setattr("surefoot.attacks.value_gaps.QUANTILES", (0.75,))  # two lambdas instead of four
        patch.setattr("sys.argv", ["paper_preset", "--run", str(folder)])
        paper_preset.main()
    return folder, card


@pytest.fixture
def there(measured, monkeypatch):
    """Return the same with the script pointed at it."""
    for name, value in {**FEW, "FOLDER": measured[0] / "data"}.items():
        monkeypatch.setattr(paper_preset, name, value)
    return measured


def test_every_undefended_run_is_attacked(there):
    _, card = there
    own, other = paper_preset.runs("cartpole-5")
    assert (own["seed"], other["seed"], own["steps"]) == (card["training"]["seed"], 7, card["training"]["steps"])
    assert own["attack"] == other["attack"]  # the same weights
    attack = own["attack"]
    assert (attack["n_episodes"], attack["budgets"], attack["lambdas"][0]) == (2, [1.0], 0.0)
    assert attack["curve"][-1] < 100
    assert len(paper_preset.undefended().splitlines()) == 2 + 2


def test_a_run_with_noise_is_certified(there):
    (one,) = paper_preset.runs("cartpole-5", "0.8")
    found = one["certificate"]
    assert (found["n_episodes"], found["method"], found["budgets"]) == (50, "per-threshold", [1.0])
    assert 0 <= found["lower"][0] < found["mean"]
    assert one["curve"] == load_card("cartpole-5-s0.8")["curve"]


def test_what_was_measured_is_not_measured_again(there, monkeypatch):
    folder, _ = there
    monkeypatch.setattr(paper_preset, "load_card", lambda agent: {**load_card(agent), "sha256": agent})
    monkeypatch.setattr(paper_preset, "measure", lambda agent: pytest.fail(f"{agent} is measured again"))
    monkeypatch.setattr("sys.argv", ["paper_preset", "--run", str(folder)])
    paper_preset.main()


def test_the_page_says_what_the_committed_runs_certify_and_keep():
    page = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    assert paper_preset.selected() in page
    assert paper_preset.undefended() in page
    assert paper_preset.mountain_car() in page
    assert len(paper_preset.mountain_car().splitlines()) > 3
    (car,) = paper_preset.runs("mountain-car", "0.4")
    perfect = [f"{step:,}" for step, mean in car["curve"] if mean == 1]
    words = " ".join(page.split())
    assert f"Two of its {len(car['curve'])} validations" in words
    assert f"were perfect, at {perfect[0]} and at {perfect[1]} steps" in words
    assert len(perfect) == 2


def test_every_committed_run_has_the_papers_settings():
    for task in paper_preset.TASKS:
        found = paper_preset.runs(task)
        assert len(found) >= 3
        assert {one["preset"] for one in found} == {"paper"}
        assert load_card(f"{task}-s0")["sha256"] in {one["agent_sha256"] for one in found}
        for one in found:
            assert np.array_equal(one["attack"]["curve"], np.min(one["attack"]["mean"], axis=1))
