"""Floor and ceiling: refused where they claim more than is proved, and called the user's where nothing proves them."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import surefoot
from surefoot.agents import files as zoo
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.noise import Noise
from surefoot.play.environments import inspect, make_task
from surefoot.play.envs.source import Source
from surefoot.play.plan import Plan
from surefoot.play.tasks import get_task
from surefoot.proof.query import Query
from surefoot.proof.step_budget import StepBudget
from surefoot.report.exports import as_latex, as_markdown
from surefoot.runs.certified import certified_run
from surefoot.runs.read import read_run
from surefoot.verification import limits
from surefoot.verification.limits import Proved, _unproved_limits, check_limits, proved_limits
from surefoot.verification.recompute.run_files import Raw
from surefoot.verification.verdict import Verdict
from surefoot.verification.verify import verify

AGENT, CHECK = "cartpole-1-s0.4", "floor and ceiling"
QUERY = Query(budgets=(0.0, 1.0), method="band")
# Other arguments, so that the rules are not those of the table: rewards are 0, and -1 at the end.
PENALTY = {"env": "CartPole-v1", "max_steps": 30, "env_kwargs": {"sutton_barto_reward": True}}
STATED = "(stated by the user, not proved)"


def certified(folder, task, query=QUERY, **options):
    plan = Plan(task=task, policy=zoo.load(AGENT), noise=Noise.of(2.0), n_episodes=60, **options)
    return certified_run(plan, query, folder, figure=False)


def found(verdict):
    """Return result and detail of the check of the limits."""
    return next((check.result, check.detail) for check in verdict.checks if check.name == CHECK)


def failures(verdict):
    return {check.name: check.detail for check in verdict.checks if check.result in ("failed", "impossible")}


def forge(folder, *, query=QUERY, change=lambda returns: returns, scale=1.0, drop=(), **changes):
    """Change the setup and the returns, and make everything else agree: certificate, hash, setup.json."""
    record = Episodes.load(folder / "episodes.npz")
    limits = {key: changes.pop(key) for key in ("floor", "ceiling") if key in changes}
    metadata = {key: value for key, value in {**record.metadata, **changes}.items() if key not in drop}
    rewards = None if record.reward_values is None else scale * record.reward_values
    returns = change(scale * record.returns)
    forged = replace(record, returns=returns, reward_values=rewards, metadata=metadata, **limits)
    forged.save(folder / "episodes.npz")
    query.answer(forged).save(folder)
    write_json(folder / "setup.json", {"schema": 1, **forged.setup})


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """An environment of the table, whose floor is 0 and whose ceiling is 200 in so many steps; poles fall early."""
    folder = tmp_path_factory.mktemp("known") / "run"
    certified(folder, make_task("CartPole-v1", max_steps=200))
    return folder


@pytest.fixture
def run(honest, tmp_path):
    for path in honest.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_the_limits_of_a_known_environment_are_proved(run):
    for blocks in (None, 0):
        verdict = verify(run, blocks=blocks, fresh=8)
        assert failures(verdict) == {}
        assert verdict.verified == (blocks is None)  # nothing is verified without a rerun
        rules = "proved by the rules of CartPole-v1"
        assert found(verdict) == ("passed", f"floor 0: {rules}; ceiling 200: {rules}")
        assert not any("stated" in line for line in verdict.not_checked)
    certificate = read_json(run / "certificate.json")
    assert "stated_by_user" not in certificate
    assert "assuming" not in certificate["statement"]


def raised(returns):
    return np.append(1e12, returns[1:])


FORGED = {
    "floor": ({"floor": 5.0}, "the floor 5.0 claims more than the rules of CartPole-v1 prove, which allow 0"),
    "a floor above by a little": ({"floor": 1e-9}, "the floor 1e-09 claims more"),
    "ceiling": (
        {"ceiling": 199.5},
        "the ceiling 199.5 claims more than the rules of CartPole-v1 prove, which allow 200",
    ),
    "returns beyond the rules": (
        {"ceiling": None, "change": raised},
        "a return is 1e+12, and the rules of CartPole-v1 allow none above 200",
    ),
    "returns beyond the rules, within a ceiling": ({"ceiling": 1e13, "change": raised}, "allow none above 200"),
    "returns below the rules": ({"floor": -50.0, "change": lambda returns: returns - 50}, "allow none below 0"),
    "a floor that says it is the user's": ({"floor": 5.0, "stated_by_user": ["floor"]}, "the floor 5.0 claims more"),
    "a ceiling of another discount": ({"ceiling": 60.0, "gamma": 0.99, "scale": 0.2}, "the ceiling 60.0 claims more"),
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("blocks", [None, 0])
def test_limits_that_claim_more_than_the_rules_are_refused_by_name(run, name, blocks):
    changes, message = FORGED[name]
    forge(run, **changes)
    verdict = verify(run, blocks=blocks, fresh=8)
    assert not verdict.verified
    assert message in failures(verdict)[CHECK]


def test_limits_that_claim_less_are_accepted(run):
    """The twins: a lower floor, a higher ceiling, and none at all, which then bounds nothing from above."""
    for changes in ({"floor": -3.5}, {"ceiling": 1_000.0}, {"ceiling": None}):
        forge(run, **changes)
        assert verify(run, blocks=None, fresh=8).verified, changes
    assert found(verify(run, blocks=0))[1] == "floor -3.5: proved by the rules of CartPole-v1; no ceiling"


def test_a_false_floor_is_refused_before_anything_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ["certify", "--env", "CartPole-v1", "--agent", AGENT, "--sigma", "0.1", "--max-steps", "200"]
    assert cli.main([*asked, "--floor", "100"]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert shown == (
        "surefoot: floor 100 claims more than the rules of CartPole-v1 prove, which allow returns down to 0 "
        "(1 at every step (`classic_control/cartpole.py`)); leave it out, or give at most 0"
    )
    assert list(tmp_path.iterdir()) == []


# --- what only the user says ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stated_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stated") / "run"
    certified(folder, make_task(**PENALTY, floor=-1, ceiling=0.5))
    return folder


@pytest.fixture
def stated(stated_once, tmp_path):
    return shutil.copytree(stated_once, tmp_path / "run")


def test_what_the_user_states_is_in_every_sentence(stated):
    assumed = f"assuming that no return is below -1 or above 0.5 {STATED}"
    content = read_json(stated / "certificate.json")
    assert content["stated_by_user"] == ["floor", "ceiling"]
    assert f"is at least lower[i] and at most upper[i], {assumed}. With confidence" in content["statement"]
    made = surefoot.Certificate.load(stated)
    run = read_run(stated)
    for text in (str(made), made._repr_html_(), as_markdown([run]), as_latex([run])):
        assert assumed in " ".join(text.replace("\\_", "_").split())
    page = (stated / "report.html").read_text()
    assert assumed in page
    assert "-1, stated by the user, not proved" in page
    assert made.to_json() == content


def test_verify_says_what_only_the_user_says(stated, capsys):
    verdict = verify(stated, blocks=None, fresh=8)
    assert verdict.verified
    said = "floor -1 STATED BY THE USER, not proved; ceiling 0.5 STATED BY THE USER, not proved"
    assert found(verdict) == ("passed", said)
    assert "what the user stated without a proof: floor and ceiling" in verdict.not_checked
    assert cli.main(["verify", str(stated), "--blocks", "0"]) == 4
    assert "floor -1 STATED BY THE USER, not proved" in " ".join(capsys.readouterr().out.split())


def test_evidence_says_what_only_the_user_says(stated):
    assert cli.main(["report", str(stated), "--evidence"]) == 0
    assumed = f"assuming that no return is below -1 or above 0.5 {STATED}"
    page = (stated / "evidence.html").read_text()
    assert assumed in page
    assert "STATED BY THE USER" in page


@pytest.mark.parametrize("blocks", [None, 0])
def test_nobody_passes_off_a_stated_floor_as_proved(stated, blocks):
    """Planted: the setup, and all that follows from it, does not say who stated the floor."""
    forge(stated, drop=["stated_by_user"])
    assert "assuming" not in read_json(stated / "certificate.json")["statement"]
    verdict = verify(stated, blocks=blocks, fresh=8)
    assert "nothing proves the floor -1, and certificate.json does not say that the user" in failures(verdict)[CHECK]


def test_a_sentence_without_its_assumption_is_refused(stated):
    """Planted: the field is there, and the sentence is unconditional."""
    content = read_json(stated / "certificate.json")
    cut = f", assuming that no return is below -1 or above 0.5 {STATED}"
    write_json(stated / "certificate.json", {**content, "statement": content["statement"].replace(cut, "")})
    assert failures(verify(stated, blocks=0)) == {"sentence": "it does not follow from the fields"}


@pytest.mark.parametrize("bad", [["floor", "roof"], "floor", 5, None])
def test_a_field_that_names_no_limits_is_refused(stated, bad):
    write_json(stated / "certificate.json", {**read_json(stated / "certificate.json"), "stated_by_user": bad})
    assert "expected some of floor, ceiling, reward_range" in failures(verify(stated, blocks=0))[CHECK]
    with pytest.raises(
        surefoot.InputError, match="expected stated_by_user to list some of floor, ceiling, reward_range"
    ):
        surefoot.Certificate.load(stated)
    forge(stated, stated_by_user=["floor"])
    record = replace(Episodes.load(stated / "episodes.npz"))
    replace(record, metadata={**record.metadata, "stated_by_user": bad}).save(stated / "episodes.npz")
    with pytest.raises(surefoot.InputError, match="must list what the user stated of floor, ceiling, reward_range"):
        Episodes.load(stated / "episodes.npz")


def test_a_stated_range_of_rewards_is_said_where_it_matters(tmp_path):
    task = make_task(**PENALTY, reward_range=(-1, 0))
    query = Query(budgets=(0.0, 0.1), threat=StepBudget())
    made = certified(tmp_path, task, query, per_step=True)
    assumed = f"assuming that no return is below -30 or above 0 and every reward is between -1 and 0 {STATED}"
    assert assumed in made.statement
    assert verify(tmp_path, blocks=None, fresh=8).verified
    content = read_json(tmp_path / "per-step.json")
    assert content["stated_by_user"] == ["floor", "ceiling", "reward_range"]
    forge(tmp_path, query=query, stated_by_user=["floor", "ceiling"])
    assert (
        "nothing proves the reward_range [-1.0, 0.0], and per-step.json" in failures(verify(tmp_path, blocks=0))[CHECK]
    )


def test_rewards_that_claim_more_than_the_rules_are_refused(tmp_path):
    """A budget per step relies on the range of a reward, which a setup must not narrow."""
    query = Query(budgets=(0.0, 0.1), threat=StepBudget())
    certified(tmp_path, make_task("CartPole-v1", max_steps=30), query, per_step=True)
    assert verify(tmp_path, blocks=None, fresh=8).verified
    forge(tmp_path, query=query, reward_range=[-1.0, 2.0])  # the twin: a wider one
    assert verify(tmp_path, blocks=None, fresh=8).verified
    forge(tmp_path, query=query, reward_range=[0.0, 0.9], scale=0.9)
    wrong = failures(verify(tmp_path, blocks=0))
    assert wrong == {CHECK: "the highest reward 0.9 claims more than the rules of CartPole-v1 prove, which allow 1"}


@pytest.mark.parametrize(("ceiling", "shown"), [(None, "9.948464"), (10.0, "10")])
def test_a_discounted_return_has_its_own_limits(tmp_path, ceiling, shown):
    certified(tmp_path, inspect(Source(maker="CartPole-v1", max_steps=50)).task(floor=None, ceiling=ceiling, gamma=0.9))
    verdict = verify(tmp_path, blocks=None, fresh=8)
    assert verdict.verified
    assert f"ceiling {shown}: proved by the rules" in found(verdict)[1]


# --- precomputed returns, our own tasks, wrappers -------------------------------------------------------------------


@pytest.mark.parametrize("named", [{}, {"task": "cartpole-1", "environment": "CartPole-v1", "stated_by_user": []}])
def test_of_precomputed_returns_everything_is_the_users(tmp_path, named):
    """Whatever they are called: nobody knows which environment paid them."""
    record = Episodes.from_returns(np.arange(100.0), sigma=0.5, floor=0, ceiling=200, **named)
    record.save(tmp_path / "episodes.npz")
    QUERY.answer(record).save(tmp_path)
    assert f"no return is below 0 or above 200 {STATED}" in read_json(tmp_path / "certificate.json")["statement"]
    verdict = verify(tmp_path, blocks=0)
    assert failures(verdict) == {}
    assert found(verdict)[1].count("STATED BY THE USER") == 2
    content = read_json(tmp_path / "certificate.json")
    del content["stated_by_user"]
    write_json(tmp_path / "certificate.json", content)
    assert "nothing proves the floor 0.0" in failures(verify(tmp_path, blocks=0))[CHECK]


def test_the_command_says_so_of_precomputed_returns(tmp_path, capsys):
    np.save(tmp_path / "r.npy", np.arange(100.0))
    assert cli.main(["certify", "--returns", str(tmp_path / "r.npy"), "--sigma", "1", "--floor", "0"]) == 0
    assert f"assuming that no return is below 0 {STATED}." in " ".join(capsys.readouterr().out.split())


def test_limits_of_our_own_tasks_are_the_tasks_without_a_rerun(tmp_path):
    certified(tmp_path, get_task("cartpole-1"))
    assert found(verify(tmp_path, blocks=0)) == (
        "passed", "floor 0: proved by the task cartpole-1; ceiling 200: proved by the task cartpole-1",
    )  # fmt: skip
    for changes in ({"floor": 1.0}, {"floor": -1.0}, {"ceiling": None}):
        forge(tmp_path, **{"floor": 0.0, "ceiling": 200.0, **changes})
        assert "the task cartpole-1 has" in failures(verify(tmp_path, blocks=0))[CHECK]


CLIPPED = {
    "environment": "Hopper-v5",
    "wrappers": ['ClipReward={"min_reward": 0, "max_reward": 10}'],
    "max_steps": 1_000,
}


def test_limits_behind_clipped_rewards_follow_from_the_names():
    made = {"task": "Hopper-v5 clipped", "block_size": 256, **CLIPPED}
    ends = (0.0, 10_000.0)
    assert proved_limits(made) == Proved("the rules of Hopper-v5", *ends, ends, (0.0, 10.0))
    for unknown in (
        {"wrappers": []},
        {"wrappers": ["mine:ClipReward={}"]},
        {"wrappers": ["ClipReward=["]},
        {"wrappers": 5},
        {"env_kwargs": "x"},
        {"env_modules": ["mine"]},
        {"environment": "mine:make"},
        {"max_steps": "many"},
        {"max_steps": 10**400},
        {"gamma": 1.0},
        {"gamma": "x"},
        {"block_size": None},
    ):
        assert (found := proved_limits({**made, **unknown})).floor is found.ceiling is None, unknown


def test_without_an_environment_library_it_is_said(stated, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "surefoot.play.floors", None)
    verdict = verify(stated, blocks=0)
    assert found(verdict)[0] == "skipped"
    assert verdict.not_checked[1] == "that no return can be below the floor or above the ceiling"


def test_the_report_takes_the_baseline_of_a_task_from_the_task(tmp_path):
    """Planted: a run.json with a baseline of 0, which would hide that bounds are uninformative."""
    certified(tmp_path / "own", get_task("cartpole-1"))
    notes = read_json(tmp_path / "own" / "run.json")
    for mean in (0.0, 190.0):
        write_json(tmp_path / "own" / "run.json", {**notes, "baseline": {**notes["baseline"], "mean": mean}})
        assert read_run(tmp_path / "own").baseline == get_task("cartpole-1").baseline
    write_json(tmp_path / "own" / "run.json", {**notes, "baseline": None})
    assert read_run(tmp_path / "own").baseline == get_task("cartpole-1").baseline
    forge(tmp_path / "own", gamma=0.99)
    write_json(tmp_path / "own" / "run.json", notes)
    assert read_run(tmp_path / "own").baseline is None  # it was measured without a discount
    forge(tmp_path / "own", task="another")
    assert read_run(tmp_path / "own").baseline.mean == notes["baseline"]["mean"]


@pytest.mark.parametrize("said", [["floor"], []])
def test_every_certificate_of_a_directory_names_what_the_user_stated(said):
    """Also the second one: a sentence without its assumption would be read as proved."""
    setup = {"floor": -5.0, "ceiling": None}
    stated = {"stated_by_user": ["floor"]}
    arrays = {"returns": np.zeros(3)}
    first = Raw("certificate.json", stated, setup, arrays, None, None)
    second = Raw("shared.json", {"stated_by_user": said}, setup, arrays, None, None)
    verdict = Verdict(run="")
    check_limits([first, second], verdict)
    (check,) = verdict.checks
    if said:
        assert check.result == "passed"
        return
    expected = "nothing proves the floor -5.0, and shared.json does not say that the user stated it"
    assert (check.result, check.detail) == ("failed", expected)


@pytest.mark.parametrize("rewards", [(None, 1.0), (0.0, None), (None, None), (0.0, 1.0)])
def test_a_range_of_rewards_is_proved_at_both_ends_or_not_at_all(rewards):
    setup = {"floor": 0.0, "ceiling": 5.0, "reward_range": [0.0, 1.0]}
    proved = Proved("the rules", 0.0, 5.0, rewards=rewards)
    assert _unproved_limits(setup, proved) == (["reward_range"] if None in rewards else [])


@pytest.mark.parametrize(
    ("name", "stated"), [("floor", -9.0), ("ceiling", 9.0), ("ceiling", None)], ids=["floor", "ceiling", "no ceiling"]
)
def test_a_return_that_the_rules_do_not_allow_is_refused_whatever_is_stated(name, stated, monkeypatch):
    """The limits of the setup may be wider, and then hold the forged return."""
    monkeypatch.setattr(limits, "proved_limits", lambda _: Proved("the rules", -1.0, 1.0, tightest=(-1.0, 1.0)))
    setup = {"floor": -1.0, "ceiling": 1.0, name: stated}
    forged = -1.5 if name == "floor" else 1.5
    for value, result in ((0.5, "passed"), (forged, "failed")):
        verdict = Verdict(run="")
        check_limits([Raw("certificate.json", {}, setup, {"returns": np.array([0.0, value])}, None, None)], verdict)
        (check,) = verdict.checks
        assert check.result == result, check.detail
