"""Everything that fixes a run in advance; the number of workers is not part of it.

A run is cut into blocks. A block is the unit of determinism, of distribution and of resuming: its outcome depends on
the plan and its number alone.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import nn

from surefoot.agents.memory import Recurrent
from surefoot.agents.networks import weights_hash
from surefoot.agents.policies import Policy
from surefoot.episodes import LIMITS, MOST_BLOCKS, MOST_DRAWS, MOST_EPISODES, Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import EPISODE, Attacker, Scope
from surefoot.play.reset_luck import check_luck_names
from surefoot.play.streams import check_purpose, seed_sequence
from surefoot.play.task import Task
from surefoot.provenance import sha256

# What an attacker may perturb, by the name of the option that says so.
CHANNELS = {"observations": ("observations",), "actions": ("actions",), "both": ("observations", "actions")}


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """Which episodes are run, with which agent, noise and attacker."""

    task: Task
    policy: Policy  # the agent; it must fit the task
    noise: Noise  # noise on every new observation, and on every action
    n_episodes: int = 10_000
    seed: int = 0  # seed of the whole run
    # What the episodes are for, as ``play.streams`` lists it: episodes of one seed and two purposes share no random
    # numbers. () is a certificate's.
    purpose: tuple[int, ...] = ()
    device: str = "cpu"  # "cpu" or "cuda"
    n_envs: int | None = None  # environments that run in parallel in one block; the task's own number by default
    episodes_per_env: int | None = None  # episodes that each of them runs in turn; the task's own number by default
    attacker: Attacker | None = None  # who perturbs, or None
    budget: float = 0.0  # the attacker's budget
    scope: Scope = EPISODE  # what it bounds: by default the l2 norm of all perturbations of an episode
    channels: tuple[str, ...] = ("observations",)  # what it perturbs: "observations", "actions" or both
    per_step: bool = False  # whether to keep the rewards of each step, for certificates against a budget per step
    draws_per_seed: int = 1  # how many episodes in a row have the same seed of the environment, and noise of their own
    # What is read of each episode at reset: places in the first observation ("0,2"), or ``module:function`` of that
    # observation and its info. None reads nothing.
    luck: str | None = None
    # Whether noise is that of a deployed agent, in place of that of the seed: such episodes cannot be repeated, and
    # their setup says so, so that none are taken for those of a seed.
    deployed_noise: bool = False

    def __post_init__(self) -> None:
        for name in ("n_episodes", "n_envs", "episodes_per_env", "draws_per_seed"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        if self.n_episodes > MOST_EPISODES:
            raise InputError(f"n_episodes must be at most {MOST_EPISODES}, got {self.n_episodes}")
        if self.n_blocks > MOST_BLOCKS:
            raise InputError(
                f"{self.n_episodes:,} episodes in blocks of {self.block_size} make {self.n_blocks:,} blocks, expected "
                f"at most {MOST_BLOCKS:,}; run more episodes in parallel (n_envs)"
            )
        if self.task.backend.fixed_rows and self.block_size > self.block_envs * self.draws_per_seed:
            raise InputError(f"a row of {self.task.name} runs one episode of a block; leave episodes_per_env out")
        # These raise what they find wrong, now rather than in a worker.
        seed_sequence(self.seed)
        check_purpose(self.purpose)
        self.noise.over(self.task.spaces.shape)
        if not (math.isfinite(self.budget) and self.budget >= 0):
            raise InputError(f"budget must be a finite number >= 0, got {self.budget}")
        _check_fit(self.task, self.policy)
        self._check_channels()
        if self.per_step:
            _check_step_rewards(self.task)
        if self.draws_per_seed > 1:
            self._check_draws()
        if self.luck is not None:
            self._check_luck()

    def _check_luck(self) -> None:
        """Reject luck where it is not known when an episode begins, or not certified."""
        check_luck_names(str(self.luck), self.task.spaces.shape)
        # A later episode of an environment begins without a reset of its own that could be read.
        if self.episodes_per_env not in (None, 1):
            raise InputError("luck= goes with one episode per environment; leave episodes_per_env= out")
        if self.attacker is not None or self.per_step or self.purpose or self.draws_per_seed > 1:
            raise InputError(
                "luck= goes with certificates of whole episodes; leave attacker=, per_step= and draws_per_seed= out"
            )

    def _check_draws(self) -> None:
        """Reject several draws per seed of what is not certified so."""
        if self.n_episodes % self.draws_per_seed:
            raise InputError(
                f"n_episodes= must be a multiple of draws_per_seed=, got {self.n_episodes} and {self.draws_per_seed}"
            )
        if self.draws_per_seed > MOST_DRAWS:
            raise InputError(f"draws_per_seed= must be at most {MOST_DRAWS}, got {self.draws_per_seed}")
        # A later episode of an environment would begin where the noise of the one before has left its generator.
        if self.episodes_per_env not in (None, 1):
            raise InputError("draws_per_seed= goes with one episode per environment; leave episodes_per_env= out")
        if self.attacker is not None or self.per_step or self.purpose:
            raise InputError(
                "draws_per_seed= goes with certificates of whole episodes; leave attacker= and per_step= out"
            )

    def _check_channels(self) -> None:
        """Reject noise or attacks on actions that have no limits, and attacks on what has no noise where some has."""
        if not self.channels or self.channels not in CHANNELS.values():
            raise InputError(f"channels must be one of {', '.join(map(repr, CHANNELS.values()))}, got {self.channels}")
        if self.noise.action_sigma > 0:
            # In single precision and against its spacing, as for observations: actions are as large as their limits.
            largest = max(map(abs, chain(*limits_of_actions(self.task))))
            Noise(self.noise.action_sigma).over(())
            Noise(self.noise.action_sigma).check_observed(largest, "an action")
        if self.attacker is None:
            return
        if "actions" in self.channels:
            limits_of_actions(self.task)
        if self.scope.per_step and len(self.channels) > 1:
            raise InputError(
                "an attack with a budget for each step is on observations or on actions; choose one with channel=, or "
                "leave per_step out"
            )
        sigmas = {"observations": self.noise.sigma, "actions": self.noise.action_sigma}
        if any(sigmas.values()) and not all(sigmas[name] for name in self.channels):
            (bare,) = (name for name in self.channels if not sigmas[name])
            raise InputError(
                f"the attacker perturbs {bare}, which have no noise, and the others have; attack what has noise "
                "(channel=), or an agent without any"
            )

    @property
    def block_envs(self) -> int:
        """How many environments of a block run in parallel."""
        return self.n_envs or self._default_blocks[0]

    @property
    def block_size(self) -> int:
        """How many episodes a block has."""
        if self.draws_per_seed > 1:
            return self.block_envs * self.draws_per_seed
        if self.luck is not None:
            return self.block_envs
        return self.block_envs * (self.episodes_per_env or self._default_blocks[1])

    @property
    def _default_blocks(self) -> tuple[int, int]:
        recurrent = isinstance(self.policy.memory, Recurrent)
        return self.task.blocks.on(torch.device(self.device), recurrent=recurrent)

    def block_length(self, index: int) -> int:
        """Return how many episodes a block has; the last one may have fewer."""
        return min(self.block_size, self.n_episodes - index * self.block_size)

    @property
    def n_blocks(self) -> int:
        """How many blocks the run has."""
        return -(-self.n_episodes // self.block_size)

    @property
    def gpu_share(self) -> float:
        """What share of a GPU a block fills: all of one, half where it waits for emulators, none on a CPU."""
        if torch.device(self.device).type != "cuda":
            return 0.0
        if self.task.cartridge is None:
            return 1.0
        return 0.5

    def setup(self) -> dict[str, Any]:
        """Return all that a record of this plan must agree on, as ``Episodes.setup`` has it."""
        scoring = self.task.scoring
        return {"sigma": self.noise.sigma, "floor": scoring.floor, "ceiling": scoring.ceiling, **self.facts()}

    def facts(self) -> dict[str, Any]:
        """Return the setup as JSON data, as it is written into the record."""
        scoring = self.task.scoring
        facts = {
            "task": self.task.name,
            "environment": self.task.environment,
            **self.task.made_with,
            "n_stack": self.policy.spaces.n_stack,
            "max_steps": scoring.max_steps,
            "agent": self.policy.name,
            "agent_sha256": self.policy.sha256 or None,
            "seed": self.seed,
            "purpose": [int(part) for part in self.purpose],
            "n_planned": self.n_episodes,
            "n_envs": self.block_envs,
            "block_size": self.block_size,
            "device": self.device,
            **self._attack_facts(),
        }
        # What most plans do not have is left out, and the order stays: the seed follows from this text.
        if self.per_step and scoring.reward_range is not None:
            facts["reward_range"] = list(scoring.reward_range)
        facts |= self.noise.setup
        if not self.policy.stacks_frames:
            facts["memory"] = self.policy.memory.describe()
        if self.policy.stochastic:
            facts["stochastic"] = True
        if self.policy.pixel_max is not None:
            facts["pixel_max"] = self.policy.pixel_max
        if scoring.binary:
            facts["binary"] = True
        if scoring.gamma is not None:
            facts["gamma"] = scoring.gamma
        if self.draws_per_seed > 1:
            facts["draws_per_seed"] = self.draws_per_seed
        if self.luck is not None:
            facts["luck"] = self.luck
        if self.deployed_noise:
            facts["deployed_noise"] = True
        stated = self._stated_limits()
        if stated:
            facts["stated_by_user"] = stated
        if self.task.features:
            facts["features"] = [list(feature) for feature in self.task.features]
        if self.task.step_seconds is not None:
            facts["step_seconds"] = self.task.step_seconds
        return facts

    def _attack_facts(self) -> dict[str, Any]:
        if self.attacker is None:
            return {"attacker": None, "budget": None}
        facts: dict[str, Any] = {"attacker": self.attacker.describe(), "budget": self.budget}
        if self.scope.name is not None:
            facts["scope"] = self.scope.name
        if self.channels != CHANNELS["observations"]:
            facts["channels"] = list(self.channels)
        return facts

    def _stated_limits(self) -> list[str]:
        """Return which limits of the return, and of a reward where rewards are kept, the user stated."""
        scoring = self.task.scoring
        used = {"floor": True, "ceiling": scoring.ceiling is not None, "reward_range": self.per_step}
        return [name for name in LIMITS if used[name] and name in scoring.stated]

    def probe(self) -> Episodes:
        """Return a record of the lowest and the highest return, to try a query on before hours of simulation."""
        scoring = self.task.scoring
        returns = [scoring.floor]
        if scoring.ceiling is not None:
            returns.append(scoring.ceiling)
        repeated = np.repeat(returns, self.draws_per_seed)
        made_up = Episodes.from_returns(
            repeated,
            sigma=self.noise.features or self.noise.sigma,
            action_sigma=self.noise.action_sigma,
            floor=scoring.floor,
            ceiling=scoring.ceiling,
            task=self.task.name,
            binary=scoring.binary,
            reward_range=scoring.reward_range,
            max_steps=scoring.max_steps,
            gamma=scoring.gamma,
            draws_per_seed=self.draws_per_seed,
        )
        if self.luck is not None:
            made_up = replace(made_up, luck=np.zeros((len(made_up), 1)))
        if not self.per_step:
            return made_up
        lengths = np.full(len(returns), scoring.max_steps)
        return replace(made_up, lengths=lengths, reward_values=np.zeros(len(returns)), reward_repeats=lengths)


def limits_of_actions(task: Task) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the lowest and the highest value of each number of an action."""
    spaces = task.spaces
    if spaces.n_actions is not None:
        raise InputError(f"noise and attacks on actions need continuous ones, {task.name} has discrete ones")
    if spaces.low is None or spaces.high is None or not np.isfinite([*spaces.low, *spaces.high]).all():
        raise InputError(f"noise and attacks on actions need finite limits of them, {task.name} has none")
    return spaces.low, spaces.high


