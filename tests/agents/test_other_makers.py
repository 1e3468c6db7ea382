"""Torch modules, CleanRL's agents, TorchScript, ONNX, functions of rows, and agents that draw their own actions."""

import json
import random
import shutil
import sys
import warnings
import zipfile
from dataclasses import replace
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn
from torch.distributions import Categorical, Normal

import mixing_agents
import surefoot
from surefoot.agents import callables
from surefoot.agents.policies import Spaces
from surefoot.agents.resolve import as_policy
from surefoot.cli.main import main
from surefoot.errors import InputError, NotAllowedError
from surefoot.noise import Noise
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.verification.verdict import FAILED, IMPOSSIBLE
from toys import from_callable

torch.set_num_threads(1)
POLE = surefoot.make_task("CartPole-v1", floor=0, ceiling=500)
SPACES = POLE.spaces
FOUR = Spaces(shape=(3,), n_actions=None, low=(-2.0,), high=(2.0,))
SEEN = torch.from_numpy(np.random.default_rng(5).normal(size=(9, 1, 4)).astype(np.float32))


def layers(*sizes, seed=0):
    torch.manual_seed(seed)
    made = [part for pair in pairwise(sizes) for part in (nn.Linear(*pair), nn.Tanh())]
    return nn.Sequential(*made[:-1])


class Chooser(nn.Module):
    """CleanRL's ppo.py: discrete actions, drawn; ``shared`` layers in front as in ppo_atari.py."""

    def __init__(self, shared=False):
        super().__init__()
        self.network = layers(4, 4, seed=3) if shared else nn.Identity()
        self.actor, self.critic = layers(4, 8, 2, seed=1), layers(4, 1)

    def get_value(self, x):
        return self.critic(self.network(x))

    def get_action_and_value(self, x, action=None):
        hidden = self.network(x)
        chances = Categorical(logits=self.actor(hidden))
        action = chances.sample() if action is None else action
        return action, chances.log_prob(action), chances.entropy(), self.critic(hidden)


class Mover(nn.Module):
    """CleanRL's ppo_continuous_action.py; ``lifted`` moves the distribution away from ``actor_mean``.

    With ``half`` only where the first number of an observation is above 0.
    """

    def __init__(self, lifted=0.0, half=False):
        super().__init__()
        self.actor_mean, self.critic, self.lifted, self.half = layers(3, 8, 1), layers(3, 1), lifted, half
        self.actor_logstd = nn.Parameter(torch.zeros(1, 1))

    def get_action_and_value(self, x, action=None):
        where = (x[:, :1] > 0).float() if self.half else 1.0
        mean = self.actor_mean(x) + self.lifted * where
        chances = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        action = chances.sample() if action is None else action
        return action, chances.log_prob(action).sum(1), chances.entropy().sum(1), self.critic(x)


class Actor(nn.Module):
    """CleanRL's sac_continuous_action.py."""

    def __init__(self):
        super().__init__()
        self.both = layers(3, 2)

    def forward(self, x):
        mean, log_std = self.both(x).chunk(2, dim=1)
        return mean, log_std

    def get_action(self, x):
        mean, log_std = self(x)
        chances = Normal(mean, log_std.exp())
        drawn = chances.rsample()
        return 2 * torch.tanh(drawn), chances.log_prob(drawn).sum(1, keepdim=True), 2 * torch.tanh(mean)


class Atoms(nn.Module):
    """CleanRL's c51.py, whose get_action does not draw."""

    def __init__(self):
        super().__init__()
        self.network = layers(4, 10)

    def get_action(self, x, action=None):
        mass = torch.softmax(self.network(x).view(len(x), 2, 5), dim=2)
        values = (mass * torch.arange(5)).sum(2)
        return values.argmax(1) if action is None else action, mass


# --- networks -------------------------------------------------------------------------------------------------------


def test_a_network_answers_with_values_or_with_actions():
    network = layers(4, 8, 2)
    with torch.no_grad():
        network[2].bias += torch.tensor([0.0, 0.6])
    values = as_policy(network, SPACES)
    expected = network(SEEN[:, 0]).argmax(1)
    assert expected.unique().numel() == 2
    assert torch.equal(values.act(SEEN), expected)
    assert values.differentiable
    assert values.name == "Sequential"
    chosen = as_policy(Wrapped(network, lambda output: output.argmax(1)), SPACES)
    assert torch.equal(chosen.act(SEEN), expected)
    assert not chosen.differentiable
    first = as_policy(Wrapped(network, lambda output: (output.argmax(1, keepdim=True), output)), SPACES)
    assert torch.equal(first.act(SEEN), expected)
    double = as_policy(Wrapped(layers(4, 8, 2).double(), lambda output: output + torch.tensor([0.0, 0.6])), SPACES)
    assert torch.equal(double.act(SEEN), expected)


