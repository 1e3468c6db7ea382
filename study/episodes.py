"""The shipped agents' unattacked episodes, as data: what certificates, clean returns and evaluation times rest on.

    python study/episodes.py                                   # every agent whose episodes are missing or stale
    python study/episodes.py --tasks cartpole-5 --again        # these, whatever is there
    python study/episodes.py --tasks pong-1r --device cuda

``study/episodes/<agent>.npz`` is the whole record, as ``surefoot certify`` keeps it; ``.json`` beside it says its hash,
the command that plays the same, and the time it took.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from surefoot.study.data import Study, shipped_agents
from surefoot.study.gather import Place, play_episodes
from surefoot.study.sizes import full
from surefoot.workers import usable_cores

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Play what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+")
    parser.add_argument("--sigmas", nargs="+", type=float)
    parser.add_argument("--episodes", type=int)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--workers", type=int)
    parser.add_argument("--again", action="store_true", help="also where the episodes are there and not stale")
    parser.add_argument("--work", type=Path, default=Path("runs/study"))
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    workers = arguments.workers or (usable_cores() if arguments.device == "cpu" else 1)
    place = Place(arguments.out, arguments.work, arguments.device, workers)
    study = Study(arguments.out, shipped_agents())
    for agent in study.agents:
        if arguments.tasks and agent.task not in arguments.tasks:
            continue
        if arguments.sigmas and agent.sigma not in arguments.sigmas:
            continue
        record = study.record(agent)
        if arguments.again or record is None or record.facts.get("agent_sha256") != agent.sha256:
            many = arguments.episodes or full(agent.task).episodes
            print(play_episodes(agent, many, place), flush=True)


if __name__ == "__main__":
    main()
