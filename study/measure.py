"""Measure the raw numbers: run, attack, time, train; every part writes its files into one directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from study.numbers import Agent
from study.sizes import AttackSize, Sizes
from surefoot.agents import files as zoo
from surefoot.files import read_json, write_arrays, write_json
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.play.workers import Processes
from surefoot.provenance import versions
from surefoot.runs.attacked import AttackGrid, run_configuration, summary
from surefoot.runs.folder import RunFolder, configuration_name

SCHEMA = 1
SEED = 0


@dataclass(frozen=True)
class Place:
    """Where numbers go, and with what they are measured.

    ``data``     the folder that figures are drawn from
    ``work``     episode data of unfinished runs, which are resumed when the same is requested again
    ``workers``  processes of one run
    """

    data: Path
    work: Path
    device: str = "cpu"
    workers: int = 1


Block = tuple[int, int]  # environments in parallel, and the episodes that each of them runs in turn


def play_episodes(agent: Agent, episodes: int, place: Place, block: Block | None = None) -> str:
    """Run an agent without attack, as ``surefoot certify`` does, and keep every return and the time it took.

    One process on a CPU counts the time of its processor, which does not depend on what else is running. Small blocks
    keep many processes busy where the task's own on a GPU are few and long.
    """
    plan = unattacked(agent, episodes, place.device, block)
    folder = place.work / f"episodes-{agent.name}-n{episodes}-{place.device}"
    clock = time.process_time if place.device == "cpu" and place.workers == 1 else time.monotonic
    began = clock()
    with RunFolder(folder, plan.setup()).opened() as store:
        whole = not store.record.exists() and not store.finished()
        record = store.recorded(plan, workers=place.workers)
    took = clock() - began
    record.save(place.data / "episodes" / f"{agent.name}.npz")
    facts = {
        "schema": SCHEMA,
        "task": agent.task,
        "agent": agent.name,
        "agent_sha256": agent.sha256,
        "sigma": agent.sigma,
        "seed": SEED,
        "n_episodes": episodes,
        "record_sha256": record.sha256,
        "command": _command(agent, episodes, place.device, block),
        "seconds": round(took, 3) if whole else _seconds_before(place, agent, record.sha256),
        "workers": place.workers,
        "device": place.device,
        "versions": versions(),
    }
    write_json(place.data / "episodes" / f"{agent.name}.json", facts)
    return f"{agent.name}: {episodes:,} episodes, mean {record.returns.mean():.3f}"


def _command(agent: Agent, episodes: int, device: str, block: Block | None) -> str:
    """Return the command that runs the same episodes."""
    if block is None:
        return f"surefoot certify {agent.task} --agent {agent.name} --sigma {agent.sigma:g} --episodes {episodes}"
    renewed = f"python -m study.renew --run episodes --again --agents {agent.name} --episodes {episodes}"
    return f"{renewed} --block {block[0]} {block[1]} --device {device}"


def unattacked(agent: Agent, episodes: int, device: str, block: Block | None = None) -> Plan:
    """Return the run of an agent without attack, in the task's own blocks or in others."""
    n_envs, episodes_per_env = block or (None, None)
    return Plan(
        task=get_task(agent.task),
        policy=zoo.load(agent.name),
        noise=Noise.of(agent.sigma),
        n_episodes=episodes,
        seed=SEED,
        device=device,
        n_envs=n_envs,
        episodes_per_env=episodes_per_env,
    )


def _seconds_before(place: Place, agent: Agent, record: str) -> float | None:
    """Return the time that the same episodes took when they were run in one go; a resumed run has none."""
    path = place.data / "episodes" / f"{agent.name}.json"
    there = read_json(path) if path.is_file() else {}
    return there.get("seconds") if there.get("record_sha256") == record else None


def attack_agent(agent: Agent, size: AttackSize, place: Place, method: str = "paper") -> str:
    """Attack an agent over budgets and lambdas; keep means, the curve, and every episode's return and budget used."""
    attack = attack_of(agent, size, place.device, method)
    folder = place.work / attack.name
    records = {cell: run_configuration(attack, *cell, folder, place.workers) for cell in attack.configurations()}
    arrays: dict[str, NDArray[np.float64]] = {}
    for cell, record in records.items():
        assert record.budget_used is not None
        name = configuration_name(*cell)
        arrays |= {f"{name}.returns": record.returns, f"{name}.budget_used": record.budget_used}
    path = place.data / "attacks" / f"{agent.name}-{method}"
    result = summary(attack, records)
    write_arrays(path.with_name(f"{path.name}.npz"), arrays)
    write_json(path.with_name(f"{path.name}.json"), {**result, "device": place.device, "versions": versions()})
    curve = ", ".join(f"{mean:.3f}" for mean in result["curve"])
    return f"{agent.name} {method}: {curve} at budgets {', '.join(f'{budget:g}' for budget in attack.budgets)}"


def attack_of(agent: Agent, size: AttackSize, device: str, method: str = "paper") -> AttackGrid:
    """Return the attack on one agent."""
    return AttackGrid(
        base=unattacked(agent, size.episodes, device),
        budgets=size.budgets,
        lambdas=size.lambdas,
        method=method,
        noise_samples=size.draws,
    )


def time_attacks(agent: Agent, size: AttackSize, episodes: int, device: str) -> list[dict[str, Any]]:
    """Measure attacked episodes at the smallest and the largest budget, with the first lambda, on one core."""
    attack = attack_of(agent, replace(size, episodes=episodes), device)
    rows = []
    for budget in sorted({min(size.budgets), max(size.budgets)}):
        found = _time_run(agent, attack.plan(budget, size.lambdas[0]))
        draws = size.draws if agent.sigma > 0 else None
        rows.append(found | {"budget": budget, "lambda": size.lambdas[0], "noise_samples": draws})
    return rows