def attacked_channels(noise: Noise, channel: str | None) -> tuple[str, ...]:
    """Return what an attacker perturbs: what is named, by default what has noise, or observations where nothing has."""
    if channel is None:
        noisy = {"observations": noise.sigma > 0 or noise.action_sigma == 0, "actions": noise.action_sigma > 0}
        return tuple(name for name, has_noise in noisy.items() if has_noise)
    if channel not in CHANNELS:
        raise InputError(f"channel must be one of {', '.join(CHANNELS)}, got {channel!r}")
    return CHANNELS[channel]


def own_seed(*plans: Plan) -> int:
    """Return the seed that follows from agents and setups.

    An agent cannot contain the random numbers of its own certificate, because changing the agent changes the seed. 128
    bits: an author who tries G agents, each with answers for K seeds, hits one of them with probability G K / 2^128.
    """
    setups = []
    for plan in plans:
        setup = plan.setup()
        # It is what is looked for.
        del setup["seed"]
        if plan.policy.sha256:
            del setup["agent"]  # the same weights in a file of another name are the same agent
        setups.append(setup)
    return int(sha256(json.dumps(setups, sort_keys=True).encode())[:32], 16)


def seeded_plan(plan: Plan, seed: int | None) -> Plan:
    """Return the plan with this seed, or with its own where none is given."""
    if seed is None:
        seed = own_seed(plan)
    return replace(plan, seed=seed)


