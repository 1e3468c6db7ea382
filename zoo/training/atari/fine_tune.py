"""Fine-tune a student by the return itself: PPO (Schulman et al., 2017) with a critic that sees the clean frames.

A student imitates a teacher that sees everything, and what is best for the teacher need not be best for an agent that
cannot tell where the ball is. Here the student's own return decides. The critic is needed in training only, so it may
see what the student does not: the clean frames. It begins as the teacher, whose best action's value it takes for the
value of a state, and learns what states are worth to the student. Rewards are the game's: 1 for a point, -1 for the
opponent's. The agent is the running average of the student's weights.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, mse_loss

from surefoot.agents.networks import CNN
from surefoot.agents.policies import Policy
from surefoot.errors import InputError
from surefoot.play.envs.atari.emulators import CUT, ENDED, Board
from surefoot.play.envs.atari.env import counted
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.play.workers import usable_cores
from surefoot.train.folder import Curve, TrainingRun, identity
from zoo.training.atari.checkpoint import load_checkpoint
from zoo.training.atari.learner import Averaged, arrays_of, half_precision
from zoo.training.atari.players import Emulated
from zoo.training.atari.settings import FineTuneSettings
from zoo.training.atari.student import RECENT, WATCHED_EVERY, drawn_actions, outputs
from zoo.training.atari.train import (
    Watch,
    card_of,
    check_atari,
    late,
    run_course,
)


def train_fine_tune(
    run: TrainingRun,
    settings: FineTuneSettings,
    *,
    teacher: Policy,
    init_from: Policy,
    processes: int | None = None,
    watch: Watch | None = None,
) -> Policy:
    """Train until the steps or the time are used up; write the best agent, the curve and a checkpoint.

    Args:
        run: What to train and where; an Atari task. A resumed run's critic begins as the teacher again.
        settings: The numbers of the preset.
        teacher: The agent whose values the critic begins with; it sees clean frames.
        init_from: The student to improve; the first validation is its own.
        processes: How many processes run emulators; None: one per core.
        watch: Called every 10 seconds with the returns of the last training episodes, and after validations.

    Raises:
        InputError: If the task is not one of Atari's, agents do not fit, or the folder cannot be used.
    """
    began, task = time.monotonic(), run.task
    check_atari(task, "fine-tune")
    for policy in (teacher, init_from):
        if not isinstance(policy.network, CNN) or policy.n_actions != task.spaces.n_actions:
            raise InputError(f"{policy.name} is not a convolutional agent for {task.name}; choose one of this game")
    folder = run.folder()
    learner = Actor(task, settings, init_from, teacher, torch.device(run.device), run.seed)
    started_from = load_checkpoint(folder, learner) if run.resume else identity(init_from)
    seconds = None if run.time_limit is None else 60 * run.time_limit
    tuning = Tuning(
        task,
        run.sigma,
        settings,
        learner,
        seed=run.seed,
        first_step=folder.curve.steps,
        processes=processes or usable_cores(),
        seconds=seconds,
        began=began - folder.curve.seconds,
        watch=watch,
    )
    algorithm, taught = "zoo.training.atari.fine_tune: PPO with a critic on clean frames", identity(teacher)
    return run_course(
        tuning,
        run,
        folder,
        card_of(run, algorithm, settings, teacher=taught, time_limit=run.time_limit),
        deadline=None if seconds is None else tuning.began + seconds,
        started_from=started_from,
        watch=watch,
        validate_first=True,
    )


class Rollout:
    """The last ``horizon`` steps of every emulator: what the student saw and did, what was there, what came of it."""

    def __init__(
        self, settings: FineTuneSettings, shape: tuple[int, ...], n_stack: int, n_clean: int, device: torch.device
    ):
        steps, slots = settings.horizon, settings.slots
        kind = torch.bfloat16 if device.type == "cuda" else torch.float32  # what the network computes with anyway
        self.n_stack, self.n_clean = n_stack, n_clean
        # Before the first step there are the older frames of its stack; after the last one, the frame that follows.
        self.seen = torch.zeros((steps + n_stack, slots, *shape), dtype=kind, device=device)
        self.clean = torch.zeros((steps + n_clean, slots, *shape), dtype=torch.uint8, device=device)
        self.age = torch.zeros((steps + 1, slots), dtype=torch.int64, device=device)
        self.action, self.over = torch.zeros_like(self.age), torch.zeros_like(self.age)
        self.chance, self.reward, self.value, self.advantage, self.goal = (
            torch.zeros((steps + 1, slots), device=device) for _ in range(5)
        )

    def begin(self) -> None:
        """Keep the older frames that the next steps' stacks need."""
        for frames, memory in ((self.seen, self.n_stack), (self.clean, self.n_clean)):
            frames[: memory - 1] = frames[len(frames) - memory : -1].clone()

    def show(self, step: int, clean: Tensor, seen: Tensor, age: Tensor) -> None:
        """Write the frames of a step, as they are and as the student sees them."""
        self.clean[step + self.n_clean - 1], self.seen[step + self.n_stack - 1], self.age[step] = clean, seen, age

    def clean_stacks(self, step: Tensor, slot: Tensor) -> Tensor:
        """Return the clean stacks of some steps, scaled to [0, 1]."""
        return _stacks(self.clean, self.n_clean, step, slot, self.age[step, slot]).div(255)

    def seen_stacks(self, step: Tensor, slot: Tensor) -> Tensor:
        """Return what the student saw."""
        return _stacks(self.seen, self.n_stack, step, slot, self.age[step, slot])

    def judge(self, gamma: float, trace: float) -> None:
        """Compute the advantages of all actions (GAE), scaled to mean 0 and spread 1, and what values should be."""
        steps = len(self.age) - 1
        ahead = torch.zeros_like(self.value[0])
        for step in reversed(range(steps)):
            over = self.over[step]
            # The frame after a cut is of another episode: what follows is taken to be worth what the last frame was.
            after = torch.where(over == CUT, self.value[step], self.value[step + 1]) * (over != ENDED)
            surprise = self.reward[step] + gamma * after - self.value[step]
            ahead = surprise + gamma * trace * (over == 0) * ahead
            self.advantage[step] = ahead
        self.goal[:steps] = self.advantage[:steps] + self.value[:steps]
        part = self.advantage[:steps]
        part.sub_(part.mean()).div_(part.std() + 1e-8)


