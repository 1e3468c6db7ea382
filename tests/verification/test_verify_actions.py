"""Certificates with noise on actions: verified as they are, and refused when noise, channel or budgets are forged."""

import shutil
from dataclasses import replace

import pytest

import surefoot
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.task import Blocks
from surefoot.play.tasks import TASKS
from surefoot.proof.query import Query
from surefoot.proof.shared_budget import SharedBudget
from surefoot.verification.recompute.sentences import write_sentence
from surefoot.verification.verify import verify
from verdicts import problems

OBS, ACT = 0.2, 0.3
PAIRS = ((0.0, 0.0), (0.1, 0.15), (0.0, 0.3))


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A run of mountain-car's pretrained agent in two blocks, with noise on both channels, as the command writes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(
            TASKS, "mountain-car", replace(TASKS["mountain-car"], blocks=Blocks(n_envs=20, episodes_per_env=1))
        )
        task = surefoot.get_task("mountain-car")
        noise = surefoot.Episodes.from_returns([0.0], sigma=OBS, action_sigma=ACT, floor=0, ceiling=1).noise
        run = surefoot.certify_run(
            task,
            "mountain-car-s0.2",
            sigma=OBS,
            action_sigma=ACT,
            query=Query.for_task(task, noise, mixed=PAIRS),
            n_episodes=40,
            out=tmp_path_factory.mktemp("honest") / "run",
        )
        yield run.directory


def test_an_honest_run_is_verified_and_its_files_name_the_noise_on_actions(honest):
    verdict = verify(honest, fresh=40)
    assert problems(verdict) == {}
    assert verdict.verified
    assert read_json(honest / "setup.json")["action_sigma"] == ACT
    assert Episodes.load(honest / "episodes.npz").noise.action_sigma == ACT
    certificate = read_json(honest / "certificate.json")
    assert certificate["channel"] == "observations and actions"
    assert [pair["actions"] for pair in certificate["mixed"]] == [pair[1] for pair in PAIRS]
    assert surefoot.Certificate.load(honest).budget_sigma == 1.0


def rewrite(folder, **changes):
    """Write the certificate with other fields; None takes one away."""
    content = {**read_json(folder / "certificate.json"), **changes}
    write_json(folder / "certificate.json", {key: value for key, value in content.items() if value is not None})


def more_noise_everywhere(folder):
    """Twice the noise in all files, with the certificate that follows from it."""
    record = Episodes.load(folder / "episodes.npz")
    forged = replace(record, metadata={**record.metadata, "action_sigma": 2 * ACT})
    forged.save(folder / "episodes.npz")
    Query.for_task(TASKS["mountain-car"], forged.noise, mixed=PAIRS).answer(forged).save(folder)
    write_json(folder / "setup.json", {"schema": 1, **forged.setup})


def raise_one_budget(folder):
    pairs = read_json(folder / "certificate.json")["mixed"]
    rewrite(folder, mixed=[*pairs[:2], {**pairs[2], "actions": 0.4}])


def turn_one_budget(folder):
    """The square is the same."""
    pairs = read_json(folder / "certificate.json")["mixed"]
    rewrite(folder, mixed=[*pairs[:2], {**pairs[2], "actions": -0.3}])


def without_the_wire(folder):
    sentence = read_json(folder / "certificate.json")["statement"]
    rewrite(folder, statement=sentence.partition(" The noise of an action")[0])


def scaled_certificate(folder, query):
    """Write a certificate whose budgets are divided by 1, as those of both channels are."""
    record = Episodes.load(folder / "episodes.npz")
    metadata = {key: value for key, value in record.metadata.items() if key != "action_sigma"}
    made = query.answer(replace(record, sigma=1.0, metadata=metadata))
    content = {**made.to_json(), "sigma": OBS, "action_sigma": ACT, "channel": "observations and actions"}
    content["record_sha256"] = record.sha256
    content["statement"] = write_sentence(made.file, content)
    write_json(folder / made.file, content)


