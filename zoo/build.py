"""Train the shipped agents and pick, for every task and sigma, the training seed that is best on selection episodes.

    python zoo/build.py train --device cuda --jobs 16 --work runs/zoo
    python zoo/build.py pick --work runs/zoo

Atari agents are trained by ``zoo/build_atari.py`` and picked here.

The seed with the best certificate at budget sigma on selection episodes is shipped (at sigma 0: with the best mean).
Selection episodes are a stream of their own: no certificate of the shipped agent is computed on them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from surefoot.agents.files import load
from surefoot.compute import usable_cores
from surefoot.files import read_json
from surefoot.noise import Noise
from surefoot.play.environments import task_of_card
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.tasks import get_task
from surefoot.proof.query import certify
from surefoot.train.folder import candidate, copy_agent

HERE = Path(__file__).resolve().parent


def train_one(task: str, sigma: float, seed: int, device: str, preset: str, out: Path) -> None:
    """Train one agent with a preset's settings."""
    from surefoot.train.folder import TrainingRun, has_checkpoint
    from surefoot.train.presets import prepare_settings, train_agent

    command = f"python zoo/build.py one {task} {sigma:g} {seed} {device} {preset} {out}"
    run = TrainingRun(
        task=get_task(task),
        noise=Noise.of(sigma),
        out=out,
        seed=seed,
        device=device,
        resume=has_checkpoint(out),
        preset=preset,
        command=command,
    )
    # Seeds are chosen here, on selection episodes.
    train_agent(run, prepare_settings(preset, run.task, repeats=1))


def train_all(arguments: argparse.Namespace) -> None:
    """Train every combination, a few processes at a time, one thread each."""
    work = Path(arguments.work)
    work.mkdir(parents=True, exist_ok=True)
    waiting = []
    for sigma, task, seed in product(arguments.sigmas, arguments.tasks, arguments.seeds):
        out = work / f"{task}-s{sigma:g}-{arguments.preset}-seed{seed}"
        # What is there already is not trained again.
        if not (out / "agent.json").exists():
            waiting.append((task, sigma, seed, out))
    running: dict[subprocess.Popen[bytes], tuple[Path, float]] = {}
    while waiting or running:
        while waiting and len(running) < arguments.jobs:
            task, sigma, seed, out = waiting.pop(0)
            call = [
                sys.executable,
                __file__,
                "one",
                task,
                str(sigma),
                str(seed),
                arguments.device,
                arguments.preset,
                str(out),
            ]
            # The networks are small: more than one thread each costs more than it brings.
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            running[subprocess.Popen(call, env=environment)] = (out, time.monotonic())
        for process in list(running):
            if process.poll() is None:
                continue
            out, began = running.pop(process)
            print(f"{out.name}: exit {process.returncode} after {time.monotonic() - began:.0f} s", flush=True)
        time.sleep(0.2)


def run_selection(folder: Path, card: dict[str, Any], episodes: int, device: str) -> dict[str, Any]:
    """Play selection episodes with one candidate, unless it is shipped already and its card says how they went."""
    shipped = HERE / f"{card['name']}.json"
    if shipped.exists():
        known = read_json(shipped)
        found: dict[str, Any] = known.get("selection") or {}
        if (known["sha256"], found.get("n_episodes"), found.get("device")) == (card["sha256"], episodes, device):
            return found
    task = task_of_card(card)
    plan = Plan(
        task=task,
        policy=load(str(folder)),
        noise=Noise.of(card["sigma"]),
        n_episodes=episodes,
        device=device,
        purpose=(Purpose.SELECTION,),
    )
    played = play(plan, workers=usable_cores())
    result = {
        "n_episodes": episodes,
        "device": device,
        "mean": float(played.returns.mean()),
        "sem": float(played.returns.std(ddof=1) / len(played) ** 0.5),
    }
    if card["sigma"] == 0:
        # Without noise nothing is certified: the mean decides.
        return {**result, "certified_at_sigma": result["mean"]}
    if "environment" in card:
        method = "dkw"
    elif task.scoring.binary:
        method = "binary"
    else:
        method = "per-threshold"
    certificate = certify(played, [card["sigma"]], method=method)
    return {**result, "certified_at_sigma": certificate.lower[0]}


