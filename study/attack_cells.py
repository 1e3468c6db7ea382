"""The pretrained agents under the paper's attacks, as data: Algorithm 1 on CartPole, Algorithm 2 on Mountain Car.

    python -m study.attack_cells --tasks cartpole-5 cartpole-1 --sigmas 0    # undefended agents, minutes on two cores
    python -m study.attack_cells --tasks cartpole-5 cartpole-1 --sigmas 0.2 0.4 0.6 0.8 --device cuda --jobs 16
    python -m study.attack_cells --tasks mountain-car --sigmas 0 0.2 0.4 0.6

For each agent and method, ``study/data/attacks/<agent>-<method>.json`` holds means, standard errors, the attack curve
and the budget used over time; the ``.npz`` next to it holds every episode's return and budget used. With ``--jobs`` the
configurations of all agents are run by that many processes, which share a GPU best under NVIDIA's MPS.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

from study.measure import Place, attack_agent, attack_of
from study.numbers import DATA, Agent, shipped_agents
from study.sizes import AttackSize, full
from surefoot.compute import usable_cores
from surefoot.runs.attacked import AttackGrid, run_configuration
from surefoot.runs.folder import configuration_name


def agent_of(task: str, sigma: float) -> Agent:
    """Return the pretrained agent of a task and a sigma."""
    found = [agent for agent in shipped_agents() if (agent.task, agent.sigma) == (task, sigma)]
    if not found:
        raise SystemExit(f"attacks: there is no pretrained agent for {task} at sigma {sigma:g}")
    return found[0]


def size_of(task: str, sigma: float, arguments: argparse.Namespace) -> AttackSize:
    """Return the grid of the attack on one agent: the study's, or what was asked for."""
    size = full(task).attacks(sigma)
    return replace(
        size,
        budgets=tuple(arguments.budgets or size.budgets),
        lambdas=tuple(arguments.margins or size.lambdas),
        episodes=arguments.episodes or size.episodes,
        draws=arguments.draws,
    )


def attack_on(task: str, sigma: float, arguments: argparse.Namespace) -> AttackGrid:
    """Return the attack on one agent."""
    return attack_of(agent_of(task, sigma), size_of(task, sigma, arguments), arguments.device, arguments.method)


def play_cell(task: str, sigma: float, budget: float, margin: float | None, arguments: argparse.Namespace) -> str:
    """Run one configuration in a process of its own."""
    began = time.monotonic()
    attack = attack_on(task, sigma, arguments)
    mean = run_configuration(attack, budget, margin, arguments.work / attack.name).returns.mean()
    which = f"{attack.base.policy.name} {configuration_name(budget, margin)}"
    return f"{which}: {mean:.2f} after {time.monotonic() - began:.0f} s"


def play_cells(attacks: list[tuple[str, float]], arguments: argparse.Namespace) -> None:
    """Run the configurations of all agents in parallel, one lambda after the other, the costliest budgets first."""
    cells = [
        (task, sigma, budget, margin)
        for task, sigma in attacks
        for budget, margin in attack_on(task, sigma, arguments).configurations()
    ]
    cells.sort(key=lambda cell: (attack_on(cell[0], cell[1], arguments).columns.index(cell[3]), -cell[2]))
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, mp_context=fresh) as pool:
        for waiting in [pool.submit(play_cell, *cell, arguments) for cell in cells]:
            print(waiting.result(), flush=True)


def write_results(task: str, sigma: float, arguments: argparse.Namespace) -> None:
    """Attack one agent, or read what was run, and write its files."""
    workers = usable_cores() if arguments.device == "cpu" else 1
    place = Place(arguments.out, arguments.work, arguments.device, workers)
    print(attack_agent(agent_of(task, sigma), size_of(task, sigma, arguments), place, arguments.method), flush=True)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["cartpole-5", "cartpole-1"])
    parser.add_argument("--sigmas", nargs="+", type=float, default=[0.0, 0.2, 0.4, 0.6, 0.8])
    parser.add_argument("--method", default="paper")
    parser.add_argument("--budgets", nargs="+", type=float)
    parser.add_argument("--margins", nargs="+", type=float)
    parser.add_argument("--draws", type=int, default=128)
    parser.add_argument("--episodes", type=int, help="per configuration (default: 1,000; Mountain Car 250)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    attacks = [(task, sigma) for task in arguments.tasks for sigma in arguments.sigmas]
    if arguments.jobs > 1:
        play_cells(attacks, arguments)
    for task, sigma in attacks:
        write_results(task, sigma, arguments)


if __name__ == "__main__":
    main()
