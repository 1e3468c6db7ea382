"""PPO with noise on every observation, for any task whose observations are vectors.

Read from top to bottom. Every iteration runs ``n_envs`` environments in parallel, either for one whole episode each or
for ``n_steps`` steps from where they were, and takes a few gradient steps on what was seen. What makes the agents
certify more (docs/training.md has the numbers):

1. Large batches: many whole episodes per update where environments are tensors, thousands of steps elsewhere.
2. Memory: a GRU on what is seen and done averages the noise away.
3. Steps that shrink with the spread of the advantages: of a nearly perfect agent only noise is left to learn from.
4. An entropy bonus that does not fall: greedy play of a policy that had to withstand random actions keeps margins.
5. A critic that sees the clean observation, and an auxiliary loss that asks the actor for it. The noise is ours, so
   the clean observation is known in training; the actor itself never sees it.
6. Observations and rewards in units of their spread so far, frozen into the agent.
7. The agent is the running average of the weights, the best by certified value on validation episodes.
8. A teacher, where there is one (``imitation``): any agent, whose actions on clean observations are imitated first.

The reward is the task's. Rewarding what the certificate gains at each step was tried and is worse: where late steps are
rarely reached, their reward vanishes and the agent unlearns them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor, nn

from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy
from surefoot.compute import single_thread
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Channel, action_channel
from surefoot.play.plan import limits_of_actions
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.train.actors import Actor, CleanCritic, FrameMemory, deployed_weights
from surefoot.train.deployed import policy_from_weights
from surefoot.train.folder import NamedArrays, TrainingFolder, TrainingRun, short_name
from surefoot.train.selection import predict_bound, run_validation, validate
from surefoot.train.settings import PpoSettings

CLIP = 0.2  # how far a probability may move before its gradient is cut off
MAX_GRAD_NORM = 0.5
DONE_CHECK_INTERVAL = 16  # steps between looks whether all episodes are over
TINY = 1e-6
LEAST_SPREAD = 0.01  # of a feature, as a part of its mean
LEAST_VALIDATION = 30  # episodes, below which a certified value says nothing
VALIDATION_SHARE = 0.2  # as many episodes as this part of those learned from since the last validation


@dataclass(frozen=True)
class Batch:
    """What was run, steps side by side: every tensor is (steps, rows, ...); a row is an environment, or a part of it.

    Attributes:
        inputs: What the actor's memory was given.
        memory: What it remembered before.
        chosen: What was chosen at random, as the actor's head names actions.
        log_prob: The logarithm of its probability.
        decided: 1 where it was chosen now, 0 where an earlier choice was held.
        wanted: What a teacher would have done; without one, what was done.
        clean: The observation without noise, which the actor does not see.
        known: What the critic is given: the clean observation, the time, and the actor's features.
        reward: The reward of the step.
        episode_start: Whether the step is the first of an episode.
        over: 1 where the step was the last of its episode, else 0.
        alive: 1 where the episode was still running, else 0.
        advantage: How much better than expected the rest of the episode was.
        target: The return of the rest of the episode, as the critic should have known it.
    """

    inputs: Tensor
    memory: Tensor
    chosen: Tensor
    log_prob: Tensor
    decided: Tensor
    wanted: Tensor
    clean: Tensor
    known: Tensor
    reward: Tensor
    episode_start: Tensor
    over: Tensor
    alive: Tensor
    advantage: Tensor
    target: Tensor

    def select_rows(self, rows: Tensor) -> Batch:
        """Return some of the rows."""
        return Batch(*(getattr(self, one.name)[:, rows] for one in fields(self)))

    def single_steps(self) -> Batch:
        """Return every step that was run as a row of its own: for agents that need not see them in order."""
        run = self.alive > 0
        return Batch(*(getattr(self, one.name)[run].unsqueeze(0) for one in fields(self)))

    def sequences(self, length: int) -> Batch:
        """Return rows of at most ``length`` steps of one episode each, the rest of a row not alive."""
        n_steps, n_rows = self.alive.shape
        step = torch.arange(n_steps, device=self.alive.device).unsqueeze(1).expand(n_steps, n_rows)
        cut = self.episode_start | (step % length == 0)
        # Sequences are numbered row by row, and steps within one from its last cut.
        number = cut.T.flatten().cumsum(0).view(n_rows, n_steps).T - 1
        position = step - torch.where(cut, step, 0).cummax(dim=0).values
        where = torch.full((length, int(cut.sum())), -1, device=cut.device)
        where[position.flatten(), number.flatten()] = torch.arange(cut.numel(), device=cut.device)
        found = where >= 0
        where = where.clamp_min(0)
        parts = Batch(*(getattr(self, one.name).flatten(0, 1)[where] for one in fields(self)))
        return replace(parts, alive=parts.alive * found)

    def mean_of(self, values: Tensor) -> Tensor:
        """Return the mean over all steps that were run."""
        return (values * self.alive).sum() / self.alive.sum()


class Players:
    """Environments, and what the actor, and a teacher where there is one, remember of their episodes."""

    def __init__(
        self, task: Task, actor: Actor, settings: PpoSettings, env_seeds: np.random.SeedSequence, teacher: Policy | None
    ) -> None:
        self.actor = actor
        self.settings = settings
        self.device = actor.clean.weight.device
        self.teacher = None if teacher is None else teacher.to(self.device)
        self.shape = task.spaces.shape
        self.task = task
        self.actuator: Channel | None = None
        self.max_steps = task.scoring.max_steps
        self.restarts = settings.n_steps > 0
        n_envs = settings.n_envs
        self.env = task.backend.batch(n_envs, env_seeds, self.device)
        self.memory = actor.memory.start(n_envs)
        self.last_action = torch.zeros(n_envs, actor.head.size, device=self.device)
        self.steps = torch.zeros(n_envs, device=self.device)
        self.alive = torch.ones(n_envs, dtype=torch.bool, device=self.device)
        self.held: Tensor | None = None
        # Rewards of each row's episode so far, and the lowest and highest sum of an episode that is over.
        self.total = torch.zeros(n_envs, dtype=torch.float64, device=self.device)
        self.lowest = np.inf
        self.highest = -np.inf
        self.row: dict[str, Tensor] = {}
        self.features = torch.empty(0)
        self.observation = torch.empty(0)
        self.acted: Tensor | None = None
        self.teacher_memory = torch.empty(0)
        self.wanted = torch.empty(0)

    @torch.no_grad()
    def collect(self, noise: Noise, stream: Stream, *, hold: float = 0.0, taught: float = 0.0) -> tuple[Batch, Tensor]:
        """Run ``n_steps`` of every environment, or one whole episode, with random actions.

        Args:
            noise: The noise on every observation, and on every action.
            stream: Random numbers of noise and actions.
            hold: How often the action before is repeated instead of a new one chosen.
            taught: The share of rows in which the teacher acts.

        Returns:
            What was run, and what the critic is given of the step after the last.
        """
        n_envs = len(self.alive)
        channel = Channel(noise=noise, n_envs=n_envs, shape=self.shape, stream=stream)
        if noise.action_sigma > 0:
            self.actuator = action_channel(noise, n_envs, limits_of_actions(self.task), stream)
        if not self.row:
            self._look(self.env.reset(), channel, torch.ones_like(self.alive))
        by_teacher = stream.uniform(0.0, 1.0, (n_envs,)) < taught
        n_steps = self.settings.n_steps or self.max_steps
        columns: dict[str, Tensor] = {}
        for step in range(n_steps):
            following, now = self._act(stream, hold, by_teacher)
            for name, part in (self.row | now).items():
                if step == 0:
                    columns[name] = part.new_empty((n_steps, *part.shape))
                columns[name][step] = part
            over = now["over"] > 0
            if self.restarts and bool(over.any()):
                following = following.clone()
                following[over] = self.env.restart_rows(over)
            if not self.restarts:
                self.alive = self.alive & ~over
                # What is over stays where it is: nothing is learned of it, and nothing of it may become infinite.
                following = torch.where(self.alive.unsqueeze(-1), following, self.observation)
            self.steps += 1
            self._look(following, channel, over if self.restarts else torch.zeros_like(over))
            # Looking makes a GPU wait: not at every step.
            looks = step % DONE_CHECK_INTERVAL == DONE_CHECK_INTERVAL - 1
            if not self.restarts and looks and not bool(self.alive.any()):
                break
        run = {name: column[: step + 1] for name, column in columns.items()}
        # Advantages and targets are filled in when the critic has judged the steps.
        return Batch(**run, advantage=run["alive"], target=run["alive"]), self.row["known"]

    def close(self) -> None:
        """Close the environments."""
        self.env.close()

    def _act(self, stream: Stream, hold: float, by_teacher: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Choose an action and take it; return the observation that follows, and what was done."""
        head = self.actor.head
        chosen, log_prob = head.draw(self.features, stream)
        decided = torch.ones_like(log_prob)
        if hold > 0 and self.held is not None:
            holds = (stream.uniform(0.0, 1.0, (len(chosen),)) < hold) & ~self.row["episode_start"]
            chosen = torch.where(holds.view(-1, *[1] * (chosen.dim() - 1)), self.held, chosen)
            decided = (~holds).float()
        self.held = chosen
        action = head.to_action(chosen)
        wanted = action
        if self.teacher is not None:
            wanted = self.wanted
            action = torch.where(by_teacher.view(-1, *[1] * (action.dim() - 1)), wanted.to(action.dtype), action)
        self.acted = action
        executed = action
        if self.actuator is not None:
            # Not what the actor remembers: deployed it does not know the noise on its actions.
            executed = self.actuator.send(action)
        following, reward, over = self.env.step(executed)
        self.last_action = head.to_memory(action)
        self._count_rewards(reward, over)
        return following, {
            "chosen": chosen,
            "log_prob": log_prob,
            "decided": decided,
            "wanted": wanted,
            "reward": reward.float() * self.alive,
            "over": (over & self.alive).float(),
        }

    def _count_rewards(self, reward: Tensor, over: Tensor) -> None:
        """Keep the lowest and the highest return; a GPU is not asked, whose tasks are not that sparse."""
        if not self.restarts:
            return
        self.total += reward
        if bool(over.any()):
            self.lowest = min(self.lowest, float(self.total[over].min()))
            self.highest = max(self.highest, float(self.total[over].max()))
            self.total = self.total.masked_fill(over, 0.0)

    def _look(self, observation: Tensor, channel: Channel, episode_start: Tensor) -> None:
        """Send an observation through the channel, and let the actor and the teacher take it in."""
        self.observation = observation
        seen = channel.send(observation)
        self.steps = self.steps.masked_fill(episode_start, 0.0)
        before = self.memory
        inputs, self.features, self.memory = self.actor.memory.step(seen, self.last_action, before, episode_start)
        clean = observation.float()
        # The critic is needed in training only, so it may be told what the actor does not know.
        time_left = (1 - self.steps / self.max_steps).unsqueeze(-1)
        told = clean if self.settings.clean_critic else seen
        self.row = {
            "inputs": inputs,
            "memory": before.masked_fill(episode_start.view(-1, *[1] * (before.dim() - 1)), 0.0),
            "clean": clean,
            "known": torch.cat((told, time_left, self.features), dim=-1),
            "episode_start": episode_start,
            "alive": self.alive.float(),
        }
        if self.teacher is not None:
            recall = self.teacher.memory
            if self.acted is None:
                self.teacher_memory = recall.empty(clean)
            # The teacher is given what it was trained on: no noise.
            self.teacher_memory = recall.advance(self.teacher_memory, clean, self.acted, episode_start)
            self.wanted = self.teacher.act(self.teacher_memory, self.steps)