class Wrapped(nn.Module):
    def __init__(self, network, change):
        super().__init__()
        self.network, self.change = network, change

    def forward(self, x):
        return self.change(self.network(x))


def test_continuous_actions_are_clipped_to_the_environments_bounds():
    policy = as_policy(Wrapped(layers(3, 1), lambda output: 9 * output), FOUR)
    actions = policy.act(torch.ones(2, 1, 3) * torch.tensor([1.0, -3.0]).view(2, 1, 1))
    assert actions.abs().max() <= 2
    assert actions.shape == (2, 1)


@pytest.mark.parametrize("flat", [True, False])
def test_stacks_come_as_the_network_takes_them(flat):
    network = layers(12, 2) if flat else nn.Sequential(nn.Conv1d(3, 2, 4), nn.Flatten())
    policy = as_policy(network, SPACES, n_stack=3)
    history = torch.randn(5, 3, 4)
    assert policy.spaces.n_stack == 3
    assert torch.equal(policy.act(history), network(history.flatten(1) if flat else history).argmax(1))


def test_images_with_channels_last_become_channels_first():
    network = nn.Sequential(nn.Conv2d(3, 1, 2), nn.Flatten(), nn.Linear(20, 2))
    policy = as_policy(network, Spaces(shape=(5, 6, 3), n_actions=2))
    seen = torch.randn(4, 1, 5, 6, 3)
    assert torch.equal(policy.act(seen), network(seen[:, 0].movedim(-1, 1)).argmax(1))


