"""Train a convolutional agent for an Atari task in minutes on one GPU, with noise on every frame.

Read from top to bottom. Many emulators play side by side while the GPU learns; frames are kept clean and get fresh
noise whenever they are drawn; a few gradient steps (double Q-learning over several steps) per vector step are captured
as one CUDA graph. The agent is the running average of the weights, rounded to half precision: that is what is
validated, on noisy greedy play from resets, and what is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot import zoo
from surefoot.atari import slot_seeds
from surefoot.channel import Channel, Stream
from surefoot.emulators import ENDED, Board, Cartridge
from surefoot.episodes import checked_sigma
from surefoot.errors import InputError
from surefoot.files import write_text
from surefoot.fleet import Fleet
from surefoot.play import Plan, play
from surefoot.policies import FrameStack, Policy
from surefoot.policies_cnn import CNN, NATURE, cnn_policy, fresh_arrays, halved
from surefoot.tasks import Task, find_task
from surefoot.train.fast_checkpoint import Progressed, claim, load_fast, save_fast
from surefoot.train.replay import Batch, Replay
from surefoot.train.settings import setting
from surefoot.versions import versions
from surefoot.workers import usable_cores

# Streams of a training: emulators, acting, learning; validation plays episodes that no certificate uses.
VALIDATION = 1
PLAYING, ACTING, LEARNING = 101, 102, 103

# Who knows the game need not try everything again.
STARTED_EXPLORATION = 0.05

Report = Callable[[int, int, float], None]


@dataclass(frozen=True)
class FastSettings:
    """What the fast training is told; the defaults are for one round of Pong."""

    total_steps: int = setting(4_000_000, "agent steps in all, over which learning rate and exploration fall")
    slots: int = setting(128, "emulators side by side")
    buffer_size: int = setting(1_000_000, "frames the replay buffer holds")
    learning_starts: int = setting(
        50_000, "steps collected before learning; again after a resume, whose buffer is empty"
    )
    updates: int = setting(6, "gradient steps per step of all emulators")
    batch_size: int = setting(256, "transitions per gradient step")
    n_steps: int = setting(3, "steps until a successor's value is asked")
    gamma: float = setting(0.99, "discount in training; certificates are about the undiscounted return")
    learning_rate: float = setting(2e-4, "Adam's step size at the start; it falls linearly to a tenth")
    target_interval: int = setting(500, "gradient steps between updates of the target network")
    averaging: float = setting(0.999, "weight of the past in the running average of the weights, per gradient step")
    exploration_steps: int = setting(300_000, "steps over which exploration falls linearly")
    exploration_initial: float = setting(1.0, "how often an exploring stretch begins, at first")
    exploration_final: float = setting(0.003, "how often an exploring stretch begins, in the end")
    exploration_longest: int = setting(64, "most steps of an exploring stretch; lengths follow 1 / length^2")
    loss_weight: float = setting(
        1.0, "what a goal of the opponent counts in training; 0 trains on the task's own return"
    )
    goal_ends: bool = setting(True, "whether no value is carried over a goal, though whole games are played")
    beside: str = setting("", "another task of the same game that every second emulator plays; empty: none")
    capture: bool = setting(True, "whether the gradient steps are captured as one CUDA graph, where there is a GPU")
    validation_interval: int = setting(500_000, "steps between validations")
    validation_episodes: int = setting(200, "episodes per validation")

    def facts(self) -> dict[str, Any]:
        """Return the settings as JSON data."""
        return asdict(self)


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


def find_fast(task: str) -> FastSettings:
    """Return the fast settings for a task."""
    if task not in FAST:
        raise InputError(f"the preset 'fast' has no settings for {task!r}, only for {', '.join(FAST)}")
    return FAST[task]


def train_fast(
    task: Task,
    sigma: float,
    settings: FastSettings,
    out: Path,
    *,
    seed: int = 0,
    device: str = "cuda",
    minutes: float | None = None,
    processes: int | None = None,
    resume: bool = False,
    command: str = "",
    preset: str = "fast",
    start: Policy | None = None,
    progress: Report | None = None,
) -> Policy:
    """Train until the steps or the minutes are over; leave the best agent, the curve and a checkpoint in ``out``.

    ``start``  an agent whose weights to begin with; one for less noise knows the game already
    """
    began = time.monotonic()
    checked_sigma(sigma)
    if task.cartridge is None or task.choices is None:
        raise InputError(f"the fast training is for Atari tasks, {task.name} is none; use --preset paper")
    if minutes is not None and not minutes > 0:
        raise InputError(f"minutes must be > 0, got {minutes}")
    if start is not None:
        settings = replace(settings, exploration_initial=min(settings.exploration_initial, STARTED_EXPLORATION))
    claim(out, resume)
    so_far = Progressed()
    learner = Learner(task, sigma, settings, torch.device(device), seed)
    if resume:
        load_fast(out, learner, so_far)
    elif start is not None:
        learner.begin_with(start)
    deadline = None if minutes is None else began + 60 * minutes
    players = Players(task, sigma, settings, torch.device(device), seed, so_far.steps, processes or usable_cores())
    earlier = so_far.seconds
    try:
        while so_far.steps < settings.total_steps:
            until = min(so_far.steps + settings.validation_interval, settings.total_steps)
            with tried_convolutions():
                stretch(players, learner, so_far, settings, until, deadline)
            validate(task, sigma, settings, learner, so_far, seed, device)
            so_far.seconds = earlier + time.monotonic() - began
            save_fast(out, learner, so_far)
            write_text(out / "curve.csv", so_far.as_csv())
            if progress is not None:
                progress(so_far.steps, settings.total_steps, so_far.best)
            if _late(deadline):
                break
    except KeyboardInterrupt:
        save_fast(out, learner, so_far)
        raise
    finally:
        players.close()
    policy = agent(task, so_far.best_weights, f"{task.name}-s{sigma:g}")
    facts = _facts(task, sigma, settings, so_far, seed, device, command, preset)
    if start is not None:
        facts["training"]["started_from"] = {"name": start.name, "sha256": start.sha256}
    zoo.save(policy, out / "agent", facts)
    return policy


@contextmanager
def tried_convolutions() -> Iterator[None]:
    """Let cuDNN time its algorithms and take the fastest; only while learning, where nothing has to repeat exactly."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def stretch(
    players: Players, learner: Learner, so_far: Progressed, settings: FastSettings, until: int, deadline: float | None
) -> None:
    """Play and learn up to a number of steps or a moment, the emulators stepping while the GPU learns."""
    # A resumed run has an empty buffer: it collects anew, with the network it has, before it learns on.
    warm = players.first_step + settings.learning_starts
    while so_far.steps < until:
        players.begin(learner.online, learner.replay, exploration(settings, so_far.steps))
        if so_far.steps >= warm and learner.replay.ready:
            learner.learn(so_far.steps / settings.total_steps)
        players.finish(learner.replay)
        so_far.steps += settings.slots
        if _late(deadline):
            break


