"""The notebooks on the site: text, code and outputs of each notebook in ``examples/`` as a page.

    python docs/site_notebook.py pancreas    # run its code and store the outputs

``tests/test_docs.py`` runs them too, and compares: all but ``drone``, whose simulator ``make case`` installs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The page of each notebook.
PAGES = {
    "first_certificate": "notebook.md",
    "drone": "cases/drone-notebook.md",
    "pancreas": "cases/pancreas-notebook.md",
}


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    from mkdocs.structure.files import File

    for name, shown in PAGES.items():
        files.append(File.generated(config, shown, content=page(read(name))))
    return files


def file_of(name: str) -> Path:
    """Return the file of a notebook."""
    return ROOT / "examples" / f"{name}.ipynb"


def read(name: str) -> list[dict[str, Any]]:
    """Return the cells of a notebook."""
    cells: list[dict[str, Any]] = json.loads(file_of(name).read_text(encoding="utf-8"))["cells"]
    return cells


def page(cells: list[dict[str, Any]]) -> str:
    """Return the notebook as Markdown."""
    parts = []
    for cell in cells:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        if output := said(cell):
            parts.append(f"```text\n{output.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def said(cell: dict[str, Any]) -> str:
    """Return what a cell has printed."""
    return "".join(line for output in cell.get("outputs", ()) for line in output["text"])


def run(cells: list[dict[str, Any]]) -> list[str]:
    """Run the code of all cells, one after the other, and return what each printed."""
    names: dict[str, Any] = {}
    printed = []
    for number, cell in enumerate(cells):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
        printed.append(text.getvalue())
    return printed


def main() -> None:
    """Store the outputs of the named notebooks, or of all."""
    sys.path.insert(0, str(ROOT))
    for name in sys.argv[1:] or PAGES:
        path = file_of(name)
        content = json.loads(path.read_text(encoding="utf-8"))
        for cell, text in zip(content["cells"], run(content["cells"]), strict=True):
            if cell["cell_type"] == "code":
                lines = text.splitlines(keepends=True)
                cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + os.linesep, encoding="utf-8")


if __name__ == "__main__":
    main()
