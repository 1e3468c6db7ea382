"""``surefoot.compare``: by how much do two agents differ, without attack and under the worst one?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.comparison import Comparer, Comparison, Gate, Question
from surefoot.runs.finish import finish_comparison
from surefoot.runs.returns import read_record

if TYPE_CHECKING:
    from surefoot.agents.policies import Sigma
    from surefoot.api.setup import AnyWorkers, ProgressCallback
    from surefoot.play.task import Task

DEFAULT_MOST_EPISODES = 10_000  # of each agent, unless more are asked for


def compare(
    a: object,
    b: object,
    task: str | Task | None = None,
    *,
    budgets: Sequence[float] = (),
    better: bool = False,
    margin: float | None = None,
    sigma: Sigma | None = None,
    sigma_b: Sigma | None = None,
    action_sigma: float = 0.0,
    action_sigma_b: float | None = None,
    attack: str | None = None,
    confidence: float = 0.95,
    n_episodes: int | None = None,
    max_episodes: int | None = None,
    floor: float | None = None,
    ceiling: float | None = None,
    only_wins: bool = False,
    seed: int | None = None,
    device: str = "cpu",
    workers: AnyWorkers = 1,
    out: str | Path | None = None,
    n_stack: int | None = None,
    stochastic: bool = False,
    pixel_max: float | None = None,
    allow_pickle: bool = False,
    record: bool = False,
    vecnormalize: object = None,
    vecnormalize_b: object = None,
    progress_callback: ProgressCallback | None = None,
    command: str | None = None,
) -> Comparison:
    """Bound the difference of the mean returns of two agents, paired where their episodes can be.

    >>> import os, tempfile
    >>> import surefoot
    >>> os.chdir(tempfile.mkdtemp())
    >>> comparison = surefoot.compare("cartpole-1-ppo-s0.2", "cartpole-1-s0.8", budgets=[0.2], n_episodes=500)
    >>> comparison.winner, comparison.pairing, comparison.attacked[0].at_least > 0
    ('A', 'seeds', True)

    Args:
        a: An agent as ``surefoot.rollout`` takes it, or episodes: an Episodes, a run directory, or a file of returns.
        b: The agent, or the episodes, that A is compared with.
        task: A task's name, or a Task; the one that A's model card names by default.
        budgets: Attack budgets at which A's worst case is compared with B's, the l2 norm of all perturbations of one
            episode. The difference without attack is always in the table.
        better: Whether A must be better for ``passed``, at all budgets.
        margin: A must be no worse than B by more than this for ``passed``, at all budgets.
        sigma: A's noise; by default the one that its model card names.
        sigma_b: B's noise, 0 for an undefended agent; by default that of its model card, else A's.
        action_sigma: The noise on A's continuous actions, behind the attacker; the default of sigma is then 0, and
            budgets are those of certificates with such noise.
        action_sigma_b: The same of B; by default A's.
        attack: Attack on B under which its upper bound is measured, as ``surefoot.attack`` names it.
        confidence: That of the whole table.
        n_episodes: Episodes of each agent, fixed in advance: 10,000 by default.
        max_episodes: Instead, stop as soon as the question is answered, after so many episodes of each at most.
        floor: Lowest return that is possible, of a file of returns.
        ceiling: Highest return that is possible, of a file of returns.
        only_wins: Whether only floor and ceiling can be returns, of a file of returns: bounds are then exact.
        seed: Seed of the run; by default it follows from agents and setup.
        device: "cpu", "cuda" or "auto".
        workers: Processes to run episodes with, None for one per core, or other workers.
        out: The run directory; ``runs/NAME`` by default where episodes are run, and nothing is written for files.
        n_stack: Number of observations that the agents stack, as ``surefoot.as_policy`` takes it; for agents that
            differ in this or the next three give what ``as_policy`` returns.
        stochastic: Whether the agents' own randomness is part of them.
        pixel_max: What they take for the brightest pixel.
        allow_pickle: Let the agents' files execute code.
        record: Whether to record the episode in which the two differ most, for the report.
        vecnormalize: Statistics of A's observations, as ``surefoot.as_policy`` takes them.
        vecnormalize_b: The same of B's.
        progress_callback: Called with the numbers of finished and of all episodes, and the bounds so far in words.
        command: What was typed to get this.

    Raises:
        InputError: If the two cannot be compared: other tasks, unfinished runs, no ceiling, or no noise under attack.
    """
    if better and margin is not None:
        raise InputError("better=True cannot be combined with margin=: A must be better, or no worse by a margin")
    if n_episodes is not None and max_episodes is not None:
        raise InputError("n_episodes= cannot be combined with max_episodes=: a number fixed in advance, or a limit")
    gate = None
    if better or margin is not None:
        gate = Gate(margin)
    question = Question(confidence=confidence, budgets=tuple(budgets), gate=gate)
    records = [read_record(one, floor=floor, ceiling=ceiling, only_wins=only_wins) for one in (a, b)]
    running: dict[str, Any] = {
        "task": task,
        "sigma": sigma,
        "sigma_b": sigma_b,
        "action_sigma": action_sigma or None,
        "action_sigma_b": action_sigma_b,
        "attack": attack,
        "seed": seed,
        "n_stack": n_stack,
        "stochastic": stochastic or None,
        "pixel_max": pixel_max,
        "allow_pickle": allow_pickle or None,
        "vecnormalize": vecnormalize,
        "vecnormalize_b": vecnormalize_b,
        "record": record or None,
    }
    if all(record is not None for record in records):
        _refuse_running({**running, "n_episodes": n_episodes, "max_episodes": max_episodes})
        return _compare_records(records, (a, b), question, out=out, command=command)
    if any(record is not None for record in records):
        raise InputError("compare two agents, or the episodes of two; got an agent and episodes")
    if floor is not None or ceiling is not None or only_wins:
        raise InputError("floor=, ceiling= and only_wins= are for files of returns; a task knows its own")
    # Running needs torch; comparing files does not.
    from surefoot.api.compared_agents import AgentOptions, compare_agents

    options = AgentOptions(
        # What was not given is as there.
        **{name: value for name, value in running.items() if value is not None},
        n_episodes=n_episodes or max_episodes or DEFAULT_MOST_EPISODES,
        anytime=max_episodes is not None,
        device=device,
        workers=workers,
        out=None if out is None else Path(out),
        progress_callback=progress_callback,
        command=command,
    )
    return compare_agents(a, b, question, options)


def _refuse_running(given: Mapping[str, object]) -> None:
    named = [f"{name}=" for name, value in given.items() if value is not None]
    if named:
        raise InputError(f"{', '.join(named)} cannot be combined with episodes: none are run")


def _compare_records(
    records: Sequence[Episodes | None],
    sources: tuple[Any, Any],
    question: Question,
    *,
    out: str | Path | None,
    command: str | None,
) -> Comparison:
    a, b = (record for record in records if record is not None)
    names: list[str | None] = []
    for record, source, default in zip((a, b), sources, "AB", strict=True):
        if record.metadata.get("agent"):
            names.append(None)
        elif isinstance(source, str | Path):
            names.append(Path(source).name)
        else:
            names.append(default)
    comparer = Comparer(question, a, b)
    comparison = comparer.answer(a, b, names=(names[0], names[1]))
    if out is None:
        return comparison
    folder = Path(out)
    # A comparison of other episodes must not stand next to those of a run.
    if (folder / "setup.json").exists() or (folder / "A" / "setup.json").exists():
        raise InputError(f"{folder} holds a run of its own; choose another out=")
    for side, record in zip("AB", (a, b), strict=True):
        record.save(folder / side / "episodes.npz")
    return finish_comparison(folder, comparison, {"A": a, "B": b}, command=command)