class Players:
    """The emulators of a training, with the noisy stacks the network acts on; a new episode follows each by itself."""

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
        assert task.choices is not None
        self.settings, self.device, self.choices, self.first_step = settings, device, task.choices, first_step
        # A resumed run plays other episodes than the run before.
        places = slot_seeds(np.random.SeedSequence(seed, spawn_key=(PLAYING, first_step)), settings.slots)
        self.fleet = Fleet(cartridges(task, settings), places, processes)
        self.stream = Stream(np.random.SeedSequence(seed, spawn_key=(ACTING, first_step)), device)
        self.channel = Channel(sigma, settings.slots, task.shape, self.stream)
        self.stack = FrameStack(task.frames)
        self.stack.fill(torch.zeros((settings.slots, *task.shape), device=device))
        self.age = torch.zeros(settings.slots, dtype=torch.int64, device=device)
        self.left, self.held = torch.zeros_like(self.age), torch.zeros_like(self.age)
        self.action = torch.zeros_like(self.age)
        self.board: Board = self.fleet.run("reset")
        self.board.active[:] = 1
        self.frames = self._fetch()

    def begin(self, network: nn.Module, replay: Replay, rate: float) -> None:
        """Show every slot's frame to the network, through the channel, and set the emulators going."""
        replay.show(self.frames, self.age)
        seen = self.channel.send(self.frames.float().div_(255))
        history = self.stack.push(seen, self.age == 0)
        with torch.inference_mode(), _half_precision(self.device):
            greedy = network(history).argmax(dim=1)
        self.action = self._explored(greedy, rate)
        self.board.actions[:] = self.action.cpu().numpy()
        self.fleet.begin("step_on")

    def finish(self, replay: Replay) -> None:
        """Wait for the emulators and book what they gave."""
        board = self.fleet.finish()
        rewards = torch.from_numpy(board.rewards.astype(np.float32)).to(self.device)
        over = torch.from_numpy(board.over.copy()).to(self.device)
        self.age = torch.where(over != 0, 0, self.age + 1)
        if self.settings.goal_ends:
            over = torch.where(rewards != 0, ENDED, over)
        rewards = torch.where(rewards < 0, self.settings.loss_weight * rewards, rewards)
        replay.book(self.action, rewards, over)
        self.frames = self._fetch()

    def close(self) -> None:
        """End the emulators."""
        self.fleet.close()

    def _fetch(self) -> Tensor:
        return torch.from_numpy(self.board.frames).to(self.device, copy=True)

    def _explored(self, greedy: Tensor, rate: float) -> Tensor:
        """Replace actions by stretches of one random action: single ones get no chicken across a road."""
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
    """Return what each emulator plays."""
    assert task.cartridge is not None
    other = find_task(settings.beside).cartridge if settings.beside else task.cartridge
    if other is None or other.rom != task.cartridge.rom:
        raise InputError(f"{settings.beside} is not the game of {task.name}; set beside to another task of it, or none")
    return [other if slot % 2 else task.cartridge for slot in range(settings.slots)]


