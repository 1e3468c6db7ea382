"""The tasks of the paper, number by number: whoever changes one changes what all certificates of it are about."""

import pytest
import torch

from surefoot.play.tasks import TASKS

VECTOR = tuple(step / 10 for step in range(11))
ATARI = tuple(round(0.05 * step, 2) for step in range(9))
# Steps, floor and ceiling, rewards, actions, stacked frames; sigma, budgets, value gaps or weights of the attacks.
NUMBERS = {
    "cartpole-5": ((200, (0, 200), (0, 1), 2, 5), (0.2, VECTOR, (4, 6, 8, 10))),
    "cartpole-1": ((200, (0, 200), (0, 1), 2, 1), (0.2, VECTOR, (0, 0.05, 0.1, 1))),
    "mountain-car": ((999, (0, 1), (0, 1), None, 5), (0.2, VECTOR, (0.001, 0.0001, 0.00001))),
    "pong-1r": ((27_000, (0, 1), (0, 1), 6, 4), (0.1, ATARI, (0.1, 0.3, 0.5))),
    "pong-full": ((27_000, (-21, 21), (-1, 1), 6, 4), (0.1, ATARI, (0.1, 0.3, 0.5, 0.9, 1.3, 1.7))),
    "freeway": ((250, (0, 5), (0, 1), 3, 4), (0.1, ATARI, (0, 0.06, 0.12))),
}
# Episodes in parallel and in turn, on a CPU and on a GPU: random numbers depend on both.
BLOCKS = {
    "cartpole-5": ((500, 1), (65_536, 1)),
    "cartpole-1": ((500, 1), (65_536, 1)),
    "mountain-car": ((500, 1), (65_536, 1)),
    "pong-1r": ((32, 8), (256, 20)),
    "pong-full": ((32, 2), (256, 8)),
    "freeway": ((32, 4), (256, 20)),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_that_of_the_paper(name):
    task = TASKS[name]
    scoring, spaces, paper = task.scoring, task.spaces, task.paper
    rules, experiment = NUMBERS[name]
    limits = (scoring.floor, scoring.ceiling)
    assert (scoring.max_steps, limits, scoring.reward_range, spaces.n_actions, spaces.n_stack) == rules
    assert (paper.sigma, paper.budgets, paper.lambdas) == experiment
    assert (scoring.holds_throughout, scoring.gamma, scoring.stated) == (True, None, ())
    assert scoring.binary == (limits == (0, 1))


@pytest.mark.parametrize("name", TASKS)
def test_a_run_of_a_task_is_cut_into_the_same_blocks(name):
    blocks = TASKS[name].blocks
    assert (blocks.on(torch.device("cpu")), blocks.on(torch.device("cuda"))) == BLOCKS[name]
    recurrent = blocks.on(torch.device("cpu"), recurrent=True)
    assert recurrent == ((1_000, 1) if blocks.recurrent_n_envs else BLOCKS[name][0])
