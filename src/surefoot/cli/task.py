"""Which task or environment the options of a command name; the same options for every command that runs episodes."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import numbers, refuse
from surefoot.cli.parser import AGENT, offer, section
from surefoot.errors import InputError

if TYPE_CHECKING:
    from surefoot.play.task import Task

TASKS = "cartpole-5, cartpole-1, mountain-car, pong-1r, pong-full or freeway"
# What --env needs besides floor and step limit, by option, and what each is.
WANTED = {
    "agent": "--agent NAME_OR_PATH",
    "sigma": "--sigma S, the noise on every new observation",
    "sigmas": "--sigmas LIST, the noises to try",
}
# What a task defines itself.
DEFINED = ("floor", "ceiling", "max_steps", "reward_range", "env_kwargs", "env_module", "wrapper")


def add_task(parser: argparse.ArgumentParser) -> None:
    """Add what is run: TASK, the first word after the command, or --env and what belongs to it."""
    what = section(parser, AGENT)
    offer(what.add_argument("task", nargs="?", metavar="TASK", help=TASKS), TASKS.replace(" or ", ", ").split(", "))
    what.add_argument(
        "--env", metavar="ID", help="any Gymnasium environment instead of TASK: its ID, or module:factory"
    )
    add_code(parser)
    what.add_argument("--max-steps", type=int, metavar="T", help="maximum episode length, for an --env that has none")
    for name, end in (("floor", "lowest"), ("ceiling", "highest")):
        what.add_argument(
            f"--{name}",
            type=float,
            metavar="R",
            help=f"{end} return the rules allow, not the {end} observed (default: proved for known environments)",
        )
    what.add_argument(
        "--reward-range",
        type=numbers("-1,1, LOW and HIGH", count=2),
        metavar="LOW,HIGH",
        help="range of every reward of --env; times the episode length it gives floor and ceiling",
    )


def add_code(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how --env is made, and name code around it."""
    what = section(parser, AGENT)
    what.add_argument("--env-kwargs", type=_json, metavar="JSON", help="arguments of --env, such as '{\"g\": 9.0}'")
    what.add_argument(
        "--env-module", action="append", metavar="MODULE", help="module to import first, which registers --env"
    )
    what.add_argument(
        "--wrapper",
        action="append",
        metavar="CLASS",
        help="wrapper around --env: module:Class or one of gymnasium.wrappers, with arguments as "
        "'ClipReward={\"min_reward\": -10}'; may be repeated",
    )


def task_of(arguments: argparse.Namespace, *needed: str, gamma: float | None = None) -> Task:
    """Return the task that is named, or that of the environment; what is missing is listed at once.

    Args:
        arguments: The options.
        needed: Which other options --env needs, of ``WANTED``.
        gamma: The discount.
    """
    from surefoot.play.tasks import discounted, get_task

    if arguments.task is not None and arguments.env is None:
        task = get_task(arguments.task)
        floor, ceiling = task.scoring.floor, task.scoring.ceiling
        top = "none" if ceiling is None else f"{ceiling:g}"
        defined = (
            f"a task: {task.name} defines its own floor ({floor:g}), ceiling ({top}), episode length and rewards; "
            "use --env ID to set them yourself"
        )
        refuse(arguments, DEFINED, defined)
        return task if gamma is None else discounted(task, gamma)
    return _task_of_environment(arguments, needed, gamma)


def _task_of_environment(arguments: argparse.Namespace, needed: tuple[str, ...], gamma: float | None) -> Task:
    from gymnasium import logger

    from surefoot.play.environments import inspect
    from surefoot.play.envs.source import Source

    logger.min_level = logger.ERROR  # its advice on versions of environments would appear between our lines
    environment, given = _environment(arguments)
    source = Source(maker=environment, max_steps=arguments.max_steps, **given)
    facts = inspect(source, reward_range=arguments.reward_range)
    missing = [WANTED[name] for name in needed if getattr(arguments, name) is None] + facts.missing(arguments.floor)
    if missing:
        raise InputError(f"--env {environment} also needs {'; '.join(missing)}")
    return facts.task(floor=arguments.floor, ceiling=arguments.ceiling, gamma=gamma)


