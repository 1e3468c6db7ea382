"""A replay buffer of clean frames on the learner's device; every sample gets fresh noise from the channel.

Frames are kept as the bytes the emulator gave, once each. Noise is added to floats, after a sample has been drawn and
scaled to [0, 1], so it never passes through a byte; and one transition is learned from under many noises.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from surefoot.episodes import Noise
from surefoot.play.channel import Channel
from surefoot.play.envs.atari.emulators import CUT, ENDED
from surefoot.play.streams import Stream


@dataclass(frozen=True, eq=False)
class Batch:
    """Transitions over several steps.

    ``state``      stacks of noisy frames, oldest first
    ``action``     what was done there
    ``reward``     the discounted rewards of the next steps
    ``successor``  stacks after these steps, sharing the noise of the frames they share
    ``discount``   what the successor's value counts: 0 where the episode had ended
    ``weight``     0 where max_steps cut the episode, so that nothing is known of what would have come
    """

    state: Tensor
    action: Tensor
    reward: Tensor
    successor: Tensor
    discount: Tensor
    weight: Tensor


class Frames:
    """The frames of the last ``rows`` vector steps of many environments, from which noisy stacks are sampled.

    ``head``  how many vector steps have been written in all, on the device, because a captured graph reads it
    """

    def __init__(
        self,
        rows: int,
        slots: int,
        shape: tuple[int, ...],
        frames: int,
        *,
        steps: int,
        sigma: float,
        batch: int,
        stream: Stream,
    ) -> None:
        device = stream.device
        self.rows, self.slots, self.memory, self.steps, self.batch = rows, slots, frames, steps, batch
        self.frames = torch.zeros((rows, slots, *shape), dtype=torch.uint8, device=device)
        self.age = torch.zeros((rows, slots), dtype=torch.int64, device=device)
        self.head = torch.zeros((), dtype=torch.int64, device=device)
        self.written = 0
        self.stream, self.sigma = stream, sigma
        # On a GPU networks compute in half precision, and noise that is drawn in it takes half the memory's time.
        self.kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.channel = Channel(noise=Noise.of(sigma), n_envs=batch * (frames + steps), shape=shape, stream=stream)

    def show(self, frames: Tensor, age: Tensor) -> None:
        """Begin a row: the frame of every environment, and the number of steps since its episode began."""
        row = self.written % self.rows
        self.frames[row], self.age[row] = frames, age

    def end_row(self) -> None:
        """Let the row be sampled."""
        self.written += 1
        self.head += 1

    @property
    def ready(self) -> bool:
        """Whether there is anything to sample."""
        return self.written > self.memory + self.steps

    def _places(self) -> tuple[Tensor, Tensor]:
        """Sample vector steps whose past frames and next steps are still, or already, in the buffer."""
        # While the emulators step, the oldest row is already overwritten by new frames.
        first = (self.head - self.rows + 1).clamp_min(0) + self.memory - 1
        count = self.head - self.steps - first
        draws = self.stream.uniform(0.0, 1.0, (2, self.batch))
        return first + (draws[0] * count).long(), (draws[1] * self.slots).long()

    def _noisy(self, rows: Tensor, slot: Tensor) -> Tensor:
        """Return (batch, memory + steps, *shape) of what was shown, scaled to [0, 1], each frame with fresh noise."""
        bytes_ = _in_words(self.frames)[rows, slot].view(torch.uint8).view(*rows.shape, *self.frames.shape[2:])
        if self.kind != torch.float32:
            noise = torch.empty(bytes_.shape, dtype=self.kind, device=bytes_.device)
            return noise.normal_(0.0, self.sigma, generator=self.stream.generator).add_(bytes_, alpha=1 / 255)
        clean = bytes_.div(255)
        return self.channel.send(clean.flatten(0, 1)).view_as(clean)

    def _stacked(self, seen: Tensor, newest: int, age: Tensor) -> Tensor:
        """Return the stack that ends with frame ``newest``; before an episode's first frame there is that one again."""
        place = torch.arange(newest - self.memory + 1, newest + 1, device=seen.device)
        place = torch.maximum(place, (newest - age).unsqueeze(1))
        batch = torch.arange(len(seen), device=seen.device).unsqueeze(1)
        return _in_words(seen)[batch, place].view(seen.dtype).view(*place.shape, *seen.shape[2:])


