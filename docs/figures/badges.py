"""Draw the badges of the README from what they are about: package metadata, tests, the last run of planted errors.

python docs/figures/badges.py    # writes badge-python.svg, badge-license.svg, badge-tests.svg and badge-planted.svg
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from surefoot.files import read_json

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CHARACTER, MARGIN = 6.6, 7


def words() -> dict[str, tuple[str, str]]:
    """Return what each badge says, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = "Programming Language :: Python :: "
    versions = [line.removeprefix(known) for line in project["classifiers"] if line.startswith(known)]
    planted = read_json(ROOT / "bench" / "results" / "mutants.json")
    return {
        "python": ("Python", " | ".join(versions)),
        "license": ("license", project["license"]),
        "tests": ("test functions", f"{test_functions() // 100 * 100:,}+"),
        "planted": ("planted errors found by tests", f"{planted['killed']} of {planted['total']}"),
    }


def test_functions() -> int:
    """Return how many test functions there are; most of them run with several parameters."""
    files = (ROOT / "tests").rglob("test_*.py")
    return sum(len(re.findall(r"^ *def test_", path.read_text(encoding="utf-8"), re.MULTILINE)) for path in files)


def badge(name: str, value: str) -> str:
    """Return a badge as SVG: a name on gray, its value on blue."""
    left, right = (round(len(text) * CHARACTER + 2 * MARGIN) for text in (name, value))
    text = 'y="14" font-family="DejaVu Sans,Verdana,sans-serif" font-size="11" fill="#fff"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">'
        f"<title>{name}: {value}</title>"
        f'<rect width="{left + right}" height="20" rx="3" fill="#0b5394"/>'
        f'<path d="M3 0h{left - 3}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#444b52"/>'
        f'<text x="{MARGIN}" textLength="{left - 2 * MARGIN}" {text}>{name}</text>'
        f'<text x="{left + MARGIN}" textLength="{right - 2 * MARGIN}" {text}>{value}</text></svg>\n'
    )


def main() -> None:
    """Write the badges."""
    for name, said in words().items():
        (HERE / f"badge-{name}.svg").write_text(badge(*said), encoding="utf-8")


if __name__ == "__main__":
    main()
