"""Polish the last layer of an agent: a few numbers are searched by what the deployed agent is predicted to certify.

A network that acts well on noisy observations knows the clean one nearly as well as it can be known: a linear guess
from the inputs of its last layer is hardly worse than the best filter. What rewards teach slowly is what to do with
it. On CartPole a cart that drifts fails after 150 steps, too late for rewards to matter much, and that is most of what
an attacker can make frequent. So multiples of the guessed observation are added to the outputs of the last layer, one
number per output and entry of the observation, and an evolution strategy searches them: candidates run whole episodes
as they would be deployed, all of a round the same ones, and the next round is drawn further towards the better ones.

The network keeps its size and its cost. Nothing is differentiated, so any agent can be polished whose last layer is
linear.

    python -m zoo.training.polish cartpole-5 --sigma 0.3 --for-budget 0.4 --init-from cartpole-5-gru-s0.3 \
        --out runs/polish
"""

from __future__ import annotations

import argparse
import copy
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.files import hashed, load
from surefoot.agents.networks import MLP, Squashed
from surefoot.agents.policies import Policy
from surefoot.agents.recurrent import Visible
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Channel
from surefoot.play.streams import Stream, training_seeds
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.train.folder import TrainingRun
from surefoot.train.selection import predict_bound, run_validation, validate
from surefoot.train.settings import TrainingSettings, setting

RIDGE = 1e-6  # of the least squares, in units of the mean square of the features


@dataclass(frozen=True)
class PolishSettings(TrainingSettings):
    """Settings of the search for the last layer of an agent."""

    rounds: int = setting(6, "rounds of the search, each on episodes of its own")
    pairs: int = setting(7, "pairs of opposite candidates per round, all on the same episodes")
    n_episodes: int = setting(3_000, "episodes per candidate")
    stress: float = setting(1.15, "noise and budget of the search, in units of those that count")
    spread: float = setting(0.25, "spread of the first candidates, in units of the spread of the outputs")
    shrink: float = setting(0.8, "spread of a round's candidates, in units of that of the round before")
    observed: int = setting(1_000, "episodes from which the clean observation is guessed")
    validation_episodes: int = setting(32_768, "episodes that compare the result with the agent as it was")


@dataclass(frozen=True)
class Directions:
    """What may be added to the last layer.

    Attributes:
        guess: The linear guess of the clean observation, (features and 1, observation).
        unit: How much of it moves an output by its own spread, (outputs, observation).
    """

    guess: Tensor
    unit: Tensor

    def add_to(self, policy: Policy, numbers: NDArray[np.float64]) -> Policy:
        """Return the policy with so much added to its last layer."""
        network = copy.deepcopy(policy.network)
        last = last_layer(network, policy.name)
        share = torch.from_numpy(numbers).reshape(self.unit.shape) * self.unit
        change = (share @ self.guess.T).float()
        first = len(last.weight) - len(change)  # of discrete actions only differences count: the first stays
        last.weight[first:] += change[:, :-1]
        last.bias[first:] += change[:, -1]
        return hashed(replace(policy, network=network))


def last_layer(network: nn.Module, name: str) -> nn.Linear:
    """Return the last layer of fully connected ones."""
    while isinstance(network, Squashed | Visible):
        network = network.network
    if not isinstance(network, MLP):
        raise InputError(f"only a network that ends with fully connected layers can be polished; {name} is another")
    return network.linear[-1]


@torch.no_grad()
def observe_features(task: Task, noise: Noise, policy: Policy, n_envs: int, seed: int) -> tuple[Tensor, Tensor]:
    """Run episodes; return the inputs of the last layer and the clean observation at every step that was run."""
    env_seeds, acting, *_ = training_seeds(seed, 0)
    env = task.backend.batch(n_envs, env_seeds, torch.device("cpu"))
    channel = Channel(noise=noise, n_envs=n_envs, shape=task.spaces.shape, stream=Stream(acting, torch.device("cpu")))
    features: list[Tensor] = []
    clean: list[Tensor] = []
    alive = torch.ones(n_envs, dtype=torch.bool)
    episode_start = alive
    hook = last_layer(policy.network, policy.name).register_forward_pre_hook(
        lambda _, given: features.append(given[0][alive])
    )
    observation = env.reset()
    action = None
    memory = policy.memory.empty(observation.float())
    for _ in range(task.scoring.max_steps):
        clean.append(observation[alive].flatten(1))
        memory = policy.memory.advance(memory, channel.send(observation), action, episode_start)
        episode_start = torch.zeros_like(alive)
        action = policy.act(memory)
        following, _, over = env.step(action)
        alive = alive & ~over
        # What is over stays where it is: nothing of it may become infinite.
        observation = torch.where(alive.unsqueeze(-1), following, observation)
        if not bool(alive.any()):
            break
    hook.remove()
    env.close()
    return torch.cat(features).double(), torch.cat(clean).double()


