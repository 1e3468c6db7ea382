"""Which task or environment the options of ``surefoot certify`` name."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import refuse
from surefoot.errors import InputError
from surefoot.proof.step_budget import check_rewards

if TYPE_CHECKING:
    from surefoot.play.task import Task


def task_of(arguments: argparse.Namespace) -> Task:
    """Return the task that is named, or that of the environment, with the range of a reward and a discount if given."""
    from surefoot.play.tasks import discounted, get_task, make_task

    if arguments.task is not None:
        task = get_task(arguments.task)
        floor, ceiling = task.scoring.floor, task.scoring.ceiling
        top = "none" if ceiling is None else f"{ceiling:g}"
        defined = (
            f"a task: {task.name} defines its own floor ({floor:g}), ceiling ({top}), episode length and rewards; "
            "use --env ID to set them yourself"
        )
        refuse(arguments, ("floor", "ceiling", "max_steps", "reward_range"), defined)
        return task if arguments.gamma is None else discounted(task, arguments.gamma)
    environment, kwargs = _environment(arguments)
    missing = [f"--{name}" for name in ("floor", "agent", "sigma") if getattr(arguments, name) is None]
    if missing:
        raise InputError(f"--env needs {' and '.join(missing)}")
    limits = {"floor": arguments.floor, "ceiling": arguments.ceiling, "max_steps": arguments.max_steps}
    task = make_task(environment, **limits, env_kwargs=kwargs)
    rewards = None if arguments.reward_range is None else check_rewards(*arguments.reward_range)
    task = replace(task, scoring=replace(task.scoring, reward_range=rewards))
    given = (arguments.floor, arguments.ceiling)
    return task if arguments.gamma is None else discounted(task, arguments.gamma, limits=given)


def agent_for_task(arguments: argparse.Namespace) -> None:
    """Take the path of an agent where a task was expected: the agent's files say what it was trained on."""
    if arguments.agent is None and arguments.returns is None and is_path(arguments.task):
        arguments.agent, arguments.task = arguments.task, None


def is_path(text: str | None) -> bool:
    """Return whether this is an SB3 model file or the folder of one, and not a name."""
    if text is None or not Path(text).exists():
        return False
    from surefoot.agents.resolve import is_published

    return text.endswith(".zip") or is_published(Path(text))


def _environment(arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Return the ID that was given, or the one that the files of a published agent name, and what it is made with."""
    if not is_path(arguments.agent):
        return arguments.env, {}
    from surefoot.agents.sb3.published import read_published

    published = read_published(Path(arguments.agent))
    if arguments.env is None and published.environment is None:
        raise InputError(f"nothing near {published.model} says what it was trained on; give --env ID")
    environment = str(arguments.env or published.environment)
    same = environment.rpartition("-v")[0] == str(published.environment).rpartition("-v")[0]
    return environment, dict(published.env_kwargs) if same else {}


def cut_off(env: str, steps: int) -> str | None:
    """Return a warning where episodes are cut off after another number of steps than usual."""
    from surefoot.play.envs.gymnasium_env import registered_steps

    known = registered_steps(env)
    if known in (None, steps):
        return None
    return f"Episodes were cut off after {steps} steps ({env} has {known}): the bounds are about these episodes only."
