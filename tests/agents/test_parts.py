"""Observations and actions in parts: SB3 agents and functions act as they do on the structured environment."""

from copy import deepcopy
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from sb3_contrib.common.wrappers import TimeFeatureWrapper
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import surefoot
from surefoot.agents.clock import with_clock
from surefoot.agents.networks import Joint
from surefoot.agents.policies import Spaces
from surefoot.agents.resolve import as_policy
from surefoot.errors import InputError
from surefoot.play.environments import make_task
from surefoot.play.envs.noisy import NoisyObservation
from toys import constant

VECTORS = {"goal": Box(-1.0, 1.0, (2,), np.float32), "arm": Box(-1.0, 1.0, (2, 2), np.float32), "door": Discrete(3)}
GOALS = ("achieved_goal", "desired_goal", "observation")
MOVES = {"several": MultiDiscrete([3, 2, 2]), "lamps": MultiBinary(3), "one": Discrete(4)}


class Parts(gymnasium.Env):
    """Random observations in parts; the reward is how far apart two parts of the action are from the door."""

    def __init__(self, actions="several", names=("goal", "arm", "door")):
        # Copies of their own: spaces draw, and copies of an environment must not share what they draw from.
        self.observation_space = Dict([(name, deepcopy(VECTORS[name])) for name in names])
        self.action_space = deepcopy(MOVES[actions])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), float(np.sum(action)), False, False, {}


def parts(**kwargs):
    return gymnasium.wrappers.TimeLimit(Parts(**kwargs), 5)


def trained(kind, env, *, seed=0, **options):
    options = {"policy_kwargs": {"net_arch": [8]}, **options}
    model = kind("MultiInputPolicy", env, n_steps=8, seed=seed, device="cpu", **options)
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed)) * 0.7)
    return model


def flat(env, observation):
    return gymnasium.spaces.flatten(env.observation_space, observation).astype(np.float32)


@pytest.mark.parametrize("given", ["live", "zip"])
@pytest.mark.parametrize("actions", list(MOVES))
def test_sb3_agents_choose_what_they_choose_on_the_dictionary(tmp_path, actions, given):
    """Planted: the parts in another order, or the second part of the action first, are another agent."""
    env = parts(actions=actions)
    model = trained(PPO, env, batch_size=8)
    task = make_task(parts, floor=0, env_kwargs={"actions": actions})
    agent = model
    if given == "zip":
        model.save(tmp_path / "model.zip")
        agent = tmp_path / "model.zip"
    policy = as_policy(agent, task.spaces)
    assert policy.differentiable
    assert policy.spaces.parts == task.spaces.parts == (("goal", 2), ("arm", 4), ("door", 3))
    rows = [env.reset(seed=k)[0] for k in range(40)]
    expected = [model.predict(row, deterministic=True)[0] for row in rows]
    chosen = policy.act(torch.from_numpy(np.stack([flat(env, row) for row in rows])).unsqueeze(1)).numpy()
    if task.spaces.factors is not None:
        chosen = np.stack(np.unravel_index(chosen, task.spaces.factors), axis=1)
    assert np.array_equal(chosen, np.stack(expected))
    assert len(np.unique(chosen, axis=0)) > 1
    mixed = np.stack([flat(env, row)[[2, 3, 4, 5, 0, 1, 6, 7, 8]] for row in rows])
    assert not np.array_equal(
        policy.act(torch.from_numpy(mixed).unsqueeze(1)).numpy(),
        policy.act(torch.from_numpy(np.stack([flat(env, row) for row in rows])).unsqueeze(1)).numpy(),
    )


class Own(CombinedExtractor):
    """A feature extractor of the agent's author: such an agent is asked through its own predict."""


