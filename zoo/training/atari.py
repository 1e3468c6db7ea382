"""What the two trainings of Atari agents share.

``Emulators``        many games in parallel, and the noisy stacks that an agent acts on
``FrameBuffer``      clean frames on the learner's device, sampled as stacks with fresh noise
``AveragedLearner``  a network, its optimizer, and the running average of its weights, which becomes the agent
``train_agent``      train, validate, keep the best agent, write it; for every ``TrainingLoop``

The agent is the running average of the weights, rounded to half precision: that is what is validated, on noisy greedy
episodes from resets, and what is written. A resumed run steps fresh emulators and collects frames again before it
learns: nothing learned is lost, the frames are.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.memory import FrameStack
from surefoot.agents.networks import CNN, NATURE
from surefoot.agents.policies import Policy
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Channel
from surefoot.play.envs.atari.emulators import Board, Cartridge
from surefoot.play.envs.atari.env import slot_seeds
from surefoot.play.envs.atari.processes import Fleet
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.train.deployed import policy_from_weights
from surefoot.train.folder import NamedArrays, TrainingCurve, TrainingFolder, TrainingRun
from surefoot.train.selection import validate
from surefoot.train.settings import TrainingSettings

SECONDS_BETWEEN_SAVES = 60.0  # where no validation decides when to save


class AtariSettings(TrainingSettings):
    """What the settings of both trainings have."""

    total_steps: int
    n_envs: int
    updates: int
    learning_rate: float
    averaging: float
    capture: bool
    validation_interval: int
    validation_episodes: int


# --- running games --------------------------------------------------------------------------------------------------


class Emulators:
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
        self.device = device
        self.first_step = first_step
        # A resumed run has other episodes than the run before.
        emulating, acting, *_ = training_seeds(seed, first_step)
        self.fleet = Fleet(games, slot_seeds(emulating, len(games)), processes)
        self.stream = Stream(acting, device)
        self.channel = Channel(noise=Noise.of(sigma), n_envs=len(games), shape=task.spaces.shape, stream=self.stream)
        self.stack = FrameStack(n_stack)
        self.history = self.stack.empty(torch.zeros((len(games), *task.spaces.shape), device=device))
        self.age = torch.zeros(len(games), dtype=torch.int64, device=device)
        self.action = torch.zeros_like(self.age)
        self.board: Board = self.fleet.run_command("reset")
        self.board.active[:] = 1
        self.frames = self._fetch_frames()

    def observe(self) -> Tensor:
        """Pass every environment's frame through the channel and return the noisy stacks."""
        seen = self.channel.send(self.frames.div(255))
        self.history = self.stack.advance(self.history, seen, episode_start=self.age == 0)
        return self.history

    def act(self, action: Tensor) -> None:
        """Start the emulators' next step."""
        self.action = action
        self.board.actions[:] = action.cpu().numpy()
        self.fleet.begin_command("step_on")

    def collect(self) -> Board:
        """Wait for the emulators and return the board; ``frames`` and ``age`` are those of the next step."""
        board = self.fleet.finish_command()
        over = torch.from_numpy(board.over != 0).to(self.device)
        self.age = torch.where(over, 0, self.age + 1)
        self.frames = self._fetch_frames()
        return board

    def close(self) -> None:
        """End the emulators."""
        self.fleet.close()

    def _fetch_frames(self) -> Tensor:
        return torch.from_numpy(self.board.frames).to(self.device, copy=True)


