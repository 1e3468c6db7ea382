"""What agents of other makers answer to rows of observations, as the output of a policy's network.

A network, an exported file or a function may answer with actions or with one value per action, as tensors, arrays or
lists, alone or first of a tuple. Whatever else it answers is rejected with what was expected and what came.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.own_randomness import seeded, states
from surefoot.agents.policies import Policy, Spaces, listed
from surefoot.agents.row_checks import check_row_answers, first_differing, numbers_of, spread_of, unforeseeable
from surefoot.compute import all_finite
from surefoot.errors import InputError

# Rows of a trial, at most.
MOST_TRIAL_ROWS = 131
ObservationFunction = Callable[[NDArray[Any]], Any]


class CheckedOutput(nn.Module):
    """Something that answers rows of observations, as the network of a policy."""

    def __init__(self, inner: nn.Module, spaces: Spaces, *, ignores_draws: bool = False) -> None:
        """Wrap what answers.

        Args:
            ignores_draws: Whether what it draws at random is known not to change its answer.
        """
        super().__init__()
        self.inner = inner
        self.spaces = spaces
        self.ignores_draws = ignores_draws

    def forward(self, history: Tensor) -> Tensor:
        """Return values, one-hot rows for actions that were chosen, or continuous actions."""
        n_rows = len(history)
        n_actions = self.spaces.n_actions
        if self.spaces.n_stack == 1:
            history = history[:, 0]
        answer = self.inner(history)
        if n_actions is None:
            actions = _answer_tensor(answer, "return finite actions").to(history.device)
            return _check_continuous(actions, n_rows, self.spaces)
        wanted = f"choose an action from 0 to {n_actions - 1}"
        chosen = _answer_tensor(answer, wanted).to(history.device)
        chosen = _number_of_parts(chosen, n_rows, self.spaces)
        return _check_discrete(chosen, n_rows, n_actions, wanted)


class Function(nn.Module):
    """A plain Python function of one observation, or of rows of them where it is ``batched``, given as arrays."""

    def __init__(
        self, function: ObservationFunction, *, batched: bool, parts: tuple[tuple[str, int], ...] | None = None
    ) -> None:
        """Wrap a function that is given observations whose numbers are those of ``parts`` in turn."""
        super().__init__()
        self.function = function
        self.batched = batched
        self.parts = parts

    def forward(self, seen: Tensor) -> Any:
        """Ask the function once, or once for every row."""
        rows = seen.detach().cpu().numpy()
        try:
            if self.batched:
                return self.function(rows)
            return [_without_gradient(self.function(row)) for row in rows]
        except InputError as error:
            if self.parts is None:
                raise
            # Written for the environment's own dict, most likely.
            order = listed(self.parts)
            raise InputError(f"{error}; it is given one array, in this order the numbers of {order}") from error


def from_function(function: ObservationFunction, spaces: Spaces, *, batched: bool | None, stochastic: bool) -> Policy:
    """Turn a function into a policy after a trial: whether it takes rows of observations, and repeats its answers.

    A function that fails on made-up observations is not judged by them: unless ``batched`` says otherwise it is given
    one observation at a time.
    """
    # One observation at a time, and rows; what fails is not the function's way.
    ways = (False, True) if batched is None else (batched,)
    policies = {way: _function_policy(function, spaces, batched=way, stochastic=stochastic) for way in ways}
    seen = trial_rows(spaces)
    answers: dict[bool, Tensor] = {}
    for way, policy in policies.items():
        with suppress(Exception):
            answers[way] = trial_outputs(policy.network, seen)
    for way, answer in answers.items():
        check_repeats(policies[way], seen, answer)
    if not answers:
        return policies[bool(batched)]
    if len(answers) == 2:
        _check_both_ways(policies[False].network, seen, answers, stochastic)
    # Rows at once where that works: it is much faster.
    return policies[max(answers)]


def probe_policy(inner: nn.Module, spaces: Spaces, *, stochastic: bool, ignores_draws: bool = False) -> Policy:
    """Return the policy of a network of another maker, after a trial on made-up observations, or raise why not.

    Continuous actions are clipped to the environment's bounds.
    """
    network = CheckedOutput(inner, spaces, ignores_draws=ignores_draws)
    seen = trial_rows(spaces)
    policy = Policy(network, spaces, stochastic=stochastic)
    check_repeats(policy, seen, trial_outputs(network, seen))
    if stochastic:
        return replace(policy, differentiable=False)
    with torch.enable_grad():
        output = network(seen.requires_grad_())
    return replace(policy, differentiable=output.requires_grad)


def check_policy(policy: Policy) -> None:
    """Raise if a policy over a stack of observations answers differently than it says; see ``check_repeats``.

    One that fails on made-up observations is not judged by them.
    """
    if policy.open_loop or not policy.stacks_frames:
        return
    first_weights = next(policy.network.parameters(), torch.empty(0))
    seen = trial_rows(policy.spaces).to(first_weights.device)
    try:
        answer = trial_outputs(policy.network, seen)
    except Exception:
        return
    check_repeats(policy, seen, answer)


def trial_rows(spaces: Spaces) -> Tensor:
    """Return made-up stacks of observations, between -1 and 1: other ones, and another number of them, every time.

    Their number is not the length of another axis, so that rows cannot be taken for anything else.
    """
    shape = (spaces.n_stack, *spaces.shape)
    random = unforeseeable()
    counts = [count for count in range(101, MOST_TRIAL_ROWS + 1) if count not in (*shape, spaces.n_actions)]
    return torch.from_numpy(random.uniform(-1, 1, (random.choice(counts), *shape)).astype(np.float32))


def trial_outputs(network: nn.Module, seen: Tensor, *, seed: int = 0) -> Tensor:
    """Return what a network answers on a trial, with the global random generators seeded."""
    output, _ = _outputs_and_draws(network, seen, seed=seed)
    return output


def _outputs_and_draws(network: nn.Module, seen: Tensor, *, seed: int) -> tuple[Tensor, bool]:
    """Return what a network answers, and whether it has drawn from a global generator."""
    with warnings.catch_warnings(), seeded(np.random.SeedSequence(seed), seed), torch.no_grad():
        # Made-up observations may make an agent warn; real ones will warn again.
        warnings.simplefilter("ignore")
        before = states()
        answer: Tensor = network(seen)
        return answer, states() != before


def check_repeats(policy: Policy, seen: Tensor, answer: Tensor) -> None:
    """Raise if a policy answers the same rows differently, or one declared stochastic does so with the same seeds.

    Rows are asked again alone and in other company: what takes them for steps in time, or mixes them otherwise, answers
    differently too. What draws, but hardly ever lets that change its answer, is betrayed by the global generators.
    """
    if policy.stochastic:
        if torch.equal(answer, trial_outputs(policy.network, seen)):
            return
        raise InputError(
            "the agent draws from a random generator of its own, which cannot be seeded for each block of episodes; "
            "let it draw from the global generators of torch, numpy.random or random"
        )
    n_actions = policy.spaces.n_actions
    random = unforeseeable()
    drawn = []

    def ask(rows: Tensor) -> Tensor:
        # Another seed every time: what draws, and lets that change its answer, answers differently.
        output, has_drawn = _outputs_and_draws(policy.network, rows, seed=int(random.integers(2**32)))
        drawn.append(has_drawn)
        return _with_choice(output, n_actions)

    sizes = [len(seen), int(random.integers(2, 100))]
    check_row_answers(ask, [seen], _with_choice(answer, n_actions), random, sizes=sizes)
    ignored = any(isinstance(part, CheckedOutput) and part.ignores_draws for part in policy.network.modules())
    if any(drawn) and not ignored:
        raise InputError(
            "the agent draws random numbers; if its own randomness is part of it, declare that: stochastic=True"
        )


def _check_both_ways(network: nn.Module, seen: Tensor, answers: dict[bool, Tensor], stochastic: bool) -> None:
    """Raise if a function answers rows one at a time otherwise than it answers them together."""
    one_by_one = answers[False]
    together = answers[True]
    if stochastic:
        same = torch.allclose(one_by_one, together, atol=1e-4)
    else:
        rows = torch.arange(len(seen))
        pair = (one_by_one, together)
        same = first_differing(network, [seen], rows, pair, spread_of(one_by_one), unforeseeable()) is None
    if not same:
        raise InputError(
            "the function answers rows of observations differently from one observation at a time; say what it is "
            "given: batched=True for rows, batched=False for one observation"
        )


def _with_choice(output: Tensor, n_actions: int | None) -> Tensor:
    """Return values next to the action they choose, which small differences of large values may decide."""
    flat = output.reshape(len(output), -1)
    if n_actions is None:
        return flat
    chosen = numbers_of(flat.argmax(dim=1), flat.shape[1])
    return torch.cat((flat, chosen), dim=1)


def _function_policy(function: ObservationFunction, spaces: Spaces, *, batched: bool, stochastic: bool) -> Policy:
    name = getattr(function, "__name__", type(function).__name__)
    network = CheckedOutput(Function(function, batched=batched, parts=spaces.parts), spaces)
    return Policy(network, spaces, name=name, stochastic=stochastic, differentiable=False)


def _without_gradient(answer: Any) -> Any:
    return answer.detach().cpu().numpy() if isinstance(answer, Tensor) else answer


def _answer_tensor(answer: Any, wanted: str) -> Tensor:
    """Return an answer as a tensor; of a tuple of arrays, (actions, values, ...) or (actions, state), the first."""
    if isinstance(answer, tuple) and answer and isinstance(answer[0], Tensor | np.ndarray):
        answer = answer[0]
    if isinstance(answer, Tensor):
        return answer
    with suppress(TypeError, ValueError):
        return torch.as_tensor(np.asarray(answer))
    shown = answer[0] if isinstance(answer, list) and answer else answer
    raise InputError(f"the agent must {wanted}, got {shown!r:.60}")


def _number_of_parts(answer: Tensor, n_rows: int, spaces: Spaces) -> Tensor:
    """Return the numbers of actions that were answered in parts; other answers as they are."""
    factors = spaces.factors
    if factors is None or len(factors) == 1 or answer.shape != (n_rows, len(factors)):
        return answer
    # As many parts as there are actions: floats are then the values of the actions.
    if answer.shape == (n_rows, spaces.n_actions) and answer.is_floating_point():
        return answer
    whole = answer.nan_to_num(-1).long()
    too_large = whole >= torch.tensor(factors, device=answer.device)
    if bool(((whole != answer) | (whole < 0) | too_large).any()):
        raise InputError(
            f"the agent must choose parts of an action below {factors}, from 0, got {answer[0].tolist()!r:.60}"
        )
    number = torch.zeros(n_rows, dtype=torch.int64, device=answer.device)
    for part, count in zip(whole.unbind(1), factors, strict=True):
        number = number * count + part
    return number


def _check_discrete(answer: Tensor, n_rows: int, n_actions: int, wanted: str) -> Tensor:
    """Return one value per action: those that came, or 1 for the action that was chosen."""
    if answer.is_floating_point() and answer.shape == (n_rows, n_actions) and n_actions > 1:
        if not all_finite(answer):
            raise InputError("the agent answered with values that are not finite; check its weights or its function")
        return answer
    if answer.shape not in ((n_rows,), (n_rows, 1)):
        raise InputError(
            f"the agent must {wanted}, got {n_rows} rows answered in the shape {tuple(answer.shape)}; expected one "
            f"action per row, or {n_actions} values per row as floats"
        )
    flat = answer.reshape(-1)
    chosen = flat.nan_to_num(-1).long()
    bad = (chosen != flat) | (chosen < 0) | (chosen >= n_actions)
    if bool(bad.any()):
        raise InputError(f"the agent must {wanted}, got {flat[bad][0].item()!r}")
    return nn.functional.one_hot(chosen, n_actions).float()


def _check_continuous(answer: Tensor, n_rows: int, spaces: Spaces) -> Tensor:
    """Return continuous actions, checked."""
    size = None if spaces.low is None else len(spaces.low)
    if size is None and not answer.is_floating_point():
        # A space of continuous actions has bounds; where there are none, the number of actions may be missing.
        raise InputError(
            f"the agent returned {answer[0].tolist()} where float actions were expected; "
            "give n_actions=, the number of discrete actions"
        )
    if answer.shape[:1] != (n_rows,) or (size is not None and answer.numel() != n_rows * size):
        raise InputError(
            f"the agent must return actions of {size or 'some'} numbers for each of {n_rows} rows, got answers of "
            f"shape {tuple(answer.shape)}"
        )
    if not all_finite(answer):
        raise InputError(f"the agent must return finite actions, got {answer[0].tolist()!r:.60}")
    return answer.reshape(n_rows, -1).float()
