"""The leaderboard: entries are verified certificates, and a false one is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from study.entries import ENTRIES, NAME, read_entries, read_entry, refusals, row
from study.records import NUMBERS
from study.records_page import BUDGETS
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_json
from surefoot.play.tasks import get_task
from surefoot.proof.query import certify

QUICK = "mountain-car-gru-s1"


@pytest.fixture
def entry(tmp_path):
    """Return a copy of a true entry, to be made false."""
    return shutil.copytree(ENTRIES / QUICK, tmp_path / "false")


def change(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_every_entry_is_on_the_board_with_its_source_and_license():
    shown = {one["name"]: one for one in read_json(NUMBERS)["board"]}
    found = read_entries()
    assert len(found) >= 10
    assert {one.folder.name for one in found} == set(shown)
    for one in found:
        assert shown[one.folder.name] == row(one, BUDGETS[one.certificate.metadata["task"]])
        assert one.stated["license"]
        assert one.stated["source"]


def test_a_true_entry_is_accepted_after_a_rerun():
    assert refusals(read_entry(ENTRIES / QUICK), blocks=1, fresh=200) == []


def test_an_entry_that_was_not_rerun_is_refused():
    reasons = refusals(read_entry(ENTRIES / QUICK), blocks=0)
    assert reasons == ["replay: not asked for", "no fresh episodes were run"]


def test_an_entry_of_an_agent_that_nobody_has_is_refused(entry):
    """Invented returns of an unknown agent were accepted, because there was nothing to rerun."""
    episodes = Episodes.load(entry / "episodes.npz")
    metadata = {**episodes.metadata, "agent": "mine", "agent_sha256": "0" * 64}
    replace(episodes, metadata=metadata).save(entry / "episodes.npz")
    change(entry / "certificate.json", agent="mine", agent_sha256="0" * 64)
    for attack in entry.glob("attack*.json"):
        change(attack, agent_sha256="0" * 64)
    assert any("give its file, or code, with --agent" in reason for reason in refusals(read_entry(entry)))


def test_invented_returns_of_a_gpu_are_refused_by_fresh_episodes(tmp_path):
    """Nothing reruns a GPU's bits on this machine; fresh episodes show what the agent earns."""
    entry = shutil.copytree(ENTRIES / "cartpole-1-ppo-s0.4", tmp_path / "false")
    episodes = Episodes.load(entry / "episodes.npz")
    assert episodes.returns.mean() < 170
    n_envs, episodes_per_env = get_task("cartpole-1").blocks.on(torch.device("cuda"))
    metadata = {**episodes.metadata, "device": "cuda", "n_envs": n_envs, "block_size": n_envs * episodes_per_env}
    returns = np.where(np.arange(10_000) % 7, 200.0, 199.0)
    false = replace(episodes, returns=returns, lengths=returns.astype(int), metadata=metadata, processors=())
    false.save(entry / "episodes.npz")
    certify(false, [0.4, 1.0], 0.95).save(entry)
    reasons = refusals(read_entry(entry), fresh=500)
    assert any(reason.startswith("fresh episodes: 500 fresh episodes have a mean of") for reason in reasons), reasons
    if not torch.cuda.is_available():
        honest = replace(episodes, metadata=metadata, processors=())
        honest.save(entry / "episodes.npz")
        certify(honest, [0.4, 1.0], 0.95).save(entry)
        assert refusals(read_entry(entry), fresh=500) == []


def test_a_bound_of_another_agent_is_refused(entry):
    """The weights of the name are not the certified ones."""
    change(entry / "certificate.json", agent_sha256="0" * 64)
    for attack in entry.glob("attack*.json"):
        change(attack, agent_sha256="0" * 64)
    assert refusals(read_entry(entry), blocks=0) != []


OTHER_LIMITS = ({"floor": 0.5}, {"ceiling": 2.0}, {"ceiling": None, "upper": None})


@pytest.mark.parametrize(
    ("file", "changes", "reason"),
    [
        (NAME, {"license": ""}, "license"),
        (NAME, {"source": None}, "source"),
        ("certificate.json", {"confidence": 0.9}, "confidence 0.9 is below 0.95"),
        *(("certificate.json", wrong, "floor and ceiling are not the task's") for wrong in OTHER_LIMITS),
        ("certificate.json", {"action_sigma": 0.5}, "it is about attacks on observations and actions, the others on"),
        # With noise on the cart's position alone an agent of one frame certified 180 at B = 0.4, and was accepted.
        ("certificate.json", {"sigma_per_feature": [1.0, 0.0]}, "nothing is certified about attacks on features"),
        ("certificate.json", {"task": "no-such-task"}, "not a task of the leaderboard"),
        ("certificate.json", {"gamma": 0.9}, "discounted"),
        ("attack-structured.json", {"agent_sha256": "0" * 64}, "another task, agent or noise"),
    ],
)
def test_an_entry_that_cannot_be_compared_is_refused(entry, file, changes, reason):
    change(entry / file, **changes)
    with pytest.raises(InputError, match=reason):
        read_entry(entry)


def test_noise_that_differs_between_features_can_be_compared(entry):
    for path in (entry / "certificate.json", *entry.glob("attack*.json")):
        change(path, sigma_per_feature=[1.0, 2.0])
    assert read_entry(entry).certificate.metadata["sigma_per_feature"] == [1.0, 2.0]


def test_an_attack_that_used_no_budget_is_not_the_strongest(entry):
    change(entry / "attack-structured.json", curve=[0.995])
    assert row(read_entry(entry), [1.0])["attack"]["mean"] == 0.995
    change(entry / "attack-structured.json", mean_budget_used=[[0.009]])  # of a budget of 1
    assert row(read_entry(entry), [1.0])["attack"]["mean"] > 0.995


def test_make_records_stops_at_a_false_entry(tmp_path, monkeypatch, capsys):
    from study import records

    entry = shutil.copytree(ENTRIES / QUICK, tmp_path / "false")
    lower = json.loads((entry / "certificate.json").read_text())["lower"]
    change(entry / "certificate.json", lower=[value + 0.0001 for value in lower])
    monkeypatch.setattr(records, "read_entries", lambda: [read_entry(entry)])
    with pytest.raises(SystemExit):
        records.verify_entries(blocks=1)
    assert "records/false: refused" in capsys.readouterr().err
