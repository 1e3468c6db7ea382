"""Train the shipped PPO agents on one GPU, several at a time; ``zoo/build.py pick`` puts the best seeds into the zoo.

    python zoo/build_ppo.py train cartpole-5:0.2 cartpole-5:0.3:gru mountain-car:1:gru --seeds 0 1 2 --seconds 450 \
        --out runs/ppo
    python zoo/build.py pick --work runs/ppo --device cuda

A job is TASK:SIGMA, with :MEMORY where the agent has another memory than the task's frames. Every job and seed is a
process of its own; all run at the same time and end after ``--seconds``. ``--pack`` puts what they left into one file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from surefoot.noise import Noise
from surefoot.play.tasks import get_task
from surefoot.train.folder import TrainingCurve, TrainingRun
from surefoot.train.presets import prepare_settings, train_agent

KEPT = ("agent.npz", "agent.json", "curve.csv")


def train_job(arguments: argparse.Namespace) -> None:
    """Train one agent; print every validation."""
    task, sigma, memory = f"{arguments.job}::".split(":")[:3]
    began = time.monotonic()

    def report(done: int, of: int, curve: TrainingCurve) -> None:
        _, mean, _, entropy, certified = curve.rows[-1]
        print(
            f"{arguments.out.name} {time.monotonic() - began:4.0f} s  {done:,} of {of:,} steps  mean {mean:.3f}  "
            f"certified {certified:.3f} (best {curve.best:.3f})  entropy {entropy:.3f}",
            flush=True,
        )

    command = f"surefoot train {task} --sigma {sigma} --preset {arguments.preset} --seed {arguments.seed}"
    command += f" --memory {memory}" if memory else ""
    run = TrainingRun(
        task=get_task(task),
        noise=Noise.of(float(sigma)),
        out=arguments.out,
        seed=arguments.seed,
        device=arguments.device,
        time_limit=arguments.seconds / 60,
        command=f"{command} --device {arguments.device} --time {arguments.seconds:g}s",
        preset=arguments.preset,
        progress=report,
    )
    train_agent(run, prepare_settings(arguments.preset, run.task, memory=memory or None))


def train_jobs(arguments: argparse.Namespace) -> None:
    """Train every job with every seed at the same time, each in a process with one thread."""
    # What runs in parallel shares one GPU's memory: leave no holes in it.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    shared = ("--seconds", str(arguments.seconds), "--device", arguments.device, "--preset", arguments.preset)
    running = {}
    for job in arguments.jobs:
        for seed in arguments.seeds:
            out = arguments.out / f"{job.replace(':', '-').replace('=', '')}-seed{seed}"
            call = (sys.executable, "-u", __file__, "one", job, "--seed", str(seed), "--out", str(out), *shared)
            running[out.name] = subprocess.Popen(call, env=environment)
    for name, process in running.items():
        print(f"{name}: exit {process.wait()}", flush=True)
    if arguments.pack is not None:
        with tarfile.open(arguments.pack, "w:gz") as pack:
            for path in sorted(arguments.out.glob("*/*")):
                if path.name in KEPT:
                    pack.add(path, path.relative_to(arguments.out))


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    everything = commands.add_parser("train", help="train all jobs at the same time")
    everything.add_argument("jobs", nargs="+", metavar="TASK:SIGMA[:MEMORY]")
    everything.add_argument("--seeds", type=int, nargs="+", default=[0])
    everything.add_argument("--pack", type=Path, metavar="FILE", help="tar file to write agents, cards and curves to")
    everything.set_defaults(run=train_jobs)
    single = commands.add_parser("one", help="train one agent")
    single.add_argument("job", metavar="TASK:SIGMA[:MEMORY]")
    single.add_argument("--seed", type=int, default=0)
    single.set_defaults(run=train_job)
    for command in (everything, single):
        command.add_argument("--seconds", type=float, default=450.0)
        command.add_argument("--out", type=Path, default=Path("runs/ppo"))
        command.add_argument("--device", default="cuda")
        command.add_argument("--preset", default="ppo-large")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
