"""Blocks of a run, rerun from its setup and the agent's weights and compared bit for bit, and fresh episodes of it."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from surefoot.agents.callables import CheckedOutput
from surefoot.agents.files import list_agents
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.resolve import as_policy, needs_spaces
from surefoot.compute import processor_kind
from surefoot.episodes import Episodes
from surefoot.errors import InputError, NotAllowedError
from surefoot.noise import Noise
from surefoot.play.environments import inspect
from surefoot.play.envs.source import Source, registered_steps
from surefoot.play.plan import Plan
from surefoot.play.reset_luck import imports_function
from surefoot.play.rollout import Progress, run_blocks
from surefoot.play.streams import Purpose
from surefoot.play.task import Task
from surefoot.play.tasks import TASKS, discounted, get_task
from surefoot.play.workers import DeadWorkerError, Processes, Workers
from surefoot.provenance import versions
from surefoot.verification.allowed import imports_code, needed_options
from surefoot.verification.recompute.run_files import Raw

# Fresh episodes of an agent of another maker that are run one at a time, as it is deployed.
FEWEST_ALONE = 16
MOST_ALONE = 64
STEPS_ALONE = 20_000  # of all of them together, if so many are enough for the fewest


class CannotRerunError(Exception):
    """Something that the rerun needs is missing."""


class ForgedError(Exception):
    """The setup or the weights are not those that were certified."""


@dataclass(frozen=True, kw_only=True)
class RerunOptions:
    """What the caller gave and allowed: a certificate must not choose what is executed or opened here."""

    # As ``verify`` has them: how many blocks to rerun, how many fresh episodes to run, and what fixes which blocks.
    blocks: int | Literal["enough"] | None = "enough"
    fresh: int | None = None
    seed: int | None = None
    agent: object = None  # the agent that was certified, or None for a pretrained one
    environment: str | None = None  # the environment's ID or module:factory, where its name may import a module
    wrappers: tuple[str, ...] = ()  # the wrappers around it that may be called
    env_modules: tuple[str, ...] = ()  # the modules that register it and may be imported
    success: str | None = None  # the condition that is the return, which may be imported and called
    luck: str | None = None  # the function of what was known at reset, which may be imported and called
    env_kwargs: Mapping[str, Any] | None = None  # what it may be made with, where that is more than numbers
    allow_pickle: bool = False  # whether the agent's file may be unpickled
    vecnormalize: str | None = None  # statistics of the agent's observations
    workers: int | Workers = 1  # number of processes, or other machines
    progress: Progress | None = None  # called with the number of finished blocks and of all


def load_plan(raw: Raw, options: RerunOptions) -> Plan:
    """Return the plan of a run from its setup, with the task's own blocks and the seed stream of certificates.

    Raises:
        CannotRerunError: If something is missing, or was not allowed.
        ForgedError: If no run has this setup.
    """
    setup = raw.setup
    if not isinstance(setup.get("block_size"), int) or not setup.get("agent_sha256"):
        raise CannotRerunError(
            "the setup does not say how the episodes were run (precomputed returns, or a function as agent)"
        )
    try:
        task = _task_of(setup, options)
        return Plan(
            task=task,
            policy=_load_policy(setup, task, options),
            noise=Noise.of(setup.get("sigma_per_feature", setup["sigma"]), setup.get("action_sigma", 0.0)),
            n_episodes=int(setup["n_planned"]),
            seed=int(setup["seed"]),
            device=_device_of(setup),
            per_step="reward_range" in setup,
            draws_per_seed=setup.get("draws_per_seed", 1),
            luck=_luck_of(setup, options),
        )
    except DeadWorkerError:
        # It says something about the environment, not about the setup.
        raise
    except (InputError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise ForgedError(f"the setup cannot be run: {error}") from error


def on_same_seeds(plans: Sequence[Plan]) -> list[Plan]:
    """Return the plans of agents that are compared: each row runs one episode of a block, as many rows for all."""
    n_envs = min(plan.block_envs for plan in plans)
    return [replace(plan, n_envs=n_envs, episodes_per_env=1) for plan in plans]


def _device_of(setup: Mapping[str, Any]) -> str:
    device = setup["device"]
    if device not in ("cpu", "cuda"):
        raise ForgedError(f"the device must be cpu or cuda, got {device!r:.60}")
    return str(device)


def _task_of(setup: Mapping[str, Any], options: RerunOptions) -> Task:
    """Return the task, with the discount and the range of a reward that the setup states."""
    name = str(setup.get("task"))
    is_own = name in TASKS
    task = get_task(name) if is_own else _environment_task(setup, options)
    if setup.get("gamma") is not None:
        limits = None if is_own else (float(setup["floor"]), setup["ceiling"])
        task = discounted(task, float(setup["gamma"]), limits=limits)
    if "reward_range" in setup and not is_own:
        task = replace(task, scoring=replace(task.scoring, reward_range=_reward_range(setup)))
    return task


def _luck_of(setup: Mapping[str, Any], options: RerunOptions) -> str | None:
    """Return what is read at reset, if the caller allowed the function that reads it."""
    luck = setup.get("luck")
    if luck is None:
        return None
    luck = str(luck)
    if imports_function(luck) and options.luck != luck:
        raise CannotRerunError(f"luck would import a function; use --luck {shlex.quote(luck)} to allow it")
    return luck


def _reward_range(setup: Mapping[str, Any]) -> tuple[float, float] | None:
    if setup.get("reward_range") is None:
        return None
    low, high = setup["reward_range"]
    return float(low), float(high)


def _environment_task(setup: Mapping[str, Any], options: RerunOptions) -> Task:
    """Return the task of an environment, if the caller allowed what making it imports, calls and opens."""
    environment = str(setup.get("environment"))
    wrappers = tuple(map(str, setup.get("wrappers", ())))
    modules = tuple(map(str, setup.get("env_modules", ())))
    success = None if setup.get("success") is None else str(setup["success"])
    kwargs = dict(setup.get("env_kwargs", {}))
    needed = shlex.join(needed_options(environment, wrappers, modules, success, kwargs))
    recorded = (environment, wrappers, modules, success)
    allowed = (options.environment, options.wrappers, options.env_modules, options.success)
    if imports_code(*recorded) and allowed != recorded:
        # Modules are imported and wrappers called: a certificate must not choose what is executed here.
        raise CannotRerunError(f"the environment {environment!r} would import a module; use {needed} to allow it")
    # Nor which files are opened: numbers name none.
    harmless = all(value is None or isinstance(value, bool | int | float) for value in kwargs.values())
    if not (harmless and options.env_kwargs is None) and _as_sorted_text(kwargs) != _as_sorted_text(
        options.env_kwargs or {}
    ):
        raise CannotRerunError(
            f"the arguments of the environment {environment!r} may name files; use {needed} to allow it"
        )
    source = Source(
        maker=environment,
        kwargs=kwargs,
        wrappers=wrappers,
        modules=modules,
        max_steps=int(setup["max_steps"]),
        success=success,
    )
    facts = inspect(source, reward_range=_reward_range(setup))
    gamma = None if setup.get("gamma") is None else float(setup["gamma"])
    task = facts.task(floor=float(setup["floor"]), ceiling=setup["ceiling"], gamma=gamma)
    if "features" in setup or "step_seconds" in setup:
        seconds = setup.get("step_seconds")
        task = replace(
            facts.with_units(task, _units_of(setup, facts.spaces), None if seconds is None else float(seconds)),
            step_seconds=seconds,
        )
    # No ceiling is no ceiling, even where one is known today.
    return replace(task, scoring=replace(task.scoring, ceiling=setup["ceiling"]))


def _units_of(setup: Mapping[str, Any], spaces: Spaces) -> str | dict[str, str] | None:
    """Return the units that a setup names, as ``make_task`` takes them."""
    if "features" not in setup:
        return None
    units = {str(name): unit for name, _, unit in setup["features"]}
    if spaces.parts is None:
        return units.get("value")
    return units


def describe_units(task: Task) -> str | None:
    """Return what a setup says of units and durations, in which sentences and reports give budgets."""
    stated = [f"{name} is in {unit}" for name, _, unit in task.features if unit]
    if task.step_seconds is not None:
        stated.append(f"a step takes {task.step_seconds:g} s")
    if not stated:
        return None
    return f"that {', '.join(stated)}, as the setup says"


def runs_code(plan: Plan) -> bool:
    """Return whether the environment of a plan is, or is changed by, code that the user allowed to be imported."""
    made = plan.task.made_with
    return imports_code(
        plan.task.environment, made.get("wrappers", ()), made.get("env_modules", ()), made.get("success")
    )


def _as_sorted_text(kwargs: Mapping[str, Any]) -> str:
    return json.dumps(dict(kwargs), sort_keys=True, default=repr)


def _load_policy(setup: Mapping[str, Any], task: Task, options: RerunOptions) -> Policy:
    name = str(setup.get("agent"))
    if options.agent is None and name not in list_agents():
        raise CannotRerunError(f"the agent {name!r} is not a pretrained agent; give its file, or code, with --agent")
    wanted = name if options.agent is None else options.agent
    pixel_max = setup.get("pixel_max")
    try:
        policy = as_policy(
            wanted,
            task.spaces,
            n_stack=int(setup["n_stack"]) if needs_spaces(wanted) else None,
            stochastic=setup.get("stochastic") is True,
            pixel_max=None if pixel_max is None else float(pixel_max),
            allow_pickle=options.allow_pickle,
            vecnormalize=options.vecnormalize,
        )
    except NotAllowedError as error:
        raise CannotRerunError(str(error)) from error
    expected = setup["agent_sha256"]
    if policy.sha256 != expected:
        given = wanted if isinstance(wanted, str) else policy.name
        raise ForgedError(f"the weights of {given} have hash {policy.sha256}, the episodes were run with {expected}")
    return policy


def unusual_limit(plan: Plan) -> str | None:
    """Return a warning where episodes of an environment are cut off after another number of steps than usual."""
    if plan.task.name in TASKS:
        return None
    usual = registered_steps(plan.task.environment)
    max_steps = plan.task.scoring.max_steps
    if usual is None or usual == max_steps:
        return None
    return f"that cutting episodes off after {max_steps} steps is meant: {plan.task.environment} has {usual}"


def describe_seed(plan: Plan, derived: int) -> str:
    """Return in words where the seed of a run comes from; ``derived`` follows from agents and setups."""
    if plan.seed == derived or (plan.policy.stochastic and plan.seed == (derived + 1) % 2**128):
        return "derived from the hash of agent and setup: the agent cannot contain it"
    return f"{plan.seed}, chosen by the author, so that agent and simulator may have known it: see the fresh episodes"


def is_on_missing_gpu(plan: Plan) -> bool:
    """Return whether the episodes were run on a GPU, whose bits only another GPU repeats, and there is none here."""
    return torch.device(plan.device).type == "cuda" and not torch.cuda.is_available()


def is_this_machine(workers: int | Workers) -> bool:
    """Return whether workers are processes of this machine; others are trusted only as far as they are checked."""
    return isinstance(workers, int | Processes)


def count_alone(plan: Plan, n_episodes: int) -> int:
    """Return how many of the fresh episodes are run one at a time.

    A deployed agent has one row, and checks of single rows can be foreseen, or say nothing where it draws random
    numbers. A network of ours answers each row by itself however it is asked. A vector simulator may let its rows share
    a fate, or depend on how many they are. So may the copies of an environment that is code: a short run has one block,
    whose fate no other episode of it shows.
    """
    knows_rows = any(isinstance(part, CheckedOutput) for part in plan.policy.network.modules())
    if not knows_rows and not plan.task.backend.fixed_rows and not runs_code(plan):
        return 0
    affordable = STEPS_ALONE // plan.task.scoring.max_steps
    return min(n_episodes, MOST_ALONE, max(FEWEST_ALONE, affordable))


def run_fresh(
    plan: Plan, n_episodes: int, workers: int | Workers, progress: Progress | None = None
) -> dict[str, NDArray[Any]]:
    """Return the arrays of episodes that nobody could foresee: another seed, seed stream, and size of blocks.

    Those that are run one at a time come first, so that bets on them are not diluted by the others. Of several draws
    per seed there are whole seeds, as many as ``n_episodes`` has, and at least one.

    Their noise is that of a deployed agent. An agent may look at the last digits of what it sees, which the noise of
    recorded episodes does not reach; and code that is allowed to run could read in the process what comes of a seed.
    """
    if is_on_missing_gpu(plan):
        # Other bits, but the same distribution.
        plan = replace(plan, device="cpu")
    fewest = max(1, -(-plan.block_envs // 2))
    n_draws = plan.draws_per_seed
    n_seeds = max(1, n_episodes // n_draws)
    n_alone = min(n_seeds, -(-count_alone(plan, n_episodes) // n_draws))
    n_envs = fewest + secrets.randbelow(plan.block_envs - fewest + 1)
    # Draws have streams of their own, and luck those of certificates; the seed is new in any case.
    is_usual = n_draws == 1 and plan.luck is None
    purpose = (Purpose.VERIFICATION,) if is_usual else ()
    parts = []
    for count, width in ((n_alone, 1), (n_seeds - n_alone, n_envs)):
        if count:
            parts.append(
                replace(
                    plan,
                    seed=secrets.randbits(127),
                    purpose=purpose,
                    n_episodes=count * n_draws,
                    n_envs=width,
                    deployed_noise=True,
                )
            )
    if plan.gpu_share:
        # Several processes would only share the GPU.
        workers = 1
    n_blocks = sum(part.n_blocks for part in parts)
    in_order = []
    n_done = 0
    for part in parts:
        blocks = {}
        for index, episodes in run_blocks(part, range(part.n_blocks), workers):
            blocks[index] = episodes
            n_done += 1
            if progress is not None:
                progress(n_done, n_blocks)
        in_order += [blocks[index] for index in sorted(blocks)]
    kept = ["returns"]
    if plan.per_step:
        kept += ["lengths", "reward_values", "reward_repeats"]
    if plan.luck is not None:
        kept.append("luck")
    return {name: np.concatenate([getattr(episodes, name) for episodes in in_order]) for name in kept}


def rerun_blocks(
    raw: Raw, plan: Plan, blocks: list[int], workers: int | Workers, progress: Progress | None = None
) -> tuple[list[str], list[str]]:
    """Rerun the blocks in this order; return what differs from the episode data, and what of it proves nothing.

    Another kind of processor, or another version of a library, may give other last bits, and a long episode makes
    another episode of these. So a difference there is no sign of a forgery: it is in the second list. Whoever forges
    returns may name another processor; the record is not verified then, either.

    They are rerun in new processes, in which the environment has run nothing before: what an environment or an agent
    keeps from one block to the next then shows. Only on a GPU a task of ours, which keeps nothing, runs in this one.
    Draws of one seed are rerun from the last to the first: what an environment keeps of a seed that it has met before
    would make them alike, as if luck and not noise decided.
    """
    if isinstance(workers, int | Processes):
        n_processes = workers if isinstance(workers, int) else workers.n
        if plan.gpu_share:
            # Several processes would only share the GPU.
            n_processes = 1
        keeps_nothing = bool(plan.gpu_share) and plan.task.name in TASKS
        workers = Processes(n_processes, isolated=not keeps_nothing)
    here = processor_kind(plan.device)
    other_versions = _other_versions(raw)
    wrong = []
    ambiguous = []
    for n_done, (index, episodes) in enumerate(run_blocks(plan, blocks, workers, backwards=True), start=1):
        first = index * plan.block_size
        found = _compare_block(index, "returns", first, episodes.returns, raw.arrays.get("returns"))
        found += _compare_block(index, "lengths", first, episodes.lengths, raw.arrays.get("lengths"))
        for name in ("budget_used", "luck"):
            again = getattr(episodes, name)
            if again is not None:
                found += _compare_block(index, name, first, again, raw.arrays.get(name))
        if episodes.reward_values is not None:
            found += _compare_rewards(index, first, episodes, raw)
        there = raw.processor_of(index)
        if there not in (None, here):
            ambiguous += [f"{line}; it was run on {there} and is now rerun on {here}" for line in found]
        elif other_versions:
            ambiguous += [f"{line}; it was run with {', '.join(other_versions)}" for line in found]
        else:
            wrong += found
        if progress is not None:
            progress(n_done, len(blocks))
    return sorted(wrong), sorted(ambiguous)


def _compare_block(index: int, name: str, first: int, rerun: Any, recorded: Any) -> list[str]:
    """Return where an array of a rerun block differs from the episode data, in which the block begins at ``first``."""
    if recorded is not None:
        recorded = recorded[first : first + len(rerun)]
    if recorded is None or recorded.shape != rerun.shape or recorded.dtype != rerun.dtype:
        return [f"block {index}: the episode data have no matching {name}"]
    # As bits: a difference in the last one, or of 0 and -0, is a difference.
    recorded_bits = np.ascontiguousarray(recorded).view(np.uint64)
    rerun_bits = np.ascontiguousarray(rerun).view(np.uint64)
    differing = np.flatnonzero((recorded_bits != rerun_bits).reshape(len(rerun), -1).any(axis=1))
    if differing.size == 0:
        return []
    place = int(differing[0])
    return [
        f"block {index}: {differing.size} of {len(rerun)} {name} differ, first episode {first + place} (recorded "
        f"{recorded[place]}, rerun {rerun[place]})"
    ]


def _compare_rewards(index: int, first: int, rerun: Episodes, raw: Raw) -> list[str]:
    """Return whether the rewards of a rerun block, whose first episode this is, differ from the episode data."""
    repeats = raw.arrays.get("reward_repeats")
    lengths = raw.arrays.get("lengths")
    if repeats is None or lengths is None:
        return [f"block {index}: the episode data have no rewards of each step"]
    # Its first run begins after all steps of the episodes before.
    begin = int(np.searchsorted(np.cumsum(repeats), lengths[:first].sum(), side="right"))
    for name, again in (("reward_values", rerun.reward_values), ("reward_repeats", rerun.reward_repeats)):
        if _compare_block(index, name, begin, again, raw.arrays.get(name)):
            return [f"block {index}: the rewards of its steps differ"]
    return []


def _other_versions(raw: Raw) -> list[str]:
    """Return the versions of libraries that a run names, where they are not those of now."""
    before = (raw.run or {}).get("versions")
    if not isinstance(before, dict):
        return []
    changed = []
    for name, version in versions().items():
        if before.get(name) != version:
            changed.append(f"{name} {before.get(name)} (here {version})")
    return changed
