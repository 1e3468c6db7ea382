"""Running a plan: its blocks dealt to processes, collected and checked."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Literal

from surefoot.agents.policies import Sigma
from surefoot.agents.resolve import resolve
from surefoot.episodes import Episodes, Noise, checked_returns
from surefoot.errors import InputError
from surefoot.play import meter
from surefoot.play.channel import Attacker
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan, resolve_device
from surefoot.play.processor import processor
from surefoot.play.streams import Purpose
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.play.workers import Workers, as_workers

Progress = Callable[[int, int], None]


def rollout(
    task: str | Task,
    agent: object,
    *,
    sigma: Sigma,
    n_episodes: int = 10_000,
    seed: int = 0,
    device: str = "cpu",
    workers: int = 1,
    backend: Literal["processes", "ray"] = "processes",
    n_envs: int | None = None,
    attacker: Attacker | None = None,
    budget: float = 0.0,
    per_step: bool = False,
    n_stack: int | None = None,
    batched: bool | None = None,
    stochastic: bool = False,
    pixel_max: float | None = None,
    allow_pickle: bool = False,
    vecnormalize: object = None,
    progress_callback: Progress | None = None,
) -> Episodes:
    """Run episodes of a smoothed agent and return their record: ready to be certified, unless they are attacked.

    Args:
        task: A task's name, or a Task (``surefoot.make_task`` makes one of any Gymnasium ID).
        agent: A pretrained agent's name, a path (a Stable-Baselines3 zip or folder, ``.onnx``, TorchScript ``.pt``), a
            live Stable-Baselines3 model, a torch module (also CleanRL's), a Policy, or a function of observations.
        sigma: Standard deviation of the noise on every new observation, in the observation's units, or one for each
            feature; budgets then count the perturbation of feature i divided by sigma_i / (the least sigma). For
            observations in parts also by name, ``{"camera": 0.1}``: the others have no noise, and are not attacked.
        n_episodes: Number of episodes.
        seed: Seed of the run; the same seed gives the same returns.
        device: "cpu", "cuda" or "auto".
        workers: Processes to run episodes with; they do not change the results.
        backend: "ray" runs episodes on the Ray cluster that this process is connected to, else on that of
            ``RAY_ADDRESS`` or of this machine, instead of in ``workers`` processes; the results are the same.
        n_envs: Environments that run in parallel; the task's own number by default.
        attacker: What perturbs observations: an object with ``propose(view)`` and ``describe()``. Its episodes share no
            random numbers with those of a certificate.
        budget: The attacker's l2 budget per episode.
        per_step: Whether to keep the rewards of each step, for ``surefoot.certify_per_step``.
        n_stack: Number of observations that a function or a torch module is given; the task's own by default.
        batched: Whether a function takes rows of observations; found out by a trial by default.
        stochastic: Whether the agent draws random actions of its own, which are then part of it; the record says so.
        pixel_max: What a torch module or its file takes for the brightest pixel, where observations are pictures: 255
            if it divides by 255 itself, 1 if it takes numbers from 0 to 1.
        allow_pickle: Let the agent's file execute code: pickles in an SB3 zip, TorchScript.
        vecnormalize: Statistics that the agent's observations are normalized with: a file, a live VecNormalize, or
            "none"; by default those of a live model's environment, or where RL Baselines3 Zoo and the Hub keep them.
        progress_callback: Called with the numbers of finished and of all episodes.

    Raises:
        InputError: If the agent does not fit the task, or a number makes no sense.
    """
    task = get_task(task) if isinstance(task, str) else task
    if attacker is None and budget:
        raise InputError(f"a budget of {budget:g} needs an attacker that uses it; surefoot.attack has attacks by name")
    plan = Plan(
        task=task,
        policy=resolve(
            agent,
            task.spaces,
            n_stack=n_stack,
            batched=batched,
            stochastic=stochastic,
            pixel_max=pixel_max,
            allow_pickle=allow_pickle,
            vecnormalize=vecnormalize,
        ),
        noise=Noise.of(task.spaces.sigma_of(sigma)),
        n_episodes=n_episodes,
        seed=seed,
        purpose=() if attacker is None else (Purpose.ATTACK,),
        device=resolve_device(device, remote=backend == "ray"),
        n_envs=n_envs,
        attacker=attacker,
        budget=budget,
        per_step=per_step,
    )
    if backend not in ("processes", "ray"):
        raise InputError(f"backend must be 'processes' or 'ray', got {backend!r}")
    if backend == "processes":
        return play(plan, workers=workers, progress=progress_callback)
    from surefoot.play.ray_cluster import ray_cluster  # an extra, and slow to load

    with ray_cluster() as cluster:
        return play(plan, workers=cluster, progress=progress_callback)


def play(
    plan: Plan,
    *,
    workers: int | Workers = 1,
    done: Mapping[int, Episodes] | None = None,
    on_block: Callable[[int, Episodes], None] | None = None,
    progress: Progress | None = None,
) -> Episodes:
    """Run every block of the plan and return the record; for the arguments see ``blocks_in_order``."""
    blocks = blocks_in_order(plan, workers=workers, done=done, on_block=on_block, progress=progress)
    return Episodes.concat(list(blocks))


def blocks_in_order(
    plan: Plan,
    *,
    workers: int | Workers = 1,
    among: Sequence[int] | None = None,
    done: Mapping[int, Episodes] | None = None,
    on_block: Callable[[int, Episodes], None] | None = None,
    progress: Progress | None = None,
) -> Generator[Episodes, None, None]:
    """Yield the blocks of the plan by their numbers, checked; close the generator when there are enough.

    Args:
        plan: What to run.
        workers: Number of processes to run blocks with, or other workers; they do not change the result.
        among: Numbers of the blocks to run; all of them by default.
        done: Blocks among them that have been run before, by number.
        on_block: Called with number and block of every other one, as it is finished.
        progress: Called with the numbers of finished and of all episodes.
    """
    workers = as_workers(workers)
    ready = dict(done or {})
    among = range(plan.n_blocks) if among is None else among
    missing = [number for number in among if number not in ready]
    count = sum(len(block) for block in ready.values())
    total = sum(plan.block_length(number) for number in among)
    meter.clear()
    if progress is not None:
        progress(count, total)
    with closing(run_blocks(plan, missing, workers)) as fresh:
        for index in among:
            while index not in ready:
                number, block = next(fresh)
                _check_block(plan, number, block)
                if on_block is not None:
                    on_block(number, block)
                ready[number], count = block, count + len(block)
                meter.clear(number)
                if progress is not None:
                    progress(count, total)
            yield ready.pop(index)


def run_blocks(
    plan: Plan, indices: Sequence[int], workers: int | Workers
) -> Generator[tuple[int, Episodes], None, None]:
    """Yield the blocks as they are finished, with their numbers."""
    if plan.gpu_share:
        plan = replace(plan, policy=plan.policy.to("cpu"))  # what is on a GPU cannot be sent to another process
    yield from as_workers(workers).spread(run_block, plan, indices, gpu=plan.gpu_share, fingerprint=record_hash)


def run_block(plan: Plan, index: int) -> Episodes:
    """Run one block, and note on which kind of processor."""
    return replace(play_block(plan, index), processors=((processor(plan.device), 1),))


def record_hash(block: Episodes) -> str:
    """Return the hash of a block, which says nothing of the processor."""
    return block.sha256


def _check_block(plan: Plan, index: int, block: Episodes) -> None:
    """Reject at once what no certificate could be computed from, rather than after hours of simulation."""
    try:
        checked_returns(block.returns, plan.task.scoring.floor, plan.task.scoring.ceiling)
    except InputError as error:
        first = index * plan.block_size
        raise InputError(f"in episodes {first} to {first + len(block) - 1} of {plan.task.name}: {error}") from error
