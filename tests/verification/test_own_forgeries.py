"""Runs that a dishonest author has made of true episodes: of another agent, environment, seed or return.

Everything in the files agrees: certificate, hash, setup.json and run.json are written again. Each row has an honest
twin, the same run as it was, which is verified.
"""

from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.files import read_json, write_json
from surefoot.proof.query import Query
from surefoot.verification.verify import verify

torch.set_num_threads(1)
WEAK, STRONG = "cartpole-1-s0.2", "cartpole-1-s0.4"
POLE = ("cartpole-1", "--agent", STRONG, "--sigma", "0.4")
PENDULUM = ("--env", "Pendulum-v1", "--agent", "agent", "--sigma", "0.1", "--max-steps", "20", "--floor", "-400")
CLIPPED = 'ClipReward={"min_reward": 5, "max_reward": 5}'
QUERY = Query(budgets=(0.0, 0.2), method="band")


def certify(*arguments, out="run"):
    """Certify as the command does; return the run directory."""
    few = ("--episodes", "60", "--budgets", "0,0.2", "--method", "band", "--workers", "1", "--quiet")
    assert cli.main(["certify", *arguments, *few, "--out", out]) == 0
    return Path(out)


def forge(folder, record, drop=(), **changes):
    """Write the run again with these episodes and another setup."""
    metadata = {key: value for key, value in {**record.metadata, **changes}.items() if key not in drop}
    forged = replace(record, metadata=metadata)
    forged.save(folder / "episodes.npz")
    QUERY.answer(forged).save(folder)
    write_json(folder / "setup.json", {"schema": 1, **forged.setup})
    write_json(folder / "run.json", {**read_json(folder / "run.json"), "agent_sha256": forged.setup["agent_sha256"]})


def publish(mean=0.0):
    """Write an agent of the pendulum, as the zoo publishes it, with statistics of its observations."""
    Path("agent").mkdir(exist_ok=True)
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("Pendulum-v1")]))
    model = stable_baselines3.A2C("MlpPolicy", env, policy_kwargs={"net_arch": [4]}, device="cpu", seed=0, n_steps=4)
    env.obs_rms.mean = np.full(3, mean)
    model.save("agent/a2c-Pendulum-v1.zip")
    env.save("agent/vec_normalize.pkl")
    Path("agent/config.yml").write_text("normalize: true\n")
    Path("agent/args.yml").write_text("env: Pendulum-v1\n")


def another_agents_episodes(folder):
    """The episodes of a strong agent, with name and hash of a weak one."""
    strong = Episodes.load(certify(*POLE, out="strong") / "episodes.npz")
    weak = Episodes.load(folder / "episodes.npz").metadata
    assert weak["agent"] == WEAK
    forge(folder, strong, agent=WEAK, agent_sha256=weak["agent_sha256"], seed=weak["seed"])


def the_better_block_of_two_seeds(folder):
    """Each block is that of the seed under which it went better: all are true episodes of the agent."""
    one = Episodes.load(folder / "episodes.npz")
    other = Episodes.load(certify(*POLE, "--seed", "1", out="other") / "episodes.npz")
    pairs = [(one[at : at + 30], other[at : at + 30]) for at in (0, 30)]
    better = [max(pair, key=lambda block: block.returns.mean()) for pair in pairs]
    assert np.concatenate([block.returns for block in better]).mean() > one.returns.mean()
    forge(folder, Episodes.concat([replace(block, metadata=one.metadata) for block in better]))


def an_easier_environment_under_the_plain_name(folder):
    """Less gravity is an argument, and so a part of the name."""
    record = Episodes.load(folder / "episodes.npz")
    assert record.metadata["task"] != "Pendulum-v1"
    forge(folder, record, task="Pendulum-v1")


def discounted_costs_without_their_discount(folder):
    """What a pendulum pays is negative: a discount brings its return near 0."""
    forge(folder, Episodes.load(folder / "episodes.npz"), drop=("gamma",))


def a_wrapper_of_the_reward_left_out(folder):
    """Five for every step instead of one."""
    record = Episodes.load(folder / "episodes.npz")
    forge(folder, record, drop=("wrappers",), task="CartPole-v1")


def statistics_exchanged(folder):
    """The certificate is of the agent with its own statistics; what is handed over has others."""
    before = read_json(folder / "certificate.json")
    publish(mean=5.0)
    assert read_json(folder / "certificate.json") == before


ROWS = {
    # name: (what is certified, what is forged, options of verify, the check that fails, words of it)
    "another agent's episodes": (
        ("cartpole-1", "--agent", WEAK, "--sigma", "0.4"),
        another_agents_episodes,
        {},
        "replay",
        "returns differ, first episode 0",
    ),
    "the better block of two seeds": (POLE, the_better_block_of_two_seeds, {}, "replay", "30 returns differ"),
    "an easier environment": (
        (*PENDULUM, "--env-kwargs", '{"g": 1.0}'),
        an_easier_environment_under_the_plain_name,
        {"agent": "agent"},
        "setup and weights",
        "task is 'Pendulum-v1'",
    ),
    "a discount left out": (
        (*PENDULUM, "--gamma", "0.5"),
        discounted_costs_without_their_discount,
        {"agent": "agent"},
        "replay",
        "returns differ",
    ),
    "a wrapper left out": (
        ("--env", "CartPole-v1", "--wrapper", CLIPPED, "--agent", STRONG, "--sigma", "0.4", "--max-steps", "200"),
        a_wrapper_of_the_reward_left_out,
        {"environment": "CartPole-v1", "wrappers": (CLIPPED,)},
        "floor and ceiling",
        "the rules of CartPole-v1 allow none above 200",
    ),
    "statistics exchanged": (PENDULUM, statistics_exchanged, {"agent": "agent"}, "setup and weights", "have hash"),
}


@pytest.mark.parametrize("name", ROWS)
def test_an_own_forgery_is_refused_by_name_and_its_twin_is_verified(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked, change, options, check, words = ROWS[name]
    if "agent" in options:
        publish()
    folder = certify(*asked)
    honest = verify(folder, blocks=None, fresh=8, **options)
    assert honest.verified, honest.checks
    change(folder)
    if "wrappers" in options:
        options = {}  # nothing in the files says that there was one
    forged = verify(folder, blocks=None, fresh=8, **options)
    failed = {each.name: each.detail for each in forged.checks if each.result == "failed"}
    assert forged.verdict == "failed"
    assert words in failed[check]
