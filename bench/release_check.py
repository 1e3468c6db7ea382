"""Whether a release would work: build it, install it elsewhere, and do there what the README shows.

    python bench/release_check.py            # minutes: two clean environments; prints sizes and what was run

The wheel and the source distribution are built, each is installed into an environment of its own outside of the
repository, and the commands of the README are run there.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 20_000_000  # of the source distribution
COMMANDS = (
    ("certify", "cartpole-5", "--episodes", "500", "--out", "run", "--quiet"),
    ("verify", "run"),
    ("report", "run", "--format", "md"),
    ("doctor",),
)


def run_command(*call: object, where: Path) -> str:
    """Run a command and return what it printed; stop with its output if it fails."""
    done = subprocess.run([str(part) for part in call], cwd=where, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, call))} failed in {where}:\n{done.stdout}{done.stderr}")
    return done.stdout


def try_package(package: Path, where: Path) -> None:
    """Install a package into a clean environment, and run the commands there."""
    run_command(sys.executable, "-m", "venv", where / "env", where=where)
    python = where / "env" / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run_command(python, "-m", "pip", "install", "-q", "-c", constraints, f"{package}[play,plot]", where=where)
    for command in COMMANDS:
        run_command(where / "env" / "bin" / "surefoot", *command, where=where)
        print(f"  ok: surefoot {' '.join(command)}")
    found = run_command(python, "-c", "import surefoot; print(surefoot.__file__)", where=where)
    if str(ROOT) in found:
        sys.exit(f"the installed package was not used, but {found}")


def main() -> None:
    """Build, install, try."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run_command(sys.executable, "-m", "pip", "install", "-q", "build", "hatchling", where=folder)
        run_command(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", ROOT, where=folder)
        for package in sorted((folder / "dist").iterdir()):
            size = package.stat().st_size
            print(f"{package.name}: {size:,} bytes")
            if package.suffix == ".gz" and size > MOST_BYTES:
                sys.exit(f"the source distribution must have at most {MOST_BYTES:,} bytes")
            place = folder / package.suffix.strip(".")
            place.mkdir()
            try_package(package, place)


if __name__ == "__main__":
    main()
