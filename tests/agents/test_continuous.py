"""Continuous agents from training to disk and to SB3: the same deterministic actor everywhere, and its critic."""

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from stable_baselines3 import DDPG, TD3
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise

from surefoot.agents import files as zoo
from surefoot.agents.fit import fit_to
from surefoot.agents.networks import Critic
from surefoot.agents.policies import Spaces
from surefoot.agents.sb3 import read as sb3
from surefoot.agents.sb3.write import write_zip
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.envs.mountain_car import MountainCar, open_mountain_car
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task, tensors
from surefoot.train.folder import TrainingCurve, TrainingFolder
from surefoot.train.off_policy import build_ddpg, kept_weights, load_checkpoint, save_checkpoint, train_off_policy
from surefoot.train.presets import PAPER
from surefoot.train.settings import DdpgSettings
from toys import actor_with_critic
from trainings import run_training

TASK = get_task("mountain-car")
# Episodes of sixty steps, so that a few of them are learned from in no time.
SHORT = dataclasses.replace(
    TASK,
    scoring=dataclasses.replace(TASK.scoring, max_steps=60),
    backend=tensors(partial(MountainCar, max_steps=60), partial(open_mountain_car, 60)),
)
TINY = DdpgSettings(total_steps=240, validation_interval=80, validation_episodes=2, hidden=(12, 8))


def histories(count=50, seed=3):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 5, 2)).astype(np.float32))


def test_a_stored_agent_acts_and_values_as_before(tmp_path):
    policy, some = actor_with_critic(), histories()
    zoo.save(policy, tmp_path / "toy", {"task": TASK.name, "sigma": 0.2})
    again = zoo.load(str(tmp_path / "toy"))
    assert torch.equal(policy.act(some), again.act(some))
    assert torch.equal(policy.critic(some, policy.act(some)), again.critic(some, policy.act(some)))
    assert again.spaces == Spaces(shape=(2,), n_actions=None, n_stack=5, low=(-1.0,), high=(1.0,))


def test_an_agent_without_critic_can_be_stored_too(tmp_path):
    bare = dataclasses.replace(actor_with_critic(), critic=None)
    zoo.save(bare, tmp_path / "toy", {})
    assert zoo.load(str(tmp_path / "toy")).critic is None
    with pytest.raises(InputError, match="and a critic, can be written"):
        write_zip(bare, tmp_path / "toy.zip")


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_what_plain_sb3_loads_is_the_same_agent(tmp_path, activation):
    policy, some = actor_with_critic(), histories()
    for network in (policy.network.network, policy.critic.network):
        network.activation = activation
    write_zip(policy, tmp_path / "toy.zip")
    model = DDPG.load(tmp_path / "toy.zip", device="cpu")
    theirs = model.predict(some.numpy(), deterministic=True)[0]
    np.testing.assert_allclose(theirs, policy.act(some).numpy(), atol=1e-6)
    with torch.no_grad():
        (values,) = model.critic(some, torch.from_numpy(theirs))
    np.testing.assert_allclose(values[:, 0].numpy(), policy.critic(some, policy.act(some)).numpy(), atol=1e-5)
    back = fit_to(sb3.read_zip(tmp_path / "toy.zip"), TASK.spaces.shape)
    assert isinstance(back.critic, Critic)
    assert torch.equal(back.act(some), policy.act(some))
    assert torch.equal(back.critic(some, back.act(some)), policy.critic(some, policy.act(some)))


def test_the_first_of_two_critics_is_read():
    model = TD3("MlpPolicy", TASK.backend.open(), policy_kwargs={"net_arch": [9, 7]}, device="cpu", buffer_size=1)
    policy, some = sb3.from_model(model), histories()[:, :1]
    action = policy.act(some)
    with torch.no_grad():
        theirs = model.critic.q1_forward(some[:, 0], action)[:, 0]
    np.testing.assert_allclose(policy.critic(some, action).numpy(), theirs.numpy(), atol=1e-6)


def test_the_papers_table_is_the_preset():
    paper = PAPER["mountain-car"]
    assert (paper.gamma, paper.total_steps, paper.validation_interval, paper.validation_episodes) == (
        0.99,
        300_000,
        2_000,
        10,
    )
    assert (paper.learning_rate, paper.buffer_size, paper.learning_starts, paper.batch_size, paper.tau) == (
        1e-4,
        10**6,
        100,
        100,
        0.005,
    )
    model = build_ddpg(TASK, 0.2, dataclasses.replace(paper, total_steps=2_000), 0, "cpu")
    assert (model.train_freq.frequency, model.train_freq.unit.value, model.gradient_steps) == (1, "episode", -1)
    assert (model.batch_size, model.tau, model.gamma, model.learning_starts) == (100, 0.005, 0.99, 100)
    assert model.lr_schedule(1) == 1e-4
    assert isinstance(model.action_noise, OrnsteinUhlenbeckActionNoise)
    assert model.action_noise._sigma == 0.5
    sizes = [tuple(value.shape) for name, value in model.actor.state_dict().items() if "weight" in name]
    assert sizes == [(400, 10), (300, 400), (1, 300)]  # five frames of two, against the table's 2 x 400


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("ddpg") / "run"
    seen = []
    policy = run_training(
        train_off_policy, SHORT, 0.2, TINY, out, seed=3, preset="tiny", progress=lambda *rest: seen.append(rest)
    )
    return out, policy, seen


def test_a_trained_agent_is_left_with_card_and_curve(trained):
    out, policy, seen = trained
    card = zoo.load_card(str(out))
    assert [row[0] for row in card["curve"]] == [80, 160, 240]
    assert card["training"]["algorithm"] == "stable_baselines3.DDPG"
    assert card["training"]["settings"] == TINY.as_dict()
    assert (policy.name, policy.sha256) == ("mountain-car-s0.2", card["sha256"])
    assert [step for step, _, _ in seen] == [80, 160, 240]
    assert not (out / "checkpoint.pt").exists()
    loaded = zoo.load(str(out))
    np.testing.assert_array_equal(
        play(Plan(task=TASK, policy=loaded, noise=Noise.of(0.2), n_episodes=2)).returns,
        play(Plan(task=TASK, policy=policy, noise=Noise.of(0.2), n_episodes=2)).returns,
    )


def test_a_checkpoint_holds_both_optimizers(tmp_path):
    one = build_ddpg(SHORT, 0.2, TINY, 0, "cpu")
    one.learn(200)
    folder = TrainingFolder(tmp_path, resume=False)
    folder.curve = TrainingCurve([(400, 0.0, 0.0, 0.5)], 0.0, 400, kept_weights(one))
    save_checkpoint(folder, one)
    other, read = build_ddpg(SHORT, 0.2, TINY, 9, "cpu"), TrainingFolder(tmp_path, resume=True)
    load_checkpoint(read, other)
    for mine, its in ((one.actor, other.actor), (one.critic, other.critic)):
        for name, state in mine.optimizer.state_dict()["state"].items():
            for key, value in state.items():
                assert torch.equal(value, its.optimizer.state_dict()["state"][name][key])
        assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), its.parameters(), strict=True))
    assert other.num_timesteps == one.num_timesteps
    assert other.replay_buffer.pos == one.replay_buffer.pos
    assert read.curve.rows == [(400, 0.0, 0.0, 0.5)]


def test_ddpg_wants_continuous_actions(tmp_path):
    with pytest.raises(InputError, match="DDPG needs bounded continuous actions"):
        run_training(train_off_policy, get_task("cartpole-5"), 0.2, TINY, tmp_path / "x")