def find_directions(policy: Policy, features: Tensor, clean: Tensor) -> Directions:
    """Return the least-squares guess of the clean observation, and the units of what may be added."""
    known = torch.cat((features, torch.ones(len(features), 1, dtype=torch.float64)), dim=1)
    square = known.T @ known
    # A little ridge: features of a trained network are nearly dependent.
    square += RIDGE * square.trace() / len(square) * torch.eye(len(square), dtype=torch.float64)
    guess = torch.linalg.solve(square, known.T @ clean)
    last = last_layer(policy.network, policy.name)
    outputs = features @ last.weight.double().T + last.bias.double()
    if policy.spaces.n_actions is not None:
        # Of discrete actions only differences count.
        outputs = outputs[:, 1:] - outputs[:, :1]
    return Directions(guess, outputs.std(dim=0).unsqueeze(1) / (known @ guess).std(dim=0))


def polish(run: TrainingRun, settings: PolishSettings, *, init_from: Policy) -> Policy:
    """Search the last layer of an agent; write the better of the two, before and after, by validation.

    The run may name another sigma than the agent was trained with.

    Raises:
        InputError: If the agent does not fit the task, a setting is out of range, or the folder cannot be used.
    """
    _check_agent(run, init_from)
    folder = run.open_folder()
    curve = folder.curve
    features, clean = observe_features(run.task, run.noise, init_from, settings.observed, run.seed)
    directions = find_directions(init_from, features, clean)
    found, steps = search_numbers(run, settings, init_from, directions)
    name = f"{init_from.name.rsplit('-s', 1)[0].removesuffix('-polished')}-polished-s{run.sigma:g}"
    unchanged = np.zeros_like(found)
    for numbers, steps_so_far in ((unchanged, 0), (found, steps)):
        curve.steps = steps_so_far
        policy = replace(directions.add_to(init_from, numbers), name=name)
        # Both on the same episodes; rounds of the search count from 1.
        validate(run, curve, policy, {"numbers": numbers}, settings.validation_episodes, number=0)
        if run.progress is not None:
            run.progress(curve.steps, max(1, curve.steps), curve)
    kept = curve.best_weights["numbers"]
    policy = replace(directions.add_to(init_from, kept), name=name)
    card = run.card(
        "zoo.training.polish: evolution strategy",
        settings,
        budget=run.budget,
        init_from={"name": init_from.name, "sha256": init_from.sha256},
        added=[round(float(number), 4) for number in kept],
    )
    folder.finish(policy, card)
    return policy


def search_numbers(
    run: TrainingRun, settings: PolishSettings, policy: Policy, directions: Directions
) -> tuple[NDArray[np.float64], int]:
    """Search what is added to the last layer by an evolution strategy: a step uphill per round, each smaller.

    Returns:
        Where the search ends, and how many environment steps it took.
    """
    # Failures that are too rare to be counted here are not with more noise, at the same budget in units of it.
    run = replace(run, noise=run.noise.scaled(settings.stress), for_budget=settings.stress * run.budget)
    random = np.random.default_rng(training_seeds(run.seed, 0)[3])
    center = np.zeros(directions.unit.numel())
    spread = settings.spread
    steps = 0
    for number in range(1, settings.rounds + 1):
        drawn = random.standard_normal((settings.pairs, len(center)))
        drawn = np.concatenate((drawn, -drawn))
        values = []
        for offset in drawn:
            candidate = directions.add_to(policy, center + spread * offset)
            # All candidates of one round run the same episodes.
            played = run_validation(run, candidate, settings.n_episodes, number=number)
            assert played.lengths is not None
            steps += int(played.lengths.sum())
            values.append(predict_bound(played, run.budget))
        # Ranks, because what falls over at once is no worse a direction than what is merely bad.
        ranks = np.array(values).argsort().argsort() - (len(values) - 1) / 2
        uphill = ranks @ drawn
        center += spread * uphill / np.linalg.norm(uphill)
        spread *= settings.shrink
    return center, steps


def _check_agent(run: TrainingRun, policy: Policy) -> None:
    """Raise InputError unless the agent can be polished on the task."""
    task = run.task
    spaces = task.spaces
    if task.cartridge is not None or (policy.spaces.shape, policy.spaces.n_actions) != (spaces.shape, spaces.n_actions):
        raise InputError(f"polishing needs an agent for the vectors and actions of {task.name}, not {policy.name}")
    if run.sigma == 0:
        raise InputError("polishing compares certified values, which need noise: sigma must be > 0, got 0")
    last_layer(policy.network, policy.name)


def main(words: Sequence[str] | None = None) -> None:
    """Polish one agent by the command line."""
    parser = argparse.ArgumentParser(description="Search the last layer of an agent by what it certifies.")
    parser.add_argument("task")
    parser.add_argument("--sigma", type=float, required=True)
    parser.add_argument("--init-from", required=True, metavar="AGENT", help="agent to polish")
    parser.add_argument("--for-budget", type=float, help="attack budget that counts (default: twice sigma)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    words = sys.argv[1:] if words is None else words
    arguments = parser.parse_args(words)
    try:
        run = TrainingRun(
            task=get_task(arguments.task),
            noise=Noise.of(arguments.sigma),
            out=arguments.out,
            seed=arguments.seed,
            for_budget=arguments.for_budget,
            preset="polish",
            command=shlex.join(("python", "-m", "zoo.training.polish", *words)),
        )
        polish(run, PolishSettings(), init_from=load(arguments.init_from))
    except InputError as error:
        sys.exit(f"polish: {error}")


if __name__ == "__main__":
    main()
