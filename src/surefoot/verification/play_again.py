"""Blocks of a run, rerun from its setup and the agent's weights, and compared bit for bit."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from surefoot.agents.files import list_agents
from surefoot.agents.policies import Policy
from surefoot.agents.resolve import needs_spaces, resolve
from surefoot.episodes import Noise
from surefoot.errors import InputError, NotAllowedError
from surefoot.files import versions
from surefoot.play.environments import make_task
from surefoot.play.envs.source import registered_steps
from surefoot.play.plan import Plan
from surefoot.play.processor import processor
from surefoot.play.rollout import run_blocks
from surefoot.play.task import Task
from surefoot.play.tasks import TASKS, discounted, get_task
from surefoot.play.workers import Processes, Workers
from surefoot.verification.recompute.run_files import Raw, differences

Report = Callable[[int, int], None]
# An environment, its wrappers and the modules that register it, which may be imported and called.
Code = tuple[str, tuple[str, ...], tuple[str, ...]]


class CannotReplayError(Exception):
    """Something that the rerun needs is missing."""


class ForgedError(Exception):
    """The setup or the weights are not those that were certified."""


def plan_of(
    raw: Raw,
    agent: str | None,
    *,
    allowed: Code | None = None,
    allow_pickle: bool = False,
    vecnormalize: str | None = None,
) -> Plan:
    """Return the plan of the run from its setup, after checking that the plan has exactly this setup."""
    setup = raw.setup
    if not isinstance(setup.get("block"), int) or not setup.get("agent_sha256"):
        raise CannotReplayError(
            "the setup does not say how the episodes were run (precomputed returns, or a function as agent)"
        )
    try:
        task = _task(setup, allowed)
        policy = _policy(raw, task, agent, allow_pickle, vecnormalize)
        device = str(setup["device"])
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise CannotReplayError("the episodes were run on a CUDA device, and torch finds none here")
        noise, count, seed = Noise.of(setup.get("features", setup["sigma"])), int(setup["planned"]), int(setup["seed"])
        if setup.get("discount") is not None:
            known = str(setup.get("task")) in TASKS
            limits = None if known else (float(setup["floor"]), setup["ceiling"])
            task = discounted(task, float(setup["discount"]), limits=limits)
        steps = "rewards" in setup
        if steps and str(setup.get("task")) not in TASKS:
            low, high = (float(one) for one in setup["rewards"])
            task = replace(task, scoring=replace(task.scoring, reward_range=(low, high)))
        plan = Plan(
            task=task,
            policy=policy,
            noise=noise,
            n_episodes=count,
            seed=seed,
            device=device,
            per_step=steps,
        )
    except (InputError, KeyError, TypeError, ValueError, ZeroDivisionError, RuntimeError) as error:
        raise ForgedError(f"the setup cannot be run: {error}") from error
    # The plan has the task's own blocks and the seed stream of certificates: choosing them would be choosing
    # among many runs. The task's method does not affect the episodes, and older data of Freeway and Pong name another.
    wrong = differences(_without_method(setup), _without_method(plan.setup()))
    if wrong:
        raise ForgedError("the setup is not that of its task and agent: " + "; ".join(wrong))
    return plan


def other_limit(plan: Plan) -> str | None:
    """Return a warning where episodes of an environment are cut off after another number of steps than usual."""
    known = None if plan.task.name in TASKS else registered_steps(plan.task.environment)
    steps = plan.task.scoring.max_steps
    if known is None or known == steps:
        return None
    return f"that cutting episodes off after {steps} steps is meant: {plan.task.environment} has {known}"


def replay(
    raw: Raw, plan: Plan, blocks: list[int], workers: int | Workers, progress: Report | None = None
) -> list[str]:
    """Rerun the blocks; return what differs from the episode data."""
    wrong, where = [], processor(plan.device)
    if plan.gpu_share and isinstance(workers, int | Processes):
        workers = 1  # processes would only share the GPU
    for done, (index, played) in enumerate(run_blocks(plan, blocks, workers), start=1):
        begin = index * plan.block_size
        fresh = {"returns": played.returns, "lengths": played.lengths}
        there = {name: raw.arrays.get(name) for name in fresh}
        found = [line for name in fresh for line in _compared(index, name, begin, fresh[name], there[name])]
        if played.reward_sums is not None:
            found += _compared(index, "gains", index, played.reward_sums, raw.arrays.get("gains"))
        wrong += [line + _other_processor(raw.processor_of(index), where) for line in found]
        if progress is not None:
            progress(done, len(blocks))
    return sorted(wrong) + (_other_versions(raw) if wrong else [])


def _compared(index: int, name: str, begin: int, played: Any, there: Any) -> list[str]:
    recorded = None if there is None else there[begin : begin + len(played)]
    if recorded is None or recorded.shape != played.shape or recorded.dtype != played.dtype:
        return [f"block {index}: the episode data have no matching {name}"]
    # As bytes: a difference in the last bit, or of 0 and -0, is a difference.
    bits = (array.view(np.uint64) for array in (np.ascontiguousarray(recorded), np.ascontiguousarray(played)))
    differing = np.flatnonzero(np.not_equal(*bits).reshape(len(played), -1).any(axis=1))
    if differing.size == 0:
        return []
    first = int(differing[0])
    if played.ndim > 1:
        return [f"block {index}: the sums of the {name} differ"]
    return [
        f"block {index}: {differing.size} of {len(played)} {name} differ, first episode {begin + first} "
        f"(recorded {recorded[first]}, rerun {played[first]})"
    ]


def _other_processor(then: str | None, now: str) -> str:
    return "" if then in (None, now) else f"; it was run on {then} and is now rerun on {now}, which may give other bits"


def _without_method(setup: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in setup.items() if key != "method"}


def _task(setup: dict[str, Any], allowed: Code | None) -> Task:
    name = str(setup.get("task"))
    if name in TASKS:
        return get_task(name)
    wanted = str(setup.get("environment"))
    wrappers, modules = (tuple(map(str, setup.get(name, ()))) for name in ("wrappers", "env_modules"))
    if (":" in wanted or wrappers or modules) and allowed != (wanted, wrappers, modules):
        # Modules are imported and wrappers called: a certificate must not choose what is executed here.
        words = ["--env", wanted, *(word for one in wrappers for word in ("--wrapper", one))]
        words += [word for one in modules for word in ("--env-module", one)]
        raise CannotReplayError(
            f"the environment {wanted!r} would import a module; use {shlex.join(words)} to allow it"
        )
    task = make_task(
        wanted,
        floor=float(setup["floor"]),
        ceiling=setup["ceiling"],
        n_stack=1,
        max_steps=int(setup["limit"]),
        env_kwargs=dict(setup.get("env_kwargs", {})),
        wrappers=wrappers,
        env_modules=modules,
    )
    # No ceiling is no ceiling, even where one is known today.
    return replace(task, scoring=replace(task.scoring, ceiling=setup["ceiling"]))


def _policy(raw: Raw, task: Task, agent: str | None, allow_pickle: bool, vecnormalize: str | None) -> Policy:
    name, expected = str(raw.setup.get("agent")), raw.setup["agent_sha256"]
    if agent is None and name not in list_agents():
        raise CannotReplayError(f"the agent {name!r} is not a pretrained agent; give its file with --agent")
    wanted = agent or name
    try:
        policy = resolve(
            wanted,
            task.spaces,
            n_stack=int(raw.setup["frames"]) if needs_spaces(wanted) else None,
            stochastic=raw.setup.get("stochastic") is True,
            pixel_max=None if raw.setup.get("pixel_max") is None else float(raw.setup["pixel_max"]),
            allow_pickle=allow_pickle,
            vecnormalize=vecnormalize,
        )
    except NotAllowedError as error:
        raise CannotReplayError(str(error)) from error
    if policy.sha256 != expected:
        raise ForgedError(
            f"the weights of {agent or name} have hash {policy.sha256}, the episodes were run with {expected}"
        )
    return policy


def _other_versions(raw: Raw) -> list[str]:
    before, now = (raw.run or {}).get("versions"), versions()
    if not isinstance(before, dict) or before == now:
        return []
    changed = [f"{key} {before.get(key)} then, {now.get(key)} now" for key in now if before.get(key) != now.get(key)]
    return [f"other versions may give other bits: {', '.join(changed)}"]
