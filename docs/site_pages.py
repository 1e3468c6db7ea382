"""What the site shows in addition to ``docs/``: the README and other pages of the repository, and the examples.

Pages link to each other as files of the repository, which is what readers of the repository need. Here the links are
turned into links of the site, and a link to a file that the site does not show is an error of the build.
"""

from __future__ import annotations

import ast
import os
import re
import tomllib
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
# docs/site_notebook.py makes these pages.
NOTEBOOKS = {
    "notebook.md": "examples/first_certificate.ipynb",
    "cases/drone-notebook.md": "examples/drone.ipynb",
    "cases/pancreas-notebook.md": "examples/pancreas.ipynb",
}
# The first page has no neighbors to list, and pages of wide tables or long lines need the room.
WIDE = ("records.md", "results.md", "compatibility.md", "zoo.md", "guides/floor-and-ceiling.md", EXAMPLES)
HIDDEN = {"index.md": ["navigation"], **{page: ["toc"] for page in WIDE}}
# Where a visitor of the first page goes next.
BUTTONS = "[Tutorial](docs/tutorial.md){ .md-button .md-button--primary } [Leaderboard](docs/records.md){ .md-button }"
SHOWN = {origin: page for page, origin in (*PAGES.items(), *NOTEBOOKS.items())}
PICTURES = (".png", ".svg", ".gif")
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: |\bsrc(?:set)?=\")([^)\s\"]+)", flags=re.MULTILINE)
NIGHT_PICTURE = re.compile(r'\s*<source media="\(prefers-color-scheme: dark\)[^>]*>')
WIDEST = 470  # points; what is wider has panels side by side
# A name at the start of a cell, or a cell that is nothing but code.
ALONE = re.compile(r"(<t[dh][^>]*>)<code>([^<\s]+|[^<]+(?=</code></td>))</code>")
# A number in a table with its few words; a reason why there is none may be long.
NUMBER = re.compile(r'<td style="text-align: right;">((?:<[^>]+>)?[^<]{1,24}(?:</[^>]+>[^<]{0,16})?)</td>')
OPTION, NAME = re.compile(r"(?<![\w-])(--?[a-z][\w-]*)"), r'<span class="name">\1</span>'
# Spaces inside "B = 0.2" and "1.0 ± 0.1", which are one word to a reader.
INSIDE = re.compile(r"(?<=\bB) (?==)|(?<=\bB =) (?=[\d.])|(?<=\d) (?=± \d)|(?<=±) (?=\d)")
CODE = re.compile(r"(^```.*?^```$)", flags=re.DOTALL | re.MULTILINE)


def on_config(config: Any) -> Any:
    """Name the version at the foot of every page, and the addresses of the project once it has some."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    config.copyright = f"Surefoot {project['version']}. {config.copyright}"
    addresses = project.get("urls", {})
    config.repo_url = addresses.get("Repository")
    config.site_url = addresses.get("Documentation", config.site_url)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are outside ``docs/``, and every other file of the repository that a page links to."""
    for page, origin in PAGES.items():
        text = (ROOT / origin).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, EXAMPLES, content=examples()))
    for origin in sorted(linked_files()):
        files.append(File.generated(config, place_of(origin, "")[0], content=(ROOT / origin).read_bytes()))
    return files


def linked_files() -> set[str]:
    """Return the files of the repository that pages link to and that are no pages themselves."""
    pages = [*PAGES.values(), *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
    links = {
        os.path.normpath(PurePosixPath(page).parent / found[2].partition("#")[0])
        for page in pages
        for found in LINK.finditer(CODE.sub("", (ROOT / page).read_text(encoding="utf-8")))
        if "://" not in found[2]
    }
    return {path for path in links if place_of(path, "")[0].startswith("files/") and (ROOT / path).is_file()}


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001
    """Turn links between files of the repository into links between pages of the site."""
    source = page.file.src_uri
    page.meta["hide"] = HIDDEN.get(source, [])
    if source == "index.md":
        # The site has one theme switch, and turns the light pictures dark itself.
        markdown = NIGHT_PICTURE.sub("", markdown)
        markdown = markdown.replace("## Install\n", f"{BUTTONS}\n\n## Install\n", 1)
    origin = {**PAGES, **NOTEBOOKS, EXAMPLES: f"examples/{EXAMPLES}"}.get(source, f"docs/{source}")
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
    """Return the page or file of the site, with its anchor, that shows a file or folder of the repository."""
    for shown in (path, f"{path}/README.md"):
        if shown in SHOWN:
            return SHOWN[shown], anchor
    if path.partition("/")[0] == "examples":
        return EXAMPLES, f"#{PurePosixPath(path).stem}" if "/" in path else anchor
    if path.startswith("docs/"):
        return path.removeprefix("docs/"), anchor
    # A browser shows plain text, and would offer other files for saving.
    return f"files/{path}" + ("" if path.endswith(PICTURES) else ".txt"), anchor


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Let figures be enlarged, and keep on one line what belongs together: names in tables, options, quantities."""
    folder = ROOT / "docs" / PurePosixPath(page.file.src_uri).parent
    content = re.sub(
        r'(?<!">)<img alt="([^"]*)" src="((?![^"]*badge-)[^"]+)" ?/?>',
        lambda found: f'<a class="{figure_class(folder / found[2])}" href="{found[2]}">{found[0]}</a>',
        content,
    )
    content = re.sub(
        r"(<t[dh][^>]*>)<code>([^<\s]+|[^<]+(?=</code></td>))</code>", r'\1<code class="name">\2</code>', content
    )
    content = re.sub(r"<code>([^<]*)</code>", lambda found: f"<code>{OPTION.sub(NAME, found[1])}</code>", content)
    content = NUMBER.sub(r'<td class="name" style="text-align: right;">\1</td>', content)
    content = content.replace("</code> )", "</code>)")  # after a default of the Python API
    parts = re.split(r"(<pre.*?</pre>|<code.*?</code>)", content, flags=re.DOTALL)
    return "".join(part if part.startswith("<") and "</" in part[-7:] else INSIDE.sub("&nbsp;", part) for part in parts)


def figure_class(path: Path) -> str:
    """Return how a figure is shown: one with panels side by side scrolls on a phone, where it would be too small."""
    head = path.read_text(encoding="utf-8")[:2000] if path.suffix == ".svg" and path.is_file() else ""
    width = re.search(r'<svg[^>]* width="([\d.]+)pt"', head)
    return "figure wide" if width is not None and float(width[1]) > WIDEST else "figure"


def examples() -> str:
    """Return a page with the code of every example, after a list of what they show."""
    listed, parts = [], []
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8").rstrip()
        shown = ast.get_docstring(ast.parse(code)) or ""
        first = " ".join(shown.partition("\n\n")[0].split())
        listed.append(f"- [{path.stem}](#{path.stem}): {first}")
        parts.append(f"## {path.stem}\n\n`python examples/{path.name}`\n\n```python\n{code}\n```")
    return "\n\n".join(["# Examples", "The tests run each of them.", "\n".join(listed), *parts]) + "\n"
