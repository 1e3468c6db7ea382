"""Trained agents against public ones: what is trained and certified, and what the table says."""

import pytest

from bench.public_agents import CASES, PAGE, RESULTS, Case, Landed, describe_episodes, table
from surefoot.episodes import Episodes
from surefoot.files import read_json
from surefoot.play.environments import make_task
from surefoot.proof.query import certify


def test_every_environment_has_a_floor_and_the_options_of_its_training():
    assert len({case.env for case in CASES}) == len(CASES) == 11
    case = Case("Hopper-v5", 0.02, "trpo/Hopper-v3_1", clip=(0, 10))
    assert case.task().scoring.floor == 0
    assert case.options[-3:] == ["--wrapper", 'ClipReward={"min_reward": 0, "max_reward": 10}', "--reward-range=0,10"]
    assert Case("CartPole-v1", 0.08).options == ["--env", "CartPole-v1", "--sigma", "0.08", "--for-budget", "0.08"]


def test_landing_is_a_return_of_one():
    task = make_task("LunarLander-v3", floor=0, ceiling=1, wrappers=[Landed])
    env = task.backend.open()
    env.reset(seed=0)
    paid = 0.0
    over = False
    while not over:
        _, reward, ended, cut, _ = env.step(0)
        paid += reward
        over = ended or cut
    env.close()
    assert paid == 0  # it falls


def test_values_are_those_of_all_episodes_together():
    case = Case("CartPole-v1", 0.5)
    blocks = [Episodes.from_returns([value] * 50, sigma=0.5, floor=0, ceiling=10) for value in (4.0, 6.0)]
    found = describe_episodes(blocks, case)
    whole = Episodes.from_returns([4.0] * 50 + [6.0] * 50, sigma=0.5, floor=0, ceiling=10)
    assert found["lower"] == certify(whole, (0.0, 0.5, 1.0)).lower.tolist()
    assert (found["episodes"], found["mean"]) == (100, 5.0)
    assert found["error"] == pytest.approx(0.1)


def test_the_page_shows_what_was_measured():
    assert table(read_json(RESULTS)) in PAGE.read_text(encoding="utf-8")
