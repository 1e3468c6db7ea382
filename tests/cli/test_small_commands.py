"""``agents``, ``export``, ``baseline`` and ``plan``."""

import argparse
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import stable_baselines3

from cli_commands import strict, surefoot_command
from surefoot.agents import files as zoo
from surefoot.api.attack import AttackCurve
from surefoot.api.plan import Cost
from surefoot.cli import main as cli
from surefoot.cli.attack import _show_curve
from surefoot.cli.main import build_parser
from surefoot.cli.options import parse_budgets, parse_minutes
from surefoot.cli.plan import _show_forecasts
from surefoot.cli.verify import _show_verdict
from surefoot.files import read_json
from surefoot.proof.query import Units
from surefoot.verification.verdict import Verdict

pytestmark = pytest.mark.usefixtures("elsewhere")


def test_agents_are_listed(capsys):
    surefoot_command("agents", "--json")
    listed = strict(capsys.readouterr().out)
    assert [agent["name"] for agent in listed["agents"]] == zoo.list_agents()
    surefoot_command("agents")
    shown = capsys.readouterr().out
    assert all(name in shown for name in zoo.list_agents())
    assert "…" not in shown  # no heading and no number is cut


def test_agents_are_exported_to_plain_sb3(capsys):
    surefoot_command("export", "cartpole-1-s0.2", "--out", "made.zip")
    assert "made.zip" in capsys.readouterr().out
    model = stable_baselines3.DQN.load("made.zip")
    assert model.predict(np.zeros(4, np.float32), deterministic=True)[0] in (0, 1)
    setup = ("certify", "cartpole-1", "--episodes", 50, "--workers", 1, "--sigma", 0.2, "--seed", 5, "--json")
    surefoot_command(*setup, "--agent", "made.zip", "--out", "there")
    there = strict(capsys.readouterr().out)
    surefoot_command(*setup, "--out", "here")
    assert strict(capsys.readouterr().out)["lower"] == there["lower"]


