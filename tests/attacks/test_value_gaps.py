"""The default attack attacks: its lambdas are in the units of the agent's own values."""

import json

import pytest

from surefoot.agents import files
from surefoot.attacks import value_gaps
from surefoot.cli import main as cli
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.tasks import get_task
from surefoot.report.sentences import attack_notes
from surefoot.runs.attacked import AttackGrid, attacked_run


def grid(agent, **more):
    task = get_task(agent.rsplit("-s", 1)[0])
    return AttackGrid(
        base=Plan(task=task, policy=files.load(agent), noise=Noise.of(0.0), n_episodes=10), budgets=(1.0,), **more
    )


def test_default_lambdas_are_quantiles_of_the_agents_gaps_and_repeat_themselves(monkeypatch):
    monkeypatch.setattr(value_gaps, "EPISODES", 2)
    found = grid("cartpole-5-s0").default_lambdas()
    assert found == grid("cartpole-5-s0").default_lambdas()
    assert found[0] == 0 < found[1] < found[-1]
    assert len(found) == 1 + len(value_gaps.QUANTILES)
    assert found[-1] < min(get_task("cartpole-5").paper.lambdas)  # the paper's list lies above most of its gaps
    assert grid("cartpole-5-s0", method="random").default_lambdas() == (0.0,)


@pytest.fixture
def few(monkeypatch):
    """One quantile and a few episodes will do to see whether an agent is attacked at all."""
    monkeypatch.setattr(value_gaps, "QUANTILES", (0.75,))
    monkeypatch.setattr(value_gaps, "EPISODES", 2)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("agent", ["cartpole-5-s0", "cartpole-1-s0"])
def test_the_default_attack_halves_the_distance_to_the_open_loop_baseline(agent, tmp_path):
    attack = grid(agent)
    result, _ = attacked_run(grid(agent, lambdas=attack.default_lambdas()), tmp_path)
    baseline = attack.base.task.baseline.mean
    assert result["curve"][-1] < (200.0 + baseline) / 2
    assert not all(result["did_not_attack"][-1])
    assert not any("Warning" in note for note in attack_notes(result))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("agent", ["mountain-car-s0", "pong-1r-s0"])
def test_an_agent_that_is_hardly_hurt_is_warned_about(agent, tmp_path, capsys, monkeypatch):
    """A game of pong-full takes minutes; pong-1r is the same game."""
    monkeypatch.setattr(value_gaps, "QUANTILES", ())
    monkeypatch.setattr(value_gaps, "EPISODES", 1)
    task = get_task(agent.rsplit("-s", 1)[0])
    size = ["--episodes", "1", "--budgets", "0.01,0.02", *([] if task.cartridge else ["--lambda", "0.001"])]
    assert cli.main(["attack", task.name, *size, "--quiet", "--workers", "1", "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    result = json.loads((tmp_path / "run" / "attack.json").read_text())
    clean = files.load_card(agent)["selection"]["mean"]
    halved = result["curve"][-1] <= (clean + task.baseline.mean) / 2
    assert halved or "is not significantly lower than without" in " ".join(printed.split())


def test_an_attack_that_saves_its_whole_budget_is_marked(tmp_path, capsys):
    call = ["attack", "cartpole-5", "--lambda-q", "1e6", "--episodes", "5", "--budgets", "0.2,1", "--workers", "1"]
    assert cli.main([*call, "--quiet", "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert printed.count("200.00 ± 0.00 *") == 2  # one configuration per budget
    assert "* did not attack: used less than 1% of its budget." in printed
    assert "try --method strongest, lambda 0, or larger budgets." in " ".join(printed.split())
    assert json.loads((tmp_path / "run" / "attack.json").read_text())["did_not_attack"] == [[True], [True]]
    assert "did not attack" in (tmp_path / "run" / "report.html").read_text()


def test_each_algorithm_has_its_own_lambda(capsys):
    assert cli.main(["attack", "cartpole-5", "--lambda", "0.1"]) == 2
    assert "--lambda cannot be used with cartpole-5, which has discrete actions; use --lambda-q" in (
        capsys.readouterr().err
    )
    assert cli.main(["attack", "mountain-car", "--lambda-q", "0.1"]) == 2
    assert "--lambda-q cannot be used with mountain-car, which has continuous actions; use --lambda" in (
        capsys.readouterr().err
    )
