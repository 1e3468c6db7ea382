"""Evidence for people who must sign: ``write_evidence`` writes one page for an auditor."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from surefoot.errors import InputError
from surefoot.files import write_text
from surefoot.proof.certificate import Certificate
from surefoot.proof.rounding import format_exact
from surefoot.report import html, sentences
from surefoot.report.certificate_text import describe_noise, headline
from surefoot.report.charts import group_runs
from surefoot.report.finished_run import FinishedRun
from surefoot.report.page import fill_page, read_asset

PAGE = "evidence.html"


def write_evidence(
    run: FinishedRun, verdict: Mapping[str, Any], folder: Path, out: Path | None = None, *, command: str
) -> Path:
    """Write the page, ``evidence.html`` in the run directory by default, and return its path.

    ``verdict`` is what an independent recomputation of the run found, ``command`` what verifies it.
    """
    if run.certificate is None:
        raise InputError(f"{folder} holds an attack; evidence is written for a certificate")
    if not run.identity.get("agent_sha256"):
        raise InputError(
            f"{folder} does not name its agent's hash; evidence is about one agent, named when it is certified"
        )
    if not verdict["bounds_recomputed"]:
        wrong = []
        for check in verdict["checks"]:
            # Episodes are not rerun for the page, so that one is always skipped.
            if check["result"] != "passed" and check["name"] != "replay":
                wrong.append(f"{check['name']}: {check['detail']}")
        found = "; ".join(wrong)
        raise InputError(f"the bounds of {folder} could not be recomputed, so no evidence is written ({found})")
    path = out or folder / PAGE
    write_text(path, _page(run, run.certificate, verdict, command))
    return path


def _page(run: FinishedRun, stated: Certificate, verdict: Mapping[str, Any], command: str) -> str:
    groups = group_runs([run])
    escape = html.escape
    checks = []
    passed = 0
    for check in verdict["checks"]:
        checks.append([check["name"], check["result"], check["detail"]])
        # None failed: then there would be no page.
        if check["result"] == "passed":
            passed += 1
    facts = []
    for key, value in html.known_facts(run):
        if value is not None:
            facts.append((key, html.plain(value)))
    return fill_page(
        read_asset("evidence.html"),
        {
            "title": f"Evidence for {escape(str(run.identity['agent']))}",
            "agent": escape(str(run.identity["agent"])),
            "claim": html.render_opening(
                sentences.lead_number(groups), [headline(stated, run.required, run.baseline)], []
            ),
            "table": html.bounds_tables(groups[0]),
            "noise": escape(describe_noise(stated)),
            "budget-meaning": escape("; or the ".join(sentences.budget_meanings(groups))),
            "budget-units": sentences.budget_units(groups),
            "perturbed": sentences.perturbed_words(groups, "noise is"),
            "excluded-channels": sentences.excluded_channels(groups),
            "budget-examples": escape(sentences.budget_examples(groups)),
            "excluded-threat": escape(sentences.excluded_threat(groups)),
            "episodes": f"{stated.n_episodes:,}",
            # 1 - 0.95 has an error in its last digits, which nobody should read.
            "alpha": format_exact(float(f"{1 - stated.confidence:.12g}")),
            "facts": html.facts_list(facts),
            "recomputed": f"{passed} checks passed, none failed; no episode was rerun, so this is not a verification.",
            "checks": html.table("Checks", ["check", "result", "found"], checks, kind="words"),
            "not-checked": "".join(html.tag("li", line) for line in verdict["not_checked"]),
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "command": escape(command),
        },
    )
