"""Single training runs of CartPole: measured once each, and the page says what was measured."""

import numpy as np
import pytest

from study import paper_preset
from study.agents_table import ROOT
from surefoot.agents.files import load_card
from surefoot.episodes import Episodes
from surefoot.train.folder import copy_agent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """Return a folder with what was measured of two training runs, one with noise; a few episodes count as many."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("cartpole-5-s0", "cartpole-5-s0.8"):
        copy_agent(name, folder / name / "agent", name)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("FOLDER", folder / "data"), ("CERTIFIED", 50), ("ATTACKED", 3)):
            patch.setattr(paper_preset, name, value)
        patch.setattr("sys.argv", ["paper_preset", "--run", str(folder)])
        paper_preset.main()
    return folder


@pytest.fixture
def there(measured, monkeypatch):
    monkeypatch.setattr(paper_preset, "FOLDER", measured / "data")
    return measured / "data"


def test_agents_with_noise_are_run_and_those_without_attacked(there):
    (smoothed,) = paper_preset.runs("cartpole-5", noise=True)
    record = Episodes.load(there / f"cartpole-5-s0.8-seed{smoothed['seed']}.npz")
    assert (len(record), record.sigma, record.sha256) == (50, 0.8, smoothed["record_sha256"])
    (bare,) = paper_preset.runs("cartpole-5", noise=False)
    attack = bare["attack"]
    assert (attack["episodes"], attack["budgets"], attack["lambdas"][0]) == (3, [0.2, 0.4, 0.6, 0.8, 1.0], 0.0)
    assert attack["curve"][-1] < 100
    assert bare["agent_sha256"] == load_card("cartpole-5-s0")["sha256"]
    rows = paper_preset.certificates().splitlines()[2:]
    assert [row.split("|")[3].strip() for row in rows] == ["one run", "best of 6"]
    assert len(paper_preset.undefended().splitlines()) == 3


def test_what_was_measured_is_not_measured_again(measured, there, monkeypatch):
    before = {path: path.stat().st_mtime_ns for path in there.iterdir()}
    monkeypatch.setattr("sys.argv", ["paper_preset", "--run", str(measured)])
    paper_preset.main()
    assert {path: path.stat().st_mtime_ns for path in there.iterdir()} == before


def test_episodes_that_were_exchanged_are_noticed(there, tmp_path, monkeypatch):
    for path in there.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(paper_preset, "FOLDER", tmp_path)
    paper_preset.certificates()
    (path,) = tmp_path.glob("*.npz")
    Episodes.load(path)[:40].save(path)
    with pytest.raises(AssertionError):
        paper_preset.certificates()


def test_the_page_says_what_the_committed_runs_certify_and_keep():
    page = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    assert paper_preset.certificates() in page
    assert paper_preset.undefended() in page


def test_every_committed_run_is_of_the_papers_preset():
    found = [one for task in paper_preset.TASKS for noise in (True, False) for one in paper_preset.runs(task, noise)]
    assert {one["preset"] for one in found} == {"paper"}
    for one in (one for one in found if one["sigma"] == 0):
        assert np.array_equal(one["attack"]["curve"], np.min(one["attack"]["mean"], axis=1))
