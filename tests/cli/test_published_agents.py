"""Agents of strangers at the command: a folder or a file is enough, and each refusal names the way out."""

import json

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from cli_commands import refused, surefoot_command
from stand_ins import SpacesOnly
from surefoot.agents.policies import Spaces
from surefoot.agents.resolve import as_policy

FLOOR = ("--sigma", "0.1", "--floor", "-3300", "--ceiling", "0")
FEW = ("--episodes", "12", "--budgets", "0,0.1", "--quiet", "--workers", "1")


pytestmark = pytest.mark.usefixtures("own_folder")


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


def certified(capsys, *arguments):
    surefoot_command("certify", *arguments, *FLOOR, *FEW, "--json")
    return json.loads(capsys.readouterr().out)


def test_a_folder_is_enough(folder, capsys, tmp_path):
    bare = certified(capsys, folder, "--out", tmp_path / "one")
    (folder / "args.yml").write_text("env: Pendulum-v1\n")
    heavier = certified(capsys, "--agent", folder / "a2c-Pendulum-v1.zip", "--out", tmp_path / "two")
    assert heavier["estimate"] < bare["estimate"]  # a gravity of ten, not of two
    surefoot_command("verify", tmp_path / "one", "--agent", folder, "--blocks", "all", "--fresh", "4", "--quiet")
    assert "Verified" in capsys.readouterr().out
    surefoot_command("verify", tmp_path / "one", "--agent", folder, "--vecnormalize", "none", "--quiet", code=1)
    assert "the weights of" in capsys.readouterr().out


def test_an_atari_agent_of_the_zoo_plays_whole_games(capsys, tmp_path):
    """Frames are stacked behind the wrapper, as SB3's VecFrameStack does, and the record says how it was made."""
    pytest.importorskip("cv2")
    pytest.importorskip("ale_py")
    home = tmp_path / "dqn" / "PongNoFrameskip-v4_1"
    inner = home / "PongNoFrameskip-v4"
    inner.mkdir(parents=True)
    frames = gymnasium.spaces.Box(0, 255, (84, 84, 1), np.uint8)
    env = VecFrameStack(DummyVecEnv([lambda: SpacesOnly(frames, gymnasium.spaces.Discrete(6))]), 4)
    small = {"features_extractor_kwargs": {"features_dim": 8}, "net_arch": []}
    model = stable_baselines3.DQN("CnnPolicy", env, buffer_size=1, policy_kwargs=small, device="cpu", seed=0)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        for weight in model.q_net.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.1)
    model.save(home / "PongNoFrameskip-v4.zip")
    (inner / "args.yml").write_text("env: PongNoFrameskip-v4\n")
    (inner / "config.yml").write_text(
        "env_wrapper:\n- stable_baselines3.common.atari_wrappers.AtariWrapper\nframe_stack: 4\npolicy: CnnPolicy\n"
    )
    setup = ("--sigma", "0.1", "--floor", "-21", "--ceiling", "21", "--max-steps", "60", "--budgets", "0,0.1")
    surefoot_command(
        "certify", home, *setup, "--episodes", "2", "--quiet", "--workers", "1", "--json", "--out", tmp_path / "run"
    )
    assert json.loads(capsys.readouterr().out)["estimate"] == 0  # the first point takes longer
    made = json.loads((tmp_path / "run" / "setup.json").read_text())
    assert [one.rpartition(":")[2] for one in made["wrappers"][1:]] == ["WholeGame"]
    policy = as_policy(home, Spaces(shape=(84, 84, 1), n_actions=6, pixels=True))
    assert policy.spaces.n_stack == 4
    large = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 4), dtype=np.uint8)
    seen = large.repeat(21, axis=1).repeat(21, axis=2)
    expected = model.predict(seen, deterministic=True)[0]
    stacks = torch.from_numpy(seen.astype(np.float32) / 255).permute(0, 3, 1, 2).unsqueeze(-1)
    assert np.array_equal(policy.act(stacks).numpy(), expected)
    assert len(set(expected)) > 1


