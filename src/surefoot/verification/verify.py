"""One run from first to last check."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from surefoot.errors import InputError, old_arguments
from surefoot.verification.claims import check_claims, check_record
from surefoot.verification.recompute.run_files import DamagedError, Raw, read_run
from surefoot.verification.verdict import FAILED, IMPOSSIBLE, SKIPPED, Verdict

if TYPE_CHECKING:
    from surefoot.play.workers import Workers

LIES, UNSEEN = 0.01, 0.01  # by default forging this share of the episodes goes unnoticed at most this often
NEVER = (
    "that no return can be below the floor or above the ceiling: the task, or the user who certified, stated them",
    "that method, sigma, agent, seed and number of episodes were fixed before these episodes were inspected",
    "that the simulator matches the environment of deployment, and that the deployed noise cannot be predicted",
    "report.html, figures, replay.npz, and what run.json says besides agent, goal and reason for stopping: times, "
    "versions, the command, the open-loop baseline (surefoot report writes the report again)",
    "the simulation code (it also reran the sample, so its errors are repeated) and the theorem itself",
)


@old_arguments(trust_pickle="allow_pickle")
def verify(
    folder: str | Path,
    *,
    agent: str | None = None,
    blocks: int | Literal["enough"] | None = "enough",
    seed: int | None = None,
    environment: str | None = None,
    wrappers: Sequence[str] = (),
    env_modules: Sequence[str] = (),
    allow_pickle: bool = False,
    vecnormalize: str | None = None,
    workers: int | Workers = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Verdict:
    """Check the certificate in ``folder`` against its returns, and a sample of its returns against rerun episodes.

    Args:
        folder: The run directory.
        agent: File of the agent that was certified, where it is not a pretrained one.
        blocks: How many blocks of episodes to rerun, chosen at random; 0 for none, None for all. By default so many
            that one false episode in a hundred, wherever it is, is noticed with probability 0.99.
        seed: Fixes which blocks; by default they cannot be known beforehand.
        environment: The environment's ID or module:factory, where its name would import a module.
        wrappers: The wrappers around it, where there are any.
        env_modules: The modules that register it, where there are any.
        allow_pickle: Whether an SB3 zip may be unpickled, which executes code in it.
        vecnormalize: Statistics of the agent's observations, where ``surefoot.rollout`` needed them.
        workers: Number of processes.
        progress: Called with the number of finished blocks and of all.

    Returns:
        All checks, and whether they passed.
    """
    if isinstance(blocks, int) and blocks < 0:
        raise InputError(f"blocks must be at least 0, got {blocks}")
    verdict = Verdict(run=str(folder), not_checked=list(NEVER))
    try:
        certified = read_run(Path(folder))
    except DamagedError as error:
        verdict.note("episode data", FAILED, str(error))
        return verdict
    raw = certified[0]
    usable = check_record(raw, verdict)
    for each in certified:
        check_claims(each, verdict, usable, "" if each.name == "certificate.json" else f"{each.name}: ")
    if raw.certificate.get("method") == "sequential":
        verdict.not_checked.insert(0, "that the run should not have stopped earlier")
    if blocks == 0:
        verdict.note("replay", SKIPPED, "not asked for")
        verdict.fooled = 1.0
        verdict.not_checked.insert(0, "where the returns come from: no block was rerun")
        if any(raw.certificate.get("norm") is not None for raw in certified):
            verdict.not_checked.insert(0, "how many coordinates an observation has, which the norm is about")
    else:
        allowed = None if environment is None else (environment, tuple(wrappers), tuple(env_modules))
        _replay(certified, verdict, blocks, seed, agent, allowed, allow_pickle, vecnormalize, workers, progress)
    return verdict


def _replay(
    certified: list[Raw],
    verdict: Verdict,
    blocks: int | Literal["enough"] | None,
    seed: int | None,
    agent: str | None,
    allowed: tuple[str, tuple[str, ...], tuple[str, ...]] | None,
    allow_pickle: bool,
    vecnormalize: str | None,
    workers: int | Workers,
    progress: Callable[[int, int], None] | None,
) -> None:
    from surefoot.agents.resolve import locate
    from surefoot.verification import play_again as replay

    raw = certified[0]
    if agent is not None:
        locate(agent)  # a missing agent is bad input, not a forgery
    if allowed is not None and allowed[0] != raw.setup.get("environment"):
        raise InputError(
            f"the episodes are of the environment {raw.setup.get('environment')!r}, got --env {allowed[0]}"
        )
    try:
        plan = replay.plan_of(raw, agent, allowed=allowed, allow_pickle=allow_pickle, vecnormalize=vecnormalize)
    except replay.ForgedError as error:
        verdict.note("setup and weights", FAILED, str(error))
        return
    except replay.CannotReplayError as error:
        verdict.note("replay", IMPOSSIBLE, f"{error}; use --blocks 0 to skip the rerun")
        return
    _check_coordinates(certified, math.prod(plan.task.spaces.shape), verdict)
    verdict.judge("setup and weights", [], f"those of {plan.task.name} and {plan.policy.name}, {plan.policy.sha256}")
    if cut := replay.other_limit(plan):
        verdict.not_checked.insert(0, cut)
    n, size = raw.returns.size, plan.block_size
    verdict.blocks = there = -(-n // size)
    verdict.seed = secrets.randbits(63) if seed is None else seed
    wanted = enough(n, size) if blocks == "enough" else there if blocks is None else blocks
    count = min(wanted, there)
    chosen = np.random.default_rng(verdict.seed).choice(there, size=count, replace=False)
    verdict.replayed = sorted(int(index) for index in chosen)
    wrong = replay.replay(raw, plan, verdict.replayed, workers, progress)
    episodes = sum(min(size, n - index * size) for index in verdict.replayed)
    verdict.judge(
        "replay", wrong, f"{count} of {there} blocks, {episodes} of {n} episodes, every return and length bit for bit"
    )
    verdict.fooled = unnoticed(n, size, count)
    if count < there:
        verdict.not_checked.insert(0, f"the {there - count} blocks, {n - episodes} episodes, that were not rerun")


def unnoticed(n: int, size: int, count: int) -> float:
    """Return with which probability a sample of ``count`` blocks misses that a share of the episodes is forged.

    The forger knows the blocks, not the sample, and puts all lies into as few of them as can hold them.
    """
    there = -(-n // size)
    forged = -(-math.ceil(LIES * n) // size)
    return math.prod(max(0, there - forged - i) / (there - i) for i in range(min(count, there)))


def enough(n: int, size: int) -> int:
    """Return how many blocks must be rerun so that lies go unnoticed with a probability of at most ``UNSEEN``."""
    return next(count for count in range(1, -(-n // size) + 1) if unnoticed(n, size, count) <= UNSEEN)


def _check_coordinates(certified: list[Raw], size: int, verdict: Verdict) -> None:
    """Check what a norm says about the size of an observation, which the episode data do not contain."""
    for raw in certified:
        norm = raw.certificate.get("norm")
        if isinstance(norm, dict) and norm.get("coordinates") is not None:
            wrong = [] if norm["coordinates"] == size else [f"an observation has {size} coordinates"]
            verdict.judge(f"{raw.name}: size of an observation", wrong, f"{size} coordinates")
