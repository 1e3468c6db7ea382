"""Settings of the presets ``fast``, ``student`` and ``fine-tune``, which train Atari agents in minutes on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from surefoot.train.settings import Facts, setting, settings_for


@dataclass(frozen=True)
class FastSettings(Facts):
    """Settings of the preset ``fast``; the defaults are for one round of Pong."""

    total_steps: int = setting(4_000_000, "agent steps in total, over which learning rate and exploration fall")
    slots: int = setting(128, "emulators in parallel")
    buffer_size: int = setting(1_000_000, "frames the replay buffer holds")
    learning_starts: int = setting(
        50_000, "steps collected before learning; again after a resume, whose buffer is empty"
    )
    updates: int = setting(6, "gradient steps per step of all emulators")
    batch_size: int = setting(256, "transitions per gradient step")
    n_steps: int = setting(3, "steps until a successor's value is used")
    gamma: float = setting(0.99, "discount in training; certificates are about the undiscounted return")
    learning_rate: float = setting(2e-4, "learning rate of Adam at the start; it falls linearly to a tenth")
    target_interval: int = setting(500, "gradient steps between updates of the target network")
    averaging: float = setting(0.999, "weight of the past in the running average of the weights, per gradient step")
    exploration_steps: int = setting(300_000, "steps over which exploration falls linearly")
    exploration_initial: float = setting(1.0, "how often an exploring stretch begins, at the start")
    exploration_final: float = setting(0.003, "how often an exploring stretch begins, at the end")
    exploration_longest: int = setting(64, "most steps of an exploring stretch; lengths follow 1 / length^2")
    loss_weight: float = setting(1.0, "weight of an opponent's goal in training; 0 trains on the task's own return")
    goal_ends: bool = setting(True, "whether no value is carried over a goal, although whole games are run")
    beside: str = setting("", "another task of the same game that every second emulator runs; empty: none")
    capture: bool = setting(True, "whether the gradient steps are captured as one CUDA graph, where there is a GPU")
    validation_interval: int = setting(500_000, "steps between validations")
    validation_episodes: int = setting(200, "episodes per validation")


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
    return settings_for(FAST, "fast", task)


@dataclass(frozen=True)
class StudentSettings(Facts):
    """Settings of the preset ``student``; the defaults are for one round of Pong."""

    total_steps: int = setting(6_000_000, "agent steps in total, over which the learning rate falls")
    slots: int = setting(256, "emulators in parallel")
    n_stack: int = setting(12, "noisy frames the student sees")
    widths: tuple[int, int, int, int] = setting((64, 128, 128, 512), "channels of the convolutions, hidden units")
    buffer_size: int = setting(1_000_000, "frames the replay buffer holds")
    learning_starts: int = setting(12_288, "steps collected before learning; again after a resume")
    updates: int = setting(2, "gradient steps at a time")
    rounds: int = setting(4, "times that many per step of all emulators; on a GPU more, until the emulators are done")
    batch_size: int = setting(512, "stacks per gradient step")
    learning_rate: float = setting(3e-4, "learning rate of Adam at the start; it falls linearly to a twentieth")
    averaging: float = setting(0.9995, "weight of the past in the running average of the weights, per gradient step")
    regret: float = setting(10.0, "weight of the policy's expected regret under the teacher's values")
    entropy: float = setting(0.05, "weight of the entropy bonus at the start; it falls with the learning rate")
    demonstrations: float = setting(0.1, "fraction of a training from scratch in which the teacher acts now and then")
    capture: bool = setting(True, "whether the gradient steps are captured as one CUDA graph, where there is a GPU")
    validation_interval: int = setting(1_000_000, "steps between validations")
    validation_episodes: int = setting(512, "episodes per validation; 0: none, the last agent is kept")


STUDENT: dict[str, StudentSettings] = {
    "pong-1r": StudentSettings(),
    "pong-full": StudentSettings(validation_episodes=32),
    "freeway": StudentSettings(total_steps=4_000_000),
}


def find_student(task: str) -> StudentSettings:
    """Return a student's settings for a task."""
    return settings_for(STUDENT, "student", task)


@dataclass(frozen=True)
class FineTuneSettings(Facts):
    """Settings of the preset ``fine-tune``; the defaults are for one round of Pong."""

    total_steps: int = setting(4_000_000, "agent steps in total, over which the learning rate falls")
    slots: int = setting(256, "emulators in parallel")
    horizon: int = setting(64, "steps of every emulator between updates")
    updates: int = setting(32, "gradient steps after every rollout")
    batch_size: int = setting(2_048, "steps per gradient step, drawn from the rollout")
    learning_rate: float = setting(1.5e-4, "learning rate of Adam at the start; it falls linearly to a twentieth")
    averaging: float = setting(0.99, "weight of the past in the running average of the weights, per gradient step")
    gamma: float = setting(0.997, "discount in training; the critic begins with the teacher's values, so take its own")
    trace: float = setting(0.95, "lambda of the advantages (GAE)")
    clip: float = setting(0.1, "by how much an action's probability may change before its advantage counts no more")
    entropy: float = setting(0.01, "weight of the entropy bonus")
    capture: bool = setting(True, "whether the gradient steps are captured as one CUDA graph, where there is a GPU")
    validation_interval: int = setting(500_000, "steps between validations")
    validation_episodes: int = setting(1_024, "episodes per validation")


FINE_TUNE: dict[str, FineTuneSettings] = {
    "pong-1r": FineTuneSettings(),
    "pong-full": FineTuneSettings(validation_episodes=32),
    "freeway": FineTuneSettings(gamma=0.99, validation_episodes=512),
}


def find_fine_tune(task: str) -> FineTuneSettings:
    """Return the settings of fine-tuning for a task."""
    return settings_for(FINE_TUNE, "fine-tune", task)


AtariSettings = FastSettings | StudentSettings | FineTuneSettings
