"""What an agent that knows some of its certified episodes by heart gains, and whether fresh episodes notice it.

    python bench/memorizing.py     # a minute; results go to bench/results/memorizing.json

The author names a seed and puts answers for the worst of its 10,000 episodes into the agent; those are then perfect,
the others are what the agent really earns. An answer takes at least one bit per step, so S bytes hold at most 8 S / 200
episodes of CartPole. Certified: the mean at a budget of sigma (method auto). Noticed: in how many of 40 verifications
10,000 fresh episodes contradict the record.

With the default seed, which follows from the agent, the gain is luck: an author who tries G agents of S bytes each hits
a seed that an agent has answers for with probability at most G * 8 S / 2^128.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from surefoot.episodes import Episodes
from surefoot.files import write_json
from surefoot.proof.query import certify
from surefoot.verification.recompute.fresh import highest_worst_means, log_capital
from surefoot.verification.rerun import FALSE_ALARM

HERE = Path(__file__).resolve().parent
AGENTS = ("cartpole-1-ppo-s0.4", "cartpole-5-ppo-s0.3")
SHARES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 1.0)
STEPS = 200
TRIES = 2**60  # agents whose hashes an author could compute


def bytes_of(n_episodes: int) -> int:
    """Return the least number of bytes that answers for so many episodes take."""
    return math.ceil(n_episodes * STEPS / 8)


def notice_rate(recorded: np.ndarray, true: np.ndarray, lower: float, n_tries: int) -> float:
    """Return how often fresh episodes, drawn from the true returns, contradict the record."""
    rng = np.random.default_rng(1)
    noticed = 0
    for _ in range(n_tries):
        fresh = rng.choice(true, true.size)
        worse = log_capital(recorded, fresh, [0.0, 1.0]) >= math.log(2 / FALSE_ALARM)
        false = lower > highest_worst_means(fresh, [1.0], 0.0, 200.0, FALSE_ALARM / 2)[0]
        noticed += worse or false
    return noticed / n_tries


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=40)
    arguments = parser.parse_args()
    rows = []
    for agent in AGENTS:
        honest = Episodes.load(HERE.parent / "records" / agent / "episodes.npz")
        order = np.argsort(honest.returns, kind="stable")  # an author who knows the seed helps the worst episodes first
        for share in SHARES:
            known = order[: round(share * len(honest))]
            returns = honest.returns.copy()
            returns[known] = STEPS
            record = Episodes.from_returns(returns, sigma=honest.sigma, floor=0.0, ceiling=float(STEPS))
            lower = float(certify(record, [honest.sigma]).lower[0])
            size = bytes_of(known.size)
            row = {
                "agent": agent,
                "share_known": share,
                "least_bytes": size,
                "lower": lower,
                "noticed": notice_rate(returns, honest.returns, lower, arguments.tries),
                "chance_with_own_seed": TRIES * 8 * size / 2**128,
            }
            rows.append(row)
            print(
                f"{agent:22} {share:6.1%} known, {size:>9,} bytes: {lower:7.2f} certified, "
                f"noticed {row['noticed']:4.0%}; with the own seed {row['chance_with_own_seed']:.0e}"
            )
    write_json(HERE / "results" / "memorizing.json", {"schema": 1, "tries": arguments.tries, "rows": rows})


if __name__ == "__main__":
    main()
