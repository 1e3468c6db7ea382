"""PPO over whole episodes of thousands of environments in parallel, for tasks whose environments are tensors.

Read from top to bottom. Every iteration runs ``n_envs`` episodes to their end with noise on every observation, and
takes a few gradient steps on minibatches of whole episodes. What makes the agents certify more, the most important
first (docs/training.md has the numbers):

1. Many whole episodes per update.
2. Memory: a GRU on what is seen and done averages the noise away.
3. Steps that shrink with the spread of the advantages: of a nearly perfect agent only noise is left to learn from.
4. An entropy bonus that does not fall: greedy play of a policy that had to withstand random actions keeps margins.
5. A critic that sees the clean observation, and an auxiliary loss that asks the actor for it. The noise is ours, so
   the clean observation is known in training; the actor itself never sees it.
6. The agent is the running average of the weights, the best by certified value on validation episodes.

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
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Channel
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.train.actors import Actor, CleanCritic, FrameMemory, deployed_weights
from surefoot.train.deployed import policy_from_weights
from surefoot.train.folder import TrainingRun
from surefoot.train.selection import validate
from surefoot.train.settings import PpoSettings

CLIP = 0.2  # how far a probability may move before its gradient is cut off
MAX_GRAD_NORM = 0.5
DONE_CHECK_INTERVAL = 16  # steps between looks whether all episodes are over
TINY = 1e-6
RETURN_SCALE = 10.0  # the range of returns that the critic learns


@dataclass(frozen=True)
class EpisodeBatch:
    """Whole episodes side by side: every tensor is (steps, episodes, ...).

    Attributes:
        inputs: What the actor's memory was given.
        chosen: What was chosen at random, as the actor's head names actions.
        log_prob: The logarithm of its probability.
        clean: The observation without noise, which the actor does not see.
        known: What the critic is given: the clean observation, the time, and the actor's features.
        reward: The reward of the step.
        alive: 1 where the episode was still running, else 0.
        advantage: How much better than expected the rest of the episode was.
        target: The return of the rest of the episode, as the critic should have known it.
    """

    inputs: Tensor
    chosen: Tensor
    log_prob: Tensor
    clean: Tensor
    known: Tensor
    reward: Tensor
    alive: Tensor
    advantage: Tensor
    target: Tensor

    def select_episodes(self, rows: Tensor) -> EpisodeBatch:
        """Return some of the episodes."""
        return EpisodeBatch(*(getattr(self, one.name)[:, rows] for one in fields(self)))

    def single_steps(self) -> EpisodeBatch:
        """Return every step that was run as an episode of its own: for agents that need not see them in order."""
        run = self.alive > 0
        return EpisodeBatch(*(getattr(self, one.name)[run].unsqueeze(0) for one in fields(self)))

    def mean_of(self, values: Tensor) -> Tensor:
        """Return the mean over all steps that were run."""
        return (values * self.alive).sum() / self.alive.sum()


@torch.no_grad()
def collect(
    task: Task, noise: Noise, actor: Actor, settings: PpoSettings, env_seeds: np.random.SeedSequence, stream: Stream
) -> EpisodeBatch:
    """Run one episode in every environment with random actions."""
    n_envs = settings.n_envs
    max_steps = task.scoring.max_steps
    device = stream.device
    env = task.backend.batch(n_envs, env_seeds, device)
    channel = Channel(noise=noise, n_envs=n_envs, shape=task.spaces.shape, stream=stream)
    observation = env.reset()
    memory = actor.memory.start(n_envs)
    last_action = torch.zeros(n_envs, actor.head.size, device=device)
    alive = torch.ones(n_envs, dtype=torch.bool, device=device)
    columns: dict[str, Tensor] = {}
    for step in range(max_steps):
        seen = channel.send(observation)
        inputs, features, memory = actor.memory.step(seen, last_action, memory)
        chosen, log_prob = actor.head.draw(features, stream)
        following, reward, over = env.step(actor.head.to_action(chosen))
        # The critic is needed in training only, so it may be told what the actor does not know.
        time_left = torch.full_like(log_prob, 1 - step / max_steps).unsqueeze(-1)
        told = observation if settings.clean_critic else seen
        known = torch.cat((told, time_left, features), dim=-1)
        row = {
            "inputs": inputs,
            "chosen": chosen,
            "log_prob": log_prob,
            "clean": observation,
            "known": known,
            "reward": reward.float() * alive,
            "alive": alive.float(),
        }
        for name, part in row.items():
            if step == 0:
                columns[name] = part.new_empty((max_steps, *part.shape))
            columns[name][step] = part
        last_action = actor.head.to_memory(chosen)
        alive = alive & ~over
        # What is over stays where it is: nothing is learned of it, and nothing of it may become infinite.
        observation = torch.where(alive.unsqueeze(-1), following, observation)
        # Looking makes a GPU wait: not at every step.
        if step % DONE_CHECK_INTERVAL == DONE_CHECK_INTERVAL - 1 and not bool(alive.any()):
            break
    env.close()
    run = {name: column[: step + 1] for name, column in columns.items()}
    # Advantages and targets are filled in when the critic has judged the episodes.
    return EpisodeBatch(**run, advantage=run["alive"], target=run["alive"])


class PpoLearner:
    """Actor, critic, their optimizer, and the running average of the actor."""

    def __init__(self, task: Task, noise: Noise, settings: PpoSettings, seed: int, device: torch.device) -> None:
        self.task = task
        self.noise = noise
        self.settings = settings
        self.device = device
        assert task.scoring.ceiling is not None
        self.reward_scale = RETURN_SCALE / (task.scoring.ceiling - task.scoring.floor)
        # The first weights come from the seed alone, and torch's own stream goes on as if nothing had been drawn.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(training_seeds(seed, 0)[3].generate_state(1, np.uint64)[0]) >> 1)
            self.actor = Actor(task.spaces, n_stack=settings.n_stack(task), width=settings.width).to(device)
            self.critic = CleanCritic(task.spaces, features=settings.width, width=settings.critic_width).to(device)
        self.average = copy.deepcopy(self.actor).requires_grad_(False)
        self.parameters = [*self.actor.parameters(), *self.critic.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=settings.learning_rate, eps=1e-5)
        # What a checkpoint holds, by name.
        self.networks = {"actor": self.actor, "critic": self.critic, "average": self.average}
        self.optimizers = {"learner": self.optimizer}
        self.iteration = 0
        # The largest spread of the advantages so far.
        self.widest = 0.0
        self.entropy = 0.0
        self.spread = 0.0

    def learn(self, batch: EpisodeBatch, stream: Stream, fraction: float) -> None:
        """Take the gradient steps of one iteration; ``fraction`` of the training is over."""
        settings = self.settings
        if self.iteration == 0:
            self._fit_scale(batch)
        batch = self._with_advantages(batch)
        if isinstance(self.actor.memory, FrameMemory):
            batch = batch.single_steps()
        self._set_learning_rate(fraction)
        for _ in range(settings.epochs):
            order = torch.randperm(batch.alive.shape[1], generator=stream.generator, device=self.device)
            for rows in order.chunk(settings.minibatches):
                self.optimizer.zero_grad()
                torch.autograd.backward(self._loss(batch.select_episodes(rows), stream))
                nn.utils.clip_grad_norm_(self.parameters, MAX_GRAD_NORM)
                self.optimizer.step()
        self.iteration += 1
        # The first weights, which know nothing, are forgotten sooner.
        keep = min(settings.averaging, self.iteration / (self.iteration + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.actor.parameters()), 1 - keep)

    def _loss(self, batch: EpisodeBatch, stream: Stream) -> Tensor:
        """Return the clipped loss, plus errors of values and of the guessed observation, less the entropy bonus."""
        actor = self.actor
        settings = self.settings
        features = actor.memory(batch.inputs)
        log_prob, entropy = actor.head.evaluate(features, batch.chosen, stream)
        ratio = (log_prob - batch.log_prob).exp()
        gain = torch.minimum(ratio * batch.advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * batch.advantage)
        errors = 0.5 * (self.critic(batch.known) - batch.target).square()
        if settings.auxiliary:
            guessed = actor.clean(features) - batch.clean * actor.memory.scale
            errors = errors + settings.auxiliary * guessed.square().mean(dim=-1)
        self.entropy = float(batch.mean_of(entropy).detach())
        return batch.mean_of(errors - gain - settings.entropy * entropy)

    @torch.no_grad()
    def _with_advantages(self, batch: EpisodeBatch) -> EpisodeBatch:
        """Return the batch with generalized advantages and the targets of the critic; nothing is discounted."""
        values = self.critic(batch.known) * batch.alive
        following = torch.cat((values[1:], torch.zeros_like(values[:1])))
        errors = batch.reward * self.reward_scale + following - values
        advantage = torch.empty_like(values)
        ahead = torch.zeros_like(values[0])
        for step in reversed(range(len(values))):
            # Behind the end errors are 0 and stay so.
            ahead = errors[step] + self.settings.trace * ahead
            advantage[step] = ahead
        centered = advantage - batch.mean_of(advantage)
        self.spread = float(batch.mean_of(centered.square()).sqrt()) + TINY
        return replace(batch, advantage=centered / self.spread, target=advantage + values)

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
    def _fit_scale(self, batch: EpisodeBatch) -> None:
        """Measure inputs in units of their spread in the first episodes, in which the actor knows nothing yet."""
        weights = batch.alive.unsqueeze(-1) / batch.alive.sum()
        mean = (batch.clean * weights).sum(dim=(0, 1))
        variance = ((batch.clean - mean).square() * weights).sum(dim=(0, 1))
        spread = torch.from_numpy(self.noise.over(self.task.spaces.shape)).to(self.device)
        for network in (self.actor.memory, self.average.memory, self.critic):
            network.scale.copy_((variance + spread.square() + TINY).rsqrt())


def train_ppo(run: TrainingRun, settings: PpoSettings) -> Policy:
    """Train until the steps or the time are used up; write the best agent, the curve and a checkpoint.

    Raises:
        InputError: If the task's environments are not tensors, a setting is out of range, or the folder cannot be used.
    """
    _check_task(run.task, settings)
    folder = run.open_folder()
    task = run.task
    spaces = task.spaces
    n_stack = settings.n_stack(task)
    learner = PpoLearner(task, Noise.of(run.sigma), settings, run.seed, torch.device(run.device))
    if run.resume:
        checkpoint = folder.load_checkpoint()
        checkpoint.restore(learner.networks, learner.optimizers)
        learner.iteration = checkpoint.counters["iteration"]
        learner.widest = checkpoint.counters["widest"]
    curve = folder.curve
    fraction = folder.fraction_done(curve.steps, settings.total_steps, run.time_limit)
    # However short the time, there is an agent at the end.
    while fraction < 1 or not curve.rows:
        validations_before = curve.steps // settings.validation_interval
        # Random numbers depend on the iteration alone, so a resumed run is the run that was not stopped.
        env_seeds, acting, learning, _ = training_seeds(run.seed, learner.iteration)
        with tensor_cores():
            batch = collect(task, learner.noise, learner.actor, settings, env_seeds, Stream(acting, learner.device))
            learner.learn(batch, Stream(learning, learner.device), fraction)
        curve.steps += int(batch.alive.sum())
        fraction = folder.fraction_done(curve.steps, settings.total_steps, run.time_limit)
        if fraction < 1 and curve.steps // settings.validation_interval == validations_before:
            continue
        # The average of the actors is validated as it would be deployed.
        weights = deployed_weights(learner.average)
        validate(
            run,
            curve,
            policy_from_weights(spaces, weights, "candidate", n_stack=n_stack, activation="tanh"),
            weights,
            settings.validation_episodes,
            number=learner.iteration,
            exploration=learner.entropy,
            device=learner.device.type,
        )
        counters = {"iteration": learner.iteration, "widest": learner.widest}
        folder.save_checkpoint(counters, learner.networks, learner.optimizers)
        if run.progress is not None:
            run.progress(curve.steps, round(curve.steps / fraction), curve)
        # Validating takes time too, which may have been the last.
        fraction = folder.fraction_done(curve.steps, settings.total_steps, run.time_limit)
    name = f"{task.name}-{settings.label}-s{run.sigma:g}"
    policy = policy_from_weights(spaces, curve.best_weights, name, n_stack=n_stack, activation="tanh")
    folder.finish(policy, run.card("surefoot.train.ppo", settings, budget=run.budget), keep_checkpoint=True)
    # A GRU, or tanh after a normal distribution, SB3's PPO does not have.
    if isinstance(policy.network, MLP) and policy.stacks_frames and find_spec("stable_baselines3"):
        from surefoot.agents.sb3.write import write_zip

        write_zip(policy, folder.path / "agent.zip", as_ppo=True)
    return policy


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
    if task.cartridge is not None or not _can_step_after_end(task) or task.scoring.ceiling is None:
        raise InputError(f"this PPO is for tasks whose environments are tensors, {task.name} is not one")
    if settings.n_envs < settings.minibatches:
        raise InputError(f"n_envs must be at least minibatches ({settings.minibatches}), got {settings.n_envs}")


def _can_step_after_end(task: Task) -> bool:
    """Return whether environments of the task may be stepped when their episode is over, as tensors may."""
    env = task.backend.batch(1, training_seeds(0, 0)[0], torch.device("cpu"))
    env.close()
    return env.done_check_interval > 1
