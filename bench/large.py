"""Time and memory of ``surefoot certify --returns`` on many returns, resampled from a shipped record.

    python bench/large.py                          # 10^8 returns; a file of 800 MB is written and deleted
    python bench/large.py --episodes 10000000 --method band

Memory is the largest resident set of the command, mapped file included. Results go to ``bench/results/large.json``.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from surefoot.episodes import Episodes
from surefoot.files import versions, write_json

AT_ONCE = 10**6
HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "study" / "data" / "episodes" / "cartpole-5-s0.2.npz"


def resampled(path: Path, n: int) -> Episodes:
    """Write n returns drawn from the record's, piece by piece."""
    record, rng = Episodes.load(RECORD), np.random.default_rng(0)
    # Not mapped: what this process holds would count as the command's, which is its child.
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (n,)})
        for first in range(0, n, AT_ONCE):
            file.write(rng.choice(record.returns, min(AT_ONCE, n - first)).tobytes())
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=10**8)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "large.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "returns.npy"
        record = resampled(path, arguments.episodes)
        limits = [f"--sigma={record.sigma}", f"--floor={record.floor}", f"--ceiling={record.ceiling}"]
        command = ["certify", "--returns", str(path), *limits, "--method", arguments.method, "--json"]
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "surefoot", *command], check=True, capture_output=True)
        wall, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    result = {
        "episodes": arguments.episodes,
        "method": arguments.method,
        "lower": json.loads(done.stdout)["lower"],
        "wall_seconds": round(wall, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_memory_mib": round(used.ru_maxrss / 1024),
        "machine": platform.machine(),
        "versions": versions(),
    }
    print(json.dumps(result, indent=1))
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