class FrameBuffer:
    """The frames of the last ``rows`` vector steps of many environments, from which noisy stacks are sampled.

    Frames are kept as the bytes the emulator gave, once each. Noise is added to floats, after a sample has been drawn
    and scaled to [0, 1], so it never passes through a byte; and one frame is learned from under many noises.

    Attributes:
        head: How many vector steps have been written in all, on the device, because a captured graph reads it.
    """

    def __init__(
        self,
        rows: int,
        n_envs: int,
        shape: tuple[int, ...],
        n_stack: int,
        *,
        n_steps: int,
        sigma: float,
        batch_size: int,
        stream: Stream,
    ) -> None:
        device = stream.device
        self.rows = rows
        self.n_envs = n_envs
        self.n_stack = n_stack
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.frames = torch.zeros((rows, n_envs, *shape), dtype=torch.uint8, device=device)
        self.age = torch.zeros((rows, n_envs), dtype=torch.int64, device=device)
        self.head = torch.zeros((), dtype=torch.int64, device=device)
        self.written = 0
        self.stream = stream
        n_noisy = batch_size * (n_stack + n_steps)
        self.channel = Channel(noise=Noise.of(sigma), n_envs=n_noisy, shape=shape, stream=stream)

    def show(self, frames: Tensor, age: Tensor) -> None:
        """Begin a row: the frame of every environment, and the number of steps since its episode began."""
        row = self.written % self.rows
        self.frames[row] = frames
        self.age[row] = age

    def end_row(self) -> None:
        """Let the row be sampled."""
        self.written += 1
        self.head += 1

    @property
    def is_ready(self) -> bool:
        """Whether there is anything to sample."""
        return self.written > self.n_stack + self.n_steps

    def _draw_places(self) -> tuple[Tensor, Tensor]:
        """Sample vector steps whose past frames and next steps are still, or already, in the buffer; and slots."""
        # While the emulators step, the oldest row is already overwritten by new frames.
        first = (self.head - self.rows + 1).clamp_min(0) + self.n_stack - 1
        count = self.head - self.n_steps - first
        draws = self.stream.uniform(0.0, 1.0, (2, self.batch_size))
        steps = first + (draws[0] * count).long()
        slots = (draws[1] * self.n_envs).long()
        return steps, slots

    def _noisy_frames(self, rows: Tensor, slot: Tensor) -> Tensor:
        """Return (batch, n_stack + n_steps, *shape) of frames, scaled to [0, 1], each with fresh noise."""
        clean = self.frames[rows, slot].div(255)
        return self.channel.send(clean.flatten(0, 1)).view_as(clean)

    def _stack_at(self, seen: Tensor, newest: int, age: Tensor) -> Tensor:
        """Return the stack that ends with frame ``newest``; before an episode's first frame there is that one again."""
        place = torch.arange(newest - self.n_stack + 1, newest + 1, device=seen.device)
        place = torch.maximum(place, (newest - age).unsqueeze(1))
        batch = torch.arange(len(seen), device=seen.device).unsqueeze(1)
        return seen[batch, place]


# --- learning -------------------------------------------------------------------------------------------------------


class AveragedLearner(ABC):
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
        max_grad_norm: float,
        last_rate: float,
    ) -> None:
        self.device = stream.device
        self.stream = stream
        self.updates = 0
        self.updates_per_step = settings.updates
        self.capture = settings.capture
        self.averaging = settings.averaging
        self.first_rate = settings.learning_rate
        self.last_rate = last_rate
        self.max_grad_norm = max_grad_norm
        self.online = CNN(first, NATURE).to(self.device)
        self.average = CNN(first, NATURE).to(self.device)
        self.online.requires_grad_(True)
        self.followers: tuple[CNN, ...] = ()
        # A tensor, because a captured graph reads it.
        self.rate = torch.tensor(settings.learning_rate, device=self.device)
        on_gpu = self.device.type == "cuda"
        self.optimizer = torch.optim.Adam(
            self.online.parameters(), lr=self.rate, eps=eps, capturable=on_gpu, fused=on_gpu
        )
        self.graph: torch.cuda.CUDAGraph | None = None

    @abstractmethod
    def next_loss(self) -> Tensor:
        """Return the loss of a fresh sample."""

    def agent_weights(self) -> NamedArrays:
        """Return the weights of the agent, as it would be now, by the names of its file: the running average."""
        return {name: part.detach().cpu().contiguous().numpy() for name, part in self.average.named_parts()}

    @torch.no_grad()
    def begin_with(self, policy: Policy) -> None:
        """Take over the weights of an agent; outputs that it lacks begin at zero."""
        given = dict(policy.network.named_parts()) if isinstance(policy.network, CNN) else {}
        shapes = {name: tuple(part.shape) for name, part in given.items()}
        if shapes != {name: array.shape for name, array in self.agent_weights().items()}:
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
                # The steps that warm it up count too.
                self.graph = record_graph(self.take_steps, self.stream.generator)
            self.graph.replay()
        else:
            self.take_steps()
        self.updates += self.updates_per_step

    def take_steps(self) -> None:
        """Take the gradient steps themselves."""
        for _ in range(self.updates_per_step):
            self.optimizer.zero_grad(set_to_none=False)
            torch.autograd.backward(self.next_loss())
            nn.utils.clip_grad_norm_(self.online.parameters(), self.max_grad_norm)
            self.optimizer.step()
            with torch.no_grad():
                average = tuple(self.average.parameters())
                online = tuple(self.online.parameters())
                torch._foreach_lerp_(average, online, 1 - self.averaging)

    def save_checkpoint(self, folder: TrainingFolder, started_from: dict[str, str] | None) -> None:
        """Write everything needed to resume, except the frames."""
        counters = {"updates": self.updates, "started_from": started_from}
        networks = {"online": self.online, "average": self.average}
        folder.save_checkpoint(counters, networks, {"online": self.optimizer})

    def load_checkpoint(self, folder: TrainingFolder) -> dict[str, str] | None:
        """Restore what ``save_checkpoint`` wrote; return which agent training began with, if any."""
        checkpoint = folder.load_checkpoint()
        checkpoint.restore({"online": self.online, "average": self.average}, {"online": self.optimizer})
        for network in self.followers:
            copy_weights(self.online, network)
        self.updates = checkpoint.counters["updates"]
        started_from: dict[str, str] | None = checkpoint.counters["started_from"]
        return started_from


