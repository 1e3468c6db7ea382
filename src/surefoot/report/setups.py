"""Everything that is needed to repeat a run, as HTML: facts, hashes, versions, the command."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from surefoot.report.gather import Run
from surefoot.report.series import Group
from surefoot.report.text import exact
from surefoot.report.words import tag

FILES = ("certificate.json", "attack.json", "episodes.npz")


def setups(groups: Sequence[Group]) -> str:
    """Return the setup of every run."""
    named = [entry for group in groups for entry in zip(group.runs, group.labels, strict=True)]
    return "\n".join(_setup(run, label) for run, label in named)


def _setup(run: Run, label: str) -> str:
    known = [*_facts(run), *_digests(run)]
    items = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{escape(_plain(v))}</dd></div>" for key, v in known if v is not None
    )
    command = run.facts.get("command")
    repeat = f'<p>To repeat it:</p><pre tabindex="0"><code>{escape(str(command))}</code></pre>' if command else ""
    stated = run.certificate
    sentence = tag("p", stated.statement, kind="note") if stated is not None and stated.statement else ""
    return f'<article class="setup"><h3>{escape(label)}</h3>{sentence}{repeat}<dl class="facts">{items}</dl></article>'


def _item(key: str, value: str) -> str:
    return f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>"


def _facts(run: Run) -> Iterator[tuple[str, Any]]:
    facts = {**run.setup, **{key: value for key, value in run.whom.items() if value is not None}}
    yield "folder", run.folder.resolve().name
    for key in sorted(facts):
        # Of an attack many cells were played, each with a setup of its own.
        if key not in {"schema", "method"} and not (run.attack is not None and key in {"adversary", "budget"}):
            yield key.replace("_", " "), facts[key]
    stated = run.certificate
    if stated is not None:
        yield from (("method", stated.method), ("confidence", stated.confidence), ("episodes", stated.episodes))
        yield from (
            (("sigma", stated.sigma), ("floor", stated.floor), ("ceiling", stated.ceiling))
            if "sigma" not in facts
            else ()
        )
    if run.attack is not None:
        yield from ((f"attack: {key}", run.attack.get(key)) for key in ("method", "episodes", "draws", "lambdas"))
    yield "played with", run.facts.get("versions")
    yield "certified with", run.facts.get("certified_with")
    yield "seconds", run.facts.get("wall_seconds")


def _digests(run: Run) -> Iterator[tuple[str, str]]:
    for name in FILES:
        if (run.folder / name).exists():
            yield f"sha256 of {name}", hashlib.sha256((run.folder / name).read_bytes()).hexdigest()


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(part) for part in value) or "none"
    return exact(value) if isinstance(value, float) else str(value)
