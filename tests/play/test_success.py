"""Events as returns: 1 for an episode that met a declared condition, else 0, on single and on vector environments."""

import json

import gymnasium
import numpy as np
import pytest
import torch

import surefoot
import vector_toys
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.envs import trial, vector_trial
from surefoot.play.envs.source import Source
from surefoot.play.envs.success import _read_info
from surefoot.play.plan import Plan, own_seed

MODES = ("NEXT_STEP", "DISABLED")


@pytest.fixture(autouse=True)
def brief_trial(monkeypatch):
    """The fewest steps show what these environments do."""
    monkeypatch.setattr(vector_trial, "SECONDS", 0.0)
    monkeypatch.setattr(trial, "SECONDS", 0.0)


class Count(gymnasium.Env):
    """Counts its steps from a random number on; the info of its last step says whether that was odd."""

    observation_space = gymnasium.spaces.Box(0, 99, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start = int(self.np_random.integers(5))
        self.count = self.start
        return self.seen(), {}

    def step(self, action):
        self.count += 1
        over = self.count == 9
        info = {}
        if over:
            info["is_odd"] = np.float64(self.start % 2)
        return self.seen(), -7.0, over, False, info

    def seen(self):
        return np.array([self.count], np.float32)


def passes_six(seen, reward, terminated, truncated, info):
    """True in several steps of an episode, but paid once."""
    assert reward == -7.0
    return bool(seen[0] > 6)


def is_cut_at_five(seen, reward, terminated, truncated, info):
    """Only the step limit makes it true."""
    return truncated and bool(seen[0] == 5)


def never_says(seen, reward, terminated, truncated, info):
    """Forgets to answer."""


def returns_of(task, **others):
    agent = surefoot.as_policy(lambda seen: np.zeros(len(seen), int), task.spaces, batched=True)
    return surefoot.rollout(task, agent, **({"sigma": 0.5, "n_episodes": 64, "seed": 1} | others))


def count_task(success, **others):
    return surefoot.make_task(Count, success=success, **({"max_steps": 20} | others))


def test_episode_is_worth_one_or_nothing():
    # The number of steps from 0..4 to 9 is the length.
    record = returns_of(count_task("is_odd"))
    assert np.array_equal(record.returns, (9 - record.lengths) % 2)
    assert set(record.returns) == {0.0, 1.0}
    assert set(returns_of(count_task(passes_six)).returns) == {1.0}
    # From 3 on it takes two steps to 5.
    cut = returns_of(count_task(is_cut_at_five, max_steps=2))
    assert 0 < cut.returns.mean() < 1


def test_floor_ceiling_and_method_follow():
    task = count_task("is_odd")
    scoring = task.scoring
    assert (scoring.floor, scoring.ceiling, scoring.binary, scoring.stated) == (0.0, 1.0, True, ())
    assert task.made_with == {"success": "is_odd"}
    certificate = surefoot.certify(returns_of(task), [0.0, 0.5])
    assert certificate.method_selection["method"] == "binary"
    assert "probability of success (is_odd) of the smoothed agent" in " ".join(str(certificate).split())


def test_a_known_environment_keeps_no_rules_of_its_own():
    """CartPole pays 1 at every step, its tensors too: neither may be used."""
    task = surefoot.make_task("CartPole-v1", max_steps=9, success=stands)
    assert task.scoring.ceiling == 1
    record = returns_of(task, sigma=0.1)
    assert 0 < record.returns.mean() < 1
    # The one that falls in its last step was not cut off.
    assert np.all(record.returns <= (record.lengths == 9))


def stands(seen, reward, terminated, truncated, info):
    return truncated and not terminated


@pytest.mark.parametrize("given", [{"floor": -1}, {"ceiling": 2}, {"reward_range": (0, 1)}])
def test_limits_of_other_returns_are_refused(given):
    with pytest.raises(InputError, match="makes every return 0 or 1"):
        count_task("is_odd", **given)


@pytest.mark.parametrize(
    ("success", "message"),
    [
        ("is_even", "its info has no 'is_even', only is_odd"),
        (never_says, "must answer True or False"),
        ("math:pi", "there is no function 'math:pi'; give success='module:function'"),
    ],
)
def test_condition_that_does_not_answer(success, message):
    with pytest.raises(InputError, match=message):
        returns_of(count_task(success))


@pytest.mark.parametrize("said", [-0.3, 2, "no", None, np.array([0.5])])
def test_key_with_a_number_is_no_event(said):
    """Planted: a distance under the key, of which every value but 0 would be a success."""
    for allowed in (True, np.bool_(False), 1, 0.0, np.array([True])):
        assert _read_info("at_goal", True, False, {"at_goal": allowed}) == bool(allowed)
    with pytest.raises(InputError, match="under 'at_goal', expected True or False"):
        _read_info("at_goal", True, False, {"at_goal": said})


@pytest.mark.parametrize(("terminated", "truncated"), [(True, False), (False, True)])
def test_an_episode_that_ends_without_a_word_is_no_failure(terminated, truncated):
    """However it ends, a step limit included: of an episode whose outcome nobody said nothing is known."""
    assert not _read_info("at_goal", False, False, {})
    with pytest.raises(InputError, match="its info has no 'at_goal', only nothing"):
        _read_info("at_goal", terminated, truncated, {})


def test_rows_that_say_nothing_are_not_asked_for_a_number():
    info = {"at_goal": np.array([1, 7, 0]), "_at_goal": np.array([True, False, True])}
    over = np.array([True, False, True])
    assert _read_info("at_goal", over, over, info).tolist() == [True, False, False]
    with pytest.raises(InputError, match="expected True or False"):
        _read_info("at_goal", over, over, info | {"_at_goal": np.array([True, True, True])})


# --- vector environments ---------------------------------------------------------------------------------------------


def is_right(seen, rewards, terminated, truncated, info):
    """True for a while in the middle of an episode, too, and in rows that have been restarted."""
    return np.asarray(seen)[:, 0] > 0.5


def is_out_right(seen, rewards, terminated, truncated, info):
    return (np.asarray(seen)[:, 0] > 1) & np.asarray(terminated)


def is_cut(seen, rewards, terminated, truncated, info):
    return np.asarray(truncated) & ~np.asarray(terminated)


def walk_task(success, mode="NEXT_STEP", max_steps=vector_toys.STEPS, kind=vector_toys.Walk):
    return surefoot.make_task(kind, success=success, max_steps=max_steps, env_kwargs={"autoreset": mode})


def walked(task):
    """Walks to the right."""
    agent = surefoot.as_policy(lambda seen: np.full(len(seen), 2), task.spaces, batched=True)
    return surefoot.rollout(task, agent, sigma=0.2, n_episodes=50, n_envs=16, seed=3)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [vector_toys.Walk, vector_toys.Torch])
