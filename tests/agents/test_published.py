"""Folders as RL Baselines3 Zoo and the Hub lay them out: found, understood, and nothing in them run."""

import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path

import gymnasium
import pytest
import stable_baselines3
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from surefoot.agents.resolve import as_policy, is_published, locate
from surefoot.agents.sb3.published import read_published
from surefoot.errors import InputError

ORDERED = "!!python/object/apply:collections.OrderedDict\n- - - "


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A tiny model of Pendulum and the statistics it was trained with."""
    folder = tmp_path_factory.mktemp("saved")
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    model = stable_baselines3.A2C("MlpPolicy", env, policy_kwargs={"net_arch": [4]}, device="cpu", seed=0, n_steps=4)
    model.learn(40)
    model.save(folder / "model.zip")
    env.save(folder / "statistics.pkl")
    return (folder / "model.zip").read_bytes(), (folder / "statistics.pkl").read_bytes()


def zoo(
    tmp_path, saved, config="normalize\n    - true\n", args="env\n    - Pendulum-v1\n", statistics="vecnormalize.pkl"
):
    """``a2c/Pendulum-v1_1/`` as RL Baselines3 Zoo writes it."""
    folder = tmp_path / "a2c" / "Pendulum-v1_1"
    inner = folder / "Pendulum-v1"
    inner.mkdir(parents=True)
    (folder / "Pendulum-v1.zip").write_bytes(saved[0])
    (folder / "best_model.zip").write_bytes(saved[0])
    (inner / "config.yml").write_text(ORDERED + config)
    (inner / "args.yml").write_text(ORDERED + args)
    if statistics:
        (inner / statistics).write_bytes(saved[1])
    return folder


def hub(tmp_path, saved):
    """A repository of the Hub."""
    folder = tmp_path / "a2c-Pendulum-v1"
    folder.mkdir()
    (folder / "a2c-Pendulum-v1.zip").write_bytes(saved[0])
    (folder / "vec_normalize.pkl").write_bytes(saved[1])
    (folder / "config.yml").write_text("normalize: true\nnormalize_kwargs:\n  norm_obs: true\n  norm_reward: false\n")
    (folder / "args.yml").write_text("algo: a2c\nenv: Pendulum-v1\n")
    (folder / "env_kwargs.yml").write_text("g: 9.0\nrender_mode: human\n")
    with zipfile.ZipFile(folder / "train_eval_metrics.zip", "w") as archive:
        archive.writestr("monitor.csv", "r")
    return folder


def test_the_zoo(tmp_path, saved):
    folder = zoo(tmp_path, saved)
    found = read_published(folder)
    assert (found.model.name, found.environment, found.env_kwargs) == ("Pendulum-v1.zip", "Pendulum-v1", {})
    assert found.statistics == folder / "Pendulum-v1" / "vecnormalize.pkl"
    assert locate(folder) == folder
    hashes = {
        as_policy(agent).sha256
        for agent in (folder, str(folder), folder / "Pendulum-v1.zip", folder / "best_model.zip")
    }
    assert len(hashes) == 1
    assert hashes != {as_policy(folder, vecnormalize="none").sha256}


@pytest.mark.parametrize(
    ("algorithm", "name"), [("ppo", "ppo-Pendulum-v1"), ("'a/../b'", "Pendulum-v1"), ("v1", "Pendulum-v1")]
)
def test_agents_of_one_environment_have_different_names(tmp_path, saved, algorithm, name):
    """Else the second of them is refused by the run directory of the first."""
    folder = zoo(tmp_path, saved, args=f"env\n    - Pendulum-v1\n  - - algo\n    - {algorithm}\n")
    assert as_policy(folder).name == name
    assert as_policy(folder / "best_model.zip").name == "best_model"


def test_the_zoo_from_inside_its_folder(tmp_path, saved, monkeypatch):
    monkeypatch.chdir(zoo(tmp_path, saved))
    for agent in (".", "best_model.zip", "Pendulum-v1.zip"):
        assert read_published(Path(agent)).statistics is not None


def test_the_hub(tmp_path, saved):
    folder = hub(tmp_path, saved)
    found = read_published(folder)
    assert (found.model.name, found.environment) == ("a2c-Pendulum-v1.zip", "Pendulum-v1")
    assert found.env_kwargs == {"g": 9.0}
    assert found.statistics == folder / "vec_normalize.pkl"
    assert as_policy(folder).sha256 == as_policy(found.model).sha256


def test_a_hub_folder_without_settings_names_its_environment(tmp_path, saved):
    folder = hub(tmp_path, saved)
    for name in ("config.yml", "args.yml", "env_kwargs.yml"):
        (folder / name).unlink()
    assert read_published(folder).environment == "Pendulum-v1"
    with pytest.raises(InputError, match=r"vec_normalize\.pkl is near a2c-Pendulum-v1\.zip"):
        as_policy(folder)


@pytest.mark.parametrize(
    ("config", "used"),
    [
        ("normalize\n    - true\n", True),
        ("normalize\n    - dict(norm_obs=True, norm_reward=False)\n", True),
        ("normalize\n    - \"{'norm_obs': True}\"\n", True),
        ("n_envs\n    - 4\n", True),  # it does not say, the file does
        ("normalize\n    - dict(norm_obs=False, norm_reward=True)\n", False),
        ("normalize\n    - false\n", False),
        ("normalize\n    - true\n  - - normalize_kwargs\n    - norm_obs: false\n", False),
    ],
)
def test_whether_observations_were_normalized(tmp_path, saved, config, used):
    assert (read_published(zoo(tmp_path, saved, config)).statistics is not None) == used


def test_statistics_that_are_missing_are_missed(tmp_path, saved):
    folder = zoo(tmp_path, saved, statistics="")
    with pytest.raises(InputError, match=r"its statistics are needed; .* holds none: give the file as vecnormalize="):
        as_policy(folder)
    assert read_published(zoo(tmp_path / "plain", saved, "n_envs\n    - 4\n", statistics="")).statistics is None


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ("env_wrapper\n    - gym_minigrid.wrappers.FlatObsWrapper\n", "behind the wrapper gym_minigrid.wrappers.Flat"),
        (
            "env_wrapper\n    - - rl_zoo3.wrappers.HistoryWrapper\n",
            "behind the wrapper rl_zoo3.wrappers.HistoryWrapper",
        ),
        (
            "env_wrapper\n    - - sb3_contrib.common.wrappers.TimeFeatureWrapper:\n          test_mode: true\n",
            "TimeFeatureWrapper with {'test_mode': True}",
        ),
        (
            "env_wrapper\n    - - utils.wrappers.FrameSkip:\n          skip: 2\n"
            "      - gym.wrappers.gray_scale_observation.GrayScaleObservation:\n          keep_dim: true\n",
            "behind the wrapper utils.wrappers.FrameSkip with {'skip': 2}",
        ),
        ("vec_env_wrapper\n    - - my_code.VecEmbed\n", "behind the wrapper my_code.VecEmbed, which"),
    ],
)
def test_wrappers_without_a_counterpart_are_named(tmp_path, saved, config, match):
    folder = zoo(tmp_path, saved, config)
    for agent in (folder, folder / "best_model.zip"):
        refusal = read_published(agent).refusal
        assert match in refusal
        assert "which is not applied by itself; give it and all others with wrappers=, innermost first" in refusal


def test_games_are_whole(tmp_path, saved):
    config = "env_wrapper\n    - - stable_baselines3.common.atari_wrappers.AtariWrapper\n  - - frame_stack\n    - 4\n"
    found = read_published(zoo(tmp_path, saved, config, args="env\n    - PongNoFrameskip-v4\n"))
    assert (found.refusal, found.modules) == ("", ("ale_py",))
    assert [one.partition("=")[0].rpartition(":")[2] for one in found.wrappers] == ["AtariWrapper", "WholeGame"]
    options = "env_wrapper\n    - - stable_baselines3.common.atari_wrappers.AtariWrapper:\n          frame_skip: 2\n"
    vectors = (
        "          terminal_on_life_loss: true\n  - - vec_env_wrapper\n    - - x.VecFrameStack:\n          n_stack: 4\n"
    )
    found = read_published(zoo(tmp_path / "options", saved, options + vectors, args="env\n    - PongNoFrameskip-v4\n"))
    assert found.refusal == ""
    made = json.loads(found.wrappers[0].partition("=")[2])
    assert made == {"frame_skip": 2, "terminal_on_life_loss": False, "clip_reward": False}


def test_what_an_old_version_did_by_itself(tmp_path, saved):
    found = read_published(zoo(tmp_path, saved, args="env\n    - Ant-v3\n  - - env_kwargs\n    - {gravity: 3}\n"))
    assert found.arguments_for("Ant-v4") == {"use_contact_forces": True, "gravity": 3}
    assert found.arguments_for("Ant-v5") == {"gravity": 3}
    assert found.arguments_for("Pendulum-v1") == {}
    # What was said counts for more than what an old version did unasked.
    said = replace(found, env_kwargs={"use_contact_forces": False})
    assert said.arguments_for("Ant-v4") == {"use_contact_forces": False}


def test_statistics_of_rewards_alone_are_not_missed(tmp_path, saved):
    """The file near the model says itself that observations were not normalized."""
    folder = zoo(tmp_path, saved, "normalize\n    - dict(norm_obs=False, norm_reward=True)\n")
    with pytest.raises(InputError, match="is near"):  # the settings and the file contradict each other
        as_policy(folder)
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]), norm_obs=False)
    env.save(folder / "Pendulum-v1" / "vecnormalize.pkl")
    assert as_policy(folder).sha256 == as_policy(folder, vecnormalize="none").sha256


@pytest.mark.parametrize(
    "content",
    [
        "!!python/object/apply:os.system ['touch ran']\n",
        "a: !!python/object/apply:os.system ['touch ran']\n",
        "a: !!python/name:os.system\n",
        "!!python/object/new:os.system ['touch ran']\n",
        "a: [\n",
        "- 1\n",
        "a: " + "[" * 2_000,
        "!!python/object/apply:collections.OrderedDict [[[[1], 2]]]",
        "!!python/object/apply:collections.OrderedDict [3]",
    ],
)
def test_settings_are_data(tmp_path, saved, content, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = zoo(tmp_path, saved)
    (folder / "Pendulum-v1" / "config.yml").write_text(content)
    with pytest.raises(InputError, match=r"config\.yml (is not YAML of plain values|must hold named settings)"):
        as_policy(folder)
    assert "ran" not in os.listdir()  # noqa: PTH208


@pytest.mark.parametrize("text", ["dict(a=open('x'))", "__import__('os')", "dict(", "f(a=1)"])
def test_dictionaries_in_texts_are_data(tmp_path, saved, text):
    folder = zoo(tmp_path, saved, f'normalize\n    - "{text}"\n')
    with pytest.raises(InputError, match="is not a dictionary of plain values"):
        as_policy(folder)


def test_tuples_are_read(tmp_path, saved):
    folder = zoo(tmp_path, saved, args="env\n    - Pendulum-v1\n  - - env_kwargs\n    - size: !!python/tuple [1, 2]\n")
    assert read_published(folder).env_kwargs == {"size": [1, 2]}


def test_folders_with_several_or_none(tmp_path, saved):
    folder = zoo(tmp_path, saved)
    assert is_published(folder.parent)
    with pytest.raises(
        InputError, match=r"holds no SB3 model file; give one of the folders in it, such as .*Pendulum-v1_1"
    ):
        as_policy(folder.parent)
    (folder / "other.zip").write_bytes(saved[0])
    with pytest.raises(InputError, match=r"holds several SB3 model files \(.*other\.zip\); give one of them"):
        as_policy(folder)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="unknown agent"):
        as_policy(tmp_path / "none")
    with zipfile.ZipFile(tmp_path / "none" / "a.zip", "w") as archive:
        archive.writestr("a", "b")
    with pytest.raises(InputError, match=r"holds no SB3 model file; give the \.zip file"):
        as_policy(tmp_path / "none")


def test_checkpoints_do_not_compete_with_the_final_model(tmp_path, saved):
    folder = zoo(tmp_path, saved)
    (folder / "rl_model_500_steps.zip").write_bytes(saved[0])
    assert read_published(folder).model.name == "Pendulum-v1.zip"
    (folder / "Pendulum-v1.zip").unlink()
    (folder / "rl_model_500_steps.zip").unlink()
    assert read_published(folder).model.name == "best_model.zip"


def test_statistics_that_were_left_behind_are_missed(tmp_path, saved):
    """A zip that was moved away from its statistics, but says itself that there were some; "none" is an answer."""
    alone = tmp_path / "moved.zip"
    alone.write_bytes(saved[0])
    with pytest.raises(InputError, match=r"moved\.zip was trained behind VecNormalize, and no statistics are near it"):
        as_policy(alone)
    assert as_policy(alone, vecnormalize="none").sha256
    # Where settings say that observations were not normalized, and for models that never were.
    rewards = "normalize\n    - \"{'norm_obs': False, 'norm_reward': True}\"\n"
    assert (
        as_policy(zoo(tmp_path, saved, rewards, statistics="")).sha256 == as_policy(alone, vecnormalize="none").sha256
    )
    for kind in (stable_baselines3.PPO, stable_baselines3.SAC):
        sizes = {"n_steps": 8, "batch_size": 8} if kind is stable_baselines3.PPO else {"learning_starts": 99}
        model = kind("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [4]}, device="cpu", seed=0, **sizes)
        model.learn(8)
        model.save(tmp_path / "plain.zip")
        assert as_policy(tmp_path / "plain.zip").sha256
