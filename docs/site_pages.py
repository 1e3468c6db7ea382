"""What the site shows beside ``docs/``: the README and other pages of the repository, and the examples.

Pages link to each other as files of the repository, which is what readers of the repository need. Here the links are
turned into links of the site, and a link to a file that the site does not show is an error of the build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
# Where the site has them, and where the repository does.
PAGES = {
    "index.md": "README.md",
    "zoo.md": "zoo/README.md",
    "study-data.md": "study/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
}
EXAMPLES = "examples.md"
SHOWN = {origin: page for page, origin in PAGES.items()}
# Plain files that pages link to, copied as they are.
COPIED = (
    "LICENSE",
    "CITATION.cff",
    "zoo/build.py",
    "bench/results/cartpole-cpu.json",
    "bench/results/cartpole-cuda.json",
)
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )([^)\s]+)", flags=re.MULTILINE)
CODE = re.compile(r"(^```.*?^```$)", flags=re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that lie outside ``docs/``."""
    for page, origin in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / origin).read_text(encoding="utf-8")))
    files.append(File.generated(config, EXAMPLES, content=examples()))
    for origin in COPIED:
        files.append(File.generated(config, f"files/{origin}.txt", content=(ROOT / origin).read_bytes()))
    for picture in sorted((ROOT / "study").rglob("*.png")):
        name = picture.relative_to(ROOT).as_posix()
        files.append(File.generated(config, f"files/{name}", content=picture.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001
    """Turn links between files of the repository into links between pages of the site."""
    source = page.file.src_uri
    origin = PAGES.get(source, EXAMPLES if source == EXAMPLES else f"docs/{source}")
    parts = CODE.split(markdown)
    return "".join(part if part.startswith("```") else linked(part, origin, source) for part in parts)


def linked(markdown: str, origin: str, source: str) -> str:
    """Return a page's text with its links as the site has them."""
    return LINK.sub(lambda found: found[1] + target_of(found[2], origin, source), markdown)


def target_of(link: str, origin: str, source: str) -> str:
    """Return where a link of the file ``origin`` leads when it is shown as the page ``source``."""
    name, hash_sign, anchor = link.partition("#")
    if "://" in link or not name:
        return link
    path = os.path.normpath(PurePosixPath(origin).parent / name)
    target, anchor = place_of(path, hash_sign + anchor)
    return os.path.relpath(target, PurePosixPath(source).parent) + anchor


def place_of(path: str, anchor: str) -> tuple[str, str]:
    """Return the page of the site, with its anchor, that shows a file of the repository."""
    if path in SHOWN:
        return SHOWN[path], anchor
    if path == "examples":
        return EXAMPLES, anchor
    if path.startswith("examples/"):
        return EXAMPLES, f"#{PurePosixPath(path).stem}"
    if path.startswith("docs/"):
        return path.removeprefix("docs/"), anchor
    return f"files/{path}" + (".txt" if path in COPIED else ""), anchor


def examples() -> str:
    """Return a page with the code of every example."""
    parts = ["# Examples", "Each is run by the tests with small numbers."]
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8").rstrip()
        parts.append(f"## {path.stem}\n\n`python examples/{path.name}`\n\n```python\n{code}\n```")
    return "\n\n".join(parts) + "\n"
