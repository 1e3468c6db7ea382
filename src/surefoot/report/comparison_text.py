"""A comparison in words and as a table; every bound is rounded conservatively."""

from __future__ import annotations

import math

from surefoot.noise import noisy_channel
from surefoot.proof.comparison import Comparison
from surefoot.proof.rounding import count_decimals, format_exact, format_lower, format_percent, format_upper
from surefoot.report.certificate_text import assumed_returns, could_not_see

# Whoever reads of two agents may think of two algorithms.
NOT_ALGORITHMS = (
    "This is about these agents, not about the algorithms that trained them: another training run gives another "
    "agent. 'surefoot compare --runs' compares algorithms."
)
PAIRED_BY = {
    "seeds": "paired: both ran the same {n:,} episodes, with the same environment seeds and noise",
    "independent": "unpaired: {n:,} episodes each that share no random numbers",
    "unknown": "unpaired: nothing says which episodes of the two belong together",
}
# Of episodes that were run elsewhere nothing but the seed is known to be the same.
_PAIRED_BY_FILES = "paired: {n:,} episodes of both have the same seeds in their files"
_MOST_DECIMALS = 15


def describe_comparison(comparison: Comparison) -> str:
    """Return the result, what it assumes, the table, and what it does not say."""
    rows = [("attack budget", "A minus B", "why"), *difference_rows(comparison)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [state_result(comparison)]
    # Next to the claim, which does not hold without it.
    if assumed := state_assumption(comparison):
        lines.append(assumed)
    lines.append("")
    for budget, difference, why in rows:
        lines.append(f"{budget:>{widths[0]}}  {difference:>{widths[1]}}  {why}")
    lines.append("")
    if comparison.changes is not None:
        lines.append(describe_changes(comparison))
    lines += [smallest_difference(comparison), NOT_ALGORITHMS]
    if comparison.question.gate is not None:
        lines.append(state_gate(comparison))
    return "\n".join(lines)


def digits_of(comparison: Comparison) -> int:
    """Return decimals with which a proved order also reads as one, although bounds are rounded outward."""
    interval = comparison.interval
    digits = count_decimals(*comparison.limits, comparison.means[0])
    # Two digits of the resolution, so that rounding widens the interval by a tenth at most.
    if interval.resolution > 0:
        digits = max(digits, 1 - math.floor(math.log10(interval.resolution)))
    digits = min(digits, _MOST_DECIMALS)
    while digits < _MOST_DECIMALS and comparison.winner is not None:
        low = float(format_lower(interval.low, digits))
        high = float(format_upper(interval.high, digits))
        if low > 0 or high < 0:
            break
        digits += 1
    return digits


def state_result(comparison: Comparison) -> str:
    """Return the result in one or two sentences."""
    digits = digits_of(comparison)
    low = format_lower(comparison.interval.low, digits)
    high = format_upper(comparison.interval.high, digits)
    a, b = comparison.names
    found = f"mean return of A ({a}) minus that of B ({b}) is from {low} to {high}"
    with_confidence = f"with {format_percent(comparison.question.confidence)} confidence the"
    if comparison.winner is not None:
        return f"{comparison.winner} is better: {with_confidence} {found}."
    smallest = format_upper(comparison.interval.resolution, digits)
    return f"Not separated: {with_confidence} {found}; a difference below {smallest} is invisible with these episodes."


def state_assumption(comparison: Comparison) -> str:
    """Return what the user stated of the returns and nothing proves, as a sentence; empty if that is nothing."""
    assumed = assumed_returns(comparison.sides["A"].get("stated_by_user", ()), *comparison.limits)
    if not assumed:
        return ""
    return f"This assumes that {assumed} (stated by the user, not proved)."


def state_gate(comparison: Comparison) -> str:
    """Return what was to be proved, and whether it is."""
    return f"{'Passed' if comparison.passed else 'NOT passed'}: {comparison.question.gate}."


def smallest_difference(comparison: Comparison) -> str:
    """Return the smallest difference that these episodes could have shown, as a sentence."""
    what = "a difference of mean returns"
    return could_not_see(comparison.interval.resolution, comparison.n_pairs, what, digits_of(comparison))


def difference_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Return the table: budget, difference, and what it rests on."""
    digits = digits_of(comparison)
    low = format_lower(comparison.interval.low, digits)
    high = format_upper(comparison.interval.high, digits)
    side = comparison.sides["A"]
    paired = PAIRED_BY[comparison.pairing]
    if comparison.pairing == "seeds" and side.get("seed") is None:
        paired = _PAIRED_BY_FILES
    table = [("0", f"{low} to {high}", paired.format(n=comparison.n_pairs))]
    # What A's bounds hold against, by what of A has noise.
    channel = noisy_channel(side["sigma"], side.get("action_sigma", 0.0))
    attack = {"observations": "attack", "actions": "action attack"}.get(channel, f"attack on {channel}")
    how = "without attack" if comparison.attacked_by is None else f"under the attack {comparison.attacked_by}"
    for row in comparison.attacked:
        proof = (
            f"A at least {format_lower(row.lower, digits)} under any {attack}, B at most "
            f"{format_upper(row.upper, digits)} {how}, and so under its worst one"
        )
        table.append((format_exact(row.budget), f"at least {format_lower(row.at_least, digits)}", proof))
    return table


def describe_changes(comparison: Comparison) -> str:
    """Return how many paired episodes differ, and which ones most; empty where none are paired."""
    changes = comparison.changes
    if changes is None:
        return ""
    counted = f"A's return is higher in {changes.higher:,} episodes, lower in {changes.lower:,}, equal in "
    listed = []
    for name, a, b in changes.largest[:3]:
        listed.append(f"{name} ({a:g} and {b:g})")
    if not listed:
        return f"{counted}{changes.equal:,}."
    return f"{counted}{changes.equal:,}; the largest differences are in episodes {', '.join(listed)}."
