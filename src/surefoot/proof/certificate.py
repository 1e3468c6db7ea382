"""What every certificate is: bounds on the mean return under attack, as data and as a file.

``Bounds``        lower and upper bound at one budget
``Certificate``   the base of the three kinds; reading, writing and showing them
``same_setup``    whether two results are about the same agent, task and noise
``common_fields`` what certificates of all kinds take from episodes
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import LIMITS, MOST_ASKED, Baseline, Episodes, checked_returns, mean_by_seed, names_limits
from surefoot.errors import InputError
from surefoot.files import number, numbers, read_json, untrusted, write_json
from surefoot.noise import budget_sigma, noisy_channel
from surefoot.proof.rounding import format_exact, rounded_lower, rounded_upper

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Floats = NDArray[np.float64]

CERTIFICATE_SCHEMA = 1
CERTIFICATE_FILES = ("certificate.json", "shared.json", "per-step.json")
_SETUP = ("task", "agent", "agent_sha256", "seed")
# What only some setups have.
_OPTIONAL_SETUP = """
gamma sigma_per_feature action_sigma stochastic stated_by_user draws_per_seed luck success features step_seconds
""".split()
_REQUESTED = ("norm", "mixed", "probabilities", "quantiles", "cvars")


@dataclass(frozen=True)
class Bounds:
    """Certified bounds at one attack budget; ``upper`` is None where the ceiling of the return is unknown.

    Example:
        >>> import surefoot
        >>> surefoot.Bounds(budget=0.2, lower=171.5, upper=None).lower
        171.5
    """

    budget: float
    lower: float
    upper: float | None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Certificate(ABC):
    """Bounds on the mean return of a smoothed agent under every attack of a kind; one subclass per kind.

    Attributes:
        budgets: The l2 budgets asked for, in the units of the observations; of the actions, where only they have noise;
            in standard deviations of the noise, where both have.
        lower: Certified lower bound on the expected return at each budget, rounded down.
        upper: Certified upper bound at each budget, rounded up, or None without a known ceiling.
        estimate: Mean return without attack: an estimate, never a bound.
        estimate_sem: Its standard error, or None for a single episode.
        confidence: That of all lower bounds simultaneously, and of all upper bounds simultaneously.
        method: How the bounds were computed.
        n_episodes: Number of episodes, those used to select a method included.
        sigma: Standard deviation of the noise on observations (the smallest, if it differs from feature to feature).
        floor: Lowest return that the rules allow.
        ceiling: Highest return that the rules allow, or None if unknown.
        metadata: What the episode data say about the setup: task, agent, seed and more.
        record_sha256: Hash of the episode data, setup included.
        requested: Budgets in another norm or for both channels, probabilities, quantiles and CVaR that were asked for,
            as JSON data.
        method_selection: How the method was selected, or why a sequential run stopped; None if fixed in advance.
        observed: The lowest and the highest return of the episodes; None when read from a file.

    Example:
        >>> import surefoot, tempfile
        >>> episodes = surefoot.Episodes.from_returns([200.0] * 1000, sigma=0.2, floor=0, ceiling=200)
        >>> path = surefoot.certify(episodes, [0.0, 0.2]).save(tempfile.mkdtemp())
        >>> certificate = surefoot.Certificate.load(path)
        >>> certificate.n_episodes, bool(certificate.at(0.1).lower == certificate.lower[1])
        (1000, True)
    """

    kind: ClassVar[str | None]
    file: ClassVar[str]
    per: ClassVar[str] = ""  # " per episode" where the mean over several episodes is bounded

    budgets: Floats
    lower: Floats
    upper: Floats | None
    estimate: float
    estimate_sem: float | None
    confidence: float
    method: str
    n_episodes: int
    sigma: float
    floor: float
    ceiling: float | None
    metadata: Mapping[str, Any]
    record_sha256: str = ""
    requested: Mapping[str, Any] = field(default_factory=dict)
    method_selection: Mapping[str, Any] | None = None
    observed: tuple[float, float] | None = None

    def at(self, budget: float) -> Bounds:
        """Return the bounds at any budget; of a certificate read from a file, those at the next larger budget listed.

        Raises:
            InputError: If the budget is larger than all that a file lists.
        """
        budget = checked_budget(budget)
        bounds = self._rounded_bounds([budget])
        if bounds is None:
            return self._listed_bounds(budget)
        lower, upper = bounds
        if upper is None:
            return Bounds(budget, float(lower[0]), None)
        return Bounds(budget, float(lower[0]), float(upper[0]))

    def at_each(self, budgets: Sequence[float]) -> tuple[list[float | None], list[float | None] | None] | None:
        """Return lower and upper bounds at many budgets as ``at`` gives them; None of one read from a file."""
        bounds = self._rounded_bounds(budgets)
        if bounds is None:
            return None
        lower, upper = bounds
        return lower.tolist(), None if upper is None else upper.tolist()

    @property
    def recomputable(self) -> bool:
        """Whether the bounds at any budget are known, not only those that a file lists."""
        return self._mean_bounds([0.0]) is not None

    @abstractmethod
    def _mean_bounds(self, budgets: Sequence[float]) -> tuple[Floats, Floats | None] | None:
        """Return lower and upper bounds before they are rounded, or None where the file alone is known."""

    def _rounded_bounds(self, budgets: Sequence[float]) -> tuple[Floats, Floats | None] | None:
        means = self._mean_bounds(budgets)
        if means is None or self.observed is None:
            return None
        # Outward, by more than all floating-point errors of what came before.
        lower = freeze_array(rounded_lower(means[0], self.floor, self.observed))
        if means[1] is None or self.ceiling is None:
            return lower, None
        return lower, freeze_array(rounded_upper(means[1], self.ceiling, self.observed))

    def _with_bounds(self) -> Self:
        """Return the certificate with its bounds at every budget."""
        # The same way as at any other budget, so that the file and ``at`` never differ.
        bounds = self._rounded_bounds(self.budgets.tolist())
        assert bounds is not None
        lower, upper = bounds
        return replace(self, lower=lower, upper=upper)

    def _listed_bounds(self, budget: float) -> Bounds:
        # A bound at a larger budget also holds at a smaller one: the next larger budget counts.
        for index in np.argsort(self.budgets, kind="stable"):
            if self.budgets[index] >= budget:
                lower = float(self.lower[index])
                if self.upper is None:
                    return Bounds(budget, lower, None)
                return Bounds(budget, lower, float(self.upper[index]))
        raise InputError(
            f"this certificate lists budgets up to {format_exact(self.budgets.max())}, got {format_exact(budget)}"
        )

    @property
    def action_sigma(self) -> float:
        """Standard deviation of the noise on actions; 0 where they have none."""
        return float(self.metadata.get("action_sigma", 0.0))

    @property
    def budget_sigma(self) -> float:
        """What budgets are divided by to be scaled ones."""
        return budget_sigma(self.sigma, self.action_sigma)

    @property
    def divided(self) -> str:
        """How perturbations of different units are put together, as the end of a clause; empty where they need not."""
        if self.sigma > 0 and self.action_sigma > 0:
            return ", each divided by the sigma of its noise"
        return ""

    @property
    def divided_inside(self) -> str:
        """The same in the middle of a clause."""
        return f"{self.divided}," if self.divided else ""

    @property
    def channel(self) -> str:
        """What the attacks perturb that the bounds hold against: what has noise."""
        return noisy_channel(self.sigma, self.action_sigma)

    def is_about(self, metadata: Mapping[str, Any], sigma: float) -> bool:
        """Return whether this setup has the same task, agent and noise as the certificate."""
        return same_setup({**self.metadata, "sigma": self.sigma}, {**metadata, "sigma": sigma})

    @property
    def max_steps(self) -> int | None:
        """Number of steps after which an episode is cut off; None if unknown."""
        return self.metadata.get("max_steps")

    @property
    def statement(self) -> str:
        """The certificate as a sentence, as its file has it."""
        # Here and below imported when it is shown: proofs do not depend on how they are described.
        from surefoot.report.certificate_text import certificate_statement

        return certificate_statement(self)

    @property
    @abstractmethod
    def attack_clause(self) -> str:
        """Which attacks the bounds hold against, as the relative clause of the statement."""

    @property
    def joint_clause(self) -> str:
        """What holds for lower and upper bounds jointly, as the end of the statement; empty if nothing is said."""
        return ""

    @property
    @abstractmethod
    def scope(self) -> str:
        """What a budget bounds, in words, with a place for the name of the norm."""

    @property
    @abstractmethod
    def scope_of_pairs(self) -> str:
        """The same of a pair of budgets, one for observations and one for actions."""

    def __str__(self) -> str:
        """Return the sentence, the table and the notes; every bound is rounded conservatively."""
        from surefoot.report.certificate_text import describe

        return describe(self)

    def __repr__(self) -> str:
        from surefoot.report.certificate_text import describe_briefly

        return describe_briefly(self)

    @abstractmethod
    def _own_json(self) -> dict[str, Any]:
        """Return the fields that only certificates of this kind have, as JSON data."""

    @classmethod
    @abstractmethod
    def _own_fields(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the same fields, read from JSON data."""

    def to_json(self) -> dict[str, Any]:
        """Return the certificate as strict JSON data; 'lower' and 'upper' are bounds, 'estimate' is not."""
        content: dict[str, Any] = {"schema": CERTIFICATE_SCHEMA}
        if self.kind is not None:
            content["kind"] = self.kind
        content |= self._own_json()
        for key in _SETUP:
            content[key] = self.metadata.get(key)
        upper = None
        if self.upper is not None:
            upper = self.upper.tolist()
        content |= {
            "sigma": self.sigma,
            "confidence": self.confidence,
            "n_episodes": self.n_episodes,
            "method": self.method,
            "record_sha256": self.record_sha256,
            "floor": self.floor,
            "ceiling": self.ceiling,
            "budgets": self.budgets.tolist(),
            "lower": self.lower.tolist(),
            "upper": upper,
            "estimate": self.estimate,
            "estimate_sem": self.estimate_sem,
        }
        content |= self.requested
        for key in _OPTIONAL_SETUP:
            if self.metadata.get(key) is not None:
                content[key] = self.metadata[key]
        if self.action_sigma > 0:
            content["channel"] = self.channel
        if self.max_steps is not None:
            content["max_steps"] = self.max_steps
        content["statement"] = self.statement
        return content

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Certificate:
        """Return the certificate that ``to_json`` wrote; its kind decides the subclass."""
        # Imported here: the kinds of certificates are built on this module.
        from surefoot.proof.threats import THREATS

        try:
            if content["schema"] != CERTIFICATE_SCHEMA:
                raise ValueError(f"schema {content['schema']}, expected {CERTIFICATE_SCHEMA}")
            kind = THREATS[content.get("kind")].certificate
            return kind(**_read_common_fields(content), **kind._own_fields(content))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"not a certificate that this version reads: {error}") from error

    @staticmethod
    def load(path: str | Path) -> Certificate:
        """Read a certificate's file, or the first one that a run's folder has."""
        # A run has at most one certificate of each kind; the usual one comes first.
        found = Path(path)
        if found.is_dir():
            files = [found / name for name in CERTIFICATE_FILES if (found / name).exists()]
            if not files:
                raise InputError(f"{found} has no certificate; expected one of {', '.join(CERTIFICATE_FILES)}")
            found = files[0]
        content = read_json(found)
        with untrusted(found, "certificate"):
            try:
                return Certificate.from_json(content)
            except InputError as error:
                raise InputError(f"{found}: {error}") from error
        raise AssertionError

    def save(self, path: str | Path) -> Path:
        """Write the certificate to a ``.json`` file, or into a folder in the file of its kind; return its path."""
        path = Path(path)
        if path.suffix != ".json" or path.is_dir():
            path = path / self.file
        write_json(path, self.to_json())
        return path

    def to_frame(self) -> DataFrame:
        """Return the budgets, in the norm they were asked for, and their bounds as a table of pandas.

        Raises:
            InputError: If pandas is not installed.
        """
        from surefoot.report.certificate_text import as_frame

        return as_frame(self)

    def plot(self, baseline: Baseline | None = None) -> Figure:
        """Draw the bounds over the budget and return the figure of matplotlib, which ``figure.savefig(path)`` saves.

        Args:
            baseline: Open-loop baseline to draw too, such as ``task.baseline``.

        Raises:
            InputError: If matplotlib is not installed.
        """
        try:
            from surefoot.report.certificate_figure import certificate_figure
        except ImportError as error:
            raise InputError("plot() needs matplotlib: pip install matplotlib") from error
        return certificate_figure(self, baseline)

    def _repr_html_(self) -> str:
        from surefoot.report.certificate_text import as_html

        return as_html(self)


