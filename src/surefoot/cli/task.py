"""Which task or environment the options of a command name; the same options for every command that runs episodes."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import SigmaOfParts, numbers_type, refuse
from surefoot.cli.parser import ADVANCED, AGENT, offer_names, section
from surefoot.errors import InputError
from surefoot.play.measured_baselines import BASELINES
from surefoot.provenance import find_page

if TYPE_CHECKING:
    from surefoot.play.task import Task

TASK_NAMES = tuple(BASELINES)  # every task has one, and this table needs no torch
# What --env needs besides floor and step limit, by option, and what each is.
WANTED = {
    "agent": "--agent NAME_OR_PATH",
    "sigma": "--sigma S, the noise on every new observation ('surefoot tune' compares several)",
}
OF_ENVIRONMENT = "max_steps reward_range env_kwargs env_module wrapper success feature_units step_seconds".split()
# What a task defines itself.
DEFINED = ("floor", "ceiling", *OF_ENVIRONMENT)


@dataclass(frozen=True)
class Chosen:
    """What was named: a task, an environment, an agent."""

    task: str | None
    env: str | None
    agent: str | None


def add_task(parser: argparse.ArgumentParser) -> None:
    """Add what is run: TASK, the first word after the command, or --env and what belongs to it."""
    add_task_name(parser)
    what = section(parser, AGENT)
    what.add_argument(
        "--env", metavar="ID", help="any Gymnasium environment instead of TASK: its ID, or module:factory"
    )
    what.add_argument(
        "--floor",
        type=float,
        metavar="R",
        help="lowest return the rules allow, not the lowest observed (default: proved for known environments)",
    )
    more = section(parser, ADVANCED)
    more.add_argument(
        "--ceiling",
        type=float,
        metavar="R",
        help="highest return the rules allow, not the highest observed (default: proved for known environments)",
    )
    more.add_argument("--max-steps", type=int, metavar="T", help="maximum episode length, for an --env that has none")
    more.add_argument(
        "--reward-range",
        type=numbers_type("-1,1, LOW and HIGH", count=2),
        metavar="LOW,HIGH",
        help="range of every reward of --env; times the episode length it gives floor and ceiling",
    )
    more.add_argument(
        "--feature-units",
        type=parse_units,
        metavar="UNITS",
        help="units of --env's observations, as m, or of its parts, as position=m,speed=m/s; budgets are then given in "
        "them",
    )
    more.add_argument(
        "--step-seconds",
        type=float,
        metavar="S",
        help="how long a step of --env takes (default with --feature-units: what the environment says)",
    )
    add_code(parser)


def add_task_name(parser: argparse.ArgumentParser) -> None:
    """Add the name of a task."""
    *first, last = TASK_NAMES
    listed = f"{', '.join(first)} or {last}"
    offer_names(section(parser, AGENT).add_argument("task", nargs="?", metavar="TASK", help=listed), TASK_NAMES)


def add_code(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how --env is made, and name code around it."""
    what = section(parser, ADVANCED)
    what.add_argument(
        "--env-kwargs", type=_parse_object, metavar="JSON", help="arguments of --env, such as '{\"g\": 9.0}'"
    )
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
    what.add_argument(
        "--success",
        metavar="EVENT",
        help="make the return of --env 1 for an episode that met this at any step, else 0: module:function of what "
        "step returns, or the key of an info",
    )


def one_of(arguments: argparse.Namespace, command: str, *others: str) -> Chosen:
    """Return what is named: one of TASK, --env and ``others``, or the path of an agent, whose files say which."""
    chosen = _find_chosen(arguments)
    given = {"task": chosen.task, "env": chosen.env}
    for name in others:
        given[name] = getattr(arguments, name)
    sources = [name for name, value in given.items() if value is not None]
    if len(sources) == 1 or (not sources and is_path(chosen.agent)):
        return chosen
    agent = chosen.agent
    if not sources and agent is not None and ("/" in agent or agent.endswith(".zip")) and not Path(agent).exists():
        raise InputError(f"no file or folder {agent}; give that of an SB3 model, or TASK or --env and an agent for it")
    wanted = "TASK and --env"
    if others:
        wanted = f"TASK, --env or --{' or --'.join(others)}"
    raise InputError(f"{command} needs exactly one of {wanted}, got {' and '.join(sources) or 'none'}")


