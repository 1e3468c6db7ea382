"""A certified run killed at every change of its directory and at random moments: it resumes to the same bytes.

    python bench/kills.py                # 200 kills; writes bench/results/kills.json

The writer is forked and dies by SIGKILL at its k-th file opened, half written, renamed or deleted, for k = 0, 1, ...
for three quarters of the kills or until it is no longer killed; then at random moments. Every directory is then
resumed and compared with one that was never killed: setup, episodes, certificate and figure, byte for byte, and no
other file left.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import torch  # noqa: E402

import killing  # noqa: E402
from surefoot.agents.files import load  # noqa: E402
from surefoot.files import write_json  # noqa: E402
from surefoot.noise import Noise  # noqa: E402
from surefoot.play.plan import Plan  # noqa: E402
from surefoot.play.tasks import get_task  # noqa: E402
from surefoot.proof.query import Query  # noqa: E402
from surefoot.provenance import versions  # noqa: E402
from surefoot.runs.certified import certified_run  # noqa: E402

TIMED = ("run.json", "report.html")  # say how long the run took


def run(folder: Path) -> None:
    """Run 60 episodes of CartPole in three blocks and certify them."""
    task = get_task("cartpole-1")
    plan = Plan(
        task=task, policy=load("cartpole-1-s0.4"), noise=Noise.of(0.5), n_episodes=60, n_envs=20, episodes_per_env=1
    )
    certified_run(plan, Query(budgets=(0.0, 0.1), method="band"), folder)


def killed_after(seconds: float, folder: Path) -> bool:
    """Fork a run and kill it after so many seconds; return whether it was still running."""
    child = os.fork()
    if child == 0:
        try:
            run(folder)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def main() -> None:
    """Kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng, wrong, done, at = random.Random(0), [], {"at a write": 0, "at a random moment": 0}, 0
    with tempfile.TemporaryDirectory() as place:
        whole = Path(place) / "whole"
        began = time.monotonic()
        run(whole)
        took, expected = time.monotonic() - began, killing.contents(whole, TIMED)
        names = {path.name for path in whole.iterdir()}
        writing = True
        while sum(done.values()) < arguments.kills:
            folder = Path(place) / "killed"
            if writing and at < 0.75 * arguments.kills:
                writing = killing.killed(partial(run, folder), folder, at)
                done["at a write"] += writing
                at += 1
            else:
                done["at a random moment"] += killed_after(rng.random() * took, folder)
            run(folder)
            if killing.contents(folder, TIMED) != expected or {path.name for path in folder.iterdir()} != names:
                wrong.append({"at": at, "files": sorted(path.name for path in folder.iterdir())})
                print(wrong[-1], flush=True)
            shutil.rmtree(folder)
    result = {"kills": done, "resumed_to_other_bytes": wrong, "versions": versions()}
    write_json(HERE / "results" / "kills.json", result)
    print(f"{done}, {len(wrong)} resumed to other bytes")


if __name__ == "__main__":
    main()
