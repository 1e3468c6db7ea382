"""An empty folder to run in, and models of Stable-Baselines3 as they are saved."""

import shutil

import pytest
import stable_baselines3

from cli_commands import QUICK, surefoot_command


@pytest.fixture
def elsewhere(own_folder, monkeypatch):
    """Run in an empty folder, where what was left behind can be counted."""
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory):
    """What the command ``QUICK`` leaves, made once."""
    folder = tmp_path_factory.mktemp("quick") / "run"
    surefoot_command(*QUICK, "--out", folder, "--quiet")
    return folder


@pytest.fixture
def copied_run(elsewhere, quick_run):
    """Put a copy of it into the folder ``run``."""
    shutil.copytree(quick_run, "run")


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Real, tiny, untrained SB3 models as they are saved."""
    folder = tmp_path_factory.mktemp("models")
    for kind, environment in [
        ("DQN", "CartPole-v1"),
        ("PPO", "CartPole-v1"),
        ("DDPG", "Pendulum-v1"),
        ("SAC", "Pendulum-v1"),
    ]:
        options = {} if kind == "PPO" else {"buffer_size": 2}
        model = getattr(stable_baselines3, kind)(
            "MlpPolicy", environment, policy_kwargs={"net_arch": [8]}, device="cpu", seed=0, **options
        )
        model.save(folder / f"{kind}-{environment}.zip")
    return folder
