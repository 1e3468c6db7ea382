"""Play block after block and stop when enough is proved; the certificate is valid whenever and why ever one stops.

Blocks count in the order of their numbers, and after which of them the question is asked is settled by how many there
are. So a run stops at the same episode with any number of workers, in one go or resumed.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import numpy as np

from surefoot.proof.episode_budget import Certificate
from surefoot.proof.stopping import Monitor, StoppingRule
from surefoot.episodes import Episodes
from surefoot.files import versions, write_json
from surefoot.play.loop import Plan, Progress, blocks_of
from surefoot.runs.taped_episode import attacked_plan, record_replay
from surefoot.runs.finish import leave_certificate
from surefoot.report.page import leave_report
from surefoot.report.sentences import headline_budget
from surefoot.runs.certified import Questions
from surefoot.runs.folder import RunFolder

def watched_run(
    plan: Plan,
    questions: Questions,
    goal: StoppingRule,
    folder: Path,
    *,
    workers: int = 1,
    progress: Progress | None = None,
    command: str | None = None,
) -> tuple[Certificate, str]:
    """Play the blocks of ``plan`` until the goal is reached; return the certificate and why the run stopped.

    Whoever interrupts it gets the certificate of what was played. The same call goes on from there.
    """
    confidence, floor, ceiling = questions.confidence, plan.task.floor, plan.task.ceiling
    monitor = Monitor(goal, confidence=confidence, sigma=plan.sigma, floor=floor, ceiling=ceiling)
    with RunFolder(folder, {**plan.setup(), "sequential": True}).opened() as store:
        done: list[Episodes] = []
        stopped = "all played"
        try:
            with closing(_in_order(plan, store, workers)) as blocks:
                for block in blocks:
                    done.append(block)
                    returns = np.concatenate([part.returns for part in done])
                    reason = monitor.reason_to_stop(returns)
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
        certificate = monitor.certificate(episodes, budgets=questions.budgets, stopped=stopped)
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