def pick_best(arguments: argparse.Namespace) -> None:
    """Keep the best candidate of each task and sigma; its model card has the numbers of the other seeds.

    The agent that is already kept takes part. What its card says of seeds whose weights no longer exist stays there.
    """
    folders = sorted(path.parent for path in Path(arguments.work).glob("*/agent.json"))
    cards = {folder: _renamed_card(read_json(folder / "agent.json")) for folder in folders}
    for name in sorted({card["name"] for card in cards.values()}):
        family = {folder: card for folder, card in cards.items() if card["name"] == name}
        known: list[dict[str, Any]] = []
        if (HERE / f"{name}.json").exists():
            kept = read_json(HERE / f"{name}.json")
            known = kept.pop("candidates", [])
            trained = {_key(card["training"]) for card in family.values()}
            if _key(kept["training"]) not in trained:
                family[HERE / name] = kept
        # Of equals what is kept stays: its episodes, attacks and certificates are those of its weights.
        ranked = sorted(
            family, key=lambda folder: (-family[folder]["training"]["best_validation"], folder != HERE / name)
        )
        finalists = ranked[: arguments.finalists]
        for folder, card in family.items():
            card["selection"] = None
            if folder in finalists:
                card["selection"] = run_selection(folder, card, arguments.episodes, arguments.device)
        best = finalists[0]
        for folder in finalists:
            if _score(family[folder]) > _score(family[best]):
                best = folder
        card = family[best]
        # What is trained again replaces what the card said of the same preset and seed.
        rows = {_key(row): row for row in known}
        for other in family.values():
            row = candidate(other)
            rows[_key(row)] = row
        candidates = [rows[key] for key in sorted(rows)]
        changes = {"task": card["task"], "selection": card["selection"], "candidates": candidates}
        copy_agent(str(best), HERE / name, name, **changes)
        for other in candidates:
            print_candidate(name, other, card["training"])


def _score(card: dict[str, Any]) -> float:
    """Return what selects among the finalists."""
    found: float = card["selection"]["certified_at_sigma"]
    return found


def _renamed_card(card: dict[str, Any]) -> dict[str, Any]:
    """Return the card of an environment's agent under the environment's ID, without its wrappers."""
    if "environment" not in card:
        return card
    env = card["environment"]["env"]
    return {**card, "task": env, "name": f"{env}-s{card['sigma']:g}"}


def print_candidate(name: str, other: dict[str, Any], chosen: dict[str, Any]) -> None:
    """Print how one candidate did."""
    mark = "*" if _key(other) == _key(chosen) else " "
    found = other["selection"]
    shown = "no finalist"
    if found:
        shown = f"mean {found['mean']:.4f}, certified at sigma {found['certified_at_sigma']:.4f}"
    print(
        f"{mark} {name} {other['preset']} seed {other['seed']}: validation {other['best_validation']:.4f}, {shown}",
        flush=True,
    )


def _key(training: dict[str, Any]) -> tuple[str, int]:
    """Return what tells candidates of one task and sigma apart."""
    return training["preset"], training["seed"]


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    everything = commands.add_parser("train", help="train every task, sigma and seed")
    everything.add_argument("--tasks", nargs="+", default=["cartpole-5", "cartpole-1"])
    everything.add_argument("--sigmas", nargs="+", type=float, default=[0.0, 0.2, 0.4, 0.6, 0.8])
    everything.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    everything.add_argument("--jobs", type=int, default=2)
    everything.add_argument("--preset", default="paper")
    everything.add_argument("--device", default="cpu")
    everything.add_argument("--work", default="runs/zoo")
    everything.set_defaults(run=train_all)
    single = commands.add_parser("one", help="train one agent")
    single.add_argument("task")
    single.add_argument("sigma", type=float)
    single.add_argument("seed", type=int)
    single.add_argument("device")
    single.add_argument("preset")
    single.add_argument("out", type=Path)
    single.set_defaults(run=lambda a: train_one(a.task, a.sigma, a.seed, a.device, a.preset, a.out))
    choose = commands.add_parser("pick", help="put the best seeds into the zoo")
    choose.add_argument("--work", default="runs/zoo")
    choose.add_argument("--episodes", type=int, default=10_000)
    choose.add_argument("--finalists", type=int, help="best on validation that get to the selection (default: all)")
    choose.add_argument("--device", default="cpu")
    choose.set_defaults(run=pick_best)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