class Learner:
    """The networks, their optimiser and the buffer; on CUDA its gradient steps are one captured graph."""

    def __init__(self, task: Task, sigma: float, settings: FastSettings, device: torch.device, seed: int) -> None:
        assert task.choices is not None
        self.settings, self.device, self.updates = settings, device, 0
        first = fresh_arrays(task.frames, task.choices, seed)
        self.online, self.target, self.average = (CNN(first, NATURE).to(device) for _ in range(3))
        self.online.requires_grad_(True)
        self.rate = torch.tensor(settings.learning_rate, device=device)
        graph = device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            self.online.parameters(), lr=self.rate, eps=1.5e-4, capturable=graph, fused=graph
        )
        self.replay = Replay(
            max(settings.buffer_size // settings.slots, 4 * (task.frames + settings.n_steps)),
            settings.slots,
            task.shape,
            task.frames,
            steps=settings.n_steps,
            gamma=settings.gamma,
            sigma=sigma,
            batch=settings.batch_size,
            stream=Stream(np.random.SeedSequence(seed, spawn_key=(LEARNING,)), device),
        )
        self.graph: torch.cuda.CUDAGraph | None = None

    def begin_with(self, policy: Policy) -> None:
        """Take over the weights of an agent."""
        given = policy.network
        shapes = [part.shape for _, part in self.online.named_parts()]
        if not isinstance(given, CNN) or [part.shape for _, part in given.named_parts()] != shapes:
            raise InputError(f"{policy.name} has not the layers of this training; start from an agent of the same game")
        for network in (self.online, self.target, self.average):
            copy_weights(given.to(self.device), network)

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
        with _half_precision(self.device):
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
        """Record the gradient steps; those that warm it up are real ones."""
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


def validate(
    task: Task, sigma: float, settings: FastSettings, learner: Learner, so_far: Progressed, seed: int, device: str
) -> None:
    """Play noisy greedy episodes from resets with the average network, as it would be stored; keep the best."""
    weights = halved({name: part.cpu().contiguous().numpy() for name, part in learner.average.named_parts()})
    episodes = settings.validation_episodes
    plan = Plan(
        task,
        agent(task, weights, "candidate"),
        sigma,
        episodes,
        seed,
        device,
        slots=min(episodes, 64),
        stream=(VALIDATION, so_far.steps),
    )
    played = play(plan).returns
    mean, spread = float(played.mean()), float(played.std())
    so_far.rows.append((so_far.steps, mean, spread, round(exploration(settings, so_far.steps), 4)))
    if mean >= so_far.best:
        so_far.best, so_far.best_step, so_far.best_weights = mean, so_far.steps, weights


def exploration(settings: FastSettings, steps: int) -> float:
    """Return how often an exploring stretch begins after so many steps."""
    share = min(1.0, steps / max(1, settings.exploration_steps))
    return settings.exploration_initial + share * (settings.exploration_final - settings.exploration_initial)


def agent(task: Task, weights: dict[str, NDArray[Any]], name: str) -> Policy:
    """Return the policy of these weights."""
    assert task.choices is not None
    return cnn_policy(weights, NATURE, task.frames, task.shape, task.choices, name)


@torch.no_grad()
def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Make one network the copy of another, in place."""
    for old, new in zip(target.parameters(), source.parameters(), strict=True):
        old.copy_(new)


def _late(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _half_precision(device: torch.device) -> Any:
    if device.type != "cuda":
        return nullcontext()
    return torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False)


def _facts(
    task: Task,
    sigma: float,
    settings: FastSettings,
    so_far: Progressed,
    seed: int,
    device: str,
    command: str,
    preset: str,
) -> dict[str, Any]:
    return {
        "task": task.name,
        "sigma": sigma,
        "training": {
            "algorithm": "surefoot.train.fast: double Q-learning",
            "graph_captured": device == "cuda" and settings.capture,
            "preset": preset,
            "settings": settings.facts(),
            "seed": seed,
            "device": device,
            "command": command,
            "steps": so_far.steps,
            "seconds": round(so_far.seconds, 1),
            "best_step": so_far.best_step,
            "best_validation": so_far.best,
        },
        "curve": [[row[0], row[1]] for row in so_far.rows],
        "versions": versions(),
    }
