"""Whether the returns of a run look like independent episodes: what a certificate assumes and a record can refute.

The null hypothesis is that all returns are independent with one distribution. Then swapping two of them changes no
probability, so the differences of two groups of returns, taken pair by pair, have random signs whatever the
distribution is. For differences d_1, ..., d_m let z^2 = (sum d)^2 / sum d^2. Given their sizes, z is a sum of random
signs with weights whose squares sum to 1, hence E exp(s z^2) <= (1 - 2s)^(-1/2) for 0 <= s < 1/2, as for a squared
standard normal variable. For P such pairs of groups with disjoint returns, Chernoff's bound gives, for q > P,

    P(sum of the z^2 >= q) <= exp(-(q - P - P log(q / P)) / 2).

It holds for every number of episodes and every distribution: no honest run is rejected more often than ``ALARM``.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import MOST_BLOCKS, Episodes, mean_by_seed
from surefoot.errors import InputError
from surefoot.files import is_count

ALARM = 1e-6  # an honest run is rejected with at most this probability, however it was stopped
AGREEMENT = 1e-12  # two blocks that agree with a smaller probability are one block twice
Returns = NDArray[np.float64]


def check_independence(episodes: Episodes) -> None:
    """Raise InputError if blocks repeat each other, or returns depend on each other beyond chance."""
    # Episodes of one seed depend on each other, and these means do not.
    returns, block = mean_by_seed(episodes.returns, episodes.metadata)
    found = repeated_blocks(returns, block)
    if found:
        raise InputError(
            f"{found[0]} in every return, so that there are fewer independent episodes than {len(episodes)}: the "
            "environment or the agent draws from a generator that processes share; seed all randomness from "
            "reset(seed), as self.np_random is"
        )
    # An attacker may learn from one episode to the next.
    found = [] if episodes.attacked else dependent_returns(returns, {**episodes.metadata, "block_size": block})
    if found:
        raise InputError(
            f"the episodes are not independent: {found[0]}; the environment or the agent keeps something from one "
            "episode to the next; start afresh at every reset, and draw all randomness from self.np_random"
        )


def repeated_blocks(returns: Returns, block: Any) -> list[str]:
    """Find blocks that agree in every return although such agreement has a probability below ``AGREEMENT``."""
    if not is_count(block):
        return []
    if -(-returns.size // block) > MOST_BLOCKS:
        return [f"{returns.size} episodes in blocks of {block} are more than {MOST_BLOCKS} blocks"]
    seen: dict[bytes, int] = {}
    twins = []
    for index, begin in enumerate(range(0, returns.size, block)):
        digest = hashlib.sha256(returns[begin : begin + block].tobytes()).digest()
        if seen.setdefault(digest, index) != index:
            twins.append((index, seen[digest], begin))
    if not twins:
        return []
    values, counts = np.unique(returns, return_counts=True)
    surprise = -np.log(counts / returns.size)
    if surprise.max() * block <= -math.log(AGREEMENT):
        return []
    found = []
    for index, first, begin in twins:
        place = np.searchsorted(values, returns[begin : begin + block])
        if surprise[place].sum() > -math.log(AGREEMENT):
            found.append(f"block {index} repeats block {first}")
    return found


def dependent_returns(returns: Returns, setup: Any) -> list[str]:
    """Return in which ways returns depend on each other beyond chance; nothing where the setup does not say how to ask.

    Three questions with a third of ``ALARM`` each: whether blocks differ, whether copies of the environment differ
    within blocks, and whether the later episodes of copies differ from the earlier ones. A share of 1 / (G (G + 1))
    for G whole blocks makes it valid for runs that were stopped because of their returns too.
    """
    block = setup.get("block_size")
    slots = setup.get("n_envs")
    if not (is_count(block) and is_count(slots)) or block % slots or returns.size < 2:
        return []
    n_envs = min(slots, returns.size)
    size = min(block, returns.size // n_envs * n_envs)  # a run of less than one block may end within a turn
    n_blocks = returns.size // size
    # Episode k of a block is run by environment k mod n_envs: axes are blocks, turns, environments.
    table = returns[: n_blocks * size].reshape(n_blocks, size // n_envs, n_envs)
    n_turns = table.shape[1]
    level = ALARM / 3 / (n_blocks * (n_blocks + 1))
    # Along which axis the groups lie that are compared, and along which axes the returns of one pair of groups.
    questions: dict[str, tuple[int, tuple[int, ...]]] = {
        f"the {size} returns of a block resemble each other": (0, (1, 2)),
        f"the {n_turns} returns of one copy of the environment resemble each other": (2, (1,)),
        "the later returns of the copies of the environment differ from the earlier ones": (1, (0, 2)),
    }
    found = []
    for what, (axis, within) in questions.items():
        log_chance = _log_chance(_half_differences(table, axis), within)
        if log_chance < math.log(level):
            exponent = math.ceil(log_chance / math.log(10))
            found.append(f"{what}, which happens by chance with a probability of at most 1e{exponent}")
    return found


def log_chance_of_groups(table: Returns) -> float:
    """Return the logarithm of the probability, at most, with which groups (rows of a table) differ so by chance."""
    return _log_chance(_half_differences(table, 0), (1,))


def _half_differences(table: Returns, axis: int) -> Returns:
    """Return the differences of the first half along an axis and the second, entry by entry."""
    half = table.shape[axis] // 2
    first, second = (np.take(table, range(begin, begin + half), axis) for begin in (0, half))
    differences: Returns = first - second
    return differences


def _log_chance(differences: Returns, within: tuple[int, ...]) -> float:
    """Return the logarithm of Chernoff's bound; ``within`` are the axes along which differences are of one pair."""
    scale = np.abs(differences).max(initial=0.0)
    if scale == 0:
        return 0.0
    differences = differences / scale
    sums = differences.sum(axis=within)
    squares = (differences**2).sum(axis=within)
    differing = squares > 0  # groups that agree in every return say nothing, whatever the signs
    pairs = int(differing.sum())
    ratio = float((sums[differing] ** 2 / squares[differing]).mean())
    if ratio <= 1:
        return 0.0
    return -pairs / 2 * (ratio - 1 - math.log(ratio))
