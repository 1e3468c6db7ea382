"""``CertifiedRun``, and ``certify_returns``: a certificate of returns that others have measured, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from surefoot.api.query import Requirement
from surefoot.episodes import Episodes
from surefoot.proof.certificate import Certificate
from surefoot.proof.query import Query
from surefoot.provenance import versions
from surefoot.report.certificate_text import asked_budgets
from surefoot.runs.finish import finish_run
from surefoot.runs.folder import check_no_run

if TYPE_CHECKING:
    from surefoot.play.task import Task


@dataclass(frozen=True, kw_only=True)
class CertifiedRun:
    """A certificate, and where everything about it is.

    >>> import surefoot
    >>> episodes = surefoot.Episodes.from_returns([200.0] * 1000, sigma=0.2, floor=0, ceiling=200)
    >>> run = surefoot.CertifiedRun(certificate=surefoot.certify(episodes, [0.2]), require=(150, 0.2))
    >>> run.proved
    True

    Attributes:
        certificate: What is certified.
        directory: The run directory, with episodes, certificate and report; None if nothing was written.
        task: What was run; None for returns that others have measured.
        require: The mean return that was to be proved, and the budget; None if nothing was required.
    """

    certificate: Certificate
    directory: Path | None = None
    task: Task | None = None
    require: tuple[float, float] | None = None

    @property
    def proved(self) -> bool:
        """Whether what was required is proved; so it is where nothing was."""
        if self.require is None:
            return True
        mean, budget = self.require
        index = asked_budgets(self.certificate).index(budget)
        return bool(self.certificate.lower[index] >= mean)


def certify_returns(
    episodes: Episodes,
    query: Query,
    *,
    require: Requirement | None = None,
    out: Path | None = None,
    source: str | None = None,
    command: str | None = None,
) -> CertifiedRun:
    """Certify returns that others have measured.

    Args:
        out: Directory for certificate and report; nothing is written without.
        source: What in a file was taken for the returns.
        command: What was typed to get this; the report shows it.
    """
    # A certificate of other returns must not stand next to the episodes of a run.
    if out is not None:
        check_no_run(out)
    if require is not None:
        query = query.with_budget(require.budget)
    certificate = query.answer(episodes)
    if out is not None:
        # Next to its certificate, to check it against.
        episodes.save(out / "episodes.npz")
        metadata = {
            "agent_sha256": episodes.metadata.get("agent_sha256"),
            "played": False,
            "returns": source,
            "certified_with": versions(),
            "step": query.threshold_spacing,
            "required_budget": None if require is None else require.budget,
        }
        finish_run(out, certificate, metadata=metadata, baseline=None, command=command)
    return CertifiedRun(certificate=certificate, directory=out, require=require)
