"""The inner loop of Algorithm 1 on a GPU as a CUDA graph, for agents with a convolutional network.

A whole game has thousands of steps with dozens of gradient steps each, for a few hundred pairs of row and target: such
a small batch leaves a GPU waiting for the next kernel to be launched. One gradient step of a batch of fixed size is
recorded once and replayed; pairs that are done stay in the batch and are not moved any more.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor, nn

from surefoot.agents.networks import recorded
from surefoot.attacks.victim import VictimBatch, find_overflow
from surefoot.compute import expand_rows

# Observations of a batch, noise samples counted: more fill a GPU by themselves, and take gigabytes.
LEAST = 16
MOST = 2**13
REPLAYS = 8  # gradient steps between two questions whether all pairs are done, for which the GPU has to stop


class Steps(Protocol):
    """The steps of a search, as ``PaperAttack`` takes them; equal ones share a graph."""

    def __hash__(self) -> int: ...

    def tries(self, left: Tensor) -> Tensor:
        """Return how many steps each pair may take with the budget that is left."""
        ...

    def take_step(self, moved: Tensor, gradient: Tensor, start: Tensor, left: Tensor) -> Tensor:
        """Return where one step leads."""
        ...


def can_capture(batch: VictimBatch) -> bool:
    """Return whether the search of a batch can be replayed: on a GPU, of a small batch, no row at its first step."""
    plain = batch.episode_start is None and batch.first_layer_output is not None and batch.clean.device.type == "cuda"
    return plain and len(batch.clean) * batch.n_samples <= MOST


def climb_captured(attack: Steps, batch: VictimBatch, actions: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Return what ``PaperAttack.climb`` returns."""
    climb = _climb_of(batch.policy.network, attack, batch_size(len(actions), -(-LEAST // batch.n_samples)))
    if climb.weights != weight_addresses(batch.policy.network):
        climb.prepare_tensors(batch, left)
    return climb.run_search(batch, actions, left)


def batch_size(count: int, least: int) -> int:
    """Return how many pairs a batch has places for: a power of two or one and a half times one, at least ``least``."""
    double = 1 << max(count, least, 2).bit_length()
    sizes = (double // 2, 3 * double // 4, double)
    return next(size for size in sizes if size >= max(count, least))


def weight_addresses(network: nn.Module) -> tuple[int, ...]:
    """Return where the weights are: a graph reads them there, and a network that is moved away and back has others."""
    return tuple(parameter.data_ptr() for parameter in network.parameters())


@lru_cache(maxsize=16)
def _climb_of(network: nn.Module, attack: Steps, size: int) -> Climb:  # noqa: ARG001 - the network is a key
    return Climb(attack, size)


class Climb:
    """The search of a batch of ``size`` pairs, in tensors that stay where they are."""

    def __init__(self, attack: Steps, size: int) -> None:
        self.attack = attack
        self.size = size
        self.weights: tuple[int, ...] = ()  # where they were when the step was recorded; at first nowhere
        self.graph: torch.cuda.CUDAGraph | None = None

    def prepare_tensors(self, like: VictimBatch, left: Tensor) -> None:
        """Make the tensors, and on a GPU record one gradient step."""
        assert like.first_layer_output is not None
        self.weights = weight_addresses(like.policy.network)
        clean = like.clean.new_zeros(self.size, *like.clean.shape[1:])
        first_layer_output = like.first_layer_output.new_zeros(self.size, *like.first_layer_output.shape[1:])
        noise = None
        if like.noise is not None:
            # Only its shape counts, because the output of the first layer has it in it.
            noise = like.noise.new_zeros(()).expand(self.size, *like.noise.shape[1:])
        self.batch = VictimBatch(like.policy, clean, None, None, noise, like.rows_per_pass, clean, first_layer_output)
        self.moved = torch.zeros_like(clean)
        self.left = left.new_zeros(self.size)
        self.actions = torch.zeros(self.size, dtype=torch.long, device=clean.device)
        self.limit = torch.zeros_like(self.actions)
        self.alive = torch.zeros_like(self.limit, dtype=torch.bool)
        self.reached = torch.zeros_like(self.alive)
        self.scale = self.batch.scale()
        if clean.device.type == "cuda":
            self.graph = recorded(self.iterate_once)  # what warms it up finds no pair that is not done

    def run_search(self, batch: VictimBatch, actions: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        """Search for all pairs; return where each ended, and which reached their target."""
        assert self.batch.first_layer_output is not None
        assert batch.first_layer_output is not None
        count = len(actions)
        for mine, given in (
            (self.batch.clean, batch.clean),
            (self.batch.first_layer_output, batch.first_layer_output),
            (self.moved, batch.clean),
            (self.left, left),
            (self.actions, actions),
            (self.limit, self.attack.tries(left)),
        ):
            mine[:count].copy_(given)
        # Copied, not assigned: the graph reads and writes these very tensors.
        self.scale.copy_(self.batch.scale())
        self.reached.zero_()
        self.alive.zero_()[:count].fill_(True)
        # Replaying a few steps too many does no harm: pairs that are done are not moved.
        while bool(self.alive.any()):
            for _ in range(REPLAYS):
                if self.graph is None:
                    self.iterate_once()
                else:
                    self.graph.replay()
        reached = self.reached[:count].clone()
        ends = torch.where(expand_rows(reached, batch.clean), self.moved[:count], batch.clean)
        return ends, reached

    def iterate_once(self) -> None:
        """Look where every pair is, and move those that are not done by one gradient step."""
        values, gradient = self.batch.scaled_gradient(self.moved, self.actions, self.scale)
        again, scale, gradient = find_overflow(gradient, self.scale)
        self.scale.copy_(scale)
        hit = values.argmax(dim=1) == self.actions  # of pairs that are done as before, because they are not moved
        self.reached |= hit
        self.limit -= (~again).long()  # a gradient that is computed again is not another step
        self.alive &= ~hit & (self.limit > 0)
        further = self.attack.take_step(self.moved, gradient, self.batch.clean, self.left)
        self.moved.copy_(torch.where(expand_rows(self.alive & ~again, further), further, self.moved))
