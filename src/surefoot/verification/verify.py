"""One run from first to last check."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from surefoot.errors import DependentRowsError, InputError
from surefoot.verification.claims import check_claims, check_record
from surefoot.verification.limits import check_limits
from surefoot.verification.recompute.bands import Claim, recompute
from surefoot.verification.recompute.fresh import highest_worst_means, log_capital
from surefoot.verification.recompute.run_files import DamagedError, Raw, read_run
from surefoot.verification.recompute.sampling import enough_blocks, least_forgery, miss_probability
from surefoot.verification.verdict import FAILED, IMPOSSIBLE, REFUTED, SKIPPED, Verdict

if TYPE_CHECKING:
    from surefoot.play.plan import Plan
    from surefoot.play.workers import Workers

FRESH = 10_000  # fresh episodes at most, unless more are asked for
# And at least: where an agent knows the few episodes of a short run, as few fresh ones could not contradict its bounds.
FEWEST_FRESH = 64
FALSE_ALARM = 1e-4  # how often fresh episodes of an honest run are taken for a contradiction
OWN_ALPHA = 0.05  # of the bounds that fresh episodes prove by themselves
HERE = 0.05  # share of the blocks that other machines reran which is rerun on this one
NEVER = (
    "that method, sigma, agent, seed, goal, budgets, threshold spacing and number of episodes were fixed before these "
    "episodes were inspected (choosing among many costs confidence; the fresh episodes bound what it can gain)",
    "that the simulator matches the environment of deployment, and that the deployed noise cannot be predicted",
    "report.html, figures, replay.npz, and what run.json says besides agent, goal and reason for stopping: times, "
    "versions, the command, the open-loop baseline (surefoot report writes the report again)",
    "the simulation code (it also reran the sample, so its errors are repeated) and the theorem itself",
)


def verify(
    folder: str | Path,
    *,
    agent: object = None,
    blocks: int | Literal["enough"] | None = "enough",
    fresh: int | None = None,
    seed: int | None = None,
    environment: str | None = None,
    wrappers: Sequence[str] = (),
    env_modules: Sequence[str] = (),
    env_kwargs: Mapping[str, Any] | None = None,
    allow_pickle: bool = False,
    vecnormalize: str | None = None,
    workers: int | Workers = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Verdict:
    """Check a certificate against its returns, its returns against rerun episodes, and both against fresh episodes.

    Args:
        folder: The run directory.
        agent: The agent that was certified, where it is not a pretrained one: its file, ``module:name`` of a torch
            module, or the module itself.
        blocks: How many blocks of episodes to rerun, chosen at random; 0 for none (nothing is verified then, the bounds
            are recomputed), None for all. By default so many that a forgery that raises a bound by more than 1% is
            noticed with probability 0.99.
        fresh: How many episodes to run under a seed that is drawn now, which neither the agent nor its author can have
            known; by default as many as the run has, from 64 to 10,000.
        seed: Fixes which blocks; by default they cannot be known beforehand.
        environment: The environment's ID or module:factory, where its name would import a module.
        wrappers: The wrappers around it, where there are any.
        env_modules: The modules that register it, where there are any.
        env_kwargs: What it was made with, where that is more than numbers: a text may name a file.
        allow_pickle: Whether an SB3 zip may be unpickled, which executes code in it.
        vecnormalize: Statistics of the agent's observations, where ``surefoot.rollout`` needed them.
        workers: Number of processes.
        progress: Called with the number of finished blocks and of all.

    Returns:
        All checks, and whether they passed.
    """
    if isinstance(blocks, int) and blocks < 0:
        raise InputError(f"blocks must be at least 0, got {blocks}")
    if fresh is not None and not 0 <= fresh <= 10_000_000:
        raise InputError(f"fresh must be from 0 to 10000000, got {fresh}")
    verdict = Verdict(run=str(folder), not_checked=list(NEVER))
    try:
        certified = read_run(Path(folder))
    except DamagedError as error:
        verdict.note("episode data", FAILED, str(error))
        return verdict
    raw = certified[0]
    check_limits(certified, verdict)
    usable = check_record(raw, verdict)
    for each in certified:
        check_claims(each, verdict, usable, "" if each.name == "certificate.json" else f"{each.name}: ")
    if raw.certificate.get("method") == "sequential":
        verdict.not_checked.insert(0, "that the run should not have stopped earlier")
        _check_alone(certified, verdict)
    if blocks == 0:
        verdict.note("replay", SKIPPED, "not asked for")
        verdict.not_checked.insert(0, "where the returns come from: no block was rerun")
        if any(raw.certificate.get("norm") is not None for raw in certified):
            verdict.not_checked.insert(0, "how many coordinates an observation has, which the norm is about")
    else:
        allowed = None if environment is None else (environment, tuple(wrappers), tuple(env_modules))
        code = (allowed, env_kwargs)
        _rerun(certified, verdict, blocks, fresh, seed, agent, code, allow_pickle, vecnormalize, workers, progress)
    return verdict


def _check_alone(certified: list[Raw], verdict: Verdict) -> None:
    """Check that no other certificate uses the episodes of a sequential run, whose number depends on their returns.

    Such a record is not compared with fresh episodes either, only the bounds of the sequential certificate are.
    """
    others = [each.name for each in certified if each.certificate.get("method") != "sequential"]
    if others:
        reason = "needs a number of episodes that was fixed in advance, not the end of a sequential run"
        verdict.note("certificates", FAILED, f"{' and '.join(others)} {reason}")


def _rerun(
    certified: list[Raw],
    verdict: Verdict,
    blocks: int | Literal["enough"] | None,
    n_fresh: int | None,
    seed: int | None,
    agent: object,
    code: tuple[tuple[str, tuple[str, ...], tuple[str, ...]] | None, Mapping[str, Any] | None],
    allow_pickle: bool,
    vecnormalize: str | None,
    workers: int | Workers,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Rerun a sample of the recorded episodes, then run fresh ones."""
    from surefoot.verification import play_again as replay

    raw = certified[0]
    allowed, env_kwargs = code
    agent = _given_agent(agent)
    if allowed is not None and allowed[0] != raw.setup.get("environment"):
        raise InputError(
            f"the episodes are of the environment {raw.setup.get('environment')!r}, got --env {allowed[0]}"
        )
    try:
        plan = replay.plan_of(
            raw, agent, allowed=allowed, env_kwargs=env_kwargs, allow_pickle=allow_pickle, vecnormalize=vecnormalize
        )
    except replay.ForgedError as error:
        verdict.note("setup and weights", FAILED, str(error))
        return
    except replay.CannotReplayError as error:
        verdict.note("replay", IMPOSSIBLE, str(error))
        return
    _check_coordinates(certified, math.prod(plan.task.spaces.shape), verdict)
    verdict.judge("setup and weights", [], f"those of {plan.task.name} and {plan.policy.name}, {plan.policy.sha256}")
    verdict.judge("seed", [], replay.origin_of_seed(plan))
    if plan.policy.stochastic:
        verdict.not_checked.insert(0, "that the agent answers each row by itself: what it draws makes answers differ")
    if cut := replay.other_limit(plan):
        verdict.not_checked.insert(0, cut)
    radii = sorted({radius for each in certified for radius in scaled_budgets(each)})
    try:
        if replay.is_on_missing_gpu(plan):
            verdict.note("replay", IMPOSSIBLE, "the episodes were run on a CUDA device, and torch finds none here")
        else:
            _rerun_recorded(raw, plan, radii, verdict, blocks, seed, workers, progress)
        count = min(max(raw.returns.size, FEWEST_FRESH), FRESH) if n_fresh is None else n_fresh
        if _needs_fresh(verdict, count):
            _run_fresh(certified, plan, radii, verdict, count, workers, progress)
    except DependentRowsError as error:
        verdict.note("agent", FAILED, str(error))


