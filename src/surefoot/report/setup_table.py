"""Everything that is needed to repeat a run, as HTML: setup, hashes, versions, the command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from surefoot.proof.rounding import exact
from surefoot.report.charts import Group
from surefoot.report.finished_run import FinishedRun
from surefoot.report.html import tag

# What a reader looks for first, and what it is called.
NAMES = {
    "task": "task",
    "environment": "environment",
    "agent": "agent",
    "sigma": "sigma (noise)",
    "features": "sigma of each feature",
    "method": "method",
    "confidence": "confidence",
    "episodes": "episodes",
    "floor": "floor (lowest possible return)",
    "ceiling": "ceiling (highest possible return)",
    "frames": "stacked frames",
    "limit": "maximum steps",
    "seed": "seed",
    "device": "device",
    "lambdas": "lambda_Q",
    "draws": "noise samples of the attacker",
    "slots": "parallel environments",
    "block": "episodes in a block",
    "planned": "episodes planned",
    "stream": "seed stream",
    "agent_sha256": "sha256 of the agent",
}


def setups(groups: Sequence[Group]) -> str:
    """Return the setup of every run."""
    named = [entry for group in groups for entry in zip(group.runs, group.labels, strict=True)]
    return "\n".join(_setup(run, label) for run, label in named)


def _setup(run: FinishedRun, label: str) -> str:
    known = [*_facts(run), *((f"sha256 of {name}", digest) for name, digest in run.digests.items())]
    items = "".join(
        f"<div><dt>{escape(key)}</dt><dd>{escape(_plain(v))}</dd></div>" for key, v in known if v is not None
    )
    command = run.notes.get("command")
    repeat = f'<p>To repeat it:</p><pre tabindex="0"><code>{escape(str(command))}</code></pre>' if command else ""
    stated = run.certificate
    sentence = tag("p", stated.statement, kind="note") if stated is not None else ""
    return f'<article class="setup"><h3>{escape(label)}</h3>{sentence}{repeat}<dl class="facts">{items}</dl></article>'


def _facts(run: FinishedRun) -> Iterator[tuple[str, Any]]:
    facts = {**run.setup, **{key: value for key, value in run.identity.items() if value is not None}}
    stated = run.certificate
    if stated is not None:
        facts |= {key: getattr(stated, key) for key in ("method", "confidence", "sigma", "floor", "ceiling")}
        facts["episodes"] = stated.n_episodes
    if run.attack is not None:
        facts |= {key: run.attack.get(key) for key in ("method", "episodes", "draws", "lambdas")}
        facts = {
            key: value for key, value in facts.items() if key not in {"adversary", "budget"}
        }  # those of one configuration
    yield "folder", run.name
    for key in (*(key for key in NAMES if key in facts), *sorted(set(facts) - set(NAMES) - {"schema"})):
        yield NAMES.get(key, key.replace("_", " ")), facts[key]
    yield "seconds", run.notes.get("wall_seconds")
    yield "run with", run.notes.get("versions")
    yield "certified with", run.notes.get("certified_with")


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(part) for part in value) or "none"
    return exact(value) if isinstance(value, float) else str(value)