def _stacks(frames: Tensor, memory: int, step: Tensor, slot: Tensor, age: Tensor) -> Tensor:
    back = torch.arange(memory, device=frames.device)
    row = step.unsqueeze(1) + torch.maximum(back, (memory - 1 - age).unsqueeze(1))
    return frames[row, slot.unsqueeze(1)]


class Actor(Averaged):
    """The student's policy, and the critic."""

    def __init__(
        self, task: Task, settings: FineTuneSettings, student: Policy, teacher: Policy, device: torch.device, seed: int
    ) -> None:
        assert isinstance(student.network, CNN)
        assert isinstance(teacher.network, CNN)
        self.settings = settings
        *_, learning, _ = training_seeds(seed, 0)
        stream = Stream(learning, device)
        super().__init__(arrays_of(student.network), settings, stream, eps=1e-5, clip=0.5, last_rate=0.05)
        self.critic = CNN(arrays_of(teacher.network), teacher.network.sizes).to(device).requires_grad_(True)
        self.optimizer.add_param_group({"params": list(self.critic.parameters()), "lr": self.rate})
        self.rollout = Rollout(settings, task.spaces.shape, student.n_stack, teacher.n_stack, device)
        # Change of the policy, squared error of the values, entropy: running means, kept on the device.
        self.shown = torch.zeros(3, device=device)

    def values(self, stacks: Tensor) -> Tensor:
        """Return what states are worth: what the best action is."""
        with half_precision(self.device):
            found: Tensor = self.critic(stacks)
        return found.float().amax(dim=1)

    def next_loss(self) -> Tensor:
        """Return the loss of a fresh sample of the rollout's steps."""
        draws = self.stream.uniform(0.0, 1.0, (2, self.settings.batch_size))
        return self.loss((draws[0] * self.settings.horizon).long(), (draws[1] * self.settings.slots).long())

    def loss(self, step: Tensor, slot: Tensor) -> Tensor:
        """Return PPO's clipped loss of the policy, the error of the values and the entropy bonus."""
        kept, settings = self.rollout, self.settings
        with half_precision(self.device):
            output = outputs(self.online, kept.seen_stacks(step, slot))
        chances = log_softmax(output, dim=1)
        change = chances.gather(1, kept.action[step, slot].unsqueeze(1)).squeeze(1) - kept.chance[step, slot]
        ratio, advantage = change.exp(), kept.advantage[step, slot]
        bounded = ratio.clamp(1 - settings.clip, 1 + settings.clip)
        gain = torch.minimum(ratio * advantage, bounded * advantage).mean()
        error = mse_loss(self.values(kept.clean_stacks(step, slot)), kept.goal[step, slot])
        entropy = -(chances.exp() * chances).sum(dim=1).mean()
        self.shown.lerp_(torch.stack((change.square().mean(), error, entropy)).detach(), 0.01)
        return error - gain - settings.entropy * entropy


