"""``surefoot certify --returns``: numbers in a file, with nothing that runs episodes; wrong numbers and files."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import surefoot
from cli_commands import KEYS, LEFT_OF_RETURNS, QUICK, RETURNS, given, refused, strict, surefoot_command
from stand_ins import Bomb
from surefoot.cli.options import parse_budgets

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize("ceiling", [None, 200])
@pytest.mark.parametrize("method", ["band", "dkw", "per-threshold"])
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
    asked = ("--ceiling", 200, "--budgets", "0,0.1", "--thresholds", "100,200", "--quantiles", "0.1", "--cvar", "0.1")
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
    assert made["cvars"][0]["lower"][1] == certificate.cvar(0.1, 0.1).lower
    lines = [line for line in shown.splitlines() if line.startswith("budget 0.1: ")]
    assert len(lines) == 4
    printed = float(lines[0].split("at least ")[1].split()[0])
    assert printed <= certificate.probability(100, 0.1).lower < printed + 1e-4


def test_what_may_bet_is_refused_where_probabilities_are_asked_for(capsys):
    for method in ("auto", "betting", "sequential"):
        refused(capsys, *given("--thresholds", "100", "--method", method), match="use --method band")


def test_returns_leave_files_only_where_asked(capsys):
    surefoot_command(*given())
    assert sorted(path.name for path in Path().iterdir()) == ["r.npy"]
    surefoot_command(*given("--out", "deep/er"))
    assert sorted(path.name for path in Path("deep/er").iterdir()) == LEFT_OF_RETURNS
    assert "Report: deep/er/report.html" in capsys.readouterr().out


@pytest.mark.usefixtures("copied_run")
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


LIGHT = """
import contextlib, io, json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "gymnasium", "stable_baselines3", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
from surefoot.cli.main import main
ended = []
for call in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(call)
    ended.append({"returncode": code, "stdout": out.getvalue(), "stderr": err.getvalue()})