def _given_agent(agent: object) -> object:
    """Return the agent, or the object that its name means; one that is not there is bad input, not a forgery."""
    from surefoot.agents.imported import named_object
    from surefoot.agents.resolve import locate

    if not isinstance(agent, str | Path):
        return agent
    named = named_object(str(agent))
    if named is not None:
        return named
    locate(agent)
    return agent


def _needs_fresh(verdict: Verdict, count: int) -> bool:
    """Return whether fresh episodes are run; say why where they are not."""
    if verdict.verdict == REFUTED:
        verdict.note("fresh episodes", SKIPPED, "a check has failed already")
    elif not verdict.bounds_recomputed:
        verdict.note("fresh episodes", SKIPPED, "there are no recomputed bounds to compare them with")
    elif count == 0:
        verdict.note("fresh episodes", SKIPPED, "not asked for")
        verdict.not_checked.insert(0, "whether agent or simulator know the seed: no fresh episodes were run")
    else:
        return True
    return False


def _rerun_recorded(
    raw: Raw,
    plan: Plan,
    radii: Sequence[float],
    verdict: Verdict,
    blocks: int | Literal["enough"] | None,
    seed: int | None,
    workers: int | Workers,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Rerun randomly chosen blocks and compare every return and length."""
    from surefoot.verification import play_again as replay

    n = raw.returns.size
    size = plan.block_size
    n_blocks = -(-n // size)
    # Without a ceiling one forged return decides everything.
    n_forged = 1 if plan.task.scoring.ceiling is None else least_forgery(raw.returns, size, radii, _floor(raw))
    if blocks == "enough":
        count = enough_blocks(n_blocks, n_forged)
    else:
        count = n_blocks if blocks is None else min(blocks, n_blocks)
    verdict.seed = secrets.randbits(63) if seed is None else seed
    chosen = np.random.default_rng(verdict.seed).choice(n_blocks, size=count, replace=False)
    verdict.blocks = n_blocks
    verdict.block_episodes = min(size, n)
    verdict.replayed = sorted(int(index) for index in chosen)
    wrong = replay.replay(raw, plan, _another_order(chosen.tolist()), workers, progress)
    episodes = sum(min(size, n - index * size) for index in verdict.replayed)
    where = ""
    if not replay.is_here(workers):
        # Which ones must not be foreseen by those machines.
        here = secrets.SystemRandom().sample(verdict.replayed, math.ceil(HERE * count))
        wrong += replay.replay(raw, plan, here, 1)
        where = f"; by other machines, which are trusted, but for {len(here)} random blocks rerun on this one"
    verdict.judge(
        "replay",
        wrong,
        f"{count} of {n_blocks} blocks, {episodes} of {n} episodes, every return and length bit for bit{where}",
    )
    verdict.forged_blocks = n_forged
    verdict.miss_one = miss_probability(n_blocks, 1, count)
    verdict.miss_least = miss_probability(n_blocks, n_forged, count)
    if count < n_blocks:
        verdict.not_checked.insert(0, f"the {n_blocks - count} blocks, {n - episodes} episodes, that were not rerun")


def _another_order(blocks: list[int]) -> list[int]:
    """Return blocks in another order than that of the run, in which each would meet the same past as before."""
    return blocks[::-1] if blocks == sorted(blocks) else blocks


def _run_fresh(
    certified: list[Raw],
    plan: Plan,
    radii: Sequence[float],
    verdict: Verdict,
    count: int,
    workers: int | Workers,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Run episodes under a seed that is drawn now, and check whether they contradict the record or a bound."""
    from surefoot.verification import play_again as replay

    raw = certified[0]
    ceiling = plan.task.scoring.ceiling
    # Other machines could invent fresh episodes too.
    returns = replay.run_fresh(plan, count, workers if replay.is_here(workers) else 1, progress)
    wrong = []
    # A run that stops when its returns look good is no fair sample to compare with: only its bounds are.
    sequential = any(each.certificate.get("method") == "sequential" for each in certified)
    evidence = 0.0 if sequential else log_capital(raw.returns, returns, radii)
    if evidence >= math.log(2 / FALSE_ALARM):
        wrong.append(
            f"{count:,} fresh episodes have a mean of {returns.mean():.6g}, the record has {raw.returns.mean():.6g}: "
            f"they are worse than the recorded ones (evidence e^{evidence:.0f} : 1 against one distribution)"
        )
    for each in certified:
        wrong += _refuted_bounds(each, returns, ceiling)
    verdict.fresh = {
        "n_episodes": count,
        "mean": float(returns.mean()),
        "false_alarm": FALSE_ALARM,
        "confidence": 1 - OWN_ALPHA,
        "budgets": [radius * plan.noise.sigma for radius in radii],
        "lower": _own_bounds(raw, returns, radii, ceiling),
    }
    verdict.judge(
        "fresh episodes",
        wrong,
        f"{count:,} under a seed drawn now, mean {returns.mean():.6g} (recorded: {raw.returns.mean():.6g}): no "
        f"contradiction; an honest run fails this check with probability at most {FALSE_ALARM:g}",
    )


def _refuted_bounds(raw: Raw, fresh: NDArray[np.float64], ceiling: float | None) -> list[str]:
    """Return which lower bounds on the mean under attack are above what fresh episodes allow."""
    if raw.name != "certificate.json":
        return []
    radii = scaled_budgets(raw)
    highest = highest_worst_means(fresh, radii, _floor(raw), ceiling, FALSE_ALARM / 2)
    return [
        f"at budget {budget:g} {lower:g} is certified, fresh episodes show that the worst-case mean is below {most:.6g}"
        for budget, lower, most in zip(raw.certificate["budgets"], raw.certificate["lower"], highest, strict=True)
        if lower > most
    ]


def _own_bounds(raw: Raw, fresh: NDArray[np.float64], radii: Sequence[float], ceiling: float | None) -> list[float]:
    """Return the lower bounds at each scaled budget that the fresh episodes prove by themselves."""
    claim = Claim("band", OWN_ALPHA, 1.0, _floor(raw), ceiling, tuple(radii))
    lower, _ = recompute(fresh, claim)
    return [float(value) for value in lower.least]


def _floor(raw: Raw) -> float:
    return float(raw.setup["floor"])


def scaled_budgets(raw: Raw) -> list[float]:
    """Return the budgets of a certificate divided by sigma; of a budget per step, as those of a whole episode."""
    certificate = raw.certificate
    try:
        steps = float(certificate.get("n_steps", 1))
        radii = [float(budget) * math.sqrt(steps) / float(certificate["sigma"]) for budget in certificate["budgets"]]
    except (KeyError, TypeError, ValueError, ZeroDivisionError):  # a failed check says so
        return []
    return [radius for radius in radii if 0 <= radius < math.inf]


def _check_coordinates(certified: list[Raw], size: int, verdict: Verdict) -> None:
    """Check what a norm says about the size of an observation, which the episode data do not contain."""
    for raw in certified:
        norm = raw.certificate.get("norm")
        if isinstance(norm, dict) and norm.get("coordinates") is not None:
            wrong = [] if norm["coordinates"] == size else [f"an observation has {size} coordinates"]
            verdict.judge(f"{raw.name}: size of an observation", wrong, f"{size} coordinates")
