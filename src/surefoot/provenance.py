"""Where a result comes from: versions of packages, hashes of bytes and of the sources, the checkout."""

from __future__ import annotations

import hashlib
import inspect
import platform
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata, version
from importlib.resources import files
from pathlib import Path

VERSIONED_PACKAGES = ("numpy", "scipy", "torch", "gymnasium", "stable-baselines3")  # whose versions shape a result


def checkout() -> Path | None:
    """Return the root of the checkout that the package is run from, or None where it was installed as a wheel."""
    root = Path(str(files("surefoot"))).resolve().parents[1]
    # Two folders that are not part of a wheel.
    is_checkout = (root / "zoo").is_dir() and (root / "study").is_dir()
    return root if is_checkout else None


def install_command(extra: str) -> str:
    """Return what installs an extra: that of the checkout, whose code is installed there, or that of the release."""
    source = "surefoot" if checkout() is None else "."
    return f"pip install '{source}[{extra}]'"


def find_page(path: str) -> str:
    """Return where a page of the documentation is: on the site that ``[project.urls]`` names, else in the repository.

    >>> from surefoot.provenance import find_page
    >>> find_page("guides/units.md").endswith("guides/units.md")
    True
    """
    with suppress(PackageNotFoundError):
        for line in metadata("surefoot").get_all("Project-URL") or ():
            name, _, address = line.partition(", ")
            if name == "Documentation":
                return f"{address.rstrip('/')}/{path.removesuffix('.md')}.html"
    return f"docs/{path}"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that shape a result, as far as they are installed."""
    # The package is loaded before any of its modules, so it need not be imported.
    own = sys.modules["surefoot"].__version__
    found = {"surefoot": own, "python": platform.python_version()}
    for package in VERSIONED_PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def source_hash() -> str:
    """Return the SHA-256 of the package's own sources, by their names: checkouts of one version differ."""
    root = Path(str(files("surefoot")))
    chunks = []
    for path in sorted(root.rglob("*.py")):
        chunks.append(str(path.relative_to(root)).encode())
        chunks.append(path.read_bytes())
    return sha256(*chunks)


def text_hash(code: type) -> str | None:
    """Return the SHA-256 of the text of a class; None where it has none, such as in an interactive session."""
    try:
        return sha256(inspect.getsource(code).encode())
    except (OSError, TypeError):
        return None


def sha256(*chunks: bytes) -> str:
    """Return the hexadecimal SHA-256 of the chunks laid end to end."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
