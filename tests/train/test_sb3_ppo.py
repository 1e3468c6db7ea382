"""SB3's PPO for any environment: what the actor never sees, what is written, and that it learns."""

import json
from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import surefoot
from surefoot.agents import files as zoo
from surefoot.agents.resolve import as_policy
from surefoot.cli import main as cli
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.environments import make_task
from surefoot.play.envs.gymnasium_env import Gymnasium
from surefoot.play.streams import training_seeds
from surefoot.play.task import Backend
from surefoot.play.tasks import get_task
from surefoot.train.presets import PRESETS
from surefoot.train.sb3_env import CLEAN, NOISY, NoisyAndClean
from surefoot.train.sb3_ppo import build_sb3_ppo, train_sb3_ppo
from surefoot.train.settings import Sb3PpoSettings, default_sb3_settings
from trainings import run_training

torch.set_num_threads(1)
POLE = make_task("CartPole-v1", floor=0, ceiling=60, max_steps=60)
PENDULUM = make_task("Pendulum-v1", floor=-700, ceiling=0, max_steps=40)
TINY = Sb3PpoSettings(
    total_steps=1_024,
    validation_interval=512,
    validation_episodes=20,
    n_envs=8,
    n_steps=32,
    batch_size=64,
    hidden=(16,),
)


def environments(task=POLE, sigma=0.2, n_stack=3, n_envs=16):
    return NoisyAndClean(task, Noise.of(sigma), n_stack=n_stack, n_envs=n_envs, seeds=training_seeds(0, 0))


# --- what is seen ---------------------------------------------------------------------------------------------------


def one_by_one(task):
    """Return the task run by Gymnasium environments, one for each row."""
    return replace(task, backend=Backend(batch=partial(Gymnasium, task.backend.open), open=task.backend.open))


@pytest.mark.parametrize("task", [one_by_one(POLE), POLE], ids=["gymnasium", "tensors"])
def test_stacks_are_noisy_clean_observations_are_not(task):
    env = environments(task)
    before = env.reset()
    stacks = before[NOISY].reshape(16, 3, 4)
    assert np.array_equal(stacks[:, 0], stacks[:, 1])  # the first observation fills the stack, noise included
    assert np.array_equal(stacks[:, 0], stacks[:, 2])
    assert np.abs(before[CLEAN][:, :4]).max() <= 0.05  # where CartPole begins
    assert (before[CLEAN][:, 4] == 1).all()
    draws = []
    generator = np.random.default_rng(0)
    for _ in range(80):
        after, reward, over, _ = env.step(generator.integers(2, size=16))
        new, old = after[NOISY].reshape(16, 3, 4), before[NOISY].reshape(16, 3, 4)
        assert np.array_equal(new[~over, :2], old[~over, 1:])
        assert (new[over] == new[over][:, :1]).all()  # an episode that begins remembers nothing of the one before
        assert (after[CLEAN][over, 4] == 1).all()
        assert np.abs(after[CLEAN][over, :4]).max(initial=0) <= 0.05
        assert (reward == 1).all()
        draws.append(new[:, -1] - after[CLEAN][:, :4])
        before = after
    spread = np.concatenate(draws)
    assert abs(spread.std() - 0.2) < 0.2 * 5 / np.sqrt(2 * spread.size)
    assert abs(spread.mean()) < 0.2 * 5 / np.sqrt(spread.size)
    env.close()


def test_the_actor_never_sees_what_is_clean():
    """Scramble the clean part: every action and its probability stay, every value changes."""
    model, env = build_sb3_ppo(POLE, Noise.of(0.2), TINY, seed=0)
    model.learn(256)
    seen = {key: torch.randn(50, *space.shape) for key, space in env.observation_space.spaces.items()}
    scrambled = {**seen, CLEAN: 9 * torch.randn(50, 5)}
    actions = torch.randint(2, (50,))
    before, after = (model.policy.evaluate_actions(one, actions) for one in (seen, scrambled))
    assert torch.equal(before[1], after[1])  # log-probabilities
    assert torch.equal(before[2], after[2])  # entropies
    assert not torch.isclose(before[0], after[0]).any()  # values
    noise = {**seen, NOISY: torch.randn(50, 4)}
    assert not torch.equal(model.policy.evaluate_actions(noise, actions)[1], before[1])  # it does see that
    env.close()


def test_without_the_clean_critic_nothing_sees_it():
    model, env = build_sb3_ppo(POLE, Noise.of(0.2), replace(TINY, clean_critic=False), seed=0)
    seen = {key: torch.randn(20, *space.shape) for key, space in env.observation_space.spaces.items()}
    scrambled = {**seen, CLEAN: torch.randn(20, 5)}
    assert torch.equal(*(model.policy.predict_values(one) for one in (seen, scrambled)))
    env.close()


# --- what is written ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "n_stack"), [(POLE, 3), (PENDULUM, 1)], ids=["discrete", "continuous"])
def test_agent_file_zip_and_sb3_act_alike(tmp_path, task, n_stack):
    calls = []
    policy = run_training(
        train_sb3_ppo,
        task,
        0.1,
        replace(TINY, n_stack=n_stack),
        tmp_path,
        progress=lambda *call: calls.append(call[:2]),
    )
    assert [call[0] for call in calls] == [512, 1024]
    card = json.loads((tmp_path / "agent.json").read_text())
    assert card["training"]["algorithm"] == "stable_baselines3.PPO"
    assert card["training"]["steps"] == 1024
    assert len(card["curve"]) == 2
    stored = zoo.load(str(tmp_path))
    assert stored.sha256 == policy.sha256
    zipped = as_policy(tmp_path / "agent.zip", task.spaces)
    size = (200, n_stack, *task.spaces.shape)
    history = torch.randn(size, generator=torch.Generator().manual_seed(0))
    for other in (stored, zipped):
        assert torch.equal(other.act(history), policy.act(history))
    model = stable_baselines3.PPO.load(tmp_path / "agent.zip", device="cpu")
    assert type(model.policy) is stable_baselines3.ppo.MlpPolicy
    env = DummyVecEnv([lambda: Nothing(model.observation_space, model.action_space)])
    normalize = VecNormalize.load(tmp_path / "agent" / "vecnormalize.pkl", env)
    seen = history.numpy().reshape(200, *model.observation_space.shape)
    expected = model.predict(normalize.normalize_obs(seen), deterministic=True)[0]
    assert np.allclose(policy.act(history).numpy(), expected, atol=1e-6)
    assert surefoot.rollout(task, tmp_path, sigma=0.1, n_episodes=8).returns.size == 8


