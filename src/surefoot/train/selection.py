"""Which weights are kept: validation episodes, and what they are expected to certify."""

from __future__ import annotations

from surefoot.agents.policies import Policy
from surefoot.episodes import Episodes, Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.task import Task
from surefoot.proof.forecast import forecast

ALPHA = 0.05  # of the certificates that choose the best weights


def validate(
    task: Task,
    policy: Policy,
    noise: Noise,
    n_episodes: int,
    *,
    seed: int,
    number: int,
    device: str = "cpu",
    n_envs: int | None = None,
) -> Episodes:
    """Run episodes that no certificate uses, through the channel that certifies; each validation has its own number."""
    return play(
        Plan(
            task=task,
            policy=policy,
            noise=noise,
            n_episodes=n_episodes,
            seed=seed,
            device=device,
            n_envs=n_envs,
            purpose=(Purpose.VALIDATION, number),
        )
    )


def predicted_bound(played: Episodes, budget: float) -> float:
    """Return what as many episodes are expected to certify: as good as their certificate, and less noisy."""
    return forecast(played, budget=budget, alpha=ALPHA, n_episodes=len(played)).limit