def shared_by_two_episodes(folder):
    """What it says of the observations of two episodes alone would be true of five times the noise."""
    record = Episodes.load(folder / "episodes.npz")
    made = Query(budgets=(0.0, 0.5), threat=SharedBudget(2, certain=False)).answer(record)
    both = "observations and actions of 2 episodes together, each divided by the sigma of its noise,"
    assert both in made.statement
    alone = made.statement.replace(both, "observations of 2 episodes together")
    write_json(folder / made.file, {**made.to_json(), "statement": alone})


def measured_by_another_norm(folder):
    """The l2 budgets that it names are divided by 1, not by the sigma of the observations."""
    scaled_certificate(folder, Query.for_task(TASKS["mountain-car"], 1.0, budgets=(0.0, 0.01), norm="linf"))


FORGERIES = {
    # what is forged, the check that fails, words of it
    "more noise on actions in all files": (more_noise_everywhere, "replay", "lengths differ"),
    "more noise on actions in the certificate": (
        lambda folder: rewrite(folder, action_sigma=2 * ACT),
        "certificate and episode data",
        "action_sigma is 0.6 and 0.3",
    ),
    "noise on actions that is not named": (
        lambda folder: rewrite(folder, action_sigma=None),
        "certificate and episode data",
        "action_sigma is None and 0.3",
    ),
    "another channel": (
        lambda folder: rewrite(folder, channel="actions"),
        "certificate and episode data",
        "the channel is 'actions', by the noise it is 'observations and actions'",
    ),
    "no channel": (lambda folder: rewrite(folder, channel=None), "certificate and episode data", "the channel is None"),
    "a larger budget on actions": (raise_one_budget, "bounds", "is not that of {'observations': 0.0, 'actions': 0.4}"),
    "a budget below 0": (turn_one_budget, "bounds", "is no pair of budgets for observations and actions"),
    "nothing said of the wire": (without_the_wire, "sentence", "does not follow"),
    "a budget that episodes share": (
        shared_by_two_episodes,
        "shared.json: sentence",
        "does not follow",
    ),
    "another norm": (measured_by_another_norm, "bounds", "no norm but l2 puts perturbations of both"),
}


def test_an_honest_budget_that_episodes_share_is_verified(honest, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(honest, folder)
    record = Episodes.load(folder / "episodes.npz")
    for certain in (False, True):
        threat = SharedBudget(2, certain=certain)
        Query(budgets=(0.0, 0.5), threat=threat).answer(record).save(folder)
        assert problems(verify(folder, blocks=0)) == {}


def test_an_honest_budget_for_each_step_is_verified_and_one_of_more_noise_is_refused(tmp_path):
    task = surefoot.get_task("mountain-car")
    agent = surefoot.as_policy("mountain-car-s0.2", task.spaces)
    plan = Plan(task=task, policy=agent, noise=Noise.of(0.0, ACT), n_episodes=20, n_envs=20, per_step=True)
    record = play(plan)
    record.save(tmp_path / "episodes.npz")
    write_json(tmp_path / "setup.json", {"schema": 1, **record.setup})
    made = surefoot.certify_per_step(record, [0.0, 0.005])
    made.save(tmp_path)
    assert problems(verify(tmp_path, blocks=0)) == {}
    louder = replace(record, metadata={**record.metadata, "action_sigma": 2 * ACT})
    more = surefoot.certify_per_step(louder, [0.0, 0.005])
    assert more.lower[1] > made.lower[1]
    write_json(tmp_path / "per-step.json", {**made.to_json(), "lower": more.lower.tolist()})
    assert "per-step.json: bounds" in problems(verify(tmp_path, blocks=0))


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused_by_name(name, honest, tmp_path):
    change, check, words = FORGERIES[name]
    folder = tmp_path / "run"
    shutil.copytree(honest, folder)
    change(folder)
    # Files that contradict each other need no episode rerun.
    verdict = verify(folder, blocks=None if check == "replay" else 0)
    assert verdict.verdict == "failed"
    assert words in problems(verdict)[check]


def test_planted_a_second_writer_that_forgets_the_wire_refuses_honest_runs(honest, monkeypatch):
    from surefoot.verification import claims

    monkeypatch.setattr(claims, "write_sentence", lambda name, fields: fields["statement"].split(" The noise")[0])
    assert "sentence" in problems(verify(honest, blocks=0))
