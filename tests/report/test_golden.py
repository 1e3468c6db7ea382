"""Every kind of certificate as it is printed, compared with a file as a whole.

After a wanted change of words: ``PYTHONPATH=src python tests/report/test_golden.py`` writes the files; read the diff.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot.episodes import Baseline, Episodes
from surefoot.proof.comparison import AttackedRow, Comparer, Gate, Question
from surefoot.proof.difference import Interval
from surefoot.proof.query import Norm, Query
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget
from surefoot.report.certificate_text import TEXT_WIDTH, describe

GOLDEN = Path(__file__).parent / "golden"
RETURNS = np.tile([200.0, 180.0, 150.0], 300)
BASELINE = Baseline(mean=40.0, sem=0.5, n_episodes=100, what="action 0 at every step", command="surefoot baseline")


def episodes(*, ceiling=200.0, sigma=0.2, returns=RETURNS, **metadata):
    return Episodes.from_returns(returns, sigma=sigma, floor=0.0, ceiling=ceiling, **metadata)


def proved_limits(certificate):
    """Return the certificate as if the rules of the environment proved floor and ceiling."""
    return replace(certificate, metadata={k: v for k, v in certificate.metadata.items() if k != "stated_by_user"})


def episode():
    return proved_limits(Query(budgets=(0, 0.1, 0.2, 0.4), method="band").answer(episodes(agent="ppo", task="toy")))


def stated_floor():
    return Query(budgets=(0.5, 0.25), method="band").answer(episodes(ceiling=None))


def selected():
    return proved_limits(Query(budgets=(0, 0.2)).answer(episodes(sigma=0.5)))


def both_sides_of_one_band():
    return proved_limits(Query(budgets=(0, 0.2), method="dkw").answer(episodes()))


def one_episode():
    return Query(budgets=(0,), method="band").answer(episodes(returns=[150.0]))


def quantiles():
    shares = (0.05, 0.5)
    asked = Query(budgets=(0, 0.12345678), thresholds=(150.0, 160.5), quantiles=shares, cvars=shares, confidence=0.999)
    return proved_limits(asked.answer(episodes()))


def norm():
    asked = Query(budgets=(0, 0.01), norm=Norm(name="linf", coordinates=4, observations=200), method="band")
    return proved_limits(asked.answer(episodes()))


def per_feature():
    return proved_limits(Query(budgets=(0, 0.2), method="band").answer(episodes(sigma=[0.2, 0.4, 0.0, 0.2])))


def gamma():
    made = Query(budgets=(0, 0.2), method="band").answer(episodes(gamma=0.9, max_steps=200, stochastic=True))
    return proved_limits(made)


def shared():
    return proved_limits(Query(budgets=(0, 0.2), threat=SharedBudget(7), confidence=0.9).answer(episodes()))


def shared_by_one():
    return Query(budgets=(0, 0.2), threat=SharedBudget(1)).answer(episodes(ceiling=None))


def per_step():
    facts = {"reward_range": [0.0, 1.0], "max_steps": 4, "lengths": np.full(300, 4)}
    made = episodes(ceiling=4.0, returns=np.full(300, 4.0), **facts)
    made = replace(made, reward_values=np.ones(300), reward_repeats=made.lengths)
    return Query(budgets=(0, 0.05), threat=StepBudget()).answer(made)


def sequential():
    made = Query(budgets=(0, 0.2), method="band").answer(episodes())
    stopped = {"budget": 0.2, "tolerance": None, "require": 100.0, "stopped": "proved"}
    return proved_limits(replace(made, method="sequential", method_selection=stopped))


def certain():
    asked = Query(budgets=(0, 0.2), threat=SharedBudget(7, certain=True), confidence=0.9)
    return proved_limits(asked.answer(episodes()))


def draws():
    """Three draws of each seed, half of which are lucky."""
    lucky = np.repeat(np.tile([200.0, 100.0], 150), 3)
    made = Query(budgets=(0, 0.2)).answer(episodes(returns=lucky, draws_per_seed=3))
    # Bets are planned better one day; the words stay.
    return proved_limits(replace(made, lower=np.array([143.906, 81.869]), upper=np.array([156.331, 161.381])))


def on_actions():
    return proved_limits(Query(budgets=(0, 0.2), method="band").answer(episodes(sigma=0.0, action_sigma=0.5)))


def on_both():
    pairs = ((0.0, 0.0), (0.1, 0.25))
    made = episodes(sigma=[0.2, 0.4, 0.0, 0.2], action_sigma=0.5)
    budgets = tuple(made.noise.mixed_budget(*pair) for pair in pairs)
    return proved_limits(Query(budgets=budgets, mixed=pairs, method="band").answer(made))


WON = np.tile([1.0, 1.0, 1.0, 0.0], 200)
PLACES = [["pos", 2, "m"], ["vel", 1, "m"]]


def success():
    made = episodes(ceiling=1.0, returns=WON, success="my:landed", binary=True)
    return proved_limits(Query(budgets=(0, 0.2)).answer(made))


def success_discounted():
    made = episodes(ceiling=1.0, returns=0.9 * WON, success="my:landed", gamma=0.9)
    return proved_limits(Query(budgets=(0, 0.2), method="band").answer(made))


def units():
    made = episodes(features=PLACES, step_seconds=0.5, max_steps=100)
    return proved_limits(Query(budgets=(0, 0.2), method="band").answer(made))


def units_per_feature():
    made = episodes(sigma=[0.2, 0.2, 0.4], features=PLACES, max_steps=100)
    return proved_limits(Query(budgets=(0, 0.2), method="band").answer(made))


CASES = {
    case.__name__: (case, None)
    for case in (
        *(episode, stated_floor, selected, both_sides_of_one_band, one_episode, quantiles, norm, per_feature, gamma),
        *(shared, shared_by_one, per_step, sequential),
        *(certain, draws, on_actions, on_both, success, success_discounted, units, units_per_feature),
    )
} | {"above_baseline": (episode, BASELINE), "below_baseline": (episode, replace(BASELINE, mean=150.0))}


def compared(**asked):
    """Compare an agent with one that is worse in every third episode, in episodes of the same seeds."""
    known = {"episode_seeds": list(range(900)), "task": "toy"}
    a = episodes(agent="new", **known)
    b = episodes(agent="old", returns=np.tile([200.0, 180.0, 90.0], 300), **known)
    made = Comparer(Question(**asked), a, b).answer(a, b)
    rows = [AttackedRow(budget, 175.456 - 123.456 * budget, 161.754) for budget in made.question.budgets]
    # As above.
    return replace(made, interval=Interval(17.754, 22.366), attacked=tuple(rows))


COMPARISONS = {
    "comparison": {},
    "comparison_under_attack": {"budgets": (0.05, 0.1), "gate": Gate(40.0), "confidence": 0.99},
    "comparison_not_passed": {"budgets": (0.4,), "gate": Gate(None)},
}


def printed(name):
    if name in COMPARISONS:
        return f"{compared(**COMPARISONS[name])}\n"
    case, baseline = CASES[name]
    certificate = case()
    return "\n\n---\n\n".join([describe(certificate, baseline), repr(certificate), certificate.statement]) + "\n"


@pytest.mark.parametrize("name", COMPARISONS)
def test_a_comparison_is_printed_as_in_its_file(name):
    assert printed(name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CASES)
def test_a_certificate_is_printed_as_in_its_file(name):
    text = printed(name)
    assert text == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    assert max(map(len, text.split("\n\n---\n\n")[0].splitlines())) <= TEXT_WIDTH


def test_every_file_has_its_certificate_or_comparison():
    assert {path.stem for path in GOLDEN.iterdir()} == CASES.keys() | COMPARISONS.keys()


if __name__ == "__main__":
    for case_name in (*CASES, *COMPARISONS):
        (GOLDEN / f"{case_name}.txt").write_text(printed(case_name), encoding="utf-8")