class Tuning:
    """The emulators, in which the student acts as its policy draws."""

    by_bound = False

    def __init__(
        self,
        task: Task,
        sigma: float,
        settings: FineTuneSettings,
        learner: Actor,
        *,
        seed: int,
        first_step: int,
        processes: int,
        seconds: float | None = None,
        began: float = 0.0,
        watch: Watch | None = None,
    ) -> None:
        assert task.cartridge is not None
        self.cartridge, self.settings, self.learner = task.cartridge, settings, learner
        self.seconds, self.began, self.watch = seconds, began, watch
        self.players = Emulated(
            [task.cartridge] * settings.slots,
            task,
            sigma,
            learner.rollout.n_stack,
            device=learner.device,
            seed=seed,
            first_step=first_step,
            processes=processes,
        )
        self.slot = torch.arange(settings.slots, device=learner.device)
        self.returns = np.zeros(settings.slots)
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.watched = time.monotonic()

    def stretch(self, curve: Curve, until: int, deadline: float | None) -> None:
        """Collect rollouts and learn from each, up to a number of steps or a deadline."""
        while curve.steps < until and not late(deadline):
            self.collect()
            used = 0.0 if self.seconds is None else (time.monotonic() - self.began) / self.seconds
            self.learner.learn(min(1.0, max(curve.steps / self.settings.total_steps, used)))
            curve.steps += self.settings.slots * self.settings.horizon
            if self.watch is not None and time.monotonic() > self.watched + WATCHED_EVERY:
                self.watched = time.monotonic()
                self.watch(self._line(curve.steps), np.array(self.recent))

    def collect(self) -> None:
        """Let the policy act for ``horizon`` steps, and judge its actions."""
        kept = self.learner.rollout
        kept.begin()
        for step in range(self.settings.horizon):
            self._act(step)
            board = self.players.collect()
            kept.reward[step] = torch.from_numpy(board.rewards.astype(np.float32)).to(kept.reward.device)
            kept.over[step] = torch.from_numpy(board.over.astype(np.int64)).to(kept.over.device)
            self._count(board)
        last = self.settings.horizon
        kept.clean[-1], kept.age[last] = self.players.frames, self.players.age
        kept.value[last] = self._value(last)
        kept.judge(self.settings.gamma, self.settings.trace)

    def _act(self, step: int) -> None:
        players, kept = self.players, self.learner.rollout
        stacks = players.observe()
        kept.show(step, players.frames, stacks[:, -1], players.age)
        with torch.no_grad(), half_precision(self.learner.device):
            logits = outputs(self.learner.online, stacks)
        action = drawn_actions(logits, players.stream)
        players.act(action)
        kept.action[step] = action
        kept.chance[step] = log_softmax(logits, dim=1).gather(1, action.unsqueeze(1)).squeeze(1)
        kept.value[step] = self._value(step)

    def _value(self, step: int) -> Tensor:
        with torch.no_grad():
            return self.learner.values(self.learner.rollout.clean_stacks(torch.full_like(self.slot, step), self.slot))

    def exploration(self, steps: int) -> float:  # noqa: ARG002 - the policy draws its actions throughout
        """Return the entropy of the policy."""
        return float(self.learner.shown[2])

    def close(self) -> None:
        """End the emulators."""
        self.players.close()

    def _count(self, board: Board) -> None:
        self.returns += counted(self.cartridge, board.rewards)
        over = board.over != 0
        self.recent.extend(self.returns[over].tolist())
        self.returns[over] = 0.0

    def _line(self, steps: int) -> str:
        change, error, entropy = self.learner.shown.tolist()
        return (
            f"step {steps:,}, {self.learner.updates:,} updates, change {change:.5f}, error {error:.5f}, "
            f"entropy {entropy:.3f}"
        )
