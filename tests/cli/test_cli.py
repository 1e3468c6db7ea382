"""The command as a demanding newcomer meets it: results, silence, one-line errors, nothing half-written."""

import base64
import contextlib
import errno
import json
import math
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import stable_baselines3
import torch

import surefoot
import waiting_env
from surefoot.agents import files as zoo
from surefoot.cli import main as cli
from surefoot.cli.options import parse_budgets
from surefoot.cli.plan import Cost
from surefoot.episodes import Episodes

KEYS = {"schema", "task", "agent", "sigma", "confidence", "n_episodes", "method", "seed", "floor", "ceiling"}
KEYS |= {"budgets", "lower", "upper", "estimate"}
LEFT = [
    "certificate.json",
    "certificate.png",
    "episodes.npz",
    "report.html",
    "run.json",
    "setup.json",
]
LEFT_OF_RETURNS = ["certificate.json", "certificate.png", "episodes.npz", "report.html", "run.json"]
# Pendulum's cost per step is angle^2 + 0.1 speed^2 + 0.001 torque^2, of at most pi, 8 and 2, over 200 steps.
PENDULUM_FLOOR = -200 * (math.pi**2 + 0.1 * 8**2 + 0.001 * 2**2)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run in an empty folder, where what was left behind can be counted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Real, tiny, untrained SB3 models as they are saved."""
    folder = tmp_path_factory.mktemp("models")
    for kind, environment in [
        ("DQN", "CartPole-v1"),
        ("PPO", "CartPole-v1"),
        ("DDPG", "Pendulum-v1"),
        ("SAC", "Pendulum-v1"),
        ("DQN", "Acrobot-v1"),
        ("DQN", "MountainCar-v0"),
    ]:
        options = {} if kind == "PPO" else {"buffer_size": 2}
        model = getattr(stable_baselines3, kind)(
            "MlpPolicy", environment, policy_kwargs={"net_arch": [8]}, device="cpu", seed=0, **options
        )
        model.save(folder / f"{kind}-{environment}.zip")
    return folder


def surefoot_command(*arguments, code=0):
    assert cli.main([str(argument) for argument in arguments]) == code


def refused(capsys, *arguments, match=""):
    """Expect exit code 2, one line on stderr, nothing on stdout and no new file anywhere below."""
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*") if path.is_file()}
    folders = {path for path in Path().rglob("*") if path.is_dir()}
    capsys.readouterr()
    surefoot_command(*arguments, code=2)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("surefoot: ")
    assert shown.err.count("\n") == 1
    assert shown.err.endswith("\n")
    assert "Traceback" not in shown.err
    assert match in shown.err
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*") if path.is_file()} == before
    assert {path for path in Path().rglob("*") if path.is_dir()} == folders


def returns_of(folder):
    return Episodes.load(Path(folder) / "episodes.npz").returns


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


# --- certify TASK ---------------------------------------------------------------------------------------------------

QUICK = ("certify", "cartpole-5", "--episodes", 120, "--workers", 1)


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
    assert "* below the open-loop baseline of 40.81" in shown.out
    assert max(map(len, lines[:-1])) <= 78
    assert lines[-1] == "Report: run/report.html"
    assert sorted(path.name for path in Path("run").iterdir()) == LEFT
    assert Path("run/certificate.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert Path("run/certificate.png").stat().st_size > 4_000
    facts = strict(Path("run/run.json").read_text())
    assert facts["agent_sha256"] == made["agent_sha256"] == zoo.load_card("cartpole-5-s0.2")["sha256"]
    assert facts["versions"]["surefoot"] == surefoot.__version__
    assert facts["wall_seconds"] > 0
    assert strict(Path("run/setup.json").read_text())["planned"] == 120


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


def test_every_option_reaches_the_certificate(capsys):
    surefoot_command(*QUICK, "--out", "run", "--json", "--quiet", "--budgets", "0:0.3:0.1", "--confidence", 0.9,
                     "--method", "dkw", "--sigma", 0.4, "--agent", "cartpole-1-s0.4")  # fmt: skip
    made = strict(capsys.readouterr().out)
    assert made["budgets"] == [0.0, 0.1, 0.2, 0.3]
    wanted = (0.9, "dkw", 0.4, "cartpole-1-s0.4")
    assert (made["confidence"], made["method"], made["sigma"], made["agent"]) == wanted
    surefoot_command(*QUICK, "--out", "other", "--json", "--method", "per-threshold", "--threshold-spacing", 50)
    coarse = strict(capsys.readouterr().out)
    surefoot_command(*QUICK, "--out", "other", "--json", "--method", "per-threshold")
    assert coarse["lower"] != strict(capsys.readouterr().out)["lower"]


def test_quiet_still_prints_the_result(capsys):
    surefoot_command(*QUICK, "--quiet")
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "With 95% confidence" in shown.out
    (folder,) = Path("runs").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == LEFT


def test_the_same_command_twice_plays_once(capsys, monkeypatch):
    surefoot_command(*QUICK, "--out", "run")
    first = capsys.readouterr().out
    stamp = Path("run/episodes.npz").stat().st_mtime_ns
    monkeypatch.setattr("surefoot.play.rollout.play", lambda *_, **__: pytest.fail("played again"))
    surefoot_command(*QUICK, "--out", "run")
    assert capsys.readouterr().out == first
    assert Path("run/episodes.npz").stat().st_mtime_ns == stamp
    assert strict(Path("run/run.json").read_text())["resumed"] is True


@pytest.mark.parametrize(
    "other", [("--seed", 1), ("--agent", "cartpole-1-s0.2"), ("--sigma", 0.4), ("--episodes", 121)]
)
def test_another_run_does_not_enter_the_same_folder(capsys, other):
    surefoot_command(*QUICK, "--out", "run", "--json")
    refused(capsys, *QUICK, "--out", "run", *other, match="holds a run with another setup")


def test_workers_do_not_change_the_returns(capsys):
    for workers in (1, 2):
        surefoot_command("certify", "cartpole-1", "--episodes", 520, "--workers", workers, "--out", f"w{workers}")
    assert np.array_equal(returns_of("w1"), returns_of("w2"))


def test_frames_belong_to_the_agent(capsys):
    surefoot_command(*QUICK, "--agent", "cartpole-1-s0.2", "--out", "run", "--json")
    assert strict(capsys.readouterr().out)["agent"] == "cartpole-1-s0.2"


def test_narrow_screens_cut_no_numbers(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "12")
    np.save("r.npy", np.arange(100.0))
    surefoot_command(
        "certify", "--returns", "r.npy", "--sigma", 0.2, "--floor", 0, "--ceiling", 200, "--budgets", "0,.1"
    )
    shown = capsys.readouterr().out
    made = surefoot.certify(surefoot.Episodes.from_returns(np.arange(100.0), sigma=0.2, floor=0, ceiling=200), [0, 0.1])
    for low, high in zip(made.lower, made.upper, strict=True):
        assert f"{math.floor(low * 100) / 100:.2f}" in shown
        assert f"{math.ceil(high * 100) / 100:.2f}" in shown


# --- certify --returns ----------------------------------------------------------------------------------------------

RETURNS = np.linspace(20, 200, 300)


def given(*more, sigma=".2", floor="0"):
    np.save("r.npy", RETURNS)
    return ("certify", "--returns", "r.npy", "--sigma", sigma, "--floor", floor, *more)


@pytest.mark.parametrize("ceiling", [None, 200])
@pytest.mark.parametrize("method", ["band", "dkw", "dkw-one-sided", "per-threshold"])
def test_returns_are_certified_as_in_python(capsys, ceiling, method):
    top = () if ceiling is None else ("--ceiling", ceiling)
    if ceiling is None and method == "per-threshold":
        arguments = given("--method", method)
        refused(capsys, *arguments, match="needs a known ceiling")
        return
    surefoot_command(*given("--json", "--method", method, "--budgets", "0,0.25", *top))
    made = strict(capsys.readouterr().out)
    episodes = surefoot.Episodes.from_returns(RETURNS, sigma=0.2, floor=0, ceiling=ceiling)
    assert made == surefoot.certify(episodes, [0, 0.25], method=method).to_json()
    assert set(made) >= KEYS
    assert (made["upper"] is None) == (ceiling is None)
    assert made["task"] is made["seed"] is None


def test_probabilities_and_quantiles_are_shown_and_written(capsys):
    asked = ("--ceiling", 200, "--budgets", "0,0.1", "--thresholds", "100,200", "--quantiles", "0.1")
    surefoot_command(*given(*asked))
    shown = capsys.readouterr().out
    surefoot_command(*given(*asked, "--json"))
    made = strict(capsys.readouterr().out)
    episodes = surefoot.Episodes.from_returns(RETURNS, sigma=0.2, floor=0, ceiling=200)
    certificate = surefoot.certify(episodes, [0, 0.1], method="band")
    assert made["method"] == "band"
    assert [row["at_least"] for row in made["probabilities"]] == [100, 200]
    assert made["probabilities"][0]["lower"][1] == certificate.probability(100, 0.1).lower
    assert made["quantiles"][0]["upper"][1] == certificate.quantile(0.1, 0.1).upper
    lines = [line for line in shown.splitlines() if line.startswith("budget 0.1: ")]
    assert len(lines) == 3
    printed = float(lines[0].split("at least ")[1].split()[0])
    assert printed <= certificate.probability(100, 0.1).lower < printed + 1e-4


def test_what_may_bet_is_refused_where_probabilities_are_asked_for(capsys):
    for method in ("auto", "betting", "sequential"):
        refused(capsys, *given("--thresholds", "100", "--method", method), match="use --method band")


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


def test_runs_that_stop_by_themselves_are_for_whole_episodes_and_l2(capsys):
    for more in (
        ("--shared-episodes", 3),
        ("--thresholds", "100"),
        ("--quantiles", "0.5"),
        ("--per-step",),
        ("--norm", "l1"),
    ):
        refused(capsys, "certify", "cartpole-5", "--tol", 5, *more, match="sequential run")


def test_returns_leave_files_only_where_asked(capsys):
    surefoot_command(*given())
    assert sorted(path.name for path in Path().iterdir()) == ["r.npy"]
    surefoot_command(*given("--out", "deep/er"))
    assert sorted(path.name for path in Path("deep/er").iterdir()) == LEFT_OF_RETURNS
    assert "Report: deep/er/report.html" in capsys.readouterr().out


# --- report ---------------------------------------------------------------------------------------------------------


def test_every_run_ends_with_a_page_that_names_its_command(capsys):
    surefoot_command(*QUICK, "--out", "run", "--json")
    stated = strict(capsys.readouterr().out)
    text = Path("run/report.html").read_text(encoding="utf-8")
    assert f"{math.floor(stated['lower'][0] * 100) / 100:.2f}" in text
    assert "surefoot certify cartpole-5" in text
    assert stated["agent_sha256"] in text


def test_a_page_is_made_anew_and_compares_runs(capsys):
    surefoot_command(*QUICK, "--out", "run")
    surefoot_command(*given("--out", "other"))
    Path("run/report.html").unlink()
    capsys.readouterr()
    surefoot_command("report", "run")
    assert capsys.readouterr().out == "Report: run/report.html\n"
    assert Path("run/report.html").stat().st_size > 10_000
    surefoot_command("report", "run", "other")
    assert capsys.readouterr().out == "Report: report.html\n"
    assert "2 certificates compared" in Path("report.html").read_text(encoding="utf-8")
    surefoot_command("report", "run", "--out", "deep/page.html")
    assert Path("deep/page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_folders_without_a_run_have_no_page(capsys):
    refused(capsys, "report", "gone", match="no directory gone")
    Path("empty").mkdir()
    refused(capsys, "report", "empty", match="has neither certificate.json nor attack.json")
    refused(capsys, "report", match="DIR")


def test_a_page_needs_nothing_that_plays():
    surefoot_command(*given("--out", "run"))
    code = (
        "import sys\n"
        "for name in ('torch', 'gymnasium', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
        "from surefoot.cli.main import main\n"
        "sys.exit(main(['report', 'run']))\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_record_needs_no_more_words(capsys):
    asked = ("--budgets", "0,0.2,0.4", "--json")  # by default a task has the paper's, a record those that fit its sigma
    surefoot_command(*QUICK, "--out", "run", *asked)
    first = strict(capsys.readouterr().out)
    surefoot_command("certify", "--returns", "run/episodes.npz", *asked)
    assert strict(capsys.readouterr().out) == first
    refused(capsys, "certify", "--returns", "run/episodes.npz", "--sigma", 0.3, match="was run with sigma 0.2")
    refused(capsys, "certify", "--returns", "run/episodes.npz", "--out", "run", match="holds a run")


@pytest.mark.parametrize("floor", ["-2e3", "-2000", "-.5", "-0.5"])
def test_negative_floors_need_no_equals_sign(capsys, floor):
    surefoot_command(*given("--json", floor=floor))
    assert strict(capsys.readouterr().out)["floor"] == float(floor)


def test_outcomes_are_certified_without_anything_that_plays(tmp_path):
    """The light install: numpy, scipy and rich."""
    code = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'torch', 'gymnasium', 'stable_baselines3', 'matplotlib'}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "from surefoot.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    run = [sys.executable, "-W", "error", "-c", code, "certify"]
    light = [*given("--ceiling", "200", "--out", "made", "--json")][1:]
    done = subprocess.run([*run, *light], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    episodes = surefoot.Episodes.from_returns(RETURNS, sigma=0.2, floor=0, ceiling=200)
    assert strict(done.stdout) == surefoot.certify(episodes, parse_budgets("0:0.8:0.1")).to_json()
    assert {path.name for path in Path("made").iterdir()} == {*LEFT_OF_RETURNS} - {"certificate.png"}
    done = subprocess.run([*run, "cartpole-5"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("surefoot: this needs the package ")
    assert done.stderr.count("\n") == 1
    assert "pip install" in done.stderr


# --- certify --env --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "environment", "floor", "ceiling"),
    [
        ("DQN", "CartPole-v1", 0, 500),
        ("PPO", "CartPole-v1", 0, 500),
        ("DDPG", "Pendulum-v1", PENDULUM_FLOOR, 0),
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
    setup = ("certify", "--env", "CartPole-v1", "--agent", models / "DQN-CartPole-v1.zip", "--sigma", 0.1, "--floor", 0)
    setup = (*setup, "--wrapper", 'ClipReward={"max_reward": 2}')  # nothing is known of the rewards behind it
    surefoot_command(*setup, "--episodes", 4, "--max-steps", 5, "--json", "--out", "run")
    made = strict(capsys.readouterr().out)
    assert made["upper"] is made["ceiling"] is None
    assert Episodes.load("run/episodes.npz").lengths.tolist() == [5] * 4


def test_old_versions_of_environments_print_nothing_extra(capsys, models):
    agent = models / "DQN-CartPole-v1.zip"
    setup = ("certify", "--env", "CartPole-v0", "--sigma", 0.1, "--floor", 0, "--ceiling", 200)
    surefoot_command(*setup, "--agent", agent, "--episodes", 2, "--json")
    shown = capsys.readouterr()
    assert strict(shown.out)["task"] == "CartPole-v0"
    assert shown.err == ""


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("ran").resolve(),)


def armed(source, target):
    """Copy an SB3 zip with a live pickle in every field that SB3 would unpickle."""
    bomb = base64.b64encode(pickle.dumps(Bomb())).decode()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "data":
                data = json.loads(content)
                for entry in data.values():
                    if isinstance(entry, dict) and ":serialized:" in entry:
                        entry[":serialized:"] = bomb
                content = json.dumps(data).encode()
            new.writestr(name, content)


def test_a_malicious_zip_does_not_run(capsys, models):
    armed(models / "DQN-CartPole-v1.zip", "evil.zip")
    setup = ("certify", "--env", "CartPole-v1", "--agent", "evil.zip", "--sigma", 0.1, "--floor", 0)
    surefoot_command(*setup, "--episodes", 2, "--json", code=2)
    assert not Path("ran").exists()
    assert "which has no place in it; if you trust its author, use --allow-pickle" in capsys.readouterr().err
    surefoot_command(*setup, "--episodes", 2, "--out", "trusted", "--allow-pickle", code=2)
    assert Path("ran").exists()  # the bomb is live: trusting it runs it
    assert capsys.readouterr().err.count("\n") == 1
    assert not Path("trusted").exists()


# --- errors ---------------------------------------------------------------------------------------------------------

WRONG_RETURNS = {
    "a quantile of 1": (
        "--sigma 0.2 --floor 0 --quantiles 1",
        "q of a quantile must be strictly between 0 and 1, got 1",
    ),
    "a probability of words": ("--sigma 0.2 --floor 0 --thresholds much", "--thresholds: must look like 100,150"),
    "a probability shared": (
        "--sigma 0.2 --floor 0 --thresholds 1 --shared-episodes 2",
        "cannot be combined with a shared budget",
    ),
    "sigma 0": ("--sigma 0 --floor 0", "sigma must be > 0, got 0"),
    "sigma -1": ("--sigma -1 --floor 0", "sigma must be"),
    "sigma nan": ("--sigma nan --floor 0", "sigma must be"),
    "sigma inf": ("--sigma inf --floor 0", "sigma must be"),
    "sigma -inf": ("--sigma -inf --floor 0", "sigma must be"),
    "sigma word": ("--sigma much --floor 0", "--sigma"),
    "sigma missing": ("--floor 0", "also needs --sigma:"),
    "floor missing": ("--sigma .2", "also needs --floor:"),
    "both missing": ("", "also needs --sigma and --floor:"),
    "floor nan": ("--sigma .2 --floor nan", "floor must be a finite number, got nan"),
    "floor inf": ("--sigma .2 --floor -inf", "floor must be a finite number, got -inf"),
    "floor above": ("--sigma .2 --floor 30", "below the floor 30, got 20"),
    "ceiling below": ("--sigma .2 --floor 0 --ceiling 199", "above the ceiling 199, got 200"),
    "ceiling nan": ("--sigma .2 --floor 0 --ceiling nan", "ceiling must be a finite number"),
    "ceiling inf": ("--sigma .2 --floor 0 --ceiling inf", "ceiling must be a finite number"),
    "ceiling is floor": ("--sigma .2 --floor 0 --ceiling 0", "above the floor 0"),
    "ceiling under floor": ("--sigma .2 --floor 0 --ceiling -5", "above the floor 0"),
    "budget negative": ("--sigma .2 --floor 0 --budgets -0.1", "a budget must be a finite number >= 0, got -0.1"),
    "budgets negative": ("--sigma .2 --floor 0 --budgets -1,0", "a budget must be a finite number >= 0, got -1"),
    "budget nan": ("--sigma .2 --floor 0 --budgets nan", "a budget must be a finite number"),
    "budget inf": ("--sigma .2 --floor 0 --budgets 0,inf", "a budget must be a finite number"),
    "budgets word": ("--sigma .2 --floor 0 --budgets x", "--budgets: must look like 0:1:0.05 or 0,0.2,0.4, got 'x'"),
    "budgets comma": ("--sigma .2 --floor 0 --budgets 0,,1", "--budgets: must look like"),
    "budgets two": ("--sigma .2 --floor 0 --budgets 0:1", "--budgets: must look like"),
    "budgets four": ("--sigma .2 --floor 0 --budgets 0:1:1:1", "--budgets: must look like"),
    "budgets step 0": ("--sigma .2 --floor 0 --budgets 0:1:0", "STEP > 0"),
    "budgets backwards": ("--sigma .2 --floor 0 --budgets 1:0:.1", "LAST >= FIRST"),
    "budgets endless": ("--sigma .2 --floor 0 --budgets 0:inf:1", "under 10,000"),
    "budgets too many": ("--sigma .2 --floor 0 --budgets 0:1:1e-9", "under 10,000"),
    "budgets nan step": ("--sigma .2 --floor 0 --budgets 0:1:nan", "STEP > 0"),
    "budgets empty": ("--sigma .2 --floor 0 --budgets=", "--budgets: must look like"),
    "confidence 0": ("--sigma .2 --floor 0 --confidence 0", "confidence must be strictly between 0 and 1, got 0"),
    "confidence 1": ("--sigma .2 --floor 0 --confidence 1", "confidence must be strictly between 0 and 1, got 1"),
    "confidence 1.5": ("--sigma .2 --floor 0 --confidence 1.5", "strictly between 0 and 1, got 1.5"),
    "confidence 95": ("--sigma .2 --floor 0 --confidence 95", "strictly between 0 and 1, got 95"),
    "confidence -1": ("--sigma .2 --floor 0 --confidence -1", "strictly between 0 and 1, got -1"),
    "confidence nan": ("--sigma .2 --floor 0 --confidence nan", "strictly between 0 and 1, got nan"),
    "method": ("--sigma .2 --floor 0 --method magic", "magic"),
    "binary": ("--sigma .2 --floor 0 --ceiling 200 --method binary", "only the returns 0 and 200"),
    "no ceiling": ("--sigma .2 --floor 0 --method per-threshold", "needs a known ceiling"),
    "step 0": (
        "--sigma .2 --floor 0 --ceiling 200 --method per-threshold --threshold-spacing 0",
        "threshold spacing must be",
    ),
    "step -1": (
        "--sigma .2 --floor 0 --ceiling 200 --method per-threshold --threshold-spacing -1",
        "threshold spacing must be",
    ),
    "step nan": (
        "--sigma .2 --floor 0 --ceiling 200 --method per-threshold --threshold-spacing nan",
        "threshold spacing must be",
    ),
    "step tiny": ("--sigma .2 --floor 0 --ceiling 200 --method per-threshold --threshold-spacing 1e-9", "thresholds"),
    "agent too": ("--sigma .2 --floor 0 --agent x", "--agent cannot be combined with --returns"),
    "workers too": ("--sigma .2 --floor 0 --workers 2", "--workers cannot be combined with --returns"),
    "max-steps too": ("--sigma .2 --floor 0 --max-steps 2", "--max-steps cannot be combined with --returns"),
    "task too": ("cartpole-5 --sigma .2 --floor 0", "exactly one of"),
    "env too": ("--env CartPole-v1 --sigma .2 --floor 0", "exactly one of"),
    "option": ("--sigma .2 --floor 0 --nonsense", "--nonsense"),
    "abbreviation": ("--sig .2 --floor 0", "--sig"),
    "out is a file": ("--sigma .2 --floor 0 --out r.npy", "cannot write"),
    "out under a file": ("--sigma .2 --floor 0 --out r.npy/x", "cannot write"),
    "out nowhere": ("--sigma .2 --floor 0 --out /proc/x", "cannot write"),
    "out too long": (f"--sigma .2 --floor 0 --out {'x' * 300}", "File name too long"),
}


@pytest.mark.parametrize(("arguments", "match"), WRONG_RETURNS.values(), ids=WRONG_RETURNS)
def test_wrong_calls_with_returns(capsys, arguments, match):
    np.save("r.npy", RETURNS)
    refused(capsys, "certify", "--returns", "r.npy", *arguments.split(), match=match)
    refused(capsys, "certify", "--returns", "r.npy", "--out", "made", *arguments.split(), match=match)


def pickled():
    np.save("f.npy", np.array([1.0, None], dtype=object), allow_pickle=True)


def bomb():
    Path("f.npy").write_bytes(pickle.dumps(Bomb()))


def cut(size):
    np.save("whole.npy", RETURNS)
    Path("f.npy").write_bytes(Path("whole.npy").read_bytes()[:size])


WRONG_FILES = {
    "empty": (lambda: np.save("f.npy", np.array([])), "non-empty"),
    "nan": (lambda: np.save("f.npy", np.array([1.0, np.nan])), "must be finite, got nan at position 1"),
    "inf": (lambda: np.save("f.npy", np.array([np.inf])), "must be finite, got inf at position 0"),
    "2-D": (lambda: np.save("f.npy", np.ones((3, 2))), "got shape (3, 2)"),
    "0-D": (lambda: np.save("f.npy", np.array(1.0)), "got shape ()"),
    "text": (lambda: np.save("f.npy", np.array(["a"])), "expected plain numbers, got <U1"),
    "complex": (lambda: np.save("f.npy", np.array([1j])), "expected plain numbers, got complex128"),
    "pickle in npy": (pickled, "expected plain numbers, got object"),
    "pickle": (bomb, "not a readable .npy file of numbers"),
    "csv": (lambda: Path("f.npy").write_text("1,2,3\n"), "not a readable .npy file of numbers"),
    "nothing": (lambda: Path("f.npy").touch(), "not a readable"),
    "cut header": (lambda: cut(60), "may be truncated"),
    "cut data": (lambda: cut(200), "may be truncated"),
    "missing": (lambda: None, "no file f.npy"),
    "directory": (lambda: Path("f.npy").mkdir(), "f.npy"),
    "zip named npy": (
        lambda: np.savez("g.npz", a=RETURNS) or Path("g.npz").rename("f.npy"),
        "not a readable .npy file of numbers",
    ),
}


@pytest.mark.parametrize(("make", "match"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_wrong_files_of_returns(capsys, make, match):
    make()
    refused(capsys, "certify", "--returns", "f.npy", "--sigma", 0.2, "--floor", 0, "--out", "made", match=match)
    assert not Path("ran").exists()


@pytest.mark.parametrize("kept", [0, 10, 0.3, 0.9, -1])
def test_cut_records(capsys, kept):
    surefoot.Episodes.from_returns(RETURNS, sigma=0.2, floor=0).save("whole.npz")
    content = Path("whole.npz").read_bytes()
    Path("f.npz").write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    refused(capsys, "certify", "--returns", "f.npz", match="f.npz is not a readable .npz file")


@pytest.mark.parametrize("name", ["f.npz", "f.npy"])
def test_foreign_archives(capsys, name):
    np.savez("f.npz", a=RETURNS, b=RETURNS)  # either could be meant
    if name == "f.npy":
        Path("f.npz").rename(name)
    refused(capsys, "certify", "--returns", name, "--sigma", 0.2, "--floor", 0)


WRONG_PLAY = {
    "task": ("certify cartpole-7", "unknown task 'cartpole-7'; the tasks are cartpole-5, cartpole-1"),
    "no source": ("certify", "exactly one of TASK, --env or --returns, got none"),
    "two sources": ("certify cartpole-5 --env CartPole-v1", "got task and env"),
    "command": ("prove cartpole-5", "'prove'"),
    "option": ("certify cartpole-5 --speed 3", "--speed"),
    "extra": ("certify cartpole-5 cartpole-1", "cartpole-1"),
    "agent": ("certify cartpole-5 --agent nobody", "unknown agent 'nobody'; pretrained agents: HalfCheetah-v5-s0.2,"),
    "empty agent": ("certify cartpole-5 --agent=", "unknown agent ''"),
    "long agent": (f"certify cartpole-5 --agent {'x' * 300}", ""),
    "sigma of nobody": (
        "certify cartpole-5 --sigma 0.123",
        "there is no pretrained agent for cartpole-5 at sigma 0.123; name one with --agent",
    ),
    "no zip": ("certify cartpole-5 --agent nothing.zip", "no file nothing.zip"),
    "sigma": ("certify cartpole-5 --sigma 0 --agent cartpole-5-s0.2", "sigma must be > 0"),
    "sigma negative": ("certify cartpole-5 --sigma -0.2 --agent cartpole-5-s0.2", "sigma must be"),
    "sigma nan": ("certify cartpole-5 --sigma nan --agent cartpole-5-s0.2", "sigma must be"),
    "floor": ("certify cartpole-5 --floor 0", "--floor cannot be combined with a task"),
    "ceiling": (
        "certify cartpole-5 --ceiling 10 --max-steps 3",
        "--ceiling, --max-steps cannot be combined with a task",
    ),
    "episodes 0": ("certify cartpole-5 --episodes 0", "episodes must be at least 1, got 0"),
    "episodes -5": ("certify cartpole-5 --episodes -5", "episodes must be at least 1, got -5"),
    "episodes 1e4": ("certify cartpole-5 --episodes 1e4", "--episodes"),
    "seed": ("certify cartpole-5 --seed -1", "seed must be at least 0 and below 2**128, got -1"),
    "workers 0": ("certify cartpole-5 --workers 0", "workers must be at least 1, got 0"),
    "workers -1": ("certify cartpole-5 --workers -1", "workers must be at least 1, got -1"),
    "device": ("certify cartpole-5 --device tpu", "--device"),
    "cuda": ("certify cartpole-5 --device cuda", "no CUDA device"),
    "step": ("certify cartpole-5 --threshold-spacing 0", "threshold spacing must be"),
    "budget": ("certify cartpole-5 --budgets -1", "a budget must be"),
    "confidence": ("certify cartpole-5 --confidence 1", "confidence must be"),
    "out is a file": ("certify cartpole-5 --out there/file", "cannot use there/file"),
    "out under a file": ("certify cartpole-5 --out there/file/x", "cannot use there/file/x"),
    "out nowhere": ("certify cartpole-5 --out /proc/x", "cannot use /proc/x"),
    "out of others": ("certify cartpole-5 --out there", "not empty and holds no run"),
    "env": ("certify --env NoSuch-v0 --agent x --sigma .1 --floor 0", "cannot make the environment 'NoSuch-v0'"),
    "env malformed": ("certify --env a:b:c --agent x --sigma .1 --floor 0", "cannot import 'a'"),
    "env old": ("certify --env CartPole-v0 --agent x --sigma .1 --floor 0", "unknown agent 'x'"),
    "env tuple": (
        "certify --env Blackjack-v1 --agent x --sigma .1 --floor 0",
        "also needs --max-steps N (it has no step",
    ),
    "env no floor": ("certify --env FrozenLake-v1 --agent x --sigma .1", "also needs --floor F, the lowest return"),
    "env no agent": ("certify --env CartPole-v1 --sigma .1 --floor 0", "--env CartPole-v1 also needs --agent"),
    "env no sigma": ("certify --env CartPole-v1 --agent x --floor 0", "--env CartPole-v1 also needs --sigma"),
    "env nothing": (
        "certify --env Blackjack-v1",
        "--agent NAME_OR_PATH; --sigma S, the noise on every new observation;",
    ),
    "env file": (
        "certify --env ./my_env.py:make --agent x --sigma .1",
        "is not module:name; from the folder of a file",
    ),
    "env module": ("certify --env no_such_module:make --agent x --sigma .1", "cannot import 'no_such_module'"),
    "env no such": (
        "certify --env json:nothing --agent x --sigma .1",
        "import that with --env-module, or give --env module:factory",
    ),
    "env not one": ("certify --env json:dumps --agent x --sigma .1", "json:dumps failed: TypeError"),
    "env text": ("certify --env platform:node --agent x --sigma .1", "made a str, expected a gymnasium.Env"),
    "env wrapper": (
        "certify --env CartPole-v1 --wrapper Nothing --agent x --sigma .1",
        "there is no wrapper 'Nothing'",
    ),
    "env wrapper json": (
        "certify --env CartPole-v1 --wrapper ClipReward={a --agent x --sigma .1",
        "a wrapper looks like",
    ),
    "env kwargs": ("certify --env CartPole-v1 --env-kwargs [1] --agent x --sigma .1", 'must look like {"name": 1}'),
    "env kwargs wrong": ('certify --env CartPole-v1 --env-kwargs {"a":1} --agent x --sigma .1', "unexpected keyword"),
    "env gamma": ("certify --env CartPole-v1 --gamma 1 --agent x --sigma .1", "a discount must be strictly between 0"),
    "env range": ("certify --env CartPole-v1 --reward-range 1,0 --agent x --sigma .1", "LOW,HIGH with LOW <= HIGH"),
    "task kwargs": ("certify cartpole-5 --env-kwargs {}", "--env-kwargs cannot be combined with a task"),
    "attack none": ("attack", "attack needs exactly one of TASK and --env, got none"),
    "attack env": ("attack --env CartPole-v1", "--env CartPole-v1 also needs --agent NAME_OR_PATH"),
    "plan env": ("plan --env CartPole-v1 --require 1@1", "--agent NAME_OR_PATH; --sigmas LIST"),
    "tune env": ("tune --env CartPole-v1 --budget 1", "--agent NAME_OR_PATH; --sigmas LIST"),
    "baseline env": ("baseline --env FrozenLake-v1", "also needs --floor F"),
    "baseline both": ("baseline cartpole-5 --env CartPole-v1", "baseline needs exactly one of TASK and --env"),
    "train env": ("train --env FrozenLake-v1 --sigma .1", "also needs --floor F"),
    "env floor": ("certify --env CartPole-v1 --agent x --sigma .1 --floor nan", "floor must be a finite number"),
    "env limits": ("certify --env CartPole-v1 --agent x --sigma .1 --floor 9 --ceiling 9", "above the floor 9"),
    "max-steps 0": ("certify --env CartPole-v1 --agent x --sigma .1 --floor 0 --max-steps 0", "at least 1, got 0"),
    "max-steps -3": ("certify --env CartPole-v1 --agent x --sigma .1 --floor 0 --max-steps -3", "at least 1, got -3"),
    "env method": (
        "certify --env CartPole-v1 --agent cartpole-1-s0.2 --sigma .1 --floor 0 --method per-threshold "
        '--wrapper ClipReward={"max_reward":2}',
        "needs a known ceiling",
    ),
    "zoo agent elsewhere": (
        "certify --env Acrobot-v1 --agent cartpole-5-s0.2 --sigma .1 --floor -500 --ceiling 0",
        "agent has 2 actions from 0, the environment takes 3 actions from 0",
    ),
    "train task": ("train cartpole-7 --sigma .2", "unknown task"),
    "train sigma": ("train cartpole-5 --sigma -1", "sigma must be"),
    "train no sigma": ("train cartpole-5", "--sigma"),
    "train preset": ("train cartpole-5 --sigma .2 --preset best", "unknown preset 'best'"),
    "baseline task": ("baseline cartpole-7", "unknown task"),
    "baseline episodes": ("baseline cartpole-5 --episodes 0", "at least"),
    "baseline seed": ("baseline cartpole-5 --seed -1", "seed must be at least 0"),
    "export agent": ("export nobody --out x.zip", "unknown agent 'nobody'"),
    "export name": ("export cartpole-5-s0.2 --out x.pt", "must end in .zip"),
    "export place": ("export cartpole-5-s0.2 --out there/file/x.zip", "cannot write"),
    "agents extra": ("agents please", "please"),
}


@pytest.mark.parametrize(("arguments", "match"), WRONG_PLAY.values(), ids=WRONG_PLAY)
def test_wrong_calls(capsys, monkeypatch, arguments, match):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for user in ("baseline", "rollout"):  # a module that imports it while it is replaced would keep the replacement
        monkeypatch.setattr(f"surefoot.play.{user}.play", lambda *_, **__: pytest.fail("played"))
    Path("there").mkdir()
    Path("there/file").write_text("something of somebody's")
    refused(capsys, *arguments.split(), match=match)


@pytest.mark.parametrize(
    ("agent", "task", "match"),
    [
        ("DQN-Acrobot-v1.zip", "cartpole-5", "has 3 actions"),
        ("SAC-Pendulum-v1.zip", "cartpole-5", "has continuous actions"),
        ("DQN-MountainCar-v0.zip", "--env Acrobot-v1 --sigma .1 --floor -500", "observations of shape (2,)"),
        ("DQN-CartPole-v1.zip", "--env Pendulum-v1 --sigma .1 --floor -3300", "has 2 actions"),
        ("DQN-CartPole-v1.zip", "--env MountainCar-v0 --sigma .1 --floor -200", "has 2 actions"),
    ],
)
def test_agents_of_other_environments(capsys, models, agent, task, match):
    refused(capsys, "certify", *task.split(), "--agent", models / agent, match=match)


@pytest.mark.parametrize("kept", [0, 100, 0.5, 0.95])
def test_cut_zips(capsys, models, kept):
    content = (models / "DQN-CartPole-v1.zip").read_bytes()
    Path("cut.zip").write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    refused(capsys, "certify", "cartpole-1", "--agent", "cut.zip", match="may be truncated")
    Path("folder.zip").mkdir()
    refused(capsys, "certify", "cartpole-1", "--agent", "folder.zip", match="folder.zip")


@pytest.mark.parametrize("part", ["json", "npz"])
@pytest.mark.parametrize("kept", [0, 0.5, 0.99])
def test_cut_agents(capsys, part, kept):
    zoo.save(zoo.load("cartpole-1-s0.2"), Path("agent"), {"task": "cartpole-1", "sigma": 0.2})
    path = Path(f"agent.{part}")
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    refused(capsys, "certify", "cartpole-1", "--agent", "agent", match=f"agent.{part}")


def test_changed_and_missing_weights(capsys):
    zoo.save(zoo.load("cartpole-1-s0.2"), Path("agent"), {"task": "cartpole-1", "sigma": 0.2})
    zoo.save(zoo.load("cartpole-1-s0.4"), Path("other"), {"task": "cartpole-1", "sigma": 0.4})
    Path("other.npz").replace("agent.npz")
    refused(capsys, "certify", "cartpole-1", "--agent", "agent", match="its card says")
    Path("agent.npz").unlink()
    refused(capsys, "certify", "cartpole-1", "--agent", "agent", match="no file agent.npz")


@pytest.mark.parametrize("damage", ["episodes.npz", "setup.json", "blocks/000000.npz"])
def test_a_damaged_run_is_refused(capsys, damage):
    surefoot_command(*QUICK, "--out", "run", "--json")
    if damage.startswith("blocks"):
        Path("run/blocks").mkdir()
        Path("run/episodes.npz").rename(f"run/{damage}")
    path = Path("run") / damage
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refused(capsys, *QUICK, "--out", "run", match="may be truncated")


# --- a full disk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [0, 1, 2, 3, 4, 5])
def test_a_disk_that_fills_up_loses_nothing(capsys, monkeypatch, writes):
    """The disk takes so many files (setup, block, episodes, certificate, figure), then no more."""
    sync, left = os.fsync, [writes]

    def fsync(handle):
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        sync(handle)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        surefoot_command(*QUICK, "--out", "run", code=2)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert "No space left on device" in shown.err
    files = [path for path in Path("run").rglob("*") if path.is_file()]
    assert not [path for path in files if path.name.startswith(".")]
    for path in files:
        if path.suffix == ".json":
            strict(path.read_text())
        if path.suffix == ".npz":
            Episodes.load(path)
    surefoot_command(*QUICK, "--out", "run", "--json")
    fresh = surefoot.rollout("cartpole-5", "cartpole-5-s0.2", sigma=0.2, n_episodes=120)
    assert np.array_equal(returns_of("run"), fresh.returns)


def command(*arguments, **options):
    run = [sys.executable, "-m", "surefoot", *map(str, arguments)]
    return subprocess.run(run, capture_output=True, text=True, check=False, timeout=60, **options)


def test_a_limit_on_file_sizes_is_a_full_disk():
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    done = command("certify", "cartpole-1", "--episodes", 600, "--workers", 2, "--out", "run", preexec_fn=limit)
    assert done.returncode == 2
    assert done.stderr.startswith("surefoot: cannot write run/")
    assert done.stderr.count("\n") == 1
    assert not [path.name for path in Path("run").rglob(".*")]


def test_output_that_cannot_be_written():
    np.save("r.npy", RETURNS)
    for more in ((), ("--json",)):
        with Path("/dev/full").open("w") as full:
            run = [sys.executable, "-m", "surefoot", *given(*more)]
            done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (2, "surefoot: No space left on device\n")


def test_a_reader_who_has_had_enough():
    code = "import time; time.sleep(0.3)"
    piped = f"set -o pipefail; {sys.executable} -m surefoot agents | {sys.executable} -c '{code}'"
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (0, 1)  # 1 where rich notices first
    assert done.stderr == ""


def test_a_terminal_without_signs():
    done = command(*given("--budgets", "0"), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "(estimate" in done.stdout


# --- processes ------------------------------------------------------------------------------------------------------


def test_the_installed_command():
    script = Path(sys.executable).with_name("surefoot")
    done = subprocess.run([script, *given("--json")], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert strict(done.stdout)["n_episodes"] == len(RETURNS)
    done = subprocess.run([script, "nothing"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


# A shell starts background jobs with SIGINT ignored, and so they stay; here it is set as each test wants it.
STARTED = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler if sys.argv.pop(1) == "heard" else signal.SIG_IGN)
runpy.run_module("surefoot", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def long_run(models):
    """Return a run of four blocks; where ``WAITING_FIFO`` is set, every process waits in its second block."""
    agent = models / "DQN-CartPole-v1.zip"
    setup = ("certify", "--env", waiting_env.ID, "--agent", agent, "--sigma", 0.1, "--floor", 0, "--ceiling", 5)
    return (*setup, "--episodes", 1_024, "--method", "band", "--budgets", "0.1", "--out", "run")


@contextlib.contextmanager
def started(arguments, workers, interrupt="heard"):
    """Start a run in its own group and wait for its first block; it stays in the next one."""
    os.mkfifo("fifo")
    paths = [str(Path(waiting_env.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    call = [sys.executable, "-c", STARTED, interrupt, *map(str, arguments), "--workers", str(workers)]
    process = subprocess.Popen(
        call,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "WAITING_FIFO": str(Path("fifo").resolve()), "PYTHONPATH": os.pathsep.join(paths)},
    )
    try:
        end = time.monotonic() + 60
        while not list(Path("run/blocks").glob("[0-9]*.npz")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def nobody_left(group, patience):
    """Wait until no process of the group is alive."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def whole(models):
    agent = str(models / "DQN-CartPole-v1.zip")
    task = surefoot.make_task(waiting_env.ID, floor=0.0, ceiling=5.0)
    return surefoot.rollout(task, agent, sigma=0.1, n_episodes=1_024, workers=1).returns


