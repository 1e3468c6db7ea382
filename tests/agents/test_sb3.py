"""SB3 models: the same actions as SB3 itself, no code run by a file, and honest refusals."""

import base64
import contextlib
import io
import json
import os
import pickle
import sys
import zipfile
from dataclasses import replace
from itertools import pairwise

import cloudpickle
import numpy as np
import pytest
import sb3_contrib
import stable_baselines3
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from stable_baselines3.common.torch_layers import FlattenExtractor
from torch import nn

from stand_ins import Bomb, SpacesOnly
from surefoot.agents.fit import fit_to, single_shape
from surefoot.agents.networks import MLP
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.resolve import as_policy
from surefoot.agents.sb3 import read as sb3
from surefoot.agents.sb3.settings import action_factors
from surefoot.agents.sb3.write import write_zip
from surefoot.errors import InputError, NotAllowedError
from toys import from_callable

torch.set_num_threads(1)

FLOATS = Box(-np.inf, np.inf, (5,), np.float32)
STACK = Box(-np.inf, np.inf, (3, 4), np.float32)
THREE = Discrete(3)
ARM = Box(np.float32([-1.5, 0.0]), np.float32([0.25, 3.0]), dtype=np.float32)


def make(kind="DQN", observations=FLOATS, actions=THREE, policy="MlpPolicy", seed=0, **options):
    settings = {} if policy == "LinearPolicy" else {"net_arch": [16, 16]}
    settings |= options.pop("policy_kwargs", {})
    if kind in ("DQN", "DDPG", "TD3", "SAC", "QRDQN", "TQC"):
        options["buffer_size"] = 2
    model = getattr(stable_baselines3 if hasattr(stable_baselines3, kind) else sb3_contrib, kind)(
        policy, SpacesOnly(observations, actions), seed=seed, device="cpu", policy_kwargs=settings, **options
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # fresh models act nearly alike everywhere: spread them, so that limits and argmax matter
        for weight in model.policy.parameters():
            spread = 2 / weight.shape[-1] ** 0.5 if weight.dim() > 1 else 0.1
            weight.copy_(torch.randn(weight.shape, generator=generator) * spread)
    return model


def saved(tmp_path, model):
    path = tmp_path / "model.zip"
    model.save(path)
    return path


def looks(policy, rows=200, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, *policy.spaces.shape)).astype(np.float32)


def acts(policy, observations):
    history = torch.from_numpy(observations).reshape(len(observations), policy.spaces.n_stack, *policy.spaces.shape)
    return policy.act(history).numpy()


def same_actions(policy, model):
    seen = looks(policy)
    expected, _ = model.predict(seen, deterministic=True)
    found = acts(policy, seen)
    assert found.shape == expected.shape
    if policy.spaces.n_actions is not None:
        assert len(np.unique(found)) > 1
        return np.array_equal(found, expected)
    assert np.ptp(found, axis=0).min() > 0.1
    return np.allclose(found, expected, rtol=0, atol=1e-6)


def pickled(content):
    return base64.b64encode(content if isinstance(content, bytes) else cloudpickle.dumps(content)).decode()


def in_module(data, module):
    """Let the policy class come from another module."""
    data["policy_class"][":serialized:"] = pickled(f"c{module}\nMlpPolicy\n.".encode())


