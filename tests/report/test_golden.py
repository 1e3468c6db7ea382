"""Every kind of certificate as it is printed, compared with a file as a whole.

After a wanted change of words: ``PYTHONPATH=src python tests/report/test_golden.py`` writes the files; read the diff.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from surefoot.episodes import Baseline, Episodes
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


CASES = {
    case.__name__: (case, None)
    for case in (
        *(episode, stated_floor, selected, both_sides_of_one_band, one_episode, quantiles, norm, per_feature, gamma),
        *(shared, shared_by_one, per_step, sequential),
    )
} | {"above_baseline": (episode, BASELINE), "below_baseline": (episode, replace(BASELINE, mean=150.0))}


def printed(name):
    case, baseline = CASES[name]
    certificate = case()
    return "\n\n---\n\n".join([describe(certificate, baseline), repr(certificate), certificate.statement]) + "\n"


@pytest.mark.parametrize("name", CASES)
def test_a_certificate_is_printed_as_in_its_file(name):
    text = printed(name)
    assert text == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    assert max(map(len, text.split("\n\n---\n\n")[0].splitlines())) <= TEXT_WIDTH


def test_every_file_has_its_certificate():
    assert {path.stem for path in GOLDEN.iterdir()} == CASES.keys()


if __name__ == "__main__":
    for case_name in CASES:
        (GOLDEN / f"{case_name}.txt").write_text(printed(case_name), encoding="utf-8")
