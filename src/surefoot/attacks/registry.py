"""The attacks by name, and what each needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from surefoot.agents.imported import named_object
from surefoot.agents.policies import Policy
from surefoot.attacks.actions import CriticDescent, EachChannel, Push, opposite_push
from surefoot.attacks.adaptive_pgd import AdaptivePGD
from surefoot.attacks.base import check_continuous, check_discrete
from surefoot.attacks.composed import (
    Composed,
    ConstantDirection,
    EqualDirection,
    EveryStep,
    RandomDirection,
    SingleStep,
    Structured,
    Timing,
    UniformTiming,
    ValueGapTiming,
)
from surefoot.attacks.ddpg import DdpgAttack
from surefoot.attacks.dqn import PaperAttack
from surefoot.attacks.flips import PixelAttacker
from surefoot.attacks.learned import LearnedAttacker, check_learnable
from surefoot.attacks.opposite_action import OppositeAction
from surefoot.attacks.shortest_flip import ShortestFlip
from surefoot.attacks.victim import Smoothing
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import Attacker, unit_of_budget
from surefoot.play.task import Task

NO_NOISE = Noise(0.0)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One configuration of an attack on an agent.

    Attributes:
        task: The task of the agent.
        policy: The agent.
        budget: The l2 budget of an episode.
        smoothing: The agent's noise, as the attacker averages over it.
        noise: The same, with that on actions.
        channels: What is attacked: observations, actions or both.
        per_step: Whether every step has the whole budget.
        push: What an adaptive attack on actions has found to harm most; None where nothing has been looked for.
        lambda_q: The threshold of values (discrete actions), or the lambda of an attack on continuous ones.
        attacker: The learned attacker, where it is asked for.
    """

    task: Task
    policy: Policy
    budget: float
    smoothing: Smoothing
    noise: Noise = NO_NOISE
    channels: tuple[str, ...] = ("observations",)
    per_step: bool = False
    push: Push | None = None
    lambda_q: float = 0.0
    attacker: LearnedAttacker | PixelAttacker | None = None

    def on(self, channel: str) -> Configuration:
        """Return the configuration of one channel's attacker: its share of the budget, in the channel's own units."""
        sigma = self.noise.sigma if channel == "observations" else self.noise.action_sigma
        # Squares add up: sqrt(2 (B / sqrt(2))^2) = B.
        share = self.budget / len(self.channels) ** 0.5
        return replace(self, budget=share * unit_of_budget(sigma, self.noise), channels=(channel,))


@dataclass(frozen=True, kw_only=True)
class Method:
    """A named attack.

    Attributes:
        build: Makes the attacker of observations.
        build_on_actions: Makes the attacker of actions; None where it is the same.
        has_lambda: Whether the attacker depends on ``lambda_q``.
        needs_gradients: Whether it needs the agent's gradients.
        is_learned: Whether it needs an attacker that was trained.
        is_battery: Whether it stands for all others: the strongest of them at each budget.
        lambdas: The lambdas to try on continuous actions; those of the task where there are none.
    """

    build: Callable[[Configuration], Attacker]
    build_on_actions: Callable[[Configuration], Attacker] | None = None
    has_lambda: bool = False
    needs_gradients: bool = False
    is_learned: bool = False
    is_battery: bool = False
    lambdas: tuple[float, ...] = ()

    @property
    def needs_learning(self) -> bool:
        """Whether something has to be learned before it can be built: an attacker, or which attack is the strongest."""
        return self.is_learned or self.is_battery

    def attacker(self, of: Configuration) -> Attacker:
        """Return the attacker of a configuration, of one channel or of both."""
        made = {}
        for channel in of.channels:
            build = self.build
            if channel == "actions" and self.build_on_actions is not None:
                build = self.build_on_actions
            made[channel] = build(of.on(channel))
        if len(made) == 1:
            (alone,) = made.values()
            return alone
        return EachChannel(**made)

    def check(self, task: Task, policy: Policy) -> None:
        """Raise InputError if the agent does not have what the attack needs."""
        if self.is_learned:
            check_learnable(task, policy)
        if self.needs_gradients:
            # Algorithm 2 needs the agent's critic, all others the values of discrete actions.
            continuous = self.build is _build_paper and task.spaces.n_actions is None
            if continuous:
                check_continuous(policy)
            else:
                check_discrete(policy)


def _build_paper(of: Configuration) -> Attacker:
    """Return Algorithm 1 for discrete actions, Algorithm 2 for continuous ones, inside the task's box."""
    low, high = (None, None) if of.task.box is None else of.task.box
    if of.task.spaces.n_actions is None:
        return DdpgAttack(of.lambda_q, smoothing=of.smoothing, low=low, high=high)
    return PaperAttack(of.lambda_q, smoothing=of.smoothing, low=low, high=high)


def _build_flips(of: Configuration) -> Attacker:
    """Return the attack that makes the agent choose harmful actions as cheaply as it can, where they matter."""
    if of.per_step:
        raise InputError(
            "the method flips saves budget for later steps; with a budget for each step use method='adaptive'"
        )
    return Composed(ValueGapTiming(of.lambda_q, of.smoothing), ShortestFlip(of.smoothing))


