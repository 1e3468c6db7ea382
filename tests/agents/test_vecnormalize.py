"""VecNormalize: its statistics belong to the agent, files of them are data, and none that is near is overlooked."""

import os
import pickle
import resource
import shutil
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium.spaces import Box, Dict, Discrete
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from stand_ins import Bomb, SpacesOnly
from surefoot.agents import files as zoo
from surefoot.agents.networks import weights_hash
from surefoot.agents.normalization import Normalized, Statistics, normalized
from surefoot.agents.policies import Spaces
from surefoot.agents.resolve import as_policy
from surefoot.agents.sb3.statistics import read_statistics
from surefoot.agents.sb3.write import statistics_path, write_zip
from surefoot.errors import InputError

torch.set_num_threads(1)

THREE = Discrete(3)
ARM = Box(-2, 2, (1,), np.float32)
MEAN, VAR = np.array([100.0, -3.0, 0.5, 7.0]), np.array([2500.0, 1e-6, 4.0, 0.0])


def made(kind="PPO", actions=THREE, shape=(4,), stack=None, before=True, **options):
    """A model with a VecNormalize whose statistics are set by hand, before or after a frame stack."""
    env = DummyVecEnv([lambda: SpacesOnly(Box(-np.inf, np.inf, shape, np.float32), actions)])
    env = env if stack is None or before else VecFrameStack(env, stack)
    env = VecNormalize(env, clip_obs=options.pop("clip_obs", 5.0), **options)
    times = env.observation_space.shape[-1] // 4
    env.obs_rms.mean, env.obs_rms.var = np.tile(MEAN, times), np.tile(VAR, times)
    env = VecFrameStack(env, stack) if stack is not None and before else env
    settings = {"policy_kwargs": {"net_arch": [16]}, "device": "cpu", "seed": 0}
    model = getattr(stable_baselines3, kind)(
        "MlpPolicy", env, **settings, **({} if kind in ("PPO", "A2C") else {"buffer_size": 2})
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # spread, so that all actions are chosen somewhere
        for weight in model.policy.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return model, model.get_vec_normalize_env()


def raw(rows=300, shape=(4,), seed=1):
    """Observations in the environment's units, some of them beyond the clip."""
    draws = np.random.default_rng(seed).normal(size=(rows, *shape)) * 3
    return (np.tile(MEAN, shape[-1] // 4) + draws * np.sqrt(np.tile(VAR, shape[-1] // 4) + 0.01)).astype(np.float32)


def same_actions(policy, model, wrapper, observations=None):
    seen = raw() if observations is None else observations
    expected, _ = model.predict(wrapper.normalize_obs(seen), deterministic=True)
    found = policy.act(torch.from_numpy(seen).unsqueeze(1)).numpy()
    assert len(np.unique(np.round(expected, 3))) > 1
    return np.array_equal(found, expected) if policy.spaces.n_actions else np.allclose(found, expected, atol=1e-6)


@pytest.fixture
def files(tmp_path):
    """A saved model, its wrapper, and its statistics in another folder."""
    model, wrapper = made()
    (tmp_path / "model").mkdir()
    model.save(tmp_path / "model" / "agent.zip")
    wrapper.save(tmp_path / "vecnormalize.pkl")
    return model, wrapper, tmp_path / "model" / "agent.zip", tmp_path / "vecnormalize.pkl"


@pytest.mark.parametrize(("kind", "actions"), [("PPO", THREE), ("A2C", ARM), ("SAC", ARM), ("DQN", THREE)])
def test_live_and_stored_statistics_act_as_sb3_does(tmp_path, kind, actions):
    model, wrapper = made(kind, actions)
    model.save(tmp_path / "agent.zip")
    wrapper.save(tmp_path / "statistics.pkl")
    policy = as_policy(tmp_path / "agent.zip", vecnormalize=tmp_path / "statistics.pkl")
    live = as_policy(model)
    assert policy.sha256 == live.sha256
    assert same_actions(policy, model, wrapper)
    assert same_actions(live, model, wrapper)
    assert not same_actions(as_policy(model, vecnormalize="none"), model, wrapper)


def test_numbers_are_those_of_sb3_bit_for_bit():
    model, wrapper = made()
    network = as_policy(model).network
    assert isinstance(network, Normalized)
    network.network = torch.nn.Identity()
    found = network(torch.from_numpy(raw()).unsqueeze(1))[:, 0].numpy()
    expected = wrapper.normalize_obs(raw())
    assert np.abs(expected).max() == 5
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


def test_training_on_does_not_change_the_policy():
    model, wrapper = made()
    policy = as_policy(model)
    before = policy.act(torch.from_numpy(raw()).unsqueeze(1))
    wrapper.obs_rms.mean += 100
    wrapper.obs_rms.mean[:] = 0
    assert torch.equal(policy.act(torch.from_numpy(raw()).unsqueeze(1)), before)


def test_a_wrapper_that_normalizes_only_rewards_changes_nothing(tmp_path):
    env = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")]), norm_obs=False)
    model = stable_baselines3.PPO("MlpPolicy", env, device="cpu", seed=0)
    assert as_policy(model).sha256 == as_policy(model, vecnormalize="none").sha256
    env.save(tmp_path / "statistics.pkl")
    assert read_statistics(tmp_path / "statistics.pkl") is None


# --- where statistics lie -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["vecnormalize.pkl", "vec_normalize.pkl", "rl_model_vecnormalize_500_steps.pkl", "VecNorm.pkl"]
)
def test_statistics_near_a_model_are_never_overlooked(files, name):
    model, wrapper, path, statistics = files
    assert not same_actions(as_policy(path), model, wrapper)  # nothing near it: nothing is known about them
    near = path.parent / name
    shutil.copy(statistics, near)
    with pytest.raises(InputError, match=rf"{name} is near agent\.zip .*give vecnormalize=.* or vecnormalize='none'"):
        as_policy(path)
    assert same_actions(as_policy(path, vecnormalize=near), model, wrapper)
    assert not same_actions(as_policy(path, vecnormalize="none"), model, wrapper)


def test_a_file_near_a_model_that_cannot_be_read_may_be_its_statistics(files):
    """Whoever passes it over runs another agent."""
    _, _, path, _ = files
    (path.parent / "vecnormalize.pkl").write_bytes(b"of another version")
    with pytest.raises(InputError, match=r"vecnormalize\.pkl is near agent\.zip and may hold the statistics"):
        as_policy(path)
    assert as_policy(path, vecnormalize="none").spaces.shape == (4,)


def test_statistics_of_other_observations_near_a_model_are_not_its_own(files):
    """Of another agent in the same folder; planted: one of the same shape is not passed over."""
    _, _, path, statistics = files
    shutil.copy(statistics, path.parent / "other_vecnormalize.pkl")
    lone = stable_baselines3.PPO("MlpPolicy", DummyVecEnv([lambda: SpacesOnly(Box(-1, 1, (3,), np.float32), THREE)]))
    lone.save(path.parent / "three.zip")
    assert as_policy(path.parent / "three.zip").spaces.shape == (3,)
    with pytest.raises(InputError, match="is near agent"):
        as_policy(path)


def test_statistics_need_an_sb3_model(files):
    *_, statistics = files
    for agent in ("cartpole-1-s0.2", zoo.load("cartpole-1-s0.2"), lambda seen: 0):
        with pytest.raises(InputError, match=r"statistics of VecNormalize (go with an SB3 model|do not go with a fun)"):
            as_policy(agent, Spaces(shape=(4,), n_actions=2), vecnormalize=statistics)
    with pytest.raises(InputError, match=r"no file .*nowhere\.pkl"):
        as_policy(files[2], vecnormalize="nowhere.pkl")


# --- stacks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before", [True, False])
def test_statistics_before_and_after_a_frame_stack(tmp_path, before):
    model, wrapper = made(stack=3, before=before)
    policy = as_policy(model, Spaces(shape=(4,), n_actions=3))
    assert (policy.spaces.n_stack, policy.spaces.shape) == (3, (4,))
    history = raw(shape=(12,)).reshape(-1, 3, 4)
    seen = (
        [wrapper.normalize_obs(history[:, i]) for i in range(3)]
        if before
        else [wrapper.normalize_obs(history.reshape(-1, 12))]
    )
    expected, _ = model.predict(np.concatenate(seen, axis=1), deterministic=True)
    assert len(np.unique(expected)) > 1
    assert np.array_equal(policy.act(torch.from_numpy(history)).numpy(), expected)
    zoo.save(policy, tmp_path / "agent", {})
    again = zoo.load(str(tmp_path / "agent"))
    assert np.array_equal(again.act(torch.from_numpy(history)).numpy(), expected)


def test_statistics_of_other_observations_do_not_fit():
    model, _ = made()
    other = Statistics(mean=np.zeros(3), var=np.ones(3), epsilon=1e-8, clip=10)
    with pytest.raises(
        InputError, match=r"statistics are of observations of shape \(3,\), the agent was made for \(4,\)"
    ):
        as_policy(model, vecnormalize=other)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mean": np.array([np.nan])},
        {"var": np.array([-1.0])},
        {"var": np.array([np.inf])},
        {"var": np.zeros(1), "epsilon": 0.0},
        {"clip": 0.0},
        {"mean": np.zeros(2)},
    ],
)
def test_statistics_must_make_sense(wrong):
    with pytest.raises(InputError, match="need a finite mean and a positive variance"):
        Statistics(**({"mean": np.zeros(1), "var": np.ones(1), "epsilon": 1e-8, "clip": 10.0} | wrong))


