"""Learning which flips an attacker of pixels should buy, and how far it should push.

The candidates are rules that differ in what a perturbation may cost, in how much has to be at stake, and in which
actions are harmful; values are in units of the agent's own gaps between the best and the worst action. They are tried
on selection episodes, and the worse half is dropped, round by round, until two are left. All candidates of a round run
the same episodes; the next round has fresh ones, and more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from surefoot.attacks.base import check_discrete
from surefoot.attacks.flips import FlipRule, PixelAttacker, build_attack
from surefoot.attacks.learning import AttackerTraining, LearningProgress, card_of, wanted_budgets
from surefoot.attacks.value_gaps import default_lambdas
from surefoot.attacks.victim import Smoothing, smoothing_of
from surefoot.errors import InputError
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.streams import Purpose

# Of flips, and of pushes, which have nothing else to learn; times the median gap.
PRICES = (3.0, 6.0)
PUSH_PRICES = (1.0, 2.0, 4.0, 8.0, 16.0)
LEAST_GAPS = (0.5, 2.0)
HARMFUL_SHARES = (0.3, 0.5)
FIRST_EPISODES = 32
MOST_EPISODES = 256  # of a round: with more, the time may be over long before its end
FINALISTS = 2


@dataclass(eq=False)
class Candidate:
    """A rule and the returns under it so far."""

    rule: FlipRule
    returns: list[float] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean return; that of a rule that was not tried is infinite."""
        if not self.returns:
            return float("inf")
        return sum(self.returns) / len(self.returns)


def check_flips(plan: Plan) -> None:
    """Raise InputError if there are no flips to learn about: an agent without action values, a budget for each step."""
    check_discrete(plan.policy)
    if plan.scope.per_step:
        raise InputError("a budget for each step leaves nothing to save for later; use method='adaptive' for pixels")


def train_rules(
    plan: Plan, budgets: Sequence[float], training: AttackerTraining, progress: LearningProgress | None = None
) -> PixelAttacker:
    """Return the rule that hurts most for each budget; the arguments are those of ``train_attacker``.

    An iteration of the training is a round of every budget.
    """
    check_flips(plan)
    wanted = wanted_budgets(budgets)
    began = time.monotonic()
    smoothing = smoothing_of(plan.noise, training.noise_samples)
    unit = median_gap(replace(plan, attacker=None), smoothing)
    chosen = []
    for number, budget in enumerate(wanted):
        pool = list_candidates(budget, unit, smoothing)
        deadline = math.inf
        if training.iterations is None:
            deadline = began + 60 * training.minutes * (number + 1) / len(wanted)
        done = 0
        while done != training.iterations and _try_round(plan, pool, smoothing, done, deadline):
            done += 1
            pool.sort(key=lambda candidate: candidate.mean)
            # The last two are tried until the time is over: the better a rule looks, the more of that is chance.
            pool = pool[: max(FINALISTS, (len(pool) + 1) // 2)]
        chosen.append(min(pool, key=lambda candidate: candidate.mean))
        if progress is not None:
            progress((number + 1) / len(wanted), chosen[-1].mean)
    card = card_of(
        plan,
        wanted,
        training,
        began,
        selection=[candidate.mean for candidate in chosen],
        episodes=[len(candidate.returns) for candidate in chosen],
    )
    return PixelAttacker(tuple(candidate.rule for candidate in chosen), card)


def list_candidates(budget: float, unit: float, smoothing: Smoothing) -> list[Candidate]:
    """Return the rules to choose from, in units of the agent's values."""
    if smoothing.sigma != 0:
        return [Candidate(FlipRule(budget=budget, price=price * unit)) for price in PUSH_PRICES]
    candidates = []
    for price in PRICES:
        for least_gap in LEAST_GAPS:
            for harmful in HARMFUL_SHARES:
                rule = FlipRule(budget=budget, price=price * unit, least_gap=least_gap * unit, harmful=harmful)
                candidates.append(Candidate(rule))
    return candidates


def median_gap(plan: Plan, smoothing: Smoothing) -> float:
    """Return the median of the agent's value gaps; 1 where it has none."""
    gaps = [gap for gap in default_lambdas(plan, smoothing) if gap > 0]
    return min(gaps, default=1.0)


def _try_round(plan: Plan, pool: Sequence[Candidate], smoothing: Smoothing, number: int, deadline: float) -> bool:
    """Run the episodes of one round for every candidate; return whether there was time for all of them."""
    n_episodes = min(MOST_EPISODES, FIRST_EPISODES * 2**number)
    for candidate in pool:
        # One is tried in any case.
        if pool[0].returns and time.monotonic() > deadline:
            return False
        trial = replace(
            plan,
            attacker=build_attack(candidate.rule.budget, candidate.rule, smoothing),
            budget=candidate.rule.budget,
            n_episodes=n_episodes,
            n_envs=n_episodes,
            episodes_per_env=1,
            purpose=(Purpose.ATTACK_SELECTION, number),
        )
        candidate.returns += play_block(trial, 0).returns.tolist()
    return True
