"""``surefoot.rollout``: the episodes of a run from Python, in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from surefoot.agents.policies import Sigma
from surefoot.agents.resolve import as_policy
from surefoot.attacks.registry import named_attack
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Attacker
from surefoot.play.plan import Plan, attacked_channels, resolve_device, seeded_plan
from surefoot.play.rollout import Progress, play
from surefoot.play.streams import Purpose
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.runs.attacked import AttackGrid


def rollout(
    task: str | Task,
    agent: object,
    *,
    sigma: Sigma,
    action_sigma: float = 0.0,
    n_episodes: int = 10_000,
    seed: int | None = None,
    device: str = "cpu",
    workers: int = 1,
    backend: Literal["processes", "ray"] = "processes",
    n_envs: int | None = None,
    attacker: str | Attacker | None = None,
    budget: float = 0.0,
    channel: str | None = None,
    per_step: bool = False,
    luck: str | None = None,
    progress_callback: Progress | None = None,
) -> Episodes:
    """Run episodes of a smoothed agent and return their record: ready to be certified, unless they are attacked.

    >>> import surefoot
    >>> episodes = surefoot.rollout("cartpole-1", "cartpole-1-s0.2", sigma=0.2, n_episodes=100, seed=0)
    >>> len(episodes), episodes.sigma
    (100, 0.2)

    Args:
        task: A task's name, or a Task (``surefoot.make_task`` makes one of any Gymnasium ID).
        agent: A pretrained agent's name, a path (a Stable-Baselines3 zip or folder, ``.onnx``, TorchScript ``.pt``), a
            live Stable-Baselines3 model, a torch module (also CleanRL's), a function of observations, or a Policy:
            where an agent needs to be described, ``surefoot.as_policy`` makes one of it.
        sigma: Standard deviation of the noise on every new observation, in the observation's units, or one for each
            feature; budgets then count the perturbation of feature i divided by sigma_i / (the least sigma). For
            observations in parts also by name, ``{"camera": 0.1}``: the others have no noise, and are not attacked.
        action_sigma: Standard deviation of the noise on every continuous action, added behind the attacker and clipped
            afterwards. With it budgets are in the units of the actions or, where observations have noise too, count
            standard deviations.
        n_episodes: Number of episodes.
        seed: Seed of the run; the same seed gives the same returns. By default it follows from agent and setup, so
            that no agent can contain it.
        device: "cpu", "cuda" or "auto".
        workers: Processes to run episodes with; they do not change the results.
        backend: "ray" runs episodes on the Ray cluster that this process is connected to, else on that of
            ``RAY_ADDRESS`` or of this machine, instead of in ``workers`` processes; the results are the same.
        n_envs: Environments that run in parallel; the task's own number by default.
        attacker: What perturbs observations or actions: the name of an attack, "adaptive" for one, as
            ``surefoot.attack`` has them (with its defaults, and lambda 0), or one of your own, a
            ``surefoot.Attacker``. Its episodes share no random numbers with those of a certificate.
        budget: The attacker's l2 budget per episode.
        channel: What it perturbs, "observations", "actions" or "both"; by default what has noise, else observations.
        per_step: Whether to keep the rewards of each step, for ``surefoot.certify_per_step``.
        luck: What to read of each episode at reset, as ``surefoot.certify_run`` takes it.
        progress_callback: Called with the numbers of finished and of all episodes.

    Raises:
        InputError: If the agent does not fit the task, or a number makes no sense.
    """
    if isinstance(task, str):
        task = get_task(task)
    if attacker is None and budget:
        raise InputError(f'a budget of {budget:g} needs an attacker that uses it: attacker="adaptive", for one')
    if attacker is None and channel is not None:
        raise InputError('channel= says what an attacker perturbs: give one, attacker="adaptive" for example')
    plan = Plan(
        task=task,
        policy=as_policy(agent, task.spaces),
        noise=Noise.of(task.spaces.sigma_of(sigma), action_sigma),
        n_episodes=n_episodes,
        # A stream of its own: attacked episodes share no random numbers with those of a certificate.
        purpose=() if attacker is None else (Purpose.ATTACK,),
        device=resolve_device(device, remote=backend == "ray"),
        n_envs=n_envs,
        per_step=per_step,
        luck=luck,
    )
    # Before an attacker is put in: the seed of an agent does not depend on who attacks it.
    plan = seeded_plan(plan, seed)
    if attacker is not None:
        plan = replace(plan, channels=attacked_channels(plan.noise, channel))
    if isinstance(attacker, str):
        name, own = named_attack(attacker)
        plan = AttackGrid(base=plan, budgets=(budget,), method=str(name), own=own).plan(budget, 0.0)
    elif attacker is not None:
        plan = replace(plan, attacker=attacker, budget=budget)
    if backend not in ("processes", "ray"):
        raise InputError(f"backend must be 'processes' or 'ray', got {backend!r}")
    if backend == "processes":
        return play(plan, workers=workers, progress=progress_callback)
    # Ray is an extra, and slow to load.
    from surefoot.play.ray_cluster import ray_cluster

    with ray_cluster() as cluster:
        return play(plan, workers=cluster, progress=progress_callback)
