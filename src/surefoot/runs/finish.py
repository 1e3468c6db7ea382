"""What a certificate leaves behind in a folder."""

from __future__ import annotations

import warnings
from pathlib import Path

from surefoot.proof.episode_budget import Certificate
from surefoot.episodes import Episodes
from surefoot.files import write_json, write_whole, versions
from surefoot.report.page import leave_report
from surefoot.report.sentences import Floor
from surefoot.proof.certificate import ThreatCertificate


def leave_certificate(certificate: Certificate | ThreatCertificate, folder: Path, blind: Floor | None) -> str | None:
    """Write ``certificate.json`` and, where matplotlib is installed, ``certificate.png``; return the figure's name.

    A certificate against another attacker goes to a file named after its kind, so that nobody takes one for the other.
    """
    if isinstance(certificate, ThreatCertificate):
        write_json(folder / f"{certificate.kind}.json", certificate.to_json())
        return None
    write_json(folder / "certificate.json", certificate.to_json())
    try:
        from surefoot.report.figure import certificate_figure
    except ImportError:
        return None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in letters the font lacks: boxes do no harm
        figure = certificate_figure(certificate, blind)
        write_whole(folder / "certificate.png", lambda file: figure.savefig(file, dpi=150))
    return "certificate.png"


def leave_outcomes(
    episodes: Episodes,
    folder: Path,
    *,
    command: str | None,
    step: float,
    certificate: Certificate | ThreatCertificate | None = None,
) -> None:
    """Put returns that were played elsewhere beside their certificate, to check it against, and the page about both."""
    episodes.save(folder / "episodes.npz")
    facts = {
        "schema": 1,
        "agent_sha256": episodes.facts.get("agent_sha256"),
        "played": False,
        "certified_with": versions(),
        "step": step,
        "command": command,
    }
    write_json(folder / "run.json", facts)
    leave_report(folder, certificate)