def test_rows_are_paid_once(kind, mode):
    for condition in (is_right, is_out_right):
        record = walked(walk_task(condition, mode, kind=kind))
        assert set(record.returns) == {1.0}  # to the right there is one wall


def test_rows_that_are_restarted_have_met_nothing():
    """Training runs many episodes in a row: each may be paid."""
    task = walk_task(is_out_right)
    batch = task.backend.batch(4, np.random.SeedSequence(1), torch.device("cpu"))
    batch.reset()
    paid = torch.zeros(4)
    for _ in range(60):
        _, reward, over = batch.step(torch.full((4,), 2))
        paid += reward
        if over.any():
            batch.restart_rows(over)
    assert paid.min() >= 3


@pytest.mark.parametrize("mode", MODES)
def test_step_limit_truncates_rows(mode):
    plain = surefoot.make_task(vector_toys.Walk, floor=-9, ceiling=9, max_steps=4, env_kwargs={"autoreset": mode})
    record = walked(walk_task(is_cut, mode, max_steps=4))
    lengths = walked(plain).lengths
    assert np.array_equal(record.lengths, lengths)
    # A row that falls off in its fourth step was not cut off.
    assert 0 < record.returns.mean() < 1
    assert record.returns[lengths < 4].sum() == 0


@pytest.mark.parametrize("mode", MODES)
def test_step_limit_truncates_the_rows_that_are_left(mode):
    """Rows that fell off earlier are gone by then, and the others have other numbers than places."""
    lengths, returns = [], []
    for success in (None, is_cut):
        limits = {} if success else {"floor": -9, "ceiling": 9}
        how = {"max_steps": 40, "env_kwargs": {"autoreset": mode}}
        task = surefoot.make_task(vector_toys.Walk, success=success, **how, **limits)
        agent = surefoot.as_policy(lambda seen: np.full(len(seen), 1), task.spaces, batched=True)
        record = surefoot.rollout(task, agent, sigma=0.2, n_episodes=48, n_envs=16, seed=3)
        lengths.append(record.lengths)
        returns.append(record.returns)
    assert np.array_equal(*lengths)
    is_long = lengths[0] == 40
    # One of them may have fallen off in its last step.
    assert returns[1][~is_long].sum() == 0
    assert is_long.sum() - 2 <= returns[1].sum() < 40


