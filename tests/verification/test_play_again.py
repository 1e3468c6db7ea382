"""What a rerun may import and what it compares: nothing that nobody named, and everything that was recorded."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from stand_ins import Reached
from surefoot.agents.resolve import as_policy
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.verification import play_again, rerun
from surefoot.verification.play_again import CannotRerunError, ForgedError, RerunOptions, rerun_blocks
from surefoot.verification.recompute.run_files import Raw
from toys import balancer, short_pole

IMPORTED = {"environment": "my:Env", "wrappers": ["my:W", "my:V"], "env_modules": ["mine"], "success": "my:won"}


@pytest.mark.parametrize("name", IMPORTED)
def test_every_name_that_imports_something_must_be_given_by_the_caller(name, monkeypatch):
    def make(**_):
        raise Reached

    monkeypatch.setattr(play_again, "Source", make)
    setup = {**IMPORTED, "max_steps": 20}
    allowed = RerunOptions(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in IMPORTED.items()}
    )
    with pytest.raises(Reached):
        play_again._environment_task(setup, allowed)
    nothing = () if isinstance(IMPORTED[name], list) else None
    other = (*IMPORTED[name], "my:X") if isinstance(IMPORTED[name], list) else "my:X"
    for given in (nothing, other):
        with pytest.raises(CannotRerunError, match=r"would import a module; use --env my:Env --wrapper my:W --wrapper"):
            play_again._environment_task(setup, replace(allowed, **{name: given}))


def test_an_environment_that_is_given_must_be_that_of_the_run():
    raw = Raw("certificate.json", {}, {"environment": "CartPole-v1"}, {}, None, None)
    same = RerunOptions(environment="CartPole-v1")
    assert rerun._check_given(raw, same) is same
    with pytest.raises(InputError, match="the episodes are of the environment 'CartPole-v1', got --env Acrobot-v1"):
        rerun._check_given(raw, RerunOptions(environment="Acrobot-v1"))


@pytest.mark.parametrize("place", [0, 8, 31, 63])
def test_an_agent_must_have_the_whole_hash(place):
    """Planted: of a few digits an author finds another agent that has them, too."""
    task = get_task("cartpole-1")
    sha256 = as_policy("cartpole-1-s0.2", task.spaces).sha256
    setup = {"agent": "cartpole-1-s0.2", "agent_sha256": sha256, "n_stack": 1}
    assert play_again._load_policy(setup, task, RerunOptions()).sha256 == sha256
    digit = "0" if sha256[place] != "0" else "1"
    setup["agent_sha256"] = sha256[:place] + digit + sha256[place + 1 :]
    with pytest.raises(ForgedError, match=r"the weights of cartpole-1-s0\.2 have hash"):
        play_again._load_policy(setup, task, RerunOptions())


@pytest.fixture(scope="module")
def stepped():
    """A run of two blocks with the rewards of its steps, and its arrays."""
    plan = Plan(
        task=short_pole(10),
        policy=balancer(),
        noise=Noise.of(0.2),
        n_episodes=4,
        n_envs=2,
        episodes_per_env=1,
        per_step=True,
    )
    episodes = play(plan)
    names = ("returns", "lengths", "reward_values", "reward_repeats")
    return plan, {name: getattr(episodes, name) for name in names}


@pytest.mark.parametrize("name", ["returns", "lengths", "reward_values", "reward_repeats"])
def test_every_array_of_a_block_is_compared_with_its_rerun(stepped, name):
    plan, arrays = stepped
    raw = Raw("per-step.json", {}, {}, arrays, None, None)
    assert rerun_blocks(raw, plan, [1, 0], 1) == ([], [])
    last = np.nextafter(arrays[name][-1], -1.0) if arrays[name].dtype.kind == "f" else arrays[name][-1] - 1
    changed = np.append(arrays[name][:-1], last).astype(arrays[name].dtype)
    (wrong,), _ = rerun_blocks(replace(raw, arrays={**arrays, name: changed}), plan, [1, 0], 1)
    assert wrong.startswith("block 1: ")


@pytest.mark.parametrize(("drawn", "n_envs"), [(0, 15), (1, 16), (-1, 30)])
def test_how_many_rows_fresh_episodes_have_cannot_be_foreseen(drawn, n_envs, monkeypatch):
    """From half of those of the record up: an agent may know by their number that it is being certified."""
    ways = []

    def choose(n):
        ways.append(n)
        return drawn % n

    ran = []

    def run(plan, indices, workers):
        ran.append(plan)
        for index in indices:
            yield index, SimpleNamespace(returns=np.zeros(plan.block_length(index)))

    monkeypatch.setattr(play_again.secrets, "randbelow", choose)
    monkeypatch.setattr(play_again, "run_blocks", run)
    plan = Plan(task=short_pole(20), policy=balancer(), noise=Noise.of(0.2), n_episodes=60, n_envs=30)
    assert play_again.run_fresh(plan, 90, 1)["returns"].size == 90
    assert ways == [16]
    (fresh,) = ran
    assert (fresh.n_envs, fresh.n_episodes, fresh.deployed_noise) == (n_envs, 90, True)
    assert fresh.seed != plan.seed
