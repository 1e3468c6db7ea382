"""``surefoot compare``: the table, gates and exit codes, files of others, what is written, a run that resumes."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from shutil import copyfile

import numpy as np
import pytest

from surefoot.agents.files import agents_dir
from surefoot.api.compared_agents import _on_same_seeds
from surefoot.cli.main import main
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import read_json, write_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.proof.comparison import Comparer, Gate, Question
from surefoot.proof.difference import pair_up
from surefoot.report.comparison_page import write_comparison_page
from surefoot.runs.compared import compared_run, made_up
from surefoot.runs.read import read_tape
from toys import constant, geometric, pay_steps, toy_task

GOOD, BAD = "cartpole-1-ppo-s0.2", "cartpole-1-s0.8"


pytestmark = pytest.mark.usefixtures("own_folder")


def compare(*words, out="run"):
    place = ["--out", out] if out else []
    return main(["compare", *map(str, words), "--workers", "1", *place])


def test_two_agents_are_run_on_the_same_episodes_and_everything_is_written(capsys):
    assert compare(GOOD, BAD, "--budgets", 0.2, "--episodes", 300, "--record") == 0
    said = capsys.readouterr().out
    assert " ".join(said.split()).startswith("A is better: with 95% confidence the mean return of A (cartpole-1-ppo")
    assert "paired: both ran the same 300 episodes" in said
    made = json.loads(Path("run/comparison.json").read_text())
    a, b = (Episodes.load(f"run/{side}/episodes.npz") for side in "AB")
    again = Comparer(Question(budgets=(0.2,)), a, b).answer(a, b)
    assert (made["low"], made["high"]) == (again.interval.low, again.interval.high)
    assert made["attacked"][0]["lower"] == again.attacked[0].lower
    assert a.metadata["seed"] == b.metadata["seed"]
    rows = list(csv.DictReader(Path("run/episodes.csv").read_text().splitlines()))
    assert [float(row["return_b"]) for row in rows] == b.returns.tolist()
    assert main(["verify", "run", "--blocks", "0"]) == 4
    assert "bounds" in capsys.readouterr().out
    Path("run/report.html").unlink()
    assert main(["report", "run"]) == 0
    capsys.readouterr()
    page = Path("run/report.html").read_text()
    assert "<b>A is better</b>" in page
    # The replay is of the episode that differs most, and is read from the run directory.
    tape, arrays = read_tape(Path("run"))
    assert (tape["episode"], *tape["returns"]) == tuple(made["changes"]["largest"][0])
    assert len(arrays["A_clean"]) == tape["returns"][0]
    assert "in which the two differ most: the return is 200 of A and " in page
    assert main(["report", "run", "--out", "differences.svg"]) == 0
    assert "<svg" in Path("differences.svg").read_text()
    capsys.readouterr()
    for alone in (["--format", "md"], ["run/A"], ["--evidence"]):
        assert main(["report", "run", *alone]) == 2
        assert "run is a comparison" in capsys.readouterr().err
    # The episodes of finished runs are compared without running them again, and say the same.
    assert compare("run/A", "run/B", "--json", out=None) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["low"] == Comparer(Question(), a, b).answer(a, b).interval.low


@pytest.mark.parametrize(
    ("low", "high", "headline"),
    [
        (1.234, 5.678, "<b>A is better</b> <span>by 1.23 to 5.68 in mean return"),
        (-5.678, -1.234, "<b>B is better</b> <span>by 1.23 to 5.68 in mean return"),
        (-1.0, 2.0, "<b>Not separated</b> <span>mean return of A minus that of B: -1.00 to 2.00"),
    ],
)
def test_the_page_begins_with_which_is_better_and_by_how_much(low, high, headline, tmp_path):
    record = Episodes.from_returns(np.arange(100.0), sigma=0.1, floor=0, ceiling=100)
    found = Comparer(Question(), record, record).answer(record, record)
    shifted = replace(found, interval=replace(found.interval, low=low, high=high))
    write_comparison_page(shifted, tmp_path / "page.html")
    assert headline in (tmp_path / "page.html").read_text()


def test_what_is_missing_for_the_second_agent_is_named_with_its_own_option(capsys):
    card = read_json(agents_dir() / f"{BAD}.json")
    write_json(Path("own.json"), {**card, "name": "mine"})
    copyfile(agents_dir() / f"{BAD}.npz", "own.npz")
    assert compare(GOOD, "./own", "cartpole-1", "--episodes", 4) == 0
    capsys.readouterr()
    assert main(["verify", "run", "--fresh", "0"]) == 4
    assert "give its file, or code, with --agent-b" in " ".join(capsys.readouterr().out.split())
    assert compare(GOOD, "./own", "cartpole-1", "--vecnormalize-b", "none.pkl", out=None) == 2
    assert "--vecnormalize-b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        (("--better-than", BAD), 0),
        (("--no-worse-than", BAD, "--margin", 5), 0),
        (("--better-than", GOOD), 1),
        (("--no-worse-than", GOOD, "--margin", 10), 0),
    ],
)
def test_gates_pass_or_fail_by_what_is_proved(gate, code, capsys):
    assert compare(GOOD, *gate, "--episodes", 120) == code
    said = capsys.readouterr().out
    assert ("NOT passed: " in said) == (code == 1)
    assert "assed: A is " in said


def unfinished(folder):
    """Write a run directory that was killed."""
    Path(folder).mkdir()
    Path(folder, "setup.json").write_text("{}")


def record(folder, returns=(1.0, 2.0), **metadata):
    episodes = Episodes.from_returns(returns, sigma=0.1, floor=0, ceiling=10, **metadata)
    episodes.save(Path(folder) / "episodes.npz")


def test_runs_that_are_missing_unfinished_or_of_another_setup_never_pass(capsys):
    unfinished("killed")
    record("one", task="t")
    record("other", task="u")
    record("stopped", task="t", n_planned=5)
    for wrong, said in (
        ("killed", "was not finished"),
        ("no-such-run", "an agent and episodes"),
        ("other", "task t and u"),
        ("stopped", "2 of 5 planned"),
    ):
        for gate in (("--better-than", wrong), ("--no-worse-than", wrong, "--margin", 1000)):
            assert compare("one", *gate, out=None) == 2
            assert said in capsys.readouterr().err


def test_an_undefended_agent_under_attack_is_an_agent_to_compare_with(capsys):
    attacked = ("--sigma-b", 0, "--attack", "random", "--budgets", "0.1,0.2", "--episodes", 120)
    assert compare(GOOD, BAD, *attacked) == 0
    assert "B at most 200.00 under the attack" in " ".join(capsys.readouterr().out.split())
    attacked_b = Episodes.load("run/B-attacked/episodes.npz")
    assert attacked_b.attacked
    assert attacked_b.sigma == 0
    # Within the smallest budget, so that it is one of the attacks with each.
    assert attacked_b.budget_used.max() <= 0.1
    assert not Episodes.load("run/B/episodes.npz").attacked


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ((GOOD,), "compare needs two agents"),
        ((GOOD, "no-such-agent"), "unknown agent"),
        ((GOOD, BAD, "--budgets", 0.2, "--sigma", 0), "A must have noise"),
        ((GOOD, BAD, "--budgets", 0.2, "--attack", "rndom"), "did you mean random"),
        ((GOOD, BAD, "--attack", "random"), "--attack needs --budgets"),
        (("mountain-car-s0.2", GOOD), "the agent"),
        ((GOOD, BAD, "--margin", 5), "--no-worse-than B needs --margin"),
        ((GOOD, "--no-worse-than", BAD), "--no-worse-than B needs --margin"),
        ((GOOD, "--no-worse-than", BAD, "--margin", -1), "margin must be"),
        ((GOOD, BAD, "--episodes", 10, "--max-episodes", 10), "--episodes cannot be combined with --max-episodes"),
        ((GOOD, "--runs", "a*", "b*"), "--runs compares two algorithms"),
        (("--runs", "a*", "b*"), "a* matches 1 training runs"),
        ((GOOD, "episodes.npz"), "an agent and episodes"),
    ],
)
def test_wrong_calls_are_one_line(words, match, capsys):
    Path("a.csv").write_text("return\n1\n2\n")
    record(Path())
    assert compare(*words, out=None if "--runs" in words else "run") == 2
    said = capsys.readouterr().err
    assert match in said
    assert said.count("\n") == 1


FILES = {
    "seeds.csv": "seed,success\n1,true\n2,false\n3,true\n4,true\n",
    "other.csv": "seed,success\n4,false\n3,true\n2,false\n1,true\n9,true\n",
    "old.json": json.dumps({"per_episode": [{"episode_ix": i, "success": i < 3, "seed": i + 1} for i in range(4)]}),
    "new.json": json.dumps({"per_task": [{"task_id": 0, "metrics": {"successes": [True, False, True]}}]}),
    "twice.csv": "seed,return\n1,0.5\n1,0.6\n",
    "tasks.json": json.dumps({"per_task": [{"metrics": {}}, {"metrics": {}}]}),
    "word.csv": "seed,return\none,0.5\n",
}


@pytest.mark.parametrize(
    ("a", "b", "pairing", "n"),
    [
        ("seeds.csv", "other.csv", "seeds", 4),
        ("seeds.csv", "old.json", "seeds", 4),
        ("seeds.csv", "new.json", "unknown", 3),
    ],
)
def test_files_of_others_are_paired_by_their_seeds(a, b, pairing, n, capsys):
    for name, text in FILES.items():
        Path(name).write_text(text)
    assert compare(a, b, "--json", out=None) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["pairing"], made["n_pairs"], made["ceiling"]) == (pairing, n, 1.0)
    # Nobody knows what noise there was where they were run.
    assert compare(a, b, out=None) == 0
    said = capsys.readouterr().out
    assert "noise" not in said
    assert ("paired: 4 episodes of both have the same seeds in their files" in said) == (pairing == "seeds")
    assert -1 <= made["low"] <= made["high"] <= 1
    if b == "other.csv":
        assert made["changes"]["largest"] == [[4, 1.0, 0.0]]


def test_returns_are_wins_and_losses_only_where_that_is_said(capsys):
    Path("a.txt").write_text("1 1 0 1")
    Path("b.txt").write_text("0.5 1 0 1")
    limits = ("--floor", 0, "--ceiling", 1)
    assert compare("a.txt", "a.txt", *limits, "--only-wins", out=None) == 0
    assert compare("a.txt", "b.txt", *limits, out=None) == 0
    assert compare("a.txt", "b.txt", *limits, "--only-wins", out=None) == 2
    assert "only the returns 0 and 1 are won or lost" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "match"),
    [
        ("twice.csv", "two episodes of the seed 1: they are not independent"),
        ("tasks.json", "episodes of 2 tasks"),
        ("word.csv", "a whole number as the seed"),
    ],
)
def test_what_is_not_independent_is_refused(file, match, capsys):
    for name, text in FILES.items():
        Path(name).write_text(text)
    assert compare("seeds.csv", file, "--floor", 0, "--ceiling", 1, out=None) == 2
    assert match in capsys.readouterr().err


def test_algorithms_are_compared_by_their_training_runs(capsys):
    for algorithm, mean in (("a", 9.0), ("b", 5.0)):
        for seed in range(4):
            Path(f"{algorithm}{seed}.txt").write_text("\n".join(str(mean + seed / 10 + i / 100) for i in range(5)))
    assert compare("--runs", "a*.txt", "b*.txt", out=None) == 0
    said = capsys.readouterr().out
    assert "A minus B: 4 (" in said
    assert "4 runs" in said
    assert "With fewer than 10 runs" in said
    assert "nothing is proved" in said


def plan(chance, n_episodes=20_000):
    task = toy_task(geometric(chance, 10), pay_steps, floor=0.0, ceiling=10.0, n_envs=100, episodes_per_env=1)
    return Plan(task=task, policy=constant(), noise=Noise.of(0.5), n_episodes=n_episodes)


def test_pairs_share_seeds_and_noise_and_nothing_with_other_pairs():
    """An environment plays one episode; an agent that draws its actions gets a seed of its own."""
    several = replace(plan(0.1, 200), episodes_per_env=4)
    same = _on_same_seeds(several, replace(plan(0.3, 200), n_envs=50), None)
    assert [one.block_size for one in same.values()] == [50, 50]
    assert same["A"].seed == same["B"].seed
    assert pair_up(*map(made_up, same.values())).pairing == "seeds"
    drawing = _on_same_seeds(several, replace(several, policy=replace(several.policy, stochastic=True)), 7)
    assert pair_up(*map(made_up, drawing.values())).pairing == "independent"


def both(n_episodes=20_000):
    return {"A": plan(0.1, n_episodes), "B": plan(0.3, n_episodes)}


ASKED = Question(confidence=0.9, budgets=(0.25,), gate=Gate(None))


def test_workers_and_interruptions_change_nothing():
    whole = compared_run(both(), ASKED, Path("whole"), anytime=True)
    assert whole.stopped == "proved"
    assert whole.passed

    def stop(done, of, note):
        if done >= 400:
            raise KeyboardInterrupt

    first = compared_run(both(), ASKED, Path("pieces"), anytime=True, progress=stop)
    assert (first.stopped, first.n_episodes) == ("stopped by hand", (200, 200))
    again = compared_run(both(), ASKED, Path("pieces"), anytime=True, workers=2)
    assert again.to_json() == whole.to_json()
    returns = [Episodes.load(f"{name}/A/episodes.npz").returns for name in ("whole", "pieces")]
    assert np.array_equal(*returns)


def test_another_question_is_not_asked_of_returns_that_were_seen():
    """Budgets, gate and confidence are fixed before the first episode; chosen later, returns would choose them."""
    compared_run(both(200), ASKED, Path("asked"), anytime=True)
    for changed in ({"budgets": (0.2,)}, {"confidence": 0.8}, {"gate": None}):
        with pytest.raises(InputError, match="another setup"):
            compared_run(both(200), Question(**{**vars(ASKED), **changed}), Path("asked"), anytime=True)
