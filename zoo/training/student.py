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

Strong noise is learned from weaker noise: begin with an agent of a smaller sigma. Run it with
``zoo/build_atari.py train --teacher``.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, mse_loss

from surefoot.agents.policies import Policy
from surefoot.compute import usable_cores
from surefoot.errors import InputError
from surefoot.play.envs.atari.emulators import Board
from surefoot.play.envs.atari.env import count_rewards
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.train.folder import NamedArrays, TrainingCurve, TrainingRun
from surefoot.train.settings import setting
from zoo.training.atari import (
    AtariSettings,
    AveragedLearner,
    Emulators,
    FrameBuffer,
    TrainingLoop,
    begin_training,
    card_of_run,
    check_atari,
    fresh_arrays,
    half_precision,
    identity,
    is_late,
    train_agent,
)

N_RECENT = 512  # training episodes whose returns stand for a validation where there is none


@dataclass(frozen=True)
class StudentSettings(AtariSettings):
    """Settings of the preset ``student``; the defaults are for one round of Pong."""

    total_steps: int = setting(6_000_000, "agent steps in total, over which the learning rate falls")
    n_envs: int = setting(256, "emulators in parallel")
    n_stack: int = setting(12, "noisy frames the student sees")
    widths: tuple[int, int, int, int] = setting((64, 128, 128, 512), "channels of the convolutions, hidden units")
    buffer_size: int = setting(1_000_000, "frames the replay buffer holds")
    learning_starts: int = setting(12_288, "steps collected before learning; again after a resume")
    updates: int = setting(2, "gradient steps at a time")
    rounds: int = setting(4, "times that many per step of all emulators; on a GPU more, until the emulators are done")
    batch_size: int = setting(512, "stacks per gradient step")
    learning_rate: float = setting(3e-4, "learning rate of Adam at the start; it falls linearly to a twentieth")
    averaging: float = setting(0.9995, "weight of the past in the running average of the weights, per gradient step")
    regret: float = setting(10.0, "weight of the policy's expected regret under the teacher's values")
    entropy: float = setting(0.05, "weight of the entropy bonus at the start; it falls with the learning rate")
    demonstrations: float = setting(0.1, "fraction of a training from scratch in which the teacher acts now and then")
    capture: bool = setting(True, "whether the gradient steps are captured as one CUDA graph, where there is a GPU")
    validation_interval: int = setting(1_000_000, "steps between validations")
    validation_episodes: int = setting(512, "episodes per validation; 0: none, the last agent is kept")


STUDENT: dict[str, StudentSettings] = {
    "pong-1r": StudentSettings(),
    "pong-full": StudentSettings(validation_episodes=32),
    "freeway": StudentSettings(total_steps=4_000_000),
}


def train_student(
    run: TrainingRun,
    settings: StudentSettings,
    *,
    teacher: Policy,
    init_from: Policy | None = None,
    processes: int | None = None,
) -> Policy:
    """Train until the steps or the time are used up; write the best agent, the curve and a checkpoint.

    The time includes the start of the emulators; the learning rate falls over what is left for learning.

    Args:
        run: What to train and where; an Atari task.
        settings: The numbers of the preset.
        teacher: An agent that plays the task without noise and says what actions are worth.
        init_from: A student for less noise, whose weights to begin with.
        processes: How many processes run emulators; None: one per core.
    """
    began = time.monotonic()
    task = run.task
    check_atari(task, "student")
    if (teacher.spaces.shape, teacher.spaces.n_actions) != (task.spaces.shape, task.spaces.n_actions):
        raise InputError(f"{teacher.name} cannot teach {task.name}: it plays another game; choose an agent of this one")
    folder = run.open_folder()
    learner = StudentLearner(task, run.sigma, settings, torch.device(run.device), run.seed)
    started_from = begin_training(run, folder, learner, init_from)
    seconds_before = folder.curve.seconds
    deadline = None if run.time_limit is None else began - seconds_before + 60 * run.time_limit
    loop = StudentLoop(
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
        seconds_before=seconds_before,
    )
    card = card_of_run(
        run,
        "zoo.training.student: distillation (DAgger)",
        settings,
        teacher=identity(teacher),
        time_limit=run.time_limit,
    )
    return train_agent(loop, run, folder, card, deadline=deadline, started_from=started_from)


