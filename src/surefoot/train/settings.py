"""Training settings as data (preset "paper" is its Tables 1 and 2), with what each number means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from surefoot.errors import InputError, did_you_mean
from surefoot.play.task import Task


def setting(default: Any, text: str, *, added: bool = False) -> Any:
    """Declare a field with its default and what it means; one that was ``added`` is listed only where it differs."""
    return field(default=default, metadata={"help": text, "added": added})


class Facts:
    """Settings that can be listed; model cards of earlier versions lack the added fields."""

    def facts(self) -> dict[str, Any]:
        """Return the settings as JSON data."""
        listed = asdict(self)  # type: ignore[call-overload]
        for one in fields(self):  # type: ignore[arg-type]
            if one.metadata["added"] and listed[one.name] == one.default:
                del listed[one.name]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in listed.items()}


@dataclass(frozen=True)
class DqnSettings(Facts):
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
    stop_when_perfect: bool = setting(True, "whether the first perfect validation stops training", added=True)
    repeats: int = setting(1, "training seeds, of which the best on validation is kept", added=True)


@dataclass(frozen=True)
class DdpgSettings(Facts):
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
    stop_when_perfect: bool = setting(False, "whether the first perfect validation stops training", added=True)
    repeats: int = setting(1, "training seeds, of which the best on validation is kept", added=True)


WIDEST_GRU = 128


@dataclass(frozen=True)
class PpoSettings(Facts):
    """Settings of our PPO; the defaults train CartPole in a minute on two cores."""

    total_steps: int = setting(2_000_000, "environment steps in total, over which the learning rate falls to 0")
    validation_interval: int = setting(500_000, "steps between validations")
    validation_episodes: int = setting(16_384, "episodes per validation")
    memory: str = setting("", "frames=K: the last K observations; gru; empty: as many frames as the task has")
    width: int = setting(64, "width of the actor's layers")
    critic_width: int = setting(64, "width of the critic's layers")
    n_envs: int = setting(256, "episodes per iteration")
    epochs: int = setting(3, "how often every episode is learned from")
    minibatches: int = setting(4, "gradient steps per epoch")
    learning_rate: float = setting(2e-3, "learning rate of Adam at the start")
    trace: float = setting(0.97, "lambda of the generalized advantages; nothing is discounted")
    entropy: float = setting(0.05, "weight of the entropy bonus")
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
        count = self.memory.removeprefix("frames=") if self.memory else str(task.spaces.n_stack)
        if not count.isdecimal() or int(count) < 1:
            raise InputError(f"memory must be gru or frames=K with a whole number K, got {self.memory!r}")
        return int(count)


Settings = DqnSettings | DdpgSettings

# The Pong and Freeway columns of Table 1; full Pong validates on 10 episodes, and Freeway keeps the best of five runs.
# The paper's training logs continue after a perfect validation.
ATARI = DqnSettings(
    total_steps=10_000_000,
    validation_interval=100_000,
    validation_episodes=100,
    buffer_size=10_000,
    learning_starts=100_000,
    exploration_fraction=0.1,
    exploration_final=0.01,
    target_interval=1_000,
    batch_size=32,
    train_interval=4,
    gradient_steps=1,
    hidden=(),
    stop_when_perfect=False,
)

PRESETS: dict[str, dict[str, Settings]] = {
    "paper": {
        "cartpole-5": DqnSettings(),
        "cartpole-1": DqnSettings(learning_rate=5e-5),
        "mountain-car": DdpgSettings(),
        "pong-1r": ATARI,
        "pong-full": replace(ATARI, validation_episodes=10),
        "freeway": replace(ATARI, repeats=5),
    },
    # Ten episodes say little about rare failures, and a perfect ten stops training early: validate on more.
    "thorough": {
        "cartpole-5": DqnSettings(validation_episodes=200),
        "cartpole-1": DqnSettings(validation_episodes=200, learning_rate=5e-5),
        "mountain-car": DdpgSettings(validation_episodes=1_000),
    },
    # With noise the best Mountain Car policies come and go within the first episodes: validate often, stop soon.
    "early": {
        "mountain-car": DdpgSettings(total_steps=40_000, validation_interval=1_000, validation_episodes=1_000),
    },
    # Or stop sooner still, and try more seeds.
    "brief": {
        "mountain-car": DdpgSettings(total_steps=6_000, validation_interval=1_000, validation_episodes=1_000),
    },
}


# What two cores train in minutes, and one GPU.
SMALL = PpoSettings()
LARGE = PpoSettings(
    total_steps=400_000_000,
    validation_interval=16_000_000,
    validation_episodes=65_536,
    width=256,
    critic_width=256,
    n_envs=2_048,
    learning_rate=7e-4,
)
LONGER: dict[str, Any] = {"total_steps": 8_000_000, "validation_interval": 1_000_000}
# Episodes are longer; and the entropy bonus draws actions away from their bounds, which is where the goal is reached.
MOUNTAIN_CAR: dict[str, Any] = {"minibatches": 16, "entropy": 0.003}

PPO_PRESETS: dict[str, dict[str, PpoSettings]] = {
    "ppo": {
        "cartpole-5": SMALL,
        "cartpole-1": replace(SMALL, n_envs=1_024, **LONGER),  # one frame fails more often: there is more to learn
        "mountain-car": replace(SMALL, learning_rate=3e-3, **LONGER, **MOUNTAIN_CAR),
    },
    "ppo-large": {
        "cartpole-5": LARGE,
        "cartpole-1": LARGE,
        "mountain-car": replace(
            LARGE, n_envs=1_024, width=128, learning_rate=2e-3, validation_interval=4_000_000, **MOUNTAIN_CAR
        ),
    },
}

Some = TypeVar("Some")
Kind = TypeVar("Kind", bound=Facts)
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def changed(settings: Kind, pairs: Sequence[str]) -> Kind:
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
            read[name] = _like(known[name], text)
        except (KeyError, ValueError) as error:
            raise InputError(f"the setting {name} is {known[name]!r} by default, got {text!r}") from error
    return replace(settings, **read)  # type: ignore[type-var]


def _like(default: Any, text: str) -> Any:
    """Read a value of the kind of the default."""
    if isinstance(default, bool):
        return TRUTH[text.lower()]
    if isinstance(default, tuple):
        return tuple(int(one) for one in text.split(","))
    if not isinstance(default, int):
        return type(default)(text)
    whole = float(text)  # 2e6 too
    if whole != int(whole):
        raise ValueError(text)
    return int(whole)


def find_settings(preset: str, task: str) -> Settings:
    """Return a preset's settings for a task."""
    return _find(PRESETS, preset, task)


def find_ppo(preset: str, task: str) -> PpoSettings:
    """Return the settings of a preset of PPO for a task."""
    return _find(PPO_PRESETS, preset, task)


def _find(presets: Mapping[str, Mapping[str, Some]], preset: str, task: str) -> Some:
    if preset not in presets:
        known = (*PPO_PRESETS, *PRESETS)
        raise InputError(f"unknown preset {preset!r}; there are {', '.join(known)}{did_you_mean(preset, known)}")
    return settings_for(presets[preset], preset, task)


def settings_for(tasks: Mapping[str, Some], preset: str, task: str) -> Some:
    """Return the settings for one of the tasks that a preset has settings for."""
    if task not in tasks:
        raise InputError(f"the preset {preset!r} has no settings for {task!r}, only for {', '.join(tasks)}")
    return tasks[task]
