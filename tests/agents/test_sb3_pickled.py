"""Settings of an SB3 model file are stored twice, printed and pickled: a file in which they differ is two agents."""

import base64
import json
import pickle
import struct
import time
import warnings
import zipfile
from collections import OrderedDict

import cloudpickle
import gymnasium
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import nn

from surefoot.agents.sb3 import read as sb3
from surefoot.agents.sb3.pickled import MOST_OPCODES
from surefoot.errors import InputError, NotAllowedError

torch.set_num_threads(1)
FLOATS = Box(-1, 1, (4,), np.float32)
ARM = Box(np.float32([-1.5, 0.0]), np.float32([0.25, 3.0]))
PARTS = Dict({"near": Box(-1, 1, (2,)), "far": Box(-1, 1, (3,)), "mode": Discrete(3)})


class Env(gymnasium.Env):
    def __init__(self, observations, actions):
        self.observation_space, self.action_space = observations, actions


def saved(path, observations=FLOATS, actions=ARM, kind="PPO", **settings):
    policy = "MultiInputPolicy" if isinstance(observations, Dict) else "MlpPolicy"
    own = {"buffer_size": 2} if kind in ("SAC", "DQN") else {}
    own |= {"use_sde": True} if settings.pop("sde", False) else {}
    kwargs = {"net_arch": [8], "activation_fn": nn.ReLU} | settings
    env = Env(observations, actions)
    model = getattr(stable_baselines3, kind)(policy, env, seed=0, device="cpu", policy_kwargs=kwargs, **own)
    model.save(path)
    return path


def changed(path, change):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(members["data"])
    change(data)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (members | {"data": json.dumps(data)}).items():
            archive.writestr(name, content)
    return path


def repickled(path, name, value, **printed):
    """Exchange what SB3 loads, and perhaps what is printed."""
    content = value if isinstance(value, bytes) else cloudpickle.dumps(value)

    def change(data):
        data[name] |= {":serialized:": base64.b64encode(content).decode(), **printed}

    return changed(path, change)


def test_another_activation_under_the_same_print_is_rejected(tmp_path):
    """The attack: SB3 plays another agent than the one that is certified, and the weights are the same."""
    path = saved(tmp_path / "model.zip")
    honest = sb3.read_zip(path)
    seen = np.random.default_rng(0).uniform(-1, 1, (50, 4)).astype(np.float32)
    before = stable_baselines3.PPO.load(path, device="cpu").predict(seen, deterministic=True)[0]
    repickled(path, "policy_kwargs", {"net_arch": [8], "activation_fn": nn.Tanh})
    after = stable_baselines3.PPO.load(path, device="cpu").predict(seen, deterministic=True)[0]
    assert not np.array_equal(before, after)
    with pytest.raises(InputError, match=r"activation_fn is printed as .*ReLU'> and stored as .*Tanh'>.*two agents"):
        sb3.read_zip(path)
    assert sb3.read_zip(path, allow_pickle=True).sha256 != honest.sha256  # what SB3 loads has a hash of its own


RELU = {"net_arch": [8], "activation_fn": nn.ReLU}


@pytest.mark.parametrize(
    ("kind", "settings", "kwargs", "name"),
    [
        ("PPO", {}, RELU | {"squash_output": True}, "list of policy_kwargs"),
        ("PPO", {}, {"net_arch": [8]}, "list of policy_kwargs"),
        ("PPO", {}, RELU | {"net_arch": [9]}, "net_arch"),
        ("SAC", {"sde": True, "clip_mean": 2.0}, RELU | {"use_sde": True, "clip_mean": 0.1}, "clip_mean"),
        ("SAC", {"sde": True}, RELU | {"use_sde": False}, "use_sde"),
        ("PPO", {"normalize_images": True}, RELU | {"normalize_images": False}, "normalize_images"),
        ("PPO", {"features_extractor_kwargs": {}}, RELU | {"features_extractor_kwargs": {"a": 1}}, "features_extr"),
    ],
)
def test_other_settings_under_the_same_print_are_rejected(tmp_path, kind, settings, kwargs, name):
    path = saved(tmp_path / "model.zip", kind=kind, **settings)
    assert sb3.read_zip(path).spaces.n_actions is None  # its honest twin
    with pytest.raises(InputError, match=rf"the model's {name}.* is printed as"):
        sb3.read_zip(repickled(path, "policy_kwargs", kwargs))


@pytest.mark.parametrize(
    ("observations", "other"),
    [
        (FLOATS, Box(-1, 1, (2, 2), np.float32)),
        (FLOATS, Box(0, 255, (4,), np.uint8)),
        (FLOATS, Discrete(4)),
        (Discrete(4), Discrete(5)),
        (Discrete(4), FLOATS),
        (PARTS, Dict(OrderedDict(reversed(list(PARTS.spaces.items()))))),
        (PARTS, FLOATS),
    ],
)
def test_other_observations_under_the_same_print_are_rejected(tmp_path, observations, other):
    path = saved(tmp_path / "model.zip", observations)
    assert sb3.read_zip(path).spaces.n_actions is None
    with pytest.raises(InputError, match=r"observation.* is printed as .*two agents"):
        sb3.read_zip(repickled(path, "observation_space", other))