def freeze_array(values: Floats) -> Floats:
    """Return the array, read-only from now on."""
    values.setflags(write=False)
    return values


def same_setup(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether both have the same task, steps, agent and noise; of agents without a hash nothing says so.

    Agents are never compared by name: all of CleanRL's have the same.
    """
    # A hash names one agent; the noise of every feature counts, not only the least. Only an attack with a budget per
    # step has a scope: it is compared with no certificate.
    keys = ("sigma", "sigma_per_feature", "action_sigma", "stochastic", "task", "agent_sha256", "scope")
    if not one.get("agent_sha256") or any(one.get(key) != other.get(key) for key in keys):
        return False
    # Episodes that are cut off earlier have other returns. Measured returns of others may not say where theirs are.
    limits = [facts["max_steps"] for facts in (one, other) if facts.get("max_steps") is not None]
    return len(limits) < 2 or limits[0] == limits[1]


def checked_episodes(episodes: Episodes, *, stopped: bool = False, by_seed: bool = False) -> Floats:
    """Return the returns of episodes that can be certified, or say why they cannot.

    Args:
        episodes: The episodes.
        stopped: Whether fewer episodes than planned will do: the method is valid at every stopping time.
        by_seed: Whether the method knows that episodes of one seed of the environment depend on each other.
    """
    if episodes.draws_per_seed > 1 and not by_seed:
        raise InputError(
            f"the episodes have {episodes.draws_per_seed} draws of the noise for each seed, so that they are not "
            "independent; they are certified against budgets for whole episodes by method='nested' alone"
        )
    if len(episodes) % episodes.draws_per_seed:
        raise InputError(f"{len(episodes)} returns are not a multiple of {episodes.draws_per_seed} draws per seed")
    if not stopped:
        episodes.check_complete()
    # The theorems start from the distribution of returns without attack, under the noise that is stated.
    if episodes.attacked:
        raise InputError("a certificate needs episodes without attack, got attacked episodes")
    if not (0 <= episodes.sigma < math.inf and episodes.noise.budget_sigma > 0):
        raise InputError(f"sigma must be > 0, got {episodes.sigma}: without noise nothing is certified")
    return checked_returns(episodes.returns, episodes.floor, episodes.ceiling)


def common_fields(
    episodes: Episodes,
    budgets: Sequence[float],
    confidence: float,
    *,
    stopped: bool = False,
    by_seed: bool = False,
) -> dict[str, Any]:
    """Check episodes and return the fields that all certificates of them have in common, without bounds.

    Args:
        episodes: The episodes.
        budgets: What was asked for.
        confidence: Likewise.
        stopped: Whether fewer episodes than planned will do.
        by_seed: Whether the method knows that episodes of one seed of the environment depend on each other.
    """
    returns = checked_episodes(episodes, stopped=stopped, by_seed=by_seed)
    metadata = dict(episodes.metadata)
    # Which limits the user stated is said only where there are any.
    metadata.pop("stated_by_user", None)
    if episodes.stated_by_user:
        metadata["stated_by_user"] = episodes.stated_by_user
    mean = float(returns.sum()) / returns.size
    standard_error = None
    independent, _ = mean_by_seed(returns, metadata)
    if independent.size > 1:
        squares = float(np.square(independent - mean).sum())
        standard_error = math.sqrt(squares / (independent.size - 1)) / math.sqrt(independent.size)
    ceiling = None
    if episodes.ceiling is not None:
        ceiling = float(episodes.ceiling)
    return {
        "budgets": freeze_array(np.array(budgets, dtype=np.float64)),
        # The bounds follow from the finished certificate: see _with_bounds.
        "lower": np.empty(0),
        "upper": None,
        "estimate": mean,
        "estimate_sem": standard_error,
        "confidence": float(confidence),
        "n_episodes": returns.size,
        "sigma": float(episodes.sigma),
        "floor": float(episodes.floor),
        "ceiling": ceiling,
        "metadata": metadata,
        "record_sha256": episodes.sha256,
        "observed": (float(returns.min()), float(returns.max())),
    }


def checked_budget(budget: float) -> float:
    """Return a budget as a float, or say why it is not one."""
    if not (math.isfinite(budget) and budget >= 0):
        raise InputError(f"a budget must be a finite number >= 0, got {budget}")
    return float(budget)


def _read_common_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that all certificates have, read from a file that may say anything."""
    budgets = _read_array(content["budgets"])
    lower = _read_array(content["lower"])
    upper = None
    if content["upper"] is not None:
        upper = _read_array(content["upper"])
    if not budgets.size or budgets.size != lower.size or (upper is not None and upper.size != budgets.size):
        raise ValueError("expected one lower and one upper bound per budget")
    if budgets.size > MOST_ASKED:
        raise ValueError(f"{budgets.size} budgets, expected at most {MOST_ASKED}")
    # Files of all kinds are read alike; what only one kind has is missing in others.
    selection = content.get("method_selection")
    return {
        "budgets": budgets,
        "lower": lower,
        "upper": upper,
        "estimate": number(content["estimate"]),
        "estimate_sem": _read_optional(content["estimate_sem"]),
        "confidence": number(content["confidence"]),
        "sigma": number(content["sigma"]),
        "floor": number(content["floor"]),
        "ceiling": _read_optional(content["ceiling"]),
        "method": str(content["method"]),
        "n_episodes": int(content["n_episodes"]),
        "metadata": _read_metadata(content),
        "record_sha256": str(content.get("record_sha256", "")),
        "requested": {key: content[key] for key in _REQUESTED if key in content},
        "method_selection": selection if isinstance(selection, Mapping) else None,
    }


def _read_metadata(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a certificate's file says about the setup."""
    if not names_limits(content.get("stated_by_user", [])):
        raise ValueError(f"expected stated_by_user to list some of {', '.join(LIMITS)}")
    metadata = {key: content[key] for key in (*_SETUP, *_OPTIONAL_SETUP) if content.get(key) is not None}
    if content.get("max_steps") is not None:
        metadata["max_steps"] = int(content["max_steps"])
    if "action_sigma" in metadata:
        metadata["action_sigma"] = number(metadata["action_sigma"])
    return metadata


def _read_array(values: Any) -> Floats:
    return freeze_array(np.array(numbers(values), dtype=np.float64))


def _read_optional(value: Any) -> float | None:
    return None if value is None else number(value)
