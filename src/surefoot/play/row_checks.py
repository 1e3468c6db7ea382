"""While episodes run: at random steps, whether the agent answers each row by itself (``agents.row_checks``)."""

from __future__ import annotations

import torch
from torch import Tensor

from surefoot.agents.policies import Policy
from surefoot.agents.row_checks import Ask, Parts, check_row_answers, numbers_of, unforeseeable

RATE = 0.005  # share of the steps of a long block that are checked
WHOLE = 0.1  # share of the checks in which as many rows are asked again as there are


class RowChecks:
    """The checks of one block. They change nothing of it: their random numbers are not the run's.

    The first step is checked, step t with probability t^-1.5, later ones with ``RATE``: a block has a few checks,
    however short it is, and a long one has them up to its end.
    """

    def __init__(self, policy: Policy, noisy: Tensor | None = None) -> None:
        self.policy = policy
        # Which features have noise; None if all have.
        self.noisy = noisy
        # What the agent draws makes its answers differ; what does not look at observations cannot mix them up.
        self.needed = not policy.stochastic and not policy.open_loop
        self.random = unforeseeable()
        self.step = 0

    def is_due(self) -> bool:
        """Count one more step, and return whether it is checked."""
        self.step += 1
        return self.needed and self.random.random() < max(RATE, self.step**-1.5)

    def check_step(
        self, before: tuple[Tensor, Tensor, Tensor | None, Tensor | None], memory: Tensor, action: Tensor
    ) -> None:
        """Raise InputError if rows of this step are answered differently in other company.

        Args:
            before: What the agent's memory was advanced with: memory, noisy observation, last action, fresh rows.
        """
        policy = self.policy
        count = len(action)
        size = count
        if self.random.random() >= WHOLE:
            size = int(count ** self.random.random())
        # A frame stack is copied row by row. Any other memory is the agent's own, and is compared too.
        own_memory = not policy.stacks_frames
        ask: Ask = self._ask_action
        parts: Parts = (memory,)
        together = numbers_of(action, policy.spaces.n_actions)
        if own_memory:
            ask = self._remember_and_act
            parts = before
            together = _join_answers(together, memory)
        where = f"step {self.step}, "
        check_row_answers(ask, parts, together, self.random, sizes=[max(2, size)], where=where, noisy=self.noisy)

    def _ask_action(self, memory: Tensor) -> Tensor:
        return numbers_of(self.policy.act(memory), self.policy.spaces.n_actions)

    def _remember_and_act(
        self, memory: Tensor, seen: Tensor, action: Tensor | None, episode_start: Tensor | None
    ) -> Tensor:
        after = self.policy.memory.advance(memory, seen, action, episode_start)
        return _join_answers(self._ask_action(after), after)


def _join_answers(answers: Tensor, memory: Tensor) -> Tensor:
    return torch.cat((answers.to(memory.dtype), memory.flatten(1)), dim=1)
