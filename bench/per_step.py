"""What one bet on all steps of an episode certifies under a budget per step (T4), on the paper's published returns.

    python bench/per_step.py

In CartPole the return is the length, so the rewards of each step follow from the returns. For each sigma and budget:
the plug-in (T4 for the sample itself), the bound at that budget alone, and the bound where five budgets are certified
at once; 95%, 10,000 episodes, mean over three orders of the episodes.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from surefoot.episodes import Episodes
from surefoot.proof.bounds.step_scores import RewardRuns
from surefoot.proof.planning.proposals import plug_in_means
from surefoot.proof.query import certify_per_step

PUBLISHED = Path(__file__).resolve().parents[1] / "study" / "data" / "published" / "cartpole-5.json"
N_STEPS = 200
FIVE = (0.05, 0.1, 0.15, 0.2, 0.25)  # budgets in units of sigma


def record(lengths: np.ndarray, sigma: float) -> Episodes:
    """Return the episodes with a reward of 1 at each step."""
    made = Episodes.from_returns(
        lengths.astype(float),
        sigma=sigma,
        floor=0,
        ceiling=N_STEPS,
        lengths=lengths,
        reward_range=[0.0, 1.0],
        max_steps=N_STEPS,
    )
    return replace(made, reward_values=np.ones(lengths.size), reward_repeats=made.lengths)


def main() -> None:
    """Print a row for each sigma and budget."""
    print(f"{'sigma':>6} {'e/sigma':>8} {'plug-in':>8} {'alone':>8} {'of five':>8}")
    for name, counts in json.loads(PUBLISHED.read_text(encoding="utf-8"))["counts_by_sigma"].items():
        sigma = float(name)
        lengths = np.repeat([int(key) for key in counts], list(counts.values()))
        runs = RewardRuns.of(np.ones(lengths.size), lengths, lengths, N_STEPS, 0.0, 1.0)
        orders = [np.random.default_rng(seed).permutation(lengths) for seed in range(3)]
        together = [certify_per_step(record(order, sigma), [e * sigma for e in FIVE]).lower for order in orders]
        for e in (0.1, 0.2):
            plug_in = float(plug_in_means(runs, np.array([e * math.sqrt(N_STEPS)]), 0.0)[0])
            alone = [certify_per_step(record(order, sigma), [e * sigma]).lower[0] for order in orders]
            of_five = np.mean(together, axis=0)[FIVE.index(e)]
            print(f"{sigma:6g} {e:8g} {plug_in:8.1f} {np.mean(alone):8.1f} {of_five:8.1f}")


if __name__ == "__main__":
    main()