def _find_chosen(arguments: argparse.Namespace) -> Chosen:
    """Return what is named; the path of an agent may stand where a task was expected."""
    task = arguments.task
    agent = getattr(arguments, "agent", None)
    takes_agent = hasattr(arguments, "agent") and agent is None and getattr(arguments, "returns", None) is None
    if takes_agent and is_path(task):
        return Chosen(None, arguments.env, task)
    if task is not None and "/" in task and Path(task).exists():
        raise InputError(
            f"{task} holds no SB3 model file, whose settings say what it was trained on; give the folder "
            "with the .zip file, or TASK or --env ID and this as --agent"
        )
    return Chosen(task, arguments.env, agent)


def is_path(text: str | None) -> bool:
    """Return whether this is an SB3 model file or the folder of one, and not a name."""
    if text is None or not Path(text).exists():
        return False
    # Reading model files loads torch; names of tasks, the usual case, do not come here.
    from surefoot.agents.resolve import is_published

    return text.endswith(".zip") or is_published(Path(text))


def task_of(
    arguments: argparse.Namespace, *needed: str, chosen: Chosen | None = None, gamma: float | None = None
) -> Task:
    """Return the task that is named, or that of the environment; what is missing is listed at once.

    Args:
        needed: Which other options --env needs, of ``WANTED``.
        chosen: Task, environment and agent; by default those of the options.
    """
    from surefoot.play.tasks import discounted, get_task

    if chosen is None:
        chosen = _find_chosen(arguments)
    if chosen.task is None or chosen.env is not None:
        return _task_of_environment(arguments, chosen, needed, gamma)
    task = get_task(chosen.task)
    scoring = task.scoring
    ceiling = "none"
    if scoring.ceiling is not None:
        ceiling = f"{scoring.ceiling:g}"
    defined = (
        f"a task: {task.name} defines its own floor ({scoring.floor:g}), ceiling ({ceiling}), episode length and "
        "rewards; use --env ID to set them yourself"
    )
    refuse(arguments, DEFINED, defined)
    if gamma is None:
        return task
    return discounted(task, gamma)


def _task_of_environment(
    arguments: argparse.Namespace, chosen: Chosen, needed: tuple[str, ...], gamma: float | None
) -> Task:
    from gymnasium import logger

    from surefoot.play.environments import inspect
    from surefoot.play.envs.source import Source

    logger.min_level = logger.ERROR  # its advice on versions of environments would appear between our lines
    environment, made_with = _choose_environment(arguments, chosen)
    source = Source(maker=environment, max_steps=arguments.max_steps, success=arguments.success, **made_with)
    facts = inspect(source, reward_range=arguments.reward_range)
    missing = []
    for name in needed:
        # The path of an agent may have stood where a task was expected.
        value = chosen.agent if name == "agent" else getattr(arguments, name)
        if value is None:
            missing.append(WANTED[name])
    missing += facts.missing(arguments.floor)
    if missing:
        raise InputError(f"--env {environment} also needs {'; '.join(missing)}")
    task = facts.task(floor=arguments.floor, ceiling=arguments.ceiling, gamma=gamma)
    task = facts.with_units(task, arguments.feature_units, arguments.step_seconds)
    for option in ("sigma", "sigma_b"):
        check_units(task.features, getattr(arguments, option, None), f"--{option.replace('_', '-')}")
    for sigma in getattr(arguments, "sigmas", None) or ():
        check_units(task.features, sigma, "--sigmas")
    return task