# --- a file is data -------------------------------------------------------------------------------------------------


class Own(VecNormalize):
    """A subclass may normalize otherwise."""


def test_pickles_do_not_run(files, tmp_path):
    _, wrapper, path, statistics = files
    trace = tmp_path / "ran"
    for bomb in (Bomb(trace), {"obs_rms": Bomb(trace)}, [wrapper.obs_rms, Bomb(trace)]):
        statistics.write_bytes(pickle.dumps(bomb))
        with pytest.raises(
            InputError, match=r"is rejected, it holds more than statistics .*pathlib\..*Path.*save it again"
        ):
            as_policy(path, vecnormalize=statistics)
        assert not trace.exists()
        pickle.loads(statistics.read_bytes())
        assert trace.exists()  # the bomb is live
        trace.unlink()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_numpy_itself_could_be_made_to_do_is_not_done(tmp_path, protocol):
    """Names of numpy are allowed, but stand for nothing: numpy.load or numpy.save would read and write files."""

    class Write:
        def __reduce__(self):
            return np.save, (str(tmp_path / "written"), np.zeros(1))

    target = tmp_path / "statistics.pkl"
    target.write_bytes(pickle.dumps(Write(), protocol))
    with pytest.raises(InputError, match=r"does not hold the statistics of a VecNormalize|is rejected"):
        read_statistics(target)
    assert not (tmp_path / "written.npy").exists()


