"""``python -m surefoot``, and the command: Ctrl-C while the libraries still load is no traceback either."""

from __future__ import annotations

import sys


def main() -> int:
    """Load the command and run it."""
    try:
        from surefoot.cli.main import main as command

        return command()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
