"""Certify an agent written as CleanRL writes them: a torch module with ``get_action_and_value``."""

from math import floor
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import surefoot

SIGMA, BUDGETS = 0.1, (0.0, 0.1, 0.2)


class Agent(nn.Module):
    """The agent of CleanRL's ppo.py."""

    def __init__(self) -> None:
        super().__init__()
        self.critic, self.actor = nn.Linear(4, 1), nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))

    def get_action_and_value(self, x: Tensor, action: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the action, its log-probability, the entropy, and the value."""
        probs: Any = Categorical(logits=self.actor(x))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


def train(agent: Agent, updates: int) -> None:
    """Learn a little on noisy observations: the log-probability of each action times the steps that followed."""
    env = surefoot.NoisyObservation(gymnasium.make("CartPole-v1"), SIGMA)
    optimizer = torch.optim.Adam(agent.actor.parameters(), lr=0.005)
    for update in range(updates):
        (seen, _), logs, over = env.reset(seed=update), list[Tensor](), False
        while not over:
            action, log, *_ = agent.get_action_and_value(torch.from_numpy(seen).unsqueeze(0))
            seen, _, ended, cut, _ = env.step(int(action))
            logs, over = [*logs, log], ended or cut
        left = torch.arange(len(logs), 0, -1.0)
        loss: Any = -(torch.cat(logs) * (left - left.mean()) / left.std()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main(episodes: int = 400, updates: int = 120) -> surefoot.Certificate:
    torch.manual_seed(0)
    train(agent := Agent(), updates)
    task = surefoot.make_task("CartPole-v1")
    # Its most probable action at every step; stochastic=True would draw its actions, and say so in the record.
    played = surefoot.rollout(task, agent, sigma=SIGMA, n_episodes=episodes)
    certificate = surefoot.certify(played, BUDGETS)
    print(f"at budget {BUDGETS[1]} the mean return is at least {floor(100 * certificate.lower[1]) / 100}")
    return certificate


if __name__ == "__main__":
    main()