class Running:
    """Mean and variance of everything so far."""

    def __init__(self, shape: tuple[int, ...], device: torch.device) -> None:
        self.count = 0.0
        self.mean = torch.zeros(shape, dtype=torch.float64, device=device)
        self.var = torch.ones(shape, dtype=torch.float64, device=device)

    def add(self, values: Tensor, weights: Tensor) -> None:
        """Add values (steps, rows, *shape) where weights are 1."""
        count = float(weights.sum())
        weights = weights.view(*weights.shape, *[1] * (values.dim() - weights.dim())).double()
        mean = (values.double() * weights).sum(dim=(0, 1)) / count
        var = ((values.double() - mean).square() * weights).sum(dim=(0, 1)) / count
        total = self.count + count
        away = mean - self.mean
        if self.count == 0:
            self.mean = mean
            self.var = var
        else:
            self.mean = self.mean + away * (count / total)
            between = away.square() * (self.count * count / total)
            self.var = (self.var * self.count + var * count + between) / total
        self.count = total


def discount_at(fraction: float, settings: PpoSettings) -> float:
    """Return the discount after a fraction of the training: its horizon grows by the same factor in equal times."""
    if not settings.last_gamma or fraction >= settings.growth:
        return settings.last_gamma or settings.gamma
    ratio = (1 - settings.last_gamma) / (1 - settings.gamma)
    return 1 - (1 - settings.gamma) * float(ratio ** (fraction / settings.growth))


