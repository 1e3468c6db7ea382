"""What is said about a certificate needs no more than this of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol


class Stated(Protocol):
    """What sentences need of a certificate, whether it was just made or read from its file."""

    @property
    def budgets(self) -> Iterable[float]:
        """The budgets asked for."""
        ...

    @property
    def lower(self) -> Iterable[float]:
        """One lower limit per budget."""
        ...

    @property
    def upper(self) -> Iterable[float] | None:
        """One upper limit per budget, or None."""
        ...

    @property
    def estimate(self) -> float:
        """The mean without attack."""
        ...

    @property
    def estimate_sem(self) -> float | None:
        """Its standard error."""
        ...

    @property
    def confidence(self) -> float:
        """Of all lower limits together."""
        ...

    @property
    def method(self) -> str:
        """How the limits were made."""
        ...

    @property
    def episodes(self) -> int:
        """How many there were."""
        ...

    @property
    def sigma(self) -> float:
        """The noise."""
        ...

    @property
    def floor(self) -> float:
        """Least return that the rules allow."""
        ...

    @property
    def ceiling(self) -> float | None:
        """Largest return that the rules allow, where known."""
        ...

    @property
    def choice(self) -> Mapping[str, Any] | None:
        """How the method was chosen, or why the run stopped, where either was left to the episodes."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the record, or the file, says about the setup."""
        ...
