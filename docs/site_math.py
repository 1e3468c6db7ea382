"""Formulas of the site: LaTeX between dollar signs becomes MathML when the site is built.

Browsers draw MathML themselves, so the pages need no script and no font from a network. A formula that cannot be
translated whole stops the build.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError

# With the punctuation that belongs on the same line.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>([.,;:?)]*)', flags=re.DOTALL)
# What the translation leaves to a browser and browsers draw unlike TeX: bars that grow or stand apart, slanted
# capitals, wide slashes, := in two parts, names of functions without a space next to what is not in brackets.
DRAWN = (
    (re.compile(r"<m[io]>&#x02016;</m[io]>"), '<mo stretchy="false" lspace="0" rspace="0">&#x02016;</mo>'),
    (re.compile(r"<mi>&#x02032;</mi>"), "<mo>&#x02032;</mo>"),
    (re.compile(r"<mo stretchy=\"false\">&#x0007C;</mo>"), '<mo stretchy="false" lspace="0" rspace="0">|</mo>'),
    (re.compile(r"<m[io]>(&#x027FA;)</m[io]>"), r'<mo lspace=".28em" rspace=".28em">\1</mo>'),
    (re.compile(r"<mi>:</mi><mo>&#x0003D;</mo>"), "<mo>&#x02254;</mo>"),
    (re.compile(r"<mi>:</mi>"), "<mo>:</mo>"),
    (re.compile(r"(</m(?:i|n|sup|sub)>)<mi>(log|ln|exp)</mi>"), r'\1<mspace width=".17em"/><mi>\2</mi>'),
    (re.compile(r"<mi>(log|ln|exp)</mi>(?!<mo[^>]*>&#x00028;)"), r'<mi>\1</mi><mspace width=".17em"/>'),
    (re.compile(r"<mo>&#x0002F;</mo>"), '<mo lspace="0" rspace="0">/</mo>'),
    (re.compile(r"<mi>&#x(003A6|00393);</mi>"), r'<mi mathvariant="normal">&#x\1;</mi>'),
)
LONG = 36  # characters of LaTeX; what is shorter fits on a phone
# A line may break before these, outside of all brackets; browsers break no formula by themselves.
RELATION = re.compile(r"\\(?:le|ge|iff)\b|[=<>]")
DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', flags=re.DOTALL)


def on_page_content(content: str, page: Any, **_: Any) -> str:
    """Replace every formula of a page by its MathML."""
    where = page.file.src_uri
    content = INLINE.sub(lambda found: inline(found[1], where, found[2]), content)
    return DISPLAY.sub(
        lambda found: f'<div class="formula">{mathml(html.unescape(found[1]), "block", where)}</div>', content
    )


def inline(escaped: str, where: str, end: str = "") -> str:
    """Return a formula in a line of text as one piece of MathML per relation, the last with its punctuation."""
    *parts, last = (mathml(piece, "inline", where) for piece in pieces(html.unescape(escaped)))
    return "<wbr>".join([*parts, f'<span class="name">{last}{end}</span>' if end else last])


def pieces(source: str) -> list[str]:
    """Cut a long formula before its relations, where no bracket is open."""
    if len(source) < LONG:
        return [source]
    places = [found.start() for found in RELATION.finditer(source) if found.start() and _whole(source[: found.start()])]
    return [source[first:last] for first, last in zip([0, *places], [*places, None], strict=True)]


def _whole(source: str) -> bool:
    plain = source.replace("\\{", "(").replace("\\}", ")")
    return all(plain.count(one) == plain.count(other) for one, other in ("()", "[]", "{}"))


def mathml(source: str, display: str, where: str) -> str:
    """Return a formula as MathML.

    Args:
        source: The formula in LaTeX.
        display: ``inline`` or ``block``.
        where: The page, for the message.

    Raises:
        PluginError: If a command of the formula is unknown: it would be shown as its source.
    """
    result = str(convert(source.strip(), display=display))
    if "\\" in re.sub(r"<[^>]+>", "", result):
        raise PluginError(f"{where}: cannot translate the formula {source!r}")
    for pattern, drawn in DRAWN:
        result = pattern.sub(drawn, result)
    return result.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
