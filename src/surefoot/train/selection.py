"""Which weights are kept: validation episodes, and what they are expected to certify."""

from __future__ import annotations

from surefoot.agents.policies import Policy
from surefoot.episodes import Episodes, Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.proof.forecast import forecast
from surefoot.train.folder import TrainingRun

ALPHA = 0.05  # of the certificates that choose the best weights


def validate(
    run: TrainingRun, policy: Policy, n_episodes: int, *, number: int, device: str = "cpu", n_envs: int | None = None
) -> Episodes:
    """Run episodes that no certificate uses, through the channel that certifies; each validation has its own number."""
    return play(
        Plan(
            task=run.task,
            policy=policy,
            noise=Noise.of(run.sigma),
            n_episodes=n_episodes,
            seed=run.seed,
            device=device,
            n_envs=n_envs,
            purpose=(Purpose.VALIDATION, number),
        )
    )


def predicted_bound(played: Episodes, budget: float) -> float:
    """Return what as many episodes are expected to certify: as good as their certificate, and less noisy."""
    return forecast(played, budget=budget, alpha=ALPHA, n_episodes=len(played)).limit