class PpoLearner:
    """Actor, critic, their optimizer, the running average of the actor, and the statistics of what was seen."""

    def __init__(self, task: Task, noise: Noise, settings: PpoSettings, seed: int, device: torch.device) -> None:
        self.task = task
        self.noise = noise
        self.settings = settings
        self.device = device
        # The first weights come from the seed alone, and torch's own stream goes on as if nothing had been drawn.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(training_seeds(seed, 0)[3].generate_state(1, np.uint64)[0]) >> 1)
            n_stack = settings.n_stack(task)
            actor = Actor(task.spaces, n_stack=n_stack, width=settings.width, log_std=settings.log_std)
            self.actor = actor.to(device)
            self.critic = CleanCritic(task.spaces, features=settings.width, width=settings.critic_width).to(device)
        self.average = copy.deepcopy(self.actor).requires_grad_(False)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.learning_rate, eps=1e-5)
        # What a checkpoint holds, by name.
        self.networks = {"actor": self.actor, "critic": self.critic, "average": self.average}
        self.optimizers = {"learner": self.optimizer}
        self.observed = Running(task.spaces.shape, device)
        self.returned = Running((), device)
        # Of each environment, the discounted rewards of its episode so far.
        self.ahead = torch.zeros(settings.n_envs, device=device)
        self.reward_scale = 1.0
        self.gamma = settings.gamma
        self.iteration = 0
        # The largest spread of the advantages so far, in units of rewards.
        self.widest = 0.0
        self.entropy = 0.0
        self.spread = 0.0

    def learn(self, batch: Batch, after: Tensor, stream: Stream, fraction: float, *, imitates: bool = False) -> None:
        """Take the gradient steps of one iteration.

        Args:
            batch: What was run.
            after: What the critic is given of the step after the last.
            stream: Random numbers.
            fraction: How much of the training is over.
            imitates: Whether the actor learns from the teacher, else from rewards.
        """
        settings = self.settings
        self.gamma = discount_at(fraction, settings)
        self._measure_scales(batch)
        batch = self._with_advantages(batch, after)
        if isinstance(self.actor.memory, FrameMemory):
            batch = batch.single_steps()
        elif settings.n_steps:
            batch = batch.sequences(settings.sequence)
        self._set_learning_rate(fraction)
        for _ in range(settings.epochs):
            order = torch.randperm(batch.alive.shape[1], generator=stream.generator, device=self.device)
            for rows in order.chunk(settings.minibatches):
                self.optimizer.zero_grad()
                torch.autograd.backward(self._loss(batch.select_rows(rows), stream, imitates=imitates))
                nn.utils.clip_grad_norm_(self.parameters, MAX_GRAD_NORM)
                self.optimizer.step()
        self.iteration += 1
        # The first weights, which know nothing, are forgotten sooner.
        keep = min(settings.averaging, self.iteration / (self.iteration + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.actor.parameters()), 1 - keep)

    def _loss(self, batch: Batch, stream: Stream, *, imitates: bool) -> Tensor:
        """Return the loss of the actor, plus errors of values and of the guessed observation."""
        actor = self.actor
        settings = self.settings
        features = actor.memory(batch.inputs, batch.memory[0])
        errors = 0.5 * (self.critic(batch.known) - batch.target).square()
        if settings.auxiliary:
            guessed = actor.clean(features) - actor.memory.normalize(batch.clean)
            errors = errors + settings.auxiliary * guessed.square().mean(dim=-1)
        if imitates:
            return batch.mean_of(errors + actor.head.imitation_error(features, batch.wanted))
        log_prob, entropy = actor.head.evaluate(features, batch.chosen, stream)
        ratio = (log_prob - batch.log_prob).exp()
        gain = torch.minimum(ratio * batch.advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * batch.advantage)
        self.entropy = float(batch.mean_of(entropy).detach())
        return batch.mean_of(errors - gain * batch.decided - settings.entropy * entropy)

    @torch.no_grad()
    def _with_advantages(self, batch: Batch, after: Tensor) -> Batch:
        """Return the batch with generalized advantages and the targets of the critic."""
        gamma = self.gamma
        values = self.critic(batch.known) * batch.alive
        last = self.critic(after).unsqueeze(0) if self.settings.n_steps else torch.zeros_like(values[:1])
        goes_on = batch.alive - batch.over
        following = torch.cat((values[1:], last)) * goes_on
        errors = batch.reward * self.reward_scale + gamma * following - values
        advantage = torch.empty_like(values)
        ahead = torch.zeros_like(values[0])
        for step in reversed(range(len(values))):
            ahead = errors[step] + gamma * self.settings.trace * goes_on[step] * ahead
            advantage[step] = ahead
        centered = advantage - batch.mean_of(advantage)
        spread = float(batch.mean_of(centered.square()).sqrt()) + TINY
        self.spread = spread / self.reward_scale
        return replace(batch, advantage=centered / spread, target=advantage + values)

    def _set_learning_rate(self, fraction: float) -> None:
        """Set the learning rate, which falls with time and with the spread of the advantages."""
        settings = self.settings
        self.widest = max(self.widest, self.spread)
        pace = 1.0
        if settings.settle:
            # Of a nearly perfect agent only noise is left to learn from.
            pace = min(1.0, self.spread / (settings.settle * self.widest))
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * (1 - fraction) * pace

    @torch.no_grad()
    def _measure_scales(self, batch: Batch) -> None:
        """Bring the units of observations and rewards up to date: their spread in everything that was run."""
        self.observed.add(batch.clean, batch.alive)
        sums = torch.empty_like(batch.reward)
        if not self.settings.n_steps:
            self.ahead.zero_()
        for step in range(len(sums)):
            self.ahead = self.gamma * self.ahead + batch.reward[step]
            sums[step] = self.ahead
            self.ahead = self.ahead * (1 - batch.over[step])
        self.returned.add(sums, batch.alive)
        self.set_scales()

    @torch.no_grad()
    def set_scales(self) -> None:
        """Let the networks use the statistics."""
        sigmas = torch.from_numpy(self.noise.over(self.task.spaces.shape)).to(self.device)
        # A feature that hardly varies stays small in units of its mean: all this is folded into the first layer of the
        # agent, which would be all rounding otherwise.
        least = (LEAST_SPREAD * self.observed.mean).square() + TINY
        scale = (self.observed.var + sigmas.double().square() + least).rsqrt()
        for network in (self.actor.memory, self.average.memory, self.critic):
            network.normalize.mean.copy_(self.observed.mean)
            network.normalize.scale.copy_(scale)
        self.reward_scale = 1 / (float(self.returned.var.sqrt()) + TINY)


