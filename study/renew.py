"""Say which numbers of the study are missing or were measured on other weights, or renew them.

    python -m study.renew                           # list them
    python -m study.renew --run episodes times      # measure these where missing or stale
    python -m study.renew --run episode-times --episodes 32    # where a resumed run has no time
    python -m study.renew --run attacks --tasks mountain-car
    python -m study.renew --run episodes --again --agents pong-full-s0.1 --episodes 4096 --device cuda \\
      --block 64 4 --workers 16                     # with SUREFOOT_CORES=1: each process runs its own emulators
    python -m study.renew --run episodes attacks times --device cuda

Attacks on smoothed agents take hours on two cores; ``python -m study.attack_cells --device cuda --jobs 16``
spreads them over a GPU. Afterwards ``python -m study.documentation --write`` renews the documentation.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from study.measure import (
    Block,
    Place,
    attack_agent,
    play_episodes,
    time_attacks,
    time_episodes,
    timed_agents,
    write_times,
)
from study.numbers import DATA, Agent, Study, shipped_agents
from study.sizes import full
from surefoot.compute import usable_cores

PARTS = ("episodes", "attacks", "times", "episode-times")
TIMED = 32  # episodes without attack that are timed


def wanting(study: Study, tasks: list[str] | None, again: bool = False) -> dict[str, list[Agent]]:
    """Return the agents whose numbers are missing or stale, part by part; or all of them."""
    agents = [agent for agent in study.agents if tasks is None or agent.task in tasks]
    if again:
        return {"episodes": agents, "attacks": agents, "times": timed_agents(agents), "episode-times": agents}
    timed = {(row["agent"], row["agent_sha256"]) for row in study.times()}
    return {
        "episodes": [
            agent for agent in agents if (found := study.record(agent)) is None or _stale(found.metadata, agent)
        ],
        "attacks": [agent for agent in agents if (made := study.attack(agent)) is None or _stale(made, agent)],
        "times": [agent for agent in timed_agents(agents) if (agent.name, agent.sha256) not in timed],
        "episode-times": [agent for agent in agents if study.played(agent) is not None and study.timed(agent) is None],
    }


def _stale(facts: Any, agent: Agent) -> bool:
    return bool(facts.get("agent_sha256") != agent.sha256)


def renew(
    part: str, agents: list[Agent], place: Place, episodes: int | None = None, block: Block | None = None
) -> None:
    """Measure one part of the study again."""
    for agent in agents:
        size = full(agent.task)
        cells = size.attacks(agent.sigma)
        if part == "episodes":
            print(play_episodes(agent, episodes or size.episodes, place, block), flush=True)
        elif part == "attacks":
            print(attack_agent(agent, cells, place), flush=True)
        elif part == "episode-times":
            write_times([time_episodes(agent, episodes or TIMED, place.device)], place, "episodes")
            print(f"{agent.name}: time of an episode", flush=True)
        else:
            write_times(time_attacks(agent, cells, size.timed[agent.sigma > 0], place.device), place)
            print(f"{agent.name}: times", flush=True)


def main() -> None:
    """List or renew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", nargs="+", choices=PARTS, default=[])
    parser.add_argument("--tasks", nargs="+")
    parser.add_argument("--agents", nargs="+", help="by name")
    parser.add_argument("--again", action="store_true", help="also what is there and not stale")
    parser.add_argument("--episodes", type=int, help="episodes of an agent (default: 10,000; timed: 32)")
    parser.add_argument(
        "--block",
        nargs=2,
        type=int,
        metavar=("ENVS", "EPISODES"),
        help="environments of a block and episodes of each, for --run episodes (default: the task's)",
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--workers", type=int, help="processes (default: one per core; one to measure times)")
    parser.add_argument("--work", type=Path, default=Path("runs/study"))
    parser.add_argument("--out", type=Path, default=DATA)
    arguments = parser.parse_args()
    workers = arguments.workers or (usable_cores() if arguments.device == "cpu" else 1)
    place = Place(arguments.out, arguments.work, arguments.device, workers)
    found = wanting(Study(arguments.out, shipped_agents()), arguments.tasks, arguments.again)
    for part, among in found.items():
        agents = [agent for agent in among if arguments.agents is None or agent.name in arguments.agents]
        names = ", ".join(agent.name for agent in agents) or "nothing"
        print(f"{part} to renew: {names}", flush=True)
        if part in arguments.run:
            renew(part, agents, place, arguments.episodes, arguments.block and tuple(arguments.block))


if __name__ == "__main__":
    main()
