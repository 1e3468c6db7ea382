"""Progress moves while a block is being run, shows the bound of a sequential run, and Ctrl-C says what is kept."""

import argparse
import io
import re
import time
from pathlib import Path

import pytest
from rich.console import Console

from surefoot.cli import options
from surefoot.cli.main import main
from surefoot.noise import Noise
from surefoot.play import meter
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.proof.query import Query
from surefoot.proof.stopping import StoppingRule
from surefoot.runs.certified import certified_run
from toys import constant, geometric, pay_steps, toy_task

pytestmark = pytest.mark.usefixtures("own_folder")


def plan(n_episodes=400):
    task = toy_task(geometric(0.1, 10), pay_steps, floor=0.0, ceiling=10.0, n_envs=50, episodes_per_env=2)
    return Plan(task=task, policy=constant(), noise=Noise.of(0.5), n_episodes=n_episodes)


def test_a_block_says_how_far_it_is_and_never_goes_back(monkeypatch):
    monkeypatch.setattr(meter, "_EVERY", 0.0)
    meter.clear()
    seen = []
    made = play_block(plan(), 3, watch=lambda _: seen.append(meter.episodes_under_way()))
    assert seen == sorted(seen)
    assert len(set(seen)) > 8
    assert seen[0] == 0 < seen[1] < 50
    assert meter.episodes_under_way() == len(made) == 100


@pytest.mark.parametrize("workers", [1, 2])
def test_whole_blocks_are_counted_once(monkeypatch, workers):
    """What is reported and what is under way add up to all episodes at every report, with processes too."""
    monkeypatch.setattr(meter, "_EVERY", 0.0)
    totals = []
    play(plan(), workers=workers, progress=lambda done, of: totals.append(done + meter.episodes_under_way()))
    assert totals[-1] == 400
    assert totals == sorted(totals)
    assert max(totals) <= 400
    assert meter.episodes_under_way() == 0


def test_the_bar_moves_between_reports_and_shows_rate_and_time_left(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(
        options, "Console", lambda **_: Console(file=screen, force_terminal=True, color_system=None, width=120)
    )
    meter.clear()
    with options.progress_bar("attacking", "episodes", argparse.Namespace(quiet=False)) as report:
        report(0, 1_000)
        for done in (10, 20, 30, 40):
            meter.Meter(0).write_episodes(done)
            time.sleep(0.3)
    meter.clear()
    assert "40/1,000 episodes" in screen.getvalue()
    assert re.search(r"\d/s 0\d:\d\d", screen.getvalue())


def test_a_sequential_run_shows_its_bound():
    notes = []
    goal = StoppingRule(budget=0.5, require=3.0)
    made = certified_run(
        plan(20_000),
        Query(budgets=(0.5,)),
        Path("run"),
        goal=goal,
        progress=lambda *said: notes.append(said[2]),
        figure=False,
    )
    assert notes[0] == "bound 0.00 at B = 0.5, required 3"
    bounds = [float(re.match(r"bound ([\d.]+) at", note)[1]) for note in notes]
    assert bounds[-1] == pytest.approx(made.lower[0], abs=0.01)
    assert len(set(bounds)) > 3


@pytest.mark.parametrize("command", ["plan cartpole-5 --require 150@0.4", "certify cartpole-5 --out run"])
def test_where_nothing_is_kept_it_says_so(command, monkeypatch, capsys):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("surefoot.play.rollout.run_blocks", stopped)
    assert main(command.split()) == 130
    assert capsys.readouterr().err == "surefoot: interrupted; nothing is kept.\n"
    assert not Path("run").exists()