def record_graph(work: Callable[[], None], generator: torch.Generator | None = None) -> torch.cuda.CUDAGraph:
    """Return the work as a graph to replay, on the same tensors; it may not wait for the GPU.

    It is done three times before, so that libraries have set themselves up. Every replay draws on from ``generator``.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        work()
    return graph


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


# --- a training -----------------------------------------------------------------------------------------------------


class TrainingLoop(ABC):
    """One way of training an Atari agent, as validation and the training directory see it.

    Attributes:
        settings: The numbers of the preset.
        learner: What learns.
        emulators: Where it acts.
        label: What stands in the agent's name between task and sigma.
        keeps_best_bound: Whether the weights with the highest certified value are kept, even if no budget is asked for.
        recent_returns: The returns of the last greedy training episodes, where they are counted.
    """

    settings: AtariSettings
    learner: AveragedLearner
    emulators: Emulators
    label = ""
    keeps_best_bound = False
    recent_returns: Collection[float] = ()

    @abstractmethod
    def run_until(self, curve: TrainingCurve, last_step: int, deadline: float | None) -> None:
        """Run and learn up to a number of steps or a deadline."""

    @abstractmethod
    def exploration(self, steps: int) -> float:
        """Return how much it explores after so many steps."""


def check_atari(task: Task, preset: str) -> None:
    """Raise InputError unless the preset can train on the task."""
    if task.cartridge is None or task.spaces.n_actions is None:
        raise InputError(f"the preset {preset!r} is for Atari tasks, {task.name} is not one")


def begin_training(
    run: TrainingRun, folder: TrainingFolder, learner: AveragedLearner, init_from: Policy | None
) -> dict[str, str] | None:
    """Load the checkpoint, or else begin with another agent's weights; return which agent training began with."""
    if run.resume:
        return learner.load_checkpoint(folder)
    if init_from is None:
        return None
    learner.begin_with(init_from)
    return identity(init_from)


def identity(policy: Policy) -> dict[str, str]:
    """Return what a model card says of another agent."""
    return {"name": policy.name, "sha256": policy.sha256}


def card_of_run(run: TrainingRun, algorithm: str, settings: AtariSettings, **more: Any) -> dict[str, Any]:
    """Return what a model card says, and whether gradient steps were captured."""
    return run.card(algorithm, settings, graph_captured=run.device == "cuda" and settings.capture, **more)


def train_agent(
    loop: TrainingLoop,
    run: TrainingRun,
    folder: TrainingFolder,
    card: dict[str, Any],
    *,
    deadline: float | None,
    started_from: dict[str, str] | None,
) -> Policy:
    """Train to the end or the deadline; validate, keep the best agent, and write it, the curve and a checkpoint.

    ``started_from`` is name and SHA-256 of the agent that training was initialized from.
    """
    curve = folder.curve
    total_steps = loop.settings.total_steps
    try:
        while curve.steps < total_steps:
            _run_to_validation(run, loop, curve, deadline)
            loop.learner.save_checkpoint(folder, started_from)
            write_agent(folder, run, loop, card, started_from)
            if run.progress is not None:
                run.progress(curve.steps, total_steps, curve)
            if is_late(deadline):
                break
    except KeyboardInterrupt:
        loop.learner.save_checkpoint(folder, started_from)
        raise
    finally:
        loop.emulators.close()
    return write_agent(folder, run, loop, card, started_from)