def test_an_agent_that_cannot_be_rebuilt_is_given_its_parts_in_their_order():
    """Planted: without the names of its parts it would be given those of any environment with as many numbers."""
    env = parts(names=("goal", "arm"))
    model = trained(A2C, env, policy_kwargs={"net_arch": [8], "features_extractor_class": Own})
    spaces = [
        make_task(parts, floor=0, env_kwargs={"names": names}).spaces for names in (["goal", "arm"], ["arm", "goal"])
    ]
    policy = as_policy(model, spaces[0])
    assert not policy.differentiable
    rows = [env.reset(seed=k)[0] for k in range(40)]
    expected = [model.predict(row, deterministic=True)[0] for row in rows]
    chosen = policy.act(torch.from_numpy(np.stack([flat(env, row) for row in rows])).unsqueeze(1)).numpy()
    assert np.array_equal(np.stack(np.unravel_index(chosen, spaces[0].factors), axis=1), np.stack(expected))
    assert len(np.unique(chosen)) > 1
    with pytest.raises(InputError, match=r"parts goal \(2\), arm \(4\), the environment's arm \(4\), goal \(2\)"):
        as_policy(model, spaces[1])


@pytest.mark.parametrize("given", ["live", "zip"])
def test_statistics_of_parts_belong_to_the_agent(tmp_path, given):
    """Goal environments of SB3's zoo have them."""
    env = VecNormalize(DummyVecEnv([lambda: parts(actions="one", names=("goal", "arm"))]), clip_obs=2.0)
    for name, low in (("goal", 0.3), ("arm", -0.2)):
        shape = env.obs_rms[name].mean.shape
        env.obs_rms[name].mean, env.obs_rms[name].var = np.full(shape, low), np.full(shape, 0.01 + low**2)
    model = trained(PPO, env, batch_size=8)
    model.save(tmp_path / "model.zip")
    env.save(tmp_path / "statistics.pkl")
    task = make_task(parts, floor=0, env_kwargs={"actions": "one", "names": ("goal", "arm")})
    agent = {"agent": model} if given == "live" else {"agent": tmp_path / "model.zip"}
    stored = {} if given == "live" else {"vecnormalize": tmp_path / "statistics.pkl"}
    policy = as_policy(**agent, spaces=task.spaces, **stored)
    rows = [env.venv.envs[0].reset(seed=k)[0] for k in range(60)]
    expected = [model.predict(env.normalize_obs(row), deterministic=True)[0] for row in rows]
    seen = torch.from_numpy(np.stack([flat(env.venv.envs[0], row) for row in rows])).unsqueeze(1)
    assert np.array_equal(policy.act(seen).numpy(), np.stack(expected))
    plain = as_policy(model, task.spaces, vecnormalize="none")
    assert not torch.equal(plain.act(seen), policy.act(seen))


def test_statistics_of_some_parts_are_refused():
    env = VecNormalize(DummyVecEnv([lambda: parts(actions="one")]), norm_obs_keys=["goal", "arm"])
    with pytest.raises(
        InputError, match=r"the parts goal \(2\), arm \(4\), the agent's .* door \(3\); .*normalize all"
    ):
        as_policy(trained(PPO, env, batch_size=8), make_task(parts, floor=0, env_kwargs={"actions": "one"}).spaces)


def test_an_agent_of_other_parts_is_refused():
    model = trained(A2C, parts(names=("arm", "goal", "door")))
    with pytest.raises(InputError, match=r"parts arm \(4\), goal \(2\), door \(3\), the environment's goal \(2\), arm"):
        as_policy(model, make_task(parts, floor=0).spaces)
    other = trained(A2C, parts(actions="lamps"))
    eight = make_task(lambda: parts(actions="several"), floor=0).spaces
    with pytest.raises(InputError, match="the agent has 8 actions from 0, the environment takes 12 actions from 0"):
        as_policy(other, eight)
    swapped = make_task(lambda: parts(actions="lamps"), floor=0).spaces
    with pytest.raises(InputError, match=r"parts of \(2, 2, 2\) values, the environment's of \(4, 2\)"):
        as_policy(other, replace(swapped, factors=(4, 2)))


def test_joint_values_add_and_the_first_of_equal_values_wins():
    network = Joint(torch.nn.Identity(), (3, 2), binary=False)
    output = torch.tensor([[0.0, 5.0, 5.0, 1.0, 2.0], [1e8, 1e8 - 8, 0.0, 0.0, 1e-3]])
    joint = network(output)
    assert joint.shape == (2, 6)
    assert joint.argmax(dim=1).tolist() == [1 * 2 + 1, 0 * 2 + 1]
    lamps = Joint(torch.nn.Identity(), (2, 2), binary=True)(torch.tensor([[-1.0, 0.0], [3.0, 0.5]]))
    assert lamps.argmax(dim=1).tolist() == [0, 3]


