"""Fine-tune a student by the return itself: PPO (Schulman et al., 2017) with a critic that sees the clean frames.

A student imitates a teacher that sees everything, and what is best for the teacher need not be best for an agent that
cannot tell where the ball is. Here the student's own return decides. The critic is needed in training only, so it may
see what the student does not: the clean frames. It begins as the teacher, whose best action's value it takes for the
value of a state, and learns what states are worth to the student. Rewards are the game's: 1 for a point, -1 for the
opponent's. The agent is the running average of the student's weights. ``zoo/build_atari.py train --fine-tune`` runs it.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax, mse_loss

from surefoot.agents.networks import CNN
from surefoot.agents.policies import Policy
from surefoot.compute import usable_cores
from surefoot.errors import InputError
from surefoot.play.envs.atari.emulators import CUT, ENDED, Board
from surefoot.play.envs.atari.env import count_rewards
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.train.folder import TrainingCurve, TrainingRun
from surefoot.train.settings import setting
from zoo.training.atari import (
    AtariSettings,
    AveragedLearner,
    Emulators,
    Watch,
    arrays_of_network,
    card_of_run,
    check_atari,
    half_precision,
    identity,
    is_late,
    train_agent,
)
from zoo.training.student import N_RECENT, SECONDS_BETWEEN_LINES, draw_actions, fast_outputs


@dataclass(frozen=True)
class FineTuneSettings(AtariSettings):
    """Settings of the preset ``fine-tune``; the defaults are for one round of Pong."""

    total_steps: int = setting(4_000_000, "agent steps in total, over which the learning rate falls")
    n_envs: int = setting(256, "emulators in parallel")
    horizon: int = setting(64, "steps of every emulator between updates")
    updates: int = setting(32, "gradient steps after every rollout")
    batch_size: int = setting(2_048, "steps per gradient step, drawn from the rollout")
    learning_rate: float = setting(1.5e-4, "learning rate of Adam at the start; it falls linearly to a twentieth")
    averaging: float = setting(0.99, "weight of the past in the running average of the weights, per gradient step")
    gamma: float = setting(0.997, "discount in training; the critic begins with the teacher's values, so take its own")
    trace: float = setting(0.95, "lambda of the advantages (GAE)")
    clip: float = setting(0.1, "by how much an action's probability may change before its advantage counts no more")
    entropy: float = setting(0.01, "weight of the entropy bonus")
    capture: bool = setting(True, "whether the gradient steps are captured as one CUDA graph, where there is a GPU")
    validation_interval: int = setting(500_000, "steps between validations")
    validation_episodes: int = setting(1_024, "episodes per validation")


FINE_TUNE: dict[str, FineTuneSettings] = {
    "pong-1r": FineTuneSettings(),
    "pong-full": FineTuneSettings(validation_episodes=32),
    "freeway": FineTuneSettings(gamma=0.99, validation_episodes=512),
}


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
    began = time.monotonic()
    task = run.task
    check_atari(task, "fine-tune")
    for policy in (teacher, init_from):
        if not isinstance(policy.network, CNN) or policy.spaces.n_actions != task.spaces.n_actions:
            raise InputError(f"{policy.name} is not a convolutional agent for {task.name}; choose one of this game")
    folder = run.open_folder()
    learner = FineTuneLearner(task, settings, init_from, teacher, torch.device(run.device), run.seed)
    started_from = learner.load_checkpoint(folder) if run.resume else identity(init_from)
    began -= folder.curve.seconds
    seconds = None if run.time_limit is None else 60 * run.time_limit
    loop = FineTuneLoop(
        task,
        run.sigma,
        settings,
        learner,
        seed=run.seed,
        first_step=folder.curve.steps,
        processes=processes or usable_cores(),
        seconds=seconds,
        began=began,
        watch=watch,
    )
    card = card_of_run(
        run,
        "zoo.training.fine_tune: PPO with a critic on clean frames",
        settings,
        teacher=identity(teacher),
        time_limit=run.time_limit,
    )
    return train_agent(
        loop,
        run,
        folder,
        card,
        deadline=None if seconds is None else began + seconds,
        started_from=started_from,
        watch=watch,
        validate_first=True,
    )


class FineTuneLoop:
    """The emulators, in which the student acts as its policy draws."""

    label = "-student"
    keeps_best_bound = False

    def __init__(
        self,
        task: Task,
        sigma: float,
        settings: FineTuneSettings,
        learner: FineTuneLearner,
        *,
        seed: int,
        first_step: int,
        processes: int,
        seconds: float | None = None,
        began: float = 0.0,
        watch: Watch | None = None,
    ) -> None:
        assert task.cartridge is not None
        self.cartridge = task.cartridge
        self.settings = settings
        self.learner = learner
        self.seconds = seconds
        self.began = began
        self.watch = watch
        self.emulators = Emulators(
            [task.cartridge] * settings.n_envs,
            task,
            sigma,
            learner.rollout.n_stack,
            device=learner.device,
            seed=seed,
            first_step=first_step,
            processes=processes,
        )
        self.slot = torch.arange(settings.n_envs, device=learner.device)
        self.returns = np.zeros(settings.n_envs)
        self.recent_returns: deque[float] = deque(maxlen=N_RECENT)
        self.watched = time.monotonic()

    def run_until(self, curve: TrainingCurve, last_step: int, deadline: float | None) -> None:
        """Collect rollouts and learn from each, up to a number of steps or a deadline."""
        while curve.steps < last_step and not is_late(deadline):
            self.collect_rollout()
            self.learner.learn(self.fraction_done(curve.steps))
            curve.steps += self.settings.n_envs * self.settings.horizon
            if self.watch is not None and time.monotonic() > self.watched + SECONDS_BETWEEN_LINES:
                self.watched = time.monotonic()
                self.watch(self._describe_progress(curve.steps), np.array(self.recent_returns))

    def fraction_done(self, steps: int) -> float:
        """Return how much of the training is over, in steps or in time."""
        of_time = 0.0
        if self.seconds is not None:
            of_time = (time.monotonic() - self.began) / self.seconds
        return min(1.0, max(steps / self.settings.total_steps, of_time))

    def collect_rollout(self) -> None:
        """Let the policy act for ``horizon`` steps, and judge its actions."""
        rollout = self.learner.rollout
        device = self.learner.device
        rollout.begin()
        for step in range(self.settings.horizon):
            self._act(step)
            board = self.emulators.collect()
            rollout.reward[step] = torch.from_numpy(board.rewards.astype(np.float32)).to(device)
            rollout.over[step] = torch.from_numpy(board.over.astype(np.int64)).to(device)
            self._count_returns(board)
        # The value of what follows the last step.
        last = self.settings.horizon
        rollout.clean[-1] = self.emulators.frames
        rollout.age[last] = self.emulators.age
        rollout.value[last] = self._values_at(last)
        rollout.judge(self.settings.gamma, self.settings.trace)

    def _act(self, step: int) -> None:
        """Let the policy choose the actions of one step, and write down what it saw and how likely they were."""
        emulators = self.emulators
        rollout = self.learner.rollout
        stacks = emulators.observe()
        rollout.show(step, emulators.frames, stacks[:, -1], emulators.age)
        with torch.no_grad(), half_precision(self.learner.device):
            logits = fast_outputs(self.learner.online, stacks)
        action = draw_actions(logits, emulators.stream)
        emulators.act(action)
        rollout.action[step] = action
        rollout.log_prob[step] = log_softmax(logits, dim=1).gather(1, action.unsqueeze(1)).squeeze(1)
        rollout.value[step] = self._values_at(step)

    def _values_at(self, step: int) -> Tensor:
        with torch.no_grad():
            return self.learner.values(self.learner.rollout.clean_stacks(torch.full_like(self.slot, step), self.slot))

    def exploration(self, steps: int) -> float:  # noqa: ARG002 - the policy draws its actions throughout
        """Return the entropy of the policy."""
        return float(self.learner.shown[2])

    def close(self) -> None:
        """End the emulators."""
        self.emulators.close()

    def _count_returns(self, board: Board) -> None:
        self.returns += count_rewards(self.cartridge, board.rewards)
        over = board.over != 0
        self.recent_returns.extend(self.returns[over].tolist())
        self.returns[over] = 0.0

    def _describe_progress(self, steps: int) -> str:
        change, error, entropy = self.learner.shown.tolist()
        return (
            f"step {steps:,}, {self.learner.updates:,} updates, change {change:.5f}, error {error:.5f}, "
            f"entropy {entropy:.3f}"
        )


class Rollout:
    """The last ``horizon`` steps of every emulator: what the student saw and did, what was there, what came of it."""

    def __init__(
        self, settings: FineTuneSettings, shape: tuple[int, ...], n_stack: int, n_clean: int, device: torch.device
    ):
        steps = settings.horizon
        n_envs = settings.n_envs
        self.n_stack = n_stack
        self.n_clean = n_clean
        # Half precision is what the network computes with on a GPU anyway.
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        # Before the first step there are the older frames of its stack; after the last one, the frame that follows.
        self.seen = torch.zeros((steps + n_stack, n_envs, *shape), dtype=dtype, device=device)
        self.clean = torch.zeros((steps + n_clean, n_envs, *shape), dtype=torch.uint8, device=device)
        self.age = torch.zeros((steps + 1, n_envs), dtype=torch.int64, device=device)
        self.action = torch.zeros_like(self.age)
        self.over = torch.zeros_like(self.age)
        self.log_prob = torch.zeros((steps + 1, n_envs), device=device)
        self.reward = torch.zeros_like(self.log_prob)
        self.value = torch.zeros_like(self.log_prob)
        self.advantage = torch.zeros_like(self.log_prob)
        self.target = torch.zeros_like(self.log_prob)

    def begin(self) -> None:
        """Keep the older frames that the next steps' stacks need."""
        for frames, n_frames in ((self.seen, self.n_stack), (self.clean, self.n_clean)):
            frames[: n_frames - 1] = frames[len(frames) - n_frames : -1].clone()

    def show(self, step: int, clean: Tensor, seen: Tensor, age: Tensor) -> None:
        """Write the frames of a step, as they are and as the student sees them."""
        self.clean[step + self.n_clean - 1] = clean
        self.seen[step + self.n_stack - 1] = seen
        self.age[step] = age

    def clean_stacks(self, step: Tensor, slot: Tensor) -> Tensor:
        """Return the clean stacks of some steps, scaled to [0, 1]."""
        return _stacks_at(self.clean, self.n_clean, step, slot, self.age[step, slot]).div(255)

    def seen_stacks(self, step: Tensor, slot: Tensor) -> Tensor:
        """Return what the student saw."""
        return _stacks_at(self.seen, self.n_stack, step, slot, self.age[step, slot])

    def judge(self, gamma: float, trace: float) -> None:
        """Compute the advantages of all actions (GAE), scaled to mean 0 and spread 1, and what values should be."""
        steps = len(self.age) - 1
        advantage = torch.zeros_like(self.value[0])
        for step in reversed(range(steps)):
            over = self.over[step]
            # The frame after a cut is of another episode: what follows is taken to be worth what the last frame was.
            following = torch.where(over == CUT, self.value[step], self.value[step + 1]) * (over != ENDED)
            surprise = self.reward[step] + gamma * following - self.value[step]
            advantage = surprise + gamma * trace * (over == 0) * advantage
            self.advantage[step] = advantage
        self.target[:steps] = self.advantage[:steps] + self.value[:steps]
        written = self.advantage[:steps]
        written.sub_(written.mean()).div_(written.std() + 1e-8)


