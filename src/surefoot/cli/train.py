"""``surefoot train``: one agent with noise on its observations."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import (
    add_action_sigma,
    add_common,
    add_declared,
    agent_of,
    parse_minutes,
    parse_sigma,
    pick,
    print_json,
    progress_bar,
    say,
)
from surefoot.cli.parser import AGENT, TRAINING, add_command, section
from surefoot.cli.task import add_task, named, one_of, task_of
from surefoot.errors import InputError, Interrupted

if TYPE_CHECKING:
    from surefoot.noise import Noise
    from surefoot.play.task import Task
    from surefoot.train.folder import TrainingCurve


def add_train(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "train",
        "train an agent with noise on its observations",
        usage="TASK | --env ID --sigma S | --for-budget B [options]",
        examples=(
            "surefoot train cartpole-5 --sigma 0.2",
            "surefoot train cartpole-5 --for-budget 0.6 --memory gru --time 10m",
            "surefoot train --env Pendulum-v1 --sigma 0.1 --init-from sac.zip",
        ),
    )
    add_task(parser)
    agent = section(parser, AGENT)
    agent.add_argument(
        "--sigma",
        type=parse_sigma,
        metavar="S",
        help="standard deviation of the noise on every observation, in its units; a list has one per feature, "
        "camera=0.1,arm=0.2 one per part (with --for-budget default: the one whose pretrained agents are predicted to "
        "certify the most there)",
    )
    add_action_sigma(parser)
    agent.add_argument(
        "--init-from",
        metavar="AGENT",
        help="agent to start from, of any kind that certify takes: what it does without noise is imitated with noise, "
        "then made better by PPO",
    )
    add_declared(parser)
    training = section(parser, TRAINING)
    training.add_argument(
        "--preset",
        metavar="NAME",
        help="ppo (any environment); ppo-large, paper, thorough (CartPole, Mountain Car); early, brief (Mountain Car); "
        "paper (Atari) (default: ppo, for Atari paper)",
    )
    training.add_argument(
        "--time",
        type=parse_minutes,
        metavar="T",
        help="length of the training, such as 10m, 90s or 1h (not DQN and DDPG; default for --env: 10m at most)",
    )
    training.add_argument(
        "--memory",
        metavar="KIND",
        help="gru, or frames=K for the last K observations (ppo; default: as the task; for --env gru, but frames=1 "
        "where actions are continuous and there is no --init-from)",
    )
    training.add_argument(
        "--for-budget",
        type=float,
        metavar="B",
        help="attack budget at which the selected weights certify the most (not DQN and DDPG; default: twice sigma)",
    )
    training.add_argument(
        "--repeats",
        type=int,
        metavar="N",
        help="number of training seeds, of which the best on validation is kept (DQN and DDPG; default: the preset's)",
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
    add_common(parser)
    parser.set_defaults(run=run_train)


def run_train(arguments: argparse.Namespace) -> None:
    """Train one agent."""
    from surefoot.agents.files import load_card
    from surefoot.noise import Noise
    from surefoot.play.plan import limits_of_actions, resolve_device
    from surefoot.play.tasks import TASKS
    from surefoot.proof.rounding import count_decimals
    from surefoot.runs.folder import noise_name
    from surefoot.train.folder import TrainingRun, has_checkpoint, short_name
    from surefoot.train.presets import default_preset, prepare_settings, train_agent
    from surefoot.train.settings import MINUTES_OF_ENV

    one_of(arguments, "train")
    task = task_of(arguments)
    # Settings before sigma: an unknown name is an error before agents are run to select one.
    preset = arguments.preset or default_preset(task)
    shaping = pick(arguments, "memory", "repeats", "time", "for_budget", "init_from")
    settings = prepare_settings(preset, task, **shaping, changes=arguments.set)
    given = arguments.sigma
    if arguments.action_sigma > 0:
        # Before hours of training.
        limits_of_actions(task)
        given = given or 0.0
    if given is None:
        noise = Noise.of(_select_sigma(arguments, task))
    else:
        noise = Noise.of(task.spaces.sigma_of(given), arguments.action_sigma)
        noise.over(task.spaces.shape)
    teacher = agent_of(arguments, arguments.init_from, task)
    device = resolve_device(arguments.device)
    if arguments.device == "auto" and task.name not in TASKS:
        # Environments that step one by one keep a GPU waiting.
        device = "cpu"
    time_limit = arguments.time
    if (
        time_limit is None
        and task.name not in TASKS
        and not any(one.startswith("total_steps=") for one in arguments.set)
    ):
        time_limit = MINUTES_OF_ENV
    digits = count_decimals(task.scoring.floor, task.scoring.ceiling, 0.0)
    # Names without signs that a shell would read.
    name = f"train-{short_name(task)}-s{noise_name(noise)}-{preset}-seed{arguments.seed}"
    folder: Path = arguments.out or Path("runs") / name
    with progress_bar("training", "steps", arguments) as report:
        progress = None
        if report is not None:
            progress = _show_validations(report, digits)
        run = TrainingRun(
            task=task,
            noise=noise,
            out=folder,
            **pick(arguments, "seed", "for_budget", "resume"),
            device=device,
            time_limit=time_limit,
            preset=preset,
            command=arguments.command_line,
            progress=progress,
            imitated=teacher,
        )
        try:
            train_agent(run, settings)
        except KeyboardInterrupt as stopped:
            # Nothing is promised where nothing was saved.
            if not has_checkpoint(folder):
                raise
            raise Interrupted(
                f"a checkpoint is kept in {folder}. Run the same command with --resume to continue."
            ) from stopped
    card = load_card(str(folder))
    if arguments.json:
        print_json(card)
        return
    _show_trained(arguments, card["training"], folder, noise, digits)


def _show_trained(
    arguments: argparse.Namespace, training: Mapping[str, Any], folder: Path, noise: Noise, digits: int
) -> None:
    """Print what was validated, also of the agent that training started from, and where the agent is."""
    begun = training.get("init_from", {})
    if "certified" in begun:
        say(_compare_with_teacher(begun, training, digits))
    print(
        f"Best validation {training['best_validation']:.{digits}f} at step {training['best_step']:,} "
        f"of {training['steps']:,}.\n"
        f"Written to {folder}; certify it with: "
        f"surefoot certify {named(arguments)} --agent {shlex.quote(str(folder))} --sigma {_type_sigma(noise)}"
    )


def _compare_with_teacher(begun: Mapping[str, Any], training: Mapping[str, Any], digits: int) -> str:
    """Return what the agent that training started from does with the same noise, and a warning if that is more."""
    certified = training.get("best_certified", training["best_validation"])
    said = (
        f"Expected to certify {certified:.{digits}f} at budget {training['budget']:g}; {begun['name']}, from which it "
        f"started, {begun['certified']:.{digits}f} (mean {begun['validation']:.{digits}f})."
    )
    if begun["certified"] > certified:
        said += " Warning: it is not better than that one; train it longer (--time), or certify that one."
    return said


def _select_sigma(arguments: argparse.Namespace, task: Task) -> float:
    """Select sigma by what pretrained agents are predicted to certify at the budget, and say so."""
    from surefoot.play.plan import resolve_device
    from surefoot.train.selection import best_sigma

    budget = arguments.for_budget
    if budget is None:
        raise InputError("train needs --sigma, the noise to train with, or --for-budget, which selects it")
    if not 0 < budget < inf:
        raise InputError(f"--for-budget must be > 0 to select sigma, got {budget:g}; or give --sigma")
    recurrent = arguments.memory == "gru"
    device = resolve_device(arguments.device)
    found = best_sigma(task, budget, recurrent=recurrent, seed=arguments.seed, device=device)
    # What was selected for the user is said, unless nothing else may be printed.
    if not (arguments.json or arguments.quiet):
        print(
            f"Sigma {found.sigma:g}: of the pretrained agents {found.agent} is predicted to certify the most at budget "
            f"{found.budget:g} ({found.limit:.2f})."
        )
    return found.sigma


def _type_sigma(noise: Noise) -> str:
    """Return the noise as it is typed."""
    typed = ",".join(f"{sigma:g}" for sigma in noise.features or (noise.sigma,))
    if noise.action_sigma > 0:
        typed += f" --action-sigma {noise.action_sigma:g}"
    return typed


def _show_validations(report: Callable[..., None], digits: int) -> Callable[[int, int, TrainingCurve], None]:
    """Return what shows the last validation next to the progress bar."""

    def show(done: int, of: int, curve: TrainingCurve) -> None:
        # Trainings of DQN and DDPG validate the mean alone; the others have a column for what they certify.
        _, mean, _, _, *certified = curve.rows[-1]
        note = f"best validation {curve.best:.{digits}f}"
        if certified:
            note = f"mean {mean:.{digits}f}, certified {certified[0]:.{digits}f} (best {curve.best:.{digits}f})"
        report(done, of, note)

    return show
