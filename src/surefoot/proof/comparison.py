"""What the episodes of two agents prove about their difference, without attack and under the worst one.

Without attack: an interval for E X - E Y (``proof.difference``).

Under attack: write W(b) for the expected return of a smoothed agent under the worst attack with budget b, the infimum
over all attackers. Let l(b) and u be bounds with P(l(b) > W_A(b) for any b) <= alpha' and P(u < E[Y']) <= alpha', where
Y' is the return of B without attack, or under an attack with budget b' <= b. The attacker who does nothing is one of
B's attackers, and so is the one that was run, so W_B(b) <= E[Y'] <= u. Hence W_A(b) - W_B(b) >= l(b) - u at all budgets
at once, with probability 1 - 2 alpha'. Nothing is needed from B's noise: B may be undefended.
But both budgets must count alike: where features have sigmas of their own, what is done to feature i counts divided by
sigma_i / sigma, and an attack on B within b' must be within b as A's budgets count.

Alpha: all of it for the interval where no budget is asked for. Else half for the interval and a quarter for each of l
and u, so that the whole table holds with the confidence asked for (union bound). With ``anytime`` bounds all of that
holds at every number of episodes at once, and the run may stop whenever and for whatever reason.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import MOST_ASKED, Episodes
from surefoot.errors import InputError
from surefoot.files import number, read_json, untrusted
from surefoot.noise import Noise
from surefoot.proof.bounds.samples import Sample
from surefoot.proof.certificate import checked_budget
from surefoot.proof.difference import Interval, Pairs, difference_interval, pair_up, rounded_interval
from surefoot.proof.planning.bettors import PLANNER_VERSION
from surefoot.proof.planning.proposals import plug_in_means
from surefoot.proof.planning.strategies import Bets, worst_means
from surefoot.proof.query import check_confidence
from surefoot.proof.rounding import (
    format_exact,
    format_lower,
    format_noise,
    format_upper,
    rounded_lower,
    rounded_upper,
)
from surefoot.proof.stopping import StoppingMonitor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

COMPARISON_FILE = "comparison.json"
COMPARISON_SCHEMA = 1
MOST_CHANGES = 10  # changed episodes that are named
PAIRINGS = ("seeds", "independent", "unknown")
_FEWEST_EPISODES = 1_000  # before which nothing is given up
_HOPELESS_GAP = 4.0  # in standard errors of B's mean


@dataclass(frozen=True)
class Gate:
    """What must be proved of A against B; ``margin`` is None where A must be better.

    >>> Gate(5.0).is_met(-4.2), Gate(None).is_met(0.0)
    (True, False)
    """

    margin: float | None

    def __post_init__(self) -> None:
        if self.margin is not None and not (math.isfinite(self.margin) and self.margin >= 0):
            raise InputError(f"margin must be a finite number >= 0, got {self.margin}")

    def is_met(self, at_least: float) -> bool:
        """Return whether a difference of at least so much is enough."""
        if self.margin is None:
            return at_least > 0
        return at_least >= -self.margin

    def is_refuted(self, at_most: float) -> bool:
        """Return whether a difference of at most so much is too little."""
        if self.margin is None:
            return at_most <= 0
        return at_most < -self.margin

    def __str__(self) -> str:
        if self.margin is None:
            return "A is better than B"
        return f"A is no worse than B by more than {format_exact(self.margin)}"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of two agents, fixed before the first episode."""

    confidence: float = 0.95  # that of the whole table
    budgets: tuple[float, ...] = ()  # attack budgets above 0
    gate: Gate | None = None  # what must be proved, or None

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        if len(self.budgets) > MOST_ASKED:
            raise InputError(f"expected at most {MOST_ASKED:,} budgets, got {len(self.budgets):,}")
        # The difference without attack is in every table.
        asked = {checked_budget(budget) for budget in self.budgets} - {0.0}
        object.__setattr__(self, "budgets", tuple(sorted(asked)))

    @property
    def alpha_without_attack(self) -> float:
        """The error probability of the interval without attack."""
        alpha = 1 - self.confidence
        return alpha / 2 if self.budgets else alpha

    @property
    def alpha_under_attack(self) -> float:
        """That of A's lower bounds, and again of B's upper bound."""
        return (1 - self.confidence) / 4

    def to_json(self) -> dict[str, Any]:
        """Return what is asked as JSON data."""
        gate = None if self.gate is None else {"margin": self.gate.margin}
        return {"confidence": self.confidence, "budgets": list(self.budgets), "gate": gate}


