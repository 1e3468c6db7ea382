"""Agents of strangers at the command: a folder or a file is enough, and each refusal names the way out."""

import json

import gymnasium
import numpy as np
import pytest
import stable_baselines3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from surefoot.cli import main as cli

FLOOR = ("--sigma", "0.1", "--floor", "-3300", "--ceiling", "0")
FEW = ("--episodes", "12", "--budgets", "0,0.1", "--quiet", "--workers", "1")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path):
    """A published agent of a heavier pendulum, with statistics."""
    home = tmp_path / "a2c-Pendulum-v1"
    home.mkdir()
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    model = stable_baselines3.A2C("MlpPolicy", env, policy_kwargs={"net_arch": [4]}, device="cpu", seed=0, n_steps=4)
    env.obs_rms.mean, env.obs_rms.var = np.array([0.5, 0.0, 1.0]), np.array([0.1, 0.2, 9.0])
    model.save(home / "a2c-Pendulum-v1.zip")
    env.save(home / "vec_normalize.pkl")
    (home / "config.yml").write_text("normalize: true\n")
    (home / "args.yml").write_text("env: Pendulum-v1\nenv_kwargs: {g: 2.0}\n")
    return home


def command(*arguments, code=0):
    assert cli.main([str(argument) for argument in arguments]) == code


def certified(capsys, *arguments):
    command("certify", *arguments, *FLOOR, *FEW, "--json")
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments, match):
    command(*arguments, code=2)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert match in err


def test_a_folder_is_enough(folder, capsys, tmp_path):
    bare = certified(capsys, folder, "--out", tmp_path / "one")
    (folder / "args.yml").write_text("env: Pendulum-v1\n")
    heavier = certified(capsys, "--agent", folder / "a2c-Pendulum-v1.zip", "--out", tmp_path / "two")
    assert heavier["estimate"] < bare["estimate"]  # a gravity of ten, not of two
    command("verify", tmp_path / "one", "--agent", folder, "--blocks", "all", "--quiet")
    assert "Verified" in capsys.readouterr().out
    command("verify", tmp_path / "one", "--agent", folder, "--vecnormalize", "none", "--quiet", code=1)
    assert "the weights of" in capsys.readouterr().out


def test_wrappers_of_training_are_applied_given_or_asked_for(folder, capsys, tmp_path):
    (folder / "config.yml").write_text("normalize: true\nenv_wrapper:\n- rl_zoo3.wrappers.FrameSkip:\n    skip: 2\n")
    refused(capsys, "certify", folder, *FLOOR, match="behind the wrapper rl_zoo3.wrappers.FrameSkip with {'skip': 2}")
    half = ("--wrapper", 'gymnasium.wrappers:TimeAwareObservation={"flatten": false}')
    refused(capsys, "certify", folder, *half, *FLOOR, *FEW, match="observations")  # taken, and of another shape
    wrapped = certified(capsys, folder, "--wrapper", 'ClipReward={"min_reward": -1}', "--out", tmp_path / "clipped")
    assert wrapped["estimate"] >= -200


def test_refusals_name_the_way_out(folder, capsys):
    refused(
        capsys,
        "certify",
        folder,
        match="--env Pendulum-v1 also needs --sigma S, the noise on every new observation; --floor F, the lowest",
    )
    args = folder / "args.yml"
    for old, new in (("Pendulum-v0", "Pendulum-v1"), ("LunarLander-v2", "LunarLander-v3"), ("Hopper-v3", "Hopper-v4")):
        args.write_text(f"env: {old}\n")
        refused(capsys, "certify", folder, *FLOOR, match=f"its successor is {new}: give --env {new}")
    args.write_text("env: NoSuchBulletEnv-v0\n")
    refused(capsys, "certify", folder, *FLOOR, match="install that and give --env-module pybullet_envs_gymnasium")
    args.write_text("env: NoSuchEnv-v0\n")
    refused(capsys, "certify", folder, *FLOOR, match="cannot make the environment 'NoSuchEnv-v0'")
    (folder / "settings").mkdir()
    refused(capsys, "certify", folder / "settings", match="settings holds no SB3 model file")
    alone = folder.parent / "model.zip"
    (folder / "a2c-Pendulum-v1.zip").rename(alone)
    refused(capsys, "certify", alone, *FLOOR, match="says what it was trained on; give --env ID")
    (folder / "vec_normalize.pkl").rename(alone.with_name("vec_normalize.pkl"))
    setup = ("certify", "--env", "Pendulum-v1", "--agent", alone, *FLOOR)
    refused(capsys, *setup, match="give --vecnormalize")
    command(*setup, "--vecnormalize", "vec_normalize.pkl", *FEW)
    assert "Report" in capsys.readouterr().out
