"""For methods without a second computation: the first one again, which finds forgeries but no mistakes of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.proof.query import certify
from surefoot.verification.recompute.run_files import differences


def made_again(folder: Path, certificate: dict[str, Any]) -> list[str]:
    """Certify the record once more as the certificate says it was done; return what differs."""
    try:
        episodes = Episodes.load(folder / "episodes.npz")
        settings = {"method": certificate["method"]}
        if certificate.get("step") is not None:
            settings["threshold_spacing"] = certificate["step"]
        made = certify(episodes, certificate["budgets"], certificate["confidence"], **settings).to_json()
    except (InputError, KeyError, TypeError, ValueError) as error:
        return [f"it cannot be made from this record: {error}"]
    return differences(certificate, made)
