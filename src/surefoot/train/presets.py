"""The table of presets: which trainer, with which settings for which task, and which options it takes.

``prepare_settings`` looks a preset up and applies the options; ``train_agent`` trains with what it returned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any, TypeVar

from surefoot.agents.policies import Policy
from surefoot.errors import InputError, did_you_mean
from surefoot.play.task import Task
from surefoot.train.folder import TrainingRun
from surefoot.train.settings import (
    DdpgSettings,
    DqnSettings,
    OffPolicySettings,
    PpoSettings,
    TrainingSettings,
    settings_of_env,
    with_changes,
)

SettingsType = TypeVar("SettingsType", bound=TrainingSettings)

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

PAPER: dict[str, OffPolicySettings] = {
    "cartpole-5": DqnSettings(),
    "cartpole-1": DqnSettings(learning_rate=5e-5),
    "mountain-car": DdpgSettings(),
    "pong-1r": ATARI,
    "pong-full": replace(ATARI, validation_episodes=10),
    "freeway": replace(ATARI, repeats=5),
}

# Ten episodes say little about rare failures, and a perfect ten stops training early: validate on more.
THOROUGH: dict[str, OffPolicySettings] = {
    "cartpole-5": DqnSettings(validation_episodes=200),
    "cartpole-1": DqnSettings(validation_episodes=200, learning_rate=5e-5),
    "mountain-car": DdpgSettings(validation_episodes=1_000),
}

# With noise the best Mountain Car policies come and go within the first episodes: validate often, stop soon.
EARLY = DdpgSettings(total_steps=40_000, validation_interval=1_000, validation_episodes=1_000)
# Or stop sooner still, and try more seeds.
BRIEF = DdpgSettings(total_steps=6_000, validation_interval=1_000, validation_episodes=1_000)

# What two cores train in minutes.
PPO_SMALL = PpoSettings()
LONGER: dict[str, Any] = {"total_steps": 8_000_000, "validations": 8}
# Episodes are longer; and the entropy bonus draws actions away from their bounds, which is where the goal is reached.
MOUNTAIN_CAR_PPO: dict[str, Any] = {"minibatches": 16, "entropy": 0.003}

PPO: dict[str, PpoSettings] = {
    "cartpole-5": PPO_SMALL,
    "cartpole-1": replace(PPO_SMALL, n_envs=1_024, **LONGER),  # one frame fails more often: there is more to learn
    "mountain-car": replace(PPO_SMALL, learning_rate=3e-3, **LONGER, **MOUNTAIN_CAR_PPO),
}

# What one GPU trains in minutes.
PPO_ON_GPU = PpoSettings(
    total_steps=400_000_000,
    validations=25,
    validation_episodes=65_536,
    width=256,
    critic_width=256,
    n_envs=2_048,
    learning_rate=7e-4,
)

PPO_LARGE: dict[str, PpoSettings] = {
    "cartpole-5": PPO_ON_GPU,
    "cartpole-1": PPO_ON_GPU,
    "mountain-car": replace(
        PPO_ON_GPU, n_envs=1_024, width=128, learning_rate=2e-3, validations=100, **MOUNTAIN_CAR_PPO
    ),
}


# What trains one agent, writes it with its model card into the folder of the run, and returns it.
Trainer = Callable[[TrainingRun, Any], Policy]


@dataclass(frozen=True)
class Preset:
    """One row of the table.

    Attributes:
        trainer: Where the ``Trainer`` is, ``module:function``. It is imported when it is used: PPO needs no
            Stable-Baselines3.
        settings_by_task: The settings of each task by name.
        takes: Which of the options ``memory``, ``time``, ``for_budget``, ``init_from`` and ``repeats`` mean
            something to it.
        settings_of: Makes the settings of any other task, where it can; with or without a teacher.
    """

    trainer: str
    settings_by_task: Mapping[str, TrainingSettings]
    takes: frozenset[str]
    settings_of: Callable[[Task, bool], TrainingSettings] | None = None


OFF_POLICY = "surefoot.train.off_policy:train_off_policy"
OFF_POLICY_TAKES = frozenset({"repeats"})
PPO_TAKES = frozenset({"memory", "time", "for_budget", "init_from"})

PRESETS: dict[str, Preset] = {
    "ppo": Preset("surefoot.train.ppo:train_ppo", PPO, PPO_TAKES, settings_of_env),
    "ppo-large": Preset("surefoot.train.ppo:train_ppo", PPO_LARGE, PPO_TAKES),
    "paper": Preset(OFF_POLICY, PAPER, OFF_POLICY_TAKES),
    "thorough": Preset(OFF_POLICY, THOROUGH, OFF_POLICY_TAKES),
    "early": Preset(OFF_POLICY, {"mountain-car": EARLY}, OFF_POLICY_TAKES),
    "brief": Preset(OFF_POLICY, {"mountain-car": BRIEF}, OFF_POLICY_TAKES),
}


def find_preset(name: str) -> Preset:
    """Return the preset of this name.

    Raises:
        InputError: If there is none.
    """
    if name not in PRESETS:
        raise InputError(f"unknown preset {name!r}; there are {', '.join(PRESETS)}{did_you_mean(name, PRESETS)}")
    return PRESETS[name]


def find_settings(preset: str, task: str) -> TrainingSettings:
    """Return a preset's settings for a task.

    Raises:
        InputError: If there is no such preset, or it has no settings for the task.
    """
    return settings_for(find_preset(preset).settings_by_task, preset, task)


def settings_for(settings_by_task: Mapping[str, SettingsType], preset: str, task: str) -> SettingsType:
    """Return the settings for one of the tasks that a preset has settings for.

    Raises:
        InputError: If it has none for this task.
    """
    if task not in settings_by_task:
        known = ", ".join(settings_by_task)
        raise InputError(f"the preset {preset!r} has no settings for {task!r}, only for {known}")
    return settings_by_task[task]


def default_preset(task: Task) -> str:
    """Return the preset that trains a task unless another is asked for."""
    if task.name in PAPER and task.name not in PPO:
        return "paper"
    return "ppo"


def prepare_settings(
    preset: str,
    task: Task,
    *,
    memory: str | None = None,
    repeats: int | None = None,
    time: float | None = None,
    for_budget: float | None = None,
    init_from: str | None = None,
    changes: Sequence[str] = (),
) -> TrainingSettings:
    """Return a preset's settings for a task, changed as the options say.

    Args:
        preset: Name of the preset.
        task: What will be trained on.
        memory: ``gru``, or ``frames=K`` for the last K observations; None: as the preset has it.
        repeats: Number of training seeds, of which the best on validation is kept; None: as the preset has it.
        time: Minutes of training, for the ``TrainingRun``; here only whether the preset takes it is checked.
        for_budget: Attack budget that chooses the weights, likewise.
        init_from: Agent to start from, likewise.
        changes: Other settings as ``NAME=VALUE``.

    Raises:
        InputError: If the preset is unknown, has no settings for the task, or does not take an option.
    """
    found = find_preset(preset)
    options: dict[str, Any] = {
        "memory": memory,
        "repeats": repeats,
        "time": time,
        "for_budget": for_budget,
        "init_from": init_from,
    }
    for name, value in options.items():
        if value is not None and name not in found.takes:
            taken = ", ".join(f"{one}=" for one in options if one in found.takes)
            raise InputError(f"{name}= cannot be combined with the preset {preset}, which takes {taken}")
    if task.name in found.settings_by_task or found.settings_of is None:
        settings = find_settings(preset, task.name)
    else:
        settings = found.settings_of(task, init_from is not None)
    if isinstance(settings, PpoSettings) and memory is not None:
        settings = settings.with_memory(memory)
    if isinstance(settings, DqnSettings | DdpgSettings) and repeats is not None:
        settings = replace(settings, repeats=repeats)
    return with_changes(settings, changes)


def train_agent(run: TrainingRun, settings: TrainingSettings) -> Policy:
    """Train with the trainer of ``run.preset``; write the agent, its model card and its curve to ``run.out``.

    ``settings`` are what ``prepare_settings`` returned. Returns the agent that was best on validation.

    Raises:
        InputError: If a setting is out of range, or the folder cannot be used.
    """
    trainer: Trainer = resolve_name(find_preset(run.preset).trainer)
    return trainer(run, settings)
