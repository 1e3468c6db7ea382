"""What an agent keeps of an episode, one tensor with a row per episode: frames, or the state of a recurrent network.

Memory belongs to the agent and comes after the channel: an observation is perturbed once, when it is new, and enters
the memory as it was seen. A memory is a rule and holds no rows itself: ``advance`` returns new rows and never writes
into old ones, so what holds them (the loop, a deployed agent, an attacker that asks what would be) drops, restarts
and copies rows as it does with any tensor.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from surefoot.compute import expand_rows

MINUS_ONE = torch.tensor(-1.0)


class Memory(Protocol):
    """How an agent's memory takes in an observation. The network of a policy maps memories to values or actions."""

    @property
    def has_action(self) -> bool:
        """Whether the last action enters the memory."""
        ...

    def empty(self, observation: Tensor) -> Tensor:
        """Return zeros in the shape of the memory of rows that observe what has the shape of ``observation``."""
        ...

    def advance(
        self, memory: Tensor, seen: Tensor, action: Tensor | None = None, episode_start: Tensor | None = None
    ) -> Tensor:
        """Return the memory after one more observation, differentiable with respect to it.

        Args:
            episode_start: Which rows begin an episode, so that neither their memory nor their last action counts; None
                if none does.
        """
        ...

    def to(self, device: torch.device | str) -> Memory:
        """Return the same rule with its weights on ``device``."""
        ...

    def describe(self) -> str:
        """Return what it is, for the record."""
        ...


class FrameStack:
    """The last ``n_stack`` observations, oldest first, (rows, n_stack, *shape); the first one fills it by repetition.

    With an ``action_size`` each frame is the flattened observation and the action before it (see ``with_action``).
    """

    def __init__(self, n_stack: int, *, action_size: int = 0) -> None:
        self.n_stack = n_stack
        self.action_size = action_size

    @property
    def has_action(self) -> bool:
        """Whether frames contain past actions."""
        return self.action_size > 0

    def empty(self, observation: Tensor) -> Tensor:
        """Return stacks of zeros."""
        return torch.zeros_like(self._fill_stack(self._make_frame(observation, None, None)))

    def advance(
        self, memory: Tensor, seen: Tensor, action: Tensor | None = None, episode_start: Tensor | None = None
    ) -> Tensor:
        """Append every row's newest observation; fill the rows that begin an episode with it."""
        frame = self._make_frame(seen, action, episode_start)
        if self.n_stack == 1:
            return frame.unsqueeze(1)
        pushed = torch.cat((memory[:, 1:], frame.unsqueeze(1)), dim=1)
        if episode_start is None:
            return pushed
        return torch.where(expand_rows(episode_start, pushed), self._fill_stack(frame), pushed)

    def to(self, device: torch.device | str) -> FrameStack:  # noqa: ARG002
        """Return itself: there are no weights."""
        return self

    def describe(self) -> str:
        """Return how many frames it holds."""
        kind = "frames with actions" if self.action_size else "frames"
        return f"{self.n_stack} {kind}"

    def _fill_stack(self, frame: Tensor) -> Tensor:
        return frame.unsqueeze(1).expand(-1, self.n_stack, *frame.shape[1:])

    def _make_frame(self, seen: Tensor, action: Tensor | None, episode_start: Tensor | None) -> Tensor:
        if not self.action_size:
            return seen
        return with_action(seen, self.action_size, action, episode_start)


