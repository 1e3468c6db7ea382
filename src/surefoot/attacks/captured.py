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
from surefoot.attacks.victim import Scene, overflown
from surefoot.compute import expand_rows

LEAST, MOST = 16, 2**13  # observations of a batch, noise samples counted: more fill a GPU, and take gigabytes
REPLAYS = 8  # gradient steps between two questions whether all pairs are done, for which the GPU has to stop


class Steps(Protocol):
    """The steps of a search, as ``PaperAttack`` takes them; equal ones may share a graph, so they must be hashable."""

    def tries(self, left: Tensor) -> Tensor:
        """Return how many steps each pair may take with the budget that is left."""
        ...

    def stepped(self, moved: Tensor, gradient: Tensor, start: Tensor, left: Tensor) -> Tensor:
        """Return where one step leads."""
        ...


def capturable(scene: Scene) -> bool:
    """Return whether the search of a scene can be replayed: on a GPU, of a small batch, no row at its first step."""
    plain = scene.fresh is None and scene.ahead is not None and scene.clean.device.type == "cuda"
    return plain and len(scene.clean) * scene.n_samples <= MOST


def climb_captured(attack: Steps, scene: Scene, actions: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
    """Return what ``PaperAttack.climb`` returns."""
    climb = _climb_of(scene.policy.network, attack, size_of(len(actions), -(-LEAST // scene.n_samples)))
    if climb.weights != addresses(scene.policy.network):
        climb.prepare(scene, left)
    return climb.run(scene, actions, left)


def size_of(count: int, least: int) -> int:
    """Return how many pairs a batch has places for: a power of two or one and a half times one, at least ``least``."""
    double = 1 << max(count, least, 2).bit_length()
    return next(size for size in (double // 2, 3 * double // 4, double) if size >= max(count, least))


def addresses(network: nn.Module) -> tuple[int, ...]:
    """Return where the weights are: a graph reads them there, and a network that is moved away and back has others."""
    return tuple(parameter.data_ptr() for parameter in network.parameters())


@lru_cache(maxsize=16)
def _climb_of(network: nn.Module, attack: Steps, size: int) -> Climb:  # noqa: ARG001 - the network is a key
    return Climb(attack, size)


class Climb:
    """The search of a batch of ``size`` pairs, in tensors that stay where they are."""

    def __init__(self, attack: Steps, size: int) -> None:
        self.attack, self.size = attack, size
        self.weights: tuple[int, ...] = ()  # where they were when the step was recorded; at first nowhere
        self.graph: torch.cuda.CUDAGraph | None = None

    def prepare(self, like: Scene, left: Tensor) -> None:
        """Make the tensors, and on a GPU record one gradient step."""
        assert like.ahead is not None
        self.weights = addresses(like.policy.network)
        clean, ahead = (part.new_zeros(self.size, *part.shape[1:]) for part in (like.clean, like.ahead))
        # Of the noise only its shape counts, because ``ahead`` has it in it.
        noise = None if like.noise is None else like.noise.new_zeros(()).expand(self.size, *like.noise.shape[1:])
        self.scene = Scene(like.policy, clean, None, None, noise, like.at_once, clean, ahead)
        self.moved, self.left = torch.zeros_like(clean), left.new_zeros(self.size)
        self.actions, self.limit = (torch.zeros(self.size, dtype=torch.long, device=clean.device) for _ in range(2))
        self.alive, self.reached = (torch.zeros_like(self.limit, dtype=torch.bool) for _ in range(2))
        self.scale = self.scene.scale()
        if clean.device.type == "cuda":
            self.graph = recorded(self.iterate)  # what warms it up finds no pair that is not done

    def run(self, scene: Scene, actions: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        """Search for all pairs; return where each ended, and which reached their target."""
        assert self.scene.ahead is not None
        assert scene.ahead is not None
        count = len(actions)
        for mine, given in (
            (self.scene.clean, scene.clean),
            (self.scene.ahead, scene.ahead),
            (self.moved, scene.clean),
            (self.left, left),
            (self.actions, actions),
            (self.limit, self.attack.tries(left)),
        ):
            mine[:count].copy_(given)
        self.scale.copy_(self.scene.scale())
        self.reached.zero_()
        self.alive.zero_()[:count].fill_(True)
        while bool(self.alive.any()):
            for _ in range(REPLAYS):
                self.iterate() if self.graph is None else self.graph.replay()
        reached = self.reached[:count].clone()
        return torch.where(expand_rows(reached, scene.clean), self.moved[:count], scene.clean), reached

    def iterate(self) -> None:
        """Look where every pair is, and move those that are not done by one gradient step."""
        values, gradient = self.scene.scaled_gradient(self.moved, self.actions, self.scale)
        again, scale, gradient = overflown(gradient, self.scale)
        self.scale.copy_(scale)
        hit = values.argmax(dim=1) == self.actions  # of pairs that are done as before, because they are not moved
        self.reached |= hit
        self.limit -= (~again).long()  # a gradient that is computed again is not another step
        self.alive &= ~hit & (self.limit > 0)
        further = self.attack.stepped(self.moved, gradient, self.scene.clean, self.left)
        self.moved.copy_(torch.where(expand_rows(self.alive & ~again, further), further, self.moved))