@pytest.mark.parametrize("content", [b"", b"hello", pickle.dumps(3), pickle.dumps([1, 2]), b"\x80\x04."])
def test_other_files_are_refused(tmp_path, content):
    target = tmp_path / "statistics.pkl"
    target.write_bytes(content)
    with pytest.raises(InputError, match=r"statistics\.pkl (is rejected|does not hold)"):
        read_statistics(target)


def test_subclasses_are_refused(tmp_path):
    model, _ = made()
    wrapper = Own(DummyVecEnv([lambda: SpacesOnly(Box(-1, 1, (4,), np.float32), THREE)]))
    wrapper.save(tmp_path / "statistics.pkl")
    with pytest.raises(InputError, match="holds more than statistics"):
        as_policy(model, vecnormalize=tmp_path / "statistics.pkl")


def test_flipped_bytes_never_raise_anything_else(files):
    *_, statistics = files
    content, generator = statistics.read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        spoilt = bytearray(content)
        for place in generator.integers(len(content), size=8):
            spoilt[place] ^= 1 << generator.integers(8)
        statistics.write_bytes(spoilt)
        try:
            read_statistics(statistics)
        except InputError as error:
            assert str(error)  # noqa: PT017


def test_images_are_refused(tmp_path):
    image = Box(0, 255, (3, 36, 36), np.uint8)
    for space in (image, Dict({"camera": image})):
        env = DummyVecEnv([lambda space=space: SpacesOnly(space, THREE)])
        VecNormalize(env).save(tmp_path / "statistics.pkl")
        with pytest.raises(InputError, match="statistics of images are not supported"):
            read_statistics(tmp_path / "statistics.pkl")


