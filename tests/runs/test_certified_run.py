"""From names to finished runs: who may be an agent, what is checked before play, what is left behind."""

import json
import re
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch

import surefoot
import waiting_env
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.resolve import as_policy
from surefoot.episodes import Episodes
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.environments import make_task
from surefoot.play.plan import Plan, resolve_device
from surefoot.play.tasks import get_task
from surefoot.proof.query import Query
from surefoot.runs import certified as runs
from surefoot.runs.certified import certified_run, run_name
from surefoot.runs.rollout import rollout
from toys import balancer, constant, fixed, pay_steps, plan_for, toy_task

TASK = get_task("cartpole-5")
QUESTIONS = Query(budgets=(0, 0.2))


def model(kind="DQN", environment="CartPole-v1", **options):
    if kind in ("DQN", "SAC", "DDPG"):
        options["buffer_size"] = 2
    return getattr(stable_baselines3, kind)(
        "MlpPolicy", environment, policy_kwargs={"net_arch": [8]}, device="cpu", seed=0, **options
    )


def lean(observation):
    return int(observation[2] + observation[3] > 0)


# --- agents ---------------------------------------------------------------------------------------------------------


def test_a_model_and_its_zip_play_alike(tmp_path):
    made = model()
    made.save(tmp_path / "model.zip")
    task = get_task("cartpole-1")
    one, two = (rollout(task, agent, sigma=0.1, n_episodes=20) for agent in (made, tmp_path / "model.zip"))
    assert np.array_equal(one.returns, two.returns)
    assert one.metadata["agent_sha256"] == two.metadata["agent_sha256"]


def test_a_function_sees_one_observation_or_its_frames():
    shapes = set()

    def watch(seen):
        shapes.add(seen.shape)
        return 0

    rollout("cartpole-1", watch, sigma=0.1, n_episodes=3)
    rollout("cartpole-5", watch, sigma=0.1, n_episodes=3)
    assert {shape for shape in shapes if shape[0] <= 100} == {(4,), (5, 4)}
    # A trial shows whether it takes many at once.
    assert all(shape[1:] in {(4,), (5, 4)} for shape in shapes if shape[0] > 100)


def test_a_function_is_certified_like_anybody():
    episodes = rollout("cartpole-1", lean, sigma=0.1, n_episodes=40)
    assert episodes.metadata["agent"] == "lean"
    assert episodes.metadata["agent_sha256"] is None
    assert episodes.returns.mean() > 60
    assert surefoot.certify(episodes, [0.0]).lower[0] > 40


# --- devices and names ----------------------------------------------------------------------------------------------


def test_devices():
    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(InputError, match="device must be auto, cpu or cuda, got 'tpu'"):
        resolve_device("tpu")


def test_cuda_without_cuda_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="no CUDA device"):
        rollout("cartpole-1", lean, sigma=0.1, n_episodes=1, device="cuda")


def named(name, **plan):
    policy = Policy(balancer().network, Spaces(shape=(4,), n_actions=2), name=name)
    return run_name(Plan(task=get_task("cartpole-1"), policy=policy, **{"noise": Noise.of(0.2), **plan}))


@pytest.mark.parametrize(
    "name", ["a b/c", "../../etc", "..", "x\0y", "模型", "$HOME;rm -rf *", "", "~", "n\nm", "C:\\x"]
)
def test_names_of_runs_are_safe_names_of_folders(tmp_path, name):
    folder = tmp_path / named(name)
    assert folder.resolve().parent == tmp_path.resolve()
    folder.mkdir()
    assert not set(folder.name) & set("/\\\0\n $;*~:")


# --- questions ------------------------------------------------------------------------------------------------------

WRONG = [
    ({"budgets": (-0.1,)}, 0.2, "budget must be a finite number >= 0"),
    ({"confidence": 1.0}, 0.2, "confidence must be strictly"),
    ({"method": "magic"}, 0.2, "method must be one of"),
    ({"threshold_spacing": 0.0}, 0.2, "threshold spacing must be"),
    ({}, 0.0, "sigma must be > 0"),
]