def test_one_row_pays_as_rows_do():
    environment = Source(maker=vector_toys.Walk, success=is_out_right, max_steps=30).open()
    environment.reset(seed=1)
    rewards = []
    over = False
    while not over:
        _, reward, terminated, truncated, _ = environment.step(7)
        rewards.append(reward)
        over = terminated or truncated
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]


def test_one_row_is_cut_off_by_the_limit_around_its_simulator():
    """Which is not among what the simulator itself has returned."""
    environment = Source(maker=vector_toys.Walk, success=is_cut, max_steps=2).open()
    environment.reset(seed=1)
    shown = [environment.step(6)[1:4] for _ in range(2)]
    assert shown == [(0.0, False, False), (1.0, False, True)]


def test_simulator_that_shows_the_next_episode_is_refused():
    with pytest.raises(InputError, match="would be asked about the next episode"):
        walk_task(is_right, "SAME_STEP")


def test_condition_answers_for_each_row():
    with pytest.raises(InputError, match="for each of 16 rows"):
        walked(walk_task(never_says))


# --- certified and verified ------------------------------------------------------------------------------------------


def test_condition_is_part_of_the_setup_and_is_gated(tmp_path):
    """A certificate must not choose what is imported when it is verified."""
    task = surefoot.make_task("CartPole-v1", max_steps=9, success=f"{__name__}:stands", feature_units="m")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))
    torch.nn.init.zeros_(network[1].weight)
    agent = surefoot.as_policy(network, task.spaces)
    run = surefoot.certify_run(task, agent, sigma=0.1, n_episodes=64, out=tmp_path)
    assert run.certificate.metadata["features"] == [["value", 4, "m"]]
    assert run.certificate.metadata["step_seconds"] == 0.02
    assert run.certificate.metadata["success"] == Episodes.load(tmp_path / "episodes.npz").metadata["success"]
    verdict = surefoot.verify(tmp_path, agent=network, fresh=8)
    assert verdict.verdict == "unchecked"
    assert any(f"--success {__name__}:stands to allow it" in check.detail for check in verdict.checks)
    allowed = {"environment": "CartPole-v1", "success": f"{__name__}:stands"}
    verdict = surefoot.verify(tmp_path, agent=network, fresh=8, **allowed)
    assert verdict.verified
    assert "that value is in m, a step takes 0.02 s, as the setup says" in verdict.not_checked
    # Who forges the unit or the event of a certificate is found out by its files.
    stated = json.loads((tmp_path / "certificate.json").read_text())
    assert (stated["success"], stated["features"]) == (f"{__name__}:stands", [["value", 4, "m"]])
    for forged in ({"success": "stands_forever"}, {"features": [["value", 4, "km"]]}, {"step_seconds": 2.0}):
        (tmp_path / "certificate.json").write_text(json.dumps(stated | forged))
        assert surefoot.verify(tmp_path, blocks=0).verdict == "failed"
    # Another setup has another seed.
    plain = surefoot.make_task("CartPole-v1", max_steps=9)
    assert own_seed(plan_of(plain, agent)) != own_seed(plan_of(task, agent))


def plan_of(task, agent):
    return Plan(task=task, policy=agent, noise=Noise(0.1), n_episodes=64)