@pytest.mark.parametrize(("workers", "everybody"), [(1, True), (2, True), (2, False)])
def test_interrupted_runs_stop_at_once_and_go_on(capsys, whole, long_run, workers, everybody):
    """Ctrl-C reaches the whole group; a supervisor signals the parent alone."""
    with started(long_run, workers) as process:
        begun = time.monotonic()
        (os.killpg if everybody else os.kill)(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=20)
        assert time.monotonic() - begun < 5
    assert process.returncode == 130
    assert out == ""
    kept = 256 * len(list(Path("run/blocks").glob("[0-9]*.npz")))
    assert 0 < kept < 1_024
    saved = f"{kept:,} episodes are kept in run. Run the same command again to resume."
    assert err == f"surefoot: interrupted; {saved}\n"
    assert nobody_left(process.pid, 3)
    assert not Path("run/episodes.npz").exists()
    assert not Path("run/certificate.json").exists()
    surefoot_command(*long_run, "--workers", 2, "--json")
    assert strict(capsys.readouterr().out)["n_episodes"] == 1_024
    assert np.array_equal(returns_of("run"), whole)


def test_a_background_job_that_ignores_interrupts_is_not_stopped_by_one(whole, long_run):
    with started(long_run, 1, interrupt="ignored") as process:
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        Path("fifo").write_bytes(b"go")
        assert process.wait(timeout=60) == 0
    assert np.array_equal(returns_of("run"), whole)


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_runs_go_on(capsys, whole, long_run, workers):
    with started(long_run, workers) as process:
        process.kill()
        process.wait()
        kept = len(list(Path("run/blocks").glob("[0-9]*.npz")))
        assert 0 < kept < 4
        surefoot_command(*long_run, "--workers", 1, "--json")
        assert nobody_left(process.pid, 3)
    assert np.array_equal(returns_of("run"), whole)
    assert sorted(path.name for path in Path("run").iterdir()) == LEFT


