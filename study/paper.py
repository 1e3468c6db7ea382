"""The paper's experiments as data: its figures and tables, the units of its tasks, the numbers that its text states."""

from __future__ import annotations

from dataclasses import dataclass

MAIN = ("cartpole-5", "pong-1r", "freeway", "mountain-car")
EVERY = ("cartpole-5", "cartpole-1", "pong-1r", "pong-full", "freeway", "mountain-car")
# What the main figures show; larger noise on CartPole is in the paper's appendix.
MOST_SIGMA = {"cartpole-5": 0.4, "cartpole-1": 0.4}


@dataclass(frozen=True)
class Target:
    """One figure or table.

    ``name``   what people type
    ``paper``  what it is in the paper; empty for what the paper does not have
    ``title``  what it shows
    ``tasks``  the tasks it is about, none for a drawing
    ``needs``  the raw numbers it is made of: episodes, attacks, times, training
    """

    name: str
    paper: str
    title: str
    tasks: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


PLAYED = ("episodes", "attacks")
TARGETS = (
    Target("toy", "Figure 1", "Noise on two observations, without and with an attacker that adapts"),
    Target("framework", "Figure 2", "The two systems: environment and agent, attacker and noise"),
    Target("environments", "Figure 3", "The environments, clean and as a smoothed agent observes them", EVERY),
    Target("certificates", "Figure 4", "Certified lower bounds of the mean return", MAIN, ("episodes",)),
    Target("attacks", "Figure 5", "Undefended and smoothed agents under attack", MAIN, PLAYED),
    Target("rotation", "Figure 6", "Only the size of a perturbation counts, not its direction"),
    Target("cartpole", "Figure 7", "CartPole: larger noise, and agents of one frame", EVERY[:2], PLAYED),
    Target("full-pong", "Figure 8", "One round of Pong and the whole game", EVERY[2:4], PLAYED),
    Target("clean-test", "Figure 9", "Mean return without attack against sigma", EVERY, ("episodes",)),
    Target("training", "Figure 10", "Validation return against training steps", EVERY, ("training",)),
    Target("attacks-bare", "Figure 11", "Attacks on undefended agents, every lambda", EVERY, PLAYED),
    Target("attacks-smoothed", "Figure 12", "Attacks on smoothed agents, every lambda and sigma", EVERY, PLAYED),
    Target("point-wise", "Figure 13", "CartPole: point-wise bounds, DKW, and ours", EVERY[:2], ("episodes",)),
    Target("training-settings", "Tables 1 and 2", "Training settings, the paper's and the pretrained agents'", EVERY),
    Target("attack-settings", "Tables 3 and 4", "Attack settings, the paper's and ours", EVERY, ("attacks",)),
    Target("training-times", "Table 5", "Training times", EVERY, ("training",)),
    Target("evaluation-times", "Table 6", "Time of one episode without attack", EVERY, ("episodes",)),
    Target("attack-times", "Table 7", "Time of one attacked episode", EVERY, ("times",)),
    Target("published", "", "Our five-frame CartPole agents next to published returns", EVERY[:1], ("episodes",)),
    Target("claims", "", "The paper's claims, and what we measured", EVERY, PLAYED),
)


@dataclass(frozen=True)
class Units:
    """How a task is named on paper, and what its returns and budgets are measured in."""

    title: str
    returns: str
    budget: str


_OWN = "B, l2 over an episode (m, m/s, rad, rad/s)"
_PIXELS = "B, l2 over an episode (pixels in [0, 1])"
UNITS = {
    "cartpole-5": Units("CartPole, five frames", "mean return (steps, of 200)", _OWN),
    "cartpole-1": Units("CartPole, one frame", "mean return (steps, of 200)", _OWN),
    "pong-1r": Units("Pong, one round", "probability of winning", _PIXELS),
    "pong-full": Units("Pong, whole game", "mean score (-21 to 21)", _PIXELS),
    "freeway": Units("Freeway, hard", "mean return (points, of 5)", _PIXELS),
    "mountain-car": Units(
        "Mountain Car", "probability of reaching the goal", "B, l2 over an episode (position, speed)"
    ),
}
LARGEST = {"mountain-car": 0.5}  # of the budgets drawn, where it is not the task's own

# What the paper's text states; its figures are pictures and are not read off.
# Rows of Tables 1 and 2 that task and algorithm fix here; the five frames of Mountain Car are in its text.
FRAMES = {"cartpole-5": 5, "cartpole-1": 1, "pong-1r": 4, "pong-full": 4, "freeway": 4, "mountain-car": 5}
REPEATS = {"cartpole-5": "1", "cartpole-1": "1", "pong-1r": "1", "pong-full": "1", "freeway": "5"}
EPISODIC = {"train frequency": "1 per episode", "gradient steps": "= episode length"}
PAPER_DEVICE = "one NVIDIA 2080 Ti"
TRAINING_HOURS = {
    "pong-1r": 11.1,
    "pong-full": 12.0,
    "cartpole-5": 0.27,
    "cartpole-1": 0.32,
    "freeway": 14.2,
    "mountain-car": 0.63,
}
# Seconds per episode at the smallest and at the largest sigma.
EVALUATION_SECONDS = {
    "pong-1r": (0.46, 0.38),
    "pong-full": (3.82, 4.65),
    "cartpole-5": (0.20, 0.13),
    "cartpole-1": (0.18, 0.12),
    "freeway": (1.36, 1.35),
    "mountain-car": (0.67, 0.91),
}
# Seconds per attacked episode at the smallest and at the largest budget.
ATTACK_SECONDS = {
    "pong-1r": (1.01, 0.68),
    "pong-full": (8.84, 10.2),
    "cartpole-5": (0.35, 0.32),
    "cartpole-1": (0.79, 0.56),
    "freeway": (2.67, 2.80),
    "mountain-car": (44.0, 19.6),
}
ATTACK_STEP = 0.01
ATTACK_STEPS = {"mountain-car": "100 steps"}
ATTACK_STEPS_DQN = "2 B / 0.01 steps"
ROUNDS = 21  # goals that end a game of Pong


def find_target(name: str) -> Target | None:
    """Return a figure or table by its name."""
    return next((target for target in TARGETS if target.name == name), None)
