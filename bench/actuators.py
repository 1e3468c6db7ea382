"""Agents whose actions are attacked on their way to the motors: certified, and attacked by every method.

    python -m bench.actuators --public DIR                         # DIR holds agents of RL Baselines3 Zoo
    python -m bench.actuators --public DIR --only HalfCheetah-v5
    python -m bench.actuators --write                              # put the table into docs/guides/threat-models.md

Noise is on the actions alone. Methods that an agent lacks something for (the descent of a critic needs one) are left
out by name. Certificates and attacks have episodes of their own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import surefoot
from surefoot.attacks.registry import METHODS
from surefoot.errors import InputError
from surefoot.files import read_json, write_json
from surefoot.play.task import Task
from surefoot.provenance import versions

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "bench" / "results" / "actuators.json", ROOT / "docs" / "guides" / "threat-models.md"


@dataclass(frozen=True)
class Case:
    """An environment, its agent, and how it is attacked.

    ``public``  whether the agent is a folder of the public ones
    """

    env: str
    task: Callable[[], Task]
    agent: str
    sigma: float
    budgets: tuple[float, ...]
    episodes: int
    attacked: int
    public: bool = False


def _half_cheetah() -> Task:
    """Return the first 300 steps of HalfCheetah, with rewards that have a range."""
    clip = 'ClipReward={"min_reward": -1, "max_reward": 10}'
    return surefoot.make_task("HalfCheetah-v5", reward_range=(-1, 10), wrappers=[clip], max_steps=300)


CASES = (
    Case(
        "Pendulum-v1",
        lambda: surefoot.make_task("Pendulum-v1"),
        "a2c/Pendulum-v1_1",
        sigma=0.5,
        budgets=(0.125, 0.25, 0.5),
        episodes=1_000,
        attacked=100,
        public=True,
    ),
    Case(
        "HalfCheetah-v5",
        _half_cheetah,
        "HalfCheetah-v5-s0.2",
        sigma=0.3,
        budgets=(0.15, 0.3, 0.6),
        episodes=128,
        attacked=16,
    ),
)


def measure(case: Case, public: Path | None, minutes: float) -> dict[str, Any]:
    """Certify an agent and attack it by every method that it takes."""
    task = case.task()
    agent = case.agent
    if case.public:
        if public is None:
            raise InputError(f"{case.env} needs --public DIR, where {case.agent} is")
        agent = str(public / case.agent)
    episodes = surefoot.rollout(task, agent, sigma=0.0, action_sigma=case.sigma, n_episodes=case.episodes)
    certificate = surefoot.certify(episodes, case.budgets)
    attacks: dict[str, list[list[float]]] = {}
    losses: dict[str, list[list[float]]] = {}
    refused: dict[str, str] = {}
    contradictions = 0
    for name, method in METHODS.items():
        if method.is_battery:
            continue
        try:
            curve = surefoot.attack(
                task,
                agent,
                budgets=case.budgets,
                action_sigma=case.sigma,
                method=name,
                n_episodes=case.attacked,
                minutes=minutes,
            )
        except InputError as error:
            refused[name] = str(error)
            continue
        attacks[name] = [[float(mean), float(sem)] for mean, sem in zip(curve.lowest, curve.lowest_sem, strict=True)]
        losses[name] = []
        for row, column in enumerate(curve.mean.argmin(axis=1)):
            losses[name].append([float(curve.loss[row, column]), float(curve.loss_sem[row, column])])
        contradictions += len(curve.inconsistencies(certificate))
        print(case.env, name, attacks[name], flush=True)
    return {
        "agent": case.agent,
        "sigma": case.sigma,
        "budgets": list(case.budgets),
        "episodes": case.episodes,
        "attacked_episodes": case.attacked,
        "mean": certificate.estimate,
        "error": certificate.estimate_sem,
        "lower": certificate.lower.tolist(),
        "attacks": attacks,
        "losses": losses,
        "refused": refused,
        "contradictions": contradictions,
    }


def table(results: dict[str, Any]) -> str:
    """Return the table of the page."""
    from study.tables import Table, certified

    rows = []
    for env, found in results["cases"].items():
        for row, budget in enumerate(found["budgets"]):
            name = min(found["attacks"], key=lambda one, row=row, found=found: found["attacks"][one][row][0])  # type: ignore[misc]
            mean, sem = found["attacks"][name][row]
            clean = f"{found['mean']:.1f} ± {found['error']:.1f}"
            bound = certified(found["lower"][row], 1)
            attacked = f"{mean:.1f} ± {sem:.1f}"
            loss, loss_sem = found["losses"][name][row]
            lost = f"{loss:.1f} ± {loss_sem:.1f}"
            rows.append([env, f"{found['sigma']:g}", clean, f"{budget:g}", bound, attacked, lost, f"`{name}`"])
    heads = ["environment", "sigma on actions", "mean, no attack", "budget", "certified", "lowest attacked mean"]
    heads += ["lost in the same episodes", "by"]
    return Table(heads, rows).markdown().rstrip("\n")


def main() -> None:
    """Certify and attack, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public", type=Path, help="folder with agents, as rl-trained-agents has them")
    parser.add_argument("--only", nargs="*", help="environments (default: all)")
    parser.add_argument("--minutes", type=float, default=3.0, help="in which an attacker is learned (default: 3)")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "actuators.json", help="where results are written")
    parser.add_argument("--write", action="store_true", help="put the table into the page; nothing is run")
    arguments = parser.parse_args()
    if arguments.write:
        from study.agents_table import put

        put(PAGE, "actuators", table(read_json(RESULTS)))
        return
    results: dict[str, Any] = {"schema": 1, "cases": {}}
    if arguments.out.exists():
        results = dict(read_json(arguments.out))
    for case in CASES:
        if arguments.only is None or case.env in arguments.only:
            results["cases"][case.env] = measure(case, arguments.public, arguments.minutes)
            results["versions"] = versions()
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(arguments.out, results)


if __name__ == "__main__":
    main()
