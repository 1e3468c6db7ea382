"""``surefoot certify``: a task, an environment, or returns in; sentence, table, files out."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.api.query import Requirement, stopping_rule, threat_of
from surefoot.cli.options import (
    DECLARED,
    add_action_sigma,
    add_agent,
    add_common,
    add_confidence,
    add_record,
    add_share,
    add_units,
    agent_of,
    numbers_type,
    parse_budgets,
    parse_mixed,
    parse_requirement,
    parse_sigma,
    pick,
    print_json,
    progress_bar,
    refuse,
    say,
    show_share,
    units_of,
    workers_of,
)
from surefoot.cli.parser import ADVANCED, AGENT, ATTACK, RUN, STATISTICS, STOPPING, add_command, section
from surefoot.cli.task import OF_ENVIRONMENT, add_task, limits_note, one_of, task_of
from surefoot.files import read_json
from surefoot.noise import Noise
from surefoot.proof.episode_budget import METHODS
from surefoot.proof.query import NORMS, Query, Units
from surefoot.report.certificate_text import describe, in_units
from surefoot.report.page import REPORT_FILE

if TYPE_CHECKING:
    from surefoot.agents.policies import Policy
    from surefoot.api.returns import CertifiedRun
    from surefoot.play.task import Task


def add_certify(commands: Any) -> None:
    """Describe the subcommand."""
    parser = add_command(
        commands,
        "certify",
        "run episodes of a smoothed agent and certify its expected return",
        usage="TASK | --env ID | --returns FILE [options]",
        details="Exit code 1: what --require asks for is not proved.",
        examples=(
            "surefoot certify cartpole-5",
            "surefoot certify --env CartPole-v1 --agent model.zip --sigma 0.1",
            "surefoot certify cartpole-5 --require 150@0.4 --max-episodes 100000",
        ),
    )
    add_task(parser)
    add_agent(parser)
    _add_questions(parser)
    _add_advanced(parser)
    add_common(parser, own_seed=True)
    add_record(parser, "one more episode, without and under attack")
    _add_bundle(parser)
    add_share(parser)
    parser.set_defaults(run=run_certify)


def _add_questions(parser: argparse.ArgumentParser) -> None:
    """Add what most runs state: noise, budgets, confidence, and what is to be proved."""
    what = section(parser, AGENT)
    what.add_argument(
        "--returns",
        type=Path,
        metavar="FILE",
        help="precomputed returns: .npy, .npz, .csv, .txt or .json, or - for standard input",
    )
    what.add_argument(
        "--sigma",
        type=parse_sigma,
        metavar="S",
        help="standard deviation of the noise on every observation, in its units, or one per feature as 0.1,0.2, or "
        "per part as camera=0.1 or pos=0.3m (default: the task's)",
    )
    add_action_sigma(parser)
    section(parser, ATTACK).add_argument(
        "--budgets",
        type=parse_budgets,
        metavar="LIST",
        help="attack budgets, in the units of the observations: 0,0.2,0.4 or FIRST:LAST:STEP (default: the paper's for "
        "its tasks, else 0 to 4 sigma); with --action-sigma in those of the actions, with both in standard deviations",
    )
    section(parser, STATISTICS).add_argument(
        "--episodes", type=int, default=10_000, metavar="N", help="number of episodes (default: 10,000)"
    )
    add_confidence(parser)
    stopping = section(parser, STOPPING)
    stopping.add_argument(
        "--require", type=parse_requirement, metavar="MEAN@BUDGET", help="exit with 0 if this is proved, else with 1"
    )
    stopping.add_argument(
        "--max-episodes",
        type=int,
        metavar="N",
        help="sequential run: N episodes at most, fewer once --require or --tol is reached",
    )


def _add_bundle(parser: argparse.ArgumentParser) -> None:
    section(parser, ADVANCED).add_argument(
        "--baseline",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="measure the open-loop baseline of --env, below which a bound is uninformative (default: where that takes "
        "few episodes next to those of the run)",
    )
    section(parser, RUN).add_argument(
        "--bundle",
        action="store_true",
        default=None,
        help="copy the agent's file and its statistics into the run directory, so that 'surefoot verify DIR' needs "
        "nothing else elsewhere",
    )


def _add_advanced(parser: argparse.ArgumentParser) -> None:
    """Add other threats, methods and units."""
    more = section(parser, ADVANCED)
    more.add_argument(
        "--method",
        choices=METHODS,
        metavar="NAME",
        help=f"{', '.join(METHODS[1:])}, or auto: selected on pilot episodes (default: auto)",
    )
    more.add_argument(
        "--threshold-spacing",
        type=float,
        default=1.0,
        metavar="D",
        help="distance between the thresholds of method per-threshold (default: 1)",
    )
    more.add_argument(
        "--tol", type=float, metavar="D", help="sequential run: stop when the lower bound can rise by at most D"
    )
    more.add_argument("--tol-budget", type=float, metavar="B", help="attack budget of --tol (default: sigma)")
    for name, looks, bounded in (
        ("--thresholds", "100,150", "P(return >= x) for each of these x"),
        ("--quantiles", "0.05,0.5", "these quantiles of the return"),
        ("--cvar", "0.05,0.1", "the mean of the lowest 5%% and 10%% of returns"),
    ):
        more.add_argument(name, type=numbers_type(looks), metavar="LIST", help=f"also bound {bounded}, as {looks}")
    more.add_argument("--norm", choices=NORMS, default="l2", help="norm that the budgets bound (default: l2)")
    more.add_argument(
        "--mixed",
        type=parse_mixed,
        action="append",
        metavar="PAIR",
        help="attack budgets on observations and on actions together, as obs=0.2,act=0.1; may be repeated",
    )
    more.add_argument("--per-step", action="store_true", help="budgets bound every single step, not a whole episode")
    more.add_argument(
        "--shared-episodes",
        type=int,
        metavar="M",
        help="budgets bound M episodes together, on average (method binary, else betting)",
    )
    more.add_argument(
        "--certain",
        action="store_true",
        help="with --shared-episodes: the budget holds in every attack, not only on average (method binary, else band)",
    )
    more.add_argument(
        "--draws-per-seed",
        type=int,
        default=1,
        metavar="K",
        help="run each seed of the environment K times, with noise of its own: better bounds where the environment's "
        "luck decides more than the noise; --episodes counts all (default: 1)",
    )
    more.add_argument(
        "--luck",
        metavar="WHAT",
        help="read how lucky each episode begins, before any noise: places in the first observation, as 0,2, or "
        "module:function of it and its info; better bounds where that decides much of the return (default: not read)",
    )
    more.add_argument("--gamma", type=float, metavar="G", help="discount factor of the return (default: none)")
    add_units(parser)


def run_certify(arguments: argparse.Namespace) -> int:
    """Certify a task, an environment, or returns; 1 if what was required is not proved."""
    chosen = one_of(arguments, "certify", "returns")
    if arguments.returns is not None:
        return _certify_returns(arguments)
    if arguments.blocks is not None:
        of_whole_run = ("require", "tol", "tol_budget", "max_episodes", "record", "baseline", "bundle")
        refuse(
            arguments,
            (*of_whole_run, "draws_per_seed", "luck"),
            "--blocks: a share is not certified; use them when all shares are merged",
        )
    # Without noise on actions something must say how much the observations have.
    needed = ("agent", "sigma") if arguments.action_sigma == 0 else ("agent",)
    task = task_of(arguments, *needed, chosen=chosen, gamma=arguments.gamma)
    agent = agent_of(arguments, chosen.agent, task)
    units = units_of(arguments, agent)
    from surefoot.api.setup import noise_of

    asked = noise_of(task, arguments.sigma, arguments.action_sigma)
    query, noise = units.to_raw(_make_query(arguments, task, asked), asked)
    # A share and the whole run get the same, or their setups would differ and the shares could not be merged.
    how = {
        "sigma": noise.features or noise.sigma,
        "action_sigma": noise.action_sigma,
        "query": query,
        **pick(arguments, "seed", "device", "out"),
    }
    if arguments.blocks is not None:
        return _run_share(arguments, task, agent, how)
    from surefoot.api.certify import certify_run

    require = arguments.require
    tol_budget = arguments.tol_budget
    # Budgets are in the units that were given, returns are not.
    if require is not None:
        require = Requirement(require.mean, require.budget * units.raw_unit)
    if tol_budget is not None:
        tol_budget *= units.raw_unit
    stop = stopping_rule(
        noise.budget_sigma,
        require=require,
        tol=arguments.tol,
        tol_budget=tol_budget,
        max_episodes=arguments.max_episodes,
    )
    # --episodes has a default, which must not end a sequential run before its own limit.
    n_episodes = arguments.episodes if stop is None else arguments.max_episodes
    with workers_of(arguments) as workers, progress_bar("running", "episodes", arguments) as report:
        run = certify_run(
            task,
            agent,
            **how,
            **pick(arguments, "draws_per_seed", "luck", "record", "baseline"),
            require=require,
            stop=stop,
            # A pretrained agent, which is named nowhere, is found everywhere.
            bundle=(chosen.agent, arguments.vecnormalize) if arguments.bundle and chosen.agent is not None else None,
            n_episodes=n_episodes,
            workers=workers,
            progress_callback=report,
            command=arguments.command_line,
        )
    notes = [*limits_note(arguments, chosen, task), *_units_note(units)]
    if arguments.seed is not None:
        notes.append(
            f"Seed {arguments.seed} was given; the default follows from agent and setup, so that no agent can know it."
        )
    # A sequential certificate is valid whenever it stops, by Ctrl-C too; so this is no error.
    if (run.certificate.method_selection or {}).get("stopped") == "stopped by hand":
        notes.append("Interrupted: run the same command again to continue.")
    code = _show_run(arguments, run, notes, units)
    if arguments.bundle and run.directory is not None and not arguments.json:
        from surefoot.verification.allowed import verify_command

        setup = read_json(run.directory / "setup.json")
        command = verify_command(run.directory, setup, arguments.command_line, has_bundle=True)
        # On one line, however long: it is there to be copied.
        print(f"Verify it anywhere with: {command}")
    return code


def _make_query(arguments: argparse.Namespace, task: Task | None, noise: Noise) -> Query:
    """Return what is asked of the episodes, in the units in which it was asked."""
    return Query.for_task(
        task,
        noise,
        budgets=arguments.budgets,
        mixed=arguments.mixed or (),
        threat=threat_of(n_shared_episodes=arguments.shared_episodes, **pick(arguments, "per_step", "certain")),
        **pick(arguments, "norm", "confidence", "method", "threshold_spacing"),
        thresholds=arguments.thresholds or (),
        quantiles=arguments.quantiles or (),
        cvars=arguments.cvar or (),
    )


def _run_share(arguments: argparse.Namespace, task: Task, agent: Policy | None, how: dict[str, Any]) -> int:
    """Run some of the blocks; nothing is certified of them."""
    from surefoot.api.certify import certify_share

    with workers_of(arguments) as workers, progress_bar("running", "episodes", arguments) as report:
        folder, n_episodes = certify_share(
            task,
            agent,
            **how,
            share=arguments.blocks,
            n_episodes=arguments.episodes,
            workers=workers,
            progress_callback=report,
        )
    show_share(arguments, folder, n_episodes)
    return 0


def _certify_returns(arguments: argparse.Namespace) -> int:
    """Certify precomputed returns."""
    from surefoot.api.returns import certify_returns
    from surefoot.runs.returns import STANDARD_INPUT, read_returns

    running = ("workers", "ray", "device", "blocks", "seed", "gamma", "episodes", "tol", "tol_budget", "max_episodes")
    about_agents = ("agent", "action_sigma", "mixed", "units", "draws_per_seed", "luck", "baseline", "record", "bundle")
    refuse(arguments, (*running, *about_agents, *DECLARED, *OF_ENVIRONMENT), "--returns: no episodes are run")
    episodes, taken = read_returns(arguments.returns, arguments.sigma, arguments.floor, arguments.ceiling)
    run = certify_returns(
        episodes,
        _make_query(arguments, None, Noise.of(episodes.sigma)),
        require=arguments.require,
        out=arguments.out,
        source=taken,
        command=arguments.command_line,
    )
    source = "standard input" if arguments.returns == STANDARD_INPUT else arguments.returns
    return _show_run(arguments, run, [f"Returns: {taken} ({source})"])


def _show_run(arguments: argparse.Namespace, run: CertifiedRun, notes: list[str], units: Units | None = None) -> int:
    """Print the certificate, in the units in which it was asked for, and what belongs to it; return the exit code."""
    # So that a script or a CI job can depend on what is proved.
    code = 0 if run.proved else 1
    content = run.certificate.to_json()
    mean = budget = None
    if run.require is not None:
        mean, budget = run.require
        content["require"] = {"mean": mean, "budget": budget, "proved": run.proved}
    if arguments.json:
        print_json(content)
        return code
    baseline = None if run.task is None else run.task.baseline
    certificate = run.certificate
    if units is not None and units.scales is not None:
        certificate = in_units(certificate, units.raw_unit)
        if arguments.require is not None:
            budget = arguments.require.budget
    print(describe(certificate, baseline, budget))
    if run.require is not None:
        result = "Proved" if run.proved else "NOT proved"
        print(f"\n{result}: a mean of {mean:g} at budget {budget:g}.")
    for line in notes:
        say(line)
    if run.directory is not None:
        print(f"Report: {run.directory / REPORT_FILE}")
    return code


def _units_note(units: Units) -> list[str]:
    """Return a line on what normalized units are, where sigma and budgets were given in them."""
    if units.scales is None:
        return []
    return [
        "Normalized units are what the agent's VecNormalize divides each feature by. The files have those of the "
        f"environment: budgets are {units.raw_unit:.6g} times the above there, and count by the feature with the least "
        "sigma (setup.json has all of them)."
    ]
