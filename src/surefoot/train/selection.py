"""Which weights are kept, and which sigma is trained with: what episodes of their own are expected to certify."""

from __future__ import annotations

from surefoot.agents.files import list_agents, load, load_card
from surefoot.agents.memory import Recurrent
from surefoot.agents.policies import Policy
from surefoot.episodes import Episodes, Noise
from surefoot.errors import InputError
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.task import Task
from surefoot.proof.forecast import Forecast, best, forecast
from surefoot.train.folder import TrainingRun

ALPHA = 0.05  # of the certificates that choose the best weights
N_PILOT, N_PILOT_GAMES, N_EPISODES = 1_000, 100, 10_000  # per agent, per agent of Atari, of the certificate to expect


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
    """Return what as many episodes are expected to certify: as good as their certificate, and less noisy.

    Without noise nothing is certified; then it is their mean.
    """
    if played.sigma == 0:
        return float(played.returns.mean())
    return forecast(played, budget=budget, alpha=ALPHA, n_episodes=len(played)).limit


def best_sigma(task: Task, budget: float, *, recurrent: bool, seed: int, device: str) -> Forecast:
    """Return which sigma is expected to certify the most at a budget, by the pretrained agents of the task.

    Args:
        task: What will be trained.
        budget: The attack budget.
        recurrent: Whether the agent will be recurrent: compared are agents that are too, where there are any.
        seed: Seed of the pilot episodes.
        device: Where to run them.

    Raises:
        InputError: If there is no pretrained agent with noise for the task.
    """
    cards = [load_card(name) for name in list_agents()]
    agents = [(load(card["name"]), card["sigma"]) for card in cards if card["task"] == task.name and card["sigma"] > 0]
    alike = [pair for pair in agents if isinstance(pair[0].memory, Recurrent) == recurrent] or agents
    if not alike:
        raise InputError(
            f"there are no pretrained agents of {task.name} whose sigmas could be compared; give --sigma, such as "
            f"{budget / 2:g}, half the budget"
        )
    n_episodes = N_PILOT if task.cartridge is None else N_PILOT_GAMES
    pilots = [
        Plan(
            task=task,
            policy=policy,
            noise=Noise.of(sigma),
            n_episodes=n_episodes,
            seed=seed,
            device=device,
            purpose=(Purpose.PILOT,),
        )
        for policy, sigma in alike
    ]
    return best([forecast(play(plan), budget=budget, alpha=ALPHA, n_episodes=N_EPISODES) for plan in pilots])