@pytest.mark.parametrize("batched", [False, True])
def test_functions_may_answer_in_parts(batched):
    def choose(seen):
        return np.array([2, 0, 1]) if not batched else np.tile([2, 0, 1], (len(seen), 1))

    task = make_task(parts, floor=0, ceiling=25)
    played = surefoot.rollout(task, as_policy(choose, task.spaces, batched=batched), sigma=0.1, n_episodes=2)
    assert played.returns.tolist() == [15.0, 15.0]
    with pytest.raises(InputError, match=r"must choose parts of an action below \(3, 2, 2\), from 0, got \[3, 0, 0\]"):
        as_policy(lambda seen: np.array([3, 0, 0]), task.spaces, batched=False).network(torch.zeros(1, 1, 9))


def test_continuous_actions_of_functions_and_policies_are_clipped_to_the_environments():
    """Floors rely on it: the reward of Reacher is minus the squared action, within its bounds."""
    task = make_task("Reacher-v5")
    wild = as_policy(lambda seen: np.array([9.0, -9.0]), task.spaces)
    assert wild.act(torch.zeros(1, 1, *task.spaces.shape)).tolist() == [[1.0, -1.0]]

    class Nine(torch.nn.Module):
        def forward(self, history):
            return torch.full((len(history), 2), 9.0)

    own = as_policy(surefoot.Policy(Nine(), surefoot.Spaces(shape=task.spaces.shape, n_actions=None)), task.spaces)
    assert own.act(torch.zeros(1, 1, *task.spaces.shape)).tolist() == [[1.0, 1.0]]


def test_noise_for_training_keeps_the_parts_apart():
    noisy = NoisyObservation(parts(), 0.1, seed=3)
    seen = noisy.reset(seed=0)[0]
    assert seen in noisy.observation_space
    assert {name: part.shape for name, part in seen.items()} == {"goal": (2,), "arm": (2, 2), "door": (3,)}
    clean = parts().reset(seed=0)[0]
    noise = flat(noisy, seen) - flat(parts(), clean)
    assert 0 < np.abs(noise).max() < 0.6
    silent = NoisyObservation(parts(), 0.0).reset(seed=0)[0]
    assert np.allclose(flat(noisy, silent), flat(parts(), clean))


def test_an_agent_of_observations_in_parts_is_deployed_with_them(tmp_path):
    """A dict in, the action of the model out; planted: parts in another order would be other observations."""
    env = parts(names=("goal", "arm"), actions="one")
    model = trained(A2C, env)
    model.save(tmp_path / "parts.zip")
    agent = as_policy(tmp_path / "parts.zip", n_stack=1)
    noisy = surefoot.smooth(agent, sigma={"arm": 0.3})
    assert noisy.noise.features == (0.0,) * 2 + (0.3,) * 4
    quiet = surefoot.smooth(agent, sigma={"arm": 1e-3})
    observations = [env.reset(seed=seed)[0] for seed in range(40)]
    actions = []
    for observation in observations:
        quiet.reset()
        actions.append(int(quiet.predict(observation)[0]))
    expected = [int(model.predict(one, deterministic=True)[0]) for one in observations]
    assert actions == expected
    assert len(set(expected)) > 1
    rows = {name: np.stack([one[name] for one in observations]) for name in ("goal", "arm")}
    quiet.reset()
    assert quiet.predict(rows)[0].tolist() == expected
    _, (remembered,) = noisy.predict(rows, episode_start=[True] * 40)
    seen = remembered[:, -1]
    assert np.array_equal(seen[:, :2], rows["goal"])
    assert (seen[:, 2:] != rows["arm"].reshape(40, 4)).all()


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"goal": np.zeros(2)}, "expected an observation with the parts goal, arm, got goal"),
        ({"goal": np.zeros(2), "arm": np.zeros((2, 2)), "door": np.zeros(3)}, "got goal, arm, door"),
        ({"goal": np.zeros(3), "arm": np.zeros((2, 2))}, r"part goal has 2 numbers, or rows of as many, got .*\(3,\)"),
        ({"goal": np.zeros(2), "arm": np.zeros((5, 2, 2))}, "got different numbers of rows"),
        ({"goal": np.zeros(2, int), "arm": np.zeros((2, 2))}, "part goal has whole numbers; .*flatten"),
        ({"goal": np.full(2, np.nan), "arm": np.zeros((2, 2))}, "part goal: observation contains NaN"),
        (({"goal": np.zeros(2), "arm": np.zeros((2, 2))}, {}), r"got 0.goal, 0.arm; env.reset\(\) returns"),
    ],
)
def test_other_parts_than_the_agent_was_made_for_are_refused(wrong, match):
    model = trained(A2C, parts(names=("goal", "arm"), actions="one"))
    with pytest.raises(InputError, match=match):
        surefoot.smooth(as_policy(model, n_stack=1), sigma=0.1).predict(wrong)


