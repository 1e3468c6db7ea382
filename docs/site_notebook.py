"""The notebook on the site: text, code and outputs of ``examples/first_certificate.ipynb`` as a page.

    python docs/site_notebook.py    # run its code and store the outputs

``tests/test_docs.py`` runs it too, and compares.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "first_certificate.ipynb"
PAGE = "notebook.md"


def on_files(files: Any, config: Any) -> Any:
    """Add the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=page(read())))
    return files


def read() -> list[dict[str, Any]]:
    """Return the cells."""
    cells: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
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
    """Store the outputs."""
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for cell, text in zip(content["cells"], run(content["cells"]), strict=True):
        if cell["cell_type"] == "code":
            lines = text.splitlines(keepends=True)
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
    NOTEBOOK.write_text(json.dumps(content, indent=1, ensure_ascii=False) + os.linesep, encoding="utf-8")


if __name__ == "__main__":
    main()
