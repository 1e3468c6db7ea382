"""What time in segments (T8) certifies under a budget for every step, next to T4 and T2.

    python bench/segments.py

For the example of docs/theory.md, and for agents of the leaderboard whose rewards follow from returns and lengths: on
CartPole every step pays 1, on Pong to one point and Mountain Car the last step pays all. The last column is certified,
by one segment or T4, at this budget alone and with 95%. The others are the values of the recorded episodes themselves,
without any confidence. Segments end at quantiles of the lengths; the best cuts are found by dynamic programming on the
same episodes, so that they are an upper limit of what a pilot could find.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from surefoot.episodes import Episodes
from surefoot.proof.bounds.gaussian_shift import shift_down
from surefoot.proof.query import certify_per_step

Floats = NDArray[np.float64]

RECORDS = Path(__file__).resolve().parents[1] / "records"
AGENTS = ("cartpole-5-ppo-s0.4", "pong-1r-student-s0.3", "mountain-car-ppo-s0.3", "mountain-car-ppo-s0.6")
BUDGETS = (0.02, 0.05, 0.1)  # of every step, in units of sigma
N_CUTS = 60


def won_in_segments(won_by: Floats, shifts: Floats, ends: list[int]) -> float:
    """Return the best sum over segments of sup g(P(won in the segment by t)), t in the segment."""
    best = {0: 0.0}
    for place, end in enumerate(ends[1:], start=1):
        found = []
        for begin in ends[:place]:
            chances = won_by[begin + 1 : end + 1] - won_by[begin]
            found.append(best[begin] + float(shift_down(chances, shifts[begin:end]).max()))
        best[end] = max(found)
    return best[ends[-1]]


def with_rewards(episodes: Episodes) -> Episodes:
    """Return the same episodes with the rewards of their steps."""
    assert episodes.lengths is not None
    facts = {"max_steps": episodes.metadata["max_steps"], "reward_range": [0.0, 1.0]}
    values = np.ones(len(episodes))
    repeats = episodes.lengths
    if "cartpole" not in str(episodes.metadata["task"]):
        # nothing up to the last step, and what that pays; an episode of one step has no run before
        values = np.stack([np.zeros(len(episodes)), episodes.returns], axis=1).ravel()
        repeats = np.stack([episodes.lengths - 1, np.ones(len(episodes), dtype=np.int64)], axis=1).ravel()
        values = values[repeats > 0]
        repeats = repeats[repeats > 0]
    return replace(episodes, reward_values=values, reward_repeats=repeats, metadata=facts)


def values_of(episodes: Episodes, per_step: float) -> list[float]:
    """Return T4, T2, T8 with one segment and T8 with the best segments, for a budget of every step in sigmas."""
    assert episodes.lengths is not None
    n_steps = int(episodes.metadata["max_steps"])
    shifts = per_step * np.sqrt(np.arange(1, n_steps + 1))
    if "cartpole" in str(episodes.metadata["task"]):
        alive = np.array([(episodes.lengths >= step).mean() for step in range(1, n_steps + 1)])
        # a sum of ones is reached at one step or never: all cuts give the same
        each = float(shift_down(alive, shifts).sum())
        return [each, float(shift_down(alive, shifts[-1:]).sum()), each, each]
    wins = np.bincount(episodes.lengths[episodes.returns == 1], minlength=n_steps + 1) / len(episodes)
    won_by = np.cumsum(wins)
    ends = np.unique([0, *np.quantile(episodes.lengths, np.linspace(0, 1, N_CUTS)).astype(int), n_steps]).tolist()
    by_steps = float(shift_down(wins[1:], shifts).sum())
    at_the_end = float(shift_down(won_by[-1:], shifts[-1:])[0])
    one_segment = float(shift_down(won_by[1:], shifts).max())
    return [by_steps, at_the_end, one_segment, won_in_segments(won_by, shifts, ends)]


def main() -> None:
    """Print a table."""
    early = shift_down(np.array([0.9]), np.array([1.0]))[0]
    late, both = shift_down(np.array([0.9999, 0.9 * 0.9999]), np.array([8.0**0.5] * 2))
    either = shift_down(np.array([1 - 0.1 * 0.0001]), np.array([8.0**0.5]))[0]
    print(f"example: T4 {early + late:.3f}, T8 {max(early, either) + both:.3f}, cut after step 1 {early + late:.3f}")
    print("| agent | e / sigma | T4 | T2 | T8, one segment | T8, best segments | certified |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for agent in AGENTS:
        episodes = Episodes.load(RECORDS / agent / "episodes.npz")
        for per_step in BUDGETS:
            certified = certify_per_step(with_rewards(episodes), [per_step * episodes.sigma]).lower[0]
            shown = " | ".join(f"{value:.3f}" for value in [*values_of(episodes, per_step), certified])
            print(f"| {agent} | {per_step} | {shown} |")


if __name__ == "__main__":
    main()