@pytest.mark.parametrize(("question", "sigma", "match"), WRONG)
def test_questions_are_checked_before_the_first_step(tmp_path, monkeypatch, question, sigma, match):
    monkeypatch.setattr("surefoot.play.rollout.play", lambda *_, **__: pytest.fail("played"))
    plan = Plan(task=TASK, policy=balancer(5), noise=Noise.of(sigma), n_episodes=10)
    with pytest.raises(InputError, match=match):
        Query(**{"budgets": (0, 0.2), **question}).answer(plan.probe())
    with pytest.raises(InputError, match=match):
        certified_run(plan, Query(**{"budgets": (0, 0.2), **question}), tmp_path / "run", figure=False)
    assert not (tmp_path / "run").exists()


def test_no_ceiling_is_noticed_before_the_first_step():
    task = make_task(waiting_env.ID, floor=0, ceiling=None)
    plan = Plan(task=task, policy=balancer(), noise=Noise.of(0.1))
    with pytest.raises(InputError, match="needs a known ceiling"):
        Query(budgets=(0.1,), method="per-threshold").answer(plan.probe())
    Query(budgets=(0.1,)).answer(plan.probe())


def test_no_workers_leave_no_folder(tmp_path):
    with pytest.raises(InputError, match="workers must be at least 1, got 0"):
        certified_run(
            Plan(task=TASK, policy=balancer(5), noise=Noise.of(0.2), n_episodes=10),
            QUESTIONS,
            tmp_path / "run",
            workers=0,
            figure=False,
        )
    assert not (tmp_path / "run").exists()


# --- runs -----------------------------------------------------------------------------------------------------------


