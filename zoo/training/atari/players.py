"""The emulators of the fast training, in parallel, and how they explore."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.agents.memory import FrameStack
from surefoot.episodes import Noise
from surefoot.errors import InputError
from surefoot.play.channel import Channel
from surefoot.play.envs.atari.emulators import ENDED, Board, Cartridge
from surefoot.play.envs.atari.env import slot_seeds
from surefoot.play.envs.atari.processes import Fleet
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from zoo.training.atari.learner import half_precision
from zoo.training.atari.replay_buffer import Replay
from zoo.training.atari.settings import FastSettings


class Emulated:
    """The emulators of a training run, with the noisy stacks that an agent acts on; episodes restart by themselves."""

    def __init__(
        self,
        games: list[Cartridge],
        task: Task,
        sigma: float,
        n_stack: int,
        *,
        device: torch.device,
        seed: int,
        first_step: int,
        processes: int,
    ) -> None:
        self.device, self.first_step = device, first_step
        # A resumed run has other episodes than the run before.
        emulating, acting, *_ = training_seeds(seed, first_step)
        self.fleet = Fleet(games, slot_seeds(emulating, len(games)), processes)
        self.stream = Stream(acting, device)
        self.channel = Channel(noise=Noise.of(sigma), n_envs=len(games), shape=task.spaces.shape, stream=self.stream)
        self.stack = FrameStack(n_stack)
        self.history = self.stack.empty(torch.zeros((len(games), *task.spaces.shape), device=device))
        self.age = torch.zeros(len(games), dtype=torch.int64, device=device)
        self.action = torch.zeros_like(self.age)
        self.board: Board = self.fleet.run("reset")
        self.board.active[:] = 1
        self.frames = self._fetch()

    def observe(self) -> Tensor:
        """Pass every environment's frame through the channel and return the noisy stacks."""
        seen = self.channel.send(self.frames.div(255))
        self.history = self.stack.advance(self.history, seen, fresh=self.age == 0)
        return self.history

    def act(self, action: Tensor) -> None:
        """Start the emulators' next step."""
        self.action = action
        self.board.actions[:] = action.cpu().numpy()
        self.fleet.begin("step_on")

    def collect(self) -> Board:
        """Wait for the emulators and return the board; ``frames`` and ``age`` are those of the next step."""
        board = self.fleet.finish()
        over = torch.from_numpy(board.over != 0).to(self.device)
        self.age = torch.where(over, 0, self.age + 1)
        self.frames = self._fetch()
        return board

    def close(self) -> None:
        """End the emulators."""
        self.fleet.close()

    def _fetch(self) -> Tensor:
        return torch.from_numpy(self.board.frames).to(self.device, copy=True)


class Players(Emulated):
    """Emulators whose agent explores."""

    def __init__(
        self,
        task: Task,
        sigma: float,
        settings: FastSettings,
        device: torch.device,
        seed: int,
        first_step: int,
        processes: int,
    ) -> None:
        assert task.spaces.n_actions is not None
        games, n_stack = cartridges(task, settings), task.spaces.n_stack
        super().__init__(
            games, task, sigma, n_stack, device=device, seed=seed, first_step=first_step, processes=processes
        )
        self.settings, self.choices = settings, task.spaces.n_actions
        self.left, self.held = torch.zeros_like(self.age), torch.zeros_like(self.age)

    def begin(self, network: nn.Module, replay: Replay, rate: float) -> None:
        """Pass every environment's frame through the channel to the network, and start the emulators' next step."""
        replay.show(self.frames, self.age)
        history = self.observe()
        with torch.inference_mode(), half_precision(self.device):
            greedy = network(history).argmax(dim=1)
        self.act(self._explored(greedy, rate))

    def finish(self, replay: Replay) -> None:
        """Wait for the emulators and store their results."""
        board = self.collect()
        rewards = torch.from_numpy(board.rewards.astype(np.float32)).to(self.device)
        over = torch.from_numpy(board.over.copy()).to(self.device)
        if self.settings.goal_ends:
            over = torch.where(rewards != 0, ENDED, over)
        rewards = torch.where(rewards < 0, self.settings.loss_weight * rewards, rewards)
        replay.book(self.action, rewards, over)

    def _explored(self, greedy: Tensor, rate: float) -> Tensor:
        """Replace actions by stretches of one random action: single random actions rarely score in Freeway."""
        draws = self.stream.uniform(0.0, 1.0, (3, len(greedy)))
        begins = (self.left == 0) & (draws[0] < rate)
        # P(length >= k) = 1 / k, as near as makes no difference to 1 / length^2.
        length = (1 / draws[1].clamp_min(1e-9)).long().clamp(1, self.settings.exploration_longest)
        self.left = torch.where(begins, length, self.left)
        self.held = torch.where(begins, (draws[2] * self.choices).long(), self.held)
        chosen = torch.where(self.left > 0, self.held, greedy)
        self.left = (self.left - 1).clamp_min(0)
        return chosen


def cartridges(task: Task, settings: FastSettings) -> list[Cartridge]:
    """Return the game of each emulator."""
    assert task.cartridge is not None
    other = get_task(settings.beside).cartridge if settings.beside else task.cartridge
    if other is None or other.rom != task.cartridge.rom:
        raise InputError(
            f"{settings.beside} is not a task of the same game as {task.name}; set beside to one, or to none"
        )
    return [other if slot % 2 else task.cartridge for slot in range(settings.slots)]
