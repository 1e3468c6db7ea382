"""Print what is proved about floor and ceiling of known environments, or with --write put it into its guide.

python -m study.floors            # print
python -m study.floors --write    # update docs/guides/floor-and-ceiling.md in place
"""

from __future__ import annotations

import sys

import gymnasium

from study.agents_table import ROOT, put
from study.tables import Table
from surefoot.play.floors import DOCS, KNOWN


def rows() -> list[list[str]]:
    """Return floor, ceiling and proof of every known environment; versions that share them share a row."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, rules in KNOWN.items():
        steps = gymnasium.spec(name).max_episode_steps or 0
        floor, ceiling = ("none" if limit is None else f"{limit:.8g}" for limit in rules.limits(steps))
        proof = rules.proof.replace("_v4", "_v5")
        found.setdefault((f"{steps:,}", floor, ceiling, proof), []).append(f"`{name}`")
    return [[", ".join(names), *key] for key, names in found.items()]


def table() -> str:
    """Return the table as the guide has it."""
    return Table(["environment", "steps", "floor", "ceiling", "proof"], rows(), last_words=True).markdown()


def main() -> None:
    """Print, or write."""
    print(table())
    if "--write" in sys.argv[1:]:
        put(ROOT / "docs" / DOCS, "floors", table())


if __name__ == "__main__":
    main()
