"""One run from first to last check."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from pathlib import Path

import numpy as np

from surefoot.errors import InputError
from surefoot.verification.claims import check_claims, check_record
from surefoot.verification.recompute.run_files import DamagedError, Raw, read_run
from surefoot.verification.verdict import FAILED, IMPOSSIBLE, SKIPPED, Verdict

NEVER = (
    "that no return can pass the floor and the ceiling: they come with the task or from whoever certified",
    "that method, sigma, agent, seed and number of episodes were settled before these episodes were looked at",
    "that the simulator is the world the agent will act in, and that deployed noise cannot be predicted",
    "the code that plays (it played the sample again: the same bits, the same mistakes) and the theorem itself",
)


def verify(
    folder: str | Path,
    *,
    agent: str | None = None,
    blocks: int | None = 4,
    seed: int | None = None,
    environment: str | None = None,
    trust_pickle: bool = False,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Verdict:
    """Check the certificate in ``folder`` against its returns, and a sample of its returns against new play.

    ``agent``        file of the agent that was certified, where it is not a pretrained one
    ``blocks``       how many blocks of episodes to play again, chosen at random; 0 for none, None for all
    ``seed``         fixes which blocks; by default nobody can know beforehand
    ``environment``  the environment's id, where its name would import a module
    """
    if blocks is not None and blocks < 0:
        raise InputError(f"blocks must be at least 0, got {blocks}")
    verdict = Verdict(run=str(folder), not_checked=list(NEVER))
    try:
        certified = read_run(Path(folder))
    except DamagedError as error:
        verdict.note("record", FAILED, str(error))
        return verdict
    raw = certified[0]
    usable = check_record(raw, verdict)
    for each in certified:
        check_claims(each, verdict, usable, "" if each.name == "certificate.json" else f"{each.name}: ")
    if raw.certificate.get("method") == "sequential":
        verdict.not_checked.insert(0, "that the run passed no earlier place at which it should have stopped")
    if blocks == 0:
        verdict.note("replay", SKIPPED, "not asked for")
        verdict.not_checked.insert(0, "where the returns come from: no block was played again")
    else:
        _replay(certified, verdict, blocks, seed, agent, environment, trust_pickle, workers, progress)
    return verdict


def _replay(
    certified: list[Raw],
    verdict: Verdict,
    blocks: int | None,
    seed: int | None,
    agent: str | None,
    environment: str | None,
    trust_pickle: bool,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    from surefoot.agents.resolve import locate
    from surefoot.verification import play_again as replay

    raw = certified[0]
    if agent is not None:
        locate(agent)  # an agent that does not exist is bad input, not a forgery
    if environment is not None and environment != raw.setup.get("environment"):
        raise InputError(f"the record is of the environment {raw.setup.get('environment')!r}, got --env {environment}")
    try:
        plan = replay.plan_of(raw, agent, environment=environment, trust_pickle=trust_pickle)
    except replay.ForgedError as error:
        verdict.note("setup and weights", FAILED, str(error))
        return
    except replay.CannotReplayError as error:
        verdict.note("replay", IMPOSSIBLE, f"{error}; --blocks 0 checks the rest alone")
        return
    _check_coordinates(certified, math.prod(plan.task.spaces.shape), verdict)
    verdict.judge("setup and weights", [], f"those of {plan.task.name} and {plan.policy.name}, {plan.policy.sha256}")
    verdict.blocks = there = -(-raw.returns.size // plan.block_size)
    verdict.seed = secrets.randbits(63) if seed is None else seed
    count = there if blocks is None else min(blocks, there)
    chosen = np.random.default_rng(verdict.seed).choice(there, size=count, replace=False)
    verdict.replayed = sorted(int(index) for index in chosen)
    wrong = replay.replay(raw, plan, verdict.replayed, workers, progress)
    verdict.judge("replay", wrong, f"{count} of {there} blocks, every return and length bit for bit")
    if count < there:
        verdict.not_checked.insert(0, _missed(there, count))


def _check_coordinates(certified: list[Raw], size: int, verdict: Verdict) -> None:
    """Check what a norm says about the size of an observation, which the record does not know."""
    for raw in certified:
        norm = raw.certificate.get("norm")
        if isinstance(norm, dict) and norm.get("coordinates") is not None:
            wrong = [] if norm["coordinates"] == size else [f"an observation has {size} coordinates"]
            verdict.judge(f"{raw.name}: size of an observation", wrong, f"{size} coordinates")


def _missed(blocks: int, count: int) -> str:
    """Say what a sample of blocks cannot see."""
    half = blocks // 2
    unseen = float(np.prod([(blocks - half - i) / (blocks - i) for i in range(count)]))
    return (
        f"the {blocks - count} blocks that were not played again: had one of the {blocks} been forged, hash and all, "
        f"this sample would have missed it with probability {1 - count / blocks:.2g}; had half of them, {unseen:.2g}"
    )
