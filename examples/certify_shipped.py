"""Certify a pretrained agent under attack: its mean return, the probability of a good episode, and a quantile."""

from math import floor

import surefoot

TASK = "cartpole-5"
AGENT = "cartpole-5-s0.2"
SIGMA = 0.2
BUDGETS = (0.0, 0.2, 0.4, 0.6)
CONFIDENCE = 0.95


def main(episodes: int = 10_000) -> surefoot.Certificate:
    played = surefoot.rollout(TASK, AGENT, sigma=SIGMA, n_episodes=episodes, seed=0)
    # A band bounds the whole distribution of returns; the default method may bound the mean alone.
    certificate = surefoot.certify(played, BUDGETS, CONFIDENCE, method="band")
    print(certificate)  # the bounds on the mean, one row per budget

    # The same band answers other questions at any budget, at no cost in confidence. Bounds are rounded down.
    reach = certificate.probability(threshold=150, budget=0.3)
    print(f"budget 0.3: a return of 150 or more with probability at least {floor(1000 * reach.lower) / 1000}")
    median = certificate.quantile(0.5, budget=0.3)
    print(f"budget 0.3: the median return is at least {median.lower:g}")
    return certificate


if __name__ == "__main__":
    main()
