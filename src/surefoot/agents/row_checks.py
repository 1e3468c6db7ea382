"""Whether an agent answers every row by itself: rows are asked again, alone and in other company.

Rows are episodes that run in parallel, and a deployed agent has one. Which rows are asked again, with how many others
and with which, comes from the operating system, so that no agent can be made for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.agents.own_randomness import restored
from surefoot.errors import DependentRowsError, is_out_of_memory

# Maps parts that have a row per episode each, or are None, to a row of numbers per episode.
Ask = Callable[..., Tensor]
Parts = Sequence[Tensor | None]
Numbers = NDArray[np.floating[Any]]

# Rows that are asked one at a time.
ALONE = 2
# Rows that are looked into, of those that were answered differently.
SUSPECTS = 8
COPIES = 64
# A row that rounding sends to another answer is answered both ways if it is moved by one of these, relative to its
# size. The larger ones are for agents in half precision, and for convolutions on a GPU.
MOVES = (1e-5, 1e-3, 1e-2)
WAY_OUT = (
    "at random, from a memory of its own, or by the other rows; make it answer each row by itself, in evaluation mode; "
    "if it draws random numbers, declare that: stochastic=True"
)


def unforeseeable() -> np.random.Generator:
    """Return random numbers that have nothing to do with the run's seed."""
    return np.random.default_rng()


def numbers_of(action: Tensor, n_actions: int | None) -> Tensor:
    """Return actions as rows of numbers that can be compared: one-hot where they are discrete."""
    if n_actions is None:
        return action.flatten(1)
    return torch.nn.functional.one_hot(action, n_actions)


def check_row_answers(
    ask: Ask,
    parts: Parts,
    together: Tensor,
    random: np.random.Generator,
    *,
    sizes: Sequence[int],
    where: str = "",
    noisy: Tensor | None = None,
) -> None:
    """Raise DependentRowsError if rows are answered differently in other company, by more than rounding explains.

    Args:
        sizes: Numbers of rows of the groups that are asked again, besides single rows.
        noisy: Which features of an observation have noise; None if all have.
    """
    # What an agent draws that is not declared stochastic must not change the run.
    with restored(), torch.no_grad():
        spread = spread_of(together[:100])
        for rows in _groups(len(together), sizes, random):
            company = "alone" if len(rows) == 1 else f"among {len(rows)}"
            before = together[rows.to(together.device)]
            again = _ask_again(ask, _take_rows(parts, rows), len(rows), company, where)
            row = first_differing(ask, parts, rows, (before, again), spread, random, noisy)
            if row is not None:
                raise DependentRowsError(
                    f"the agent answers the same observation differently among {len(together)} rows and {company} "
                    f"({where}row {row}): {WAY_OUT}"
                )


def _ask_again(ask: Ask, parts: Parts, n_rows: int, company: str, where: str) -> Tensor:
    """Return the answers; what answered before and fails now does not answer each row by itself."""
    try:
        answers = ask(*parts)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise DependentRowsError(
            f"the agent answers all rows together, but not {company} ({where}{reason}): {WAY_OUT}"
        ) from error
    if len(answers) != n_rows:
        raise DependentRowsError(
            f"the agent answers {len(answers)} rows when it is asked {company} ({where}expected {n_rows}): {WAY_OUT}"
        )
    return answers


def first_differing(
    ask: Ask,
    parts: Parts,
    rows: Tensor,
    answers: tuple[Tensor, Tensor],
    spread: Numbers,
    random: np.random.Generator,
    noisy: Tensor | None = None,
) -> int | None:
    """Return a row that was given two answers that rounding does not explain; None if there is none.

    Arguments are as for ``check_row_answers``; ``rows`` were asked twice, and ``spread`` is how much each number of the
    answers varies over rows: an offset that all rows share must not hide what decides.
    """
    one = _answers_as_array(answers[0])
    other = _answers_as_array(answers[1])
    suspects = np.flatnonzero((np.abs(one - other) > 1e-3 * spread + 1e-5 * np.abs(one)).any(axis=1))
    for suspect in random.permutation(suspects)[:SUSPECTS]:
        row = rows[suspect : suspect + 1]
        if not _is_near_tie(ask, parts, row, (one[suspect], other[suspect]), spread, random, noisy):
            return int(row)
    return None


def spread_of(answers: Tensor) -> Numbers:
    """Return how much each number of the answers varies over the rows."""
    return np.asarray(np.ptp(_answers_as_array(answers), axis=0))


def _answers_as_array(answer: Tensor) -> Numbers:
    if answer.dtype != torch.float64:
        answer = answer.float()
    numbers: Numbers = answer.detach().cpu().numpy()
    return numbers


def _groups(count: int, sizes: Sequence[int], random: np.random.Generator) -> Iterator[Tensor]:
    """Yield numbers of rows to ask again."""
    for _ in range(ALONE):
        yield torch.from_numpy(random.integers(count, size=1))
    for size in sizes:
        group = random.integers(count, size=size)
        # A random share are copies of one row, so that means and sums over the rows are not what they were.
        group[random.random(size) < random.random()] = group[0]
        yield torch.from_numpy(group)


def _take_rows(parts: Parts, rows: Tensor) -> list[Tensor | None]:
    return [None if part is None else part[rows.to(part.device)] for part in parts]


def _is_near_tie(
    ask: Ask,
    parts: Parts,
    row: Tensor,
    answers: Sequence[Numbers],
    spread: Numbers,
    random: np.random.Generator,
    noisy: Tensor | None,
) -> bool:
    """Return whether a row, moved by next to nothing and asked alone, is answered both ways, as few others are.

    Features without noise stay: an agent could tell by them that a row was moved, and answer such rows both ways.
    """
    sizes = [None if part is None else part.double().abs().mean(dim=0) for part in parts]

    def moved_parts(given: Parts, move: float) -> Parts:
        return [_move_part(part, size, move, random, noisy) for part, size in zip(given, sizes, strict=True)]

    def ask_alone(given: Parts) -> Numbers:
        answer: Numbers = _answers_as_array(ask(*given))[0]
        return answer

    own = _take_rows(parts, row)
    try:
        for move in MOVES:
            copies = np.stack([ask_alone(moved_parts(own, move)) for _ in range(COPIES)])
            low, high = np.quantile(copies, (0.1, 0.9), axis=0, method="inverted_cdf")
            largest = np.abs(copies).max(axis=0)
            slack = 1e-3 * spread + 1e-5 * largest
            if not all(((low - slack <= answer) & (answer <= high + slack)).all() for answer in answers):
                continue
            # What is answered both ways everywhere is no tie: it would excuse every difference.
            others = [moved_parts(own, 30 * move) for _ in range(COPIES)]
            far = 0.1 * np.where(spread > 0, spread, largest) + slack
            alike = []
            for other in others:
                difference = np.abs(ask_alone(other) - ask_alone(moved_parts(other, move)))
                alike.append(bool((difference <= far).all()))
            if np.mean(alike) >= 0.9:
                return True
    except Exception:
        # An agent may reject observations that are made up; then nothing speaks for it.
        return False
    return False


def _move_part(
    part: Tensor | None, size: Tensor | None, move: float, random: np.random.Generator, noisy: Tensor | None
) -> Tensor | None:
    if part is None or size is None or not part.is_floating_point():
        return part
    step = torch.from_numpy(random.standard_normal(part.shape)).to(part.device)
    # Observations, and stacks of them, end with the axes of one; a memory of the agent's own does not.
    if noisy is not None and part.shape[-noisy.dim() :] == noisy.shape:
        step = step * noisy
    return part + (move * step * (part.abs() + size)).to(part.dtype)
