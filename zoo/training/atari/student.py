"""Teach an Atari agent to see through strong noise: distillation by DAgger (Ross, Gordon and Bagnell, 2011).

Q-learning has to learn to see and to value at once, from rare rewards, and fails where noise hides the ball. Here a
teacher that was trained on (nearly) clean frames knows the values already, and seeing is all that is learned, with a
label at every step:

1. The student acts, on its last noisy frames, so that it learns where its own mistakes lead. In the first part of a
   training from scratch the teacher acts in some emulators, in fewer and fewer.
2. The teacher sees the clean frames of the same step and says what every action is worth.
3. The student's policy pi minimizes its expected regret sum_a pi(a) (max Q - Q(a)) under the teacher's values Q. Where
   actions are worth the same nothing need be learned, and where the student cannot tell situations apart it takes the
   action that is best on average over them. A second head learns Q, which tells the layers below what to look for. An
   entropy bonus, which falls with the learning rate, keeps the policy from settling too early.
4. The buffer keeps clean frames; every sample gets fresh noise from the channel.
5. The agent is the running average of the weights, without the second head: an ordinary convolutional agent.

Strong noise is learned from weaker noise: begin with an agent of a smaller sigma.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, log_softmax, mse_loss

from surefoot.agents.networks import CNN, fresh_arrays
from surefoot.agents.policies import Policy
from surefoot.errors import InputError
from surefoot.play.envs.atari.emulators import Board
from surefoot.play.envs.atari.env import counted
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.play.workers import usable_cores
from surefoot.train.folder import Arrays, Curve, TrainingRun, identity
from zoo.training.atari.learner import Averaged, half_precision, single_precision
from zoo.training.atari.players import Emulated
from zoo.training.atari.replay_buffer import Labeled
from zoo.training.atari.settings import StudentSettings
from zoo.training.atari.train import (
    Watch,
    begin,
    card_of,
    check_atari,
    late,
    run_course,
)

WATCHED_EVERY, RECENT = 10.0, 512  # seconds, episodes
BLOCK = 4  # pixels: the stride of the first convolution


def train_student(
    run: TrainingRun,
    settings: StudentSettings,
    *,
    teacher: Policy,
    init_from: Policy | None = None,
    processes: int | None = None,
    watch: Watch | None = None,
) -> Policy:
    """Train until the steps or the time are used up; write the best agent, the curve and a checkpoint.

    The time includes the start of the emulators; the learning rate falls over what is left for learning.

    Args:
        run: What to train and where; an Atari task.
        settings: The numbers of the preset.
        teacher: An agent that plays the task without noise and says what actions are worth.
        init_from: A student for less noise, whose weights to begin with.
        processes: How many processes run emulators; None: one per core.
        watch: Called every 10 seconds with the returns of the last greedy training episodes, and after validations.

    Raises:
        InputError: If the task is not one of Atari's, agents do not fit, or the folder cannot be used.
    """
    began, task = time.monotonic(), run.task
    check_atari(task, "student")
    if (teacher.shape, teacher.n_actions) != (task.spaces.shape, task.spaces.n_actions):
        raise InputError(f"{teacher.name} cannot teach {task.name}: it plays another game; choose an agent of this one")
    folder = run.folder()
    learner = Student(task, run.sigma, settings, torch.device(run.device), run.seed)
    started_from = begin(run, folder, learner, init_from)
    before = folder.curve.seconds
    deadline = None if run.time_limit is None else began - before + 60 * run.time_limit
    lessons = Lessons(
        task,
        run.sigma,
        settings,
        learner,
        teacher.to(run.device),
        seed=run.seed,
        first_step=folder.curve.steps,
        processes=processes or usable_cores(),
        demonstrations=settings.demonstrations if started_from is None else 0.0,
        deadline=deadline,
        before=before,
        watch=watch,
    )
    algorithm, taught = "zoo.training.atari.student: distillation (DAgger)", identity(teacher)
    card = card_of(run, algorithm, settings, teacher=taught, time_limit=run.time_limit)
    return run_course(lessons, run, folder, card, deadline=deadline, started_from=started_from, watch=watch)


class Student(Averaged):
    """The student's network: for every action a logit of the policy, then for every action a value."""

    def __init__(self, task: Task, sigma: float, settings: StudentSettings, device: torch.device, seed: int) -> None:
        assert task.spaces.n_actions is not None
        self.settings, self.n_actions = settings, task.spaces.n_actions
        *_, learning, weights = training_seeds(seed, 0)
        first = fresh_arrays(settings.n_stack, 2 * self.n_actions, weights, settings.widths)
        super().__init__(first, settings, Stream(learning, device), eps=1e-5, clip=1.0, last_rate=0.05)
        self.buffer = Labeled(
            max(settings.buffer_size // settings.slots, 4 * settings.n_stack),
            settings.slots,
            task.spaces.shape,
            settings.n_stack,
            n_actions=self.n_actions,
            sigma=sigma,
            batch=settings.batch_size,
            stream=self.stream,
        )
        # Expected regret, squared error of the values, entropy: running means, kept on the device.
        self.shown = torch.zeros(3, device=device)

    def next_loss(self) -> Tensor:
        """Return the loss of a fresh sample."""
        return self.loss(*self.buffer.draw())

    def loss(self, stacks: Tensor, values: Tensor) -> Tensor:
        """Return the mean of the policy's regret, the error of the second head, and the entropy bonus, weighted."""
        with half_precision(self.device):
            output = outputs(self.online, stacks)
        chances = log_softmax(output[:, : self.n_actions], dim=1)
        regret = (chances.exp() * (values.amax(dim=1, keepdim=True) - values)).sum(dim=1).mean()
        error = mse_loss(output[:, self.n_actions :], values)
        entropy = -(chances.exp() * chances).sum(dim=1).mean()
        self.shown.lerp_(torch.stack((regret, error, entropy)).detach(), 0.01)
        bonus = self.settings.entropy / self.first_rate * self.rate
        return self.settings.regret * regret + error - bonus * entropy

    def agent_weights(self) -> Arrays:
        """Return the running average without the head of the values."""
        weights, last = super().agent_weights(), f"linear{self.online.sizes.linear - 1}."
        return {name: array[: self.n_actions] if name.startswith(last) else array for name, array in weights.items()}

    @property
    def idle(self) -> bool:
        """Whether a GPU has done all it was asked."""
        return self.device.type == "cuda" and bool(torch.cuda.current_stream().query())


def outputs(network: CNN, stacks: Tensor) -> Tensor:
    """Return what ``network(stacks)`` does, faster on a GPU, in single precision at the end.

    Its first convolution, 8 x 8 with stride 4, is one of 2 x 2 over blocks of 4 x 4 pixels: the same sums, over a
    number of channels that matrix units like.
    """
    first, kind = network.convolutions[0], torch.bfloat16 if stacks.is_cuda else torch.float32
    assert isinstance(first, nn.Conv2d)
    hidden = conv2d(in_blocks(stacks, kind), weight_in_blocks(first.weight), first.bias)
    return network.after_first(hidden.permute(0, 2, 3, 1)).float()


def drawn_actions(logits: Tensor, stream: Stream) -> Tensor:
    """Return one action per row, drawn from the policy (Gumbel's way)."""
    draws = stream.uniform(0.0, 1.0, tuple(logits.shape)).clamp(1e-12, 1 - 1e-12)
    return (logits - (-draws.log()).log()).argmax(dim=1)


def in_blocks(stacks: Tensor, kind: torch.dtype) -> Tensor:
    """Return stacks (rows, frames, high, wide) as (rows, frames * 16, high / 4, wide / 4), channels last in memory."""
    rows, frames, high, wide = stacks.shape
    down, across = high // BLOCK, wide // BLOCK
    blocks = torch.empty((rows, down, across, frames, BLOCK, BLOCK), dtype=kind, device=stacks.device)
    blocks.copy_(stacks.reshape(rows, frames, down, BLOCK, across, BLOCK).permute(0, 2, 4, 1, 3, 5))
    return blocks.view(rows, down, across, -1).permute(0, 3, 1, 2)


def weight_in_blocks(weight: Tensor) -> Tensor:
    """Return the weight of a convolution of stride 4 as that of one over ``in_blocks``."""
    out, frames, high, wide = weight.shape
    parts = weight.reshape(out, frames, high // BLOCK, BLOCK, wide // BLOCK, BLOCK)
    return parts.permute(0, 1, 3, 5, 2, 4).flatten(1, 3)


class Lessons:
    """The emulators, in which the student acts on noisy frames and the teacher labels the clean ones."""

    by_bound = True

    def __init__(
        self,
        task: Task,
        sigma: float,
        settings: StudentSettings,
        learner: Student,
        teacher: Policy,
        *,
        seed: int,
        first_step: int,
        processes: int,
        demonstrations: float = 0.0,
        deadline: float | None = None,
        before: float = 0.0,
        watch: Watch | None = None,
    ) -> None:
        assert task.cartridge is not None
        self.cartridge, self.settings, self.learner, self.teacher = task.cartridge, settings, learner, teacher
        self.demonstrations, self.deadline, self.watch = demonstrations, deadline, watch
        device = learner.device
        self.players = Emulated(
            [task.cartridge] * settings.slots,
            task,
            sigma,
            settings.n_stack,
            device=device,
            seed=seed,
            first_step=first_step,
            processes=processes,
        )
        self.recall = teacher.recall
        self.clean = self.recall.empty(torch.zeros((settings.slots, *task.spaces.shape), device=device))
        self.slot = torch.arange(settings.slots, device=device)
        self.returns = np.zeros(settings.slots)
        self.recent: deque[float] = deque(maxlen=RECENT)
        # The emulators have started only now: in a short training their start must not count.
        self.began = time.monotonic() - before
        self.watched, self.watched_at = time.monotonic(), (first_step, learner.updates)

    def stretch(self, curve: Curve, until: int, deadline: float | None) -> None:
        """Run and learn up to a number of steps or a deadline, the emulators stepping while the GPU learns."""
        warm = self.players.first_step + self.settings.learning_starts
        while curve.steps < until and not late(deadline):
            fraction = self.fraction(curve.steps)
            self.step(fraction, learns=curve.steps >= warm and self.learner.buffer.ready)
            curve.steps += self.settings.slots
            if self.watch is not None and time.monotonic() > self.watched + WATCHED_EVERY:
                self.watch(self._line(curve.steps), np.array(self.recent))

    def fraction(self, steps: int) -> float:
        """Return how much of the training is over, in steps or in time."""
        used = 0.0
        if self.deadline is not None:
            used = (time.monotonic() - self.began) / max(1e-9, self.deadline - self.began)
        return min(1.0, max(steps / self.settings.total_steps, used))

    def step(self, fraction: float, *, learns: bool) -> None:
        """Let every emulator take one step, and learn meanwhile, on a GPU until the emulators are done."""
        players, learner = self.players, self.learner
        values = self.values()
        players.act(self.actions(players.observe(), values, fraction))
        learner.buffer.show(players.frames, players.age)
        learner.buffer.label(values)
        if learns:
            for _ in range(self.settings.rounds):
                learner.learn(fraction)
            while not players.fleet.done():
                if learner.idle:
                    learner.learn(fraction)
                else:
                    time.sleep(1e-4)
        self._count(players.collect())

    def values(self) -> Tensor:
        """Return what the teacher says, in single precision: actions may differ by hundredths."""
        players = self.players
        with torch.inference_mode(), single_precision():
            frames, fresh = players.frames.div(255), players.age == 0
            self.clean = self.recall.advance(self.clean, frames, players.action, fresh)
            values: Tensor = self.teacher.network(self.clean)
        return values

    def actions(self, stacks: Tensor, values: Tensor, fraction: float) -> Tensor:
        """Return the student's actions, the best in even emulators and drawn ones in odd; the teacher's in some."""
        with torch.inference_mode(), half_precision(self.learner.device):
            logits = outputs(self.learner.average, stacks)[:, : self.learner.n_actions]
        drawn = drawn_actions(logits, self.players.stream)
        chosen = torch.where(self.slot % 2 == 0, logits.argmax(dim=1), drawn)
        if fraction >= self.demonstrations:
            return chosen
        return torch.where(self.slot % 8 >= 8 * fraction / self.demonstrations, values.argmax(dim=1), chosen)

    def exploration(self, steps: int) -> float:
        """Return the share of emulators in which the teacher may act."""
        return 0.0 if self.fraction(steps) >= self.demonstrations else 1 - self.fraction(steps) / self.demonstrations

    def close(self) -> None:
        """End the emulators."""
        self.players.close()

    def _count(self, board: Board) -> None:
        """Keep the returns of the last episodes that the student's best actions led to."""
        self.returns += counted(self.cartridge, board.rewards)
        over = board.over != 0
        self.recent.extend(self.returns[::2][over[::2]].tolist())
        self.returns[over] = 0.0

    def _line(self, steps: int) -> str:
        regret, error, entropy = self.learner.shown.tolist()
        (old_steps, old_updates), updates = self.watched_at, self.learner.updates
        seconds, self.watched, self.watched_at = time.monotonic() - self.watched, time.monotonic(), (steps, updates)
        return (
            f"step {steps:,} ({(steps - old_steps) / seconds:,.0f}/s), {updates:,} updates "
            f"({(updates - old_updates) / seconds:,.0f}/s), regret {regret:.5f}, error {error:.5f}, "
            f"entropy {entropy:.3f}"
        )