class Recurrent(nn.Module):
    """The state of a GRU or LSTM cell over what ``encoder`` makes of the observation and the action before it.

    A GRU's memory is its hidden state (rows, width); an LSTM's is hidden and cell state side by side, (rows, 2 width).
    An episode begins with zeros.
    """

    def __init__(self, encoder: nn.Module, cell: nn.GRUCell | nn.LSTMCell, *, action_size: int) -> None:
        """Put the parts together.

        Args:
            encoder: Maps rows of observation and last action to the inputs of the cell.
            cell: The cell.
            action_size: Numbers that describe the last action, n_actions or the size of a continuous one; 0 to leave
                it out.
        """
        super().__init__()
        self.encoder = encoder
        self.cell = cell
        self.action_size = action_size
        # Steps of a run build on each other: with gradients of the weights the whole episode would be kept.
        self.requires_grad_(False)

    @property
    def has_action(self) -> bool:
        """Whether the last action is an input."""
        return self.action_size > 0

    def empty(self, observation: Tensor) -> Tensor:
        """Return zeros: also what an episode begins with."""
        parts = 2 if isinstance(self.cell, nn.LSTMCell) else 1
        return observation.new_zeros(len(observation), parts * self.cell.hidden_size)

    def advance(
        self, memory: Tensor, seen: Tensor, action: Tensor | None = None, episode_start: Tensor | None = None
    ) -> Tensor:
        """Return the state after one step of the cell."""
        if self.action_size:
            inputs = with_action(seen, self.action_size, action, episode_start)
        else:
            inputs = seen.flatten(1)
        if episode_start is not None:
            memory = memory.masked_fill(episode_start.unsqueeze(1), 0.0)
        encoded = self.encoder(inputs)
        if isinstance(self.cell, nn.LSTMCell):
            hidden, kept = memory.chunk(2, dim=1)
            return torch.cat(self.cell(encoded, (hidden, kept)), dim=1)
        # On a GPU torch's own is one kernel after the products.
        if memory.is_cuda:
            after: Tensor = self.cell(encoded, memory)
            return after
        return gru_step(self._prepared_weights, encoded, memory)

    @cached_property
    def _prepared_weights(self) -> GRUWeights:
        """The weights of a GRU as its steps use them; they do not change, but may be moved to a GPU and back."""
        assert isinstance(self.cell, nn.GRUCell)
        return GRUWeights.of_cell(self.cell)

    def describe(self) -> str:
        """Return the kind of its cell and its width."""
        return f"{type(self.cell).__name__.removesuffix('Cell')} of width {self.cell.hidden_size}"


class GRUWeights(NamedTuple):
    """The weights of a GRU, on the CPU: those of both gates in one, and twice those of the new state.

    tanh(x) is computed from 2x, and doubling every weight doubles every sum, without any rounding.
    """

    into_gates: Tensor
    gates_bias: Tensor
    onto_gates: Tensor
    into_new: Tensor
    new_bias: Tensor
    onto_kept: Tensor
    kept_bias: Tensor

    @classmethod
    def of_cell(cls, cell: nn.GRUCell) -> GRUWeights:
        """Return the weights of a cell."""
        both = 2 * cell.hidden_size
        with torch.inference_mode(False):  # what is made in inference mode could not be used for gradients later
            parts = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
            (into, into_new), (onto, onto_kept), (into_bias, new_bias), (onto_bias, kept_bias) = (
                torch.split(part.detach().cpu(), both) for part in parts
            )
            return cls(into, into_bias + onto_bias, onto.T, 2 * into_new, 2 * new_bias, 2 * onto_kept, 2 * kept_bias)


def gru_step(weights: GRUWeights, inputs: Tensor, state: Tensor) -> Tensor:
    """Return the state after one step of a GRU on a CPU.

    There torch's takes half as long again as its products; here both products of the two gates are one sum.
    """
    gates = linear(inputs, weights.into_gates, weights.gates_bias).addmm_(state, weights.onto_gates).sigmoid_()
    reset, update = gates.chunk(2, dim=1)
    kept = linear(state, weights.onto_kept, weights.kept_bias)
    new = _tanh_of_half(linear(inputs, weights.into_new, weights.new_bias).addcmul_(reset, kept))
    return torch.lerp(new, state, update, out=_output_buffer(new))


def quick_tanh(x: Tensor) -> Tensor:
    """Return tanh up to 3e-7; ``x`` is overwritten. On a CPU torch's tanh takes five times as long as its sigmoid."""
    if x.is_cuda:
        return x.tanh_()
    return _tanh_of_half(x.mul_(2))


def _tanh_of_half(x: Tensor) -> Tensor:
    """Return tanh(x / 2) = 2 sigmoid(x) - 1; ``x`` is overwritten."""
    risen = x.sigmoid_()
    return torch.add(MINUS_ONE, risen, alpha=2, out=_output_buffer(risen))


def _output_buffer(x: Tensor) -> Tensor | None:
    """Return where a result that replaces ``x`` goes: into its memory, unless gradients need what is in it."""
    return None if x.requires_grad else x


def with_action(seen: Tensor, size: int, action: Tensor | None, episode_start: Tensor | None) -> Tensor:
    """Return flattened observations next to the last action: one-hot or as it is, zeros where an episode begins."""
    flat = seen.flatten(1)
    if action is None:
        return torch.cat((flat, flat.new_zeros(len(flat), size)), dim=1)
    if action.dim() == 1:
        last = _one_hot(size, flat.dtype, flat.device).index_select(0, action)
    else:
        last = action.to(flat.dtype)
    if episode_start is not None:
        last = last.masked_fill(episode_start.unsqueeze(1), 0.0)
    return torch.cat((flat, last), dim=1)


@cache
def _one_hot(size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a row of zeros and a one for each action; every step needs them."""
    with torch.inference_mode(False):
        return torch.eye(size, dtype=dtype, device=device)
