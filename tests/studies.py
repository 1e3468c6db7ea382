"""A study of made-up numbers: agents of every task, what they played, and how attacks on them went."""

from dataclasses import dataclass

import numpy as np

from study.numbers import Agent, Study
from study.paper import EVERY
from surefoot.episodes import Episodes
from surefoot.files import write_json
from surefoot.play.tasks import TASKS

SIGMAS = {"pong-1r": (0, 0.05, 0.1), "pong-full": (0, 0.05, 0.1), "freeway": (0, 0.05, 0.1)}
USUAL = (0, 0.2, 0.4)
CURVE = [[1_000, 0.1], [2_000, 0.6], [3_000, 0.4]]


@dataclass(frozen=True)
class Made:
    """How good the made-up agents are, on a scale from the floor (0) to the ceiling (1) of their task."""

    clean: float = 0.9
    bare_attacked: float = 0.2
    smoothed_attacked: float = 0.85
    episodes: int = 400


def agents_of(tasks=EVERY):
    """Return agents with cards as those in the zoo."""
    found = []
    for task in tasks:
        for sigma in SIGMAS.get(task, USUAL):
            name = f"{task}-s{sigma:g}"
            training = {"preset": "paper", "seed": 1, "device": "cpu", "seconds": 36.0, "settings": {"gamma": 0.99}}
            runs = [{"preset": "paper", "seed": seed, "seconds": 36.0, "curve": CURVE} for seed in (0, 1)]
            found.append(Agent(name, task, float(sigma), f"hash of {name}", {"training": training, "candidates": runs}))
    return tuple(found)


def value(task, share):
    """Return the return that lies this far between floor and ceiling."""
    rules = TASKS[task]
    return rules.scoring.floor + share * (rules.scoring.ceiling - rules.scoring.floor)


def returns_of(task, share, count, seed=0):
    """Return made-up returns: wins and losses, or whole numbers around a mean."""
    random, rules = np.random.default_rng(seed), TASKS[task]
    if rules.scoring.ceiling - rules.scoring.floor == 1:
        return (random.random(count) < share).astype(float)
    drawn = np.round(
        value(task, share) + 0.05 * (rules.scoring.ceiling - rules.scoring.floor) * random.standard_normal(count)
    )
    return np.clip(drawn, rules.scoring.floor, rules.scoring.ceiling)


def write_episodes(folder, agent, returns):
    """Leave an agent's record and how it was played."""
    rules = TASKS[agent.task]
    record = Episodes.from_returns(
        returns,
        sigma=agent.sigma,
        floor=rules.scoring.floor,
        ceiling=rules.scoring.ceiling,
        task=agent.task,
        agent=agent.name,
        agent_sha256=agent.sha256,
        # As in the record of a run: only of wins and losses.
        **({"binary": True} if rules.scoring.binary else {}),
    )
    record.save(folder / "episodes" / f"{agent.name}.npz")
    facts = {"seconds": 4.0, "n_episodes": len(record), "workers": 2, "device": "cpu", "record_sha256": record.sha256}
    write_json(folder / "episodes" / f"{agent.name}.json", facts)


def write_attack(folder, agent, share):
    """Leave an attack that pushes an agent to the same mean at every budget."""
    last = TASKS[agent.task].paper.budgets[-1]
    budgets, lambdas = ([last / 4, last / 2], [0.1, 0.3])
    low = value(agent.task, share)
    spread = 0.01 * (TASKS[agent.task].scoring.ceiling - TASKS[agent.task].scoring.floor)
    grid = [[low, low + spread] for _ in budgets]
    content = {
        "agent_sha256": agent.sha256,
        "n_episodes": 100,
        "budgets": budgets,
        "lambdas": lambdas,
        "mean": grid,
        "sem": [[spread / 2] * 2 for _ in budgets],
        "curve": [low] * 2,
        "curve_sem": [spread / 2] * 2,
        "curve_lambda": [0.1] * 2,
        "mean_budget_used": [[budget] * 2 for budget in budgets],
    }
    write_json(folder / "attacks" / f"{agent.name}-paper.json", content)


def write_times(folder, agents):
    """Leave measured times of every agent."""
    rows = [
        {
            "task": agent.task,
            "agent": agent.name,
            "agent_sha256": agent.sha256,
            "sigma": agent.sigma,
            "budget": budget,
            "lambda": 0.1 if agent.sigma > 0 else 0.0,
            "n_episodes": 10,
            "seconds": 5.0,
            "workers": 1,
            "device": "cpu",
        }
        for agent in agents
        for budget in (0.1, 0.4)
    ]
    write_json(folder / "times.json", {"attacks": rows})


def write_published(folder):
    """Leave published returns, few enough to be certified in no time."""
    write_json(folder / "published" / "cartpole-5.json", {"counts_by_sigma": {"0.2": {"150": 20, "200": 80}}})


def made_up(folder, made=None, tasks=EVERY):
    """Write a whole study and return it."""
    made, agents = made or Made(), agents_of(tasks)
    for seed, agent in enumerate(agents):
        write_episodes(folder, agent, returns_of(agent.task, made.clean, made.episodes, seed))
        write_attack(folder, agent, made.bare_attacked if agent.sigma == 0 else made.smoothed_attacked)
    write_times(folder, agents)
    write_published(folder)
    return Study(folder, agents)