def test_sigma_and_budgets_in_normalized_units(folder, capsys, tmp_path):
    """The same run as with a sigma for each feature, written out; and described in both units."""
    scales = [np.sqrt(var + 1e-8) for var in (0.1, 0.2, 9.0)]
    limits = ("--floor", "-3300", "--ceiling", "0", "--episodes", "12", "--workers", "1", "--quiet")
    units = ("--units", "normalized", "--sigma", "0.5", "--budgets", "0,0.5", "--require=-3000@0.5")
    surefoot_command("certify", folder, *units, *limits, "--out", tmp_path / "one")
    shown = " ".join(capsys.readouterr().out.split())
    assert "attack budget (normalized units) lower bound upper bound 0 " in shown
    assert "episodes, sigma 0.5, method" in shown
    assert "budget 0.5 normalized units (total l2 norm" in shown
    assert "at budget 0.5" in shown
    assert "budgets are 0.316228 times the above there" in shown
    by_hand = ",".join(repr(float(0.5 * scale)) for scale in scales)
    surefoot_command(
        "certify", folder, "--sigma", by_hand, "--budgets", f"0,{0.5 * scales[0]}", *limits, "--out", tmp_path / "two"
    )
    capsys.readouterr()
    attack = ("--units", "normalized", "--sigma", "0.5", "--budgets", "0.5", "--method", "random", "--floor", "-3300")
    surefoot_command("attack", folder, *attack, "--episodes", "4", "--workers", "1", "--out", tmp_path / "attacked")
    shown = capsys.readouterr().out
    assert "normalized budget" in shown
    assert "Compared with: " + str(tmp_path / "one" / "certificate.json") in shown
    one, two = (json.loads((tmp_path / name / "certificate.json").read_text()) for name in ("one", "two"))
    assert one["lower"] == two["lower"]
    assert one["budgets"] == pytest.approx(two["budgets"])
    surefoot_command("verify", tmp_path / "one", "--agent", folder, "--fresh", "4", "--quiet")
    assert "Verified" in capsys.readouterr().out
    for wrong, match in [
        (("--sigma", "0.1,0.2,0.3"), "normalized units need one sigma for all features"),
        (("--sigma", "0.1", "--vecnormalize", "none"), "needs an agent with statistics of VecNormalize"),
        (("--sigma", "0.1", "--norm", "linf"), "is for --norm l2, got linf"),
        (("--sigma", "0"), "normalized units need a sigma above 0"),
        (("--sigma", "0.1", "--action-sigma", "0.1"), "cannot be combined with --action-sigma"),
    ]:
        refused(capsys, "certify", folder, "--units", "normalized", *wrong, *limits, match=match)


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
        match="--env Pendulum-v1 also needs --sigma S, the noise on every new observation ('surefoot tune' compares "
        "several); --floor F, the lowest",
    )
    args = folder / "args.yml"
    for old, new in (("Pendulum-v0", "Pendulum-v1"), ("LunarLander-v2", "LunarLander-v3"), ("Hopper-v3", "Hopper-v4")):
        args.write_text(f"env: {old}\n")
        refused(capsys, "certify", folder, *FLOOR, match=f"its successor is {new}: give --env {new}")
    args.write_text("env: NoSuchBulletEnv-v0\n")
    refused(capsys, "certify", folder, *FLOOR, match="install that and give --env-module pybullet_envs_gymnasium")
    args.write_text("env: NoSuchEnv-v0\n")
    refused(capsys, "certify", folder, *FLOOR, match="cannot make the environment 'NoSuchEnv-v0'")
    refused(
        capsys, "certify", "--agent", "nowhere/x.zip", *FLOOR, match="no file or folder nowhere/x.zip; give that of an"
    )
    (folder / "settings").mkdir()
    refused(capsys, "certify", folder / "settings", match="settings holds no SB3 model file")
    alone = folder.parent / "model.zip"
    (folder / "a2c-Pendulum-v1.zip").rename(alone)
    refused(capsys, "certify", alone, *FLOOR, match="says what it was trained on; give --env ID")
    (folder / "vec_normalize.pkl").rename(alone.with_name("vec_normalize.pkl"))
    setup = ("certify", "--env", "Pendulum-v1", "--agent", alone, *FLOOR)
    refused(capsys, *setup, match="give --vecnormalize")
    surefoot_command(*setup, "--vecnormalize", "vec_normalize.pkl", *FEW)
    assert "Report" in capsys.readouterr().out
