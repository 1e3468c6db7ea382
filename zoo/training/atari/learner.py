"""Gradient steps on a GPU with a running average of the weights, and the learner of the fast training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.networks import CNN, NATURE, fresh_arrays
from surefoot.agents.policies import Policy
from surefoot.agents.recording import recorded
from surefoot.errors import InputError
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.train.folder import Arrays
from zoo.training.atari.replay_buffer import Batch, Replay
from zoo.training.atari.settings import AtariSettings, FastSettings


class Averaged(ABC):
    """A network, its optimizer and the running average of its weights, which becomes the agent.

    On CUDA the gradient steps of one vector step are one captured graph.

    Attributes:
        followers: Networks that a checkpoint does not hold, because they are copies of the online one.
    """

    def __init__(
        self,
        first: Mapping[str, NDArray[Any]],
        settings: AtariSettings,
        stream: Stream,
        *,
        eps: float,
        clip: float,
        last_rate: float,
    ) -> None:
        self.device, self.updates = stream.device, 0
        self.per_step, self.capture, self.averaging = settings.updates, settings.capture, settings.averaging
        self.first_rate, self.last_rate, self.clip = settings.learning_rate, last_rate, clip
        self.stream = stream
        self.online, self.average = (CNN(first, NATURE).to(self.device) for _ in range(2))
        self.online.requires_grad_(True)
        self.followers: tuple[CNN, ...] = ()
        self.rate = torch.tensor(settings.learning_rate, device=self.device)
        graph = self.device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            self.online.parameters(), lr=self.rate, eps=eps, capturable=graph, fused=graph
        )
        self.graph: torch.cuda.CUDAGraph | None = None

    @abstractmethod
    def next_loss(self) -> Tensor:
        """Return the loss of a fresh sample."""

    def agent_weights(self) -> Arrays:
        """Return the weights of the agent, as it would be now, by the names of its file: the running average."""
        return arrays_of(self.average)

    @torch.no_grad()
    def begin_with(self, policy: Policy) -> None:
        """Take over the weights of an agent; outputs that it lacks begin at zero."""
        given = dict(policy.network.named_parts()) if isinstance(policy.network, CNN) else {}
        expected = {name: array.shape for name, array in self.agent_weights().items()}
        if {name: tuple(part.shape) for name, part in given.items()} != expected:
            raise InputError(
                f"{policy.name} does not have the layers of this training run; choose an agent of the same game"
            )
        for name, part in self.online.named_parts():
            part.zero_()[: len(given[name])].copy_(given[name])
        for network in (*self.followers, self.average):
            copy_weights(self.online, network)

    def learn(self, fraction: float) -> None:
        """Take the gradient steps of one vector step; ``fraction`` of the training is over."""
        self.rate.fill_(self.first_rate * (1 - (1 - self.last_rate) * min(1.0, fraction)))
        if self.device.type == "cuda" and self.capture:
            if self.graph is None:
                self.graph = recorded(self._steps, self.stream.generator)  # the steps that warm it up count too
            self.graph.replay()
        else:
            self._steps()
        self.updates += self.per_step

    def _steps(self) -> None:
        for _ in range(self.per_step):
            self.optimizer.zero_grad(set_to_none=False)
            torch.autograd.backward(self.next_loss())
            nn.utils.clip_grad_norm_(self.online.parameters(), self.clip)
            self.optimizer.step()
            with torch.no_grad():
                average, online = tuple(self.average.parameters()), tuple(self.online.parameters())
                torch._foreach_lerp_(average, online, 1 - self.averaging)


class Learner(Averaged):
    """Double Q-learning: the networks, their optimizer and the buffer."""

    def __init__(self, task: Task, sigma: float, settings: FastSettings, device: torch.device, seed: int) -> None:
        assert task.spaces.n_actions is not None
        self.settings = settings
        *_, learning, weights = training_seeds(seed, 0)
        first = fresh_arrays(task.spaces.n_stack, task.spaces.n_actions, weights)
        super().__init__(first, settings, Stream(learning, device), eps=1.5e-4, clip=10.0, last_rate=0.1)
        self.target = CNN(first, NATURE).to(device)
        self.followers = (self.target,)
        self.replay = Replay(
            max(settings.buffer_size // settings.slots, 4 * (task.spaces.n_stack + settings.n_steps)),
            settings.slots,
            task.spaces.shape,
            task.spaces.n_stack,
            steps=settings.n_steps,
            gamma=settings.gamma,
            sigma=sigma,
            batch=settings.batch_size,
            stream=self.stream,
        )

    def learn(self, fraction: float) -> None:
        """Take the gradient steps of one vector step, and let the target network follow at its interval."""
        before, interval = self.updates, self.settings.target_interval
        super().learn(fraction)
        if before // interval != self.updates // interval:
            copy_weights(self.online, self.target)

    def next_loss(self) -> Tensor:
        """Return the loss of a fresh sample."""
        return self.loss(self.replay.draw())

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


def arrays_of(network: CNN) -> Arrays:
    """Return a network's weights by the names of an agent's file."""
    return {name: part.detach().cpu().contiguous().numpy() for name, part in network.named_parts()}


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


@contextmanager
def single_precision() -> Iterator[None]:
    """Let convolutions compute in full single precision, which TF32 would round to half of its digits."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
