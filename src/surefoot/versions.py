"""What this was computed with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from surefoot import __version__

PACKAGES = ("numpy", "scipy", "torch", "gymnasium", "stable-baselines3")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that shape a result, as far as they are installed."""
    found = {"surefoot": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