class Byte(nn.Module):
    """A network of pictures as CleanRL's and SB3's are: it divides by 255 itself."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(20, 2)

    def forward(self, pictures):
        return self.last(pictures.flatten(1) / 255 - 0.5)


def test_pictures_come_in_the_range_that_was_declared():
    """Planted: without the declaration the agent would see pictures that are 255 times darker."""
    network, seen = Byte(), torch.rand(30, 1, 4, 5)
    pictures = Spaces(shape=(4, 5), n_actions=2, pixels=True)
    with pytest.raises(InputError, match=r"pictures of bytes: say what the agent takes, pixel_max=255"):
        as_policy(network, pictures)
    bytes_, floats = (as_policy(network, pictures, pixel_max=largest) for largest in (255, 1))
    expected = network(255 * seen[:, 0]).argmax(1)
    assert torch.equal(bytes_.act(seen), expected)
    assert not torch.equal(floats.act(seen), expected)
    assert bytes_.differentiable
    screen = replace(POLE, spaces=pictures)  # a record says it, so that verifying runs the same agent
    said = [Plan(task=screen, policy=policy, noise=Noise.of(0.1)).facts()["pixel_max"] for policy in (bytes_, floats)]
    assert said == [255, 1]
    for agent, spaces in ((network, replace(pictures, pixels=False)), (lambda seen: 0, pictures)):
        with pytest.raises(InputError, match=r"pixel_max= goes with"):
            as_policy(agent, spaces, pixel_max=255)
    with pytest.warns(surefoot.PredictableNoiseWarning):
        smoothed = surefoot.smooth(bytes_, 0.0)
    shown = (255 * seen[:, 0]).byte()
    assert smoothed.predict(shown.numpy())[0].tolist() == network(shown.float()).argmax(1).tolist()


def test_a_copy_in_evaluation_mode_is_certified():
    network = nn.Sequential(nn.Linear(4, 30), nn.Dropout(0.5), nn.Linear(30, 2)).train()
    policy = as_policy(network, SPACES)
    before = policy.act(SEEN)
    with torch.no_grad():
        network[2].bias += torch.tensor([9.0, 0.0])
    assert torch.equal(policy.act(SEEN), before)
    assert network.training


@pytest.mark.parametrize(
    ("network", "what"),
    [
        (nn.Linear(5, 2), "shapes cannot be multiplied"),
        (nn.Linear(4, 3), r"answered in the shape \(1\d\d, 3\); expected one action per row, or 2 values per row"),
        (nn.LSTM(4, 2), "from a memory of its own, or by the other rows"),
        (Wrapped(nn.Linear(4, 2), lambda output: output + torch.rand(2)), "answers the same observation differently"),
        (Wrapped(nn.Linear(4, 2), lambda output: output * torch.nan), "values that are not finite"),
        (Wrapped(nn.Linear(4, 2), lambda output: Categorical(logits=output)), "got Categorical"),
    ],
)
def test_what_does_not_fit_names_the_way_out(network, what):
    with pytest.raises(InputError, match=rf"(?s){what}.*surefoot\.Policy"):
        as_policy(network, SPACES)


# --- CleanRL --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_the_most_probable_action_of_ppo(shared):
    agent = Chooser(shared)
    policy = as_policy(agent, SPACES)
    expected = agent.actor(agent.network(SEEN[:, 0]))
    torch.testing.assert_close(policy.network(SEEN), expected.log_softmax(1))
    assert policy.differentiable
    assert not policy.stochastic


def test_the_mean_of_continuous_agents():
    seen = SEEN[:, :, :3]
    ppo, sac = Mover(), Actor()
    torch.testing.assert_close(as_policy(ppo, FOUR).act(seen), ppo.actor_mean(seen[:, 0]).clamp(-2, 2))
    torch.testing.assert_close(as_policy(sac, FOUR).act(seen), 2 * torch.tanh(sac(seen[:, 0])[0]))
    for half in (False, True):
        with pytest.raises(InputError, match=r"actor_mean is not its most probable action; make it a surefoot\.Policy"):
            as_policy(Mover(lifted=0.5, half=half), FOUR)


@pytest.mark.parametrize("agent", [Mover(), Actor(), lambda seen: -seen[:1]], ids=["ppo", "sac", "function"])
def test_the_policy_of_an_agent_is_the_same_agent(agent):
    """Also of SAC, which draws an action that is not used: rollout, attack and smooth are given such a policy."""
    policy = as_policy(agent, FOUR)
    again = as_policy(policy, FOUR)
    assert again is policy
    assert torch.equal(again.act(SEEN[:, :, :3]), policy.act(SEEN[:, :, :3]))


def test_an_agent_that_does_not_draw_is_taken_as_it_is():
    agent = Atoms()
    assert torch.equal(as_policy(agent, SPACES).act(SEEN), agent.get_action(SEEN[:, 0])[0])


# --- stochastic policies --------------------------------------------------------------------------------------------


def plain_play(choose, n_episodes, sigma, seed=3):
    """Run CartPole with Gymnasium alone, noise on every observation."""
    env, draw = gymnasium.make("CartPole-v1", max_episode_steps=60), np.random.default_rng(seed)
    returns = []
    for episode in range(n_episodes):
        seen, _ = env.reset(seed=1000 * seed + episode)
        total, over = 0.0, False
        while not over:
            noisy = seen + sigma * draw.standard_normal(4)
            seen, reward, ended, cut, _ = env.step(choose(noisy.astype(np.float32)))
            total, over = total + float(reward), ended or cut
        returns.append(total)
    return np.array(returns)


def standard_errors_apart(one, other):
    error = np.hypot(*(np.std(side, ddof=1) / np.sqrt(len(side)) for side in (one, other)))
    return abs(one.mean() - other.mean()) / error


def test_a_declared_stochastic_agent_has_the_mean_of_plain_play_and_the_other_one_has_not():
    """Planted: the same agent without its randomness, whose mean is another one."""
    task = surefoot.make_task("CartPole-v1", floor=0, ceiling=60, max_steps=60)
    agent = Chooser()
    torch.manual_seed(4)

    def draw(seen):
        return int(agent.get_action_and_value(torch.from_numpy(seen)[None])[0])

    expected = plain_play(draw, 100, 0.2)
    drawn = surefoot.rollout(task, as_policy(agent, task.spaces, stochastic=True), sigma=0.2, n_episodes=400)
    assert standard_errors_apart(drawn.returns, expected) < 4
    assert drawn.metadata["stochastic"] is True
    fixed = surefoot.rollout(task, agent, sigma=0.2, n_episodes=400)
    assert standard_errors_apart(fixed.returns, expected) > 4
    assert "stochastic" not in fixed.metadata


def by_chance(seen):
    return int(np.random.random() < 1 / (1 + np.exp(-5 * seen[2])))  # noqa: NPY002 - as agents do


def test_draws_are_repeated_by_seed_and_shared_by_no_two_blocks():
    task = surefoot.make_task("CartPole-v1", floor=0, ceiling=500)
    options = {"sigma": 0.1, "n_episodes": 20, "n_envs": 4}
    policy = as_policy(by_chance, task.spaces, stochastic=True)
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one = surefoot.rollout(task, policy, **options)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002 - what the caller draws is not disturbed
    np.random.seed(1)  # noqa: NPY002
    for workers in (1, 2):
        again = surefoot.rollout(task, policy, **options, workers=workers)
        assert np.array_equal(one.returns, again.returns)
    drawn = []

    def watch(seen):
        drawn.append((np.random.random(), torch.rand(1).item()))  # noqa: NPY002
        return 0

    policy = from_callable(watch, shape=(4,), n_actions=2, stochastic=True)
    play(Plan(task=task, policy=policy, noise=Noise.of(0.1), n_episodes=200, n_envs=8))  # 25 blocks
    assert len(set(drawn)) == len(drawn) > 1500
    for side in range(2):
        assert len({pair[side] for pair in drawn}) > 0.99 * len(drawn)


def test_randomness_must_be_declared_and_seedable():
    own = np.random.default_rng(0)
    for undeclared in (by_chance, Wrapped(nn.Linear(4, 2), torch.rand_like)):
        with pytest.raises(InputError, match=r"declare that: stochastic=True"):
            as_policy(undeclared, SPACES)
    for hidden in (lambda seen: int(own.integers(2)), lambda seen: int(own.random() < 0.1)):
        with pytest.raises(InputError, match="draws from a random generator of its own"):
            as_policy(hidden, SPACES, stochastic=True)
    with pytest.raises(InputError, match=r"most probable actions. For an SB3 model give the function lambda seen"):
        as_policy("cartpole-1-s0.2", SPACES, stochastic=True)


class Rarely(nn.Module):
    """Explores once in a million steps: no trial sees that."""

    def get_action(self, seen):
        return torch.where(torch.rand(len(seen)) < 1e-6, 0, 1), None, torch.ones(len(seen), 2)


def test_draws_that_change_no_answer_of_the_trial_are_noticed():
    """Workers that fork share the state of the global generators: what they draw would not be independent."""
    rare = [
        lambda seen: int(np.random.random() < 1e-6),  # noqa: NPY002
        lambda seen: int(random.random() < 1e-6),
        lambda seen: (torch.rand(len(seen)) < 1e-6).long(),
        Wrapped(nn.Linear(4, 2), lambda x: x + (torch.rand(()) < 1e-6)),
        Wrapped(nn.Linear(4, 2), lambda x: x + (len(x) == 1 and torch.rand(()) < 1e-6)),
        Wrapped(nn.Linear(4, 2), lambda x: x + (len(x) > 1 and torch.rand(()) < 1e-6)),
    ]
    for agent in rare:
        with pytest.raises(InputError, match=r"declare that: stochastic=True"):
            as_policy(agent, SPACES)
        assert as_policy(agent, SPACES, stochastic=True).stochastic
    assert as_policy(Rarely(), SPACES).act(SEEN).tolist() == [0] * len(SEEN)  # the probabilities, not what was drawn


def test_rows_that_depend_on_each_other_are_noticed():
    """Whatever the order of rows: an agent acts on its own episode alone."""

    def centered(seen):
        return ((seen - seen.mean(axis=0))[:, 0] > 0).astype(int)

    for agent in (centered, Wrapped(nn.Linear(4, 2), lambda x: x - x.mean(0))):
        with pytest.raises(InputError, match="or by the other rows"):
            as_policy(agent, SPACES)
    with pytest.raises(InputError, match="or by the other rows"):
        as_policy(centered, SPACES, batched=True)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8), nn.Dropout(0.2)])
def test_a_network_in_training_mode_is_noticed(layer):
    """Statistics over the rows, or draws: a module of torch is in training mode until eval() is called."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), layer, nn.Linear(8, 2))
    policy = surefoot.Policy(network, surefoot.Spaces(shape=(4,), n_actions=2))
    with pytest.raises(InputError, match=r"declare that: stochastic=True"):
        as_policy(policy, SPACES)
    network.eval()
    assert as_policy(policy, SPACES).act(SEEN).shape == (9,)