class Nothing(gymnasium.Env):
    def __init__(self, observations, actions):
        self.observation_space, self.action_space = observations, actions


def test_resuming_goes_on_where_it_stopped(tmp_path):
    run_training(train_sb3_ppo, POLE, 0.2, TINY, tmp_path, seed=3)
    first = (tmp_path / "curve.csv").read_text()
    run_training(train_sb3_ppo, POLE, 0.2, replace(TINY, total_steps=2_048), tmp_path, seed=3, resume=True)
    assert (tmp_path / "curve.csv").read_text().startswith(first)
    card = json.loads((tmp_path / "agent.json").read_text())
    assert card["training"]["steps"] == 2048
    with pytest.raises(InputError, match="checkpoint of another task or version"):
        run_training(train_sb3_ppo, PENDULUM, 0.2, TINY, tmp_path, resume=True)


def test_it_learns(tmp_path):
    settings = replace(TINY, total_steps=12_288, validation_interval=6_144, n_envs=16, n_steps=64, batch_size=256)
    policy = run_training(train_sb3_ppo, POLE, 0.1, settings, tmp_path)
    returns = surefoot.rollout(POLE, policy, sigma=0.1, n_episodes=100, seed=1).returns
    assert returns.mean() > 40  # untrained agents keep the pole up for 9 steps, random ones for 20


@pytest.mark.parametrize(
    ("task", "settings", "match"),
    [
        (get_task("freeway"), TINY, "takes vectors as observations"),
        (POLE, replace(TINY, n_stack=0), "n_stack must be at least 1"),
    ],
)
def test_what_cannot_be_trained(tmp_path, task, settings, match):
    with pytest.raises(InputError, match=match):
        run_training(train_sb3_ppo, task, 0.2, settings, tmp_path)


def test_long_episodes_are_validated_on_less_often():
    assert default_sb3_settings(POLE).validation_interval == 100_000
    long = make_task("Pendulum-v1", floor=-16_300, max_steps=1_000)
    assert default_sb3_settings(long).validation_interval == 2 * 200 * 1_000


def test_any_setting_may_be_set(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PRESETS, "sb3-ppo", replace(PRESETS["sb3-ppo"], settings_of=lambda task: TINY))
    setup = ["train", "--env", "CartPole-v1", "--max-steps", "60", "--sigma", "0.2", "--quiet"]
    small = ["--set", "total_steps=5.12e2", "--set", "clean_critic=no", "--set", "hidden=8,8", "--set", "gamma=0.9"]
    assert cli.main([*setup, *small, "--out", str(tmp_path / "out")]) == 0
    settings = json.loads((tmp_path / "out" / "agent.json").read_text())["training"]["settings"]
    expected = {"total_steps": 512, "clean_critic": False, "hidden": [8, 8], "gamma": 0.9, "n_envs": 8}
    assert {name: settings[name] for name in expected} == expected
    capsys.readouterr()
    for wrong, match in [
        ("step=3", "a setting is given as NAME=VALUE, got 'step=3'; there are total_steps, validation_interval"),
        ("gamma", "a setting is given as NAME=VALUE, got 'gamma'"),
        ("n_envs=1.5", "the setting n_envs is 8 by default, got '1.5'"),
        ("clean_critic=maybe", "the setting clean_critic is True by default, got 'maybe'"),
        ("hidden=a", "the setting hidden is (16,) by default, got 'a'"),
    ]:
        assert cli.main([*setup, "--set", wrong, "--out", str(tmp_path / "none")]) == 2
        assert match in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PRESETS, "sb3-ppo", replace(PRESETS["sb3-ppo"], settings_of=lambda task: TINY))
    setup = ["train", "--env", "CartPole-v1", "--sigma", "0.2", "--quiet", "--out", "out"]
    assert cli.main([*setup, "--floor", "0", "--ceiling", "60", "--max-steps", "60", "--memory", "frames=2"]) == 0
    shown = capsys.readouterr().out
    assert "surefoot certify --env CartPole-v1 --floor 0.0 --ceiling 60.0 --max-steps 60 --agent out" in shown
    assert zoo.load("out").spaces.n_stack == 2
    assert cli.main(["export", "out", "--out", "again.zip"]) == 0
    assert "stable_baselines3.PPO.load" in capsys.readouterr().out
    for wrong, match in [
        (["train", "--sigma", "0.2"], "exactly one of TASK and --env"),
        ([*setup, "cartpole-5", "--floor", "0"], "exactly one of TASK and --env"),
        ([*setup, "--floor", "0", "--preset", "paper"], "the preset 'paper' has no settings for 'CartPole-v1'"),
        ([*setup, "--floor", "0", "--memory", "gru"], "memory must be frames=K with a whole number K, got 'gru'"),
        (["train", "cartpole-5", "--sigma", "0.2", "--floor", "0"], "--floor cannot be combined with a task"),
    ]:
        assert cli.main(wrong) == 2
        assert match in capsys.readouterr().err