class StudentLoop(TrainingLoop):
    """The emulators, in which the student acts on noisy frames and the teacher labels the clean ones."""

    settings: StudentSettings
    learner: StudentLearner
    label = "-student"
    keeps_best_bound = True

    def __init__(
        self,
        task: Task,
        sigma: float,
        settings: StudentSettings,
        learner: StudentLearner,
        teacher: Policy,
        *,
        seed: int,
        first_step: int,
        processes: int,
        demonstrations: float = 0.0,
        deadline: float | None = None,
        seconds_before: float = 0.0,
    ) -> None:
        assert task.cartridge is not None
        self.cartridge = task.cartridge
        self.settings = settings
        self.learner = learner
        self.teacher = teacher
        self.demonstrations = demonstrations
        self.deadline = deadline
        device = learner.device
        self.emulators = Emulators(
            [task.cartridge] * settings.n_envs,
            task,
            sigma,
            settings.n_stack,
            device=device,
            seed=seed,
            first_step=first_step,
            processes=processes,
        )
        # What the teacher remembers of the clean frames.
        self.memory = teacher.memory
        self.clean = self.memory.empty(torch.zeros((settings.n_envs, *task.spaces.shape), device=device))
        self.slot = torch.arange(settings.n_envs, device=device)
        self.returns = np.zeros(settings.n_envs)
        self.recent_returns: deque[float] = deque(maxlen=N_RECENT)
        # The emulators have started only now: in a short training their start must not count.
        self.began = time.monotonic() - seconds_before

    def run_until(self, curve: TrainingCurve, last_step: int, deadline: float | None) -> None:
        """Run and learn up to a number of steps or a deadline, the emulators stepping while the GPU learns."""
        learning_starts = self.emulators.first_step + self.settings.learning_starts
        while curve.steps < last_step and not is_late(deadline):
            learns = curve.steps >= learning_starts and self.learner.buffer.is_ready
            self.step(self.fraction_done(curve.steps), learns=learns)
            curve.steps += self.settings.n_envs

    def fraction_done(self, steps: int) -> float:
        """Return how much of the training is over, in steps or in time."""
        of_time = 0.0
        if self.deadline is not None:
            of_time = (time.monotonic() - self.began) / max(1e-9, self.deadline - self.began)
        return min(1.0, max(steps / self.settings.total_steps, of_time))

    def step(self, fraction: float, *, learns: bool) -> None:
        """Let every emulator take one step, and learn meanwhile, on a GPU until the emulators are done."""
        emulators = self.emulators
        learner = self.learner
        values = self.teacher_values()
        emulators.act(self.choose_actions(emulators.observe(), values, fraction))
        learner.buffer.show(emulators.frames, emulators.age)
        learner.buffer.label(values)
        if learns:
            # The emulators step meanwhile; the buffer's newest row is complete, so it may be sampled.
            for _ in range(self.settings.rounds):
                learner.learn(fraction)
            while not emulators.fleet.is_done():
                if learner.is_idle:
                    learner.learn(fraction)
                else:
                    time.sleep(1e-4)
        self._count_returns(emulators.collect())

    def teacher_values(self) -> Tensor:
        """Return what the teacher says, in single precision: actions may differ by hundredths."""
        emulators = self.emulators
        # TF32 would round to half of the digits.
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            frames = emulators.frames.div(255)
            self.clean = self.memory.advance(self.clean, frames, emulators.action, emulators.age == 0)
            values: Tensor = self.teacher.network(self.clean)
        return values

    def choose_actions(self, stacks: Tensor, values: Tensor, fraction: float) -> Tensor:
        """Return the student's actions, the best in even emulators and drawn ones in odd; the teacher's in some."""
        with torch.inference_mode(), half_precision(self.learner.device):
            logits = self.learner.average(stacks)[:, : self.learner.n_actions].float()
        drawn = draw_actions(logits, self.emulators.stream)
        chosen = torch.where(self.slot % 2 == 0, logits.argmax(dim=1), drawn)
        if fraction >= self.demonstrations:
            return chosen
        # The share of emulators in which the teacher acts falls from all to none.
        is_taught = self.slot % 8 >= 8 * fraction / self.demonstrations
        return torch.where(is_taught, values.argmax(dim=1), chosen)

    def exploration(self, steps: int) -> float:
        """Return the share of emulators in which the teacher may act."""
        if self.fraction_done(steps) >= self.demonstrations:
            return 0.0
        return 1 - self.fraction_done(steps) / self.demonstrations

    def _count_returns(self, board: Board) -> None:
        """Keep the returns of the last episodes that the student's best actions led to, in the even emulators."""
        self.returns += count_rewards(self.cartridge, board.rewards)
        over = board.over != 0
        self.recent_returns.extend(self.returns[::2][over[::2]].tolist())
        self.returns[over] = 0.0