def time_episodes(agent: Agent, episodes: int, device: str) -> dict[str, Any]:
    """Measure episodes without attack on one core, for records that were not made in one go."""
    return _time_run(agent, unattacked(agent, episodes, device))


def _time_run(agent: Agent, plan: Plan) -> dict[str, Any]:
    """Return how long a run takes on one core; on a CPU of its processor, whatever else is running."""
    clock = time.process_time if plan.device == "cpu" else time.perf_counter
    began = clock()
    play(plan)
    return {
        "task": agent.task,
        "agent": agent.name,
        "agent_sha256": agent.sha256,
        "sigma": agent.sigma,
        "n_episodes": plan.n_episodes,
        "seconds": round(clock() - began, 3),
        "workers": 1,
        "device": plan.device,
    }


def write_times(rows: Iterable[dict[str, Any]], place: Place, kind: str = "attacks") -> None:
    """Write measured times; rows of the other kind, and of other agents, that are there already stay."""
    path, new = place.data / "times.json", list(rows)
    renewed = {row["agent"] for row in new}
    there = read_json(path) if path.is_file() else {"attacks": []}
    kept = [row for row in there.get(kind, ()) if row["agent"] not in renewed]
    ordered = sorted([*kept, *new], key=lambda row: (row["task"], row["sigma"], row.get("budget", 0.0)))
    write_json(path, {**there, "schema": SCHEMA, kind: ordered, "versions": versions()})


def timed_agents(agents: Sequence[Agent]) -> list[Agent]:
    """Return the agents whose attacks are timed: the undefended one of each task and the one with least noise."""
    found: dict[tuple[str, bool], Agent] = {}
    for agent in sorted(agents, key=lambda agent: agent.sigma):
        found.setdefault((agent.task, agent.sigma > 0), agent)
    return list(found.values())


def train_once(task: str, sigma: float, sizes: Sizes, place: Place) -> str:
    """Train one agent with the preset's settings and keep its validations and its time."""
    from surefoot.train.folder import TrainingRun, has_checkpoint
    from surefoot.train.off_policy import train_off_policy

    name = f"{task}-s{sigma:g}"
    folder = place.work / f"train-{name}-{sizes.training.total_steps}"
    if not (folder / "agent.json").is_file():
        run = TrainingRun(
            task=get_task(task),
            noise=Noise.of(sigma),
            out=folder,
            seed=SEED,
            device=place.device,
            resume=has_checkpoint(folder),
        )
        train_off_policy(run, sizes.training)
    card = read_json(folder / "agent.json")
    facts = {"task": task, "sigma": sigma, "seed": SEED, "curve": card["curve"], "preset": "paper"}
    done = card["training"]
    write_json(
        place.data / "training" / f"{name}.json",
        {"schema": SCHEMA, "name": name, **facts, "seconds": done["seconds"], "device": place.device, "training": done},
    )
    return f"{name}: trained for {done['steps']:,} steps in {done['seconds']:.0f} s"


Job = Callable[[], tuple[str, list[dict[str, Any]]]]


def measure(
    agents: Sequence[Agent],
    tasks: Sequence[str],
    needs: Sequence[str],
    sizes: Callable[[str], Sizes],
    place: Place,
    report: Callable[[int, int, str], None] | None = None,
) -> None:
    """Measure what figures need, several parts in parallel, each in one process."""
    among = [agent for agent in agents if agent.task in tasks]
    jobs = _jobs(among, tasks, needs, sizes, replace(place, workers=1))
    # On a GPU one part after the other: they would only wait for each other.
    hands = place.workers if place.device == "cpu" else 1
    finished = Processes(hands).map_unordered(_do, jobs, range(len(jobs)))
    rows: list[dict[str, Any]] = []
    for done, (_, (line, times)) in enumerate(finished, start=1):
        rows += times
        if report is not None:
            report(done, len(jobs), line)
    if rows:
        write_times(rows, place)


def _do(jobs: list[Job], index: int) -> tuple[str, list[dict[str, Any]]]:
    return jobs[index]()


def _jobs(
    agents: Sequence[Agent], tasks: Sequence[str], needs: Sequence[str], sizes: Callable[[str], Sizes], place: Place
) -> list[Job]:
    jobs: list[Job] = []
    if "training" in needs:
        for task in tasks:
            noise = min((agent.sigma for agent in agents if agent.task == task and agent.sigma > 0), default=None)
            sigmas = (0.0, get_task(task).paper.sigma if noise is None else noise)
            jobs += [_untimed(partial(train_once, task, sigma, sizes(task), place)) for sigma in sigmas]
    timed = timed_agents(agents) if "times" in needs else []
    for agent in agents:
        size = sizes(agent.task)
        cells, timed_episodes = size.attacks(agent.sigma), size.timed[agent.sigma > 0]
        if agent in timed:
            jobs.append(partial(_time, agent, cells, timed_episodes, place.device))
        if "attacks" in needs:
            jobs.append(_untimed(partial(attack_agent, agent, cells, place)))
        if "episodes" in needs:
            jobs.append(_untimed(partial(play_episodes, agent, size.episodes, place)))
    return jobs


def _untimed(work: Callable[[], str]) -> Job:
    return lambda: (work(), [])


def _time(agent: Agent, cells: AttackSize, episodes: int, device: str) -> tuple[str, list[dict[str, Any]]]:
    return f"{agent.name}: times", time_attacks(agent, cells, episodes, device)