def named(arguments: argparse.Namespace) -> str:
    """Return the options that name the task or the environment, as they would be typed again."""
    if arguments.task is not None:
        return str(arguments.task)
    words = []
    for name in ("env", *DEFINED):
        value = getattr(arguments, name)
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            plain = ",".join(f"{part:g}" for part in one) if isinstance(one, tuple) else str(one)
            words += [f"--{name.replace('_', '-')}", json.dumps(one) if isinstance(one, dict) else plain]
    return shlex.join(words)


def one_of(arguments: argparse.Namespace, command: str, *others: str) -> None:
    """Check that exactly one of TASK, --env and ``others`` is given, or the path of an agent, whose files say which."""
    agent_for_task(arguments)
    sources = [name for name in ("task", "env", *others) if getattr(arguments, name) is not None]
    agent = getattr(arguments, "agent", None)
    if not sources and agent is not None and ("/" in agent or agent.endswith(".zip")) and not Path(agent).exists():
        raise InputError(f"no file or folder {agent}; give that of an SB3 model, or TASK or --env and an agent for it")
    if len(sources) != 1 and not (sources == [] and is_path(agent)):
        *first, last = ("TASK", "--env", *(f"--{name}" for name in others))
        wanted = f"{', '.join(first)} or {last}" if len(first) > 1 else f"{first[0]} and {last}"
        raise InputError(f"{command} needs exactly one of {wanted}, got {' and '.join(sources) or 'none'}")


def agent_for_task(arguments: argparse.Namespace) -> None:
    """Take the path of an agent where a task was expected: the agent's files say what it was trained on."""
    free = hasattr(arguments, "agent") and arguments.agent is None and getattr(arguments, "returns", None) is None
    if free and is_path(arguments.task):
        arguments.agent, arguments.task = arguments.task, None
    elif arguments.task is not None and "/" in arguments.task and Path(arguments.task).exists():
        raise InputError(
            f"{arguments.task} holds no SB3 model file, whose settings say what it was trained on; give the folder "
            "with the .zip file, or TASK or --env ID and this as --agent"
        )


def is_path(text: str | None) -> bool:
    """Return whether this is an SB3 model file or the folder of one, and not a name."""
    if text is None or not Path(text).exists():
        return False
    from surefoot.agents.resolve import is_published

    return text.endswith(".zip") or is_published(Path(text))


def _environment(arguments: argparse.Namespace) -> tuple[str, Mapping[str, Any]]:
    """Return the ID that was given, or the one that the files of a published agent name, and how it is made."""
    given: dict[str, Any] = {
        "kwargs": arguments.env_kwargs or {},
        "wrappers": tuple(arguments.wrapper or ()),
        "modules": tuple(arguments.env_module or ()),
    }
    if not is_path(getattr(arguments, "agent", None)):
        return arguments.env, given
    from surefoot.agents.sb3.published import read_published

    published = read_published(Path(arguments.agent))
    if arguments.env is None and published.environment is None:
        raise InputError(f"nothing near {published.model} says what it was trained on; give --env ID")
    environment = str(arguments.env or published.environment)
    if arguments.wrapper is None and published.refusal:
        raise InputError(published.refusal)
    known = {
        "kwargs": {**published.arguments_for(environment), **given["kwargs"]},
        "wrappers": given["wrappers"] or published.wrappers,
        "modules": tuple(dict.fromkeys((*published.modules, *given["modules"]))),
    }
    return environment, known


def limits_note(arguments: argparse.Namespace, task: Task) -> list[str]:
    """Return lines on what was not given: floor and ceiling that are known, another step limit than usual."""
    from surefoot.play.envs.source import registered_steps
    from surefoot.play.floors import DOCS

    lines, scoring = [], task.scoring
    if arguments.task is None and arguments.floor is None:
        top = "no ceiling" if scoring.ceiling is None else f"ceiling {scoring.ceiling:g}"
        if "floor" in scoring.stated:
            whence = "--reward-range, which you state: rewards that are run are checked, nothing proves the others"
        elif arguments.reward_range is not None:
            whence = "--reward-range"
        else:
            whence = f"the rules of {task.environment} ({DOCS})"
        lines.append(f"Floor {scoring.floor:g} and {top} follow from {whence}.")
    known = registered_steps(task.environment)
    if arguments.max_steps is not None and known not in (None, scoring.max_steps):
        lines.append(
            f"Episodes were cut off after {scoring.max_steps} steps ({task.environment} has {known}): the bounds are "
            "about these episodes only."
        )
    return lines


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'must look like {{"name": 1}}, got {text!r}')
    return found