def test_a_run_leaves_everything_and_is_not_played_twice(tmp_path, monkeypatch):
    plan = plan_for(TASK, as_policy("cartpole-5-s0.2", TASK.spaces), 0.2, 60, n_envs=25)
    first = certified_run(plan, QUESTIONS, tmp_path)
    left = {"certificate.json", "certificate.png", "episodes.npz", "run.json", "setup.json"}
    left |= {"report.html"}  # a replay only where it is recorded
    assert {path.name for path in tmp_path.iterdir()} == left
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["agent_sha256"] == plan.policy.sha256
    # Without what it was built for: the package itself says "+cu130", its metadata may not.
    assert facts["versions"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert facts["versions"]["gymnasium"] == gymnasium.__version__
    assert facts["wall_seconds"] >= facts["play_seconds"] >= 0
    assert facts["resumed"] is False
    assert np.array_equal(Episodes.load(tmp_path / "episodes.npz").returns, rollout_of(plan).returns)
    monkeypatch.setattr("surefoot.play.rollout.play", lambda *_, **__: pytest.fail("played"))
    again = certified_run(plan, Query(budgets=(0, 0.2), confidence=0.99), tmp_path)
    assert again.estimate == first.estimate
    assert (again.lower < first.lower).all()
    assert json.loads((tmp_path / "certificate.json").read_text())["confidence"] == 0.99
    assert json.loads((tmp_path / "run.json").read_text())["resumed"] is True


def test_a_reused_run_keeps_the_facts_of_its_play(tmp_path, monkeypatch):
    plan = Plan(task=TASK, policy=balancer(5), noise=Noise.of(0.2), n_episodes=60, n_envs=25)
    certified_run(plan, QUESTIONS, tmp_path, figure=False)
    first = json.loads((tmp_path / "run.json").read_text())
    assert first["certified_with"] == first["versions"]
    assert first["certify_seconds"] == pytest.approx(first["wall_seconds"] - first["play_seconds"], abs=0.002)
    monkeypatch.setattr(runs, "versions", lambda: {"surefoot": "9"})
    certified_run(plan, Query(budgets=(0, 0.4)), tmp_path, workers=2, figure=False)
    second = json.loads((tmp_path / "run.json").read_text())
    of_play = ("agent_sha256", "versions", "wall_seconds", "play_seconds", "workers")
    assert [second[key] for key in of_play] == [first[key] for key in of_play]
    assert second["certified_with"] == {"surefoot": "9"}
    assert second["certify_seconds"] >= 0
    (tmp_path / "run.json").unlink()  # a run killed before it could write them
    certified_run(plan, QUESTIONS, tmp_path, figure=False)
    third = json.loads((tmp_path / "run.json").read_text())
    assert [third[key] for key in of_play[1:]] == [None] * 4  # unknown, and not made up


def rollout_of(plan):
    return rollout(
        plan.task, plan.policy, sigma=plan.noise.sigma, n_episodes=plan.n_episodes, seed=plan.seed, n_envs=plan.n_envs
    )


def test_returns_below_the_floor_are_no_certificate(tmp_path):
    task = make_task("CartPole-v1", floor=0, env_kwargs={"sutton_barto_reward": True})  # a pole that falls costs 1
    plan = Plan(task=task, policy=balancer(), noise=Noise.of(5.0), n_episodes=3)
    with pytest.raises(InputError, match="below the floor 0, got -1"):
        certified_run(plan, QUESTIONS, tmp_path / "run", figure=False)
    assert not (tmp_path / "run" / "certificate.json").exists()


def wrong_in_the_third_block(value):
    """Lengths and payments of a toy whose one-step episodes pay 0.5, but ``value`` in the third block."""
    blocks = []

    def draw(rows, stream):
        blocks.append(rows)
        return torch.ones(rows, dtype=torch.int64)

    def pay(actions, clock, length):
        return torch.full(clock.shape, value if len(blocks) == 3 else 0.5)

    return draw, pay


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (-3.0, "in episodes 20 to 29 of toy: no return may be below the floor 0, got -3"),
        (7.0, "in episodes 20 to 29 of toy: no return may be above the ceiling 1, got 7"),
        (float("nan"), "in episodes 20 to 29 of toy: returns must be finite, got nan at position 0"),
        (float("inf"), "in episodes 20 to 29 of toy: returns must be finite, got inf"),
    ],
)
def test_impossible_returns_are_noticed_in_the_block_they_come_in(tmp_path, value, match):
    draw, pay = wrong_in_the_third_block(value)
    plan = plan_for(toy_task(draw, pay), constant(), 0.2, 50, n_envs=10, episodes_per_env=1)
    with pytest.raises(InputError, match=match):
        certified_run(plan, QUESTIONS, tmp_path, figure=False)
    assert sorted(path.name for path in (tmp_path / "blocks").iterdir()) == ["000000.npz", "000001.npz"]


def test_a_corrected_floor_works_in_the_same_folder(tmp_path):
    wrong, right = (toy_task(fixed(1), pay_steps, floor=floor, ceiling=3.0) for floor in (2.0, 0.0))
    with pytest.raises(InputError, match="below the floor 2, got 1"):
        certified_run(
            Plan(task=wrong, policy=constant(), noise=Noise.of(0.2), n_episodes=20, n_envs=10),
            QUESTIONS,
            tmp_path,
            figure=False,
        )
    assert list(tmp_path.iterdir()) == []
    certified_run(
        Plan(task=right, policy=constant(), noise=Noise.of(0.2), n_episodes=20, n_envs=10),
        QUESTIONS,
        tmp_path,
        figure=False,
    )
    assert (tmp_path / "certificate.json").exists()


def test_directories_of_wrapped_environments_have_short_names():
    """And other ones for other wrappers."""
    names = []
    for low in (-1, -2):
        task = make_task("Pendulum-v1", wrappers=(f'ClipReward={{"min_reward": {low}}}',), reward_range=(low, 0))
        policy = replace(constant(1), spaces=Spaces(shape=(3,), n_actions=None), name="ppo-Pendulum-v1")
        names.append(run_name(Plan(task=task, policy=policy, noise=Noise.of(0.1), n_episodes=4)))
    assert names[0] != names[1]
    assert all(re.fullmatch(r"ppo-Pendulum-v1-\w{12}-sigma0.1-seed0-n4", name) for name in names)
