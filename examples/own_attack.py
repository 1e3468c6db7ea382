"""An attack of your own: a class with one method, which takes numpy or torch.

From this folder: surefoot attack cartpole-1 --method own_attack:TiltAttack --budgets 0.5,1
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import surefoot


class TiltAttack(surefoot.Attacker):
    """Show the pole falling to the other side, from the moment at which it begins to fall."""

    def __init__(self, least_angle: float = 0.02, steps: int = 10) -> None:
        self.least_angle = least_angle
        self.steps = steps

    def propose(self, view: surefoot.View) -> NDArray[Any]:
        """Spend the budget evenly over some steps; rows are episodes, and the budget is kept for us."""
        angle = view.observation[:, 2].numpy()
        budget = view.budget_left.numpy() / np.sqrt(self.steps)
        perturbation = np.zeros(view.observation.shape)
        perturbation[:, 2] = np.where(np.abs(angle) > self.least_angle, -np.sign(angle) * budget, 0)
        return perturbation


def main(episodes: int = 500) -> surefoot.AttackCurve:
    curve = surefoot.attack(
        "cartpole-1", "cartpole-1-s0", method=TiltAttack(), budgets=[0.5, 1, 2], n_episodes=episodes
    )
    for budget, mean, error in zip(curve.budgets, curve.lowest, curve.lowest_sem, strict=True):
        print(f"budget {budget:g}: mean return {mean:.1f} ± {error:.1f}")
    return curve


if __name__ == "__main__":
    main()