def test_a_deployed_agent_draws_as_it_was_certified():
    agent = surefoot.smooth(as_policy(Chooser(), SPACES, stochastic=True), 0.01)
    actions = [int(agent.predict(np.zeros(4))[0]) for _ in range(60)]
    assert set(actions) == {0, 1}
    arm = surefoot.Spaces(shape=(3,), n_actions=None, low=[-2.0], high=[2.0])
    bounded = surefoot.smooth(Wrapped(layers(3, 1), lambda x: 99 + x), 0.1, arm)
    assert bounded.predict(np.zeros(3))[0].tolist() == [2.0]


# --- functions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda seen: int(seen[2] > 0),
        lambda seen: (seen[:, 2] > 0).astype(int),
        lambda seen: torch.as_tensor(seen[..., 2] > 0),
        lambda seen: torch.stack([torch.zeros(len(seen)), torch.as_tensor(seen[:, 2])], dim=1),
        lambda seen: ((seen[:, 2] > 0).astype(int), None),
        lambda seen: [int(one > 0) for one in seen[:, 2]],
    ],
)
def test_functions_of_one_observation_and_of_rows_are_distinguished(function):
    assert torch.equal(as_policy(function, SPACES).act(SEEN), (SEEN[:, 0, 2] > 0).long())


def test_rows_are_asked_at_once():
    sizes = []

    def count(seen):
        sizes.append(len(seen))
        return (seen[:, 0] > 0).astype(int)

    policy = as_policy(count, SPACES, batched=True)
    assert 1 in sizes  # as when it is deployed
    assert sum(size > 100 for size in sizes) >= 2
    assert len(set(sizes)) >= 3
    policy.act(SEEN)
    assert sizes[-1] == 9


def test_a_function_that_answers_rows_in_another_way_must_say_what_it_is_given():
    def either(seen):
        return int(seen[0] > 0) if seen.ndim == 1 else (seen[:, 0] <= 0).astype(int)

    with pytest.raises(InputError, match="batched=True for rows, batched=False for one observation"):
        as_policy(either, SPACES)
    ways = [as_policy(either, SPACES, batched=batched).act(SEEN) for batched in (False, True)]
    assert torch.equal(ways[0], 1 - ways[1])
    with pytest.raises(InputError, match="batched= goes with functions"):
        as_policy(layers(4, 2), SPACES, batched=True)


