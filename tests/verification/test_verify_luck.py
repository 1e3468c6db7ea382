"""Runs whose luck was read at reset: what is recorded, that it is verified, and forgeries of it."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import surefoot
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.noise import Noise
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.reset_luck import read_luck
from surefoot.play.task import Blocks
from surefoot.play.tasks import TASKS
from surefoot.proof.query import Query
from surefoot.verification import rerun
from surefoot.verification.recompute.sentences import write_sentence
from surefoot.verification.verify import verify
from toys import gate, short_pole
from verdicts import problems

MODULE = """
def tilt(observation, info):
    return [abs(observation[2]), len(info)]


def words(observation, info):
    return "none"
"""


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A run of CartPole's pretrained agent in three blocks; where the pole starts decides nothing, but is recorded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "cartpole-1", replace(TASKS["cartpole-1"], blocks=Blocks(n_envs=60, episodes_per_env=3)))
        run = surefoot.certify_run(
            "cartpole-1",
            sigma=0.2,
            query=Query(budgets=(0.0, 0.2), method="luck"),
            n_episodes=180,
            luck="0,2",
            out=tmp_path_factory.mktemp("honest") / "run",
        )
        yield run.directory


def test_luck_is_the_first_clean_observation():
    noise = Noise.of(0.2)
    plan = Plan(task=short_pole(30), policy=gate(0.5, 0.2, 4), noise=noise, n_episodes=36, n_envs=12, luck="2,0")
    first = []

    def keep(step):
        if step.action is None:
            first.append((step.observation.clone(), step.seen.clone()))

    played = play_block(plan, 0, watch=keep)
    (clean, seen) = first[0]
    assert np.array_equal(played.luck, clean[:, [2, 0]].double().numpy())
    assert not torch.equal(clean, seen)
    assert len(played) == plan.block_size == plan.block_envs


def heights(observation, info):
    return [observation[0], info["height"]]


def test_each_episode_has_the_luck_of_its_own_observation_and_info():
    infos = [{"height": 5.0}, {"height": 7.0}]
    found = read_luck(f"{__name__}:heights", torch.tensor([[1.0, 2.0], [3.0, 4.0]]), infos)
    assert found.tolist() == [[1.0, 5.0], [3.0, 7.0]]


def test_an_honest_run_is_verified(honest):
    verdict = verify(honest, fresh=64)
    assert problems(verdict) == {}
    assert verdict.verified
    certificate = read_json(honest / "certificate.json")
    assert (certificate["method"], certificate["luck"]) == ("luck", "0,2")


def test_what_luck_tells_of_returns_is_compared_with_fresh_episodes(honest, monkeypatch):
    """Each number that was known, with the fresh episodes' own."""
    compared = []
    monkeypatch.setattr(rerun, "log_capital", lambda *_, known, **__: compared.append(known) or 0.0)
    verify(honest, blocks=1, fresh=8)
    ((first, second),) = compared
    recorded = Episodes.load(honest / "episodes.npz").luck
    assert np.array_equal(np.stack([first[0], second[0]], axis=1), recorded)
    assert first[1].shape == second[1].shape == (8,)
    assert not np.isin(first[1], recorded).any()


def forge(honest, folder, luck):
    """Return a copy of the run with other luck, and the certificate that follows from it."""
    forged = shutil.copytree(honest, folder / "forged")
    episodes = Episodes.load(forged / "episodes.npz")
    episodes = replace(episodes, luck=luck(episodes))
    episodes.save(forged / "episodes.npz")
    content = surefoot.certify(episodes, [0.0, 0.2], method="luck").to_json()
    content["statement"] = write_sentence("certificate.json", content)
    write_json(forged / "certificate.json", content)
    return forged


def test_planted_luck_made_of_the_returns(honest, tmp_path):
    """As if each start had decided its return: no attack on observations could change that."""
    forged = forge(honest, tmp_path, lambda episodes: np.stack([episodes.returns] * 2, axis=1))
    assert read_json(forged / "certificate.json")["lower"][1] > read_json(honest / "certificate.json")["lower"][1]
    assert "luck differ" in problems(verify(forged, fresh=0))["replay"]


def test_planted_luck_that_no_setup_names(honest, tmp_path):
    forged = shutil.copytree(honest, tmp_path / "forged")
    episodes = Episodes.load(forged / "episodes.npz")
    nameless = {key: value for key, value in episodes.metadata.items() if key != "luck"}
    replace(episodes, metadata=nameless).save(forged / "episodes.npz")
    assert "only then" in str(problems(verify(forged, blocks=0, fresh=0)))


def test_planted_higher_bound(honest, tmp_path):
    forged = shutil.copytree(honest, tmp_path / "forged")
    content = read_json(forged / "certificate.json")
    content["lower"] = [value + 0.5 for value in content["lower"]]
    content["statement"] = write_sentence("certificate.json", content)
    write_json(forged / "certificate.json", content)
    assert "bounds" in problems(verify(forged, blocks=0, fresh=0))


def test_a_function_of_observation_and_info_is_imported_if_it_is_allowed(tmp_path, monkeypatch):
    (tmp_path / "my_luck.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(TASKS, "cartpole-1", replace(TASKS["cartpole-1"], blocks=Blocks(n_envs=30, episodes_per_env=1)))
    query = Query(budgets=(0.0,))
    run = surefoot.certify_run(
        "cartpole-1", sigma=0.2, query=query, n_episodes=60, luck="my_luck:tilt", out=tmp_path / "run"
    )
    record = Episodes.load(run.directory / "episodes.npz")
    assert record.luck.shape == (60, 2)
    assert np.all((record.luck[:, 0] >= 0) & (record.luck[:, 1] == 0))
    assert "--luck my_luck:tilt" in str(problems(verify(run.directory, fresh=0)))
    assert verify(run.directory, fresh=16, luck="my_luck:tilt").verified


@pytest.mark.parametrize(
    ("options", "what"),
    [
        # Counted from 0, the first that is outside.
        (["--luck", "0,4"], "places below 4, the size of an observation"),
        (["--luck", "angle"], "--luck must be places in the first observation"),
        (["--luck", "0", "--require", "1@0", "--max-episodes", "50"], "cannot be combined with a sequential"),
        (["--luck", "no_such_module:f", "--episodes", "20"], "cannot import"),
    ],
)
def test_wrong_calls_are_one_line(options, what, capsys, tmp_path):
    assert cli.main(["certify", "cartpole-1", "--out", str(tmp_path / "run"), "--quiet", *options]) == 2
    error = capsys.readouterr().err
    assert what in error
    assert error.count("\n") == 1
