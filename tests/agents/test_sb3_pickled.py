"""Settings of an SB3 model file: what its pickles say, which SB3 loads, is what is certified, whatever is printed."""

import base64
import json
import pickle
import struct
import time
import warnings
import zipfile
from collections import OrderedDict

import cloudpickle
import numpy as np
import pytest
import stable_baselines3
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from torch import nn

from stand_ins import SpacesOnly
from surefoot.agents.sb3 import read as sb3
from surefoot.agents.sb3.inert_pickle import MOST_PICKLE_STEPS
from surefoot.errors import InputError, NotAllowedError

torch.set_num_threads(1)
FLOATS = Box(-1, 1, (4,), np.float32)
ARM = Box(np.float32([-1.5, 0.0]), np.float32([0.25, 3.0]))
PARTS = Dict({"near": Box(-1, 1, (2,)), "far": Box(-1, 1, (3,)), "mode": Discrete(3)})


def saved(path, observations=FLOATS, actions=ARM, kind="PPO", **settings):
    policy = "MultiInputPolicy" if isinstance(observations, Dict) else "MlpPolicy"
    own = {"buffer_size": 2} if kind in ("SAC", "DQN") else {}
    own |= {"use_sde": True} if settings.pop("sde", False) else {}
    kwargs = {"net_arch": [8], "activation_fn": nn.ReLU} | settings
    env = SpacesOnly(observations, actions)
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


RELU = {"net_arch": [8], "activation_fn": nn.ReLU}
SDE = RELU | {"use_sde": True}


@pytest.mark.parametrize(
    ("kind", "settings", "kwargs"),
    [
        ("PPO", {}, RELU | {"activation_fn": nn.Tanh}),
        ("PPO", {}, {"net_arch": [8]}),
        ("SAC", {"sde": True, "clip_mean": 2.0}, SDE | {"clip_mean": 0.001}),
    ],
)
def test_the_agent_is_the_one_that_sb3_loads(tmp_path, kind, settings, kwargs):
    """The attack: SB3 plays another agent than the print says, and the weights are the same."""
    path = saved(tmp_path / "model.zip", kind=kind, **settings)
    honest = sb3.read_zip(path)
    seen = np.random.default_rng(0).uniform(-1, 1, (50, 4)).astype(np.float32)
    load = getattr(stable_baselines3, kind).load
    before = load(path, device="cpu").predict(seen, deterministic=True)[0]
    repickled(path, "policy_kwargs", kwargs)
    after = load(path, device="cpu").predict(seen, deterministic=True)[0]
    assert not np.array_equal(before, after)
    found = sb3.read_zip(path)
    assert np.allclose(found.act(torch.from_numpy(seen).unsqueeze(1)).numpy(), after, atol=1e-6)
    assert found.sha256 != honest.sha256
    assert sb3.read_zip(path, allow_pickle=True).sha256 == found.sha256


def test_other_settings_that_no_weights_fit_are_rejected(tmp_path):
    path = saved(tmp_path / "model.zip", kind="SAC", sde=True)
    with pytest.raises(InputError, match="weights are those of another use_sde or clip_mean"):
        sb3.read_zip(repickled(path, "policy_kwargs", SDE | {"clip_mean": 0.0}))
    path = saved(tmp_path / "model.zip")
    with pytest.raises(NotAllowedError, match="policy_kwargs of unknown effect: twist"):
        sb3.read_zip(repickled(path, "policy_kwargs", RELU | {"twist": 1}))


MISFIT = "its layers .* do not lead from"


@pytest.mark.parametrize(
    ("observations", "other", "refusal"),
    [
        (FLOATS, Box(-1, 1, (2, 2), np.float32), ""),
        (FLOATS, Box(0, 255, (4,), np.uint8), "an image"),
        (FLOATS, Box(0, 100, (4,), np.int8), "its observations are int8"),
        (FLOATS, Discrete(4), ""),
        (FLOATS, Tuple((FLOATS,)), "observations are gymnasium.spaces.tuple.Tuple, expected a Box or a Dict"),
        (Discrete(4), Discrete(5), MISFIT),
        (Discrete(4), FLOATS, ""),
        (Discrete(4), Discrete(4, start=1), "its 4 actions start at 1, expected 0"),
        (PARTS, Dict(OrderedDict(reversed(list(PARTS.spaces.items())))), ""),
        (PARTS, FLOATS, MISFIT),
    ],
)
def test_observations_are_those_that_sb3_loads(tmp_path, observations, other, refusal):
    path = saved(tmp_path / "model.zip", observations)
    repickled(path, "observation_space", other)
    if refusal:
        with pytest.raises(InputError, match=refusal):
            sb3.read_zip(path)
        return
    assert sb3.read_zip(path).spaces == sb3.read_zip(saved(tmp_path / "other.zip", other)).spaces


@pytest.mark.parametrize(
    ("actions", "other", "refusal"),
    [
        (ARM, Box(np.float32([-1.5, 0.0]), np.float32([0.5, 3.0])), ""),
        (ARM, Box(np.float32([-1.6, 0.0]), np.float32([0.25, 3.0])), ""),
        (ARM, Box(-1, 1, (3,)), MISFIT),
        (ARM, Box(-1, 1, (1, 2)), "actions are .*Box, expected Discrete or a one-dimensional Box"),
        (ARM, Discrete(2), ""),
        (Discrete(2), Discrete(3), MISFIT),
        (MultiDiscrete([2, 3]), MultiDiscrete([3, 2]), ""),
        (MultiDiscrete([2, 3]), MultiDiscrete([2, 3], start=[0, 1]), "do not all start at 0"),
        (MultiDiscrete([2, 2]), MultiBinary(4), ""),
        (MultiBinary(2), MultiBinary(3), MISFIT),
        (MultiBinary(2), MultiBinary(2**22), "have more than 16,777,216 combinations"),
    ],
)
def test_actions_are_those_that_sb3_loads(tmp_path, actions, other, refusal):
    path = saved(tmp_path / "model.zip", actions=actions)
    honest = sb3.read_zip(path).sha256
    repickled(path, "action_space", other)
    if refusal:
        with pytest.raises(InputError, match=refusal):
            sb3.read_zip(path)
        return
    found = sb3.read_zip(path)
    assert found.spaces == sb3.read_zip(saved(tmp_path / "other.zip", actions=other)).spaces
    assert found.sha256 != honest


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
    with pytest.raises(NotAllowedError, match="its weights are not those of plain fully connected layers"):
        sb3.read_zip(repickled(path, "policy_class", DQNPolicy))
    path = changed(saved(tmp_path / "model.zip"), lambda data: data.update(use_sde={":serialized:": "gAWILg=="}))
    with pytest.raises(InputError, match="its use_sde is not stored as a plain value"):
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
        (b"", "is rejected: it is damaged"),
        (b"\x80\x05", "is rejected: it is damaged"),
        (b"\x80\x05h\x07.", "is rejected"),
        (b"\x80\x05u.", "is rejected"),
        (b"cos\nsystem\nX\x04\x00\x00\x00true\x85R.", r"is rejected: it calls os\.system, which has no place in it"),
        (b"\x80\x05N.", "policy_kwargs are not a dictionary"),
        (b"\x80\x05}K\x01K\x02s.", "is rejected: a key is not text"),
        (b"\x80\x05\x82\x01.", "is rejected: the instruction 130 has no place in it"),
        (b"\x80\x05" + b"N" * MOST_PICKLE_STEPS + b".", "is rejected: it has more than 200,000 instructions"),
        (b"\x80\x05\x8e" + struct.pack("<Q", 2**62) + b".", "is rejected"),
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