def test_a_function_that_fails_on_made_up_observations_is_not_judged_by_them():
    def strict(seen):
        if np.abs(seen).max() < 1.5:
            raise ValueError("not here")
        return 1

    assert as_policy(strict, SPACES).act(SEEN[SEEN.flatten(1).abs().max(1).values > 1.5]).tolist()


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """One agent of SB3 as its guide exports it, and as TorchScript."""
    folder = tmp_path_factory.mktemp("exported")
    model = PPO("MlpPolicy", "CartPole-v1", seed=1, device="cpu", policy_kwargs={"net_arch": [8]})
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.add_(torch.randn(weight.shape) if weight.dim() > 1 else 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, axes in (("model", None), ("rows", {"input": {0: "rows"}})):
            torch.onnx.export(
                Guide(model.policy),
                torch.randn(1, 4),
                str(folder / f"{name}.onnx"),
                opset_version=17,
                input_names=["input"],
                dynamic_axes=axes,
                dynamo=False,
            )
        torch.jit.trace(Guide(model.policy, logits=True), SEEN[:, 0]).save(str(folder / "model.pt"))
    return model, folder


class Guide(nn.Module):
    """What SB3's guide exports."""

    def __init__(self, policy, logits=False):
        super().__init__()
        self.policy, self.logits = policy, logits

    def forward(self, observation):
        if self.logits:
            return self.policy.get_distribution(observation).distribution.logits
        return self.policy(observation, deterministic=True)


@pytest.mark.parametrize("name", ["model.onnx", "rows.onnx", "model.pt"])
def test_exported_agents_act_as_their_model(exported, name):
    model, folder = exported
    policy = as_policy(folder / name, SPACES, allow_pickle=name.endswith(".pt"))
    expected = model.predict(SEEN[:, 0].numpy(), deterministic=True)[0]
    assert len(set(expected.tolist())) == 2
    assert policy.act(SEEN).tolist() == expected.tolist()
    assert policy.name == name.split(".")[0]
    assert len(policy.sha256) == 64
    known, found = (surefoot.rollout(POLE, one, sigma=0.2, n_episodes=30, seed=0) for one in (model, policy))
    assert np.array_equal(known.returns, found.returns)  # the same noise, the same actions


def test_a_program_or_a_pickle_needs_permission(exported, tmp_path):
    _, folder = exported
    torch.save(layers(4, 2), tmp_path / "whole.pt")
    for path, kind in ((folder / "model.pt", "TorchScript program"), (tmp_path / "whole.pt", "pickle of torch")):
        with pytest.raises(NotAllowedError, match=rf"is a {kind}, which may execute code .*allow_pickle=True, .*ONNX"):
            as_policy(path, SPACES)
    assert as_policy(tmp_path / "whole.pt", SPACES, allow_pickle=True).name == "whole"
    torch.save(layers(4, 2).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(InputError, match=r"holds weights without their network; load weights\.pt into your nn\.Module"):
        as_policy(tmp_path / "weights.pt", SPACES, allow_pickle=True)
    (tmp_path / "text.pt").write_text("no")
    with pytest.raises(InputError, match="is not a file that torch saved"):
        as_policy(tmp_path / "text.pt", SPACES, allow_pickle=True)


def test_the_class_of_a_pickled_module_may_be_in_the_working_directory(tmp_path, monkeypatch):
    agent_file(tmp_path, "pickled_net")
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as importing:
        importing.syspath_prepend(str(tmp_path))
        import pickled_net

        torch.save(pickled_net.load(), "whole.pt")
    monkeypatch.delitem(sys.modules, "pickled_net")
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one not in ("", str(tmp_path))])
    assert as_policy("whole.pt", SPACES, allow_pickle=True).name == "whole"


def test_a_small_file_that_unpacks_to_a_large_one_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("surefoot.agents.torch_agents.MOST_ARRAYS", 2**16)
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data.pkl", bytes(2**20))
    assert (tmp_path / "bomb.pt").stat().st_size < 2**16
    with pytest.raises(InputError, match="is too large for a torch file: 1048576 bytes"):
        as_policy(tmp_path / "bomb.pt", SPACES)


class Robot(nn.Module):
    """A policy that takes one observation without rows, in parts, as the firmware of robots does."""

    def __init__(self):
        super().__init__()
        self.layer = layers(4, 2)

    def forward(self, joints, command):
        return self.layer(torch.cat((joints, command)))


class Alone(nn.Module):
    """The same with all parts in one vector."""

    def __init__(self, robot):
        super().__init__()
        self.robot = robot

    def forward(self, seen):
        return self.robot(seen[:3], seen[3].unsqueeze(0))


