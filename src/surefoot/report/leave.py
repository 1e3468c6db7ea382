"""What a certificate leaves behind in a folder."""

from __future__ import annotations

import warnings
from pathlib import Path

from surefoot.certify import Certificate
from surefoot.files import write_json, write_whole
from surefoot.report.text import Floor
from surefoot.shared import SharedCertificate


def leave_certificate(certificate: Certificate | SharedCertificate, folder: Path, blind: Floor | None) -> str | None:
    """Write ``certificate.json`` and, where matplotlib is installed, ``certificate.png``; return the figure's name.

    The certificate of a shared budget goes to ``shared.json``, so that nobody takes one for the other.
    """
    if isinstance(certificate, SharedCertificate):
        write_json(folder / "shared.json", certificate.to_json())
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
