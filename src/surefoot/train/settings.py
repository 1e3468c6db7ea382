"""Training settings as data (preset "paper" is its Tables 1 and 2), with what each number means."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from surefoot.errors import InputError


def setting(default: Any, text: str) -> Any:
    """Declare a field with its default and what it means."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class DqnSettings:
    """What SB3's DQN is told; every default is the five-frame Cartpole column of the paper's Table 1."""

    total_steps: int = setting(500_000, "steps played in all, unless a perfect validation ends training before")
    validation_interval: int = setting(2_000, "steps between validations")
    validation_episodes: int = setting(10, "episodes per validation")
    learning_rate: float = setting(1e-4, "Adam's step size")
    gamma: float = setting(0.99, "discount in training; certificates are about the undiscounted return")
    buffer_size: int = setting(100_000, "transitions the replay buffer holds")
    learning_starts: int = setting(1_000, "steps collected before learning")
    exploration_fraction: float = setting(0.16, "share of the steps over which exploration falls linearly")
    exploration_initial: float = setting(1.0, "exploration rate at the start")
    exploration_final: float = setting(0.0, "exploration rate at the end")
    target_interval: int = setting(10, "steps between updates of the target network")
    batch_size: int = setting(1_024, "transitions per gradient step")
    train_interval: int = setting(256, "steps between trainings")
    gradient_steps: int = setting(128, "gradient steps per training")
    hidden: tuple[int, ...] = setting((256, 256), "widths of the hidden layers")

    def facts(self) -> dict[str, Any]:
        """Return the settings as JSON data."""
        return {**asdict(self), "hidden": list(self.hidden)}


@dataclass(frozen=True)
class DdpgSettings:
    """What SB3's DDPG is told; every default is the paper's Table 2, with the five frames of its text."""

    total_steps: int = setting(300_000, "steps played in all; a perfect validation does not end training")
    validation_interval: int = setting(2_000, "steps between validations")
    validation_episodes: int = setting(10, "episodes per validation")
    learning_rate: float = setting(1e-4, "Adam's step size, for actor and critic")
    gamma: float = setting(0.99, "discount in training; certificates are about the undiscounted return")
    buffer_size: int = setting(1_000_000, "transitions the replay buffer holds")
    learning_starts: int = setting(100, "steps collected before learning")
    batch_size: int = setting(100, "transitions per gradient step")
    tau: float = setting(0.005, "how far the target networks follow at each gradient step")
    exploration_noise: float = setting(0.5, "sigma of the Ornstein-Uhlenbeck noise on the actions")
    hidden: tuple[int, ...] = setting((400, 300), "widths of the hidden layers of actor and critic")

    def facts(self) -> dict[str, Any]:
        """Return the settings as JSON data."""
        return {**asdict(self), "hidden": list(self.hidden)}


Settings = DqnSettings | DdpgSettings

# The Pong and Freeway columns of Table 1; full Pong validates on 10 episodes.
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
)

PRESETS: dict[str, dict[str, Settings]] = {
    "paper": {
        "cartpole-5": DqnSettings(),
        "cartpole-1": DqnSettings(learning_rate=5e-5),
        "mountain-car": DdpgSettings(),
        "pong-1r": ATARI,
        "pong-full": replace(ATARI, validation_episodes=10),
        "freeway": ATARI,
    },
    # Ten episodes say little about rare failures, and a perfect ten ends training early: look longer.
    "thorough": {
        "cartpole-5": DqnSettings(validation_episodes=200),
        "cartpole-1": DqnSettings(validation_episodes=200, learning_rate=5e-5),
        "mountain-car": DdpgSettings(validation_episodes=1_000),
    },
    # With noise the best Mountain Car policies come and go within the first episodes: look often, stop soon.
    "early": {
        "mountain-car": DdpgSettings(total_steps=40_000, validation_interval=1_000, validation_episodes=1_000),
    },
    # Or give up sooner still, and try more seeds.
    "brief": {
        "mountain-car": DdpgSettings(total_steps=6_000, validation_interval=1_000, validation_episodes=1_000),
    },
}


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


def find_settings(preset: str, task: str) -> Settings:
    """Return a preset's settings for a task."""
    if preset not in PRESETS:
        raise InputError(f"unknown preset {preset!r}; there are {', '.join(PRESETS)}")
    if task not in PRESETS[preset]:
        raise InputError(f"the preset {preset!r} has no settings for {task!r}, only for {', '.join(PRESETS[preset])}")
    return PRESETS[preset][task]