def test_policies_of_robots_take_one_observation_without_rows_by_the_names_of_its_parts(tmp_path):
    robot = Robot()
    expected = robot.layer(SEEN[:, 0]).argmax(1)
    assert len(set(expected.tolist())) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flags = {"opset_version": 17, "dynamo": False}
        alone = tmp_path / "alone.onnx"
        torch.onnx.export(robot.layer, torch.randn(4), str(alone), input_names=["obs"], **flags)
        named = tmp_path / "named.onnx"
        given = (torch.randn(3), torch.randn(1))
        torch.onnx.export(robot, given, str(named), input_names=["joints", "command"], **flags)
        script = tmp_path / "script.pt"
        torch.jit.trace(Alone(robot), torch.randn(4)).save(str(script))
    parts = (("joints", 3), ("command", 1))
    in_parts = replace(SPACES, parts=parts)
    assert torch.equal(as_policy(alone, SPACES).act(SEEN), expected)
    assert torch.equal(as_policy(named, in_parts).act(SEEN), expected)
    assert torch.equal(as_policy(script, SPACES, allow_pickle=True).act(SEEN), expected)
    # In another order the parts are still found by their names.
    turned = SEEN[:, :, [3, 0, 1, 2]]
    other = replace(SPACES, parts=(("command", 1), ("joints", 3)))
    assert torch.equal(as_policy(named, other).act(turned), expected)
    for wrong in (None, (("joints", 2), ("command", 2)), (("legs", 3), ("command", 1)), (("joints", 4),)):
        with pytest.raises(InputError, match=r"one for each part of the environment's, by their names, got joints"):
            as_policy(named, replace(SPACES, parts=wrong))


def test_onnx_files_that_are_no_agents(exported, tmp_path):
    for text, what in (("no", "is not an ONNX model: "), ("", "is not an ONNX model that onnxruntime can run")):
        (tmp_path / "text.onnx").write_text(text)
        with pytest.raises(InputError, match=what):
            as_policy(tmp_path / "text.onnx", SPACES)
    path = exported[1] / "model.onnx"
    with pytest.raises(InputError, match=r"made for observations of shape \(4,\), the environment gives \(3,\)"):
        as_policy(path, Spaces(shape=(3,), n_actions=2))
    with pytest.raises(InputError, match="does not answer as an agent of this environment: the agent must return"):
        as_policy(path, Spaces(shape=(4,), n_actions=None, low=(-1.0, -1.0), high=(1.0, 1.0)))
    with pytest.raises(InputError, match="stochastic=True does not go with ONNX"):
        as_policy(path, SPACES, stochastic=True)


def test_statistics_near_an_exported_agent_are_not_forgotten(exported, tmp_path):
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")]))
    env.obs_rms.mean, env.obs_rms.var = np.array([0.3, -0.2, 0.1, 0.5]), np.full(4, 4.0)
    env.save(str(tmp_path / "vecnormalize.pkl"))
    path = shutil.copy(exported[1] / "model.onnx", tmp_path)
    with pytest.raises(InputError, match=r"is near model\.onnx and may hold the statistics"):
        as_policy(path, SPACES)
    plain = as_policy(path, SPACES, vecnormalize="none")
    normalized = as_policy(path, SPACES, vecnormalize=tmp_path / "vecnormalize.pkl")
    scaled = torch.from_numpy(env.normalize_obs(SEEN.numpy()).astype(np.float32))
    assert torch.equal(normalized.act(SEEN), plain.act(scaled))
    assert normalized.sha256 != plain.sha256


# --- by name --------------------------------------------------------------------------------------------------------


MINE = """
import torch
network = torch.nn.Linear(4, 2)
class Network(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 2)
def make():
    return Network()
def act(seen):
    return int(seen[2] > 0)
def fails(seen):
    return 1 // 0
"""


