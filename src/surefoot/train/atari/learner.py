"""The learner of the fast training: networks, optimizer and buffer, double Q-learning over several steps."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.agents.networks import CNN, NATURE, fresh_arrays
from surefoot.agents.policies import Policy
from surefoot.errors import InputError
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.tasks import Task
from surefoot.train.atari.replay_buffer import Batch, Replay
from surefoot.train.atari.settings import FastSettings


class Learner:
    """The networks, their optimizer and the buffer; on CUDA its gradient steps are one captured graph."""

    def __init__(self, task: Task, sigma: float, settings: FastSettings, device: torch.device, seed: int) -> None:
        assert task.spaces.n_actions is not None
        self.settings, self.device, self.updates = settings, device, 0
        *_, learning, weights = training_seeds(seed, 0)
        first = fresh_arrays(task.spaces.n_stack, task.spaces.n_actions, weights)
        self.online, self.target, self.average = (CNN(first, NATURE).to(device) for _ in range(3))
        self.online.requires_grad_(True)
        self.rate = torch.tensor(settings.learning_rate, device=device)
        graph = device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            self.online.parameters(), lr=self.rate, eps=1.5e-4, capturable=graph, fused=graph
        )
        self.replay = Replay(
            max(settings.buffer_size // settings.slots, 4 * (task.spaces.n_stack + settings.n_steps)),
            settings.slots,
            task.spaces.shape,
            task.spaces.n_stack,
            steps=settings.n_steps,
            gamma=settings.gamma,
            sigma=sigma,
            batch=settings.batch_size,
            stream=Stream(learning, device),
        )
        self.graph: torch.cuda.CUDAGraph | None = None

    def begin_with(self, policy: Policy) -> None:
        """Take over the weights of an agent."""
        given = policy.network
        shapes = [part.shape for _, part in self.online.named_parts()]
        if not isinstance(given, CNN) or [part.shape for _, part in given.named_parts()] != shapes:
            raise InputError(
                f"{policy.name} does not have the layers of this training run; choose an agent of the same game"
            )
        for network in (self.online, self.target, self.average):
            copy_weights(given, network)

    def learn(self, fraction: float) -> None:
        """Take the gradient steps of one vector step; ``fraction`` of the training is over."""
        settings = self.settings
        self.rate.fill_(settings.learning_rate * (1 - 0.9 * min(1.0, fraction)))
        if self.device.type == "cuda" and settings.capture:
            if self.graph is None:
                self._capture()
            assert self.graph is not None
            self.graph.replay()
        else:
            self._steps()
        before, self.updates = self.updates, self.updates + settings.updates
        if before // settings.target_interval != self.updates // settings.target_interval:
            copy_weights(self.online, self.target)

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean Huber loss of the values against double Q-learning's targets."""
        with half_precision(self.device):
            with torch.no_grad():
                best = self.online(batch.successor).argmax(dim=1, keepdim=True)
                following = self.target(batch.successor).gather(1, best).squeeze(1).float()
                goal = batch.reward + batch.discount * following
            values = self.online(batch.state).gather(1, batch.action.unsqueeze(1)).squeeze(1).float()
        errors = nn.functional.smooth_l1_loss(values, goal, reduction="none")
        return (batch.weight * errors).mean()

    def _steps(self) -> None:
        for _ in range(self.settings.updates):
            self.optimizer.zero_grad(set_to_none=False)
            torch.autograd.backward(self.loss(self.replay.draw()))
            nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
            self.optimizer.step()
            with torch.no_grad():
                average, online = tuple(self.average.parameters()), tuple(self.online.parameters())
                torch._foreach_lerp_(average, online, 1 - self.settings.averaging)

    def _capture(self) -> None:
        """Record the gradient steps; those that warm it up count too."""
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._steps()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(self.replay.stream.generator)
        with torch.cuda.graph(self.graph):
            self._steps()


@torch.no_grad()
def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Make one network the copy of another, in place."""
    for old, new in zip(target.parameters(), source.parameters(), strict=True):
        old.copy_(new)


def half_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Let networks compute in half precision (bfloat16) where there is a GPU."""
    if device.type != "cuda":
        return nullcontext()
    return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False)