def check_units(features: Sequence[tuple[str, int, str]], sigma: object, option: str) -> None:
    """Reject a sigma with a unit that is not the one of its part: nothing is converted."""
    if not isinstance(sigma, SigmaOfParts):
        return
    declared = {name: unit for name, _, unit in features}
    for name, unit in sigma.units.items():
        if declared.get(name) != unit:
            known = declared.get(name) or "not declared"
            raise InputError(
                f"{option} gives {name} in {unit}, but its unit is {known}: --feature-units declares units, and "
                "nothing is converted"
            )


def _choose_environment(arguments: argparse.Namespace, chosen: Chosen) -> tuple[str, Mapping[str, Any]]:
    """Return the ID that was given, or the one that the files of a published agent name, and how it is made."""
    kwargs = arguments.env_kwargs or {}
    wrappers = tuple(arguments.wrapper or ())
    modules = tuple(arguments.env_module or ())
    if chosen.env is not None and not is_path(chosen.agent):
        return chosen.env, {"kwargs": kwargs, "wrappers": wrappers, "modules": modules}
    from surefoot.agents.sb3.published import read_published

    published = read_published(Path(str(chosen.agent)))
    if chosen.env is None and published.environment is None:
        raise InputError(f"nothing near {published.model} says what it was trained on; give --env ID")
    # A wrapper that cannot be rebuilt from the files changes the task; one that is given replaces it.
    if arguments.wrapper is None and published.refusal:
        raise InputError(published.refusal)
    environment = str(chosen.env or published.environment)
    made_with = {
        "kwargs": {**published.arguments_for(environment), **kwargs},
        "wrappers": wrappers or published.wrappers,
        "modules": tuple(dict.fromkeys((*published.modules, *modules))),
    }
    return environment, made_with


def named(arguments: argparse.Namespace) -> str:
    """Return the options that name the task or the environment, as they were typed."""
    if arguments.task is not None:
        return str(arguments.task)
    options = {f"--{name.replace('_', '-')}" for name in ("env", *DEFINED)}
    kept = []
    words = iter(shlex.split(arguments.command_line))
    for word in words:
        option, equals, _ = word.partition("=")
        if option in options:
            kept.append(word)
            # Without a sign between them the value is the next word.
            if not equals:
                kept.append(next(words))
    return shlex.join(kept)


def limits_note(arguments: argparse.Namespace, chosen: Chosen, task: Task) -> list[str]:
    """Return lines on what was not given: floor and ceiling that are known, another step limit than usual."""
    from surefoot.play.envs.source import registered_steps
    from surefoot.play.floors import DOCS

    lines = []
    scoring = task.scoring
    if chosen.task is None and arguments.floor is None:
        ceiling = "no ceiling"
        if scoring.ceiling is not None:
            ceiling = f"ceiling {scoring.ceiling:g}"
        # A certificate depends on these two; whoever did not state them is told where they come from.
        if "floor" in scoring.stated:
            whence = "--reward-range, which you state: rewards that are run are checked, nothing proves the others"
        elif arguments.success is not None:
            whence = f"--success: an episode is worth 1 if it met {arguments.success}, else 0"
        elif arguments.reward_range is not None:
            whence = "--reward-range"
        else:
            whence = f"the rules of {task.environment} ({find_page(DOCS)})"
        lines.append(f"Floor {scoring.floor:g} and {ceiling} follow from {whence}.")
    known = registered_steps(task.environment)
    if arguments.max_steps is not None and known not in (None, scoring.max_steps):
        lines.append(
            f"Episodes were cut off after {scoring.max_steps} steps ({task.environment} has {known}): the bounds are "
            "about these episodes only."
        )
    return lines


def parse_units(text: str) -> str | dict[str, str]:
    """Read one unit, or ``position=m,speed=m/s``."""
    if "=" not in text:
        return text
    named = [part.rpartition("=") for part in text.split(",")]
    if not all(name and unit for name, _, unit in named):
        raise argparse.ArgumentTypeError(f"must look like m or position=m,speed=m/s, got {text!r}")
    return {name: unit for name, _, unit in named}


def _parse_object(text: str) -> dict[str, Any]:
    # Only an object can be the arguments of an environment; null is none either.
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'must look like {{"name": 1}}, got {text!r}')
    return found
