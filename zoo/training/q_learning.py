"""Train a convolutional agent for an Atari task in minutes on one GPU, with noise on every frame.

Read from top to bottom. Many emulators run in parallel while the GPU learns; frames are stored clean and get fresh
noise whenever they are sampled; a few gradient steps (double Q-learning over several steps) per vector step are
captured as one CUDA graph. ``zoo/build_atari.py train`` runs it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.agents.networks import CNN, NATURE
from surefoot.agents.policies import Policy
from surefoot.compute import usable_cores
from surefoot.errors import InputError
from surefoot.play.envs.atari.emulators import CUT, ENDED, Cartridge
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.train.folder import TrainingCurve, TrainingRun
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
    copy_weights,
    fresh_arrays,
    half_precision,
    is_late,
    train_agent,
)

# An agent that knows the game need not explore everything again.
INITIALIZED_EXPLORATION = 0.05


@dataclass(frozen=True)
class FastSettings(AtariSettings):
    """Settings of the preset ``fast``; the defaults are for one round of Pong."""

    total_steps: int = setting(4_000_000, "agent steps in total, over which learning rate and exploration fall")
    n_envs: int = setting(128, "emulators in parallel")
    buffer_size: int = setting(1_000_000, "frames the replay buffer holds")
    learning_starts: int = setting(
        50_000, "steps collected before learning; again after a resume, whose buffer is empty"
    )
    updates: int = setting(6, "gradient steps per step of all emulators")
    batch_size: int = setting(256, "transitions per gradient step")
    n_steps: int = setting(3, "steps until a successor's value is used")
    gamma: float = setting(0.99, "discount in training; certificates are about the undiscounted return")
    learning_rate: float = setting(2e-4, "learning rate of Adam at the start; it falls linearly to a tenth")
    target_interval: int = setting(500, "gradient steps between updates of the target network")
    averaging: float = setting(0.999, "weight of the past in the running average of the weights, per gradient step")
    exploration_steps: int = setting(300_000, "steps over which exploration falls linearly")
    exploration_initial: float = setting(1.0, "how often an exploring stretch begins, at the start")
    exploration_final: float = setting(0.003, "how often an exploring stretch begins, at the end")
    exploration_longest: int = setting(64, "most steps of an exploring stretch; lengths follow 1 / length^2")
    goal_ends: bool = setting(True, "whether no value is carried over a goal, although whole games are run")
    beside: str = setting("", "another task of the same game that every second emulator runs; empty: none")
    capture: bool = setting(True, "whether the gradient steps are captured as one CUDA graph, where there is a GPU")
    validation_interval: int = setting(500_000, "steps between validations")
    validation_episodes: int = setting(200, "episodes per validation")


FAST: dict[str, FastSettings] = {
    "pong-1r": FastSettings(),
    "pong-full": FastSettings(validation_episodes=20),
    "freeway": FastSettings(
        total_steps=1_500_000,
        exploration_steps=200_000,
        goal_ends=False,
        validation_interval=350_000,
        validation_episodes=100,
    ),
}


def train_fast(
    run: TrainingRun, settings: FastSettings, *, init_from: Policy | None = None, processes: int | None = None
) -> Policy:
    """Train until the steps or the time are used up; write the best agent, the curve and a checkpoint.

    Args:
        run: What to train and where; an Atari task. Its time limit is that of this part: a resumed run goes on.
        settings: The numbers of the preset.
        init_from: An agent whose weights to begin with, for example one trained with less noise.
        processes: How many processes run emulators; None: one per core.
    """
    check_atari(run.task, "fast")
    deadline = None if run.time_limit is None else time.monotonic() + 60 * run.time_limit
    folder = run.open_folder()
    device = torch.device(run.device)
    learner = QLearner(run.task, run.sigma, settings, device, run.seed)
    started_from = begin_training(run, folder, learner, init_from)
    if started_from is not None:
        settings = replace(settings, exploration_initial=min(settings.exploration_initial, INITIALIZED_EXPLORATION))
    emulators = ExploringEmulators(
        run.task, run.sigma, settings, device, run.seed, folder.curve.steps, processes or usable_cores()
    )
    card = card_of_run(run, "zoo.training.q_learning: double Q-learning", settings)
    loop = QLearningLoop(settings, learner, emulators)
    return train_agent(loop, run, folder, card, deadline=deadline, started_from=started_from)


class QLearningLoop(TrainingLoop):
    """The emulators, in which the agent explores, and double Q-learning from what they show."""

    settings: FastSettings
    learner: QLearner
    emulators: ExploringEmulators

    def __init__(self, settings: FastSettings, learner: QLearner, emulators: ExploringEmulators) -> None:
        self.settings = settings
        self.learner = learner
        self.emulators = emulators

    def run_until(self, curve: TrainingCurve, last_step: int, deadline: float | None) -> None:
        """Run and learn up to a number of steps or a deadline, the emulators stepping while the GPU learns."""
        learner = self.learner
        # A resumed run has an empty buffer: it collects again, with the network it has, before it learns.
        learning_starts = self.emulators.first_step + self.settings.learning_starts
        while curve.steps < last_step:
            self.emulators.begin(learner.online, learner.buffer, self.exploration(curve.steps))
            if curve.steps >= learning_starts and learner.buffer.is_ready:
                learner.learn(curve.steps / self.settings.total_steps)
            self.emulators.finish(learner.buffer)
            curve.steps += self.settings.n_envs
            if is_late(deadline):
                break

    def exploration(self, steps: int) -> float:
        """Return how often an exploring stretch begins after so many steps."""
        settings = self.settings
        fraction = min(1.0, steps / max(1, settings.exploration_steps))
        return settings.exploration_initial + fraction * (settings.exploration_final - settings.exploration_initial)


class ExploringEmulators(Emulators):
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
        super().__init__(
            games_of_emulators(task, settings),
            task,
            sigma,
            task.spaces.n_stack,
            device=device,
            seed=seed,
            first_step=first_step,
            processes=processes,
        )
        self.settings = settings
        self.n_actions = task.spaces.n_actions
        # Steps that are left of an exploring stretch, and the action that it holds.
        self.steps_left = torch.zeros_like(self.age)
        self.held_action = torch.zeros_like(self.age)

    def begin(self, network: nn.Module, buffer: TransitionBuffer, rate: float) -> None:
        """Pass every environment's frame through the channel to the network, and start the emulators' next step."""
        buffer.show(self.frames, self.age)
        history = self.observe()
        with torch.inference_mode(), half_precision(self.device):
            greedy = network(history).argmax(dim=1)
        self.act(self.explore(greedy, rate))

    def finish(self, buffer: TransitionBuffer) -> None:
        """Wait for the emulators and store their results."""
        board = self.collect()
        rewards = torch.from_numpy(board.rewards.astype(np.float32)).to(self.device)
        over = torch.from_numpy(board.over.copy()).to(self.device)
        if self.settings.goal_ends:
            # The rest of a game says nothing about a rally: its value is not carried over.
            over = torch.where(rewards != 0, ENDED, over)
        buffer.add(self.action, rewards, over)

    def explore(self, greedy: Tensor, rate: float) -> Tensor:
        """Replace actions by stretches of one random action: single random actions rarely score in Freeway."""
        draws = self.stream.uniform(0.0, 1.0, (3, len(greedy)))
        begins = (self.steps_left == 0) & (draws[0] < rate)
        # P(length >= k) = 1 / k, as near as makes no difference to 1 / length^2.
        length = (1 / draws[1].clamp_min(1e-9)).long().clamp(1, self.settings.exploration_longest)
        self.steps_left = torch.where(begins, length, self.steps_left)
        self.held_action = torch.where(begins, (draws[2] * self.n_actions).long(), self.held_action)
        chosen = torch.where(self.steps_left > 0, self.held_action, greedy)
        self.steps_left = (self.steps_left - 1).clamp_min(0)
        return chosen


def games_of_emulators(task: Task, settings: FastSettings) -> list[Cartridge]:
    """Return the game of each emulator."""
    assert task.cartridge is not None
    other = get_task(settings.beside).cartridge if settings.beside else task.cartridge
    if other is None or other.rom != task.cartridge.rom:
        raise InputError(
            f"{settings.beside} is not a task of the same game as {task.name}; set beside to one, or to none"
        )
    return [other if slot % 2 else task.cartridge for slot in range(settings.n_envs)]


@dataclass(frozen=True, eq=False)
class Transitions:
    """Transitions over several steps.

    Attributes:
        state: Stacks of noisy frames, oldest first.
        action: What was done there.
        reward: The discounted rewards of the next steps.
        successor: Stacks after these steps, sharing the noise of the frames they share.
        discount: What the successor's value counts: 0 where the episode had ended.
        weight: 0 where max_steps cut the episode, so that nothing is known of what would have come.
    """

    state: Tensor
    action: Tensor
    reward: Tensor
    successor: Tensor
    discount: Tensor
    weight: Tensor


class TransitionBuffer(FrameBuffer):
    """Frames with what was done there and what came of it: transitions over ``n_steps`` steps."""

    def __init__(self, *sizes: Any, gamma: float, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.gamma = gamma
        self.action = torch.zeros_like(self.age)
        self.reward = torch.zeros_like(self.age, dtype=torch.float32)
        self.over = torch.zeros_like(self.age, dtype=torch.uint8)

    def add(self, action: Tensor, reward: Tensor, over: Tensor) -> None:
        """End the row: the actions, the rewards, and whether the episode is over."""
        row = self.written % self.rows
        self.action[row] = action
        self.reward[row] = reward
        self.over[row] = over
        self.end_row()

    def draw(self) -> Transitions:
        """Sample transitions uniformly, with replacement."""
        step, slot = self._draw_places()
        span = step.unsqueeze(1) + torch.arange(1 - self.n_stack, self.n_steps + 1, device=step.device)
        seen = self._noisy_frames(span % self.rows, slot.unsqueeze(1))
        now = step % self.rows
        then = (step + self.n_steps) % self.rows
        reward, discount, weight = self._outcome(span[:, self.n_stack - 1 : -1] % self.rows, slot.unsqueeze(1))
        return Transitions(
            state=self._stack_at(seen, self.n_stack - 1, self.age[now, slot]),
            action=self.action[now, slot],
            reward=reward,
            successor=self._stack_at(seen, self.n_stack - 1 + self.n_steps, self.age[then, slot]),
            discount=discount,
            weight=weight,
        )

    def _outcome(self, rows: Tensor, slot: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the discounted rewards, what the successor's value counts, and the weight of the transition."""
        over = self.over[rows, slot]
        rewards = self.reward[rows, slot]
        going = torch.ones_like(rewards[:, 0])
        total = torch.zeros_like(going)
        weight = torch.ones_like(going)
        # ``going`` becomes 0 behind an end, ``weight`` where the step limit cut the episode before.
        for index in range(self.n_steps):
            total = total + self.gamma**index * going * rewards[:, index]
            weight = weight * (1 - going * (over[:, index] == CUT))
            going = going * (over[:, index] != ENDED) * weight
        return total, self.gamma**self.n_steps * going, weight


