"""``verify``: checks one run from its files to fresh episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from surefoot.episodes import MOST_EPISODES
from surefoot.errors import InputError
from surefoot.verification.claims import check_claims, check_record
from surefoot.verification.comparison import check_comparison, rerun_sides
from surefoot.verification.limits import check_limits
from surefoot.verification.recompute.run_files import (
    CERTIFICATES,
    COMPARED,
    DamagedError,
    Raw,
    differences,
    read_run,
)
from surefoot.verification.verdict import FAILED, IMPOSSIBLE, SKIPPED, Verdict

if TYPE_CHECKING:
    from surefoot.play.workers import Workers

NO_RERUN = "where the returns come from: no block was rerun"
NEVER_CHECKED = (
    "that method, sigma, agent, seed, goal, budgets, threshold spacing and number of episodes were fixed before these "
    "episodes were inspected (choosing among many costs confidence; the fresh episodes bound what it can gain)",
    "that the simulator matches the environment of deployment, and that the deployed noise cannot be predicted",
    "report.html, figures, replay.npz, episodes.csv, and what run.json says besides agent, goal and reason for "
    "stopping: times, versions, the command, the open-loop baseline (surefoot report writes the report again); "
    "commands in other files",
    "the simulation code (whatever is rerun repeats its errors) and the theorem itself",
)


def verify(
    folder: str | Path,
    *,
    agent: object = None,
    agent_b: object = None,
    blocks: int | Literal["enough"] | None = "enough",
    fresh: int | None = None,
    seed: int | None = None,
    environment: str | None = None,
    wrappers: Sequence[str] = (),
    env_modules: Sequence[str] = (),
    success: str | None = None,
    luck: str | None = None,
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
            module, or the module itself. By default that of the run directory's bundle.
        agent_b: The same of the second agent of a comparison.
        blocks: How many blocks of episodes to rerun, chosen at random; 0 for none (nothing is verified then, the bounds
            are recomputed), None for all. By default so many that a forgery that raises a bound by more than 1% is
            noticed with probability 0.99.
        fresh: How many episodes to run under a seed that is drawn now, which neither the agent nor its author can have
            known; by default as many as the run has, at most 10,000 and at least 64, for fewer than 16 up to 512.
        seed: Fixes which blocks; by default they cannot be known beforehand.
        environment: The environment's ID or module:factory, where its name would import a module.
        wrappers: The wrappers around it, where there are any.
        env_modules: The modules that register it, where there are any.
        success: The condition that is its return, where that would import a module.
        luck: The function that read what was known at reset, where there is one.
        env_kwargs: What it was made with, where that is more than numbers: a text may name a file.
        allow_pickle: Whether an SB3 zip may be unpickled, which executes code in it.
        vecnormalize: Statistics of the agent's observations, where ``surefoot.rollout`` needed them.
        workers: Number of processes.
        progress: Called with the number of finished blocks and of all.

    Returns:
        All checks, and whether they passed.

    Raises:
        InputError: If there is no certified run in the directory, or what was given is not what it was run with.

    Example:
        >>> import tempfile
        >>> import surefoot
        >>> episodes = surefoot.Episodes.from_returns([9.0, 10.0] * 50, sigma=0.1, floor=0, ceiling=10)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     episodes.save(f"{folder}/episodes.npz")
        ...     path = surefoot.certify(episodes, [0, 0.1]).save(folder)
        ...     verdict = surefoot.verify(folder, blocks=0)
        >>> verdict.bounds_recomputed, verdict.verified  # nobody knows where these returns come from
        (True, False)
    """
    if isinstance(blocks, int) and blocks < 0:
        raise InputError(f"blocks must be at least 0, got {blocks}")
    if fresh is not None and not 0 <= fresh <= MOST_EPISODES:
        raise InputError(f"fresh must be from 0 to {MOST_EPISODES}, got {fresh}")
    verdict = Verdict(run=str(folder), not_checked=list(NEVER_CHECKED), n_general=len(NEVER_CHECKED))
    is_comparison = _is_comparison(Path(folder))
    sides = {}
    certified = []
    try:
        if is_comparison:
            sides = check_comparison(Path(folder), verdict)
        else:
            certified = read_run(Path(folder))
    except DamagedError as error:
        verdict.note("episode data", FAILED, str(error))
        return verdict
    if certified:
        check_limits(certified, verdict)
        usable = check_record(certified[0], verdict)
        for raw in certified:
            prefix = "" if raw.name == "certificate.json" else f"{raw.name}: "
            check_claims(raw, verdict, usable, prefix)
        _check_alone(certified, verdict)
    if blocks == 0:
        _note_no_rerun(certified, verdict)
        return verdict
    # Reruns need torch and environments; the checks of files do not.
    try:
        from surefoot.agents.bundle import describe_environment, read_bundle
        from surefoot.verification.play_again import RerunOptions
        from surefoot.verification.rerun import rerun_episodes
    except ModuleNotFoundError as error:
        needed = f"episodes can be rerun only with the packages of the extra 'play', and there is no {error.name}"
        verdict.note("replay", IMPOSSIBLE, needed)
        verdict.not_checked.insert(0, NO_RERUN)
        return verdict

    bundle = None if is_comparison or agent is not None else read_bundle(Path(folder))
    if bundle is not None:
        # Whatever is in it: an agent with another hash than the certified one is refused.
        agent = bundle.agent
        vecnormalize = vecnormalize or bundle.vecnormalize
        wrong = differences(bundle.environment, describe_environment(certified[0].setup))
        verdict.judge("bundle", wrong, "it names the environment of the episodes")
    options = RerunOptions(
        blocks=blocks,
        fresh=fresh,
        seed=seed,
        agent=agent,
        environment=environment,
        wrappers=tuple(wrappers),
        env_modules=tuple(env_modules),
        success=success,
        luck=luck,
        env_kwargs=env_kwargs,
        allow_pickle=allow_pickle,
        vecnormalize=vecnormalize,
        workers=workers,
        progress=progress,
    )
    if is_comparison:
        rerun_sides(sides, verdict, options, agent_b)
    else:
        rerun_episodes(certified, verdict, options)
    return verdict


def _is_comparison(folder: Path) -> bool:
    """Return whether a directory has a comparison, and no certificate next to it that nobody would check."""
    if not (folder / COMPARED).is_file():
        return False
    others = [name for name in CERTIFICATES if (folder / name).exists()]
    if others:
        both = " and ".join([COMPARED, *others])
        raise InputError(f"{folder} has {both}; move the comparison to a directory of its own")
    return True


def _check_alone(certified: list[Raw], verdict: Verdict) -> None:
    """Check that no other certificate uses the episodes of a sequential run, whose number depends on their returns."""
    if certified[0].certificate.get("method") != "sequential":
        return
    verdict.not_checked.insert(0, "that the run should not have stopped earlier")
    others = [raw.name for raw in certified if raw.certificate.get("method") != "sequential"]
    if others:
        reason = "needs a number of episodes that was fixed in advance, not the end of a sequential run"
        verdict.note("certificates", FAILED, f"{' and '.join(others)} {reason}")


def _note_no_rerun(certified: list[Raw], verdict: Verdict) -> None:
    verdict.note("replay", SKIPPED, "not asked for")
    verdict.not_checked.insert(0, NO_RERUN)
    if any(raw.certificate.get("norm") is not None for raw in certified):
        verdict.not_checked.insert(0, "how many coordinates an observation has, which the norm is about")
