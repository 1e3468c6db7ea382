"""How dense the code is, counted by its syntax trees, so that a change for readers can be measured.

    python bench/density.py                    # src/surefoot
    python bench/density.py src/surefoot/proof --files    # a row for every file

Per 1,000 lines that are not blank: assignments that set several names to several unrelated values in one statement (an
unpacked call is none of those, nor is ``a, b = b, a``), conditional expressions, comprehensions. Comment lines in
percent of these; words per function name; names defined at the top level of two or more modules.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass
class Density:
    """Counts of one file or of many."""

    lines: int = 0
    comments: int = 0
    tuple_assignments: int = 0
    conditionals: int = 0
    comprehensions: int = 0
    functions: int = 0
    words: int = 0

    def add(self, other: Density) -> None:
        """Add the counts of another file."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)

    def row(self) -> str:
        """Return the counts per 1,000 lines, as a line of a table."""
        per_thousand = 1_000 / max(self.lines, 1)
        columns = (
            f"{self.lines:7,}",
            f"{self.tuple_assignments * per_thousand:7.1f}",
            f"{self.conditionals * per_thousand:7.1f}",
            f"{self.comprehensions * per_thousand:7.1f}",
            f"{100 * self.comments / max(self.lines, 1):7.1f}",
            f"{self.words / max(self.functions, 1):7.2f}",
        )
        return "".join(columns)


def is_tuple_assignment(node: ast.AST) -> bool:
    """Return whether a statement assigns a tuple of values to a tuple of names; a swap is one thought."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple | ast.List):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple):
        return False
    names = {ast.unparse(element) for element in target.elts}
    values = {ast.unparse(element) for element in node.value.elts}
    return names != values


def count_comments(text: str) -> int:
    """Return the number of lines that are comments and nothing else."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT and token.line.lstrip().startswith("#") for token in tokens)


def count_words(name: str) -> int:
    """Return the number of words of a name in snake case."""
    return len([word for word in name.split("_") if word])


def measure_file(path: Path) -> Density:
    """Count one file."""
    text = path.read_text()
    # Blank lines are not read, so that they do not count.
    lines = [line for line in text.splitlines() if line.strip()]
    found = Density(lines=len(lines), comments=count_comments(text))
    for node in ast.walk(ast.parse(text)):
        found.tuple_assignments += is_tuple_assignment(node)
        found.conditionals += isinstance(node, ast.IfExp)
        found.comprehensions += isinstance(node, COMPREHENSIONS)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
            found.functions += 1
            found.words += count_words(node.name)
    return found


def top_level_names(path: Path) -> set[str]:
    """Return the names that a module defines itself: functions, classes and constants."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def repeated_names(paths: list[Path]) -> dict[str, list[Path]]:
    """Return the names that two or more modules define at their top level, the type of arrays apart."""
    places: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for name in top_level_names(path):
            if name != "Floats":
                places[name].append(path)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "src" / "surefoot")
    parser.add_argument("--files", action="store_true", help="a row for every file")
    parser.add_argument("--names", action="store_true", help="list the repeated names")
    given = parser.parse_args()
    paths = sorted(given.folder.rglob("*.py"))
    total = Density()
    print(f"{'':48}  lines tuples  cond.  compr. comm.%  words")
    for path in paths:
        found = measure_file(path)
        total.add(found)
        if given.files:
            print(f"{path.relative_to(given.folder)!s:48}{found.row()}")
    print(f"{'all':48}{total.row()}")
    repeated = repeated_names(paths)
    print(f"{len(repeated)} names at the top level of two or more modules")
    if given.names:
        for name, places in repeated.items():
            print(f"  {name}: {', '.join(str(path.relative_to(given.folder)) for path in places)}")


if __name__ == "__main__":
    main()