@dataclass(frozen=True)
class AttackedRow:
    """What holds at one budget: A has at least ``lower`` under any attack, B at most ``upper`` under its worst one."""

    budget: float
    lower: float
    upper: float

    @property
    def at_least(self) -> float:
        """By how much A is better than B under the worst attack on each, at least."""
        return self.lower - self.upper


@dataclass(frozen=True)
class Changes:
    """How often paired episodes differ, and the ones that differ most: (number or seed, A's return, B's return)."""

    higher: int
    lower: int
    equal: int
    largest: tuple[tuple[int, float, float], ...]

    @classmethod
    def of(cls, pairs: Pairs) -> Changes | None:
        """Count and list; None where episodes have nothing in common."""
        if not pairs.names:
            return None
        differences = pairs.differences
        largest = []
        for row in np.argsort(-np.abs(differences), kind="stable")[:MOST_CHANGES]:
            if differences[row] != 0:
                largest.append((pairs.names[row], float(pairs.a[row]), float(pairs.b[row])))
        return cls(
            int((differences > 0).sum()), int((differences < 0).sum()), int((differences == 0).sum()), tuple(largest)
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What episodes of two agents prove about their difference.

    >>> import surefoot
    >>> returns = {"A": [1, 1, 0, 1, 1, 1, 1, 1, 1, 1] * 10, "B": [0, 1, 0, 0, 1, 0, 1, 1, 0, 0] * 10}
    >>> known = {"sigma": 0.0, "floor": 0, "ceiling": 1, "binary": True, "episode_seeds": list(range(100))}
    >>> a, b = (surefoot.Episodes.from_returns(returns[side], **known) for side in "AB")
    >>> comparison = surefoot.compare(a, b)
    >>> comparison.winner, comparison.pairing, round(comparison.interval.low, 1)
    ('A', 'seeds', 0.4)

    Attributes:
        question: What was asked.
        names: The two agents, A first.
        interval: Of the difference of the mean returns without attack, A's minus B's.
        pairing: "seeds" where both ran the same episodes, "independent" where they share no random numbers, "unknown".
        means: Mean returns: estimates.
        n_episodes: Numbers of episodes.
        n_pairs: Number of pairs; of episodes of the shorter run where there are none.
        limits: Floor and ceiling of the return.
        attacked: What holds at each budget asked for.
        attacked_by: The attack on B under which its upper bound holds, or None without.
        changes: Which episodes differ; None where they have nothing in common.
        anytime: Whether all of that holds wherever the run stops.
        stopped: Why there are no more episodes; None if their number was fixed in advance.
        sides: What the files say of each agent's episodes: hash of the record and more.
        directory: The run directory, or None if nothing was written.
    """

    question: Question
    names: tuple[str, str]
    interval: Interval
    pairing: str
    means: tuple[float, float]
    n_episodes: tuple[int, int]
    n_pairs: int
    limits: tuple[float, float]
    attacked: tuple[AttackedRow, ...] = ()
    attacked_by: str | None = None
    changes: Changes | None = None
    anytime: bool = False
    stopped: str | None = None
    sides: Mapping[str, Mapping[str, Any]]
    directory: Path | None = None

    @property
    def winner(self) -> str | None:
        """ "A" or "B", whichever is proved to have the higher mean return without attack; None if neither is."""
        if self.interval.low > 0:
            return "A"
        if self.interval.high < 0:
            return "B"
        return None

    @property
    def passed(self) -> bool:
        """Whether what the gate asks for is proved, at budget 0 and at all budgets; True without a gate."""
        gate = self.question.gate
        if gate is None:
            return True
        return gate.is_met(self.interval.low) and all(gate.is_met(row.at_least) for row in self.attacked)

    def __str__(self) -> str:
        # Imported when it is shown, as what draws it: proofs do not depend on how they are described.
        from surefoot.report.comparison_text import describe_comparison

        return describe_comparison(self)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as strict JSON data."""
        changes = None
        if self.changes is not None:
            changes = {**vars(self.changes), "largest": [list(one) for one in self.changes.largest]}
        return {
            "schema": COMPARISON_SCHEMA,
            **self.question.to_json(),
            "names": list(self.names),
            "winner": self.winner,
            "passed": self.passed,
            "low": self.interval.low,
            "high": self.interval.high,
            "resolution": self.interval.resolution,
            "pairing": self.pairing,
            "means": list(self.means),
            "n_episodes": list(self.n_episodes),
            "n_pairs": self.n_pairs,
            "floor": self.limits[0],
            "ceiling": self.limits[1],
            "attacked": [vars(row) for row in self.attacked],
            "attacked_by": self.attacked_by,
            "changes": changes,
            "anytime": self.anytime,
            "stopped": self.stopped,
            "planner": PLANNER_VERSION,
            "sides": {name: dict(facts) for name, facts in self.sides.items()},
        }

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """Read ``comparison.json``, or the one in a run directory."""
        found = Path(path)
        if found.is_dir():
            found = found / COMPARISON_FILE
        content = read_json(found)
        with untrusted(found, "comparison"):
            try:
                return replace(_from_json(content), directory=found.parent)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                raise InputError(f"{found} is no comparison that this version reads: {error}") from error
        raise AssertionError

    def plot(self) -> Figure:
        """Draw the differences with their bounds and return the figure of matplotlib.

        Raises:
            InputError: If matplotlib is not installed.
        """
        try:
            from surefoot.report.certificate_figure import comparison_figure
        except ImportError as error:
            raise InputError("plot() needs matplotlib: pip install matplotlib") from error
        return comparison_figure(self)


def attack_name(attacker: Mapping[str, Any]) -> str:
    """Return what an attack is called in sentences: its name, or those of its two parts, direction and timing."""
    if "direction" not in attacker:
        return str(attacker.get("name"))
    return f"{attacker['direction'].get('name')} ({attacker['timing'].get('name')})"


def _from_json(content: Mapping[str, Any]) -> Comparison:
    if content["schema"] != COMPARISON_SCHEMA:
        raise ValueError(f"schema {content['schema']}, expected {COMPARISON_SCHEMA}")
    gate = content["gate"]
    if gate is not None:
        gate = Gate(None if gate["margin"] is None else number(gate["margin"]))
    question = Question(
        confidence=number(content["confidence"]), budgets=tuple(map(number, content["budgets"])), gate=gate
    )
    if [row["budget"] for row in content["attacked"]] != list(question.budgets):
        raise ValueError("the rows under attack are not those of the budgets")
    attacked = []
    for row in content["attacked"]:
        attacked.append(AttackedRow(number(row["budget"]), number(row["lower"]), number(row["upper"])))
    changes = content["changes"]
    if changes is not None:
        if len(changes["largest"]) > MOST_CHANGES:
            raise ValueError(f"{len(changes['largest'])} changed episodes are listed, expected at most {MOST_CHANGES}")
        largest = tuple((int(name), number(a), number(b)) for name, a, b in changes["largest"])
        changes = Changes(int(changes["higher"]), int(changes["lower"]), int(changes["equal"]), largest)
    if content["pairing"] not in PAIRINGS:
        raise ValueError(f"pairing {content['pairing']!r:.40}")
    a, b = content["names"]
    return Comparison(
        question=question,
        names=(str(a), str(b)),
        interval=Interval(number(content["low"]), number(content["high"])),
        pairing=content["pairing"],
        means=_two_numbers(content["means"]),
        n_episodes=(int(content["n_episodes"][0]), int(content["n_episodes"][1])),
        n_pairs=int(content["n_pairs"]),
        limits=(number(content["floor"]), number(content["ceiling"])),
        attacked=tuple(attacked),
        attacked_by=content["attacked_by"],
        changes=changes,
        anytime=bool(content["anytime"]),
        stopped=content["stopped"],
        sides={str(name): dict(facts) for name, facts in content["sides"].items()},
    )


def _two_numbers(found: Sequence[Any]) -> tuple[float, float]:
    first, second = found
    return number(first), number(second)


class Comparer(StoppingMonitor):
    """Answers a question, for a number of episodes fixed in advance or again and again while they come in."""

    def __init__(self, question: Question, a: Episodes, b: Episodes, *, anytime: bool = False) -> None:
        """Fix in advance what is asked.

        Args:
            question: What is asked.
            a: Any episodes of A's run: its setup is read, and not its returns.
            b: Any of B's.
            anytime: Whether bounds must hold wherever the run stops.

        Raises:
            InputError: If the two cannot be compared, or if A has no noise and budgets are asked for.
        """
        super().__init__()
        self.question = question
        self.pairing = pair_up(a, b).pairing
        assert a.ceiling is not None
        self.floor = a.floor
        self.ceiling = a.ceiling
        self.anytime = anytime
        divisor = a.noise.budget_sigma
        if question.budgets and not divisor > 0:
            raise InputError(f"A must have noise, got sigma {a.sigma:g}: without it nothing is certified under attack")
        if anytime and self.pairing == "unknown":
            raise InputError("a run that stops by itself needs two agents whose episodes belong together")
        self.scaled_budgets = [budget / divisor for budget in question.budgets]
        span = self.ceiling - self.floor
        half = question.alpha_without_attack / 2
        self._bets_above = Bets([0.0], half, -span, span)
        self._bets_below = Bets([0.0], half, -span, span)
        self._bets_on_a = None
        if question.budgets:
            each = question.alpha_under_attack
            self._bets_on_a = Bets(self.scaled_budgets, each, self.floor, self.ceiling)
            # On minus B's returns: a lower bound of their mean is an upper bound of B's.
            self._bets_on_b = Bets([0.0], each, -self.ceiling, -self.floor)

    @property
    def goal(self) -> dict[str, Any]:
        """What is asked, as JSON data."""
        return {"compare": self.question.to_json()}

    def _look(self, *returns: Floats) -> str | None:
        a = returns[0]
        b = returns[1]
        # Without an attack on B its upper bound is that of its plain episodes.
        attacked = returns[2] if len(returns) > 2 else b
        n = min(a.size, b.size)
        interval = self._anytime_interval(a[:n] - b[:n])
        rows = self._attacked_rows(a, attacked)
        self.so_far = f"A minus B from {format_lower(interval.low)} to {format_upper(interval.high)}"
        gate = self.question.gate or Gate(None)
        if self.question.gate is not None and gate.is_refuted(interval.high):
            return "refuted"
        separated = gate.is_met(interval.low) or (self.question.gate is None and interval.high < 0)
        if separated and all(gate.is_met(row.at_least) for row in rows):
            return "proved"
        if self._is_hopeless(a, attacked, gate):
            return "out of reach"
        return None

    def _is_hopeless(self, a: Floats, b: Floats, gate: Gate) -> bool:
        """Return whether the bounds under attack would not meet with many more episodes either, by estimates.

        It only ends the run; what is claimed does not depend on it. The plug-in value is biased up.
        """
        if not self.scaled_budgets or min(a.size, b.size) < _FEWEST_EPISODES:
            return False
        possible = float(plug_in_means(Sample.of(a), np.array(self.scaled_budgets[-1:]), self.floor)[0])
        return not gate.is_met(possible - float(b.mean()) + _HOPELESS_GAP * float(b.std()) / b.size**0.5)

    def _anytime_interval(self, differences: Floats) -> Interval:
        low = float(self._bets_above.after(differences).at(0.0))
        high = -float(self._bets_below.after(-differences).at(0.0))
        return rounded_interval(low, high, differences, self.ceiling - self.floor)

    def _attacked_rows(self, a: Floats, b: Floats) -> tuple[AttackedRow, ...]:
        if self._bets_on_a is None:
            return ()
        if self.anytime:
            lower = self._bets_on_a.after(a).at(self.scaled_budgets)
            upper = -float(self._bets_on_b.after(-b).at(0.0))
        else:
            each = self.question.alpha_under_attack
            lower = worst_means(a, self.scaled_budgets, each, self.floor, self.ceiling).at(self.scaled_budgets)
            upper = -float(worst_means(-b, [0.0], each, -self.ceiling, -self.floor).at(0.0))
        rounded = rounded_lower(lower, self.floor, (float(a.min()), float(a.max())))
        upper = float(rounded_upper(upper, self.ceiling, (float(b.min()), float(b.max()))))
        rows = zip(self.question.budgets, rounded.tolist(), strict=True)
        return tuple(AttackedRow(budget, bound, upper) for budget, bound in rows)

    def answer(
        self,
        a: Episodes,
        b: Episodes,
        attacked_b: Episodes | None = None,
        *,
        names: tuple[str | None, str | None] = (None, None),
        stopped: str | None = None,
    ) -> Comparison:
        """Return what these episodes prove.

        Args:
            a: A's episodes without attack.
            b: B's.
            attacked_b: B's under an attack, for its upper bound; by default those without.
            names: What the agents are called, where their episodes do not say it.
            stopped: Why there are no more episodes, in a run that stops by itself.
        """
        for one in (a, b):
            if not self.anytime:
                one.check_complete()
        if (self.question.budgets or attacked_b is not None) and a.attacked:
            raise InputError("A's episodes were attacked: bounds under any attack need episodes without")
        if self.question.budgets and b.attacked:
            raise InputError("B's episodes were attacked; give those without attack, and let compare run the attack")
        if attacked_b is not None:
            check_budgets_count_alike(a.noise, attacked_b.noise)
        pairs = pair_up(a, b)
        if self.anytime:
            interval = self._anytime_interval(pairs.differences)
        else:
            interval = difference_interval(pairs, self.question.alpha_without_attack)
        under = b if attacked_b is None else attacked_b
        sides = {"A": side_facts(a), "B": side_facts(b)}
        if attacked_b is not None:
            sides["B-attacked"] = side_facts(attacked_b)
        return Comparison(
            question=self.question,
            names=(names[0] or describe_side(a, "A"), names[1] or describe_side(b, "B")),
            interval=interval,
            pairing=pairs.pairing,
            means=(float(pairs.a.mean()), float(pairs.b.mean())),
            n_episodes=(len(a), len(b)),
            n_pairs=pairs.size,
            limits=(self.floor, self.ceiling),
            attacked=self._attacked_rows(a.returns, under.returns),
            attacked_by=None if attacked_b is None else attack_name(attacked_b.metadata.get("attacker") or {}),
            changes=Changes.of(pairs),
            anytime=self.anytime,
            stopped=stopped,
            sides=sides,
        )


def check_budgets_count_alike(a: Noise, b: Noise) -> None:
    """Refuse an attack on B that may do more to some feature, with the same budget, than A's budgets allow."""
    n_features = max(len(a.features or ()), len(b.features or ()))
    allowed, used = (_relative_sigmas(noise, n_features) for noise in (a, b))
    if any(more > most for more, most in zip(used, allowed, strict=True)):
        raise InputError(
            "an attack on B may change some features more than budgets of A count: with a sigma per feature, give both "
            "agents sigmas in the same proportion, or leave attack= out"
        )


def _relative_sigmas(noise: Noise, n_features: int) -> list[float]:
    """Return what a budget of 1 buys of each feature."""
    if noise.features is None:
        return [1.0] * n_features
    return [sigma / noise.sigma for sigma in noise.features]


def side_facts(episodes: Episodes) -> dict[str, Any]:
    """Return what a comparison's file says of the episodes of one agent."""
    keys = ("task", "agent", "agent_sha256", "seed", "attacker", "budget")
    known = {key: episodes.metadata.get(key) for key in keys}
    stated = [name for name in episodes.stated_by_user if name in ("floor", "ceiling")]
    noise = {"sigma": episodes.sigma}
    if episodes.noise.action_sigma > 0:
        noise["action_sigma"] = episodes.noise.action_sigma
    return {**known, **noise, "stated_by_user": stated, "record_sha256": episodes.sha256}


def describe_side(episodes: Episodes, default: str) -> str:
    """Return what an agent is called in sentences."""
    name = str(episodes.metadata.get("agent") or default)
    if episodes.attacked:
        return f"{name}, attacked with budget {episodes.metadata.get('budget')}"
    # Of returns of others nothing is known of noise, and nothing is asked.
    if not isinstance(episodes.metadata.get("block_size"), int):
        return name
    noise = episodes.noise
    if noise.budget_sigma == 0:
        return f"{name}, undefended"
    return f"{name}, {format_noise(noise.sigma, noise.action_sigma)}"