class LabeledBuffer(FrameBuffer):
    """Frames with what a teacher says every action is worth there."""

    def __init__(self, *sizes: Any, n_actions: int, **options: Any) -> None:
        super().__init__(*sizes, n_steps=0, **options)
        self.values = torch.zeros((*self.age.shape, n_actions), device=self.age.device)

    def label(self, values: Tensor) -> None:
        """End the row: the teacher's values of the actions."""
        self.values[self.written % self.rows] = values
        self.end_row()

    def draw(self) -> tuple[Tensor, Tensor]:
        """Sample noisy stacks and the teacher's values at their newest frames, uniformly, with replacement."""
        step, slot = self._draw_places()
        span = step.unsqueeze(1) + torch.arange(1 - self.n_stack, 1, device=step.device)
        seen = self._noisy_frames(span % self.rows, slot.unsqueeze(1))
        now = step % self.rows
        return self._stack_at(seen, self.n_stack - 1, self.age[now, slot]), self.values[now, slot]


class StudentLearner(AveragedLearner):
    """The student's network: for every action a logit of the policy, then for every action a value."""

    def __init__(self, task: Task, sigma: float, settings: StudentSettings, device: torch.device, seed: int) -> None:
        assert task.spaces.n_actions is not None
        self.settings = settings
        self.n_actions = task.spaces.n_actions
        *_, learning, weights = training_seeds(seed, 0)
        first = fresh_arrays(settings.n_stack, 2 * self.n_actions, weights, settings.widths)
        super().__init__(first, settings, Stream(learning, device), eps=1e-5, max_grad_norm=1.0, last_rate=0.05)
        self.buffer = LabeledBuffer(
            max(settings.buffer_size // settings.n_envs, 4 * settings.n_stack),
            settings.n_envs,
            task.spaces.shape,
            settings.n_stack,
            n_actions=self.n_actions,
            sigma=sigma,
            batch_size=settings.batch_size,
            stream=self.stream,
        )

    def next_loss(self) -> Tensor:
        """Return the loss of a fresh sample."""
        stacks, values = self.buffer.draw()
        return self.loss(stacks, values)

    def loss(self, stacks: Tensor, values: Tensor) -> Tensor:
        """Return the mean of the policy's regret, the error of the second head, and the entropy bonus, weighted."""
        with half_precision(self.device):
            output = self.online(stacks).float()
        log_probs = log_softmax(output[:, : self.n_actions], dim=1)
        regret = (log_probs.exp() * (values.amax(dim=1, keepdim=True) - values)).sum(dim=1).mean()
        error = mse_loss(output[:, self.n_actions :], values)
        entropy = -(log_probs.exp() * log_probs).sum(dim=1).mean()
        # The bonus falls with the learning rate, which is a tensor: a captured graph reads both.
        bonus = self.settings.entropy / self.first_rate * self.rate
        return self.settings.regret * regret + error - bonus * entropy

    def agent_weights(self) -> NamedArrays:
        """Return the running average without the head of the values."""
        weights = super().agent_weights()
        last = f"linear{self.online.sizes.linear - 1}."
        for name in weights:
            if name.startswith(last):
                weights[name] = weights[name][: self.n_actions]
        return weights

    @property
    def is_idle(self) -> bool:
        """Whether a GPU has done all it was asked."""
        return self.device.type == "cuda" and bool(torch.cuda.current_stream().query())


def draw_actions(logits: Tensor, stream: Stream) -> Tensor:
    """Return one action per row, drawn from the policy (Gumbel's way)."""
    # The largest of logits plus Gumbel noise is distributed as their softmax; 0 and 1 would be infinite.
    draws = stream.uniform(0.0, 1.0, tuple(logits.shape)).clamp(1e-12, 1 - 1e-12)
    return (logits - (-draws.log()).log()).argmax(dim=1)
