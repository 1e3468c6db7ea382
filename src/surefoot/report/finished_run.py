"""What a page is made of: a finished run as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from surefoot.episodes import Baseline, Episodes
from surefoot.proof.certificate import Certificate, same_setup
from surefoot.proof.rounding import count_decimals, format_noise
from surefoot.report.certificate_text import digits_for, headline_index

# What the budget of a measured attack bounds, unless it is a budget for each step.
ATTACK_SCOPE = "total l2 norm of the perturbations of one episode"

CHANNELS = ("observations", "actions")

# A recorded episode as its file has it: what it is of, and arrays.
Tape = tuple[Mapping[str, Any], Mapping[str, Any]]


def scope_words(scope: object, channel: str = "observations") -> str:
    """Return what the budgets of a measured attack bound.

    Args:
        scope: None, or a name as "linf per step".
        channel: What is attacked; of a budget per step only one can be.
    """
    if scope is None:
        return ATTACK_SCOPE
    norm = str(scope).removesuffix(" per step")
    return f"{norm} norm of the perturbation of each single {channel.removesuffix('s')}"


@dataclass(frozen=True, eq=False, kw_only=True)
class FinishedRun:
    """A run of ``certify`` or ``attack``."""

    name: str  # name of the run directory
    certificate: Certificate | None  # what is certified; None for an attack
    attack: Mapping[str, Any] | None  # content of ``attack.json``; None for a certificate
    # Episode data: one record for a certificate, one per budget (the strongest attack) for an attack.
    records: Sequence[Episodes]
    identity: Mapping[str, Any]  # task, agent, hash, seed and sigma per feature, as the files have them
    setup: Mapping[str, Any]  # content of ``setup.json``
    notes: Mapping[str, Any]  # content of ``run.json``
    tape: Tape | None  # one episode, step by step, to look at
    digests: Mapping[str, str]  # SHA-256 of the files, by name
    baseline: Baseline | None  # the task's open-loop baseline, where the run knew one

    @property
    def proved(self) -> Certificate:
        """The certificate of a run that has one."""
        assert self.certificate is not None
        return self.certificate

    @property
    def measured(self) -> Mapping[str, Any]:
        """What a run of ``attack`` measured."""
        assert self.attack is not None
        return self.attack

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise."""
        if self.certificate is not None:
            return self.certificate.sigma
        return float(self.measured["sigma"])

    @property
    def action_sigma(self) -> float:
        """Standard deviation of the noise on actions."""
        if self.certificate is not None:
            return self.certificate.action_sigma
        return float(self.measured.get("action_sigma", 0.0))

    @property
    def channel(self) -> str:
        """What the run is about attacks on: "observations", "actions" or "observations and actions"."""
        if self.certificate is not None:
            return self.certificate.channel
        # The file may be somebody else's, and say anything.
        attacked = str(self.measured.get("channels"))
        return " and ".join(name for name in CHANNELS if name in attacked) or CHANNELS[0]

    @property
    def noise(self) -> str:
        """The noise in words."""
        return format_noise(self.sigma, self.action_sigma)

    @property
    def digits(self) -> int:
        """Decimals with which the numbers of the run are shown."""
        if self.certificate is not None:
            return digits_for(self.certificate)
        # A setup is a file of others: a floor that is no number is taken as unknown.
        floor = self.setup.get("floor")
        known_floor = float(floor) if isinstance(floor, int | float) else 0.0
        return count_decimals(known_floor, self.setup.get("ceiling"), max(self.measured["curve"]))

    @property
    def required(self) -> float | None:
        """The budget of the requirement that the run was for, if there was one."""
        found = self.notes.get("required_budget")
        return float(found) if isinstance(found, int | float) else None

    @property
    def headline_index(self) -> int:
        """Which of the certificate's budgets its sentence is about."""
        return headline_index(self.proved, self.required, self.baseline)

    def is_about(self, identity: Mapping[str, Any], sigma: Any) -> bool:
        """Return whether these files are about the same agent in the same task with the same noise."""
        return same_setup({**self.identity, "sigma": self.sigma}, {**identity, "sigma": sigma})

    def matches(self, other: FinishedRun) -> bool:
        """Return whether another run is about the same agent in the same task with the same noise."""
        return self.is_about(other.identity, other.sigma)
