"""What a certificate leaves behind in a folder."""

from __future__ import annotations

import warnings
from pathlib import Path

from surefoot.certify import Certificate
from surefoot.files import write_json, write_whole
from surefoot.report.text import Floor
from surefoot.threats import ThreatCertificate


def leave_certificate(certificate: Certificate | ThreatCertificate, folder: Path, blind: Floor | None) -> str | None:
    """Write ``certificate.json`` and, where matplotlib is installed, ``certificate.png``; return the figure's name.

    A certificate against another attacker goes to a file named after its kind, so that nobody takes one for the other.
    """
    if isinstance(certificate, ThreatCertificate):
        write_json(folder / f"{certificate.kind}.json", certificate.to_json())
        return None
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