def edited(path, **changes):
    """Rewrite members of a zip; a callable changes the JSON of data."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, change in changes.items():
        file = {"policy": "policy.pth"}.get(name, name)
        if callable(change):
            data = json.loads(members[file])
            change(data)
            members[file] = json.dumps(data).encode()
        elif change is None:
            del members[file]
        else:
            members[file] = change
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


MODELS = [
    pytest.param({"kind": "DQN"}, id="DQN"),
    pytest.param({"kind": "DQN", "observations": STACK}, id="DQN-stack"),
    pytest.param({"kind": "DQN", "policy_kwargs": {"net_arch": []}}, id="DQN-linear"),
    pytest.param({"kind": "DQN", "policy_kwargs": {"activation_fn": nn.GELU}}, id="DQN-gelu"),
    pytest.param({"kind": "DQN", "policy_kwargs": {"features_extractor_class": FlattenExtractor}}, id="DQN-flat"),
    pytest.param({"kind": "PPO"}, id="PPO"),
    pytest.param({"kind": "PPO", "actions": ARM}, id="PPO-box"),
    pytest.param({"kind": "PPO", "policy_kwargs": {"net_arch": {"pi": [8], "vf": [4, 4]}}}, id="PPO-arch"),
    pytest.param({"kind": "PPO", "policy_kwargs": {"activation_fn": nn.ReLU}}, id="PPO-relu"),
    pytest.param(
        {"kind": "PPO", "actions": ARM, "use_sde": True, "policy_kwargs": {"squash_output": True}}, id="PPO-sde"
    ),
    pytest.param({"kind": "A2C"}, id="A2C"),
    pytest.param({"kind": "A2C", "actions": ARM}, id="A2C-box"),
    pytest.param({"kind": "DDPG", "actions": ARM}, id="DDPG"),
    pytest.param({"kind": "TD3", "actions": ARM}, id="TD3"),
    pytest.param({"kind": "SAC", "actions": ARM, "policy_kwargs": {"activation_fn": nn.ELU}}, id="SAC"),
    pytest.param({"kind": "SAC", "actions": ARM, "use_sde": True}, id="SAC-sde"),
    pytest.param({"kind": "SAC", "actions": ARM, "use_sde": True, "policy_kwargs": {"clip_mean": 0.3}}, id="SAC-clip"),
    pytest.param({"kind": "SAC", "actions": ARM, "use_sde": True, "policy_kwargs": {"clip_mean": 0.0}}, id="SAC-free"),
    pytest.param({"kind": "QRDQN", "policy_kwargs": {"n_quantiles": 7}}, id="QRDQN"),
    pytest.param({"kind": "QRDQN", "policy_kwargs": {"n_quantiles": 1, "net_arch": []}}, id="QRDQN-linear"),
    pytest.param({"kind": "TQC", "actions": ARM}, id="TQC"),
    pytest.param({"kind": "TQC", "actions": ARM, "use_sde": True}, id="TQC-sde"),
    pytest.param({"kind": "ARS"}, id="ARS"),
    pytest.param({"kind": "ARS", "actions": ARM}, id="ARS-box"),
    pytest.param({"kind": "ARS", "actions": ARM, "policy_kwargs": {"squash_output": False}}, id="ARS-clip"),
    pytest.param({"kind": "ARS", "policy": "LinearPolicy"}, id="ARS-linear"),
    pytest.param({"kind": "ARS", "actions": ARM, "policy": "LinearPolicy"}, id="ARS-linear-box"),
    pytest.param({"kind": "ARS", "actions": ARM, "policy_kwargs": {"net_arch": []}}, id="ARS-one-layer"),
    pytest.param({"kind": "TRPO"}, id="TRPO"),
    pytest.param({"kind": "TRPO", "actions": ARM}, id="TRPO-box"),
    pytest.param({"kind": "MaskablePPO"}, id="MaskablePPO"),
]


@pytest.mark.parametrize("setup", MODELS)
def test_file_and_model_act_as_sb3_does(tmp_path, setup):
    model = make(**setup)
    policy = sb3.read_zip(saved(tmp_path, model))
    assert policy.name == "model"
    assert policy.differentiable
    assert policy.spaces.n_stack == 1
    assert same_actions(policy, model)
    live = sb3.from_model(model)
    assert same_actions(live, model)
    assert live.sha256 == policy.sha256
    assert not same_actions(sb3.from_model(make(**setup, seed=1)), model)


@pytest.mark.parametrize("actions", [THREE, ARM])
def test_linear_policies_of_earlier_releases_are_read(tmp_path, actions):
    """Their only layer is not in a sequence, and has no bias."""
    model = make("ARS", actions=actions, policy="LinearPolicy")
    path = saved(tmp_path, model)
    stored = io.BytesIO()
    weights = model.policy.state_dict()
    torch.save({name.replace("action_net.0.", "action_net."): weight for name, weight in weights.items()}, stored)
    policy = sb3.read_zip(edited(path, policy=stored.getvalue()))
    assert same_actions(policy, model)
    assert policy.sha256 == sb3.from_model(model).sha256


def test_hash_tells_weights_limits_and_activations_apart():
    setups = [
        {"kind": "PPO", "actions": ARM},
        {"kind": "PPO", "actions": ARM, "seed": 1},
        {"kind": "PPO", "actions": Box(-9, 9, (2,), np.float32)},
        {"kind": "PPO", "actions": ARM, "policy_kwargs": {"activation_fn": nn.ReLU}},
    ]
    assert len({sb3.from_model(make(**setup)).sha256 for setup in setups}) == 4


# --- a file is data ---


USED = ("policy_class", "observation_space", "action_space", "policy_kwargs")  # what SB3 makes a policy of


def test_pickles_in_the_settings_do_not_run(tmp_path):
    model, trace = make(), tmp_path / "ran"
    bomb = base64.b64encode(pickle.dumps(Bomb(trace))).decode()

    def arm(data, used):
        for name, entry in data.items():
            if isinstance(entry, dict) and ":serialized:" in entry and (name in USED) == used:
                entry[":serialized:"] = bomb

    path = edited(saved(tmp_path, model), data=lambda data: arm(data, False))
    assert same_actions(sb3.read_zip(path), model)
    edited(path, data=lambda data: arm(data, True))
    with pytest.raises(
        NotAllowedError, match=r"its pickled policy_class is rejected: it calls .*, which has no place in it"
    ):
        sb3.read_zip(path)
    assert not trace.exists()
    with pytest.raises(InputError, match="could not be loaded by Stable-Baselines3"):
        sb3.read_zip(path, allow_pickle=True)
    assert trace.exists()  # the bomb is live: trusting it runs it


@pytest.mark.parametrize("zipped", [False, True])
def test_pickles_in_the_weights_do_not_run(tmp_path, zipped):
    trace = tmp_path / "ran"
    armed = tmp_path / "armed.pth"
    if zipped:
        torch.save({"q_net.q_net.0.weight": Bomb(trace)}, armed)
    else:
        armed.write_bytes(pickle.dumps(Bomb(trace)))
    path = edited(saved(tmp_path, make()), policy=armed.read_bytes())
    with pytest.raises(InputError, match=r"is rejected: its policy\.pth is damaged or contains more than tensors"):
        sb3.read_zip(path)
    assert not trace.exists()
    with contextlib.suppress(RuntimeError):
        torch.load(armed, weights_only=False)
    assert trace.exists()


def test_weights_saved_before_torch_had_zips_are_read(tmp_path):
    model = make()
    old = tmp_path / "old.pth"
    torch.save(dict(model.policy.state_dict()), old, _use_new_zipfile_serialization=False)
    assert not zipfile.is_zipfile(old)
    path = edited(saved(tmp_path, model), policy=old.read_bytes())
    assert same_actions(sb3.read_zip(path), model)


def weights_of(tmp_path, change):
    weights = dict(make().policy.state_dict())
    change(weights)
    torch.save(weights, tmp_path / "weights.pth")
    return edited(saved(tmp_path, make()), policy=(tmp_path / "weights.pth").read_bytes())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda w: w.update({"q_net.q_net.4.bias": "no"}), "not a dictionary of plain tensors"),
        (
            lambda w: w.update({"q_net.q_net.0.weight": torch.zeros(1).expand(16, 5)}),
            "not a dictionary of plain tensors",
        ),
        (lambda w: w.pop("q_net.q_net.4.bias"), r"not those of plain fully connected layers \(q_net.q_net.4.bias"),
        (lambda w: w.update({"q_net.norm.weight": torch.ones(3)}), r"connected layers \(q_net.norm.weight"),
        (lambda w: w.clear(), "connected layers"),
        (lambda w: w.update({"q_net.q_net.0.weight": torch.zeros(16, 6)}), r"do not lead from \(5,\) to 3"),
        (lambda w: w.update({"q_net.q_net.4.bias": torch.full((3,), np.nan)}), "weights are not finite"),
    ],
)
def test_odd_weights_are_refused(tmp_path, change, match):
    with pytest.raises(InputError, match=match):
        sb3.read_zip(weights_of(tmp_path, change))


@pytest.mark.parametrize("keep", [0, 10, 2000, 0.5, 0.99])
def test_truncated_files_are_refused(tmp_path, keep):
    path = saved(tmp_path, make())
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(InputError, match="it may be truncated"):
        sb3.read_zip(path)


def test_flipped_bytes_never_raise_anything_else(tmp_path):
    path = saved(tmp_path, make())
    content, generator = path.read_bytes(), np.random.default_rng(0)
    for _ in range(60):
        spoilt = bytearray(content)
        for place in generator.integers(len(content), size=20):
            spoilt[place] ^= 1 << generator.integers(8)
        path.write_bytes(spoilt)
        try:
            sb3.read_zip(path)
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"data": b"{"}, "is not a readable SB3 model file: its settings are not JSON"),
        ({"data": b"[" * 100_000}, "its settings are not JSON"),
        ({"data": b"[]"}, "is not an SB3 model file: expected a JSON object, got list"),
        ({"data": None}, "is not an SB3 model file: it has no data"),
        ({"policy": None}, "is not an SB3 model file: it has no policy.pth"),
        ({"data": lambda data: data.pop("action_space")}, "its action_space is not stored as SB3 does"),
        ({"data": lambda data: data["action_space"].pop(":serialized:")}, "its action_space is not stored as SB3 does"),
        (
            {"data": lambda data: in_module(data, "mine")},
            "policy class comes from mine.*if you trust its author, use allow_pickle=True",
        ),
        (
            {"data": lambda data: in_module(data, "sb3_contrib.common.recurrent.policies")},
            "its weights are not those of plain fully connected layers",
        ),
        (
            {"data": lambda data: in_module(data, "sb3_contrib.qrdqn.policies")},
            r"cannot be read without unpickling: .*fully connected layers \(q_net.q_net.0.bias",
        ),
        ({"data": lambda data: data["policy_kwargs"].update(twist=1)}, "policy_kwargs of unknown effect: twist"),
    ],
)
def test_other_files_are_refused(tmp_path, changes, match):
    with pytest.raises(InputError, match=match):
        sb3.read_zip(edited(saved(tmp_path, make()), **changes))


def test_no_file_and_no_zip(tmp_path):
    with pytest.raises(InputError, match=r"no file .*none\.zip"):
        sb3.read_zip(tmp_path / "none.zip")
    with pytest.raises(InputError, match="is not a regular file, but a directory"):
        sb3.read_zip(tmp_path)
    (tmp_path / "text.zip").write_text("hello")
    with pytest.raises(InputError, match="not a readable zip file"):
        sb3.read_zip(tmp_path / "text.zip")


def bomb(path, name, content):
    """Replace a member of a model file; compressed, zeros are next to nothing."""
    with zipfile.ZipFile(path) as archive:
        parts = {one: archive.read(one) for one in archive.namelist()} | {name: content}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for one, part in parts.items():
            archive.writestr(one, part)


def test_what_unpacks_to_more_than_is_allowed_is_not_unpacked(tmp_path, monkeypatch):
    """Sizes are known before anything is read: of the settings, of the weights, of what is zipped inside of them."""
    path = saved(tmp_path, make())
    whole = path.read_bytes()
    bomb(path, "data", bytes(2**24 + 1))
    with pytest.raises(InputError, match="too large for a data: 16777217 bytes, expected at most 16777216"):
        sb3.read_zip(path)
    path.write_bytes(whole)
    monkeypatch.setattr("surefoot.agents.sb3.settings.MOST_ARRAYS", 200_000)
    inner, shared = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(10**6))
    bomb(path, "policy.pth", inner.getvalue())
    with pytest.raises(InputError, match=r"too large for a policy\.pth: 1000000 bytes"):
        sb3.read_zip(path)
    one = torch.zeros(10_000)
    torch.save({str(number): one for number in range(100)}, shared)
    bomb(path, "policy.pth", shared.getvalue())
    with pytest.raises(InputError, match=r"too large for a policy\.pth: 4000000 bytes"):
        sb3.read_zip(path)


def test_unknown_algorithm_is_not_loaded_even_when_trusted(tmp_path):
    path = edited(saved(tmp_path, make()), data=lambda data: data.pop("exploration_fraction"))
    with pytest.raises(InputError, match="is of an unknown algorithm; expected DQN, PPO"):
        sb3.read_zip(path, allow_pickle=True)


# --- what needs trust ---


class Tripled(FlattenExtractor):
    """A feature extractor without weights: only its name tells that it is there."""

    def forward(self, observations):
        return super().forward(observations) * -3


class Swish(nn.Module):
    def forward(self, hidden):
        return hidden * torch.sigmoid(hidden)


UNREADABLE = [
    pytest.param({"policy_kwargs": {"features_extractor_class": Tripled}}, "extractor of its own", id="extractor"),
    pytest.param({"policy_kwargs": {"activation_fn": Swish}}, "its activation is .*Swish", id="activation"),
]


@pytest.mark.parametrize(("setup", "match"), UNREADABLE)
def test_what_cannot_be_rebuilt_needs_trust(tmp_path, setup, match):
    model = make(**setup)
    path = saved(tmp_path, model)
    with pytest.raises(InputError, match=match + ".*use allow_pickle=True"):
        sb3.read_zip(path)
    for policy in (sb3.read_zip(path, allow_pickle=True), sb3.from_model(model)):
        assert not policy.differentiable
        assert len(policy.sha256) == 64
        assert same_actions(policy, model)


@pytest.mark.parametrize("setup", MODELS[::5])
def test_trusted_files_act_alike(tmp_path, setup):
    model = make(**setup)
    path = saved(tmp_path, model)
    assert same_actions(sb3.read_zip(path, allow_pickle=True), model)


def test_pixels_in_a_plain_mlp_keep_their_units():
    model = make(observations=Box(0, 255, (6,), np.uint8))
    policy = sb3.from_model(model)
    pixels = np.random.default_rng(0).integers(256, size=(50, 6), dtype=np.uint8)
    found = policy.act(torch.from_numpy(pixels).float().unsqueeze(1) / 255).numpy()
    assert np.array_equal(found, model.predict(pixels, deterministic=True)[0])


@pytest.mark.parametrize(
    ("setup", "match"),
    [
        (
            {"observations": Dict({"a": Box(0, 255, (36, 36, 1), np.uint8)}), "policy": "MultiInputPolicy"},
            "a part of its observations is not a vector",
        ),
        ({"kind": "PPO", "actions": Box(-1.0, 1.0, (2, 2), np.float32)}, "actions are .*Box.*, expected Discrete or"),
    ],
)
def test_other_spaces_are_refused(tmp_path, setup, match):
    model = make(**setup)
    with pytest.raises(InputError, match=match):
        sb3.read_zip(saved(tmp_path, model))
    with pytest.raises(InputError, match="must be"):
        sb3.from_model(model)


@pytest.mark.parametrize(
    "setup",
    [
        pytest.param({}, id="rebuilt"),
        pytest.param({"policy_kwargs": {"activation_fn": Swish}}, id="wrapped"),
        pytest.param({"kind": "SAC", "actions": ARM, "use_sde": True}, id="state-noise"),
    ],
)
def test_policy_and_model_go_separate_ways(setup):
    model = make(**setup)
    policy = sb3.from_model(model)
    before = acts(policy, looks(policy))
    assert any(weight.requires_grad for weight in model.policy.parameters())
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.neg_()
    assert np.array_equal(acts(policy, looks(policy)), before)


def test_reading_needs_no_sb3(tmp_path, monkeypatch):
    path = saved(tmp_path, make())
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    assert sb3.read_zip(path).spaces.n_actions == 3
    with pytest.raises(InputError, match=r"needs a package that is not installed.*pip install '\.\[train\]'"):
        sb3.read_zip(path, allow_pickle=True)
    with pytest.raises(InputError, match="writing an SB3 file needs Stable-Baselines3"):
        write_zip(mlp_policy(), tmp_path / "out.zip")


# --- limits of actions ---


def taking(space, shape=(5,)):
    """The spaces of an environment with these actions."""
    if isinstance(space, Discrete):
        return Spaces(shape=shape, n_actions=int(space.n), first_action=int(space.start))
    return Spaces(shape=shape, n_actions=None, low=tuple(space.low.tolist()), high=tuple(space.high.tolist()))


THIRDS = Box(np.float32([-1 / 3000, 0]), np.float32([1 / 3, 500]), dtype=np.float32)


def test_coarsely_printed_limits_come_from_the_pickle(tmp_path):
    model = make("PPO", actions=THIRDS)
    path = saved(tmp_path, model)
    assert as_policy(path, taking(THIRDS)).sha256 == sb3.read_zip(path).sha256 == sb3.from_model(model).sha256
    with pytest.raises(InputError, match="actions"):
        as_policy(path, taking(THREE))


def test_limits_in_the_wrong_order_are_refused(tmp_path):
    wrong = Box(ARM.low, ARM.high)
    wrong.low[:] = 9
    path = edited(
        saved(tmp_path, make("TD3", actions=ARM)),
        data=lambda data: data["action_space"].update({":serialized:": pickled(wrong)}),
    )
    with pytest.raises(InputError, match="expected finite bounds in this order"):
        sb3.read_zip(path)


@pytest.mark.parametrize(
    ("setup", "space", "match"),
    [
        ({}, Discrete(4), "the agent has 3 actions from 0, the environment takes 4 actions from 0"),
        ({}, Discrete(3, start=1), "the agent has 3 actions from 0, the environment takes 3 actions from 1"),
        ({}, ARM, "the agent has 3 actions from 0, the environment takes continuous actions"),
        (
            {"kind": "PPO", "actions": ARM},
            THREE,
            "the agent has continuous actions, the environment takes 3 actions from 0",
        ),
        ({"kind": "PPO", "actions": ARM}, Box(-1, 1, (3,)), r"range from \[-1.5, 0.0\] to \[0.25, 3.0\], the env"),
        ({"kind": "PPO", "actions": ARM}, Box(-1, 1, (2,)), "range from"),
    ],
)
def test_actions_are_checked(tmp_path, setup, space, match):
    model = make(**setup)
    for agent in (model, saved(tmp_path, model)):
        with pytest.raises(InputError, match=match):
            as_policy(agent, taking(space))


def test_fitting_actions_pass():
    assert as_policy(make(), taking(THREE)).spaces.n_actions == 3
    assert as_policy(make("PPO", actions=ARM), taking(ARM)).spaces.n_actions is None
    function = from_callable(lambda seen: seen, shape=(5,), n_actions=None)
    assert as_policy(function, taking(ARM)).network is function.network  # clipped to what the environment takes
    # Agents other than SB3's choose by position, whatever number the environment gives to the first action.
    chooser = from_callable(lambda seen: 0, shape=(5,), n_actions=3)
    assert as_policy(chooser, taking(Discrete(3, start=1))) is chooser


# --- frames ---


@pytest.mark.parametrize(
    ("stored", "shape", "frames", "restore"),
    [
        ((5,), (5,), 1, lambda h: h[:, 0]),
        ((3, 4), (4,), 3, lambda h: h),
        ((12,), (4,), 3, lambda h: h.reshape(len(h), 12)),
        ((2, 12), (2, 4), 3, lambda h: np.concatenate([h[:, 0], h[:, 1], h[:, 2]], axis=-1)),
        ((4, 3), (), 4, None),
    ],
)
def test_stacks_become_frames(stored, shape, frames, restore):
    model = make(observations=Box(-np.inf, np.inf, stored, np.float32))
    policy = sb3.from_model(model)
    if restore is None:
        with pytest.raises(InputError, match=r"made for observations of shape \(4, 3\), the environment gives \(\)"):
            fit_to(policy, shape)
        return
    fitted = fit_to(policy, shape)
    assert (fitted.spaces.n_stack, fitted.spaces.shape) == (frames, shape)
    assert single_shape(stored, frames) == shape
    history = np.random.default_rng(0).normal(size=(100, frames, *shape)).astype(np.float32)
    expected, _ = model.predict(restore(history), deterministic=True)
    assert np.array_equal(fitted.act(torch.from_numpy(history)).numpy(), expected)


# --- writing ---


def mlp_policy(frames=1, shape=(4,), choices=3, activation="relu", hidden=8):
    generator = np.random.default_rng(3)
    widths = [frames * int(np.prod(shape)), hidden, hidden, choices]
    weights = [2 * generator.normal(size=(b, a)) / a**0.5 for a, b in pairwise(widths)]
    biases = [0.1 * generator.normal(size=b) for b in widths[1:]]
    return Policy(MLP(weights, biases, activation), Spaces(shape=shape, n_actions=choices, n_stack=frames))


@pytest.mark.parametrize(("frames", "shape", "activation"), [(1, (4,), "relu"), (5, (4,), "tanh"), (2, (3, 2), "silu")])
def test_written_files_open_in_sb3(tmp_path, frames, shape, activation):
    policy = mlp_policy(frames, shape, activation=activation)
    before = torch.get_rng_state()
    write_zip(policy, tmp_path / "out.zip")
    assert torch.equal(torch.get_rng_state(), before)
    model = stable_baselines3.DQN.load(tmp_path / "out.zip", device="cpu")
    assert model.observation_space.shape == (shape if frames == 1 else (frames, *shape))
    history = torch.from_numpy(np.random.default_rng(0).normal(size=(300, frames, *shape)).astype(np.float32))
    expected = policy.act(history).numpy()
    seen = history.numpy().reshape(300, *model.observation_space.shape)
    assert len(np.unique(expected)) > 1
    assert np.array_equal(model.predict(seen, deterministic=True)[0], expected)
    again = fit_to(sb3.read_zip(tmp_path / "out.zip"), shape)
    assert again.spaces.n_stack == frames
    assert np.array_equal(again.act(history).numpy(), expected)


def test_written_bytes_are_the_same_each_time(tmp_path):
    for name in ("one.zip", "two.zip"):
        write_zip(mlp_policy(), tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["one.zip", "two.zip"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        (
            lambda: from_callable(lambda seen: 0, shape=(4,), n_actions=3),
            "only an MLP or a convolutional network with discrete actions, .*got CheckedOutput",
        ),
        (lambda: replace(sb3.from_model(make("TD3", actions=ARM)), critic=None), "got Squashed with n_actions=None"),
    ],
)
def test_what_cannot_be_written(tmp_path, policy, match):
    with pytest.raises(InputError, match=match):
        write_zip(policy(), tmp_path / "out.zip")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("space", "factors"),
    [
        (MultiDiscrete([2, 3]), (2, 3)),
        (MultiBinary(3), (2, 2, 2)),
        (MultiDiscrete([2, 3], start=[0, 1]), None),
        (MultiDiscrete([2, 3], start=[-1, 0]), None),
        (Discrete(3), None),
        (ARM, None),
    ],
    ids=str,
)
def test_parts_of_a_live_models_actions_count_from_0(space, factors):
    """From another number each would be another action, of which the network says nothing."""
    assert action_factors(space) == factors