def test_the_open_loop_baseline_is_measured(capsys, monkeypatch):
    monkeypatch.setattr("surefoot.play.baseline.HALF_PERIODS", (4,))
    surefoot_command("baseline", "cartpole-1", "--episodes", 400, "--json")
    found = strict(capsys.readouterr().out)
    assert (found["task"], found["n_episodes"]) == ("cartpole-1", 400)
    assert 30 < found["mean"] < 50
    surefoot_command("baseline", "cartpole-1", "--episodes", 400, "--quiet")
    assert "Open-loop baseline: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "budgets"),
    [
        ("0", (0.0,)),
        ("0,0.2,0.4", (0.0, 0.2, 0.4)),
        ("0:1:0.25", (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("0:0.3:0.1", (0.0, 0.1, 0.2, 0.3)),
        ("0:1:0.3", (0.0, 0.3, 0.6, 0.9)),
        ("0.5:0.5:1", (0.5,)),
        ("0:3e-14:1e-14", (0.0, 1e-14, 2e-14, 3e-14)),
    ],
)
def test_budgets_are_read(text, budgets):
    assert parse_budgets(text) == budgets


@pytest.mark.parametrize(
    ("text", "minutes"), [("10m", 10.0), ("90s", 1.5), ("1h", 60.0), ("0.5h", 30.0), ("7", 7.0), ("1e1s", 1 / 6)]
)
def test_minutes_are_read(text, minutes):
    assert parse_minutes(text) == pytest.approx(minutes)


@pytest.mark.parametrize("text", ["0", "0s", "-1m", "xm", "", "m", "inf", "5d", "1,2m"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match=r"(must look like 10m, 90s or 1h|must be longer than 0), got"):
        parse_minutes(text)


def test_the_cost_of_a_plan_is_that_of_its_blocks_on_the_cores():
    def on(cores):
        return Cost(core_seconds=0.01, gpu_seconds=None, block=500, cores=cores)

    assert on(1).seconds(1_000) == 10.0
    assert on(2).seconds(1_000) == 5.0
    assert on(256).seconds(1_000) == 5.0  # two blocks keep two cores busy, however many there are
    assert on(2).seconds(1_001) == 10.0
    assert on(8).seconds(100) == 1.0
    assert on(4).to_json(360_000)["core_hours"] == 1.0
    assert on(4).to_json(None)["core_hours"] is None
    assert on(4).describe(360_000) == "~360,000 episodes are 1 core hours, 15 min on 4 cores"
    on_gpu = Cost(core_seconds=0.01, gpu_seconds=6e-6, block=65_536, cores=4)
    assert on_gpu.to_json(10**7)["gpu_minutes"] == pytest.approx(1.0)
    assert on_gpu.describe(10**7) == "~10,000,000 episodes are 1 GPU minutes (60 s)"


def test_plan_says_core_hours_and_rejects_no_cores(capsys):
    asked = "plan cartpole-1 --require 100@0.2 --sigmas 0.2 --pilot-episodes 60 --workers 1"
    assert cli.main([*asked.split(), "--cores", "8"]) == 0
    assert "core hours" in (shown := capsys.readouterr().out)
    assert "on 8 cores" in shown
    assert cli.main([*asked.split(), "--cores", "0"]) == 2
    assert "--cores must be at least 1, got 0" in capsys.readouterr().err


def test_what_training_prints_can_be_pasted(elsewhere, capsys):
    """A wrapper's arguments are in no name of a folder or an agent; planted: blanks and quotes end a pasted command."""
    wrapper = 'ClipReward={"min_reward": 0, "max_reward": 1}'
    surefoot_command(
        *("train", "--env", "CartPole-v1", "--max-steps", 20, "--wrapper", wrapper, "--reward-range", "0,1"),
        *("--sigma", "0.1,0,0.1,0.1", "--time", "1s", "--set", "total_steps=2048", "--quiet"),
    )
    pasted = shlex.split(capsys.readouterr().out.partition("certify it with: ")[2])
    parsed = build_parser().parse_args(pasted[1:])
    assert parsed.wrapper == [wrapper]
    assert parsed.sigma == [0.1, 0.0, 0.1, 0.1]
    assert Path(parsed.agent, "agent.json").exists()
    card = read_json(Path(parsed.agent, "agent.json"))
    assert re.fullmatch(r"[\w.-]+", card["name"])
    assert re.fullmatch(r"runs/train-CartPole-v1-[0-9a-f]{6}-s0.1_0_0.1_0.1-ppo-seed0", parsed.agent)


def test_a_row_of_a_curve_is_about_the_lambda_that_hurt_most(capsys):
    """Its mean, loss, changed episodes, and whether it attacked at all; not those of the first lambda."""
    summary = {
        "agent": "a",
        "task": "t",
        "sigma": 0.0,
        "method": "paper",
        "n_episodes": 50,
        "unattacked": {"mean": 10.0},
    }
    summary |= {"budgets": [0.5, 2.0], "lambdas": [0.0, 0.25], "curve": [3.0, 1.0], "curve_sem": [0.2, 0.1]}
    summary |= {"loss": [[1.0, 7.0], [9.0, 2.0]], "loss_sem": [[0.4, 0.3], [0.2, 0.4]]}
    summary |= {"curve_lambda": [0.25, 0.0], "did_not_attack": [[False, True], [False, True]], "invisible_loss": 0.5}
    curve = AttackCurve(
        budgets=np.array([0.5, 2.0]),
        lambdas=(0.0, 0.25),
        mean=np.array([[9.0, 3.0], [1.0, 8.0]]),
        sem=np.array([[0.4, 0.2], [0.1, 0.4]]),
        lowest=np.array([3.0, 1.0]),
        lowest_sem=np.array([0.2, 0.1]),
        loss=np.array([[1.0, 7.0], [9.0, 2.0]]),
        loss_sem=np.array([[0.4, 0.3], [0.2, 0.4]]),
        n_changed=np.array([[11, 22], [33, 44]]),
        records=(),
        summary=summary,
    )
    arguments = build_parser().parse_args(["attack", "cartpole-1"])
    _show_curve(curve, arguments.parser, Units(), discrete=True)
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "0.5 3.00 ± 0.20 * 0.25 7.00 ± 0.30 22" in rows
    assert "2 1.00 ± 0.10 0 9.00 ± 0.20 33" in rows
    # In the units that were asked for, of which one is a half here.
    _show_curve(curve, arguments.parser, Units((0.5, 3.0)), discrete=True)
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "normalized budget lowest mean lambda-q loss changed" in rows
    assert "1 3.00 ± 0.20 * 0.25 7.00 ± 0.30 22" in rows
    assert "4 1.00 ± 0.10 0 9.00 ± 0.20 33" in rows


@pytest.mark.parametrize(("n_special", "shown"), [(0, 2), (1, 2), (5, 5)])
def test_all_that_was_not_checked_of_this_run_alone_is_printed(n_special, shown, capsys):
    """A dishonest author may count on one of these lines; limitations of every verification follow in one."""
    lines = [f"special {number}" for number in range(n_special)] + ["general"] * 3
    verdict = Verdict(run="run", not_checked=lines, n_general=3)
    _show_verdict(verdict, verbose=False)
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("- ")]
    assert printed[:-1] == [f"- {line}" for line in lines[:shown]]
    assert printed[-1] == f"- and {len(lines) - shown} limitations of every verification: see --verbose"


def test_each_number_of_a_forecast_is_under_its_heading(capsys):
    one = SimpleNamespace(sigma=0.5, estimate=9.0, worst=7.0, limit=6.0, episodes=1000, require=3.0)
    one = SimpleNamespace(**vars(one), fixed=400, sequential=None, least=20)
    _show_forecasts([one])
    head, below, row = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert re.split("  +", head.strip()) == ["worst-case", "expected bound", "episodes", "episodes"]
    ends = ["sigma", "mean", "mean", "(n = 1,000)", "(fixed n)", "(sequential)", "at least"]
    assert re.split("  +", below.strip()) == ends
    assert row.split() == ["0.5", "9.00", "7.00", "6.00", "~400", "never", "~20"]
    _show_forecasts([SimpleNamespace(**{**vars(one), "require": None})])
    assert capsys.readouterr().out.splitlines()[-1].split() == ["0.5", "9.00", "7.00", "6.00"]
