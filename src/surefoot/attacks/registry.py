"""The attacks by name, and what each needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from surefoot.attacks.adaptive_pgd import AdaptivePGD
from surefoot.attacks.composed import AtOnce, Composed, Evenly, OneDirection, RandomDirection, Structured, WhenItMatters
from surefoot.attacks.ddpg import DdpgAttack
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.victim import Smoothing
from surefoot.play.channel import Attacker
from surefoot.play.tasks import Task


@dataclass(frozen=True)
class Method:
    """A named attacker: how it is built, and what it needs.

    ``build``     from (lambda, budget, smoothing, task)
    ``margins``   whether it has a lambda: a value gap (discrete actions), or the price of moving far (continuous)
    ``gradients`` whether it needs the agent's gradients
    """

    build: Callable[[float, float, Smoothing, Task], Attacker]
    margins: bool = False
    gradients: bool = False


def _paper(margin: float, _budget: float, smoothing: Smoothing, task: Task) -> Attacker:
    """Return Algorithm 1 for discrete actions, Algorithm 2 for continuous ones, inside the task's box."""
    low, high = (None, None) if task.box is None else task.box
    kind = DdpgAttack if task.choices is None else PaperAttack
    return kind(margin, smoothing=smoothing, low=low, high=high)


METHODS: dict[str, Method] = {
    "paper": Method(_paper, True, True),
    "adaptive": Method(
        lambda margin, _budget, smoothing, _task: Composed(WhenItMatters(margin, smoothing), AdaptivePGD(smoothing)),
        True,
        True,
    ),
    "random": Method(lambda _margin, budget, _smoothing, task: Composed(Evenly(budget, task.limit), RandomDirection())),
    "one-direction": Method(
        lambda _margin, budget, _smoothing, task: Composed(Evenly(budget, task.limit), OneDirection())
    ),
    "at-once": Method(lambda _margin, _budget, _smoothing, _task: Composed(AtOnce(0), OneDirection())),
    "structured": Method(lambda _margin, _budget, _smoothing, _task: Structured()),
}
