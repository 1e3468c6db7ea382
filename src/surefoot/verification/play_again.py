"""Blocks of a run, rerun from its setup and the agent's weights, and compared bit for bit."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surefoot.agents.files import list_agents
from surefoot.agents.policies import Policy
from surefoot.agents.resolve import as_policy, needs_spaces
from surefoot.compute import processor_kind
from surefoot.errors import InputError, NotAllowedError
from surefoot.noise import Noise
from surefoot.play.environments import inspect
from surefoot.play.envs.source import Source, registered_steps
from surefoot.play.plan import Plan, own_seed
from surefoot.play.rollout import run_blocks
from surefoot.play.streams import Purpose
from surefoot.play.task import Task
from surefoot.play.tasks import TASKS, discounted, get_task
from surefoot.play.workers import DeadWorkerError, Processes, Workers
from surefoot.provenance import versions
from surefoot.verification.recompute.run_files import Raw, differences

Report = Callable[[int, int], None]
# An environment, its wrappers and the modules that register it, which may be imported and called.
Code = tuple[str, tuple[str, ...], tuple[str, ...]]
Kwargs = Mapping[str, Any]


class CannotReplayError(Exception):
    """Something that the rerun needs is missing."""


class ForgedError(Exception):
    """The setup or the weights are not those that were certified."""


def plan_of(
    raw: Raw,
    agent: object,
    *,
    allowed: Code | None = None,
    env_kwargs: Kwargs | None = None,
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
        task = _task(setup, allowed, env_kwargs)
        policy = _policy(raw, task, agent, allow_pickle, vecnormalize)
        device = setup["device"]
        if device not in ("cpu", "cuda"):
            raise ForgedError(f"the device must be cpu or cuda, got {device!r:.60}")
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
    except DeadWorkerError:  # which says something about the environment, not about the setup
        raise
    except (InputError, KeyError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
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


def origin_of_seed(plan: Plan) -> str:
    """Return in words where the seed of a run comes from."""
    if plan.seed == own_seed(plan):
        return "derived from the hash of agent and setup: the agent cannot contain it"
    return f"{plan.seed}, chosen by the author, so that agent and simulator may have known it: see the fresh episodes"


def is_on_missing_gpu(plan: Plan) -> bool:
    """Return whether the episodes were run on a GPU, whose bits only another GPU repeats, and there is none here."""
    return torch.device(plan.device).type == "cuda" and not torch.cuda.is_available()


def is_here(workers: int | Workers) -> bool:
    """Return whether workers are processes of this machine; others are trusted only as far as they are checked."""
    return isinstance(workers, int | Processes)


def run_fresh(
    plan: Plan, n_episodes: int, workers: int | Workers, progress: Report | None = None
) -> NDArray[np.float64]:
    """Return the returns of episodes that nobody could foresee: another seed, seed stream, and size of blocks."""
    if is_on_missing_gpu(plan):
        plan = replace(plan, device="cpu")  # other bits, but the same distribution
    few = max(1, -(-plan.block_envs // 2))
    fresh = replace(
        plan,
        seed=secrets.randbits(127),
        purpose=(Purpose.VERIFICATION,),
        n_episodes=n_episodes,
        n_envs=few + secrets.randbelow(plan.block_envs - few + 1),
        per_step=False,
    )
    if fresh.gpu_share:
        workers = 1  # processes would only share the GPU
    blocks = []
    for done, (index, played) in enumerate(run_blocks(fresh, range(fresh.n_blocks), workers), start=1):
        blocks.append((index, played.returns))
        if progress is not None:
            progress(done, fresh.n_blocks)
    return np.concatenate([returns for _, returns in sorted(blocks, key=lambda one: one[0])])


def replay(
    raw: Raw, plan: Plan, blocks: list[int], workers: int | Workers, progress: Report | None = None
) -> list[str]:
    """Rerun the blocks in this order; return what differs from the episode data.

    They are rerun in new processes, in which the environment has run nothing before: what an environment or an agent
    keeps from one block to the next then shows. Only on a GPU a task of ours, which keeps nothing, runs in this one.
    """
    wrong, where = [], processor_kind(plan.device)
    if isinstance(workers, int | Processes):
        n = workers if isinstance(workers, int) else workers.n
        own = bool(plan.gpu_share) and plan.task.name in TASKS
        # Several processes would only share the GPU.
        workers = Processes(1 if plan.gpu_share else n, isolated=not own)
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


def _task(setup: dict[str, Any], allowed: Code | None, env_kwargs: Kwargs | None) -> Task:
    name = str(setup.get("task"))
    if name in TASKS:
        return get_task(name)
    wanted = str(setup.get("environment"))
    wrappers, modules = (tuple(map(str, setup.get(name, ()))) for name in ("wrappers", "env_modules"))
    kwargs = dict(setup.get("env_kwargs", {}))
    words = ["--env", wanted, *(word for one in wrappers for word in ("--wrapper", one))]
    words += [word for one in modules for word in ("--env-module", one)]
    words += ["--env-kwargs", json.dumps(kwargs)] if kwargs else []
    if (":" in wanted or wrappers or modules) and allowed != (wanted, wrappers, modules):
        # Modules are imported and wrappers called: a certificate must not choose what is executed here.
        raise CannotReplayError(
            f"the environment {wanted!r} would import a module; use {shlex.join(words)} to allow it"
        )
    # Nor which files are opened: numbers name none.
    harmless = all(value is None or isinstance(value, bool | int | float) for value in kwargs.values())
    if not (harmless and env_kwargs is None) and _written(kwargs) != _written(env_kwargs or {}):
        raise CannotReplayError(
            f"the arguments of the environment {wanted!r} may name files; use {shlex.join(words)} to allow it"
        )
    source = Source(
        maker=wanted,
        kwargs=kwargs,
        wrappers=wrappers,
        modules=modules,
        max_steps=int(setup["limit"]),
    )
    rewards = setup.get("rewards")
    facts = inspect(source, reward_range=None if rewards is None else (float(rewards[0]), float(rewards[1])))
    gamma = None if setup.get("discount") is None else float(setup["discount"])
    task = facts.task(floor=float(setup["floor"]), ceiling=setup["ceiling"], gamma=gamma)
    # No ceiling is no ceiling, even where one is known today.
    return replace(task, scoring=replace(task.scoring, ceiling=setup["ceiling"]))


def _written(kwargs: Kwargs) -> str:
    return json.dumps(dict(kwargs), sort_keys=True, default=repr)


def _policy(raw: Raw, task: Task, agent: object, allow_pickle: bool, vecnormalize: str | None) -> Policy:
    name, expected = str(raw.setup.get("agent")), raw.setup["agent_sha256"]
    if agent is None and name not in list_agents():
        raise CannotReplayError(f"the agent {name!r} is not a pretrained agent; give its file with --agent")
    wanted = name if agent is None else agent
    try:
        policy = as_policy(
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
        given = wanted if isinstance(wanted, str) else policy.name
        raise ForgedError(f"the weights of {given} have hash {policy.sha256}, the episodes were run with {expected}")
    return policy


def _other_versions(raw: Raw) -> list[str]:
    before, now = (raw.run or {}).get("versions"), versions()
    if not isinstance(before, dict) or before == now:
        return []
    changed = [f"{key} {before.get(key)} then, {now.get(key)} now" for key in now if before.get(key) != now.get(key)]
    return [f"other versions may give other bits: {', '.join(changed)}"]
