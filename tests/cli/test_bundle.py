"""A bundle is verified where nothing but the run directory is; what is in it is believed by its hash alone."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from cli_commands import refused, surefoot_command
from surefoot import InputError, certify_run
from surefoot.verification.allowed import verify_command

RUN = ("certify", "--env", "CartPole-v1", "--max-steps", 20, "--sigma", 0.1, "--episodes", 40, "--workers", 1)


@pytest.fixture(scope="module")
def bundled(tmp_path_factory, models):
    folder = tmp_path_factory.mktemp("bundled") / "run"
    surefoot_command(*RUN, "--agent", models / "PPO-CartPole-v1.zip", "--out", folder, "--bundle", "--quiet")
    return folder


@pytest.fixture
def bundle(elsewhere, bundled):
    """A bundle, in a folder to which its agent has never been copied."""
    return Path(shutil.copytree(bundled, "run"))


def test_it_is_verified_elsewhere_by_the_command_that_was_printed(bundle, models, capsys):
    surefoot_command(*RUN, "--agent", models / "PPO-CartPole-v1.zip", "--out", "run", "--bundle", "--quiet")
    printed = capsys.readouterr().out.splitlines()[-1].removeprefix("Verify it anywhere with: ")
    Path("there").mkdir()
    shutil.move("run", "there/run")
    words = shlex.split(printed.replace("verify run", "verify there/run"))
    surefoot_command(*words[1:], "--workers", 1, "--fresh", 8, "--quiet")
    assert "Verified: there/run" in capsys.readouterr().out
    content = json.loads(Path("there/run/bundle.json").read_text())
    assert content["agent"] == "agent/PPO-CartPole-v1.zip"
    assert content["environment"] == {"environment": "CartPole-v1", "max_steps": 20}
    assert content["versions"]["surefoot"]


@pytest.mark.parametrize("named", [True, False])
def test_what_was_typed_is_what_is_bundled(named, elsewhere, models, monkeypatch):
    """With other statistics it would be another agent; a pretrained one, which is named nowhere, needs no copy."""
    bundled = []
    monkeypatch.setattr("surefoot.api.certify.write_bundle", lambda *given, **how: bundled.append((given, how)))
    agent = str(models / "PPO-CartPole-v1.zip")
    words = (*RUN, "--agent", agent, "--vecnormalize", "none") if named else ("certify", "cartpole-1", *RUN[-4:])
    surefoot_command(*words, "--out", "run", "--bundle", "--quiet")
    if not named:
        assert bundled == []
        return
    ((given, how),) = bundled
    assert given == (Path("run"), agent)
    assert how["vecnormalize"] == "none"
    assert how["command"].startswith("surefoot certify --env CartPole-v1")


def test_another_agent_in_the_bundle_is_not_believed(bundle, models, capsys):
    shutil.copy(models / "DQN-CartPole-v1.zip", bundle / "agent" / "PPO-CartPole-v1.zip")
    surefoot_command("verify", bundle, "--workers", 1, "--fresh", 8, "--quiet", code=1)
    assert "the weights of" in " ".join(capsys.readouterr().out.split())


def test_a_bundle_that_names_another_environment_is_refused(bundle, capsys):
    """Whoever reads it would believe that the agent is certified there."""
    content = json.loads((bundle / "bundle.json").read_text())
    named = {"environment": "CartPole-v1", "max_steps": 500}
    (bundle / "bundle.json").write_text(json.dumps(content | {"environment": named}))
    surefoot_command("verify", bundle, "--workers", 1, "--fresh", 8, "--quiet", code=1)
    assert "FAILED bundle max_steps is 500 and 20" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "name", ["../outside.zip", "agent/../../outside.zip", "/etc/hostname", "agent/" + "a" * 9_999, 3]
)
def test_a_bundle_names_nothing_outside_of_itself_and_nothing_endless(bundle, models, capsys, name):
    shutil.copy(models / "PPO-CartPole-v1.zip", "outside.zip")
    content = json.loads((bundle / "bundle.json").read_text())
    (bundle / "bundle.json").write_text(json.dumps(content | {"agent": name}))
    refused(capsys, "verify", bundle, "--workers", 1, "--quiet", match="not a readable bundle")


def test_the_folder_of_a_bundle_is_no_link(bundle, capsys):
    """Planted: what is behind it is outside of the run directory, wherever that is handed on to."""
    shutil.move(bundle / "agent", "outside")
    (bundle / "agent").symlink_to(Path("outside").resolve())
    refused(capsys, "verify", bundle, "--workers", 1, "--quiet", match="is not in its folder agent")


def test_a_bundle_of_another_schema(bundle, capsys):
    content = json.loads((bundle / "bundle.json").read_text())
    (bundle / "bundle.json").write_text(json.dumps(content | {"schema": 2}))
    refused(capsys, "verify", bundle, "--workers", 1, "--quiet", match="schema 2, this version reads 1")


def test_code_is_no_file(elsewhere, capsys):
    Path("mine.py").write_text("def act(seen):\n    return 0\n")
    refused(capsys, *RUN, "--agent", "mine:act", "--bundle", "--quiet", match="--bundle needs an agent in a file")


def test_in_python_it_is_the_file_that_is_named(elsewhere):
    with pytest.raises(InputError, match="bundle= needs an agent in a file, and mine:act is code"):
        certify_run("cartpole-1", bundle="mine:act")


TYPED = "surefoot certify --env my:Env --agent 'my agent.zip' --vecnormalize=s.pkl --allow-pickle --sigma 0.1"
SETUP = {"environment": "my:Env", "wrappers": ['ClipReward={"min_reward": 0}'], "env_kwargs": {"g": 1.0}}


def test_the_whole_command_names_agent_and_environment():
    assert shlex.split(verify_command(Path("a run"), SETUP, TYPED, has_bundle=False)) == [
        *("surefoot", "verify", "a run", "--agent", "my agent.zip", "--vecnormalize", "s.pkl", "--allow-pickle"),
        *("--env", "my:Env", "--wrapper", 'ClipReward={"min_reward": 0}', "--env-kwargs", '{"g": 1.0}'),
    ]
    assert verify_command(Path("run"), {"task": "cartpole-1"}, "surefoot certify cartpole-1", has_bundle=False) == (
        "surefoot verify run"
    )
    named = verify_command(Path("run"), {}, "surefoot certify a2c/Pendulum-v1_1 --sigma 0.1", has_bundle=False)
    assert named == "surefoot verify run --agent a2c/Pendulum-v1_1"
    assert "--agent" not in verify_command(Path("run"), SETUP, TYPED, has_bundle=True)
