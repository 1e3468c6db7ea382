"""Environments and agents that end their process, or remember: one line and exit code 2, whatever the command."""

import json
import multiprocessing
import shutil
import sys
import time

import gymnasium
import pytest

import misbehaving
from surefoot.cli import main as cli
from surefoot.play import rollout
from surefoot.runs import folder

FEW = ("--sigma", 0.1, "--floor", 0, "--ceiling", 1, "--max-steps", misbehaving.STEPS, "--quiet")
AGENT = ("--agent", "cartpole-1-s0.2")
ENDS = {
    "Exits": "the environment Exits failed in step: SystemExit: 0",
    "Stops": "the environment Stops failed in step: Stopped: enough",
    "Leaves": "a worker process ended by itself (exit code 0)",
    "Crashes": "a worker process crashed (SIGSEGV)",
}


pytestmark = pytest.mark.usefixtures("own_folder")


def run(capsys, *arguments):
    code = cli.main([str(argument) for argument in arguments])
    return code, capsys.readouterr()


def fails(capsys, message, *arguments):
    code, printed = run(capsys, *arguments)
    assert code == 2
    assert printed.out == ""
    assert message in printed.err
    assert len(printed.err.splitlines()) == 1
    end = time.monotonic() + 10
    while multiprocessing.active_children() and time.monotonic() < end:
        time.sleep(0.01)
    assert not multiprocessing.active_children()
    return printed.err


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A finished run of the honest environment."""
    folder = tmp_path_factory.mktemp("certified") / "run"
    call = ("certify", "--env", "misbehaving:Honest", *AGENT, *FEW, "--episodes", 520, "--workers", 2, "--out", folder)
    assert cli.main([str(argument) for argument in call]) == 0
    return folder


@pytest.fixture
def certified(finished_run):
    shutil.copytree(finished_run, "run")


# What raises and what ends its process; verification below has the other numbers of workers.
@pytest.mark.parametrize(("kind", "workers"), [("Exits", 2), ("Stops", 1), ("Leaves", 1), ("Crashes", 2)])
def test_certify(capsys, kind, workers):
    call = ("certify", "--env", f"misbehaving:{kind}", *AGENT, *FEW, "--workers", workers, "--out", "run")
    fails(capsys, ENDS[kind], *call, "--episodes", 300)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_end_after_the_trial(capsys, workers):
    call = ("certify", "--env", "misbehaving:LeavesLate", *AGENT, *FEW, "--workers", workers, "--out", "run")
    message = fails(capsys, "ended by itself (exit code 0)", *call, "--episodes", 600)
    assert "(environment misbehaving:LeavesLate, agent cartpole-1-s0.2)" in message


@pytest.mark.parametrize("kind", ["Exits", "Leaves"])
def test_other_commands(capsys, kind):
    env = ("--env", f"misbehaving:{kind}", *FEW)
    for call in (
        ("attack", *env, *AGENT, "--budgets", 0.1, "--method", "random", "--episodes", 4),
        ("plan", *env[:2], *env[4:], *AGENT, "--sigmas", 0.1, "--require", "0.5@0.1", "--pilot-episodes", 4),
        ("compare", AGENT[1], AGENT[1], *env, "--episodes", 40),
        ("baseline", *env[:2], *env[4:-1], "--episodes", 4),
    ):
        fails(capsys, ENDS[kind], *call, "--workers", 1)


@pytest.mark.parametrize(("kind", "message"), [("Exits", "SystemExit: 0"), ("Leaves", ENDS["Leaves"])])
def test_train(capsys, kind, message):
    fails(capsys, message, "train", "--env", f"misbehaving:{kind}", *FEW, "--out", "agent")


@pytest.mark.parametrize(("kind", "workers"), [("Exits", 1), ("Leaves", 2), ("Crashes", 1)])
def test_verify(capsys, certified, monkeypatch, kind, workers):
    """What ends its process while blocks are rerun: the class that is named misbehaves only now."""
    honest = misbehaving.Honest.misbehave
    monkeypatch.setattr(misbehaving.Honest, "misbehave", getattr(misbehaving, kind).misbehave)
    call = ("verify", "run", "--env", "misbehaving:Honest", "--fresh", 8, "--workers", workers, "--quiet")
    fails(capsys, ENDS[kind].replace(f"environment {kind}", "environment Honest"), *call)
    monkeypatch.setattr(misbehaving.Honest, "misbehave", honest)
    code, printed = run(capsys, *call)
    assert code == 0
    assert printed.out.startswith("Verified")


@pytest.mark.parametrize(
    ("workers", "agent", "message"),
    [
        (1, "misbehaving:exits", "misbehaving:exits failed: SystemExit: 0"),
        (2, "misbehaving:leaves", "trying the agent misbehaving:leaves: a worker process ended by itself"),
        (1, "misbehaving:Module", "the agent Module or the environment misbehaving:Honest failed: SystemExit: 0"),
        (2, "misbehaving:Module", "the agent Module or the environment misbehaving:Honest failed: SystemExit: 0"),
    ],
)
def test_agents_that_are_code(capsys, monkeypatch, agent, message, workers):
    monkeypatch.setattr(misbehaving, "started", [])  # other tests have run environments in this process
    call = ("certify", "--env", "misbehaving:Honest", "--agent", agent, *FEW, "--workers", workers, "--out", "run")
    fails(capsys, message, *call, "--episodes", 300)


@pytest.mark.parametrize("workers", [1, 2])
def test_their_honest_twin_is_run(capsys, monkeypatch, workers):
    monkeypatch.setattr(misbehaving, "started", [])
    honest = ("--env", "misbehaving:Honest", "--agent", "misbehaving:agent", *FEW)
    assert run(capsys, "certify", *honest, "--workers", workers, "--out", "run", "--episodes", 300)[0] == 0


def test_a_command_that_is_ended_from_below_fails(capsys, monkeypatch):
    """Not with the exit code that the code below chose; and help still ends with 0."""
    for error in (SystemExit(0), SystemExit(1), misbehaving.Stopped("enough")):

        def ended(parsed, error=error):
            raise error

        monkeypatch.setattr("surefoot.cli.doctor.run_doctor", ended)
        fails(capsys, f"ended before it had finished, by {type(error).__name__}: {error}", "doctor")
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])


def test_a_broken_pipe_that_is_not_the_output_is_no_success(capsys, monkeypatch):
    def broken(parsed):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("surefoot.cli.doctor.run_doctor", broken)
    assert run(capsys, "doctor")[0] == cli.CRASHED


def test_an_environment_that_exits_while_gymnasium_makes_it(capsys, monkeypatch):
    entry = gymnasium.envs.registration.EnvSpec("Leaver-v0", entry_point=lambda: sys.exit(0), max_episode_steps=5)
    monkeypatch.setitem(gymnasium.registry, "Leaver-v0", entry)
    call = ("certify", "--env", "Leaver-v0", *AGENT, *FEW[:6], "--quiet", "--workers", 1, "--out", "run")
    fails(capsys, "Leaver-v0 failed: SystemExit: 0", *call)


def test_what_is_kept_from_block_to_block_shows_in_another_order(capsys, monkeypatch):
    """Good for the first 300 resets of a process: the second block is run after the first, and rerun before it."""
    call = ("certify", "--env", "misbehaving:Patient", *AGENT, *FEW, "--workers", 1, "--out", "run")
    code, printed = run(capsys, *call, "--episodes", 512)
    assert code == 2
    assert "the episodes are not independent: the 256 returns of a block resemble each other" in printed.err
    monkeypatch.setattr(rollout, "check_independence", lambda episodes: None)
    monkeypatch.setattr(folder, "check_independence", lambda episodes: None)
    assert run(capsys, *call, "--episodes", 512)[0] == 0
    verify = ("verify", "run", "--env", "misbehaving:Patient", "--workers", 1, "--blocks", "all", "--quiet", "--json")
    code, printed = run(capsys, *verify)
    assert code == 1
    checks = {check["name"]: check for check in json.loads(printed.out)["checks"]}
    assert checks["independence"]["result"] == "failed"
    assert checks["replay"]["result"] == "failed"
    assert "block 1: " in checks["replay"]["detail"]


def test_what_environments_and_agents_print_is_no_part_of_the_json(capfd):
    call = ["certify", "--env", "misbehaving:Talks", "--agent", "misbehaving:talk", *FEW, "--episodes", 2, "--json"]
    assert cli.main([str(word) for word in (*call, "--workers", 1, "--out", "run")]) == 0
    printed = capfd.readouterr()
    assert json.loads(printed.out)["n_episodes"] == 2
    assert all(f"a word of {who}" in printed.err for who in ("Python", "C", "the agent"))
