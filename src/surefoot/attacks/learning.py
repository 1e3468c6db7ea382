"""Learning an attacker: when and where to spend one l2 budget over an episode, for all budgets at once.

Every iteration runs whole episodes through the loop, channel and ledger that a certificate's episodes run through, each
with a budget of its own, and takes a few gradient steps (PPO). What makes it work:

1. The channel explores. A smoothed agent sees N(o + delta, sigma^2): how a perturbation changes the return is
   E[return * noise / sigma^2], whose noise is already there. The attacker need not perturb its own perturbations, which
   would cost budget, and would be lost in the agent's noise. An undefended agent is trained on with noise that shrinks.
   The noise of an action explores perturbations of actions in the same way.
2. A price for the budget. What is spent changes the budget left for certain, not by chance: its cost is the derivative
   of the critic with respect to the budget left.
3. Budgets from large to small: against a nearly perfect agent nothing fails at small ones, and there is nothing to
   learn. It starts from the constant direction that hurts most at the largest.
4. Potential-based shaping: states far from the usual ones are where agents fail. It telescopes, so that the best
   attacker stays the best.

The noise of a step enters the gradient when the step is over. What is learned proposes from the view alone.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.attacks.learned import (
    LEAST_SCALE,
    BudgetNetwork,
    LearnedAttacker,
    count_known,
    count_perturbed,
    read_view,
    spend,
)
from surefoot.compute import single_thread
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Channel, View, unit_of_budget
from surefoot.play.loop import BlockLoop, make_ledger, open_channels, play_block
from surefoot.play.plan import Plan
from surefoot.play.streams import Purpose, Stream, block_seeds
from surefoot.provenance import versions

RETURN_SCALE = 10.0  # the size of returns that the critic learns
SHAPING = 0.5  # the potential of a state one standard deviation further than usual, in the same units
RATIO_CLIP = 0.2  # how far a probability may move before its gradient is cut off
TRACE = 0.97  # lambda of generalized advantages
GRADIENT_LIMIT = 0.5
FEWEST_MINIBATCHES = 8  # of an epoch: fewer gradient steps learn too little from short episodes
AVERAGING = 0.9  # what the running average of the weights keeps in an iteration
ALMOST_ZERO = 1e-8
LARGEST_BUDGETS = 5.0  # times the largest budget asked: where learning starts
JUDGED = 2**18  # steps that the critic judges at a time
SMALLEST_BUDGETS = 0.1  # of the largest one of an iteration
ROUNDS = (0.7, 0.85, 1.0)  # when, in shares of the training, weights to keep are chosen
# Exploring noise on an undefended agent, as a share of the largest budget: at first, and at last.
EXPLORING = (0.25, 0.03)

LearningProgress = Callable[[float, float | None], None]


@dataclass(frozen=True, kw_only=True)
class AttackerTraining:
    """How an attacker is trained.

    Attributes:
        minutes: How long.
        iterations: How many iterations instead; such a training is the same each time.
        n_envs: Episodes of an iteration; by default up to 512 on a CPU, up to 4,096 on a GPU, fewer of long ones.
        width: Of the hidden layers; by default 64 on a CPU, 256 on a GPU.
        epochs: How often an iteration learns from each of its steps.
        minibatch_size: Steps of episodes that one gradient step learns from at most; an epoch has eight or more.
        learning_rate: At first; it falls to a twentieth.
        selection_episodes: Episodes per budget on which the weights to keep are chosen; by default half of ``n_envs``.
        noise_samples: On pixels: noise samples that values and gradients of a smoothed agent are averaged over.
    """

    minutes: float = 5.0
    iterations: int | None = None
    n_envs: int | None = None
    width: int | None = None
    epochs: int = 3
    minibatch_size: int = 8_192
    learning_rate: float = 1e-3
    selection_episodes: int | None = None
    noise_samples: int = 128

    def __post_init__(self) -> None:
        if not (self.minutes > 0 and math.isfinite(self.minutes)):
            raise InputError(f"minutes must be a finite number > 0, got {self.minutes}")
        for name in ("iterations", "n_envs", "width", "epochs", "minibatch_size", "selection_episodes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")

    def on(self, plan: Plan) -> AttackerTraining:
        """Return the same with sizes that suit a task and a device where none are given."""
        on_gpu = torch.device(plan.device).type == "cuda"
        steps = 2**20 if on_gpu else 2**16
        most = 4_096 if on_gpu else 512
        n_envs = self.n_envs or max(16, min(most, steps // plan.task.scoring.max_steps))
        width = self.width or (256 if on_gpu else 64)
        selection_episodes = self.selection_episodes or max(1, n_envs // 2)
        return replace(self, n_envs=n_envs, width=width, selection_episodes=selection_episodes)


@dataclass(eq=False)
class Recorder:
    """An attacker that proposes as a learned one does, and notes all that can be learned from.

    Attributes:
        attacker: The one that learns.
        sigmas: The noise of each number that is perturbed.
        gamma: The discount of the return, or None.
        direction: A perturbation that every episode gets instead, (episodes, features), as a share of what is left.
    """

    attacker: LearnedAttacker
    sigmas: Tensor
    gamma: float | None
    direction: Tensor | None = None
    steps: list[dict[str, Tensor]] = field(default_factory=list)

    @torch.no_grad()
    def propose(self, view: View) -> Tensor:
        """Propose, and note what was seen and done."""
        known = read_view(view, self.attacker.max_steps)
        left = view.budget_left.float()
        if self.direction is None:
            moved = spend(self.attacker.network(known, left), left, view.scope.norm)
        else:
            moved = spend(self.direction[view.episode], left, view.scope.norm)
        row = {"episode": view.episode, "step": view.step, "known": known, "left": left, "moved": moved}
        row["observation"] = view.observation.flatten(1)
        self.steps.append(row)
        return (moved * self.attacker.unit).view(view.target.shape)

    def describe(self) -> dict[str, Any]:
        """Return its name; no record keeps it."""
        return {"name": "recorder"}

    def note_outcome(self, rewards: Tensor, noise: Tensor) -> None:
        """Note the rewards of the step, and its noise in standard deviations, now that it has been added."""
        row = self.steps[-1]
        row["noise"] = torch.where(self.sigmas > 0, noise.flatten(1) / self.sigmas.clamp_min(LEAST_SCALE), 0.0)
        row["reward"] = rewards
        if self.gamma is not None:
            row["reward"] = rewards * torch.pow(torch.full_like(rewards, self.gamma), row["step"])

    def joined(self) -> dict[str, Tensor]:
        """Return the steps of all episodes, one row each, step by step."""
        return {name: torch.cat([row[name] for row in self.steps]) for name in self.steps[0]}


class RecordedLoop(BlockLoop):
    """The loop of every run, which hands its rewards and the noise of the attacked channel to a recorder."""

    recorder: Recorder
    attacked: Channel

    def add_rewards(self, reward: Tensor) -> None:
        """Add the rewards, and let them be noted."""
        super().add_rewards(reward)
        self.recorder.note_outcome(reward, self.attacked.last_noise)


def run_recorded(plan: Plan, recorder: Recorder, budgets: Tensor) -> dict[str, Tensor]:
    """Run one episode for each budget, in units of what is perturbed; return its steps."""
    count = len(budgets)
    device = torch.device(plan.device)
    most = float(budgets.max())
    plan = replace(plan, attacker=recorder, budget=most, n_episodes=count, n_envs=count, episodes_per_env=1)
    env_seeds, noise_seeds, own_seeds, actuator_seeds = block_seeds(plan.seed, plan.purpose, 0)
    ledger = make_ledger(plan, count, Stream(own_seeds, device))
    channel, actuator = open_channels(plan, count, noise_seeds, actuator_seeds, ledger)
    attacked = channel
    if actuator is not None and "actions" in plan.channels:
        attacked = actuator
    ledger.budget_squared = (budgets.double() / attacked.least_unit).square()
    env = plan.task.backend.batch(count, env_seeds, device)
    try:
        with single_thread(), torch.no_grad():
            loop = RecordedLoop(plan=plan, env=env, channel=channel, actuator=actuator, ledger=ledger, count=count)
            loop.recorder = recorder
            loop.attacked = attacked
            loop.run_episodes(0)
    finally:
        env.close()
    return recorder.joined()


@dataclass(frozen=True, eq=False)
class Potential:
    """How far a state is from those of an agent that nobody attacks."""

    center: Tensor
    scale: Tensor

    @classmethod
    def of(cls, observation: Tensor) -> Potential:
        """Measure the usual states."""
        return cls(observation.mean(dim=0), observation.std(dim=0).clamp_min(LEAST_SCALE).reciprocal())

    def at(self, observation: Tensor) -> Tensor:
        """Return the potential of each row."""
        distance = ((observation - self.center) * self.scale).square().mean(dim=1)
        return SHAPING * torch.log1p(distance)


class AttackLearner:
    """Attacker, critic, their optimizer, and the running average of the attacker."""

    def __init__(self, plan: Plan, budgets: Sequence[float], training: AttackerTraining) -> None:
        self.training = training
        self.plan = plan
        self.device = torch.device(plan.device)
        task = plan.task
        (self.channel,) = plan.channels
        noise = self._attacked_noise(plan.noise)
        # In the units of what is perturbed.
        self.largest = max(budgets) * unit_of_budget(noise.sigma, plan.noise)
        n_features = count_perturbed(task, self.channel)
        width = training.width
        assert width is not None
        assert training.n_envs is not None
        self.n_envs = training.n_envs
        n_known = count_known(task, plan.policy, self.channel)
        seeds = block_seeds(plan.seed, (Purpose.ATTACK_TRAINING, 0), 1)
        # The first weights come from the seed alone, and torch's own stream goes on as if nothing had been drawn.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seeds[0].generate_state(1, np.uint64)[0]) >> 1)
            network = BudgetNetwork(n_known, n_features, width).to(self.device)
            self.critic = BudgetNetwork(n_known, 1, width).to(self.device)
        self.stream = Stream(seeds[1], self.device)
        unit = torch.ones(n_features, device=self.device)
        if noise.features is not None:
            unit = self._sigmas(noise) / noise.sigma
        self.attacker = LearnedAttacker(network, unit, task.scoring.max_steps, self.channel)
        self.average = copy.deepcopy(network).requires_grad_(False)
        self.parameters = [*network.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=training.learning_rate, eps=1e-5)
        self.iteration = 0
        self.reward_scale = 1.0
        self.potential: Potential
        self._look_around()
        self._start_from_direction()

    def noise_at(self, fraction: float) -> Noise:
        """Return the agent's noise, or noise to explore with where it has none."""
        if self._attacked_noise(self.plan.noise).sigma > 0:
            return self.plan.noise
        first, last = EXPLORING
        exploring = self.largest * first ** (1 - fraction) * last**fraction
        if self.channel == "actions":
            return Noise.of(0.0, exploring)
        return Noise.of(exploring)

    def _attacked_noise(self, noise: Noise) -> Noise:
        """Return the noise of what is perturbed alone."""
        if self.channel == "actions":
            return Noise.of(noise.action_sigma)
        return replace(noise, action_sigma=0.0)

    def _sigmas(self, noise: Noise) -> Tensor:
        """Return the sigma of each number that is perturbed."""
        return torch.from_numpy(noise.over((count_perturbed(self.plan.task, self.channel),))).to(self.device)

    def budgets_at(self, fraction: float) -> Tensor:
        """Return the budget of every episode of an iteration."""
        # From large to small in the first half, then around those that were asked for.
        most = self.largest * max(LARGEST_BUDGETS ** (1 - 2 * fraction), 1.1)
        return self.stream.uniform(SMALLEST_BUDGETS * most, most, (self.n_envs,))

    def collect(self, fraction: float, budgets: Tensor, direction: Tensor | None = None) -> dict[str, Tensor]:
        """Run one episode for each budget, on random numbers that no other iteration has."""
        noise = self.noise_at(fraction)
        recorder = Recorder(
            self.attacker, self._sigmas(self._attacked_noise(noise)), self.plan.task.scoring.gamma, direction
        )
        plan = replace(self.plan, noise=noise, purpose=(Purpose.ATTACK_TRAINING, self.iteration))
        self.iteration += 1
        return run_recorded(plan, recorder, budgets)

    def _look_around(self) -> None:
        """Measure inputs, rewards and states in units of what episodes without attack have."""
        steps = self.collect(0.0, torch.zeros(self.n_envs, device=self.device))
        for network in (self.attacker.network, self.average, self.critic):
            network.center.copy_(steps["known"].mean(dim=0))
            network.scale.copy_(steps["known"].std(dim=0).clamp_min(LEAST_SCALE).reciprocal())
            network.budget_scale.fill_(self.largest)
        self.potential = Potential.of(steps["observation"])
        returns = torch.zeros(self.n_envs, dtype=torch.float64, device=self.device)
        returns.index_add_(0, steps["episode"], steps["reward"])
        self.reward_scale = RETURN_SCALE / max(float(returns.square().mean().sqrt()), ALMOST_ZERO)

    def _start_from_direction(self) -> None:
        """Let the attacker begin with the constant direction that hurts most, of those along one feature."""
        n_features = self.attacker.unit.numel()
        share = 2.0 if self.plan.scope.per_step else (2 / self.plan.task.scoring.max_steps) ** 0.5
        directions = share * torch.cat((torch.eye(n_features), -torch.eye(n_features))).to(self.device)
        directions = directions[self.attacker.unit.repeat(2) > 0]
        tried = torch.arange(self.n_envs, device=self.device) % len(directions)
        budgets = torch.full((self.n_envs,), LARGEST_BUDGETS * self.largest, device=self.device)
        steps = self.collect(0.0, budgets, directions[tried])
        hurt = torch.zeros(len(directions), dtype=torch.float64, device=self.device)
        hurt.index_add_(0, tried[steps["episode"]], -steps["reward"])
        hurt /= torch.bincount(tried, minlength=len(directions)).clamp_min(1)
        with torch.no_grad():
            for network in (self.attacker.network, self.average):
                network.last.weight.mul_(0.1)
                network.last.bias.copy_(directions[int(hurt.argmax())])

    def learn(self, fraction: float) -> float:
        """Run the episodes of one iteration and learn from them; return their mean return."""
        steps = self.collect(fraction, self.budgets_at(fraction))
        sigma = self._attacked_noise(self.noise_at(fraction)).sigma
        advantage, target, price = self._judge(steps)
        rate = self.training.learning_rate * (0.05 + 0.95 * (1 - fraction))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        count = len(advantage)
        size = min(self.training.minibatch_size, -(-count // FEWEST_MINIBATCHES))
        for _ in range(self.training.epochs):
            order = torch.randperm(count, generator=self.stream.generator, device=self.device)
            for rows in torch.split(order, size):
                some = {name: steps[name][rows] for name in ("known", "left", "moved", "noise")}
                loss = self._loss(some, sigma, advantage[rows], price[rows])
                values = self.critic(some["known"], some["left"]).squeeze(1)
                loss = loss + 0.5 * (values - target[rows]).square().mean()
                self.optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(self.parameters, GRADIENT_LIMIT)
                self.optimizer.step()
        keep = min(AVERAGING, self.iteration / (self.iteration + 10))
        with torch.no_grad():
            for kept, now in zip(self.average.parameters(), self.attacker.network.parameters(), strict=True):
                kept.lerp_(now, 1 - keep)
        return float(steps["reward"].sum()) / self.n_envs

    def _loss(self, steps: dict[str, Tensor], sigma: float, advantage: Tensor, price: Tensor) -> Tensor:
        """Return the clipped loss of what the noise says, plus the price of what is spent."""
        moved = spend(self.attacker.network(steps["known"], steps["left"]), steps["left"], self.plan.scope.norm)
        # The agent saw moved + sigma * noise: how likely would that be now, compared with then?
        change = (steps["moved"] - moved) / sigma
        ratio = (-(steps["noise"] * change).sum(dim=1) - 0.5 * change.square().sum(dim=1)).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - RATIO_CLIP, 1 + RATIO_CLIP) * advantage)
        return (price * moved.square().sum(dim=1) - gain).mean()

    def _judge(self, steps: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the advantage of each step, the target of the critic, and the price of the squared budget after it.

        The attacker gains what the agent loses. Nothing is discounted.
        """
        left = steps["left"].clone().requires_grad_()
        with torch.enable_grad():
            judged = []
            for known, some in zip(torch.split(steps["known"], JUDGED), torch.split(left, JUDGED), strict=True):
                judged.append(self.critic(known, some).squeeze(1))
            values = torch.cat(judged)
            (slope,) = torch.autograd.grad(values.sum(), left)
        values = values.detach()
        # The value of one more unit of squared budget: dV/d(b^2) = dV/db / 2b; more budget never hurts the attacker.
        worth = (slope / (2 * left.detach().clamp_min(0.05 * self.largest))).clamp_min(0)
        if self.plan.scope.per_step:
            # What is spent at one step is not missing at the next.
            worth = torch.zeros_like(worth)
        potential = self.potential.at(steps["observation"])
        after = _next_row(steps["episode"])
        following = torch.where(after >= 0, values[after], 0.0)
        next_potential = torch.where(after >= 0, potential[after], 0.0)
        price = torch.where(after >= 0, worth[after], 0.0)
        gained = -steps["reward"].float() * self.reward_scale + next_potential - potential
        errors = gained + following - values
        advantage = _sum_ahead(errors, steps["episode"], steps["step"], self.n_envs)
        spread = float(advantage.std()) + ALMOST_ZERO
        return (advantage - advantage.mean()) / spread, advantage + values, price / spread


def _next_row(episode: Tensor) -> Tensor:
    """Return for each row the row of the same episode's next step, -1 for its last; rows are ordered by step."""
    count = len(episode)
    # Sorted by episode and, because the sort is stable, by step.
    order = torch.sort(episode, stable=True).indices
    same = episode[order][1:] == episode[order][:-1]
    after = torch.full((count,), -1, dtype=torch.int64, device=episode.device)
    after[order[:-1]] = torch.where(same, order[1:], -1)
    return after


def _sum_ahead(errors: Tensor, episode: Tensor, step: Tensor, n_envs: int) -> Tensor:
    """Return generalized advantages: for each row the sum of its episode's later errors, which fade with TRACE."""
    longest = int(step.max()) + 1
    table = errors.new_zeros(longest, n_envs)
    table[step, episode] = errors
    ahead = errors.new_zeros(n_envs)
    for number in reversed(range(longest)):
        ahead = table[number] + TRACE * ahead
        table[number] = ahead
    return table[step, episode]


def train_attacker(
    plan: Plan, budgets: Sequence[float], training: AttackerTraining, progress: LearningProgress | None = None
) -> LearnedAttacker:
    """Train an attacker of the plan's agent; keep the weights that hurt most on selection episodes.

    Args:
        plan: The agent, its task and noise; the seed. Attacker, budget and number of episodes do not matter.
        budgets: What it is wanted for; it works for all up to the largest and a little beyond.
        training: How.
        progress: Called with the share that is done and the mean return at the largest budget, once it is known.
    """
    wanted = wanted_budgets(budgets)
    training = training.on(plan)
    began = time.monotonic()
    learner = AttackLearner(plan, wanted, training)
    best: LearnedAttacker | None = None
    lowest: list[float] = []
    at_largest: float | None = None
    n_rounds = 0
    done = 0
    fraction = 0.0
    while fraction < 1:
        learner.learn(min(fraction, 1.0))
        done += 1
        fraction = (time.monotonic() - began) / (60 * training.minutes)
        if training.iterations is not None:
            fraction = done / training.iterations
        # In the first half budgets are larger than those asked for, and nothing is to be kept yet.
        if n_rounds < len(ROUNDS) and fraction >= ROUNDS[n_rounds]:
            candidate = replace(learner.attacker, network=copy.deepcopy(learner.average))
            means = [_selection_mean(plan, candidate, budget, n_rounds, training) for budget in wanted]
            n_rounds += 1
            at_largest = means[-1]
            if best is None or sum(means) < sum(lowest):
                lowest = means
                best = candidate
        if progress is not None:
            progress(min(fraction, 1.0), at_largest)
    assert best is not None
    best.network.to("cpu")
    card = card_of(plan, wanted, training, began, selection=lowest, iterations=done)
    return replace(best, unit=best.unit.cpu(), card=card)


def wanted_budgets(budgets: Sequence[float]) -> list[float]:
    """Return the budgets that something can be spent of, in order; raise InputError if there is none."""
    wanted = sorted(budget for budget in set(budgets) if budget > 0)
    if not wanted:
        raise InputError(f"a learned attacker needs a budget > 0 to learn to spend, got {list(budgets)}")
    return wanted


def card_of(
    plan: Plan, budgets: Sequence[float], training: AttackerTraining, began: float, **found: Any
) -> dict[str, Any]:
    """Return what an attacker was trained on and how; ``found`` is what came of it."""
    facts = plan.facts()
    trained_on = {name: facts[name] for name in ("task", "agent", "agent_sha256")} | {"sigma": plan.noise.sigma}
    if plan.noise.action_sigma > 0:
        trained_on["action_sigma"] = plan.noise.action_sigma
    if plan.scope.name is not None:
        trained_on["scope"] = plan.scope.name
    return {
        "trained_on": trained_on,
        "budgets": list(budgets),
        **found,
        "seed": plan.seed,
        "device": plan.device,
        "training": asdict(training),
        "seconds": round(time.monotonic() - began, 1),
        "versions": versions(),
    }


def _selection_mean(
    plan: Plan, candidate: LearnedAttacker, budget: float, number: int, training: AttackerTraining
) -> float:
    """Return the mean return under a candidate on selection episodes; every round has its own."""
    assert training.selection_episodes is not None
    trial = replace(
        plan,
        attacker=candidate,
        budget=budget,
        n_episodes=training.selection_episodes,
        n_envs=training.selection_episodes,
        episodes_per_env=1,
        purpose=(Purpose.ATTACK_SELECTION, number),
    )
    return float(play_block(trial, 0).returns.mean())