@pytest.mark.parametrize(
    ("actions", "other"),
    [
        (ARM, Box(np.float32([-1.5, 0.0]), np.float32([0.5, 3.0]))),
        (ARM, Box(np.float32([-1.6, 0.0]), np.float32([0.25, 3.0]))),
        (ARM, Box(-1, 1, (3,))),
        (ARM, Discrete(2)),
        (Discrete(2), Discrete(3)),
        (MultiDiscrete([2, 3]), MultiDiscrete([3, 2])),
        (MultiDiscrete([2, 2]), MultiBinary(4)),
        (MultiBinary(2), MultiBinary(3)),
    ],
)
def test_other_actions_under_the_same_print_are_rejected(tmp_path, actions, other):
    path = saved(tmp_path / "model.zip", actions=actions)
    assert len(sb3.read_zip(path).sha256) == 64
    with pytest.raises(InputError, match=r"actions?(_space)? is printed as .*two agents"):
        sb3.read_zip(repickled(path, "action_space", other))


@pytest.mark.parametrize("what", ["nothing", "member", "key"])
def test_a_file_with_two_members_or_settings_of_one_name_is_rejected(what, tmp_path):
    """Which of the two counts depends on who reads."""
    path = saved(tmp_path / "a.zip")
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    data = dict(members)["data"].decode()
    if what == "member":
        members.insert(0, ("data", data.replace('"gamma": 0.99', '"gamma": 0.5')))
    elif what == "key":
        twice = data.rstrip().removesuffix("}") + ', "gamma": 0.5}'
        members = [(name, twice if name == "data" else content) for name, content in members]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile's own, of names that repeat
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members:
                archive.writestr(name, content)
    if what == "nothing":
        assert sb3.read_zip(path).sha256
        return
    with pytest.raises(InputError, match="two members of one name" if what == "member" else "'gamma' occurs twice"):
        sb3.read_zip(path)


def test_another_class_or_a_setting_that_is_not_plain_is_rejected(tmp_path):
    from stable_baselines3.dqn.policies import DQNPolicy

    path = saved(tmp_path / "model.zip", actions=Discrete(2))
    with pytest.raises(InputError, match=r"policy_class is printed as stable_baselines3\.common\.policies and stored"):
        sb3.read_zip(repickled(path, "policy_class", DQNPolicy))
    path = changed(saved(tmp_path / "model.zip"), lambda data: data.update(use_sde={":serialized:": "gAWILg=="}))
    with pytest.raises(InputError, match="use_sde is printed as False and stored as"):
        sb3.read_zip(path)
    path = changed(saved(tmp_path / "model.zip", kind="SAC", sde=True), lambda data: data.update(use_sde=False))
    with pytest.raises(InputError, match="weights are those of another use_sde or clip_mean"):
        sb3.read_zip(path)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_every_protocol_are_read(tmp_path, protocol):
    """Protocol 2 has no bytes, so arrays call a function that is not known here."""
    path = saved(tmp_path / "model.zip", PARTS, MultiDiscrete([2, 3]))
    expected = sb3.read_zip(path).sha256
    kwargs = {"net_arch": [8], "activation_fn": nn.ReLU}
    for name, value in (
        ("policy_kwargs", kwargs),
        ("observation_space", PARTS),
        ("action_space", MultiDiscrete([2, 3])),
    ):
        content = pickle.dumps(value, protocol)
        if protocol == 2 and name != "policy_kwargs":
            continue
        repickled(path, name, content)
    assert sb3.read_zip(path).sha256 == expected


def doubled(depth):
    """Return opcodes of a tuple that has another twice, which has another twice: small, and endless to write out."""
    return b")q\x00" + b"h\x00\x86q\x00" * depth


def named(value):
    """Return the pickle of policy_kwargs with this pickle as net_arch."""
    relu = b"ctorch.nn.modules.activation\nReLU\n"
    return b"\x80\x02}(X\x08\x00\x00\x00net_arch" + value + b"X\x0d\x00\x00\x00activation_fn" + relu + b"u."


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is damaged"),
        (b"\x80\x05", "is damaged"),
        (b"\x80\x05h\x07.", "is damaged"),
        (b"\x80\x05u.", "is damaged"),
        (b"cos\nsystem\nX\x04\x00\x00\x00true\x85R.", r"calls os\.system, which has no place in it"),
        (b"\x80\x05N.", "policy_kwargs are not a dictionary"),
        (b"\x80\x05}K\x01K\x02s.", "has a dictionary that is not one of names"),
        (b"\x80\x05\x82\x01.", "has the opcode EXT1, which SB3 does not write"),
        (b"\x80\x05" + b"N" * MOST_OPCODES + b".", "has more than 100000 opcodes"),
        (b"\x80\x05\x8e" + struct.pack("<Q", 2**62) + b".", "is damaged"),
        (named(doubled(60)), "net_arch has too many parts"),
        (named(b"]q\x00h\x00a"), "net_arch has too many parts"),
        (named(b"ccollections\nOrderedDict\n)R"), "net_arch is not made of plain values"),
    ],
)
def test_hostile_pickles_end_in_words(tmp_path, content, what):
    path = repickled(saved(tmp_path / "model.zip"), "policy_kwargs", content)
    began = time.monotonic()
    with pytest.raises(NotAllowedError, match=rf"its pickled (policy_kwargs )?{what}"):
        sb3.read_zip(path)
    assert time.monotonic() - began < 10
