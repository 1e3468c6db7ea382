"""Which weights are kept, and which sigma is trained with: by what episodes of their own are expected to certify.

``validate`` runs episodes with the weights of a training step and adds what they show to the curve. ``best_sigma``
compares the sigmas of the pretrained agents.
"""

from __future__ import annotations

from surefoot.agents.files import list_agents, load, load_card
from surefoot.agents.memory import Recurrent
from surefoot.agents.policies import Policy
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.task import Task
from surefoot.proof.forecast import Forecast, best_forecast, forecast
from surefoot.train.folder import NamedArrays, TrainingCurve, TrainingRun

ALPHA = 0.05  # of the certificates that choose the best weights
N_PILOT = 1_000  # episodes per agent
N_PILOT_GAMES = 100  # episodes per agent of Atari
N_EXPECTED_EPISODES = 10_000  # of the certificate to expect


def run_validation(
    run: TrainingRun, policy: Policy, n_episodes: int, *, number: int, device: str = "cpu", n_envs: int | None = None
) -> Episodes:
    """Run episodes that no certificate uses, through the channel that certifies; each validation has its own number."""
    return play(
        Plan(
            task=run.task,
            policy=policy,
            noise=run.noise,
            n_episodes=n_episodes,
            seed=run.seed,
            device=device,
            n_envs=n_envs,
            purpose=(Purpose.VALIDATION, number),
        )
    )


def validate(
    run: TrainingRun,
    curve: TrainingCurve,
    policy: Policy,
    weights: NamedArrays,
    n_episodes: int,
    *,
    number: int,
    n_expected: int | None = None,
    exploration: float = 0.0,
    by_bound: bool = True,
    device: str = "cpu",
    n_envs: int | None = None,
) -> Episodes:
    """Run validation episodes and add them to the curve at its current step; the best weights so far are kept there.

    Args:
        run: The training run.
        curve: What validation has shown so far.
        policy: The agent of the weights, as it would be deployed.
        weights: What is kept if they are the best.
        n_episodes: Number of episodes.
        number: Number of the validation, which no other validation of the run has.
        n_expected: Of how many episodes the certificate is that the weights are compared by; None: of these. Values of
            different numbers of episodes cannot be compared.
        exploration: How much the training explores now, for the curve.
        by_bound: Whether the best is the one that certifies the most at the budget of the run, else the best mean.
        device: Where to run the episodes.
        n_envs: Environments in parallel; None: as the task has it.
    """
    # These episodes choose weights, so no certificate may use them: they have a stream of their own.
    played = run_validation(run, policy, n_episodes, number=number, device=device, n_envs=n_envs)
    certified = predict_bound(played, run.budget, n_expected) if by_bound else None
    curve.add(played.returns, exploration, weights, certified)
    return played


def predict_bound(played: Episodes, budget: float, n_expected: int | None = None) -> float:
    """Return what so many episodes, by default as many, are expected to certify: less noisy than their certificate.

    Without noise nothing is certified; then it is their mean.
    """
    if played.noise.budget_sigma == 0:
        return float(played.returns.mean())
    return forecast(played, budget=budget, alpha=ALPHA, n_episodes=n_expected or len(played)).limit


def best_sigma(task: Task, budget: float, *, recurrent: bool, seed: int, device: str) -> Forecast:
    """Return which sigma is expected to certify the most at a budget, by the pretrained agents of the task.

    Compared are agents that are recurrent, or those that are not, where there are any.

    Raises:
        InputError: If there is no pretrained agent with noise for the task.
    """
    agents = []
    for name in list_agents():
        card = load_card(name)
        if card["task"] == task.name and card["sigma"] > 0:
            agents.append((load(name), card["sigma"]))
    if not agents:
        raise InputError(
            f"there are no pretrained agents of {task.name} whose sigmas could be compared; give sigma=, such as "
            f"{budget / 2:g}, half the budget"
        )
    # A recurrent agent takes more noise than one with frames: compare like with like, where there is any.
    alike = [(policy, sigma) for policy, sigma in agents if isinstance(policy.memory, Recurrent) == recurrent]
    # Games take longer than episodes of a pole.
    n_episodes = N_PILOT if task.cartridge is None else N_PILOT_GAMES
    forecasts = []
    for policy, sigma in alike or agents:
        pilot = Plan(
            task=task,
            policy=policy,
            noise=Noise.of(sigma),
            n_episodes=n_episodes,
            seed=seed,
            device=device,
            purpose=(Purpose.PILOT,),
        )
        forecasts.append(forecast(play(pilot), budget=budget, alpha=ALPHA, n_episodes=N_EXPECTED_EPISODES))
    return best_forecast(forecasts)