# --- the other commands ---------------------------------------------------------------------------------------------


def test_agents_are_listed(capsys):
    surefoot_command("agents", "--json")
    listed = strict(capsys.readouterr().out)
    assert [agent["name"] for agent in listed["agents"]] == zoo.list_agents()
    surefoot_command("agents")
    shown = capsys.readouterr().out
    assert all(name in shown for name in zoo.list_agents())
    assert "…" not in shown  # no heading and no number is cut
    assert max(map(len, shown.splitlines())) <= 80


def test_what_a_budget_is_fits_a_terminal(capsys):
    surefoot_command("explain-budget", "0.2", "cartpole-5")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5  # four examples, the first of them longer than a line
    assert max(map(len, lines)) <= 80


def test_agents_are_exported_to_plain_sb3(capsys):
    surefoot_command("export", "cartpole-1-s0.2", "--out", "made.zip")
    assert "made.zip" in capsys.readouterr().out
    model = stable_baselines3.DQN.load("made.zip")
    assert model.predict(np.zeros(4, np.float32), deterministic=True)[0] in (0, 1)
    setup = ("certify", "cartpole-1", "--episodes", 50, "--workers", 1, "--sigma", 0.2, "--json")
    surefoot_command(*setup, "--agent", "made.zip", "--out", "there")
    there = strict(capsys.readouterr().out)
    surefoot_command(*setup, "--out", "here")
    assert strict(capsys.readouterr().out)["lower"] == there["lower"]


