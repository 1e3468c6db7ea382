"""What was checked and how it came out, and what was not checked at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PASSED, FAILED, IMPOSSIBLE, SKIPPED = "passed", "failed", "impossible", "skipped"


@dataclass(frozen=True)
class Check:
    """One check: ``result`` is passed, failed, impossible (it could not be done) or skipped."""

    name: str
    result: str
    detail: str


@dataclass
class Verdict:
    """All checks of one run; ``verified`` only if none failed and none that was asked for was impossible."""

    run: str
    checks: list[Check] = field(default_factory=list)
    replayed: list[int] = field(default_factory=list)
    blocks: int | None = None
    seed: int | None = None
    not_checked: list[str] = field(default_factory=list)
    fooled: float | None = None  # probability that forging one episode in a hundred goes unnoticed

    @property
    def trust(self) -> str:
        """What probability of being fooled is left, in words."""
        if not self.verified or self.fooled is None:
            return "Do not rely on this certificate."
        if self.fooled == 0:
            return "Enough episodes were rerun that a forgery of one in a hundred of them would have been detected."
        if self.fooled == 1:
            return "The returns may be invented: no episodes, or too few, were rerun (use --blocks all)."
        return (
            "If one episode in a hundred, or more, had been forged, and everything else made to agree, this check "
            f"would have missed it with probability {self.fooled:.2g} (--blocks all: 0)."
        )

    @property
    def verified(self) -> bool:
        """Whether everything that was asked for was checked and is correct."""
        return bool(self.checks) and all(check.result in (PASSED, SKIPPED) for check in self.checks)

    def judge(self, name: str, problems: list[str], good: str) -> None:
        """Add one check: failed, with the problems, or passed, with what was found."""
        self.checks.append(Check(name, FAILED if problems else PASSED, "; ".join(problems) or good))

    def note(self, name: str, result: str, detail: str) -> None:
        """Add a check with its result."""
        self.checks.append(Check(name, result, detail))

    def to_json(self) -> dict[str, Any]:
        """Return the verification result as JSON data."""
        return {
            "schema": 1,
            "run": self.run,
            "verified": self.verified,
            "checks": [{"name": c.name, "result": c.result, "detail": c.detail} for c in self.checks],
            "replayed_blocks": self.replayed,
            "blocks": self.blocks,
            "sampling_seed": self.seed,
            "unnoticed_forgery_probability": self.fooled,
            "not_checked": self.not_checked,
        }
