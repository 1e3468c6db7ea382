"""Atari episodes of a smoothed agent against one environment with one ``predict`` per step, on this machine's cores.

    python bench/atari.py                      # 2 CPU cores: pong-1r and freeway
    python bench/atari.py --device cuda --episodes 10000 --tasks pong-1r

The network has the right size and random weights, so that nothing has to be trained; both sides play it, on the same
task with the same noise. Everything is measured in one run; results go to ``bench/results``.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surefoot.agents import files as zoo
from surefoot.agents.networks import NATURE, cnn_policy
from surefoot.agents.policies import Policy
from surefoot.agents.sb3.write import write_zip
from surefoot.compute import usable_cores
from surefoot.files import write_json
from surefoot.noise import Noise
from surefoot.play.envs.atari.emulators import Board, Emulators
from surefoot.play.envs.atari.env import slot_seeds
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.task import Task
from surefoot.play.tasks import get_task
from surefoot.provenance import versions
from zoo.training.atari import fresh_arrays, halved

SIGMA = 0.1
HERE = Path(__file__).resolve().parent


def reference(task: Task) -> Any:
    """Gymnasium's environment behind its own preprocessing, as anybody would build it."""
    from ale_py.env import AtariEnv
    from gymnasium.wrappers import AtariPreprocessing

    assert task.cartridge is not None
    return AtariPreprocessing(
        AtariEnv(
            task.cartridge.rom,
            difficulty=task.cartridge.difficulty,
            frameskip=1,
            repeat_action_probability=0.25,
            max_num_frames_per_episode=108_000,
        )
    )


def one_by_one(task: Task, policy: Policy, seconds: float) -> tuple[float, float]:
    """Seconds per step, and steps per episode, with one environment and one ``predict`` per step, through plain SB3."""
    from stable_baselines3 import DQN

    assert task.cartridge is not None
    with tempfile.TemporaryDirectory() as folder:
        write_zip(policy, Path(folder) / "agent.zip")
        model = DQN.load(Path(folder) / "agent.zip", device="cpu")
    environment, random = reference(task), np.random.default_rng(0)

    def noisy(frame: Any) -> Any:
        # Nothing of ours slows this down: noise and frame stack are two lines of numpy.
        return frame.astype(np.float32) / 255 + SIGMA * random.standard_normal(frame.shape, dtype=np.float32)

    environment.reset(seed=0)
    steps = episodes = 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        history = deque([noisy(environment.reset()[0])] * task.spaces.n_stack, task.spaces.n_stack)
        over, age, episodes = False, 0, episodes + 1
        while not over:
            action, _ = model.predict(np.stack(history), deterministic=True)
            frame, reward, ended, cut, _ = environment.step(int(action))
            history.append(noisy(frame))
            steps, age = steps + 1, age + 1
            over = ended or cut or age == task.scoring.max_steps or (task.cartridge.first_goal and reward != 0)
    return (time.perf_counter() - began) / steps, steps / episodes


def emulator_alone(task: Task, steps: int = 1_500) -> float:
    """Seconds per step of one core for nothing but emulation: no screens, no network, no noise."""
    assert task.cartridge is not None
    emulators = Emulators([task.cartridge], slot_seeds(np.random.SeedSequence(1), 1), Board(1))
    emulators.reset()
    machine = emulators.machines[0]
    machine.start_episode()
    began = time.perf_counter()
    for step in range(steps):
        for _ in range(4):
            machine.advance_frame(step // 8 % task.cartridge.moves)
        if machine.emulator.game_over():
            machine.start_episode()
    return (time.perf_counter() - began) / steps


def measured(task: Task, device: str, episodes: int, seconds: float, agent: str | None) -> dict[str, Any]:
    """Compare on one task."""
    assert task.spaces.n_actions is not None
    if agent is not None:
        policy = zoo.load(agent)
    else:
        weights = halved(fresh_arrays(task.spaces.n_stack, task.spaces.n_actions, 0))
        policy = cnn_policy(weights, NATURE, task.spaces.n_stack, task.spaces.shape, task.spaces.n_actions, "untrained")
    workers = usable_cores() if device == "cpu" else 1
    before, length = one_by_one(task, policy, seconds / 2)
    alone = emulator_alone(task)
    began = time.perf_counter()
    played = play(
        Plan(task=task, policy=policy, noise=Noise.of(SIGMA), n_episodes=episodes, device=device), workers=workers
    )
    wall = time.perf_counter() - began
    # Before and after: what else the machine does changes within minutes.
    slow = (before + one_by_one(task, policy, seconds / 2)[0]) / 2
    assert played.lengths is not None
    steps = int(played.lengths.sum())
    return {
        "task": task.name,
        "agent": policy.name,
        "device": device,
        "workers": workers,
        "episodes": episodes,
        "steps_per_episode": steps / episodes,
        "one_by_one": {"seconds_per_step": slow, "steps_per_episode": length},
        "seconds": wall,
        "seconds_per_step": wall / steps,
        "speed_up": slow * steps / wall,
        "emulator_seconds_per_step": alone,
        "share_in_emulator": alone * steps / (wall * (workers if device == "cpu" else usable_cores())),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["pong-1r", "freeway"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--episodes", type=int, help="episodes to play (default: one block per core)")
    parser.add_argument(
        "--seconds", type=float, default=40.0, help="how long to play one by one, half of it before, half after"
    )
    parser.add_argument("--agent", help="a shipped or trained agent instead of random weights")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "atari.json")
    arguments = parser.parse_args()
    results = []
    for name in arguments.tasks:
        task = get_task(name)
        block = Plan(task=task, policy=_still(task), noise=Noise.of(SIGMA), device=arguments.device).block_size
        cores = usable_cores() if arguments.device == "cpu" else 1
        episodes = arguments.episodes or block * cores
        result = measured(task, arguments.device, episodes, arguments.seconds, arguments.agent)
        results.append(result)
        print(
            f"{name}: {result['speed_up']:.2f} times faster than one by one "
            f"({1e3 * result['seconds_per_step']:.3f} against {1e3 * result['one_by_one']['seconds_per_step']:.3f} "
            f"ms a step), {episodes:,} episodes in {result['seconds']:.1f} s, "
            f"{100 * result['share_in_emulator']:.0f}% of the cores' time in the emulator",
            flush=True,
        )
    machine = {"cores": usable_cores(), "processor": platform.processor() or platform.machine()}
    if arguments.device == "cuda":
        machine["gpu"] = torch.cuda.get_device_name()
    write_json(arguments.out, {"schema": 1, "machine": machine, "versions": versions(), "results": results})
    print(json.dumps(machine))


def _still(task: Task) -> Policy:
    from surefoot.agents.resolve import as_policy

    return as_policy(lambda _: 0, task.spaces, batched=False)


if __name__ == "__main__":
    main()
