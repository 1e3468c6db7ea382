"""Blocks of a run played once more, from its setup and the agent's weights, and compared bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from surefoot.agents.files import list_agents
from surefoot.agents.policies import Policy
from surefoot.agents.resolve import resolve
from surefoot.episodes import Episodes, Noise
from surefoot.errors import InputError
from surefoot.files import versions
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.tasks import TASKS, Task, discounted, get_task, make_task
from surefoot.play.workers import spread
from surefoot.verification.recompute.run_files import Raw, differences

Report = Callable[[int, int], None]


class CannotReplayError(Exception):
    """Something that playing needs is not here."""


class ForgedError(Exception):
    """What is here is not what was certified."""


def plan_of(raw: Raw, agent: str | None, *, environment: str | None = None, trust_pickle: bool = False) -> Plan:
    """Return the plan that the record says it was played by, having checked that it is that plan."""
    setup = raw.setup
    if not isinstance(setup.get("block"), int) or not setup.get("agent_sha256"):
        raise CannotReplayError("the record does not say how it was played (returns from elsewhere, or a function)")
    try:
        task = _task(setup, environment)
        policy = _policy(raw, task, agent, trust_pickle)
        device, slots, block = str(setup["device"]), int(setup["slots"]), int(setup["block"])
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise CannotReplayError("it was played on a CUDA device, and torch sees none here")
        noise, count, seed = Noise.of(setup.get("features", setup["sigma"])), int(setup["planned"]), int(setup["seed"])
        stream = tuple(int(part) for part in setup["stream"])
        if setup.get("discount") is not None:
            known = str(setup.get("task")) in TASKS
            limits = None if known else (float(setup["floor"]), setup["ceiling"])
            task = discounted(task, float(setup["discount"]), limits=limits)
        steps = "rewards" in setup
        if steps and task.scoring.reward_range is None:
            low, high = (float(one) for one in setup["rewards"])
            task = replace(task, scoring=replace(task.scoring, reward_range=(low, high)))
        plan = Plan(
            task=task,
            policy=policy,
            noise=noise,
            n_episodes=count,
            seed=seed,
            device=device,
            n_envs=slots,
            episodes_per_env=block // slots,
            purpose=stream,
            per_step=steps,
        )
    except (InputError, KeyError, TypeError, ValueError, ZeroDivisionError, RuntimeError) as error:
        raise ForgedError(f"the setup is none that can be played: {error}") from error
    # Which method the task names is no part of the episodes, and older records of Freeway and Pong name another.
    wrong = differences(_without_method(setup), _without_method(plan.setup()))
    if wrong:
        raise ForgedError("the setup is not that of its task and agent: " + "; ".join(wrong))
    return plan


def replay(raw: Raw, plan: Plan, blocks: list[int], workers: int, progress: Report | None = None) -> list[str]:
    """Play the blocks again; return what differs from the record."""
    wrong = []
    for done, (index, played) in enumerate(_played(plan, blocks, workers), start=1):
        begin = index * plan.block_size
        fresh = {"returns": played.returns, "lengths": played.lengths}
        there = {name: raw.arrays.get(name) for name in fresh}
        for name, values in fresh.items():
            wrong += _compared(index, name, begin, values, there[name])
        if played.gains is not None:
            wrong += _compared(index, "gains", index, played.gains, raw.arrays.get("gains"))
        if progress is not None:
            progress(done, len(blocks))
    return sorted(wrong) + (_other_versions(raw) if wrong else [])


def _played(plan: Plan, blocks: list[int], workers: int) -> Iterator[tuple[int, Episodes]]:
    workers = min(workers, len(blocks))
    if workers <= 1 or torch.device(plan.device).type == "cuda":
        return ((index, play_block(plan, index)) for index in blocks)
    return spread(play_block, plan, blocks, workers)


def _compared(index: int, name: str, begin: int, played: Any, there: Any) -> list[str]:
    recorded = None if there is None else there[begin : begin + len(played)]
    if recorded is None or recorded.shape != played.shape or recorded.dtype != played.dtype:
        return [f"block {index}: the record has no {name} that fit"]
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
        f"(recorded {recorded[first]}, played {played[first]})"
    ]


def _without_method(setup: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in setup.items() if key != "method"}


def _task(setup: dict[str, Any], environment: str | None) -> Task:
    name = str(setup.get("task"))
    if name in TASKS:
        return get_task(name)
    wanted = str(setup.get("environment"))
    if ":" in wanted and environment != wanted:
        # gymnasium.make imports what stands before the colon: a certificate must not choose what is run here.
        raise CannotReplayError(f"the environment {wanted!r} would import a module; --env {wanted} allows it")
    return make_task(
        wanted, floor=float(setup["floor"]), ceiling=setup["ceiling"], n_stack=1, max_steps=int(setup["limit"])
    )


def _policy(raw: Raw, task: Task, agent: str | None, trust_pickle: bool) -> Policy:
    name, expected = str(raw.setup.get("agent")), raw.setup["agent_sha256"]
    if agent is None and name not in list_agents():
        raise CannotReplayError(f"the agent {name!r} is not a pretrained one; give its file with --agent")
    policy = resolve(agent or name, task.spaces, trust_pickle=trust_pickle)
    if policy.sha256 != expected:
        raise ForgedError(f"the weights of {agent or name} have hash {policy.sha256}, the record is of {expected}")
    return policy


def _other_versions(raw: Raw) -> list[str]:
    before, now = (raw.run or {}).get("versions"), versions()
    if not isinstance(before, dict) or before == now:
        return []
    changed = [f"{key} {before.get(key)} then, {now.get(key)} now" for key in now if before.get(key) != now.get(key)]
    return [f"other versions may play other bits: {', '.join(changed)}"]