class QLearner(AveragedLearner):
    """Double Q-learning: the networks, their optimizer and the buffer."""

    def __init__(self, task: Task, sigma: float, settings: FastSettings, device: torch.device, seed: int) -> None:
        assert task.spaces.n_actions is not None
        self.settings = settings
        *_, learning, weights = training_seeds(seed, 0)
        first = fresh_arrays(task.spaces.n_stack, task.spaces.n_actions, weights)
        # Adam's epsilon is that of Rainbow, larger than torch's: rare gradients are small.
        super().__init__(first, settings, Stream(learning, device), eps=1.5e-4, max_grad_norm=10.0, last_rate=0.1)
        self.target = CNN(first, NATURE).to(device)
        self.followers = (self.target,)
        self.buffer = TransitionBuffer(
            max(settings.buffer_size // settings.n_envs, 4 * (task.spaces.n_stack + settings.n_steps)),
            settings.n_envs,
            task.spaces.shape,
            task.spaces.n_stack,
            n_steps=settings.n_steps,
            gamma=settings.gamma,
            sigma=sigma,
            batch_size=settings.batch_size,
            stream=self.stream,
        )

    def learn(self, fraction: float) -> None:
        """Take the gradient steps of one vector step, and let the target network follow at its interval."""
        interval = self.settings.target_interval
        follows_before = self.updates // interval
        super().learn(fraction)
        if self.updates // interval != follows_before:
            copy_weights(self.online, self.target)

    def next_loss(self) -> Tensor:
        """Return the loss of a fresh sample."""
        return self.loss(self.buffer.draw())

    def loss(self, batch: Transitions) -> Tensor:
        """Return the mean Huber loss of the values against double Q-learning's targets."""
        with half_precision(self.device):
            with torch.no_grad():
                # Double Q-learning: the online network chooses, the target network values.
                best = self.online(batch.successor).argmax(dim=1, keepdim=True)
                following = self.target(batch.successor).gather(1, best).squeeze(1).float()
                goal = batch.reward + batch.discount * following
            values = self.online(batch.state).gather(1, batch.action.unsqueeze(1)).squeeze(1).float()
        errors = nn.functional.smooth_l1_loss(values, goal, reduction="none")
        return (batch.weight * errors).mean()
