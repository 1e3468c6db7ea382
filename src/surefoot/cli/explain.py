"""``surefoot explain-budget`` and ``explain-fault``: what budgets and faulty sensors are in units of observations."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import (
    add_agent,
    add_json,
    add_output,
    add_seed,
    agent_of,
    numbers_type,
    parse_sigma,
    print_json,
    print_table,
    say,
)
from surefoot.cli.parser import AGENT, ATTACK, STATISTICS, add_command, section
from surefoot.cli.task import add_task, add_task_name, check_units, one_of, parse_units, task_of
from surefoot.errors import InputError
from surefoot.proof.certificate import checked_budget
from surefoot.proof.query import NORMS
from surefoot.report.budget_words import explain_budget, held_for
from surefoot.report.offsets import HeldBudget, format_offset, named_features

if TYPE_CHECKING:
    from surefoot.play.environments import Inspected


def add_explain(commands: Any) -> None:
    """Describe ``explain-budget``."""
    parser = add_command(
        commands,
        "explain-budget",
        "say what an attack budget is in the units of the observations",
        usage="BUDGET [TASK | --env ID] [options]",
        details="Prints perturbations that use up the budget: of one value once, of all values at every step.",
        examples=(
            "surefoot explain-budget 0.2 cartpole-5",
            "surefoot explain-budget 0.2 --shape 84,84 --max-steps 1000",
            "surefoot explain-budget 0.2 --env MyEnv-v0 --feature-units pos=m,speed=m/s --sigma pos=0.3",
        ),
    )
    what = section(parser, AGENT)
    section(parser, ATTACK).add_argument("budget", type=float, metavar="BUDGET", help="the attack budget")
    add_task_name(parser)
    what.add_argument("--env", metavar="ID", help="any Gymnasium environment instead of TASK")
    what.add_argument(
        "--shape",
        type=numbers_type("84,84"),
        metavar="LIST",
        help="shape of one observation, where no environment is named; two sizes or more are an image",
    )
    what.add_argument("--max-steps", type=int, metavar="T", help="maximum episode length (default: the environment's)")
    what.add_argument(
        "--sigma", type=parse_sigma, metavar="S", help="noise, one per feature as 0.1,0.2, or one per part as pos=0.3"
    )
    what.add_argument(
        "--feature-units",
        type=parse_units,
        metavar="UNITS",
        help="units of --env's observations, as certify takes them: m, or position=m,speed=m/s",
    )
    what.add_argument("--step-seconds", type=float, metavar="S", help="how long a step takes, for durations in seconds")
    model = section(parser, ATTACK)
    model.add_argument("--norm", choices=NORMS, default="l2", help="norm of the budget (default: l2)")
    model.add_argument("--per-step", action="store_true", help="the budget is for every single step")
    add_json(parser)
    parser.set_defaults(run=run_explain)


def run_explain(arguments: argparse.Namespace) -> None:
    """Print what the budget is."""
    given = [name for name in ("task", "env", "shape") if getattr(arguments, name) is not None]
    if len(given) > 1:
        raise InputError(f"explain-budget takes one of TASK, --env and --shape, got {' and '.join(given)}")
    lines = []
    table = []
    if isinstance(arguments.sigma, dict) or arguments.feature_units is not None:
        table = _table_of_parts(arguments)
    else:
        env, shape, max_steps = _find_observations(arguments)
        seen: dict[str, Any] = {"shape": shape, "max_steps": max_steps, "sigma": arguments.sigma}
        lines = explain_budget(arguments.budget, env, **seen, norm=arguments.norm, per_step=arguments.per_step)
        if arguments.norm == "l2" and not arguments.per_step:
            table = held_for(arguments.budget, env, **seen, step_seconds=arguments.step_seconds)
    if arguments.json:
        content = {"schema": 1, "budget": arguments.budget, "norm": arguments.norm, "is": lines, "held_for": table}
        print_json(content)
        return
    # Without this a budget is a number that may mean either.
    covers = "every single step" if arguments.per_step else "a whole episode"
    opening = f"{arguments.norm} budget {arguments.budget:g} for {covers}."
    if lines:
        opening += " Any of these uses it up:"
    say(opening)
    for line in lines:
        say(f"- {line}", "  ")
    if table:
        print()
        say("An offset b that is held for k steps uses b sqrt(k): spikes are cheap, what lasts is expensive. So large:")
        print("\n".join(table))


def _table_of_parts(arguments: argparse.Namespace) -> list[str]:
    """Return how large an offset of each part with noise may be for how long, in its unit."""
    if arguments.env is None or arguments.feature_units is None or arguments.norm != "l2" or arguments.per_step:
        raise InputError(
            "explain-budget takes --feature-units, and with them a --sigma for each part, of an --env, for an l2 "
            "budget of whole episodes"
        )
    found = _inspect_environment(arguments)
    if found.max_steps is None:
        raise InputError(f"--env {arguments.env} also needs --max-steps")
    features = found.spaces.features_of(arguments.feature_units)
    setup: dict[str, Any] = {"features": [list(row) for row in features]}
    if arguments.sigma is not None:
        check_units(features, arguments.sigma, "--sigma")
        sigma = found.spaces.sigma_of(arguments.sigma)
        if not isinstance(sigma, int | float):
            setup["sigma_per_feature"] = list(sigma)
    seconds = arguments.step_seconds or found.step_seconds
    return HeldBudget(checked_budget(arguments.budget), found.max_steps, named_features(setup), seconds).lines()


def _inspect_environment(arguments: argparse.Namespace) -> Inspected:
    from surefoot.play.environments import inspect
    from surefoot.play.envs.source import Source

    return inspect(Source(maker=arguments.env, max_steps=arguments.max_steps))


def _find_observations(arguments: argparse.Namespace) -> tuple[str | None, tuple[int, ...] | None, int | None]:
    """Return the environment, the shape of an observation and the most steps, as far as they are known."""
    if arguments.shape is not None:
        return None, tuple(int(size) for size in arguments.shape), arguments.max_steps
    if arguments.task is not None:
        from surefoot.play.tasks import TASKS, get_task

        task = TASKS[arguments.task] if arguments.task in TASKS else get_task(arguments.task)
        return task.environment, task.spaces.shape, arguments.max_steps or task.scoring.max_steps
    if arguments.env is None:
        return None, None, arguments.max_steps
    found = _inspect_environment(arguments)
    return arguments.env, found.spaces.shape, found.max_steps


def add_faults(commands: Any) -> None:
    """Describe ``explain-fault``."""
    parser = add_command(
        commands,
        "explain-fault",
        "measure how large the perturbation of a faulty sensor would be in an agent's episodes",
        usage="TASK | --env ID [options]",
        details="Freeze, dropout, delay and replay, in l2, as budgets count: what is above the budget of a certificate "
        "is not covered by it.",
        examples=(
            "surefoot explain-fault cartpole-5 --sigma 0.2",
            "surefoot explain-fault mountain-car --steps 1,20 --json",
            "surefoot explain-fault --env MyEnv-v0 --agent model.zip --sigma pos=0.3 --steps 1,50,500",
        ),
    )
    add_task(parser)
    # What is observed is kept in this process.
    add_agent(parser, workers=False)
    section(parser, AGENT).add_argument(
        "--sigma", type=parse_sigma, metavar="S", help="the agent's noise, as certify takes it (default: the task's)"
    )
    section(parser, STATISTICS).add_argument(
        "--steps", type=numbers_type("1,10,100"), default="1,10,100", metavar="LIST", help="how long faults last"
    )
    section(parser, STATISTICS).add_argument(
        "--episodes", type=int, default=64, metavar="N", help="episodes to measure in (default: 64)"
    )
    add_seed(parser)
    add_output(parser)
    parser.set_defaults(run=run_faults)


def run_faults(arguments: argparse.Namespace) -> None:
    """Measure, and print a table."""
    from surefoot.api.faults import FAULTS, measure_faults

    chosen = one_of(arguments, "explain-fault")
    task = task_of(arguments, "agent", "sigma", chosen=chosen)
    found = measure_faults(
        task,
        agent_of(arguments, chosen.agent, task),
        sigma=arguments.sigma,
        steps=[int(count) for count in arguments.steps],
        n_episodes=arguments.episodes,
        seed=arguments.seed,
    )
    if arguments.json:
        print_json({"schema": 1, "task": task.name, "faults": [asdict(one) for one in found]})
        return
    say(
        f"l2 norms of all perturbations of one episode of {task.name}, as budgets count them. A certificate covers a "
        "fault only as far as its budget reaches; an estimate, along episodes that no fault has disturbed."
    )
    print()
    rows = [(one.fault, f"{one.steps:,}", format_offset(one.median), format_offset(one.mild)) for one in found]
    print_table(("fault", "steps", "median", "a tenth is below"), rows, n_left=1)
    print()
    for name, meaning in FAULTS.items():
        say(f"{name}: {meaning}", "  ")
