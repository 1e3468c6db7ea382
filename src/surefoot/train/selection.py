"""Which weights are kept: validation episodes, and what they are expected to certify."""

from __future__ import annotations

from surefoot.agents.policies import Policy
from surefoot.episodes import Episodes, Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.task import Task


def validate(
    task: Task, policy: Policy, sigma: float, seed: int, stream: tuple[int, ...], episodes: int, device: str = "cpu"
) -> Episodes:
    """Run episodes that no certificate uses, through the channel that certifies."""
    return play(
        Plan(
            task=task,
            policy=policy,
            noise=Noise.of(sigma),
            n_episodes=episodes,
            seed=seed,
            device=device,
            purpose=stream,
        )
    )
