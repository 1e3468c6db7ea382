"""What a run could not see: the smallest loss or difference that so many episodes could have shown.

Every certificate, comparison and attack says it in one sentence. "Nothing was found" means little without it.
"""

from __future__ import annotations

from surefoot.proof.rounding import format_upper


def could_not_see(smallest: float, n_episodes: int, what: str = "a loss of mean return", digits: int = 2) -> str:
    """Return the sentence: what is below the smallest visible loss or difference was not looked at by this run.

    >>> could_not_see(4.07, 100, "a difference")
    'What this run could not see: with 100 episodes a difference below 4.07 cannot be told from chance.'
    """
    return (
        f"What this run could not see: with {n_episodes:,} episodes {what} below {format_upper(smallest, digits)} "
        "cannot be told from chance."
    )