def test_the_open_loop_baseline_is_measured(capsys, monkeypatch):
    monkeypatch.setattr("surefoot.play.baseline.HALF_PERIODS", (4,))
    surefoot_command("baseline", "cartpole-1", "--episodes", 400, "--json")
    found = strict(capsys.readouterr().out)
    assert (found["task"], found["episodes"]) == ("cartpole-1", 400)
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


def test_the_cost_of_a_plan_is_that_of_its_blocks_on_the_cores():
    cost = Cost(core_seconds=0.01, gpu_seconds=None, block=500)
    assert cost.seconds(1_000, 1) == 10.0
    assert cost.seconds(1_000, 2) == 5.0
    assert cost.seconds(1_000, 256) == 5.0  # two blocks keep two cores busy, however many there are
    assert cost.seconds(1_001, 2) == 10.0
    assert cost.seconds(100, 8) == 1.0
    assert cost.to_json(360_000, 4)["core_hours"] == 1.0
    assert cost.to_json(None, 4)["core_hours"] is None
    assert cost.describe(360_000, 4) == "~360,000 episodes are 1 core hours, 15 min on 4 cores"
    on_gpu = Cost(core_seconds=0.01, gpu_seconds=6e-6, block=65_536)
    assert on_gpu.to_json(10**7, 4)["gpu_minutes"] == pytest.approx(1.0)
    assert on_gpu.describe(10**7, 4) == "~10,000,000 episodes are 1 GPU minutes (60 s)"


def test_plan_says_core_hours_and_rejects_no_cores(capsys):
    asked = "plan cartpole-1 --require 100@0.2 --sigmas 0.2 --pilot-episodes 60 --workers 1"
    assert cli.main([*asked.split(), "--cores", "8"]) == 0
    assert "core hours" in (shown := capsys.readouterr().out)
    assert "on 8 cores" in shown
    assert cli.main([*asked.split(), "--cores", "0"]) == 2
    assert "--cores must be at least 1, got 0" in capsys.readouterr().err
