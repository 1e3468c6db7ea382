"""What was checked and how it came out, and what was not checked at all."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_LETTERS = 5_000  # about one check
# Results of one check.
PASSED = "passed"
FAILED = "failed"
IMPOSSIBLE = "impossible"
SKIPPED = "skipped"
# Results of all checks together.
VERIFIED = "verified"
UNCHECKED = "unchecked"
REFUTED = "failed"
# The checks that run episodes.
_RUNNING = ("replay", "fresh episodes")


@dataclass(frozen=True)
class CheckResult:
    """One check: ``result`` is passed, failed, impossible (it could not be done) or skipped."""

    name: str
    result: str
    detail: str


@dataclass
class Verdict:
    """All checks of one run."""

    run: str  # the run directory
    checks: list[CheckResult] = field(default_factory=list)  # every check with its result
    replayed: list[int] = field(default_factory=list)  # numbers of the blocks that were rerun
    blocks: int | None = None  # how many blocks the run has
    block_episodes: int | None = None  # how many episodes a block has
    forged_blocks: int | None = None  # how few forged blocks may have raised a bound by more than 1%
    miss_one: float | None = None  # probability that one forged block was missed
    miss_least: float | None = None  # probability that the least forgery that raises a bound by more than 1% was missed
    seed: int | None = None  # the seed that chose the blocks
    fresh: dict[str, Any] | None = None  # what the fresh episodes showed, as JSON data
    not_checked: list[str] = field(default_factory=list)  # what no check is about, most special first
    n_general: int = 0  # how many of these, the last ones, are about every verification

    @property
    def verdict(self) -> str:
        """The result in a word: verified, failed, or unchecked where nothing failed but not all could be checked."""
        results = {check.result for check in self.checks}
        if FAILED in results:
            return REFUTED
        has_run = bool(self.replayed) and self.fresh is not None
        if has_run and results == {PASSED}:
            return VERIFIED
        return UNCHECKED

    @property
    def verified(self) -> bool:
        """Whether everything was checked and is correct: bounds recomputed, episodes rerun, fresh episodes agree."""
        return self.verdict == VERIFIED

    @property
    def bounds_recomputed(self) -> bool:
        """Whether every bound follows from the recorded returns, wherever those come from."""
        has_bounds = False
        for check in self.checks:
            # Of a comparison the side comes first: "A: replay".
            if check.name.rpartition(": ")[2] not in _RUNNING:
                if check.result != PASSED:
                    return False
                has_bounds = has_bounds or check.name.endswith("bounds")
        return has_bounds

    @property
    def trust(self) -> str:
        """What a forger could still have done, in words."""
        if self.verdict == REFUTED:
            return "Do not rely on this certificate."
        if self.verdict == UNCHECKED:
            if not self.bounds_recomputed:
                return "Not everything could be checked (UNKNOWN or skipped above): do not rely on this certificate."
            return (
                "The bounds follow from the returns, but the returns may be invented: episodes were not rerun, or not "
                "compared with fresh ones."
            )
        if self.miss_one == 0:
            return "Every episode was rerun: no recorded return is forged."
        assert self.miss_one is not None
        assert self.miss_least is not None
        return (
            f"If one block ({self.block_episodes:,} episodes) had been forged, and everything else made to agree, this "
            f"check would have missed it with probability {self.miss_one:.2g}. A forgery that raises a bound by more "
            f"than 1% needs at least {self.forged_blocks:,} of the {self.blocks:,} blocks, and would have been missed "
            f"with probability {self.miss_least:.2g} (--blocks all: 0)."
        )

    @property
    def fresh_bounds(self) -> str:
        """What the fresh episodes prove by themselves, which limits what they can have missed, in words."""
        if self.fresh is None:
            return ""
        pairs = zip(self.fresh["lower"], self.fresh["budgets"], strict=True)
        # Rounded down: a bound is never shown above what is proved.
        shown = ", ".join(f"{math.floor(lower * 100) / 100:.2f} at {budget:.4g}" for lower, budget in pairs)
        return (
            f"The {self.fresh['n_episodes']:,} fresh episodes prove by themselves, with confidence "
            f"{self.fresh['confidence']:g}, a mean of at least: {shown} (budgets as those of an episode). What a "
            "certificate claims beyond that they may have missed."
        )

    def judge(self, name: str, problems: list[str], good: str) -> None:
        """Add one check: failed, with the problems, or passed, with what was found."""
        if problems:
            self.note(name, FAILED, "; ".join(problems))
        else:
            self.note(name, PASSED, good)

    def note(self, name: str, result: str, detail: str) -> None:
        """Add a check with its result."""
        # A forged file may have a million things wrong, each as long as it likes.
        if len(detail) > MOST_LETTERS:
            detail = f"{detail[:MOST_LETTERS]}..."
        self.checks.append(CheckResult(name, result, detail))

    def to_json(self) -> dict[str, Any]:
        """Return the verification result as JSON data."""
        return {
            "schema": 1,
            "run": self.run,
            "verdict": self.verdict,
            "verified": self.verified,
            "bounds_recomputed": self.bounds_recomputed,
            "checks": [asdict(check) for check in self.checks],
            "replayed_blocks": self.replayed,
            "blocks": self.blocks,
            "sampling_seed": self.seed,
            "miss_one_forged_block": self.miss_one,
            "miss_least_forgery": self.miss_least,
            "fresh_episodes": self.fresh,
            "not_checked": self.not_checked,
        }