def gpus() -> list[str]:
    """Return the names of the GPUs that torch can use."""
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def agent_hash(policy: Policy) -> str:
    """Return a hash of the weights as they are in memory, and of the hash that the agent came with."""
    modules = {"network": policy.network, "critic": policy.critic, "memory": policy.memory}
    arrays = {}
    for name, module in modules.items():
        if isinstance(module, nn.Module):
            for key, value in module.state_dict().items():
                arrays[f"{name}.{key}"] = value.detach().cpu().numpy()
    return weights_hash(arrays, {"agent": policy.sha256})


def resolve_device(name: str, *, remote: bool = False) -> str:
    """Return "cpu" or "cuda", resolving "auto"; for ``remote`` workers that is the CPU, whatever is here."""
    if name not in {"auto", "cpu", "cuda"}:
        raise InputError(f"device must be auto, cpu or cuda, got {name!r}")
    if remote:
        # What this machine has says nothing about the others.
        return "cuda" if name == "cuda" else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("device cuda was asked for, but torch sees no CUDA device; use device='cpu'")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


def _check_step_rewards(task: Task) -> None:
    """Reject a task whose rewards cannot be certified step by step."""
    if task.scoring.gamma is not None:
        raise InputError("a budget per step goes with the plain return only; leave the discount out")
    if task.scoring.reward_range is None:
        raise InputError(f"a budget per step needs the limits of a step's reward; {task.name} has none")


def _check_fit(task: Task, policy: Policy) -> None:
    shape = task.spaces.shape
    counts = (policy.spaces.n_actions, task.spaces.n_actions)
    if policy.spaces.shape != shape:
        raise InputError(
            f"the agent {policy.name} expects observations of shape {policy.spaces.shape}, {task.name} gives {shape}"
        )
    if counts[0] != counts[1]:
        raise InputError(
            f"the agent {policy.name} has {_action_words(counts[0])}, {task.name} takes {_action_words(counts[1])}"
        )


def _action_words(n_actions: int | None) -> str:
    if n_actions is None:
        return "continuous actions"
    return f"{n_actions} discrete actions"
