"""Train Atari agents on a GPU in resumable parts of a few minutes; ``zoo/build.py pick`` puts the best into the zoo.

    python zoo/build_atari.py train pong-1r 0.1 --seed 0 --time-limit 8 --out runs/atari/pong-1r-s0.1-seed0
    python zoo/build_atari.py train pong-1r 0.1 --seed 0 --time-limit 8 --out runs/atari/pong-1r-s0.1-seed0   # resumes
    python zoo/build_atari.py train freeway 0.2 --teacher freeway-s0 --time-limit 8 --out runs/atari/freeway-s0.2-seed0
    python zoo/build_atari.py lend runs/atari/pong-1r-s0.05-seed0 pong-full --out runs/atari/pong-full-s0.05-seed0
    python zoo/build.py pick --work runs/atari --device cuda --episodes 2000

A training folder holds six files, of a student with up to 27 MB each; a resumed run first collects frames for its empty
replay buffer. ``--teacher`` trains a student. ``--init-from`` begins with the weights of another agent. ``--set
updates=8 learning_rate=1e-4`` changes settings of the preset.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from surefoot.agents.files import load, load_card
from surefoot.agents.policies import Policy
from surefoot.agents.resolve import as_policy
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.tasks import get_task
from surefoot.train.folder import TrainingRun, copy_agent, has_checkpoint
from surefoot.train.presets import settings_for
from surefoot.train.settings import with_changes
from zoo.training.atari import AtariSettings
from zoo.training.q_learning import FAST, train_fast
from zoo.training.student import STUDENT, train_student

# By preset: the trainer, and its settings by task.
TRAINERS: dict[str, tuple[Callable[..., Policy], Mapping[str, AtariSettings]]] = {
    "fast": (train_fast, FAST),
    "student": (train_student, STUDENT),
}


def train_atari(arguments: argparse.Namespace) -> None:
    """Train one agent until the time limit; print what was saved."""
    task = get_task(arguments.task)
    began = time.monotonic()
    preset = "fast" if arguments.teacher is None else "student"
    name = f"{task.name} {arguments.sigma:g} seed {arguments.seed}"

    def say(text: str) -> None:
        print(f"{name} {time.monotonic() - began:4.0f} s  {text}", flush=True)

    run = TrainingRun(
        task=task,
        noise=Noise.of(arguments.sigma),
        out=arguments.out,
        seed=arguments.seed,
        device=arguments.device,
        time_limit=arguments.time_limit,
        resume=has_checkpoint(arguments.out),
        preset=preset,
        command=shlex.join(("python", "zoo/build_atari.py", *sys.argv[1:])),
        progress=lambda done, of, curve: say(f"{done:,} of {of:,} steps, agent of step {curve.best_step:,} saved"),
    )
    options: dict[str, Any] = {
        "init_from": None if arguments.init_from is None else load(arguments.init_from),
        "processes": arguments.processes,
    }
    if arguments.teacher is not None:
        options["teacher"] = as_policy(arguments.teacher, task.spaces)
    trainer, settings_by_task = TRAINERS[preset]
    settings = with_changes(settings_for(settings_by_task, preset, task.name), arguments.set)
    trainer(run, settings, **options)
    print((arguments.out / "curve.csv").read_text())


def lend_agent(arguments: argparse.Namespace) -> None:
    """Copy a trained agent for another task of the same game; its model card keeps what it was trained on."""
    card = load_card(arguments.folder)
    task = get_task(arguments.task)
    trained_on = get_task(card["task"])
    if task.cartridge is None or trained_on.cartridge is None or task.cartridge.rom != trained_on.cartridge.rom:
        raise InputError(f"{task.name} is not the game of {card['name']}, which was trained on {trained_on.name}")
    training = {**card["training"], "trained_on": trained_on.name}
    name = card["name"].replace(trained_on.name, task.name, 1)
    copy_agent(arguments.folder, arguments.out / "agent", name, task=task.name, training=training)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("train", help="train one agent for a while, resuming from its checkpoint")
    one.add_argument("task")
    one.add_argument("sigma", type=float)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--time-limit", type=float, default=8.0, metavar="MINUTES")
    one.add_argument("--teacher", help="train a student of this agent: a folder or a pretrained agent's name")
    one.add_argument("--init-from", help="an agent whose weights to begin with: a folder or a pretrained agent's name")
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(run=train_atari)
    other = commands.add_parser("lend", help="copy an agent for another task of the same game")
    other.add_argument("folder")
    other.add_argument("task")
    other.add_argument("--out", type=Path, required=True)
    other.set_defaults(run=lend_agent)
    one.add_argument("--device", default="cuda")
    one.add_argument("--processes", type=int, help="processes with emulators (default: one per core)")
    one.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings other than the preset's")
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except InputError as error:
        sys.exit(f"build_atari: {error}")


if __name__ == "__main__":
    main()
