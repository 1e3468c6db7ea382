"""Checks together: verified is only what was checked in every part, and what cannot be compared is not run."""

import math

import numpy as np
import pytest

from surefoot.verification.recompute.run_files import Raw
from surefoot.verification.rerun import _needs_fresh, scaled_budgets
from surefoot.verification.verdict import FAILED, IMPOSSIBLE, PASSED, SKIPPED, Verdict
from surefoot.verification.verify import _check_alone

NAMES = ("returns", "bounds", "replay", "fresh episodes")


def verdict_of(results, *, replayed=(0,), fresh=True):
    verdict = Verdict(run="", replayed=list(replayed), fresh={"mean": 1.0} if fresh else None)
    for name, result in zip(NAMES, results, strict=False):
        verdict.note(name, result, "")
    return verdict


@pytest.mark.parametrize("place", range(len(NAMES)))
@pytest.mark.parametrize(("result", "word"), [(FAILED, "failed"), (IMPOSSIBLE, "unchecked"), (SKIPPED, "unchecked")])
def test_one_check_that_did_not_pass_is_enough(place, result, word):
    results = [PASSED] * len(NAMES)
    assert verdict_of(results).verdict == "verified"
    results[place] = result
    assert verdict_of(results).verdict == word
    # What could not be checked does not excuse what is wrong.
    assert verdict_of([FAILED if index != place else result for index in range(len(NAMES))]).verdict == "failed"


def test_nothing_is_verified_that_was_not_run():
    """Not even where all that was checked has passed."""
    for how in ({"replayed": ()}, {"fresh": False}, {"replayed": (), "fresh": False}):
        assert verdict_of([PASSED] * len(NAMES), **how).verdict == "unchecked"


@pytest.mark.parametrize(
    ("results", "n_fresh", "needed"),
    [
        ((PASSED, PASSED), 8, True),
        ((PASSED, PASSED, IMPOSSIBLE), 8, True),
        ((PASSED, PASSED), 0, False),
        ((PASSED, IMPOSSIBLE), 8, False),
        ((IMPOSSIBLE, PASSED), 8, False),
        ((PASSED,), 8, False),
        ((PASSED, PASSED, FAILED), 8, False),
    ],
)
def test_fresh_episodes_are_compared_with_bounds_that_were_recomputed(results, n_fresh, needed):
    verdict = verdict_of(results)
    assert _needs_fresh(verdict, n_fresh) == needed
    assert (verdict.checks[-1].result == SKIPPED) != needed


@pytest.mark.parametrize(("method", "refused"), [("sequential", False), ("betting", True), (None, True)])
def test_episodes_of_a_run_that_stopped_by_itself_have_no_other_certificate(method, refused):
    """Bounds for a number of episodes that was fixed would be chosen by the returns."""
    arrays = {"returns": np.zeros(2)}
    first = Raw("certificate.json", {"method": "sequential"}, {}, arrays, None, None)
    second = Raw("shared.json", {"method": method}, {}, arrays, None, None)
    verdict = Verdict(run="")
    _check_alone([first, second], verdict)
    assert [check.result for check in verdict.checks] == [FAILED] * refused
    unstopped = Verdict(run="")
    _check_alone([second, second] if refused else [second], unstopped)
    assert unstopped.checks == []


def test_fresh_episodes_are_scored_at_the_budget_of_a_whole_episode():
    """A budget for each of T steps is sqrt(T) times as large for all of them: smaller scores would see less."""
    arrays = {"returns": np.zeros(2)}
    for certificate, expected in (
        ({"budgets": [0.0, 0.1], "sigma": 0.2}, [0.0, 0.5]),
        ({"budgets": [0.1], "sigma": 0.2, "n_steps": 100}, [5.0]),
        ({"budgets": [0.1], "sigma": 0.0, "action_sigma": 0.4}, [0.25]),
        ({"budgets": [0.1], "sigma": 0.2, "action_sigma": 0.4}, [0.1]),
        ({"budgets": [0.1, -0.1, math.inf], "sigma": 0.2}, [0.5]),
    ):
        raw = Raw("certificate.json", certificate, {}, arrays, None, None)
        assert scaled_budgets(raw) == pytest.approx(expected)
