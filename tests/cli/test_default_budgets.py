"""Which budgets are certified where none were asked for: the paper's for its tasks, else 0 to 4 sigma."""

import math

import pytest

from surefoot.cli.certify import _make_query
from surefoot.cli.main import build_parser
from surefoot.noise import Noise
from surefoot.play.environments import make_task
from surefoot.play.tasks import TASKS, get_task
from surefoot.proof.query import Units

FEW = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)


def budgets(*options, sigma, task):
    return _make_query(build_parser().parse_args(["certify", *options]), task, Noise.of(sigma), Units()).budgets


def test_the_papers_tasks_keep_its_budgets_for_what_the_paper_certifies():
    cartpole = get_task("cartpole-5")
    assert [budgets("cartpole-5", sigma=sigma, task=cartpole)[-1] for sigma in (0.05, 0.2, 0.8)] == [1.0] * 3
    assert TASKS["freeway"].paper.budgets == FEW
    assert budgets("cartpole-5", "--budgets", "0,3", sigma=0.2, task=get_task("cartpole-5")) == (0.0, 3.0)


def test_other_environments_and_returns_get_budgets_that_fit_their_sigma():
    cartpole = make_task("CartPole-v1", floor=0, ceiling=500)
    assert budgets("--env", "CartPole-v1", sigma=0.1, task=cartpole) == FEW
    assert budgets("--returns", "r.npy", sigma=0.1, task=None) == FEW


@pytest.mark.parametrize(
    ("options", "each"),
    [
        (("--per-step",), 1 / math.sqrt(200)),
        (("--norm", "linf"), 1 / math.sqrt(4 * 200)),
        (("--norm", "linf", "--per-step"), 1 / math.sqrt(4 * 200)),
        (("--norm", "l1"), 1.0),
        (("--shared-episodes", "16"), 4.0),
    ],
)
def test_under_other_threats_they_are_worth_0_to_4_sigma_of_one_episode(options, each):
    asked = budgets("cartpole-5", *options, sigma=0.2, task=get_task("cartpole-5"))
    assert asked == pytest.approx([each * 0.1 * step for step in range(9)], rel=5e-3)
