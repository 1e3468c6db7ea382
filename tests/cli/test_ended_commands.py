"""Commands that are ended from outside: full disks, broken pipes, Ctrl-C, kill; and how they go on."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import surefoot
import waiting_env
from cli_commands import QUICK, RETURNS, given, returns_of, strict, surefoot_command
from surefoot.episodes import Episodes
from surefoot.files import read_arrays

pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.mark.parametrize("writes", [1, 4])
def test_a_disk_that_fills_up_loses_nothing(capsys, monkeypatch, quick_run, writes):
    """The disk takes so many files (setup, block, episodes, taped episode, certificate, figure), then no more.

    Every single write of a run is in ``runs/test_kept_work.py``.
    """
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
            read_arrays(path) if path.name == "replay.npz" else Episodes.load(path)
    surefoot_command(*QUICK, "--out", "run", "--json")
    assert np.array_equal(returns_of("run"), returns_of(quick_run))


def command(*arguments, **options):
    run = [sys.executable, "-m", "surefoot", *map(str, arguments)]
    return subprocess.run(run, capture_output=True, text=True, check=False, timeout=60, **options)


def test_output_that_cannot_be_written():
    np.save("r.npy", RETURNS)
    with Path("/dev/full").open("w") as full:
        run = [sys.executable, "-m", "surefoot", *given("--json")]
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (2, "surefoot: No space left on device\n")


def test_a_reader_who_has_had_enough_is_not_told_that_all_went_well():
    """``surefoot verify DIR | head`` must not end with the code of what is verified."""
    piped = f"set -o pipefail; {sys.executable} -m surefoot agents | sleep 0.3"
    done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (141, 1)  # 1 where rich notices first
    assert done.stderr == ""


def test_a_terminal_without_signs():
    done = command(*given("--budgets", "0"), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "(estimate" in done.stdout


def test_the_installed_command():
    script = Path(sys.executable).with_name("surefoot")
    done = subprocess.run([script, *given("--json")], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert strict(done.stdout)["n_episodes"] == len(RETURNS)


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


@pytest.mark.parametrize(("workers", "everybody"), [(1, True), (2, False)])
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
