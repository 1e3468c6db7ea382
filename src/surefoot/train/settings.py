"""Settings of the trainers, one class each, with what every number means; ``with_changes`` reads ``NAME=VALUE``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from surefoot.errors import InputError, did_you_mean
from surefoot.play.task import Task


def setting(default: Any, text: str) -> Any:
    """Declare a field with its default and what it means."""
    return field(default=default, metadata={"help": text})


class TrainingSettings:
    """What all settings have in common: they can be listed."""

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as JSON data."""
        listed = asdict(self)  # type: ignore[call-overload]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in listed.items()}


@dataclass(frozen=True)
class DqnSettings(TrainingSettings):
    """Settings of SB3's DQN; every default is the five-frame CartPole column of the paper's Table 1."""

    total_steps: int = setting(
        500_000, "environment steps in total, unless a perfect validation stops training earlier"
    )
    validation_interval: int = setting(2_000, "steps between validations")
    validation_episodes: int = setting(10, "episodes per validation")
    learning_rate: float = setting(1e-4, "learning rate of Adam")
    gamma: float = setting(0.99, "discount in training; certificates are about the undiscounted return")
    buffer_size: int = setting(100_000, "transitions the replay buffer holds")
    learning_starts: int = setting(1_000, "steps collected before learning")
    exploration_fraction: float = setting(0.16, "fraction of the steps over which exploration falls linearly")
    exploration_initial: float = setting(1.0, "exploration rate at the start")
    exploration_final: float = setting(0.0, "exploration rate at the end")
    target_interval: int = setting(10, "steps between updates of the target network")
    batch_size: int = setting(1_024, "transitions per gradient step")
    train_interval: int = setting(256, "steps between training phases")
    gradient_steps: int = setting(128, "gradient steps per training phase")
    hidden: tuple[int, ...] = setting((256, 256), "widths of the hidden layers")
    stop_when_perfect: bool = setting(True, "whether the first perfect validation stops training")
    repeats: int = setting(1, "training seeds, of which the best on validation is kept")


@dataclass(frozen=True)
class DdpgSettings(TrainingSettings):
    """Settings of SB3's DDPG; every default is the paper's Table 2, with the five frames of its text."""

    total_steps: int = setting(300_000, "environment steps in total")
    validation_interval: int = setting(2_000, "steps between validations")
    validation_episodes: int = setting(10, "episodes per validation")
    learning_rate: float = setting(1e-4, "learning rate of Adam, for actor and critic")
    gamma: float = setting(0.99, "discount in training; certificates are about the undiscounted return")
    buffer_size: int = setting(1_000_000, "transitions the replay buffer holds")
    learning_starts: int = setting(100, "steps collected before learning")
    batch_size: int = setting(100, "transitions per gradient step")
    tau: float = setting(0.005, "how far the target networks follow at each gradient step")
    exploration_noise: float = setting(0.5, "sigma of the Ornstein-Uhlenbeck noise on the actions")
    hidden: tuple[int, ...] = setting((400, 300), "widths of the hidden layers of actor and critic")
    stop_when_perfect: bool = setting(False, "whether the first perfect validation stops training")
    repeats: int = setting(1, "training seeds, of which the best on validation is kept")


WIDEST_GRU = 128


