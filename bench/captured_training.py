"""What capturing the gradient step as a CUDA graph gains: steps per second of training, captured and as SB3 does it.

    python bench/captured_training.py --steps 10000

Needs a GPU. Both learn with the paper's settings, one after the other, without validations; Pong begins to learn after
1,000 steps instead of 100,000.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from surefoot.files import write_json
from surefoot.play.tasks import get_task
from surefoot.provenance import versions
from surefoot.train.off_policy import SB3, Algorithms, build_model
from surefoot.train.presets import find_settings
from zoo.training.captured import CAPTURED

HERE = Path(__file__).resolve().parent
SIGMA = 0.2


def trained(task: str, steps: int, device: str, algorithms: Algorithms) -> dict[str, float]:
    """Time one training run; the first tenth, in which the graph is captured, is left out."""
    settings: Any = find_settings("paper", task)
    settings = replace(settings, total_steps=steps, learning_starts=min(settings.learning_starts, 1_000))
    model = build_model(get_task(task), SIGMA, settings, 0, device, algorithms)
    model.learn(steps // 10)
    before, updates, began = model.num_timesteps, model._n_updates, time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    if device == "cuda":
        torch.cuda.synchronize()
    took = time.perf_counter() - began
    return {
        "steps_per_second": round((model.num_timesteps - before) / took, 1),
        "gradient_steps_per_second": round((model._n_updates - updates) / took, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--tasks", nargs="+", default=["cartpole-5", "mountain-car", "pong-1r"])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "captured-training-cuda.json")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "versions": versions()}
    for task in arguments.tasks:
        captured = trained(task, arguments.steps, "cuda", CAPTURED)
        plain = trained(task, arguments.steps, "cuda", SB3)
        cpu = trained(task, arguments.steps, "cpu", SB3)
        gain = round(captured["steps_per_second"] / plain["steps_per_second"], 2)
        result[task] = {"captured": captured, "sb3": plain, "sb3_on_cpu": cpu, "gain": gain}
    print(json.dumps(result, indent=1))
    write_json(arguments.out, result)


if __name__ == "__main__":
    main()