def train_ppo(run: TrainingRun, settings: PpoSettings) -> Policy:
    """Train until the steps or the time are used up, or nothing is gained; write the best agent, curve and checkpoint.

    Raises:
        InputError: If observations are not vectors, a setting is out of range, or the folder cannot be used.
    """
    _check_task(run.task, settings)
    folder = run.open_folder()
    task = run.task
    learner = PpoLearner(task, run.noise, settings, run.seed, torch.device(run.device))
    if run.imitated is not None:
        learner.actor.head.explore_little()
    progress = PpoProgress(run, settings, learner, folder)
    if run.resume:
        progress.restore()
    players: Players | None = None
    # More threads would only wait for each other: networks are small.
    with single_thread():
        try:
            # However short the time, there is an agent at the end.
            while progress.fraction < 1 or not folder.curve.rows:
                # Random numbers depend on the iteration alone, so a resumed run is the run that was not stopped.
                env_seeds, acting, learning, _ = training_seeds(run.seed, learner.iteration)
                if players is None:
                    players = Players(task, learner.actor, settings, env_seeds, run.imitated)
                progress.run_iteration(players, Stream(acting, learner.device), Stream(learning, learner.device))
                if not settings.n_steps:
                    players.close()
                    players = None
        finally:
            if players is not None:
                players.close()
    name = f"{short_name(task)}-{settings.label}-s{run.noise.sigma:g}"
    policy = progress.make_policy(folder.curve.best_weights, name)
    card = run.card("surefoot.train.ppo", settings, budget=run.budget)
    if run.imitated is not None:
        card["training"]["init_from"] |= progress.validate_teacher(run.imitated)
    folder.finish(policy, card, keep_checkpoint=True)
    # A GRU, or tanh after a normal distribution, SB3's PPO does not have.
    if isinstance(policy.network, MLP) and policy.stacks_frames and find_spec("stable_baselines3"):
        from surefoot.agents.sb3.write import write_zip

        write_zip(policy, folder.path / "agent.zip", as_ppo=True)
    return policy