@dataclass(frozen=True)
class PpoSettings(TrainingSettings):
    """Settings of our PPO; the defaults train CartPole in a minute on two cores."""

    total_steps: int = setting(2_000_000, "environment steps in total, over which the learning rate falls to 0")
    validations: int = setting(4, "validations, at equal distances")
    validation_episodes: int = setting(16_384, "episodes per validation, at most")
    patience: int = setting(0, "validations without a new best after which training ends; 0: it never ends early")
    memory: str = setting("", "frames=K: the last K observations; gru; empty: as many frames as the task has")
    width: int = setting(64, "width of the actor's layers")
    critic_width: int = setting(64, "width of the critic's layers")
    n_envs: int = setting(256, "environments that run in parallel")
    n_steps: int = setting(0, "steps of each of them per iteration; 0: one whole episode")
    sequence: int = setting(32, "steps that a GRU learns from in one piece, where an iteration is no whole episode")
    epochs: int = setting(3, "how often every step is learned from")
    minibatches: int = setting(4, "gradient steps per epoch")
    learning_rate: float = setting(2e-3, "learning rate of Adam at the start")
    gamma: float = setting(1.0, "first discount in training; certificates are about the undiscounted return")
    last_gamma: float = setting(0.0, "last discount, to which the horizon 1 / (1 - gamma) grows; 0: as the first")
    growth: float = setting(0.5, "fraction of the training over which the horizon grows")
    trace: float = setting(0.97, "lambda of the generalized advantages")
    entropy: float = setting(0.05, "weight of the entropy bonus")
    log_std: float = setting(1.0, "logarithm of the first deviation of continuous actions, before tanh")
    hold: float = setting(
        0.9, "probability of repeating the action before, where all episodes of a random agent have the same return"
    )
    hold_until: float = setting(0.3, "fraction of the training, from the first other return, over which it falls to 0")
    curriculum: float = setting(0.0, "fraction of the training over which the noise grows to sigma")
    imitation: float = setting(0.4, "fraction of the training in which a teacher, if there is one, is imitated")
    settle: float = setting(
        0.3, "below this fraction of their largest spread so far, advantages shrink the learning rate; 0: never"
    )
    auxiliary: float = setting(1.0, "weight of the error of the actor's guess of the clean observation")
    clean_critic: bool = setting(True, "whether the critic sees the clean observation, else the noisy one")
    averaging: float = setting(0.95, "weight of the past in the running average of the weights, per iteration")

    @property
    def label(self) -> str:
        """What these settings add to an agent's name."""
        return self.memory.replace("=", "") or "ppo"

    def with_memory(self, memory: str) -> PpoSettings:
        """Return the settings for an agent with this memory; a GRU is at most 128 wide, more only takes longer."""
        width = min(self.width, WIDEST_GRU) if memory == "gru" else self.width
        return replace(self, memory=memory, width=width)

    def n_stack(self, task: Task) -> int | None:
        """Return how many observations the agent stacks, or None for a GRU."""
        if self.memory == "gru":
            return None
        if not self.memory:
            return task.spaces.n_stack
        count = self.memory.removeprefix("frames=")
        if not self.memory.startswith("frames=") or not count.isdecimal() or int(count) < 1:
            raise InputError(f"memory must be gru or frames=K with a whole number K, got {self.memory!r}")
        return int(count)


# For environments that step one by one.
ANY_ENV = PpoSettings(
    total_steps=3_000_000,
    validations=10,
    validation_episodes=2_000,
    patience=6,
    memory="gru",
    critic_width=128,
    n_envs=32,
    n_steps=128,
    sequence=16,
    epochs=8,
    minibatches=8,
    learning_rate=7e-4,
    gamma=0.99,
    trace=0.95,
    entropy=0.01,
    log_std=-0.7,
)


MINUTES_OF_ENV = 10.0  # unless steps or another time are asked for


def settings_of_env(task: Task, taught: bool = False) -> PpoSettings:
    """Return the settings for an environment by length and actions; ``taught``: whether there is a teacher."""
    # A short horizon learns sooner, and one of whole episodes learns what is certified: some gaits of Swimmer pay only
    # in the long run.
    last_gamma = max(ANY_ENV.gamma, 1 - 0.5 / task.scoring.max_steps)
    settings = replace(ANY_ENV, last_gamma=last_gamma)
    if task.spaces.n_actions is not None:
        return settings
    # Continuous control takes more gradient steps. An entropy bonus would widen its actions without end. From scratch a
    # GRU learns to move more slowly than it learns to filter; a teacher knows how to move.
    memory = "gru" if taught else "frames=1"
    return replace(settings, memory=memory, minibatches=16, learning_rate=5e-4, entropy=0.0)


OffPolicySettings = DqnSettings | DdpgSettings
AnySettings = TypeVar("AnySettings", bound=TrainingSettings)
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def with_changes(settings: AnySettings, pairs: Sequence[str]) -> AnySettings:
    """Return the settings with ``NAME=VALUE`` pairs applied.

    Raises:
        InputError: If there is no such setting, or its value is of another kind.
    """
    known = {one.name: getattr(settings, one.name) for one in fields(settings)}  # type: ignore[arg-type]
    read = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name not in known:
            raise InputError(
                f"a setting is given as NAME=VALUE, got {pair!r}; there are {', '.join(known)}"
                f"{did_you_mean(name, known)}"
            )
        try:
            read[name] = _parse_like(known[name], text)
        except (KeyError, ValueError) as error:
            raise InputError(f"the setting {name} is {known[name]!r} by default, got {text!r}") from error
    return replace(settings, **read)  # type: ignore[type-var]


def _parse_like(default: Any, text: str) -> Any:
    """Read a value of the kind of the default."""
    if isinstance(default, bool):
        return TRUTH[text.lower()]
    if isinstance(default, tuple):
        return tuple(int(one) for one in text.split(","))
    if not isinstance(default, int):
        return type(default)(text)
    # By way of a float, so that 2e6 is a whole number too.
    whole = float(text)
    if whole != int(whole):
        raise ValueError(text)
    return int(whole)
