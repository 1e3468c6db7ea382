"""Runs of a few small blocks, so that there is something to sample, and to forge."""

from dataclasses import replace

import pytest

from surefoot.play.task import Blocks
from surefoot.play.tasks import TASKS


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Let a block of cartpole-1 have 30 episodes: verification insists on the task's own blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TASKS, "cartpole-1", replace(TASKS["cartpole-1"], blocks=Blocks(n_envs=30, episodes_per_env=1)))
        yield
