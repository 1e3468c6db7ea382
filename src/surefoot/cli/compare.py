"""``surefoot compare``: is one agent better than another under the worst attack? Runs both until that is proved."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from surefoot.cli.options import add_common, add_workers, print_json, progress_bar, say, workers_of
from surefoot.cli.parser import ADVANCED, AGENT, ATTACK, STATISTICS, STOPPING, add_command, section
from surefoot.cli.task import Chosen, add_task, is_path, task_of
from surefoot.report.certificate_text import assumed_returns

if TYPE_CHECKING:
    from surefoot.api.compare import ComparedRun


def add_compare(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "compare",
        "prove that one agent is better than another under the worst attack",
        usage="A B [TASK | --env ID] --budget B [options]",
        details="What is proved: under the worst attack with that budget the expected return of A is above that of B, "
        "because A's lower bound under any attack is above the upper bound on B's mean return without attack (or under "
        "--attack). Stops as soon as that is so; valid whenever it stops. Exit code 0 if it is proved, else 1.",
        examples=(
            "surefoot compare cartpole-5-ppo-s0.2 cartpole-5-s0.8 --budget 0.2",
            "surefoot compare new.zip old.zip --env CartPole-v1 --sigma 0.2 --budget 0.1",
            "surefoot compare cartpole-5-s0.2 b.zip --sigma-b 0 --attack paper --budget 0.2",
        ),
    )
    agents = section(parser, AGENT)
    for name, what in (("a", "the agent that is to be proved better"), ("b", "the agent it is compared with")):
        agents.add_argument(name, metavar=name.upper(), help=f"{what}: pretrained agent, training directory, SB3 .zip")
    add_task(parser)
    section(parser, ADVANCED).add_argument(
        "--allow-pickle", action="store_true", help="unpickle an SB3 .zip, which executes code in it"
    )
    agents.add_argument(
        "--sigma", type=float, metavar="S", help="A's noise (default: the one its model card or the task names)"
    )
    agents.add_argument(
        "--sigma-b", type=float, metavar="S", help="B's noise, 0 for an undefended agent (default: as A's default)"
    )
    model = section(parser, ATTACK)
    model.add_argument("--budget", type=float, required=True, metavar="B", help="attack budget")
    model.add_argument(
        "--attack", metavar="NAME", help="attack on B while it is measured, as 'surefoot attack --method' names it"
    )
    section(parser, STATISTICS).add_argument(
        "--confidence", type=float, default=0.95, metavar="C", help="confidence of the claim (default: 0.95)"
    )
    section(parser, STOPPING).add_argument(
        "--episodes", type=int, default=10_000, metavar="N", help="episodes of each agent at most (default: 10,000)"
    )
    add_workers(parser)
    add_common(parser, own_seed=True)
    parser.set_defaults(run=run_compare)


def run_compare(arguments: argparse.Namespace) -> int:
    """Compare two agents; 1 if A is not proved better."""
    from surefoot.api.compare import compare

    task = None
    if arguments.task is not None or arguments.env is not None or is_path(arguments.a):
        # The files of a published agent say what it was trained on, as --agent does for other commands.
        task = task_of(arguments, chosen=Chosen(arguments.task, arguments.env, arguments.a))
    with workers_of(arguments) as workers, progress_bar("comparing", "episodes", arguments) as report:
        run = compare(
            arguments.a,
            arguments.b,
            task,
            budget=arguments.budget,
            sigma=arguments.sigma,
            sigma_b=arguments.sigma_b,
            attack=arguments.attack,
            confidence=arguments.confidence,
            n_episodes=arguments.episodes,
            seed=arguments.seed,
            device=arguments.device,
            workers=workers,
            out=arguments.out,
            allow_pickle=arguments.allow_pickle,
            progress_callback=report,
            command=arguments.command_line,
        )
    if arguments.json:
        print_json(run.comparison.to_json())
    else:
        _show_comparison(run)
    return 0 if run.proved else 1


def _show_comparison(run: ComparedRun) -> None:
    """Print the claim, what it assumes, and the estimates."""
    result = run.comparison
    scoring = run.a.task.scoring
    say(str(run))
    # Next to the claim, which does not hold without it.
    if assumed := assumed_returns(scoring.stated, scoring.floor, scoring.ceiling):
        print(f"This assumes that {assumed} (stated by the user, not proved).")
    # Apart from the claim: means of these episodes prove nothing.
    means = " and ".join(f"{mean:.2f}" for mean in result.estimates)
    counts = " and ".join(f"{count:,}" for count in result.n_episodes)
    print(f"\nMean returns: {means} (estimates); {counts} episodes")
    if result.stopped == "out of reach":
        print("Stopped early: more episodes of these agents would probably not prove it either.")
    print(f"Written to: {run.directory / 'comparison.json'}")
