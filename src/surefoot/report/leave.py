"""What a certificate leaves behind in a folder."""

from __future__ import annotations

import warnings
from pathlib import Path

from surefoot.certify import Certificate
from surefoot.episodes import Episodes
from surefoot.files import write_json, write_whole
from surefoot.report.page import leave_report
from surefoot.report.text import Floor
from surefoot.versions import versions


def leave_certificate(certificate: Certificate, folder: Path, blind: Floor | None) -> str | None:
    """Write ``certificate.json`` and, where matplotlib is installed, ``certificate.png``; return the figure's name."""
    write_json(folder / "certificate.json", certificate.to_json())
    try:
        from surefoot.report.figures import certificate_figure
    except ImportError:
        return None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # a name in letters the font lacks: boxes do no harm
        figure = certificate_figure(certificate, blind)
        write_whole(folder / "certificate.png", lambda file: figure.savefig(file, dpi=150))
    return "certificate.png"


def leave_outcomes(episodes: Episodes, folder: Path, *, command: str | None, step: float) -> None:
    """Put returns that were played elsewhere beside their certificate, and the page about both."""
    episodes.save(folder / "episodes.npz")
    write_json(folder / "run.json", {"schema": 1, "certified_with": versions(), "step": step, "command": command})
    leave_report(folder)