class Goals(gymnasium.Env):
    """A goal environment, as those of HER: the observation says where the agent should be."""

    def __init__(self):
        self.observation_space = Dict({name: Box(-1.0, 1.0, (2,), np.float32) for name in GOALS})
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._drawn(), {}

    def step(self, action):
        return self._drawn(), float(-np.abs(action).sum()), False, False, {}

    def _drawn(self):
        return {name: self.np_random.uniform(-1, 1, 2).astype(np.float32) for name in GOALS}


def test_the_time_left_in_observations_with_goals(tmp_path, monkeypatch):
    """As RL Baselines3 Zoo trains on Panda and parking; planted: a time that stands still is another agent."""
    monkeypatch.setitem(
        gymnasium.registry, "Goals-v0", gymnasium.envs.registration.EnvSpec("Goals-v0", Goals, max_episode_steps=5)
    )
    env = TimeFeatureWrapper(gymnasium.make("Goals-v0", disable_env_checker=True))
    model = SAC("MultiInputPolicy", env, buffer_size=4, seed=0, device="cpu", policy_kwargs={"net_arch": [8]})
    inner = tmp_path / "Goals-v0_1" / "Goals-v0"
    inner.mkdir(parents=True)
    model.save(inner.parent / "Goals-v0.zip")
    (inner / "args.yml").write_text("env: Goals-v0\n")
    (inner / "config.yml").write_text("env_wrapper: sb3_contrib.common.wrappers.TimeFeatureWrapper\n")
    task = make_task("Goals-v0", floor=-10)
    policy = as_policy(str(inner.parent), task.spaces)
    memory = policy.memory.empty(torch.zeros(1, 6))
    observation, _ = env.reset(seed=0)
    chosen, stuck = [], []
    for step in range(5):
        plain = np.concatenate([observation[name][:2] for name in GOALS])
        seen = torch.from_numpy(plain[None])
        memory = policy.memory.advance(memory, seen, episode_start=torch.tensor([step == 0]))
        known = model.predict(observation, deterministic=True)[0]
        chosen.append(np.allclose(policy.act(memory)[0].numpy(), known, atol=1e-5))
        first = policy.memory.advance(memory, seen, episode_start=torch.tensor([True]))
        stuck.append(np.allclose(policy.act(first)[0].numpy(), known, atol=1e-5))
        observation = env.step(known)[0]
    assert all(chosen)
    assert not all(stuck)


def test_an_agent_with_another_length_of_the_episode_is_another_agent():
    """The time left is a share of it: after as many steps the network is given another number."""
    policy = replace(constant(), spaces=Spaces(shape=(5,), n_actions=2), sha256="known")
    hashes = {with_clock(policy, max_steps).sha256 for max_steps in (50, 100)} | {policy.sha256}
    assert len(hashes) == 3
    assert with_clock(replace(policy, sha256=""), 50).sha256 == ""


@pytest.mark.parametrize("parts", [(("observation", 2), ("goal", 3)), (("goal", 4), ("observation", 1))])
def test_the_time_left_is_appended_to_no_other_part_than_the_observation(parts):
    policy = replace(constant(), spaces=Spaces(shape=(5,), n_actions=2, parts=parts))
    with pytest.raises(InputError, match="the time left is the last number of the part observation"):
        with_clock(policy, 50)
    fits = with_clock(replace(policy, spaces=replace(policy.spaces, parts=(("goal", 3), ("observation", 2)))), 50)
    assert fits.spaces.parts == (("goal", 3), ("observation", 1))