def test_a_function_for_a_dict_is_told_that_it_is_given_one_array(tmp_path, monkeypatch):
    (tmp_path / "dict_agents.py").write_text(
        "def act(seen): return int(seen['mode'] > 0)\nclass Cautious:\n    def __call__(self, seen): return 0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    spaces = Spaces(shape=(4,), n_actions=2, parts=(("left", 3), ("mode", 1)))
    with pytest.raises(
        InputError, match=r"failed: IndexError.*one array, in this order the numbers of left \(3\), mode"
    ):
        as_policy("dict_agents:act", spaces).act(torch.zeros(1, 1, 4))
    # An object that can be called is named like its class.
    assert as_policy("dict_agents:Cautious", spaces).name == "Cautious"


def test_an_object_in_a_module_is_an_agent(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_agents.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("network", "Network", "make()"):
        assert as_policy(f"my_agents:{name}", SPACES).name in ("Linear", "Network")
    assert torch.equal(as_policy("my_agents:act", SPACES).act(SEEN), (SEEN[:, 0, 2] > 0).long())
    for name, what in (("none", "there is no 'none' in my_agents"), ("fails()", r"my_agents:fails\(\) failed")):
        with pytest.raises(InputError, match=what):
            as_policy(f"my_agents:{name}", SPACES)
    with pytest.raises(InputError, match="my_agents:fails failed: ZeroDivisionError"):
        as_policy("my_agents:fails", SPACES).act(SEEN)
    with pytest.raises(InputError, match="cannot import 'no_such_module'"):
        as_policy("no_such_module:agent", SPACES)
    asked = ["--env", "CartPole-v1", "--max-steps", "20", "--sigma", "0.1", "--floor", "0", "--episodes", "5"]
    call = ["certify", *asked, "--agent", "my_agents:act", "--workers", "1", "--out", str(tmp_path / "run")]
    assert main(call) == 0
    capsys.readouterr()
    assert main(call) == 2  # nothing says whether the function is still the same
    assert "agents that are code have no hash to compare" in capsys.readouterr().err


def agent_file(folder, name, activation="Tanh", seed=0):
    (folder / f"{name}.py").write_text(
        f"""
import torch
from torch import nn
class Agent(nn.Sequential):
    pass
def load(seed={seed}):
    torch.manual_seed(seed)
    return Agent(nn.Linear(4, 8), nn.{activation}(), nn.Linear(8, 2))
def act(seen):
    return int(seen[2] > 0)
"""
    )


def test_a_module_is_hashed_by_its_weights_and_classes():
    network = layers(4, 8, 2)
    digest = as_policy(network, SPACES).sha256
    assert len(digest) == 64
    assert as_policy(layers(4, 8, 2), SPACES).sha256 == digest
    with torch.no_grad():
        other = layers(4, 8, 2)
        other[0].weight[0, 0] += 1e-6
    assert as_policy(other, SPACES).sha256 != digest
    assert as_policy(nn.Sequential(network[0], nn.ReLU(), network[2]), SPACES).sha256 != digest
    # What is no weight, but a setting of a part: with another slope it is another agent.
    sloped = [nn.Sequential(network[0], nn.LeakyReLU(slope), network[2]) for slope in (0.01, 0.01, -3.0)]
    one, same, other_slope = (as_policy(each, SPACES).sha256 for each in sloped)
    assert one == same != other_slope
    assert as_policy(layers(4, 8, 2).to(torch.bfloat16), SPACES).sha256 not in ("", digest)
    buffered = Wrapped(layers(4, 8, 2), lambda output: output)
    plain = as_policy(buffered, SPACES).sha256
    buffered.register_buffer("hidden", torch.ones(1), persistent=False)
    assert as_policy(buffered, SPACES).sha256 == plain  # as documented: state_dict leaves it out
    buffered.register_buffer("kept", torch.ones(1))
    assert as_policy(buffered, SPACES).sha256 != plain
    assert as_policy(Wrapped(nn.Identity(), lambda seen: seen[:, :2]), SPACES).sha256 == ""  # nothing to hash


def test_a_module_in_code_is_verified_by_a_rerun(tmp_path, monkeypatch, capsys):
    for name, seed in (("own_net", 0), ("same_net", 0), ("other_net", 1)):
        agent_file(tmp_path, name, seed=seed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = ["--env", "CartPole-v1", "--max-steps", "20", "--sigma", "0.1", "--floor", "0", "--episodes", "20"]
    assert main(["certify", *asked, "--agent", "own_net:load()", "--workers", "1", "--out", "run"]) == 0
    made = json.loads((tmp_path / "run" / "certificate.json").read_text())
    assert len(made["agent_sha256"]) == 64
    for honest in ("own_net:load()", "same_net:load()"):
        assert main(["verify", "run", "--agent", honest, "--fresh", "8", "--workers", "1"]) == 0
    import own_net

    assert surefoot.verify("run", agent=own_net.load(), fresh=8).verified
    assert main(["verify", "run", "--agent", "other_net:load()", "--fresh", "8", "--workers", "1"]) == 1
    assert "the weights of Agent have hash" in " ".join(capsys.readouterr().out.split())
    for missing, what in (("no_net:load()", "cannot import 'no_net'"), ("own_net:gone", "there is no 'gone'")):
        assert main(["verify", "run", "--agent", missing]) == 2
        assert what in capsys.readouterr().err


def test_attacks_on_agents_without_a_hash_are_not_compared_with_certificates(tmp_path, monkeypatch, capsys):
    """Two functions of one name; with hashes, the certificate of the other module is not taken either."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    agent_file(tmp_path, "first_net")
    agent_file(tmp_path, "second_net", seed=5)
    asked = ["--env", "CartPole-v1", "--max-steps", "20", "--sigma", "0.1", "--floor", "0", "--workers", "1"]
    for name in ("load()", "act"):
        run = f"runs/{name[:3]}"
        assert main(["certify", *asked, "--agent", f"first_net:{name}", "--episodes", "100", "--out", run]) == 0
        path = tmp_path / run / "certificate.json"
        false = json.loads(path.read_text())
        false["lower"] = [19.9] * len(false["lower"])
        path.write_text(json.dumps(false))
        for agent, code in ((f"first_net:{name}", 3 if name == "load()" else 0), (f"second_net:{name}", 0)):
            call = ["attack", *asked, "--agent", agent, "--episodes", "100", "--budgets", "0.4"]
            call += ["--method", "single-step" if name == "load()" else "constant-direction"]
            assert main([*call, "--out", f"runs/attack-{agent[:5]}-{name[:3]}"]) == code
    capsys.readouterr()
    assert main([*call, "--out", "runs/again", "--certificate", "runs/act"]) == 2
    assert "is code without a hash" in capsys.readouterr().err


# --- from the command -----------------------------------------------------------------------------------------------


def test_a_stochastic_file_is_certified_and_verified_and_its_randomness_cannot_be_hidden(tmp_path, capsys):
    torch.jit.script(Tossed()).save(str(tmp_path / "tossed.pt"))
    run, agent = tmp_path / "run", ["--agent", str(tmp_path / "tossed.pt")]
    asked = ["--env", "CartPole-v1", "--max-steps", "30", "--sigma", "0.1", "--floor", "0", "--episodes", "20"]
    call = ["certify", *asked, *agent, "--workers", "1", "--out", str(run)]
    assert main([*call]) == 2
    assert "is a TorchScript program" in capsys.readouterr().err
    assert main([*call, "--allow-pickle"]) == 2
    assert "declare that: " in capsys.readouterr().err
    assert main([*call, "--allow-pickle", "--stochastic"]) == 0
    assert "The policy draws random actions of its own." in capsys.readouterr().out
    made = json.loads((run / "certificate.json").read_text())
    assert made["stochastic"] is True
    assert "the policy draws random actions of its own" in made["statement"]
    assert main(["verify", str(run), *agent, "--allow-pickle", "--fresh", "8", "--workers", "1"]) == 0
    forbidden = surefoot.verify(run, agent=agent[1])
    assert [check.name for check in forbidden.checks if check.result == IMPOSSIBLE] == ["replay"]
    hidden = {key: value for key, value in made.items() if key != "stochastic"}
    hidden["statement"] = made["statement"].replace("; the policy draws random actions of its own", "")
    (run / "certificate.json").write_text(json.dumps(hidden))
    failed = [check for check in surefoot.verify(run, blocks=0).checks if check.result == FAILED]
    assert any(check.detail.startswith("stochastic") for check in failed)


class Tossed(nn.Module):
    def forward(self, seen):
        return (torch.rand(seen.shape[0]) < 0.5).long()


# --- agents that look at the other rows -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [mixing_agents.alone_bad, mixing_agents.coin], ids=["good-iff-rows", "coin-above-100-rows"]
)
def test_an_onnx_agent_that_looks_at_the_rows_is_noticed_by_its_trial(make, tmp_path, monkeypatch):
    monkeypatch.setattr(callables, "unforeseeable", lambda: np.random.default_rng(4))
    start = "does not answer as an agent of this environment: the agent answers the same observation differently"
    with pytest.raises(InputError, match=f"{start} .*: stochastic=True$"):
        as_policy(make(tmp_path / "agent.onnx"), SPACES)
    assert as_policy(mixing_agents.honest(tmp_path / "honest.onnx"), SPACES).act(SEEN).shape == (9,)


def test_no_two_trials_are_alike(monkeypatch):
    seen = [callables.trial_rows(SPACES) for _ in range(30)]
    assert len({len(rows) for rows in seen}) > 1
    assert all(100 < len(rows) <= callables.MOST_TRIAL_ROWS for rows in seen)
    assert len({float(rows[0, 0, 0]) for rows in seen}) == 30
    monkeypatch.setattr(callables, "MOST_TRIAL_ROWS", 103)
    wide = surefoot.Spaces(shape=(102,), n_actions=103)
    assert {len(callables.trial_rows(wide)) for _ in range(20)} == {101}  # as no other axis


def test_a_function_that_rounds_rows_differently_is_taken_as_one_of_rows(monkeypatch):
    """That decides ties, and is no other agent: here every row of the trial is one."""
    honest = callables.trial_rows
    monkeypatch.setattr(callables, "trial_rows", lambda *given: honest(*given)[..., [0, 0, 2, 3]])

    def rounded(seen):
        return (seen[..., 0] - seen[..., 1] + (1e-7 if seen.ndim == 1 else -1e-7) > 0).astype(int)

    def other(seen):
        return (seen[..., 0] - seen[..., 1] + (0.5 if seen.ndim == 1 else -0.5) > 0).astype(int)

    assert as_policy(rounded, SPACES).network.inner.batched
    with pytest.raises(InputError, match="batched=True for rows, batched=False for one observation"):
        as_policy(other, SPACES)
