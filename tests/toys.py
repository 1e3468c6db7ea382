"""Games, policies and adversaries whose answers are known in closed form, and the alarms that judge them.

Every alarm here goes off by chance with probability at most ``ALARM`` (their seeds are fixed besides), and every one of
them has a twin test that plants the error it is there for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from surefoot.agents.callables import CheckedOutput, Function
from surefoot.agents.networks import MLP, Critic, Squashed
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.recurrent import Form, recurrent_policy
from surefoot.episodes import Episodes
from surefoot.noise import Noise
from surefoot.play.channel import View
from surefoot.play.envs.cartpole import CartPole
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Stream
from surefoot.play.task import Blocks, PaperSetup, Scoring, Task
from surefoot.play.tasks import get_task, tensors

ALARM = 1e-6


# --- plans ----------------------------------------------------------------------------------------------------------


def plan_for(task: Task, policy: Policy, sigma: Any, n_episodes: int, **options: Any) -> Plan:
    """Return a plan with noise of this sigma on observations."""
    return Plan(task=task, policy=policy, noise=Noise.of(sigma), n_episodes=n_episodes, **options)


def run_episodes(task: Task, policy: Policy, sigma: Any, n_episodes: int, **options: Any) -> Episodes:
    """Run such a plan in this process."""
    return play(plan_for(task, policy, sigma, n_episodes, **options))


# --- alarms ---------------------------------------------------------------------------------------------------------


def off(wins: float, count: int, truth: float) -> bool:
    """Whether so many wins are too few or too many for the probability ``truth`` (exact binomial, two-sided)."""
    return bool(stats.binomtest(round(wins), count, truth).pvalue < ALARM)


def too_few(wins: float, count: int, bound: float) -> bool:
    """Whether so few wins refute "the probability is at least ``bound``" (exact binomial, one-sided)."""
    return bool(stats.binom.cdf(round(wins), count, bound) < ALARM)


def mean_off(values: np.ndarray, truth: float, variance: float, reach: float) -> bool:
    """Whether the mean of independent values within ``reach`` of ``truth`` refutes it (Bernstein, any sample size)."""
    log = math.log(2 / ALARM)
    margin = math.sqrt(2 * variance * log / len(values)) + reach * log / (3 * len(values))
    return bool(abs(np.mean(values) - truth) > margin)


def not_normal(draws: Any, sigma: float = 1.0) -> bool:
    """Whether mean, spread or shape refute independent N(0, sigma^2) draws (a third of ALARM each)."""
    draws = np.asarray(draws, dtype=np.float64).ravel() / sigma
    size, level = draws.size, ALARM / 3
    low, high = stats.chi2.ppf([level / 2, 1 - level / 2], size)
    return bool(
        abs(draws.mean()) * math.sqrt(size) > stats.norm.isf(level / 2)
        or not low < (draws**2).sum() < high
        or stats.kstest(draws, "norm").pvalue < level
    )


def dependent(one: Any, other: Any) -> bool:
    """Whether the correlation of two equally long samples refutes their independence (Fisher's z)."""
    one, other = np.asarray(one, dtype=np.float64).ravel(), np.asarray(other, dtype=np.float64).ravel()
    r = np.corrcoef(one, other)[0, 1]
    return bool(
        abs(np.arctanh(np.clip(r, -1 + 1e-12, 1 - 1e-12))) * math.sqrt(len(one) - 3) > stats.norm.isf(ALARM / 2)
    )


def shifted(p: float, radius: float) -> float:
    """Return Phi(Phi^-1(p) - radius), the least a probability p can become."""
    return float(stats.norm.cdf(stats.norm.ppf(p) - radius))


def from_callable(function, *, shape, n_actions, n_stack=1, batched=False, stochastic=False):
    """Return a function of one observation, or of a stack (n_stack, *shape), as a policy, without a trial."""
    spaces = Spaces(shape=shape, n_actions=n_actions, n_stack=n_stack)
    network = CheckedOutput(Function(function, batched=batched), spaces)
    name = getattr(function, "__name__", type(function).__name__)
    return Policy(network, spaces, name=name, stochastic=stochastic, differentiable=False)


# --- games ----------------------------------------------------------------------------------------------------------

Draw = Callable[[int, Stream], Tensor]
Pay = Callable[[Tensor, Tensor, Tensor], Tensor]


class Timed:
    """Shows ``clean`` for ever; each episode's length is drawn at its start; ``pay`` says what a step is worth."""

    def __init__(
        self,
        slots: int,
        stream: Stream,
        *,
        draw: Draw,
        pay: Pay,
        clean: tuple[float, ...] = (0.0,),
        done_check_interval: int = 1,
    ) -> None:
        self.slots = slots
        self.stream = stream
        self.draw = draw
        self.pay = pay
        self.done_check_interval = done_check_interval
        self.clean = torch.tensor(clean, dtype=torch.float32, device=stream.device)
        self.closed = False

    def reset(self) -> Tensor:
        self.length = self.draw(self.slots, self.stream)
        self.clock = torch.zeros_like(self.length)
        return self._observe()

    def step(self, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        self.clock = self.clock + 1
        return self._observe(), self.pay(actions, self.clock, self.length).double(), self.clock >= self.length

    def restart_rows(self, rows: Tensor) -> Tensor:
        self.length = torch.where(rows, self.draw(len(self.length), self.stream), self.length)
        self.clock = self.clock.masked_fill(rows, 0)
        return self._observe()[rows]

    def keep_rows(self, rows: Tensor) -> None:
        self.length, self.clock = self.length[rows], self.clock[rows]

    def read_state(self) -> Tensor:
        return torch.stack((self.clock, self.length), dim=1)

    def close(self) -> None:
        self.closed = True

    def _observe(self) -> Tensor:
        return self.clean.repeat(len(self.clock), 1)


def fixed(length: int) -> Draw:
    return lambda rows, stream: torch.full((rows,), length, device=stream.device)


def listed(lengths: list[int]) -> Draw:
    return lambda rows, stream: torch.tensor(lengths, device=stream.device)


def geometric(end: float, limit: int) -> Draw:
    """Lengths that end at every step with probability ``end``, at ``limit`` at the latest."""

    def draw(rows: int, stream: Stream) -> Tensor:
        tail = 1 - stream.uniform(0.0, 1.0, (rows,))
        return ((tail.log() / math.log1p(-end)).floor().long() + 1).clamp_max(limit)

    return draw


def pay_steps(actions: Tensor, clock: Tensor, length: Tensor) -> Tensor:
    return torch.ones_like(clock)


def pay_short(most: int) -> Pay:
    """One for an episode of at most ``most`` steps, paid at its end."""
    return lambda actions, clock, length: (clock == length) & (length <= most)


def pay_action(actions: Tensor, clock: Tensor, length: Tensor) -> Tensor:
    return actions[:, 0]


def pay_first_choice(actions: Tensor, clock: Tensor, length: Tensor) -> Tensor:
    return actions == 0


def toy_task(
    draw: Draw,
    pay: Pay,
    *,
    clean: tuple[float, ...] = (0.0,),
    choices: int | None = 2,
    done_check_interval: int = 1,
    **more: Any,
) -> Task:
    facts = {"max_steps": 1_000, "floor": 0.0, "ceiling": 1.0, **more}
    rest = {name: facts.pop(name) for name in ("n_envs", "episodes_per_env") if name in facts}
    name = facts.pop("name", "toy")
    n_stack = facts.pop("n_stack", 1)
    game = partial(Timed, draw=draw, pay=pay, clean=clean, done_check_interval=done_check_interval)
    return Task(
        name=name,
        environment="toy",
        spaces=Spaces(shape=(len(clean),), n_actions=choices, n_stack=n_stack),
        scoring=Scoring(**facts),
        backend=tensors(game, lambda: None),
        blocks=Blocks(**rest),
        paper=PaperSetup(),
    )


def with_env(task: Task, build: Callable[[int, Stream], Any]) -> Task:
    """The same task, run by another environment."""
    return replace(task, backend=tensors(build, lambda: None))


def geometric_mean(end: float, limit: int) -> tuple[float, float]:
    """Return mean and variance of the lengths of ``geometric``, summed term by term."""
    lengths = np.arange(1, limit + 1)
    weights = end * (1 - end) ** (lengths - 1)
    weights[-1] = (1 - end) ** (limit - 1)
    mean = float(weights @ lengths)
    return mean, float(weights @ (lengths - mean) ** 2)


# --- policies -------------------------------------------------------------------------------------------------------


class Gate(nn.Module):
    """Values of two actions: the first wins where the newest first coordinate (or its size) is at most ``omega``."""

    def __init__(self, omega: float, two_sided: bool = False) -> None:
        super().__init__()
        self.omega, self.two_sided = omega, two_sided

    def forward(self, history: Tensor) -> Tensor:
        first = history[:, -1].flatten(1)[:, 0]
        value = first.abs() if self.two_sided else first
        return torch.stack((torch.full_like(value, self.omega), value), dim=1)


def gate(p: float, sigma: float, size: int = 1, *, two_sided: bool = False) -> Policy:
    """Appendix A's policy: the first action with probability p under noise alone, where the clean coordinate is 0."""
    omega = sigma * stats.norm.ppf((1 + p) / 2 if two_sided else p)
    return Policy(Gate(float(omega), two_sided), Spaces(shape=(size,), n_actions=2), name="gate")


class Newest(nn.Module):
    """The action is what was seen last."""

    def forward(self, history: Tensor) -> Tensor:
        return history[:, -1]


class Mean(nn.Module):
    """The action is the mean of what is remembered."""

    def forward(self, history: Tensor) -> Tensor:
        return history.mean(dim=1)


def echo(size: int = 1, frames: int = 1) -> Policy:
    return Policy(Newest(), Spaces(shape=(size,), n_actions=None, n_stack=frames), name="echo")


class Constant(nn.Module):
    """Always the first action."""

    def forward(self, history: Tensor) -> Tensor:
        return torch.tensor([1.0, 0.0], device=history.device).repeat(len(history), 1)


def constant(size: int = 1) -> Policy:
    return Policy(Constant(), Spaces(shape=(size,), n_actions=2), name="constant")


def balancer(frames: int = 1) -> Policy:
    """A hand-made Cartpole agent: pushes towards where the pole falls, judged by the newest frame."""
    weight = np.zeros((2, 4 * frames), dtype=np.float32)
    weight[1, -4:] = [0.1, 0.3, 1.0, 0.5]
    return Policy(
        MLP([weight], [np.zeros(2, dtype=np.float32)]),
        Spaces(shape=(4,), n_actions=2, n_stack=frames),
        name="balancer",
        sha256="by-hand",
    )


# --- adversaries ----------------------------------------------------------------------------------------------------


class Recorded:
    """A stream that keeps what it drew."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.drawn = stream, list[Tensor]()

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Draw, and keep a copy."""
        self.drawn.append(self.stream.normal(shape))
        return self.drawn[-1].clone()


def view_of(
    policy: Policy,
    observation: Tensor,
    *,
    step: int = 3,
    left: float = 0.1,
    context: Tensor | None = None,
    seed: int = 0,
) -> View:
    """Return what an attacker sees of these observations, after steps without noise or perturbation."""
    zeros = torch.zeros_like(observation)
    memory = zeros.unsqueeze(1) if context is None else context
    return View(
        episode=torch.arange(len(observation)),
        step=torch.full((len(observation),), step),
        observation=observation,
        state=None,
        memory=memory,
        clean=memory,
        action=None,
        last_perturbation=zeros,
        noise=zeros,
        budget_left=torch.full((len(observation),), left, dtype=torch.float64),
        policy=policy,
        stream=Stream(np.random.SeedSequence(seed), torch.device("cpu")),
    )


@dataclass
class Spy:
    """Proposes what ``what`` says and keeps a copy of every view."""

    what: Callable[[View], Tensor] = lambda view: torch.zeros_like(view.observation)
    views: list[dict[str, Any]] = field(default_factory=list)

    def propose(self, view: View) -> Tensor:
        copies = {k: v.clone() if isinstance(v, Tensor) else v for k, v in vars(view).items()}
        self.views.append(copies)
        return self.what(view)

    def describe(self) -> dict[str, Any]:
        return {"name": "spy"}


def along_the_noise(view: View) -> Tensor:
    """Push as hard as possible in the direction of the noise it is shown; up where it is shown none."""
    direction = torch.where(view.noise[:, 0] < 0, -1.0, 1.0)
    offset = torch.zeros_like(view.observation)
    offset[:, 0] = (direction * view.budget_left).to(offset.dtype)
    return offset


def ten_times_too_much(view: View) -> Tensor:
    offset = torch.zeros_like(view.observation)
    offset[:, 0] = 10.0
    return offset


def layers(rng: np.random.Generator, *widths: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    shapes = list(zip(widths[1:], widths, strict=False))
    return [rng.normal(size=shape) / math.sqrt(shape[1]) for shape in shapes], [rng.normal(size=w) for w in widths[1:]]


def actor_with_critic(seed: int = 0, frames: int = 5) -> Policy:
    """A small agent with a critic; its first layer looks hard at the observations, so that attacks move it."""
    rng, limit = np.random.default_rng(seed), np.ones(1, dtype=np.float32)
    weights, biases = layers(rng, 2 * frames, 24, 16, 1)
    weights[0] *= 3
    judge = Critic(MLP(*layers(rng, 2 * frames + 1, 24, 16, 1)), -limit, limit)
    actor = Squashed(MLP(weights, biases), -limit, limit)
    return Policy(
        actor, Spaces(shape=(2,), n_actions=None, n_stack=frames, low=[-1.0], high=[1.0]), name="toy", critic=judge
    )


def recurrent(
    kind: str = "gru", *, size: int = 4, n_actions: int | None = 2, encoder: int = 6, seed: int = 0, **form: Any
) -> Policy:
    """A small recurrent agent with random weights, large enough that memory and last action matter."""
    rng, width, gates = np.random.default_rng(seed), 8, 3 if kind == "gru" else 4
    into = size + (n_actions or 1) * form.get("last_action", True)
    shapes = {"encoder0": (encoder, into), "head0": (10, width), "head1": (n_actions or 1, 10)}
    arrays = {f"{name}.weight": rng.normal(size=shape) for name, shape in shapes.items() if encoder or name[0] == "h"}
    arrays |= {name.replace("weight", "bias"): rng.normal(size=len(array)) for name, array in arrays.items()}
    arrays |= {
        "weight_ih": rng.normal(size=(gates * width, encoder or into)),
        "bias_ih": rng.normal(size=gates * width),
    }
    arrays |= {"weight_hh": rng.normal(size=(gates * width, width)), "bias_hh": rng.normal(size=gates * width)}
    low, high = ((-0.5,), (0.7,)) if n_actions is None else (None, None)
    spaces = Spaces(shape=(size,), n_actions=n_actions, low=low, high=high)
    small = {name: array.astype(np.float32) for name, array in arrays.items()}
    return recurrent_policy(small, spaces, Form(kind=kind, **form), kind)


def short_pole(max_steps: int, name: str = "cartpole-5") -> Task:
    """Return CartPole with shorter episodes."""
    task = get_task(name)
    return replace(
        task,
        scoring=replace(task.scoring, max_steps=max_steps, ceiling=float(max_steps)),
        backend=tensors(partial(CartPole, max_steps=max_steps), task.backend.open),
    )