class PpoProgress:
    """How far a training run is: what it does next, when it validates, and when it ends."""

    def __init__(self, run: TrainingRun, settings: PpoSettings, learner: PpoLearner, folder: TrainingFolder) -> None:
        self.run = run
        self.settings = settings
        self.learner = learner
        self.folder = folder
        self.fraction = 0.0
        # Episodes that ended since the last validation.
        self.n_learned = 0
        # How many episodes the last validation had.
        self.n_validated = LEAST_VALIDATION
        # How many of the parts after each of which the training would validate, if it could afford it.
        self.parts_validated = 0
        # From which fraction on returns have differed, and whether they once did not.
        self.differed = 0.0
        self.was_sparse = False

    def run_iteration(self, players: Players, acting: Stream, learning: Stream) -> None:
        """Run, learn, and validate if it is time."""
        settings = self.settings
        learner = self.learner
        curve = self.folder.curve
        before = self.fraction
        imitates = self.run.imitated is not None and before < settings.imitation
        taught = 0.0
        hold = 0.0
        if imitates:
            # The teacher acts at first, so that its states are seen, and then less and less: in the end the agent has
            # to get along with its own mistakes.
            taught = max(0.0, 1 - 2 * before / settings.imitation)
        elif self._is_sparse(players):
            hold = settings.hold * max(0.0, 1 - (before - self.differed) / settings.hold_until)
        noise = learner.noise.scaled(min(1.0, before / settings.curriculum) if settings.curriculum else 1.0)
        with tensor_cores():
            batch, after = players.collect(noise, acting, hold=hold, taught=taught)
            learner.learn(batch, after, learning, before, imitates=imitates)
        curve.steps += int(batch.alive.sum())
        self.n_learned += int(batch.over.sum())
        self._count_time()
        is_due = self._parts_done() > self.parts_validated
        if self.fraction >= 1 or (is_due and self._is_affordable()):
            self._validate()
            # Validating takes time too, which may have been the last.
            self._count_time()

    def _parts_done(self) -> int:
        return int(self.fraction * self.settings.validations)

    def _is_affordable(self) -> bool:
        """Return whether a validation leaves most of the time to learning."""
        return not self.settings.n_steps or self._affordable_episodes() >= LEAST_VALIDATION

    def _affordable_episodes(self) -> int:
        return round(VALIDATION_SHARE * self.n_learned)

    def _is_sparse(self, players: Players) -> bool:
        """Return whether all episodes had the same return at first, of which nothing can be learned."""
        if players.lowest == players.highest:
            self.was_sparse = True
            self.differed = self.fraction
        return self.was_sparse

    def restore(self) -> None:
        """Go on from the checkpoint."""
        learner = self.learner
        checkpoint = self.folder.load_checkpoint()
        checkpoint.restore(learner.networks, learner.optimizers)
        learner.iteration = checkpoint.counters["iteration"]
        learner.widest = checkpoint.counters["widest"]
        for name, running in self._running.items():
            running.count = checkpoint.counters[f"{name}.count"]
            running.mean = torch.from_numpy(checkpoint.arrays[f"{name}.mean"]).to(learner.device)
            running.var = torch.from_numpy(checkpoint.arrays[f"{name}.var"]).to(learner.device)
        learner.set_scales()
        self._count_time()
        self.parts_validated = self._parts_done()

    def make_policy(self, weights: NamedArrays, name: str) -> Policy:
        """Return the agent of these weights, as it is deployed."""
        task = self.run.task
        n_stack = self.settings.n_stack(task)
        return policy_from_weights(task.spaces, weights, name, n_stack=n_stack, activation="tanh")

    @property
    def _running(self) -> dict[str, Running]:
        return {"observed": self.learner.observed, "returned": self.learner.returned}

    def _count_time(self) -> None:
        curve = self.folder.curve
        self.fraction = self.folder.fraction_done(curve.steps, self.settings.total_steps, self.run.time_limit)
        patience = self.settings.patience
        if patience and len(curve.rows) > patience and not self._has_risen(patience):
            # What has not risen for so long is not worth the rest of the time.
            self.fraction = 1.0

    def _has_risen(self, patience: int) -> bool:
        """Return whether one of the last validations had a higher mean or certified value than all before."""
        rows = self.folder.curve.rows
        for column in (1, -1):
            if max(row[column] for row in rows[-patience:]) > max(row[column] for row in rows[:-patience]):
                return True
        return False

    def _validate(self) -> None:
        """Validate the average of the actors as it would be deployed, and write a checkpoint."""
        settings = self.settings
        learner = self.learner
        curve = self.folder.curve
        n_episodes = settings.validation_episodes
        if settings.n_steps:
            # The last validation is run even where it is not affordable.
            n_episodes = max(LEAST_VALIDATION, min(n_episodes, self._affordable_episodes()))
        self.n_validated = n_episodes
        self.n_learned = 0
        self.parts_validated = self._parts_done()
        weights = deployed_weights(learner.average)
        validate(
            self.run,
            curve,
            self.make_policy(weights, "candidate"),
            weights,
            n_episodes,
            n_expected=settings.validation_episodes,
            number=learner.iteration,
            exploration=learner.entropy,
            device=learner.device.type,
        )
        counters: dict[str, float] = {"iteration": learner.iteration, "widest": learner.widest}
        arrays: NamedArrays = {}
        for name, running in self._running.items():
            counters[f"{name}.count"] = running.count
            arrays[f"{name}.mean"] = running.mean.cpu().numpy()
            arrays[f"{name}.var"] = running.var.cpu().numpy()
        self.folder.save_checkpoint(counters, learner.networks, learner.optimizers, arrays)
        if self.run.progress is not None:
            self.run.progress(curve.steps, round(curve.steps / self.fraction), curve)

    def validate_teacher(self, teacher: Policy) -> dict[str, float]:
        """Return what the agent that was imitated gets with the noise, and is expected to certify."""
        # A number that no candidate's validation has.
        number = self.learner.iteration + 1
        played = run_validation(self.run, teacher, self.n_validated, number=number)
        certified = predict_bound(played, self.run.budget, self.settings.validation_episodes)
        return {"validation": float(played.returns.mean()), "certified": certified}


