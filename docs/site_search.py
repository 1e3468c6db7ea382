"""The search index of the site: one script with the text of every section, which also works from a disk.

Browsers let no page that was opened from a disk read another file as data, but they let it run a script beside it.
"""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

HEADINGS = ("h1", "h2", "h3")
SILENT = ("math", "style", "script")
sections: list[dict[str, str]] = []


class Sections(HTMLParser):
    """Cut a page's HTML at its headings."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.found: list[dict[str, str]] = []
        self.heading = False
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a section at a heading with an anchor."""
        given = dict(attrs)
        if tag in HEADINGS and given.get("id"):
            self.found.append({"url": f"{self.url}#{given['id']}", "title": "", "text": ""})
            self.heading = True
        self.silent += tag in SILENT or given.get("class") == "headerlink"

    def handle_endtag(self, tag: str) -> None:
        """End a heading, or what is not searched."""
        if tag in HEADINGS:
            self.heading = False
        if self.silent and tag in (*SILENT, "a"):
            self.silent -= 1

    def handle_data(self, data: str) -> None:
        """Keep the text of the section."""
        if self.found and not self.silent:
            self.found[-1]["title" if self.heading else "text"] += data


def on_pre_build(**_: Any) -> None:
    """Forget an earlier build."""
    sections.clear()


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Keep the sections of a page."""
    reader = Sections(page.url)
    reader.feed(content)
    for section in reader.found:
        text = " ".join(section["text"].split())
        sections.append(
            {"page": str(page.title), "url": section["url"], "title": section["title"].strip(), "text": text}
        )
    return content


def on_post_build(config: Any, **_: Any) -> None:
    """Write the index."""
    content = json.dumps(sections, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    (Path(config["site_dir"]) / "search-index.js").write_text(f"searchable({content});\n", encoding="utf-8")
