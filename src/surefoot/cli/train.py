"""``surefoot train``: one agent with noise on its observations."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import add_common, print_json, progress_bar, refuse
from surefoot.cli.parser import AGENT, TRAINING, add_command, section
from surefoot.cli.task import add_task, named, one_of, task_of
from surefoot.errors import InputError, Interrupted

if TYPE_CHECKING:
    from surefoot.agents.policies import Policy
    from surefoot.play.task import Task
    from surefoot.train.folder import Curve, TrainingRun

    Trainer = Callable[[TrainingRun], Policy]


def add_train(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "train",
        "train an agent with noise on its observations",
        usage="TASK | --env ID --sigma S | --for-budget B [options]",
        examples=(
            "surefoot train cartpole-5 --sigma 0.2",
            "surefoot train cartpole-5 --for-budget 0.6 --memory gru --time-limit 10",
            "surefoot train --env Acrobot-v1 --sigma 0.1",
        ),
    )
    add_task(parser)
    what = section(parser, AGENT)
    what.add_argument(
        "--sigma",
        type=float,
        metavar="S",
        help="standard deviation of the noise on every observation, in its units (with --for-budget default: the one "
        "whose pretrained agents are predicted to certify the most there)",
    )
    _add_training(parser)
    add_common(parser)
    parser.set_defaults(run=run_train)


def _add_training(parser: argparse.ArgumentParser) -> None:
    training = section(parser, TRAINING)
    training.add_argument(
        "--preset",
        metavar="NAME",
        help="ppo, ppo-large, polish, paper, thorough (CartPole, Mountain Car); early, brief (Mountain Car); paper, "
        "fast, student, fine-tune (Atari); sb3-ppo (--env) (default: ppo, for Atari paper, for --env sb3-ppo)",
    )
    training.add_argument(
        "--time-limit",
        type=float,
        metavar="MINUTES",
        help="length of the training; preset fast stops after it and --resume continues",
    )
    training.add_argument(
        "--memory",
        metavar="KIND",
        help="gru, or frames=K for the last K observations (ppo, student; default: as the task or the preset)",
    )
    training.add_argument(
        "--for-budget",
        type=float,
        metavar="B",
        help="attack budget at which the selected weights certify the most (not DQN and DDPG; default: twice sigma)",
    )
    training.add_argument("--init-from", metavar="AGENT", help="agent to start from (Atari presets, polish)")
    training.add_argument(
        "--teacher", metavar="AGENT", help="agent that observes clean frames (presets student, fine-tune)"
    )
    training.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="number of training seeds, of which the best on validation is kept (default: the preset's)",
    )
    training.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting other than the preset's, such as total_steps=2000000; an unknown name lists them; may be "
        "repeated",
    )
    training.add_argument("--resume", action="store_true", help="resume from the checkpoint in the run directory")


@contextmanager
def _resumable(folder: Path) -> Iterator[None]:
    """Let Ctrl-C say whether the training can be resumed."""
    try:
        yield
    except KeyboardInterrupt as stopped:
        from surefoot.train.folder import has_checkpoint

        if has_checkpoint(folder):
            message = f"a checkpoint is kept in {folder}. Run the same command with --resume to continue."
            raise Interrupted(message) from stopped
        raise


def run_train(arguments: argparse.Namespace) -> None:
    """Train one agent."""
    from surefoot.agents.files import load_card
    from surefoot.play.plan import resolve_device
    from surefoot.proof.rounding import decimals
    from surefoot.train.folder import TrainingRun

    one_of(arguments, "train")
    task = task_of(arguments)
    if arguments.preset is None:
        arguments.preset = "sb3-ppo" if arguments.env else "ppo" if task.cartridge is None else "paper"
    train = _trainer(arguments, task.name)
    if arguments.sigma is None:
        arguments.sigma = _selected_sigma(arguments, task)
    digits = decimals(task.scoring.floor, task.scoring.ceiling, 0.0)
    name = f"train-{task.name}-s{arguments.sigma:g}-{arguments.preset}-seed{arguments.seed}"
    folder: Path = arguments.out or Path("runs") / name
    with _resumable(folder), progress_bar("training", "steps", arguments) as report:
        run = TrainingRun(
            task=task,
            sigma=arguments.sigma,
            out=folder,
            seed=arguments.seed,
            device=resolve_device(arguments.device),
            time_limit=arguments.time_limit,
            for_budget=arguments.for_budget,
            resume=arguments.resume,
            preset=arguments.preset,
            command=arguments.command_line,
            progress=None if report is None else lambda done, of, curve: report(done, of, _note(curve, digits)),
        )
        train(run)
    card = load_card(str(folder))
    if arguments.json:
        print_json(card)
        return
    training = card["training"]
    what = f"surefoot certify {named(arguments)} --agent {folder} --sigma {card['sigma']:g}"
    print(
        f"Best validation {training['best_validation']:.{digits}f} at step {training['best_step']:,} "
        f"of {training['steps']:,}.\n"
        f"Written to {folder}; certify it with: {what}"
    )


def _selected_sigma(arguments: argparse.Namespace, task: Task) -> float:
    """Select sigma by what pretrained agents are predicted to certify at the budget, and say so."""
    from surefoot.play.plan import resolve_device
    from surefoot.train.selection import best_sigma

    if arguments.for_budget is None:
        raise InputError("train needs --sigma, the noise to train with, or --for-budget, which selects it")
    if not 0 < arguments.for_budget < inf:
        raise InputError(f"--for-budget must be > 0 to select sigma, got {arguments.for_budget:g}; or give --sigma")
    device, recurrent = resolve_device(arguments.device), arguments.memory == "gru"
    found = best_sigma(task, arguments.for_budget, recurrent=recurrent, seed=arguments.seed, device=device)
    if not (arguments.json or arguments.quiet):
        print(
            f"Sigma {found.sigma:g}: of the pretrained agents {found.agent} is predicted to certify the most at budget "
            f"{found.budget:g} ({found.limit:.2f})."
        )
    return found.sigma


def _note(curve: Curve, digits: int) -> str:
    """Return what the last validation showed, next to the progress bar."""
    _, mean, _, _, *certified = curve.rows[-1]
    shown = "".join(f", certified {value:.{digits}f} (best {curve.best:.{digits}f})" for value in certified)
    return f"mean {mean:.{digits}f}{shown}" if certified else f"best validation {curve.best:.{digits}f}"


def _trainer(arguments: argparse.Namespace, task: str) -> Trainer:
    """Return the training that the preset names, with its settings."""
    if arguments.env is not None or arguments.preset == "sb3-ppo":
        return _sb3_ppo(arguments)
    if arguments.preset in {"ppo", "ppo-large", "polish", "student", "fine-tune", "fast"}:
        refuse(arguments, ("repeats",), f"the preset {arguments.preset}, which trains one seed")
    if arguments.preset.startswith("ppo"):
        return _ppo(arguments, task)
    if arguments.preset == "student":
        return _taught(arguments, task)
    if arguments.preset == "polish":
        return _polish(arguments)
    refuse(arguments, ("memory",), f"the preset {arguments.preset}, which has its own")
    if arguments.preset == "fine-tune":
        return _taught(arguments, task)
    refuse(arguments, ("teacher",), f"the preset {arguments.preset}, which learns from rewards")
    if arguments.preset == "fast":
        from surefoot.agents.files import load
        from surefoot.train.atari.settings import find_fast
        from surefoot.train.atari.train import train_fast
        from surefoot.train.settings import changed

        settings = changed(find_fast(task), arguments.set)
        start = None if arguments.init_from is None else load(arguments.init_from)
        return lambda run: train_fast(run, settings, init_from=start)
    refuse(
        arguments, ("time_limit", "init_from"), f"the preset {arguments.preset}, which trains from scratch to its end"
    )
    refuse(arguments, ("for_budget",), f"the preset {arguments.preset}, which keeps the weights with the best mean")
    from surefoot.train.settings import changed, find_settings
    from surefoot.train.train import train

    table = changed(find_settings(arguments.preset, task), arguments.set)
    if arguments.repeats is not None:
        table = replace(table, repeats=arguments.repeats)
    return lambda run: train(run, table)


def _sb3_ppo(arguments: argparse.Namespace) -> Trainer:
    """Return the training for any environment."""
    from surefoot.train.sb3_ppo import default_settings, train_sb3_ppo
    from surefoot.train.settings import changed

    if arguments.preset != "sb3-ppo":
        raise InputError(f"--env is trained by the preset sb3-ppo, got {arguments.preset}")
    refuse(arguments, ("teacher", "init_from", "repeats"), "the preset sb3-ppo, which trains one seed from scratch")
    n_stack = _frames(arguments) or 1
    return lambda run: train_sb3_ppo(run, changed(replace(default_settings(run.task), n_stack=n_stack), arguments.set))


def _frames(arguments: argparse.Namespace) -> int | None:
    """Return the K of ``--memory frames=K``, where it is given."""
    if arguments.memory is None:
        return None
    count = arguments.memory.removeprefix("frames=")
    if not count.isdecimal() or count == arguments.memory or int(count) < 1:
        raise InputError(f"the preset {arguments.preset} takes --memory frames=K, got {arguments.memory!r}")
    return int(count)


def _ppo(arguments: argparse.Namespace, task: str) -> Trainer:
    from surefoot.train.ppo import train_ppo
    from surefoot.train.settings import changed, find_ppo

    refuse(arguments, ("teacher", "init_from"), f"the preset {arguments.preset}, which trains from scratch")
    settings = find_ppo(arguments.preset, task)
    if arguments.memory is not None:
        settings = settings.with_memory(arguments.memory)
    settings = changed(settings, arguments.set)
    return lambda run: train_ppo(run, settings)


def _polish(arguments: argparse.Namespace) -> Trainer:
    """Return the search for the last layer of an agent."""
    from surefoot.agents.files import load
    from surefoot.train.polish import polish
    from surefoot.train.settings import PolishSettings

    if arguments.init_from is None:
        raise InputError("the preset polish needs --init-from, the agent whose last layer to search")
    given = ("memory", "teacher", "time_limit")
    refuse(arguments, given, "the preset polish, which searches the last layer of the agent as it is")
    start = load(arguments.init_from)
    return lambda run: polish(run, PolishSettings(), init_from=start)


def _taught(arguments: argparse.Namespace, task: str) -> Trainer:
    """Return the training of a student, or its fine-tuning."""
    from surefoot.train.atari.fine_tune import train_fine_tune
    from surefoot.train.atari.settings import find_fine_tune, find_student
    from surefoot.train.atari.student import train_student
    from surefoot.train.settings import changed

    if arguments.preset == "student":
        settings = find_student(task)
        settings = changed(replace(settings, n_stack=_frames(arguments) or settings.n_stack), arguments.set)
        teacher, start = _agents(arguments, task)
        return lambda run: train_student(run, settings, teacher=teacher, init_from=start)
    tuned = changed(find_fine_tune(task), arguments.set)
    teacher, student = _agents(arguments, task)
    if student is None:
        raise InputError(f"the preset {arguments.preset} needs --init-from, the student to improve")
    return lambda run: train_fine_tune(run, tuned, teacher=teacher, init_from=student)


def _agents(arguments: argparse.Namespace, task: str) -> tuple[Policy, Policy | None]:
    """Return the teacher and the agent to start from."""
    from surefoot.agents.files import load
    from surefoot.agents.resolve import resolve
    from surefoot.play.tasks import get_task

    if arguments.teacher is None:
        raise InputError(f"the preset {arguments.preset} needs --teacher, an agent that plays {task} without noise")
    start = None if arguments.init_from is None else load(arguments.init_from)
    return resolve(arguments.teacher, get_task(task).spaces), start