json.dump(ended, sys.stdout)
"""


def run_light(*calls):
    """Run commands one after the other with numpy, scipy and rich alone; return how each ended."""
    call = [sys.executable, "-W", "error", "-c", LIGHT]
    done = subprocess.run(call, input=json.dumps(calls), capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [SimpleNamespace(**ended) for ended in json.loads(done.stdout)]


def test_returns_are_certified_and_checked_without_anything_that_runs_episodes():
    verify = ["verify", "made", "--json"]
    done, refused_run, bounds_alone, verified, png, page, doctor = run_light(
        given("--ceiling", "200", "--out", "made", "--json"),
        ["certify", "cartpole-5"],
        [*verify, "--blocks", "0"],
        verify,
        ["report", "made", "--format", "png"],
        ["report", "made"],
        ["doctor"],
    )
    assert (done.returncode, done.stderr) == (0, "")
    episodes = surefoot.Episodes.from_returns(RETURNS, sigma=0.2, floor=0, ceiling=200)
    assert strict(done.stdout) == surefoot.certify(episodes, parse_budgets("0:0.8:0.1")).to_json()
    assert {path.name for path in Path("made").iterdir()} == {*LEFT_OF_RETURNS} - {"certificate.png"}
    assert refused_run.returncode == 2
    assert refused_run.stderr.startswith("surefoot: this needs the package ")
    assert refused_run.stderr.count("\n") == 1
    assert "[play]'" in refused_run.stderr  # torch and Gymnasium, not everything
    # Bounds are recomputed, and what cannot be rerun is no failure.
    for done, replay in ((bounds_alone, "skipped"), (verified, "impossible")):
        found = strict(done.stdout)
        results = {check["name"]: check["result"] for check in found["checks"]}
        assert (done.returncode, done.stderr, found["verdict"]) == (4, "", "unchecked")
        assert (results["bounds"], results["replay"]) == ("passed", replay)
    assert (png.returncode, png.stderr.count("\n")) == (2, 1)
    assert "needs matplotlib" in png.stderr
    assert (page.returncode, page.stderr) == (0, "")
    assert (doctor.returncode, doctor.stderr) == (0, "")
    assert "torch is not installed" in doctor.stdout


WRONG_RETURNS = {
    "a quantile of 1": (
        "--sigma 0.2 --floor 0 --quantiles 1",
        "q of a quantile or CVaR must be strictly between 0 and 1, got 1",
    ),
    "a probability of words": ("--sigma 0.2 --floor 0 --thresholds much", "--thresholds: must look like 100,150"),
    "a probability shared": (
        "--sigma 0.2 --floor 0 --thresholds 1 --shared-episodes 2",
        "cannot be combined with a shared budget",
    ),
    "sigma 0": ("--sigma 0 --floor 0", "sigma must be > 0, got 0"),
    "sigma word": ("--sigma much --floor 0", "--sigma"),
    "sigma missing": ("--floor 0", "also needs --sigma:"),
    "floor missing": ("--sigma .2", "also needs --floor:"),
    "both missing": ("", "also needs --sigma and --floor:"),
    "floor above": ("--sigma .2 --floor 30", "below the floor 30, got 20"),
    "ceiling below": ("--sigma .2 --floor 0 --ceiling 199", "above the ceiling 199, got 200"),
    "budget negative": ("--sigma .2 --floor 0 --budgets -0.1", "a budget must be a finite number >= 0, got -0.1"),
    "budgets word": ("--sigma .2 --floor 0 --budgets x", "--budgets: must look like 0:1:0.05 or 0,0.2,0.4, got 'x'"),
    "budgets step 0": ("--sigma .2 --floor 0 --budgets 0:1:0", "STEP > 0"),
    "budgets too many": ("--sigma .2 --floor 0 --budgets 0:1:1e-9", "under 10,000"),
    "confidence 1": ("--sigma .2 --floor 0 --confidence 1", "confidence must be strictly between 0 and 1, got 1"),
    "method": ("--sigma .2 --floor 0 --method magic", "magic"),
    "binary": ("--sigma .2 --floor 0 --ceiling 200 --method binary", "only the returns 0 and 200"),
    "no ceiling": ("--sigma .2 --floor 0 --method per-threshold", "needs a known ceiling"),
    "step 0": (
        "--sigma .2 --floor 0 --ceiling 200 --method per-threshold --threshold-spacing 0",
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
    "out nowhere": ("--sigma .2 --floor 0 --out /proc/x", "cannot write"),
    "out too long": (f"--sigma .2 --floor 0 --out {'x' * 300}", "File name too long"),
}


@pytest.mark.parametrize(("arguments", "match"), WRONG_RETURNS.values(), ids=WRONG_RETURNS)
def test_wrong_calls_with_returns(capsys, arguments, match):
    np.save("r.npy", RETURNS)
    refused(capsys, "certify", "--returns", "r.npy", "--out", "made", *arguments.split(), match=match)


def bomb():
    Path("f.npy").write_bytes(pickle.dumps(Bomb("ran")))


def cut(size):
    np.save("whole.npy", RETURNS)
    Path("f.npy").write_bytes(Path("whole.npy").read_bytes()[:size])


WRONG_FILES = {
    "empty": (lambda: np.save("f.npy", np.array([])), "non-empty"),
    "pickle": (bomb, "not a readable .npy file of numbers"),
    "cut data": (lambda: cut(200), "may be truncated"),
    "missing": (lambda: None, "no file f.npy"),
    "directory": (lambda: Path("f.npy").mkdir(), "f.npy"),
}


@pytest.mark.parametrize(("make", "match"), WRONG_FILES.values(), ids=WRONG_FILES)
def test_wrong_files_of_returns(capsys, make, match):
    make()
    refused(capsys, "certify", "--returns", "f.npy", "--sigma", 0.2, "--floor", 0, "--out", "made", match=match)
    assert not Path("ran").exists()
