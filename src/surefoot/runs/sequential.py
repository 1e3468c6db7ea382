"""Play block after block and stop when enough is proved; the certificate is valid whenever and why ever one stops.

Blocks count in the order of their numbers, and after which of them the question is asked is settled by how many there
are. So a run stops at the same episode with any number of workers, in one go or resumed.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.proof.bounds.betting import Sample
from surefoot.proof.bounds.bands import tail_tight
from surefoot.proof.bounds.tangent_scores import plug_in
from surefoot.proof.bounds.from_bets import Means, Sequential, worst_means
from surefoot.proof.bounds.from_band import worst_mean_upper
from surefoot.proof.episode_budget import Certificate, certificate_of
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.files import write_json, versions
from surefoot.play.loop import Plan, Progress, blocks_of
from surefoot.runs.taped_episode import attacked_plan, record_replay
from surefoot.runs.finish import leave_certificate
from surefoot.report.page import leave_report
from surefoot.report.sentences import headline_budget
from surefoot.runs.certified import Questions
from surefoot.runs.folder import RunFolder

_GROWTH = 1.02  # the question is asked again when there are so many times as many episodes, or after the next block


@dataclass(frozen=True)
class Goal:
    """What a run is for: a required mean at a budget, or a certificate within ``until`` of what it can still become."""

    budget: float
    until: float | None = None
    require: float | None = None

    def __post_init__(self) -> None:
        if self.until is not None and not self.until > 0:
            raise InputError(f"until must be a number > 0, got {self.until}")

    def to_json(self) -> dict[str, Any]:
        """Return the goal as JSON data."""
        return {"budget": self.budget, "until": self.until, "require": self.require}


class Watch:
    """Looks at the returns so far and says whether to go on."""

    def __init__(self, goal: Goal, sigma: float, alpha: float, floor: float, ceiling: float | None) -> None:
        self.goal, self.radius, self.alpha, self.floor, self.ceiling = goal, goal.budget / sigma, alpha, floor, ceiling
        claim = None if goal.require is None else (self.radius, goal.require)
        self.game = Sequential([self.radius], alpha, floor, ceiling, claim=claim)
        self._next, self._looks, self._refute = 1, 0, 1000

    def reason_to_stop(self, returns: NDArray[np.float64]) -> str | None:
        """Return why nothing more need be played, or None."""
        if returns.size < self._next:
            return None
        self._next = int(returns.size * _GROWTH) + 1
        lower = float(self.game.after(returns).at(self.radius))
        if self.goal.require is not None and lower >= self.goal.require:
            return "proved"
        possible = float(plug_in(Sample.of(returns), np.array([self.radius]), self.floor)[0])
        if self.goal.until is not None and possible - lower <= self.goal.until:
            return "close enough"
        return "refuted" if self._refuted(returns) else None

    def _refuted(self, returns: NDArray[np.float64]) -> bool:
        """Whether the worst case itself lies below what is required, so that no number of episodes could prove it.

        Asked when the episodes have doubled, the k-th time at a risk of alpha / 2^k: all together at most alpha.
        """
        if self.goal.require is None or self.ceiling is None or returns.size < self._refute:
            return False
        self._refute, self._looks = 2 * returns.size, self._looks + 1
        band = tail_tight(returns, self.alpha / 2**self._looks)
        return bool(worst_mean_upper(band, self.floor, self.ceiling, self.radius) < self.goal.require)

    def certificate(self, episodes: Episodes, questions: Questions, stopped: str) -> Certificate:
        """Write down what is proved after these episodes."""
        lower = self.game.after(episodes.returns)
        mirror = None
        if self.ceiling is not None:
            mirror = worst_means(-episodes.returns, [self.radius], self.alpha, -self.ceiling, -self.floor, anytime=True)
        settled = {**self.goal.to_json(), "stopped": stopped}
        return certificate_of(
            episodes, questions.budgets, questions.confidence, "sequential", Means(lower, mirror), settled
        )


def watched_run(
    plan: Plan,
    questions: Questions,
    goal: Goal,
    folder: Path,
    *,
    workers: int = 1,
    progress: Progress | None = None,
    command: str | None = None,
) -> tuple[Certificate, str]:
    """Play the blocks of ``plan`` until the goal is reached; return the certificate and why the run stopped.

    Whoever interrupts it gets the certificate of what was played. The same call goes on from there.
    """
    watch = Watch(goal, plan.sigma, 1 - questions.confidence, plan.task.floor, plan.task.ceiling)
    with RunFolder(folder, {**plan.setup(), "sequential": True}).opened() as store:
        done: list[Episodes] = []
        stopped = "all played"
        try:
            with closing(_in_order(plan, store, workers)) as blocks:
                for block in blocks:
                    done.append(block)
                    returns = np.concatenate([part.returns for part in done])
                    reason = watch.reason_to_stop(returns)
                    if progress is not None:
                        progress(returns.size, plan.episodes)
                    if reason is not None:
                        stopped = reason
                        break
        except KeyboardInterrupt:
            if not done:
                raise
            stopped = "stopped by hand"
        episodes = Episodes.concat(done)
        certificate = watch.certificate(episodes, questions, stopped)
        store.finish(episodes)
        figure = leave_certificate(certificate, folder, plan.task.blind)
        write_json(
            folder / "run.json",
            {
                "schema": 1,
                "agent_sha256": plan.policy.sha256 or None,
                "versions": versions(),
                "goal": goal.to_json(),
                "stopped": stopped,
                "figure": figure,
                "blind": None if plan.task.blind is None else asdict(plan.task.blind),
                "replay": record_replay(plan, attacked_plan(plan, headline_budget(certificate)), folder),
                "command": command,
            },
        )
        leave_report(folder, certificate)
    return certificate, stopped


def _in_order(plan: Plan, store: RunFolder, workers: int) -> Generator[Episodes, None, None]:
    """Yield blocks by their numbers: those on disk first, then new ones, saved as they come."""
    ready = dict(store.finished())
    if store.record.exists():
        record, size = Episodes.load(store.record), plan.shape_of_blocks[1]
        ready |= {first // size: record[first : first + size] for first in range(0, len(record), size)}
    index = 0
    missing = [number for number in range(plan.blocks) if number not in ready]
    with closing(blocks_of(plan, missing, workers)) as fresh:
        while index < plan.blocks:
            while index not in ready:
                number, block = next(fresh)
                store.save_block(number, block)
                ready[number] = block
            yield ready.pop(index)
            index += 1
