"""Every action certified against the return certified: how far either goes, on CartPole with one frame.

    python -m study.step_wise    # six minutes of one core

The paper (Section 2) says that certifying the return instead of every action can certify larger budgets. A step-wise
certificate needs actions that can stay the same: at every step the agent takes the action that most of many noisy
copies of the present observation lead to, and Cohen, Rosenfeld and Kolter (2019) bound how far that observation must
be moved before another action wins. An attacker may use its whole budget at one step, so the episode is as it was up
to the first step whose radius is below the budget, and after that the actions say nothing; what was earned before it
is certain, because no reward is negative. The probability of the winning action is bounded with 95% at each step by
itself, and the mean over episodes is an estimate: both favor it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri

from study.numbers import DATA, Agent, Study, shipped_agents
from study.tables import UNMEASURED, Finding, by_budget, certified
from surefoot.agents import files as zoo
from surefoot.agents.policies import Policy
from surefoot.compute import single_thread
from surefoot.files import write_json
from surefoot.play.streams import Stream, seed_sequence
from surefoot.play.tasks import get_task
from surefoot.proof.bounds.binomial import lower_limit
from surefoot.provenance import versions

TASK = "cartpole-1"
EPISODES = 200
SAMPLES = 1_000
ALPHA = 0.05
BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)


def radii(votes: NDArray[np.int64], sigma: float) -> NDArray[np.float64]:
    """Return how far an observation must be moved before the other of two actions wins the vote.

    If the winner has a probability of at least p > 1/2 with noise, it is at least Phi(Phi^-1(p) - r / sigma) after a
    perturbation of l2 norm r, which exceeds 1/2 while r < sigma Phi^-1(p); if p <= 1/2 nothing is certified.
    """
    least = np.asarray(lower_limit(votes, SAMPLES, ALPHA))
    return np.asarray(sigma * np.maximum(ndtri(least), 0.0))


def vote(policy: Policy, observation: torch.Tensor, sigma: float, stream: Stream) -> NDArray[np.int64]:
    """Return how many noisy copies of each observation lead to each of the two actions."""
    rows = len(observation)
    copies = observation.repeat_interleave(SAMPLES, 0)
    seen = copies + sigma * stream.normal(tuple(copies.shape))
    taken = policy.act(seen.unsqueeze(1)).reshape(rows, SAMPLES)
    second = taken.sum(1).numpy().astype(np.int64)
    return np.stack([SAMPLES - second, second], axis=1)


def voted(agent: Agent, episodes: int = EPISODES) -> dict[str, Any]:
    """Run the voting agent without attack.

    Returns its returns, the smallest radius of each episode, and for every budget what was earned before the first
    action that is not certified.
    """
    device = torch.device("cpu")
    policy = zoo.load(agent.name)
    env = get_task(TASK).backend.batch(episodes, seed_sequence(0, 0), device)
    stream = Stream(seed_sequence(0, 1), device)
    total = np.zeros(episodes)
    least = np.full(episodes, np.inf)
    budgets = np.array(BUDGETS)[:, None]
    certain = np.zeros((len(BUDGETS), episodes))
    with single_thread(), torch.inference_mode():
        observation = env.reset()
        alive = np.ones(episodes, dtype=bool)
        # A loop of its own: the agent votes over noise that it draws itself, for many copies of every observation,
        # and ``play.loop`` drops rows that are over, which would change the draws of all others.
        while alive.any():
            votes = vote(policy, observation, agent.sigma, stream)
            least[alive] = np.minimum(least, radii(votes.max(1), agent.sigma))[alive]
            observation, reward, over = env.step(torch.from_numpy(votes.argmax(1)))
            earned = np.where(alive, reward.numpy(), 0.0)
            total += earned
            certain += np.where(least >= budgets, earned, 0.0)
            alive &= ~over.numpy()
    env.close()
    return {"returns": total.tolist(), "smallest_radius": least.tolist(), "certain": certain.tolist()}


def step_wise(out: Path) -> None:
    """Measure every smoothed agent of the task and write."""
    rows: list[dict[str, Any]] = []
    for agent in (one for one in shipped_agents() if one.task == TASK and one.sigma > 0):
        found = voted(agent)
        rows.append({"agent": agent.name, "agent_sha256": agent.sha256, "sigma": agent.sigma, **found})
        shown = ", ".join(f"{np.mean(one):.1f}" for one in found["certain"])
        print(f"{agent.name}: mean {np.mean(found['returns']):.1f}, certain {shown}", flush=True)
    facts = {"task": TASK, "samples": SAMPLES, "alpha": ALPHA, "budgets": BUDGETS}
    write_json(out / "step-wise.json", {"schema": 1, **facts, "agents": rows, "versions": versions()})


def farther_than_actions(study: Study, task: str) -> Finding:
    """Compare what is certain because actions are certified with the return certified as a whole."""
    found, agents = study.step_wise(), study.smoothed(task)
    if found is None or not agents:
        return Finding(UNMEASURED, UNMEASURED)
    budgets = found["budgets"]
    whole_episodes = [np.mean(np.array([row["smallest_radius"] for row in found["agents"]]) >= one) for one in budgets]
    certain = np.array([row["certain"] for row in found["agents"]]).mean(axis=2).max(axis=0)
    whole = [max(study.certificate(agent).at(budget).lower for agent in agents) for budget in budgets]
    farther = [f"{budget:g}" for budget, one, other in zip(budgets, certain, whole, strict=True) if other > one]
    shown: list[Sequence[str]] = [
        ["episodes with every action certified", *(f"{share:.0%}" for share in whole_episodes)],
        ["earned before the first action that is not", *(f"{value:.1f}" for value in certain)],
        ["return certified", *(certified(value, 1) for value in whole)],
    ]
    text = "Best of four sigmas at each budget in the last two rows; only the last is a bound."
    verdict = f"yes, at B = {', '.join(farther)}" if farther else "no"
    return Finding(text, verdict, by_budget(shown, budgets))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=DATA)
    step_wise(parser.parse_args().out)


if __name__ == "__main__":
    main()