def _in_words(frames: Tensor) -> Tensor:
    """Return frames (a, b, *shape) as (a, b, words) of 64 bits where they divide into them: copied faster."""
    flat = frames.flatten(2)
    return flat.view(torch.int64) if flat.shape[2] * flat.element_size() % 8 == 0 else flat


class Replay(Frames):
    """Frames with what was done there and what came of it: transitions over ``steps`` steps."""

    def __init__(
        self,
        rows: int,
        slots: int,
        shape: tuple[int, ...],
        frames: int,
        *,
        steps: int,
        gamma: float,
        sigma: float,
        batch: int,
        stream: Stream,
    ) -> None:
        super().__init__(rows, slots, shape, frames, steps=steps, sigma=sigma, batch=batch, stream=stream)
        self.gamma = gamma
        self.action = torch.zeros((rows, slots), dtype=torch.int64, device=stream.device)
        self.reward = torch.zeros((rows, slots), device=stream.device)
        self.over = torch.zeros((rows, slots), dtype=torch.uint8, device=stream.device)

    def book(self, action: Tensor, reward: Tensor, over: Tensor) -> None:
        """End the row: the actions, the rewards, and whether the episode is over."""
        row = self.written % self.rows
        self.action[row], self.reward[row], self.over[row] = action, reward, over
        self.end_row()

    def draw(self) -> Batch:
        """Sample transitions uniformly, with replacement."""
        step, slot = self._places()
        span = step.unsqueeze(1) + torch.arange(1 - self.memory, self.steps + 1, device=step.device)
        seen = self._noisy(span % self.rows, slot.unsqueeze(1))
        now, then = step % self.rows, (step + self.steps) % self.rows
        reward, discount, weight = self._outcome(span[:, self.memory - 1 : -1] % self.rows, slot.unsqueeze(1))
        return Batch(
            state=self._stacked(seen, self.memory - 1, self.age[now, slot]),
            action=self.action[now, slot],
            reward=reward,
            successor=self._stacked(seen, self.memory - 1 + self.steps, self.age[then, slot]),
            discount=discount,
            weight=weight,
        )

    def _outcome(self, rows: Tensor, slot: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        over, rewards = self.over[rows, slot], self.reward[rows, slot]
        going = torch.ones_like(rewards[:, 0])
        total, weight = torch.zeros_like(going), torch.ones_like(going)
        for index in range(self.steps):
            total = total + self.gamma**index * going * rewards[:, index]
            weight = weight * (1 - going * (over[:, index] == CUT))
            going = going * (over[:, index] != ENDED) * weight
        return total, self.gamma**self.steps * going, weight


class Labeled(Frames):
    """Frames with what a teacher says every action is worth there."""

    def __init__(
        self,
        rows: int,
        slots: int,
        shape: tuple[int, ...],
        frames: int,
        *,
        n_actions: int,
        sigma: float,
        batch: int,
        stream: Stream,
    ) -> None:
        super().__init__(rows, slots, shape, frames, steps=0, sigma=sigma, batch=batch, stream=stream)
        self.values = torch.zeros((rows, slots, n_actions), device=stream.device)

    def label(self, values: Tensor) -> None:
        """End the row: the teacher's values of the actions."""
        self.values[self.written % self.rows] = values
        self.end_row()

    def draw(self) -> tuple[Tensor, Tensor]:
        """Sample noisy stacks and the teacher's values at their newest frames, uniformly, with replacement."""
        step, slot = self._places()
        span = step.unsqueeze(1) + torch.arange(1 - self.memory, 1, device=step.device)
        seen, now = self._noisy(span % self.rows, slot.unsqueeze(1)), step % self.rows
        return self._stacked(seen, self.memory - 1, self.age[now, slot]), self.values[now, slot]