# --- the agent elsewhere --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "actions"), [("DQN", THREE), ("DDPG", ARM)])
def test_agent_files_and_exports_keep_the_statistics(tmp_path, kind, actions):
    """With another epsilon and another clip than VecNormalize has by default."""
    model, wrapper = made(kind, actions, epsilon=0.3)
    policy = as_policy(model)
    zoo.save(policy, tmp_path / "agent", {})
    stored = zoo.load(str(tmp_path / "agent"))
    assert same_actions(stored, model, wrapper)
    assert zoo.parts_of(stored)[0] == zoo.parts_of(policy)[0]
    write_zip(stored, tmp_path / "out.zip")
    assert sorted(os.listdir(tmp_path)) == ["agent.json", "agent.npz", "out", "out.zip"]  # noqa: PTH208
    assert same_actions(as_policy(tmp_path / "out.zip"), model, wrapper)
    env = VecNormalize.load(
        statistics_path(tmp_path / "out.zip"), DummyVecEnv([lambda: SpacesOnly(Box(-1, 1, (4,)), actions)])
    )
    loaded = getattr(stable_baselines3, kind).load(tmp_path / "out.zip", device="cpu")
    assert np.array_equal(
        loaded.predict(env.normalize_obs(raw()), deterministic=True)[0],
        model.predict(wrapper.normalize_obs(raw()), deterministic=True)[0],
    )


def test_agent_file_without_its_statistics_is_refused(tmp_path):
    policy = as_policy(made("DQN")[0])
    layout, arrays = zoo.parts_of(policy)
    assert sorted(name for name in arrays if name.startswith("norm")) == ["normalization.mean", "normalization.var"]
    del arrays["normalization.var"]
    card = {"schema": 1, "name": "x", "layout": layout, "sha256": weights_hash(arrays, layout)}
    with pytest.raises(InputError, match="not a model card that fits its weights"):
        zoo.from_parts(card, arrays, "x")


def test_statistics_of_policies_without_a_hash():
    from toys import from_callable

    plain = from_callable(lambda seen: int(seen[0] > 0), shape=(1,), n_actions=2)
    shifted = normalized(plain, Statistics(mean=np.array([3.0]), var=np.ones(1), epsilon=0.0, clip=9.0))
    assert shifted.sha256 == ""
    assert shifted.act(torch.tensor([[[2.0]], [[4.0]]])).tolist() == [0, 1]
    assert replace(shifted, name="a").name == "a"


def test_a_few_bytes_cannot_ask_for_gigabytes(tmp_path):
    """PUT under the number 2**31 - 1: a reader that keeps a list for it would need 16 GiB."""
    target = tmp_path / "statistics.pkl"
    target.write_bytes(b"\x80\x04K\x01r\xff\xff\xff\x7f.")
    limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (12 * 2**30, limit[1]))
    try:
        with pytest.raises(InputError, match="does not hold the statistics"):
            read_statistics(target)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)
