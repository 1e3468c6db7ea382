"""Certificates from several draws per seed: verified as they are, and refused where draws or bounds are forged."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import surefoot
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.play.task import Blocks
from surefoot.play.tasks import TASKS
from surefoot.proof.query import Query
from surefoot.proof.shared_budget import SharedBudget
from surefoot.verification import rerun
from surefoot.verification.recompute.sentences import write_sentence
from surefoot.verification.verify import verify
from verdicts import problems


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A run of CartPole's pretrained agent in three blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "cartpole-1", replace(TASKS["cartpole-1"], blocks=Blocks(n_envs=20, episodes_per_env=1)))
        run = surefoot.certify_run(
            "cartpole-1",
            sigma=0.2,
            query=Query(budgets=(0.0, 0.2)),
            n_episodes=180,
            draws_per_seed=3,
            out=tmp_path_factory.mktemp("honest") / "run",
        )
        yield run.directory


def test_an_honest_run_is_verified(honest):
    verdict = verify(honest, fresh=64)
    assert problems(verdict) == {}
    assert verdict.verified
    certificate = read_json(honest / "certificate.json")
    assert certificate["method"] == "nested"
    assert certificate["draws_per_seed"] == 3
    assert surefoot.Certificate.load(honest).metadata["draws_per_seed"] == 3


def test_draws_are_compared_seed_by_seed_with_fresh_ones(honest, monkeypatch):
    """The draws of one seed depend on each other, so that they are no fair sample; fresh ones are as dependent."""
    compared = []

    def note(recorded, fresh, *_, n_draws, **__):
        compared.append((recorded.size, fresh.size, n_draws))
        return 0.0

    monkeypatch.setattr(rerun, "log_capital", note)
    verdict = verify(honest, blocks=1, fresh=8)
    assert compared == [(180, 6, 3)]
    # What they prove by themselves rests on independent ones.
    assert verdict.fresh["n_episodes"] == 2


def forge(honest, folder, returns=None, **changes):
    """Return a copy of the run with other returns, and a certificate made of them, or with other fields."""
    forged = shutil.copytree(honest, folder / "forged")
    episodes = Episodes.load(forged / "episodes.npz")
    content = read_json(forged / "certificate.json")
    if returns is not None:
        episodes = replace(episodes, returns=returns(episodes.returns.copy()))
        episodes.save(forged / "episodes.npz")
        content = surefoot.certify(episodes, [0.0, 0.2]).to_json()
    content |= changes
    content["statement"] = write_sentence("certificate.json", content)
    write_json(forged / "certificate.json", content)
    return forged


def test_planted_noise_that_repeats_is_found_by_running_it_again(honest, tmp_path):
    def repeat(returns):
        return np.repeat(returns[::3], 3)

    assert "replay" in problems(verify(forge(honest, tmp_path, repeat), fresh=0))


def test_planted_draws_taken_for_episodes(honest, tmp_path):
    """The same returns, certified as if each had a seed of its own."""
    episodes = Episodes.load(honest / "episodes.npz")
    alone = replace(episodes, metadata={**episodes.metadata, "draws_per_seed": 1})
    content = surefoot.certify(alone, [0.0, 0.2], method="band").to_json()
    content |= {"record_sha256": episodes.sha256, "draws_per_seed": 3}
    forged = forge(honest, tmp_path, **{key: content.get(key) for key in ("method", "lower", "upper", "estimate_sem")})
    found = problems(verify(forged, blocks=0, fresh=0))
    words = "bounds of certificate.json by the method 'band' are not about 3 draws per seed"
    assert words in found["certificate and episode data"]


@pytest.mark.parametrize("certain", [False, True])
def test_planted_draws_taken_for_episodes_that_share_a_budget(certain, honest, tmp_path):
    """The returns are true ones, and so is everything else but that they are 180 independent episodes."""
    episodes = Episodes.load(honest / "episodes.npz")
    alone = replace(episodes, metadata={**episodes.metadata, "draws_per_seed": 1})
    content = SharedBudget(5, certain).certify(alone, Query(budgets=(0.0, 0.5))).to_json()
    error = read_json(honest / "certificate.json")["estimate_sem"]
    content |= {"record_sha256": episodes.sha256, "draws_per_seed": 3, "estimate_sem": error}
    forged = shutil.copytree(honest, tmp_path / "forged")
    write_json(forged / "shared.json", content)
    (found,) = problems(verify(forged, blocks=0, fresh=0)).items()
    assert found[0] == "shared.json: certificate and episode data"
    assert "are not about 3 draws per seed" in found[1]


def test_planted_draws_of_two_agents_taken_for_episodes(honest, tmp_path):
    """Compared as if each draw were an episode of its own."""
    a = Episodes.load(honest / "episodes.npz")
    b = replace(a, metadata={**a.metadata, "seed": 1})
    surefoot.compare(*(without_draws(one) for one in (a, b)), out=tmp_path / "run")
    assert problems(verify(tmp_path / "run", blocks=0)) == {}
    content = read_json(tmp_path / "run" / "comparison.json")
    for side, record in (("A", a), ("B", b)):
        record.save(tmp_path / "run" / side / "episodes.npz")
        content["sides"][side]["record_sha256"] = record.sha256
    write_json(tmp_path / "run" / "comparison.json", content)
    found = problems(verify(tmp_path / "run", blocks=0))
    assert found.keys() == {f"{side}: certificate and episode data" for side in "AB"}


def without_draws(record):
    return replace(record, metadata={key: value for key, value in record.metadata.items() if key != "draws_per_seed"})


def test_planted_higher_bound(honest, tmp_path):
    lower = [value + 0.5 for value in read_json(honest / "certificate.json")["lower"]]
    assert "bounds" in problems(verify(forge(honest, tmp_path, lower=lower), blocks=0, fresh=0))