def _build_adaptive(of: Configuration) -> Attacker:
    """Return the search for harmful actions, discrete or continuous; fewer tries where there are no gradients."""
    smoothing = of.smoothing
    effort: dict[str, int] = {}
    if not of.policy.differentiable:
        # Every difference asks the agent once more, which may be a function of one observation.
        smoothing = replace(of.smoothing, n_samples=min(of.smoothing.n_samples, 8))
        effort = {"iterations": 4, "tries": 2}
    if of.policy.spaces.n_actions is None:
        return Composed(_early_timing(of), OppositeAction(smoothing, **effort))
    return Composed(ValueGapTiming(of.lambda_q, smoothing), AdaptivePGD(smoothing, **effort))


def _build_critic_descent(of: Configuration) -> Attacker:
    """Return descent on the agent's critic for its actions."""
    direction = CriticDescent(of.noise.action_sigma, n_samples=min(of.smoothing.n_samples, 16))
    return Composed(_early_timing(of), direction)


def _build_push(of: Configuration) -> Attacker:
    """Return the push of actions that was found to harm most, or the one to the other side of their ranges."""
    push = of.push
    if push is None:
        push = opposite_push(of.policy.spaces.n_outputs or of.task.spaces.n_outputs)
    return Composed(_early_timing(of), push)


def _early_timing(of: Configuration) -> Timing:
    """Spread the budget over the first steps of an episode: all but the share ``lambda_q`` of the most it may have."""
    if not 0 <= of.lambda_q < 1:
        raise InputError(
            "lambda of the adaptive attack on continuous actions is the share of the steps, at the end of an episode, "
            f"that get no budget: expected 0 or more and less than 1, got {of.lambda_q:g}"
        )
    if of.per_step:
        return EveryStep()
    return UniformTiming(of.budget, max(1, round((1 - of.lambda_q) * of.task.scoring.max_steps)))


def _uniform_timing(of: Configuration) -> Timing:
    if of.per_step:
        return EveryStep()
    return UniformTiming(of.budget, of.task.scoring.max_steps)


def _build_learned(of: Configuration) -> Attacker:
    if of.attacker is None:
        raise InputError("the method learned needs an attacker: train one with surefoot.attack, or give attacker=")
    if isinstance(of.attacker, PixelAttacker):
        check_discrete(of.policy)
        return of.attacker.of_run(of.budget, of.smoothing)
    (channel,) = of.channels
    of.attacker.check_fit(of.task, of.policy, channel)
    return of.attacker


def _build_chosen(_: Configuration) -> Attacker:
    raise InputError("the method strongest is chosen among all others first: use surefoot.attack")


METHODS: dict[str, Method] = {
    "paper": Method(build=_build_paper, build_on_actions=_build_critic_descent, has_lambda=True, needs_gradients=True),
    "flips": Method(build=_build_flips, has_lambda=True, needs_gradients=True),
    "adaptive": Method(build=_build_adaptive, build_on_actions=_build_push, has_lambda=True, lambdas=(0.0, 0.75, 0.95)),
    "random": Method(build=lambda of: Composed(_uniform_timing(of), RandomDirection())),
    "constant-direction": Method(build=lambda of: Composed(_uniform_timing(of), ConstantDirection())),
    "uniform": Method(build=lambda of: Composed(_uniform_timing(of), EqualDirection())),
    "single-step": Method(build=lambda _: Composed(SingleStep(0), ConstantDirection())),
    "structured": Method(build=lambda _: Structured()),
    "learned": Method(build=_build_learned, is_learned=True),
    "strongest": Method(build=_build_chosen, is_battery=True),
}


def default_method(task: Task, policy: Policy, *, per_step: bool) -> str:
    """Return the paper's attack on the paper's tasks; elsewhere the fastest of the strong ones that the agent allows.

    Flips take as much as the paper's attack from discrete actions, at a cost that does not grow with the budget. With
    continuous actions the paper's, down the gradient of the critic, is far weaker than the adaptive one.
    """
    preferred = "flips"
    # Nothing can be saved for later there, and the paper's attack has no step to wait for.
    if task.paper.budgets or (per_step and task.spaces.n_actions is not None):
        preferred = "paper"
    try:
        METHODS[preferred].check(task, policy)
    except InputError:
        return "adaptive"
    return preferred


def named_attack(method: object) -> tuple[str | None, Attacker | None]:
    """Return the name of an attack and, where it is the user's own, the attack; ``module:name`` is one of these."""
    own = named_object(method) if isinstance(method, str) else method
    if own is None:
        return (method if isinstance(method, str) else None), None
    name = type(own).__name__
    if not (callable(getattr(own, "propose", None)) and callable(getattr(own, "describe", None))):
        raise InputError(
            f"an attack of your own must be a subclass of surefoot.Attacker with a method propose(view), got {name}"
        )
    if name in METHODS:
        raise InputError(f"{name} is the name of an attack of Surefoot; give the class of your own another name")
    return name, cast("Attacker", own)
