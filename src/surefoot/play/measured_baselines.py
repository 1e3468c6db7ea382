"""Open-loop baselines of our own tasks, as ``surefoot baseline TASK`` measured them; reports read it without torch."""

from __future__ import annotations

from surefoot.episodes import Baseline


def _make_baseline(task: str, mean: float, sem: float, n_episodes: int, what: str) -> Baseline:
    return Baseline(mean=mean, sem=sem, n_episodes=n_episodes, what=what, command=f"surefoot baseline {task}")


_CARTPOLE = _make_baseline(
    "cartpole-5", 40.815, 0.043, 100_000, "action 1 for 2 steps, then 0 and 1 alternating every 4 steps"
)
BASELINES = {
    # A fixed sequence of actions sees nothing, so that the number of stacked frames does not matter.
    "cartpole-5": _CARTPOLE,
    "cartpole-1": _CARTPOLE,
    "mountain-car": _make_baseline("mountain-car", 1.0, 0.0, 100_000, "actions -1 and 1 alternating every 32 steps"),
    "pong-1r": _make_baseline(
        "pong-1r", 0.0665, 0.0056, 2_000, "action 2 for 3 steps, then 3 and 2 alternating every 6 steps"
    ),
    "pong-full": _make_baseline(
        "pong-full", -20.35, 0.091, 100, "action 2 for 6 steps, then 3 and 2 alternating every 12 steps"
    ),
    "freeway": _make_baseline("freeway", 1.52, 0.039, 500, "action 1 at every step"),
}
