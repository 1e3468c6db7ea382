"""Results of episodes, as an immutable record that can be saved.

Whatever runs episodes writes ``Episodes``, whatever proves reads them. Sigma is part of them, so that a certificate
cannot be computed with another noise than the one that was run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from surefoot.errors import InputError
from surefoot.files import extremes, is_count, read_npz, untrusted, write_npz
from surefoot.noise import Noise

EPISODES_SCHEMA = 1
# The arrays of a record, as attributes and in files; their names are part of its hash.
ARRAYS = {
    "returns": np.dtype(np.float64),
    "lengths": np.dtype(np.int64),
    "budget_used": np.dtype(np.float64),
    "budget_used_per_step": np.dtype(np.float64),
    "reward_values": np.dtype(np.float64),
    "reward_repeats": np.dtype(np.int64),
    "luck": np.dtype(np.float64),
}
# What a user may state of returns without a proof: the ends of a return, and the range of a reward.
LIMITS = ("floor", "ceiling", "reward_range")
LARGEST = 1e140  # of a return: sums of squares of larger ones leave the floats
# What one certificate may answer and one run may consist of; more takes hours, here and for whoever verifies it.
MOST_ASKED = 1_000  # budgets, thresholds, quantiles, or shares of a CVaR
MOST_BOUNDED = 25_000  # thresholds, quantiles and shares of a CVaR together, each at every budget
MOST_THRESHOLDS = 100_000  # of the method "per-threshold"
MOST_EPISODES = 10_000_000  # of a run, and returns of a file
MOST_BLOCKS = 200_000  # of a run
MOST_STEPS = 1_000_000  # of an episode
LONGEST_UNIT = 40  # letters
MOST_DRAWS = 100  # of the noise for one seed of the environment
MOST_FEATURES = 32  # that are recorded at reset
_LARGEST_FEATURE = 1e60  # its square, times a weight, is a float


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """The open-loop baseline: what the best known fixed sequence of actions reaches, under any observation attack."""

    mean: float  # estimated mean return
    sem: float  # its standard error
    n_episodes: int  # number of episodes it was measured on
    what: str  # the actions in words
    command: str  # the command that measures it

    def to_json(self) -> dict[str, Any]:
        """Return the baseline as ``run.json`` has it."""
        return asdict(self)


@dataclass(frozen=True, eq=False, repr=False)
class Episodes:
    """Outcomes of episodes that were fixed in advance and run to their ends.

    >>> from surefoot import Episodes
    >>> episodes = Episodes.from_returns([9.0, 200.0, 31.5], sigma=0.2, floor=0, ceiling=200)
    >>> episodes
    <3 episodes of given returns: sigma 0.2, mean return 80.1667, from 9 to 200>
    >>> len(episodes[:2])
    2

    Attributes:
        returns: Return of each episode, in the order that was fixed in advance.
        sigma: Standard deviation of the noise, in the units of the observations; where it differs from feature to
            feature, the smallest, and ``metadata["sigma_per_feature"]`` lists all. That of noise on actions is
            ``metadata["action_sigma"]``.
        floor: Lowest return that the rules allow, known before running.
        ceiling: Highest return that the rules allow, known before running, or None.
        lengths: Steps of each episode, or None if unknown.
        budget_used: l2 norm of the perturbations of each episode, or None without an attacker.
        metadata: Everything else that identifies the setup (task, agent, hash, seed, attacker, ...), as JSON data.
        budget_used_per_step: Squared perturbations at each step of an episode, summed over all episodes, or None.
        reward_values: Rewards by episode and step, equal ones in a row of one episode only once, or None.
        reward_repeats: How many steps in a row each of them was paid, or None.
        luck: What the environment had drawn at reset: a row of numbers for each episode, read before the first noise,
            or None. ``metadata["luck"]`` says which numbers.
        processors: Kind of processor that blocks were run on, and how many blocks in a row. It explains bits that
            differ; it is not part of the setup or of the hash.
    """

    returns: NDArray[np.float64]
    sigma: float
    floor: float
    ceiling: float | None = None
    lengths: NDArray[np.int64] | None = None
    budget_used: NDArray[np.float64] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    budget_used_per_step: NDArray[np.float64] | None = None
    reward_values: NDArray[np.float64] | None = None
    reward_repeats: NDArray[np.int64] | None = None
    luck: NDArray[np.float64] | None = None
    processors: tuple[tuple[str, int], ...] = ()

    @classmethod
    def from_returns(
        cls,
        returns: ArrayLike,
        *,
        sigma: float | Sequence[float],
        floor: float,
        ceiling: float | None = None,
        lengths: ArrayLike | None = None,
        action_sigma: float = 0.0,
        luck: ArrayLike | None = None,
        **metadata: Any,
    ) -> Episodes:
        """Make a record of precomputed returns, after checking them; ``luck`` has a row for each."""
        noise = Noise.of(sigma, action_sigma)
        known = None
        if luck is not None:
            known = np.array(luck, dtype=np.float64)
            metadata["luck"] = "given"
        return cls(
            returns=checked_returns(returns, floor, ceiling),
            sigma=noise.sigma,
            floor=float(floor),
            ceiling=None if ceiling is None else float(ceiling),
            lengths=None if lengths is None else np.array(lengths, dtype=np.int64),
            luck=known,
            metadata={**metadata, **noise.setup},
        )

    def __post_init__(self) -> None:
        # A frozen dataclass does not freeze what its arrays contain, and a certificate names their hash.
        for array in self._named_arrays().values():
            array.setflags(write=False)
        for name in ("lengths", "budget_used"):
            column = getattr(self, name)
            if column is not None and column.shape != self.returns.shape:
                raise InputError(f"{name} must have one entry per return ({self.returns.size}), got {column.shape}")
        if self.luck is not None:
            check_luck("luck", self.luck, self.returns.size)

    def __len__(self) -> int:
        return int(self.returns.size)

    def __repr__(self) -> str:
        names = [self.metadata.get("agent"), self.metadata.get("task")]
        about = " on ".join(str(name) for name in names if name)
        kind = ""
        if self.attacked:
            kind = f"attacked, budget {self.metadata.get('budget')}, "
        return (
            f"<{len(self):,} episodes of {about or 'given returns'}: {kind}sigma {self.sigma:g}, mean return "
            f"{self.returns.mean():.6g}, from {self.returns.min():.6g} to {self.returns.max():.6g}>"
        )

    def __getitem__(self, rows: slice) -> Episodes:
        """Return a run of episodes by position, without sums over all; never choose rows by their outcomes."""
        if not isinstance(rows, slice):
            raise InputError(f"episodes are cut with a slice, got {type(rows).__name__}; use .returns for numbers")
        return Episodes(
            returns=self.returns[rows].copy(),
            sigma=self.sigma,
            floor=self.floor,
            ceiling=self.ceiling,
            lengths=_copy_rows(self.lengths, rows),
            budget_used=_copy_rows(self.budget_used, rows),
            luck=_copy_rows(self.luck, rows),
            metadata=self.metadata,
            processors=self._processors_of(rows),
            **self._rewards_of(rows),
        )

    def _rewards_of(self, rows: slice) -> dict[str, NDArray[Any]]:
        """Return the rewards of neighboring episodes; none where rows are left out between them."""
        first, last, step = rows.indices(len(self))
        if self.reward_values is None or self.reward_repeats is None or self.lengths is None or step != 1:
            return {}
        n_steps = np.concatenate([[0], np.cumsum(self.lengths)])
        begin, end = np.searchsorted(np.cumsum(self.reward_repeats), n_steps[[first, max(first, last)]], side="right")
        return {
            "reward_values": self.reward_values[begin:end].copy(),
            "reward_repeats": self.reward_repeats[begin:end].copy(),
        }

    def _processors_of(self, rows: slice) -> tuple[tuple[str, int], ...]:
        """Return the processors of whole blocks; none where rows do not begin with a block."""
        first, last, step = rows.indices(len(self))
        block = self.metadata.get("block_size")
        if not self.processors or not is_count(block) or step != 1 or first % block:
            return ()
        each: list[str] = []
        for kind, count in self.processors:
            each += [kind] * count
        return _merge_runs((kind, 1) for kind in each[first // block : -(-last // block)])

    @property
    def noise(self) -> Noise:
        """The noise on observations and actions."""
        return Noise.of(self.metadata.get("sigma_per_feature", self.sigma), self.metadata.get("action_sigma", 0.0))

    @property
    def draws_per_seed(self) -> int:
        """How many episodes in a row have the same seed of the environment; 1 where each has its own."""
        n_draws = self.metadata.get("draws_per_seed", 1)
        if not is_count(n_draws) or n_draws > MOST_DRAWS:
            raise InputError(f"draws_per_seed must be a whole number from 1 to {MOST_DRAWS}, got {n_draws!r:.40}")
        return int(n_draws)

    @property
    def attacked(self) -> bool:
        """Whether the episodes were attacked."""
        return self.budget_used is not None or self.metadata.get("attacker") is not None

    @property
    def stated_by_user(self) -> list[str]:
        """Which of ``LIMITS`` the user stated and nothing proves; all, where Surefoot did not run the episodes."""
        known = {"floor": self.floor, "ceiling": self.ceiling, "reward_range": self.metadata.get("reward_range")}
        run_here = is_count(self.metadata.get("block_size"))
        stated = LIMITS
        # Whatever a file of returns says of itself, nothing here has proved it.
        if run_here:
            stated = self.metadata.get("stated_by_user", ())
        return [name for name in LIMITS if name in stated and known[name] is not None]

    def check_complete(self) -> None:
        """Reject a record with another number of episodes than planned; all methods but `sequential` need that.

        Raises:
            InputError: If the record says how many episodes were planned and has more or fewer.
        """
        planned = self.metadata.get("n_planned")
        if planned is not None and planned != len(self):
            raise InputError(
                f"the record has {len(self)} of {planned} planned episodes; if it was stopped because of its returns, "
                "only method='sequential' is valid; for other methods run all planned episodes"
            )

    @property
    def setup(self) -> dict[str, Any]:
        """What two records must agree on to be of the same experiment."""
        return {"sigma": self.sigma, "floor": self.floor, "ceiling": self.ceiling, **self.metadata}

    @property
    def sha256(self) -> str:
        """SHA-256 of the whole record: the setup, and every array with its name, shape and type.

        No two records have the same bytes: a JSON object says itself where it ends, no name of ``ARRAYS`` begins
        another, and shape and type fix the number of bytes. Other arrays would spoil that and are rejected.
        """
        digest = hashlib.sha256(json.dumps(self.setup, sort_keys=True, default=repr).encode())
        for name, array in sorted(self._named_arrays().items()):
            digest.update(f"{name}{array.shape}{array.dtype.str}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()

    def _named_arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {}
        for name in ARRAYS:
            array = getattr(self, name)
            if array is not None:
                arrays[name] = array
        return arrays

    @classmethod
    def concat(cls, parts: Sequence[Episodes]) -> Episodes:
        """Join records of one setup; records of different setups are refused."""
        if not parts:
            raise InputError("expected at least one record to join, got none")
        first = parts[0]
        for part in parts[1:]:
            # A bound is about one agent with one noise; a mixture of two has no setup to certify.
            if part.setup != first.setup:
                names = {*first.setup, *part.setup}
                differing = sorted(name for name in names if first.setup.get(name) != part.setup.get(name))
                raise InputError(f"records of mixed setups cannot be joined; they differ in {', '.join(differing)}")
        processors: tuple[tuple[str, int], ...] = ()
        # Those of some blocks alone would be taken for those of all.
        if all(part.processors for part in parts):
            processors = _merge_runs(chain.from_iterable(part.processors for part in parts))
        return cls(
            returns=np.concatenate([part.returns for part in parts]),
            sigma=first.sigma,
            floor=first.floor,
            ceiling=first.ceiling,
            lengths=_join_columns([part.lengths for part in parts]),
            budget_used=_join_columns([part.budget_used for part in parts]),
            budget_used_per_step=_sum_columns([part.budget_used_per_step for part in parts]),
            reward_values=_join_columns([part.reward_values for part in parts]),
            reward_repeats=_join_columns([part.reward_repeats for part in parts]),
            luck=_join_columns([part.luck for part in parts]),
            metadata=first.metadata,
            processors=processors,
        )

    def save(self, path: str | Path) -> None:
        """Write the record as one ``.npz`` (no pickle), whole or not at all."""
        header = {"schema": EPISODES_SCHEMA, **self.setup}
        if self.processors:
            header["processors"] = self.processors
        write_npz(Path(path), header, self._named_arrays())

    @classmethod
    def load(cls, path: str | Path) -> Episodes:
        """Read a record that ``save`` wrote."""
        header, arrays = read_npz(Path(path), "record of episodes", "returns")
        schema = header.pop("schema")
        if schema != EPISODES_SCHEMA:
            raise InputError(f"{path} has schema {schema}, this version reads {EPISODES_SCHEMA}")
        try:
            sigma = header.pop("sigma")
            floor = header.pop("floor")
            ceiling = header.pop("ceiling")
        except KeyError as error:
            raise InputError(f"{path} does not say its {error.args[0]}") from error
        if not (_is_number(sigma) and _is_number(floor) and (ceiling is None or _is_number(ceiling))):
            raise InputError(f"{path} must give sigma, floor and ceiling as numbers, got {sigma}, {floor}, {ceiling}")
        if not names_limits(header.get("stated_by_user", [])):
            raise InputError(f"{path} must list what the user stated of {', '.join(LIMITS)}")
        on_actions = header.get("action_sigma", 0.0)
        if not _is_number(on_actions):
            raise InputError(f"{path} must give action_sigma as a number, got {on_actions!r:.60}")
        noise = Noise.of(header.get("sigma_per_feature", sigma), on_actions)
        # Bounds use sigma and pages show the features: a file must not prove one noise and show another.
        if noise.sigma != sigma or noise.setup.get("sigma_per_feature") != header.get("sigma_per_feature"):
            raise InputError(f"{path} has sigma {sigma}, but sigma_per_feature {header.get('sigma_per_feature')}")
        if "action_sigma" in header and on_actions == 0:
            raise InputError(f"{path} has an action_sigma of 0, expected one above 0, or none")
        with untrusted(path, "record of episodes"):
            n_episodes = len(arrays["returns"])
            processors = _checked_processors(header.pop("processors", []), n_episodes, header.get("block_size"))
            check_arrays(path, arrays, header)
        returns = checked_returns(arrays.pop("returns"), floor, ceiling)
        return cls(
            returns=returns,
            sigma=noise.sigma,
            floor=floor,
            ceiling=ceiling,
            metadata=header,
            processors=processors,
            **arrays,
        )


def is_unit(text: Any) -> bool:
    """Return whether this may stand after a number as its unit: no part of the number itself, as 000 m or e3 m is."""
    if not isinstance(text, str) or len(text) > LONGEST_UNIT or not text.isprintable():
        return False
    is_word = text[:1].isalpha() or text[:1] in ("°", "%")
    return not text or (is_word and not re.match(r"[eE][-+]?\d", text))


def mean_by_seed(returns: NDArray[np.float64], setup: Mapping[str, Any]) -> tuple[NDArray[np.float64], Any]:
    """Return the mean return of each seed of the environment, and how many seeds a block has, as a setup says.

    Where every episode has a seed of its own, these are the returns and the size of a block.
    """
    n_draws = setup.get("draws_per_seed", 1)
    block = setup.get("block_size")
    if not is_count(n_draws) or n_draws == 1 or returns.size % n_draws:
        return returns, block
    if is_count(block):
        block //= n_draws
    return returns.reshape(-1, n_draws).mean(axis=1), block


def check_arrays(path: object, arrays: Mapping[str, NDArray[Any]], setup: Mapping[str, Any]) -> None:
    """Reject arrays of a file that are not declared, or have another type, shape or range than the setup says.

    ``arrays`` have their names in files, and ``returns`` is one of them; ``setup`` is what the file says of the run.
    """
    if strange := sorted(set(arrays) - set(ARRAYS)):
        raise InputError(f"{path} has unknown arrays: {', '.join(strange)}")
    max_steps = setup.get("max_steps")
    if not is_count(max_steps) and max_steps is not None:
        raise InputError(f"{path} has max_steps {max_steps!r:.40}, expected a whole number")
    shapes = _expected_shapes(path, arrays, setup)
    for name, array in arrays.items():
        if array.dtype != ARRAYS[name]:
            raise InputError(f"{path}: {name} must be {ARRAYS[name]}, got {array.dtype}")
        if array.shape != shapes[name]:
            raise InputError(f"{path}: {name} must have the shape {shapes[name]}, got {array.shape}")
    if "lengths" in arrays:
        shortest, longest = extremes(arrays["lengths"])
        if not 1 <= shortest <= longest <= (max_steps or math.inf):
            raise InputError(f"{path}: lengths must be from 1 to {max_steps or 'the longest episode'}")
    for name in ("budget_used", "budget_used_per_step"):
        if name in arrays and arrays[name].size:
            least, greatest = extremes(arrays[name])
            # The comparison is false for NaN too.
            if not 0 <= least <= greatest < math.inf:
                raise InputError(f"{path}: {name} must be finite numbers >= 0")
    if "reward_values" in arrays or "reward_repeats" in arrays:
        _check_rewards(path, arrays, setup)


def check_luck(what: str, luck: NDArray[Any], n_episodes: int) -> None:
    """Reject what is no row of some moderate numbers for each episode."""
    if luck.dtype != np.float64 or luck.ndim != 2 or len(luck) != n_episodes or not 1 <= luck.shape[1] <= MOST_FEATURES:
        raise InputError(
            f"{what} must be float64 with a row of 1 to {MOST_FEATURES} numbers for each of {n_episodes} episodes, got "
            f"{luck.dtype} of shape {luck.shape}"
        )
    # The comparison is false for NaN too.
    if luck.size and not -_LARGEST_FEATURE <= luck.min() <= luck.max() <= _LARGEST_FEATURE:
        raise InputError(f"{what} must be finite numbers of at most {_LARGEST_FEATURE:g}")


def _expected_shapes(
    path: object, arrays: Mapping[str, NDArray[Any]], setup: Mapping[str, Any]
) -> dict[str, tuple[int, ...]]:
    """Return the shape that each array must have."""
    n_episodes = len(arrays["returns"])
    max_steps = setup.get("max_steps")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("returns", "lengths", "budget_used"), (n_episodes,))
    if max_steps is not None:
        shapes["budget_used_per_step"] = (max_steps,)
    elif "budget_used_per_step" in arrays:
        # One number per step, of any number of steps.
        shapes["budget_used_per_step"] = arrays["budget_used_per_step"].shape[:1]
    # Luck that no setup names would be compared with no rerun.
    if ("luck" in arrays) != isinstance(setup.get("luck"), str):
        raise InputError(f"{path} must have an array luck if its setup says what luck is, and only then")
    if "luck" in arrays:
        check_luck(f"{path}: luck", arrays["luck"], n_episodes)
        shapes["luck"] = arrays["luck"].shape
    for name in ("reward_values", "reward_repeats"):
        if name in arrays:
            # One number per reward, of any number of rewards; as many repeats as values is checked with what they say.
            shapes[name] = arrays[name].shape[:1]
    return shapes


def _check_rewards(path: object, arrays: Mapping[str, NDArray[Any]], setup: Mapping[str, Any]) -> None:
    """Reject rewards that are not those of the episodes: outside of their range, or of other lengths."""
    reward_range: Any = setup.get("reward_range")
    is_known = isinstance(reward_range, list) and len(reward_range) == 2 and is_count(setup.get("max_steps"))
    if not is_known or "lengths" not in arrays:
        raise InputError(f"{path} has rewards, which need lengths, and max_steps and reward_range in the setup")
    values = arrays.get("reward_values", np.empty(0))
    repeats = arrays.get("reward_repeats", np.empty(0))
    if values.shape != repeats.shape or values.size == 0 or not np.all(repeats >= 1):
        raise InputError(f"{path}: every reward needs the number of steps in a row that it was paid")
    low, high = map(float, reward_range)
    least, greatest = extremes(values)
    # The comparison is false for NaN too.
    if not low <= least <= greatest <= high:
        raise InputError(f"{path}: rewards must be from {low:g} to {high:g}")
    if not np.isin(np.cumsum(arrays["lengths"]), np.cumsum(repeats)).all() or arrays["lengths"].sum() != repeats.sum():
        raise InputError(f"{path}: the rewards do not end where the episodes do")


def checked_returns(returns: ArrayLike, floor: float, ceiling: float | None) -> NDArray[np.float64]:
    """Return 1-D float64 read-only returns, or say what is wrong with them or with their limits."""
    check_return_limits(floor, ceiling)
    try:
        given = np.asarray(returns)
    except (TypeError, ValueError) as error:
        raise InputError(f"returns must be numbers, one per episode ({error})") from error
    # A complex number or a date would become a float in silence.
    if given.dtype.kind not in "buif":
        raise InputError(f"returns must be numbers, one per episode, got values of type {given.dtype}")
    if given.ndim != 1 or given.size == 0:
        raise InputError(f"returns must be a non-empty list, one number per episode, got shape {given.shape}")
    if given.size > MOST_EPISODES:
        raise InputError(f"expected at most {MOST_EPISODES:,} returns, got {given.size:,}; certify the first ones")
    # A copy: the caller may go on to change what was given.
    values = np.array(given, dtype=np.float64)
    least, greatest = extremes(values)
    # The extremes are NaN if any return is.
    if not (math.isfinite(least) and math.isfinite(greatest)):
        bad = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InputError(f"returns must be finite, got {values[bad]} at position {bad}")
    if least < floor:
        raise InputError(f"no return may be below the floor {floor:g}, got {least:g}; give the true floor")
    if ceiling is not None and greatest > ceiling:
        raise InputError(
            f"no return may be above the ceiling {ceiling:g}, got {greatest:g}; give the true ceiling, or none"
        )
    _check_size(greatest)
    return values


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def names_limits(found: Any) -> bool:
    """Return whether this is a list of names of ``LIMITS``, as files have it."""
    return isinstance(found, list) and all(name in LIMITS for name in found)


def check_return_limits(floor: float, ceiling: float | None) -> None:
    """Refuse limits of the return that are none."""
    if not math.isfinite(floor):
        raise InputError(f"floor must be a finite number, got {floor}")
    if ceiling is not None and not (math.isfinite(ceiling) and ceiling > floor):
        raise InputError(f"ceiling must be a finite number above the floor {floor}, got {ceiling}")
    _check_size(floor)
    if ceiling is not None:
        _check_size(ceiling)


def _check_size(value: float) -> None:
    if abs(value) > LARGEST:
        raise InputError(f"the range of the return is too large: expected at most {LARGEST:g}, got {value:g}")


def _copy_rows(column: NDArray[Any] | None, rows: slice) -> NDArray[Any] | None:
    return None if column is None else column[rows].copy()


def _join_columns(columns: Sequence[NDArray[Any] | None]) -> NDArray[Any] | None:
    present = [column for column in columns if column is not None]
    if not present:
        return None
    if len(present) != len(columns):
        raise InputError("some of the records have lengths, budgets used or rewards and others do not")
    return np.concatenate(present)


def _sum_columns(columns: Sequence[NDArray[np.float64] | None]) -> NDArray[np.float64] | None:
    present = [column for column in columns if column is not None]
    if not present or len(present) != len(columns):
        return None
    total: NDArray[np.float64] = np.sum(present, axis=0)
    return total


def _checked_processors(found: Any, n: int, block: Any) -> tuple[tuple[str, int], ...]:
    processors = tuple((str(kind), count) for kind, count in found)
    blocks = -(-n // block) if is_count(block) else 0
    counts = [count for _, count in processors]
    if processors and not (all(map(is_count, counts)) and blocks == sum(counts)):
        raise InputError(f"the processors must be those of all {blocks} blocks, got {found!r:.60}")
    return processors


def _merge_runs(processors: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Return kinds of processors with the numbers of their blocks, equal ones next to each other made one."""
    merged: list[tuple[str, int]] = []
    for kind, run in groupby(processors, key=itemgetter(0)):
        merged.append((kind, sum(count for _, count in run)))
    return tuple(merged)