@contextmanager
def tensor_cores() -> Iterator[None]:
    """Let a GPU multiply matrices in TF32; only while learning, certificates are computed in full precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _check_task(task: Task, settings: PpoSettings) -> None:
    settings.n_stack(task)
    if task.cartridge is not None or len(task.spaces.shape) != 1:
        raise InputError(
            f"this training takes vectors as observations, those of {task.name} have shape {task.spaces.shape}; "
            "wrap the environment in FlattenObservation, or train with SB3's CnnPolicy on surefoot.NoisyObservation"
        )
    bounds = (*(task.spaces.low or ()), *(task.spaces.high or ()))
    if task.spaces.n_actions is None and not (bounds and np.isfinite(bounds).all()):
        raise InputError("training needs finite bounds of continuous actions; wrap the environment in RescaleAction")
    if not settings.n_steps and not _can_step_after_end(task):
        raise InputError(f"whole episodes need environments that are tensors, {task.name} has none; give n_steps=")
    if settings.n_envs * max(1, settings.n_steps) < settings.minibatches:
        raise InputError(f"n_envs must be at least minibatches ({settings.minibatches}), got {settings.n_envs}")
    if settings.last_gamma and not settings.gamma <= settings.last_gamma < 1:
        raise InputError(
            f"last_gamma must be 0, or at least gamma ({settings.gamma:g}) and below 1, got {settings.last_gamma:g}"
        )


def _can_step_after_end(task: Task) -> bool:
    """Return whether environments of the task may be stepped when their episode is over, as tensors may."""
    env = task.backend.batch(1, training_seeds(0, 0)[0], torch.device("cpu"))
    env.close()
    return env.done_check_interval > 1
