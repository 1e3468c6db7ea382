"""``surefoot certify`` of a task or an environment: results, silence, what is kept, what is refused."""

from pathlib import Path

import pytest

import surefoot
import waiting_env
from cli_commands import KEYS, LEFT, QUICK, strict, surefoot_command
from surefoot.agents import files as zoo
from surefoot.cli import main as cli
from surefoot.episodes import Episodes

pytestmark = pytest.mark.usefixtures("elsewhere")


# Pendulum's cost per step is angle^2 + 0.1 speed^2 + 0.001 torque^2, of at most pi, 8 and 2, over 200 steps.
PENDULUM_FLOOR = -3255.0


def test_a_task_is_certified_shown_and_kept(capsys):
    surefoot_command(*QUICK, "--out", "run")
    shown = capsys.readouterr()
    assert shown.err == ""
    lines = shown.out.splitlines()
    said, rows, _ = shown.out.split("\n\n", 2)
    head, *body = rows.splitlines()
    assert head == "attack budget  lower bound  upper bound"
    table = {row.split()[0]: row.split()[1:3] for row in body[:11]}
    made = strict(Path("run/certificate.json").read_text())
    assert [float(budget) for budget in table] == made["budgets"]
    for (low, high), lower, upper in zip(table.values(), made["lower"], made["upper"], strict=True):
        assert lower - 0.01 < float(low) <= lower
        assert upper <= float(high) < upper + 0.01
    last = max((budget for budget in table if float(table[budget][0]) > 40.815), key=float)
    sentence = f"at least {table[last][0]} (maximum 200) under any observation attack with budget {last} (total l2 norm"
    assert sentence in " ".join(said.split())
    assert "(estimate ± standard error)" in shown.out
    assert "* at most the open-loop baseline of 40.81" in shown.out
    assert max(map(len, lines[:-1])) <= 78
    assert lines[-1] == "Report: run/report.html"
    assert sorted(path.name for path in Path("run").iterdir()) == LEFT
    assert Path("run/certificate.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert Path("run/certificate.png").stat().st_size > 4_000
    facts = strict(Path("run/run.json").read_text())
    assert facts["agent_sha256"] == made["agent_sha256"] == zoo.load_card("cartpole-5-s0.2")["sha256"]
    assert facts["versions"]["surefoot"] == surefoot.__version__
    assert facts["wall_seconds"] > 0
    assert strict(Path("run/setup.json").read_text())["n_planned"] == 120


def test_json_is_the_certificate_and_nothing_else(capsys):
    surefoot_command(*QUICK, "--out", "run", "--json", "--seed", 5)
    shown = capsys.readouterr()
    assert shown.err == ""
    made = strict(shown.out)
    assert made == strict(Path("run/certificate.json").read_text())
    assert set(made) >= KEYS
    facts = {key: made[key] for key in ("task", "agent", "sigma", "confidence", "n_episodes", "method", "seed")}
    assert facts == {
        "task": "cartpole-5",
        "agent": "cartpole-5-s0.2",
        "sigma": 0.2,
        "confidence": 0.95,
        "n_episodes": 120,
        "method": "auto",
        "seed": 5,
    }
    assert (made["floor"], made["ceiling"], len(made["upper"])) == (0, 200, 11)
    record = Episodes.load("run/episodes.npz")
    assert surefoot.certify(record, made["budgets"]).to_json() == made
    assert made["estimate"] == record.returns.mean()


def test_a_requirement_is_met_in_the_norm_it_is_asked_in(capsys):
    """A budget of 0.01 for every coordinate of 200 observations is an l2 budget of 0.28, at which less holds."""
    task = ("certify", "cartpole-1", "--episodes", 120, "--seed", 5, "--workers", 1, "--budgets", "0", "--quiet")
    made = {}
    for norm in ("l2", "linf"):
        code = cli.main([str(a) for a in (*task, "--out", "run", "--norm", norm, "--require", "150@0.01", "--json")])
        made[norm] = strict(capsys.readouterr().out)
        assert made[norm]["require"] == {"mean": 150, "budget": 0.01, "proved": made[norm]["lower"][1] >= 150}
        assert code == (0 if made[norm]["require"]["proved"] else 1)
    assert [made[norm]["require"]["proved"] for norm in ("l2", "linf")] == [True, False]


@pytest.mark.parametrize(
    ("name", "environment", "floor", "ceiling"),
    [
        ("PPO", "CartPole-v1", 0, 500),
        ("SAC", "Pendulum-v1", PENDULUM_FLOOR, 0),
    ],
)
def test_any_sb3_agent_on_any_environment(capsys, models, name, environment, floor, ceiling):
    zipped = models / f"{name}-{environment}.zip"
    setup = ("certify", "--env", environment, "--agent", zipped, "--sigma", 0.1, "--floor", floor, "--ceiling", ceiling)
    more = ("--episodes", 3, "--workers", 1, "--json")
    surefoot_command(*setup, *more)
    shown = capsys.readouterr()
    made = strict(shown.out)
    assert shown.err == ""
    assert (made["task"], made["agent"], made["method"]) == (environment, zipped.stem, "auto")
    assert (made["floor"], made["ceiling"]) == (floor, ceiling)
    surefoot_command(*setup, *more, "--allow-pickle", "--out", "trusted")
    trusted = strict(capsys.readouterr().out)
    assert trusted["estimate"] == made["estimate"]
    assert trusted["lower"] == made["lower"]


def test_an_environment_may_have_no_ceiling_and_another_limit(capsys, models):
    """Nothing is known of the rewards of an environment of one's own."""
    agent = models / "DQN-CartPole-v1.zip"
    setup = ("certify", "--env", waiting_env.ID, "--agent", agent, "--sigma", 0.1, "--floor", 0)
    surefoot_command(*setup, "--episodes", 4, "--max-steps", 3, "--json", "--out", "run")
    made = strict(capsys.readouterr().out)
    assert made["upper"] is made["ceiling"] is None
    assert Episodes.load("run/episodes.npz").lengths.tolist() == [3] * 4
