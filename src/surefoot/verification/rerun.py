"""Reruns a sample of the recorded episodes, runs fresh ones, and compares both with the record and its bounds."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.agents.imported import named_object
from surefoot.agents.resolve import locate
from surefoot.agents.torch_agents import kept_state
from surefoot.errors import DependentRowsError, InputError
from surefoot.files import extremes
from surefoot.play.plan import Plan, limits_of_actions, own_seed
from surefoot.play.reset_luck import imports_function
from surefoot.verification.attack_again import with_recorded_attack
from surefoot.verification.bounds import divisor_of_budgets
from surefoot.verification.play_again import (
    CannotRerunError,
    ForgedError,
    RerunOptions,
    count_alone,
    describe_seed,
    describe_units,
    is_on_missing_gpu,
    is_this_machine,
    load_plan,
    on_same_seeds,
    rerun_blocks,
    run_fresh,
    runs_code,
    unusual_limit,
)
from surefoot.verification.recompute.bands import CannotRecomputeError, Claim, recompute
from surefoot.verification.recompute.distribution import KINDS, asked_about
from surefoot.verification.recompute.fresh import (
    early_ends,
    early_sums,
    highest_worst_means,
    log_capital,
    log_capital_by_blocks,
)
from surefoot.verification.recompute.run_files import COMPARED, Raw, differences
from surefoot.verification.recompute.sampling import enough_blocks, least_forgery, miss_probability
from surefoot.verification.verdict import FAILED, IMPOSSIBLE, REFUTED, SKIPPED, Verdict

Floats = NDArray[np.float64]
MOST_FRESH = 10_000  # episodes, unless more are asked for
# Where an agent knows the few episodes of a short run, as few fresh ones could not contradict its bounds: the fewer it
# has, the more are run, up to a number.
FEWEST_FRESH = 64
FRESH_FOR_ONE = 1_024
MOST_FOR_FEW = 512
FALSE_ALARM = 1e-4  # how often fresh episodes of an honest run are taken for a contradiction
OWN_ALPHA = 0.05  # of the bounds that fresh episodes prove by themselves
SHARE_HERE = 0.05  # of the blocks that other machines reran, which is rerun on this one


def rerun_episodes(certified: list[Raw], verdict: Verdict, options: RerunOptions) -> None:
    """Rerun a sample of the recorded episodes, then run fresh ones."""
    plan = _load_plan(certified[0], options, verdict)
    if plan is not None:
        _rerun_plan(certified, plan, own_seed(plan), verdict, options)


def rerun_compared(
    sides: Mapping[str, Raw], verdicts: Mapping[str, Verdict], options: Mapping[str, RerunOptions]
) -> None:
    """Do the same for the agents of a comparison, which may have run on the same seeds, and under its attack on B."""
    loaded = {}
    # Where nothing was attacked, only the seed stream of certificates will do.
    attacked = any(raw.setup.get("attacker") is not None for raw in sides.values())
    for side, raw in sides.items():
        plan = _load_plan(raw, options[side], verdicts[side], attacked=attacked)
        if plan is not None:
            loaded[side] = plan
    if not {"A", "B"} <= set(loaded):
        return
    together = dict(zip(loaded, on_same_seeds(list(loaded.values())), strict=True))
    # Neither agent can contain the seed that follows from both.
    derived = own_seed(together["A"], together["B"])
    for side, alone in loaded.items():
        compared = together[side]
        raw = sides[side]
        # Runs of their own have the task's own blocks.
        plan = alone if raw.setup.get("block_size") == alone.block_size else compared
        _rerun_plan([raw], plan, derived, verdicts[side], options[side])


def _load_plan(raw: Raw, options: RerunOptions, verdict: Verdict, *, attacked: bool = False) -> Plan | None:
    """Return the plan of a run; None, with the reason noted, if it cannot be had."""
    try:
        plan = load_plan(raw, _check_given(raw, options))
        return with_recorded_attack(plan, raw.setup) if attacked else plan
    except ForgedError as error:
        verdict.note("setup and weights", FAILED, str(error))
    except CannotRerunError as error:
        verdict.note("replay", IMPOSSIBLE, str(error))
    return None


def _rerun_plan(certified: list[Raw], plan: Plan, derived: int, verdict: Verdict, options: RerunOptions) -> None:
    """Rerun a sample of what was planned, after checking that the record has exactly the plan's setup.

    The plan has the task's own blocks and the seed stream of certificates: choosing them would be choosing among runs.
    """
    raw = certified[0]
    wrong = differences(raw.setup, plan.setup())
    if wrong:
        verdict.note("setup and weights", FAILED, f"the setup is not that of its task and agent: {'; '.join(wrong)}")
        return
    _check_coordinates(certified, plan, verdict)
    verdict.judge("setup and weights", [], f"those of {plan.task.name} and {plan.policy.name}, {plan.policy.sha256}")
    verdict.judge("seed", [], describe_seed(plan, derived))
    radii = sorted({radius for each in certified for radius in scaled_budgets(each)})
    n_fresh = count_fresh(raw.returns.size) if options.fresh is None else options.fresh
    verdict.not_checked[:0] = _list_unchecked(plan, n_fresh)
    try:
        if is_on_missing_gpu(plan):
            verdict.note("replay", IMPOSSIBLE, "the episodes were run on a CUDA device, and torch finds none here")
        else:
            _rerun_sample(certified, plan, radii, verdict, options)
        if _needs_fresh(verdict, n_fresh):
            _compare_fresh(certified, plan, radii, verdict, n_fresh, options)
    except DependentRowsError as error:
        verdict.note("agent", FAILED, str(error))


def count_fresh(n_recorded: int) -> int:
    """Return how many fresh episodes are run by default for so many recorded ones."""
    fewest = max(FEWEST_FRESH, min(MOST_FOR_FEW, FRESH_FOR_ONE // n_recorded))
    return min(max(n_recorded, fewest), MOST_FRESH)


def _list_unchecked(plan: Plan, n_fresh: int) -> list[str]:
    """Return what no rerun of this plan checks."""
    found = []
    n_still = (plan.noise.features or ()).count(0)
    if n_still:
        found.append(f"that nobody perturbs the {n_still} features without noise, which the certificate assumes")
    limit = unusual_limit(plan)
    if limit is not None:
        found.append(limit)
    units = describe_units(plan.task)
    if units is not None:
        found.append(units)
    if kept_state(plan.policy):
        found.append(
            "that the agent acts alike elsewhere, and by what it is given: it is a program, which may read files, the "
            "clock or the memory of the process, and its hash does not cover these"
        )
    if imports_function(plan.luck):
        found.append(f"that {plan.luck} reads nothing that the noise has touched: it was imported here")
    if runs_code(plan):
        found.append("the code of the environment: it was imported here, and no hash covers it")
    if plan.task.made_with.get("env_files"):
        found.append("what the files of the environment include: hashes cover those that its arguments name")
    if plan.policy.stochastic:
        found.append(
            "that the agent answers each row by itself, beyond what its mean shows in the "
            f"{count_alone(plan, n_fresh)} fresh episodes run one at a time: what it draws makes answers differ"
        )
    return found


def _check_given(raw: Raw, options: RerunOptions) -> RerunOptions:
    """Return the options, with the object that the agent's name means.

    Raises:
        InputError: If the environment is not the run's, or the agent not there: bad input, not a forgery.
    """
    recorded = raw.setup.get("environment")
    if options.environment is not None and options.environment != recorded:
        raise InputError(f"the episodes are of the environment {recorded!r}, got --env {options.environment}")
    if not isinstance(options.agent, str | Path):
        return options
    named = named_object(str(options.agent))
    if named is not None:
        return replace(options, agent=named)
    locate(options.agent)
    return options


def _check_coordinates(certified: list[Raw], plan: Plan, verdict: Verdict) -> None:
    """Check what a norm says about the size of an observation or action, which the episode data do not contain."""
    size = math.prod(plan.task.spaces.shape)
    what = "an observation"
    if plan.noise.sigma == 0:
        # The other norm is then one of what is done to actions: nothing else may be perturbed.
        size = len(limits_of_actions(plan.task)[0])
        what = "an action"
    for raw in certified:
        norm = raw.certificate.get("norm")
        if isinstance(norm, dict) and norm.get("coordinates") is not None:
            wrong = []
            if norm["coordinates"] != size:
                wrong.append(f"{what} has {size} coordinates")
            verdict.judge(f"{raw.name}: size of {what}", wrong, f"{size} coordinates")


def scaled_budgets(raw: Raw) -> list[float]:
    """Return the budgets of a certificate divided by sigma; of a budget per step, as those of a whole episode."""
    certificate = raw.certificate
    radii = []
    try:
        root = math.sqrt(float(certificate.get("n_steps", 1)))
        for budget in certificate["budgets"]:
            radius = float(budget) * root / divisor_of_budgets(certificate)
            if 0 <= radius < math.inf:
                radii.append(radius)
    except (CannotRecomputeError, KeyError, TypeError, ValueError, ZeroDivisionError):
        # A failed check of the bounds says so.
        return []
    return radii


def _rerun_sample(
    certified: list[Raw], plan: Plan, radii: Sequence[float], verdict: Verdict, options: RerunOptions
) -> None:
    """Rerun randomly chosen blocks and compare every return and length."""
    raw = certified[0]
    n = raw.returns.size
    size = plan.block_size
    n_blocks = -(-n // size)
    # Without a ceiling one forged return decides everything, and one block may decide which of two agents is better, or
    # where a quantile is. Of several draws per seed, or of luck, nobody has measured how few forged blocks matter; nor
    # of when rewards come, on which bounds per step rest.
    n_forged = 1
    only_means = raw.name != COMPARED and not any(KINDS.keys() & each.certificate.keys() for each in certified)
    only_returns = plan.draws_per_seed == 1 and plan.luck is None and not plan.per_step
    if plan.task.scoring.ceiling is not None and only_means and only_returns:
        n_forged = least_forgery(raw.returns, size, radii, float(raw.setup["floor"]))
    if options.blocks == "enough":
        n_rerun = enough_blocks(n_blocks, n_forged)
    elif options.blocks is None:
        n_rerun = n_blocks
    else:
        n_rerun = min(options.blocks, n_blocks)
    verdict.seed = secrets.randbits(63) if options.seed is None else options.seed
    chosen = np.random.default_rng(verdict.seed).choice(n_blocks, size=n_rerun, replace=False).tolist()
    verdict.blocks = n_blocks
    verdict.block_episodes = min(size, n)
    verdict.replayed = sorted(chosen)
    # In the order of the run each block would meet the same past as before, which an environment may remember.
    other_order = chosen[::-1] if chosen == verdict.replayed else chosen
    wrong, ambiguous = rerun_blocks(raw, plan, other_order, options.workers, options.progress)
    where = ""
    if not is_this_machine(options.workers):
        # Which ones must not be foreseen by those machines.
        here = secrets.SystemRandom().sample(verdict.replayed, math.ceil(SHARE_HERE * n_rerun))
        wrong_here, ambiguous_here = rerun_blocks(raw, plan, here, 1)
        wrong += wrong_here
        ambiguous += ambiguous_here
        where = f"; by other machines, which are trusted, but for {len(here)} random blocks rerun on this one"
    n_episodes = sum(min(size, n - index * size) for index in chosen)
    if ambiguous and not wrong:
        advice = (
            "such bits may differ honestly; to check them, rerun where the episodes were run, with the same versions"
        )
        verdict.note("replay", IMPOSSIBLE, "; ".join([advice, *ambiguous]))
    else:
        verdict.judge(
            "replay",
            wrong + ambiguous,
            f"{n_rerun} of {n_blocks} blocks, {n_episodes} of {n} episodes, every return and length bit for bit{where}",
        )
    verdict.forged_blocks = n_forged
    verdict.miss_one = miss_probability(n_blocks, 1, n_rerun)
    verdict.miss_least = miss_probability(n_blocks, n_forged, n_rerun)
    if n_rerun < n_blocks:
        verdict.not_checked.insert(
            0, f"the {n_blocks - n_rerun} blocks, {n - n_episodes} episodes, that were not rerun"
        )


def _needs_fresh(verdict: Verdict, n_fresh: int) -> bool:
    """Return whether fresh episodes are run; say why where they are not."""
    if verdict.verdict == REFUTED:
        verdict.note("fresh episodes", SKIPPED, "a check has failed already")
        return False
    if not verdict.bounds_recomputed:
        verdict.note("fresh episodes", SKIPPED, "there are no recomputed bounds to compare them with")
        return False
    if n_fresh == 0:
        verdict.note("fresh episodes", SKIPPED, "not asked for")
        verdict.not_checked.insert(0, "whether agent or simulator know the seed: no fresh episodes were run")
        return False
    return True


def _compare_fresh(
    certified: list[Raw],
    plan: Plan,
    radii: Sequence[float],
    verdict: Verdict,
    n_fresh: int,
    options: RerunOptions,
) -> None:
    """Run episodes under a seed that is drawn now, and check whether they contradict the record or a bound."""
    raw = certified[0]
    ceiling = plan.task.scoring.ceiling
    # Other machines could invent fresh episodes too.
    workers = options.workers if is_this_machine(options.workers) else 1
    arrays = run_fresh(plan, n_fresh, workers, options.progress)
    fresh = arrays["returns"]
    n_fresh = fresh.size
    fresh_mean = float(fresh.mean())
    recorded_mean = float(raw.returns.mean())
    # The draws of one seed depend on each other: one of each is a fair sample.
    n_draws = plan.draws_per_seed
    independent = fresh[::n_draws]
    wrong = _beyond_limits(fresh, float(raw.setup["floor"]), ceiling)
    is_sequential = any(each.certificate.get("method") == "sequential" for each in certified)
    if is_sequential:
        # A run that stops when its returns look good is no fair sample, but each block is, given those before.
        evidence = log_capital_by_blocks(raw.returns, fresh, radii, plan.block_size)
    else:
        # The other kinds of certificates have none of these.
        shares, thresholds = asked_about(raw.certificate)
        both = (raw.returns, fresh)
        known: list[tuple[Floats, Floats]] = []
        if plan.luck is not None:
            known = list(zip(raw.arrays["luck"].T, arrays["luck"].T, strict=True))
        sums = _early_sums(raw, arrays, plan)
        evidence = log_capital(*both, radii, shares, thresholds, n_draws=n_draws, sums=sums, known=known)
    if evidence >= math.log(2 / FALSE_ALARM):
        wrong.append(
            f"{n_fresh:,} fresh episodes have a mean of {fresh_mean:.6g}, the record has {recorded_mean:.6g}: they "
            f"are worse than the recorded ones (evidence e^{evidence:.0f} : 1 against one distribution)"
        )
    # Who compares agents may also gain from episodes in which one of them is worse than it is.
    if raw.name == COMPARED:
        worse = log_capital(-raw.returns, -fresh, ())
        if is_sequential:
            worse = log_capital_by_blocks(-raw.returns, -fresh, (), plan.block_size)
        if worse >= math.log(2 / FALSE_ALARM):
            wrong.append(
                f"{n_fresh:,} fresh episodes have a mean of {fresh_mean:.6g}, the record has {recorded_mean:.6g}: they "
                "are better than the recorded ones"
            )
    for each in certified:
        if each.name != COMPARED:
            wrong += _refuted_bounds(each, independent, ceiling)
    # What the fresh episodes prove by themselves limits what they can have missed.
    floor = float(raw.setup["floor"])
    proved, _ = recompute(independent, Claim("band", OWN_ALPHA, 1.0, floor, ceiling, tuple(radii)))
    verdict.fresh = {
        "n_episodes": independent.size,
        "mean": fresh_mean,
        "false_alarm": FALSE_ALARM,
        "confidence": 1 - OWN_ALPHA,
        "budgets": [radius * plan.noise.budget_sigma for radius in radii],
        "lower": proved.least.tolist(),
    }
    n_alone = count_alone(plan, n_fresh)
    one_at_a_time = f" ({n_alone} of them one at a time)" if n_alone else ""
    verdict.judge(
        "fresh episodes",
        wrong,
        f"{n_fresh:,} under a seed drawn now{one_at_a_time}, mean {fresh_mean:.6g} (recorded: {recorded_mean:.6g}): no "
        f"contradiction; an honest run fails this check with probability at most {FALSE_ALARM:g}",
    )


def _early_sums(raw: Raw, fresh: Mapping[str, NDArray[Any]], plan: Plan) -> list[tuple[Floats, Floats]]:
    """Return what is early in recorded and fresh episodes, rewards and ends, where bounds depend on when they come."""
    if not plan.per_step:
        return []
    n_steps = plan.task.scoring.max_steps
    both = []
    floor = plan.task.scoring.floor
    for arrays in (raw.arrays, fresh):
        sums = early_sums(arrays["reward_values"], arrays["reward_repeats"], arrays["lengths"], n_steps)
        both.append(sums + early_ends(arrays["returns"], arrays["lengths"], n_steps, floor))
    return list(zip(*both, strict=True))


def _beyond_limits(fresh: Floats, floor: float, ceiling: float | None) -> list[str]:
    """Return which limits, on which all bounds rest, are refuted by a fresh return: they were stated wrongly."""
    least, greatest = extremes(fresh)
    wrong = []
    if least < floor:
        wrong.append(f"a fresh return is {least:.12g}, below the floor {floor:.12g}")
    if ceiling is not None and greatest > ceiling:
        wrong.append(f"a fresh return is {greatest:.12g}, above the ceiling {ceiling:.12g}")
    return wrong


def _refuted_bounds(raw: Raw, fresh: Floats, ceiling: float | None) -> list[str]:
    """Return which lower bounds on the mean under attack are above what fresh episodes allow."""
    scaled = scaled_budgets(raw)
    selection = raw.certificate.get("method_selection")
    selected = selection.get("method") if isinstance(selection, dict) else None
    knows_more = raw.certificate.get("method") in ("nested", "luck") or selected == "luck"
    if knows_more or raw.name != "certificate.json":
        # It may be above the worst case of all games with these returns, or is about an attack that may do less in an
        # episode; but it is not above the mean without attack.
        scaled = [0.0] * len(scaled)
    highest = highest_worst_means(fresh, scaled, float(raw.setup["floor"]), ceiling, FALSE_ALARM / 2)
    budgets = raw.certificate["budgets"]
    lower = raw.certificate["lower"]
    wrong = []
    for budget, bound, most in zip(budgets, lower, highest, strict=True):
        if bound > most:
            wrong.append(
                f"at budget {budget:g} {bound:g} is certified, fresh episodes show that the worst-case mean is below "
                f"{most:.6g}"
            )
    return wrong