def _run_to_validation(run: TrainingRun, loop: TrainingLoop, curve: TrainingCurve, deadline: float | None) -> None:
    """Train up to the next validation and run it; without any: train for one minute and keep the current weights."""
    settings = loop.settings
    next_validation = min(curve.steps + settings.validation_interval, settings.total_steps)
    stop = deadline
    if not settings.validation_episodes:
        pause = time.monotonic() + SECONDS_BETWEEN_SAVES
        stop = pause if deadline is None else min(pause, deadline)
    # cuDNN times its algorithms and takes the fastest: only while learning, where nothing has to repeat exactly.
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        loop.run_until(curve, next_validation, stop)
    if settings.validation_episodes:
        validate_loop(run, loop, curve)
        return
    weights = _as_halves(halved(loop.learner.agent_weights()))
    # Below everything, so that these weights are kept whatever was kept before.
    curve.best = -np.inf
    if loop.recent_returns:
        curve.add(np.array(loop.recent_returns), loop.exploration(curve.steps), weights)
    curve.best_step = curve.steps
    curve.best_weights = weights


def validate_loop(run: TrainingRun, loop: TrainingLoop, curve: TrainingCurve) -> None:
    """Run noisy greedy episodes from resets with the agent as it would be stored; keep the best."""
    weights = halved(loop.learner.agent_weights())
    n_episodes = loop.settings.validation_episodes
    validate(
        run,
        curve,
        agent_of_weights(run.task, weights, "candidate"),
        _as_halves(weights),
        n_episodes,
        number=curve.steps,
        exploration=loop.exploration(curve.steps),
        by_bound=loop.keeps_best_bound or run.for_budget is not None,
        device=run.device,
        n_envs=min(n_episodes, loop.settings.n_envs // 2),
    )


def write_agent(
    folder: TrainingFolder,
    run: TrainingRun,
    loop: TrainingLoop,
    card: dict[str, Any],
    started_from: dict[str, str] | None,
) -> Policy:
    """Write the agent that is kept so far, with its card, and return it."""
    name = f"{run.task.name}{loop.label}-s{run.sigma:g}"
    policy = agent_of_weights(run.task, folder.curve.best_weights, name)
    training = {**card["training"], "updates": loop.learner.updates}
    if started_from is not None:
        training["started_from"] = started_from
    folder.finish(policy, {**card, "training": training}, keep_checkpoint=True)
    return policy


def halved(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """Return the arrays rounded to what half precision holds: the policy that is run is then the one that is stored."""
    rounded = {}
    for name, array in arrays.items():
        with np.errstate(over="ignore"):
            rounded[name] = array.astype(np.float16).astype(np.float32)
        if not np.isfinite(rounded[name]).all():
            raise InputError("the weights are too large for half precision, or not finite; the training has diverged")
    return rounded


def fresh_arrays(
    n_stack: int,
    n_actions: int,
    seed: int | np.random.SeedSequence,
    widths: tuple[int, int, int, int] = (32, 64, 64, 512),
) -> dict[str, NDArray[np.float32]]:
    """Return the network of Mnih et al. (2015) for frames of 84 x 84 with random weights, as torch would draw them."""
    one, two, three, hidden = widths
    shapes = {
        "conv0": (one, n_stack, 8, 8),
        "conv1": (two, one, 4, 4),
        "conv2": (three, two, 3, 3),
        "linear0": (hidden, three * 7 * 7),
        "linear1": (n_actions, hidden),
    }
    random = np.random.default_rng(seed)
    arrays: dict[str, NDArray[np.float32]] = {}
    for name, shape in shapes.items():
        reach = float(np.prod(shape[1:])) ** -0.5
        arrays[f"{name}.weight"] = random.uniform(-reach, reach, shape).astype(np.float32)
        arrays[f"{name}.bias"] = random.uniform(-reach, reach, shape[0]).astype(np.float32)
    return arrays


def agent_of_weights(task: Task, weights: Mapping[str, NDArray[Any]], name: str) -> Policy:
    """Return the policy of these weights, which may be stored as halves."""
    arrays = {key: array.astype(np.float32) for key, array in weights.items()}
    return policy_from_weights(task.spaces, arrays, name, n_stack=arrays["conv0.weight"].shape[1])


def _as_halves(weights: NamedArrays) -> NamedArrays:
    """Return weights that half precision holds exactly, in half the size."""
    return {name: array.astype(np.float16) for name, array in weights.items()}


def is_late(deadline: float | None) -> bool:
    """Return whether the deadline is over."""
    return deadline is not None and time.monotonic() >= deadline