def _stacks_at(frames: Tensor, n_frames: int, step: Tensor, slot: Tensor, age: Tensor) -> Tensor:
    """Return the stacks that end at some steps; before an episode's first frame there is that one again."""
    back = torch.arange(n_frames, device=frames.device)
    row = step.unsqueeze(1) + torch.maximum(back, (n_frames - 1 - age).unsqueeze(1))
    return frames[row, slot.unsqueeze(1)]


class FineTuneLearner(AveragedLearner):
    """The student's policy, and the critic."""

    def __init__(
        self, task: Task, settings: FineTuneSettings, student: Policy, teacher: Policy, device: torch.device, seed: int
    ) -> None:
        assert isinstance(student.network, CNN)
        assert isinstance(teacher.network, CNN)
        self.settings = settings
        *_, learning, _ = training_seeds(seed, 0)
        first = arrays_of_network(student.network)
        super().__init__(first, settings, Stream(learning, device), eps=1e-5, max_grad_norm=0.5, last_rate=0.05)
        self.critic = CNN(arrays_of_network(teacher.network), teacher.network.sizes).to(device).requires_grad_(True)
        # The critic is in no checkpoint: a resumed run takes the teacher's values again.
        self.optimizer.add_param_group({"params": list(self.critic.parameters()), "lr": self.rate})
        self.rollout = Rollout(settings, task.spaces.shape, student.spaces.n_stack, teacher.spaces.n_stack, device)
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
        step = (draws[0] * self.settings.horizon).long()
        slot = (draws[1] * self.settings.n_envs).long()
        return self.loss(step, slot)

    def loss(self, step: Tensor, slot: Tensor) -> Tensor:
        """Return PPO's clipped loss of the policy, the error of the values and the entropy bonus."""
        rollout = self.rollout
        clip = self.settings.clip
        with half_precision(self.device):
            output = fast_outputs(self.online, rollout.seen_stacks(step, slot))
        log_probs = log_softmax(output, dim=1)
        log_prob = log_probs.gather(1, rollout.action[step, slot].unsqueeze(1)).squeeze(1)
        change = log_prob - rollout.log_prob[step, slot]
        ratio = change.exp()
        advantage = rollout.advantage[step, slot]
        # PPO: what an action's probability gains beyond the clip does not count, what it loses does.
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
        error = mse_loss(self.values(rollout.clean_stacks(step, slot)), rollout.target[step, slot])
        entropy = -(log_probs.exp() * log_probs).sum(dim=1).mean()
        self.shown.lerp_(torch.stack((change.square().mean(), error, entropy)).detach(), 0.01)
        return error - gain - self.settings.entropy * entropy
