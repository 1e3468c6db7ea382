"""What Ray costs: blocks of one second against the time that they take by themselves, and how fast blocks are dealt.

    python bench/ray_overhead.py        # starts a Ray cluster of one node on this machine, about a minute

A block of one second sleeps, so that other work on the machine does not count. Blocks are dealt as to 1,000 workers:
2,000 in flight, which return a record of a few kilobytes at once; as many processes run them as there are cores. The
driver's memory is looked at after a fifth of them and at the end. Results go to ``bench/results``.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
from ray.cluster_utils import Cluster

from surefoot.compute import usable_cores
from surefoot.episodes import Episodes
from surefoot.files import write_json
from surefoot.play.ray_cluster import Capacity, RayCluster, ray_cluster
from surefoot.provenance import versions

HERE = Path(__file__).resolve().parent
SECOND, RETURNS, SIMULATED = 1.0, 500, 1_000


def second(plan: None, index: int) -> Episodes:
    """Take one second."""
    time.sleep(SECOND)
    return nothing(plan, index)


def nothing(plan: None, index: int) -> Episodes:  # noqa: ARG001
    """Return a record at once."""
    returns = np.full(RETURNS, float(index))
    return Episodes.from_returns(returns, sigma=0.2, floor=0, lengths=np.full(RETURNS, 200))


def resident() -> float:
    """Return the memory of this process in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def overhead(cluster: RayCluster, blocks: int, cores: int) -> dict[str, float]:
    """Return how much longer than their own seconds the blocks took."""
    began = time.perf_counter()
    assert len(list(cluster.map_unordered(second, None, range(blocks)))) == blocks
    wall = time.perf_counter() - began
    return {"blocks_of_1_s": blocks, "wall_seconds": round(wall, 3), "overhead": round(wall * cores / blocks - 1, 4)}


def dealing(cluster: RayCluster, blocks: int) -> dict[str, float]:
    """Return how many blocks a second are dealt as to many workers, and how the driver's memory grows."""
    memory = []
    with patch.object(Capacity, "current_limit", lambda _: 2 * SIMULATED):
        began = time.perf_counter()
        for done, _ in enumerate(cluster.map_unordered(nothing, None, range(blocks)), start=1):
            if done in (blocks // 5, blocks):
                memory.append(resident())
        wall = time.perf_counter() - began
    return {
        "simulated_workers": SIMULATED,
        "blocks_at_once": blocks,
        "blocks_per_second": round(blocks / wall, 1),
        "driver_mib": round(memory[0], 1),
        "driver_mib_more_at_the_end": round(memory[1] - memory[0], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=20_000, help="blocks to deal at once")
    parser.add_argument("--seconds", type=int, default=40, help="blocks of one second")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "ray.json")
    arguments = parser.parse_args()
    cores = usable_cores()
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": cores, "include_dashboard": False})
    try:
        with ray_cluster(nodes.address) as cluster:
            list(cluster.map_unordered(second, None, range(2 * cores)))  # starts the processes
            result = {
                "cores": cores,
                **overhead(cluster, arguments.seconds, cores),
                **dealing(cluster, arguments.blocks),
                "versions": versions(),
            }
    finally:
        nodes.shutdown()  # type: ignore[no-untyped-call]
    print(json.dumps(result, indent=1))
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
