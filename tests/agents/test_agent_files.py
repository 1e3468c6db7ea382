"""Agents on disk: what is shipped loads, fits and says where it comes from; what was tampered with is refused."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from agents.test_networks import six_steps_of
from surefoot.agents import files as zoo
from surefoot.agents.memory import FrameStack
from surefoot.agents.networks import MLP, weights_hash
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.resolve import as_policy
from surefoot.errors import InputError
from surefoot.files import read_arrays, read_json, write_arrays, write_json
from surefoot.noise import Noise
from surefoot.play.environments import task_of_card
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.tasks import get_task
from surefoot.train.presets import PRESETS, find_settings
from toys import constant, layers, recurrent


def small(name="a-s0.2"):
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape).astype(np.float32) for shape in ((7, 20), (2, 7))]
    biases = [rng.normal(size=size).astype(np.float32) for size in (7, 2)]
    return Policy(MLP(weights, biases, "tanh"), Spaces(shape=(4,), n_actions=2, n_stack=5), name=name)


@pytest.fixture
def stored(tmp_path):
    zoo.save(small(), tmp_path / "a-s0.2", {"task": "cartpole-5", "sigma": 0.2})
    return tmp_path / "a-s0.2"


def load(path):
    return zoo.load(str(path))


@pytest.mark.parametrize("suffix", ["", ".json", ".npz"])
def test_a_stored_agent_acts_as_before(stored, suffix):
    again = load(f"{stored}{suffix}")
    history = torch.randn(50, 5, 4, generator=torch.Generator().manual_seed(1))
    assert torch.equal(again.network(history), small().network(history))
    assert (again.spaces, again.name) == (Spaces(shape=(4,), n_actions=2, n_stack=5), "a-s0.2")
    assert again.sha256 == zoo.load_card(str(stored))["sha256"]
    assert zoo.load_card(str(stored))["task"] == "cartpole-5"


def test_a_name_with_a_dot_is_not_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "agents_dir", lambda: tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    for name in ("c-s0", "c-s0.2", "c-s0.25"):
        zoo.save(small(name), tmp_path / name, {})
    assert zoo.list_agents() == ["c-s0", "c-s0.2", "c-s0.25"]
    assert [zoo.load(name).name for name in zoo.list_agents()] == zoo.list_agents()


def test_an_unknown_name_lists_the_shipped(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "agents_dir", lambda: tmp_path)
    with pytest.raises(InputError, match="unknown agent 'bob'; pretrained agents: none; or give a path"):
        zoo.load("bob")
    for name in ("c-s0", "c-s0.2"):
        zoo.save(small(name), tmp_path / name, {})
    with pytest.raises(InputError, match=r"unknown agent 'bob'; pretrained agents: c-s0, c-s0\.2; or give a path"):
        zoo.load("bob")
    with pytest.raises(InputError, match=r"unknown agent 'c-s0\.3'; did you mean c-s0\.2\? Or give a path; 'surefoot"):
        zoo.load("c-s0.3")


def test_one_flipped_bit_is_refused(stored):
    arrays = read_arrays(stored.with_name("a-s0.2.npz"))
    for name in arrays:
        raw = bytearray(arrays[name].tobytes())
        raw[0] ^= 1
        changed = np.frombuffer(bytes(raw), dtype=np.float32).reshape(arrays[name].shape)
        write_arrays(stored.with_name("a-s0.2.npz"), {**arrays, name: changed})
        with pytest.raises(InputError, match=r"have hash .*, its card says "):
            load(stored)


def with_hash(card, arrays):
    """Return a card whose hash fits, as a stranger would make it."""
    return {**card, "sha256": weights_hash(arrays, card["layout"])}


def test_two_agents_with_one_hash_are_refused(stored):
    """Names, shapes and bytes are hashed end to end: a long name passes for a name, a shape and bytes."""
    path, card = stored.with_name("a-s0.2.npz"), read_json(stored.with_name("a-s0.2.json"))
    arrays = read_arrays(path)
    first, second = (np.frombuffer(text, dtype=np.uint8) for text in (b"abcd", b"efgh"))
    joined, split = {**arrays, "w(4,)|u1abcdx": second}, {**arrays, "w": first, "x": second}
    assert weights_hash(joined, card["layout"]) == weights_hash(split, card["layout"])
    for each in (joined, split):
        write_arrays(path, each)
        write_json(stored.with_name("a-s0.2.json"), with_hash(card, each))
        with pytest.raises(InputError, match="arrays or settings that its agent does not use"):
            load(stored)
    for extra in ({"critic": 0}, {"note": "x"}):
        forged = {**card, "layout": {**card["layout"], **extra}}
        write_arrays(path, arrays)
        write_json(stored.with_name("a-s0.2.json"), with_hash(forged, arrays))
        with pytest.raises(InputError, match="arrays or settings that its agent does not use"):
            load(stored)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"schema": 2}, "has schema 2, this version reads 1"),
        ({"sha256": "0" * 64}, "have hash .*, its card says 000000000000"),
        ({"sha256": None}, "have hash .*, its card says None"),
        ({"layout": None}, "not a model card that fits its weights"),
        ({"layout": []}, "not a model card that fits its weights"),
        ({"layout": {}}, "not a model card that fits its weights"),
    ],
)
def test_a_wrong_card_is_refused(stored, change, match):
    card = stored.with_name("a-s0.2.json")
    write_json(card, {**read_json(card), **change})
    with pytest.raises(InputError, match=match):
        load(stored)


@pytest.mark.parametrize("missing", ["layout", "sha256", "name", "schema"])
def test_a_card_with_a_hole_is_refused(stored, missing):
    card = stored.with_name("a-s0.2.json")
    write_json(card, {key: value for key, value in read_json(card).items() if key != missing})
    with pytest.raises(InputError, match=r"not a model card|has schema None"):
        load(stored)


@pytest.mark.parametrize(
    ("layout", "match"),
    [
        ({"layers": 3}, "not a model card that fits its weights: missing or wrong '2.weight'"),
        ({"layers": 0}, "do not fit together"),
        ({"layers": 1}, "do not fit together"),
        ({"n_stack": 4}, "do not fit together"),
        ({"n_actions": 3}, "do not fit together"),
        ({"n_actions": None}, "not a model card"),
        ({"activation": "os.system"}, "activation must be one of"),
    ],
)
def test_layers_that_do_not_fit_are_refused_even_with_a_fitting_hash(stored, layout, match):
    path = stored.with_name("a-s0.2.json")
    card, arrays = read_json(path), read_arrays(stored.with_name("a-s0.2.npz"))
    write_json(path, with_hash({**card, "layout": {**card["layout"], **layout}}, arrays))
    with pytest.raises(InputError, match=match):
        load(stored)


def test_a_bias_of_the_wrong_shape_is_refused(stored):
    path = stored.with_name("a-s0.2.json")
    card, arrays = read_json(path), read_arrays(stored.with_name("a-s0.2.npz"))
    for bias in (np.float32(1), np.zeros((2, 1), dtype=np.float32)):
        changed = {**arrays, "1.bias": np.asarray(bias)}
        write_arrays(stored.with_name("a-s0.2.npz"), changed)
        write_json(path, with_hash(card, changed))
        with pytest.raises(InputError, match="do not fit together"):
            load(stored)


def test_loading_runs_no_code(stored, tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    trap = np.empty(1, dtype=object)
    trap[0] = Trap()
    np.savez(stored.with_name("a-s0.2.npz"), **{"0.weight": trap})
    with pytest.raises(InputError, match="not a readable"):
        load(stored)
    assert not (tmp_path / "sprung").exists()


def test_what_is_no_mlp_cannot_be_stored(tmp_path):
    with pytest.raises(InputError, match=r"only fully connected, .* can be stored; constant"):
        zoo.save(constant(), tmp_path / "x", {})
    assert list(tmp_path.iterdir()) == []


# --- what is shipped ------------------------------------------------------------------------------------------------


def test_no_weights_lie_about_without_a_card():
    assert {path.name.removesuffix(".npz") for path in zoo.agents_dir().glob("*.npz")} == set(zoo.list_agents())


@pytest.mark.parametrize("name", zoo.list_agents())
def test_shipped_agents_load_fit_and_say_where_they_come_from(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    agent, card = zoo.load(name), zoo.load_card(name)
    task = task_of_card(card)
    assert agent.name == card["name"] == name
    assert re.fullmatch(rf"{card['task']}(-[a-z0-9]+)?(-polished)?-s{card['sigma']:g}", name)
    assert task.spaces.shape == agent.spaces.shape
    assert task.spaces.n_actions == agent.spaces.n_actions
    assert agent.sha256 == card["sha256"]
    assert len(card["sha256"]) == 64
    training = card["training"]
    # The trainers of some are gone; their cards say what they were and with which settings.
    assert training["algorithm"]
    assert training["settings"]
    trained_on = training.get("trained_on", card["task"])
    assert re.match(rf"(surefoot train|python zoo/build_atari.py train) (--env )?{trained_on} ", training["command"])
    assert f" {card['sigma']:g} " in f"{training['command']} "
    assert isinstance(training["seed"], int)
    assert {"python", "torch", "numpy", "gymnasium", "stable-baselines3"} <= set(card["versions"])
    steps = [step for step, _ in card["curve"]]
    assert steps == sorted(set(steps))
    assert [training["best_step"], training["best_validation"]] in card["curve"]
    if training["settings"].get("validation_episodes") == 0:  # nothing is compared, the last weights are kept
        assert training["best_step"] == steps[-1]
    elif "best_certified" not in training:  # else kept for what it certifies, not for its mean
        best = max(mean for _, mean in card["curve"])
        assert training["best_validation"] == best
        first = next(step for step, mean in card["curve"] if mean == best)
        assert first == training["best_step"]
    episodes = 1 if task.cartridge is not None or "environment" in card else 20
    played = task if task.cartridge is None else six_steps_of(task)  # a whole game takes long
    assert len(play(Plan(task=played, policy=agent, noise=Noise.of(card["sigma"]), n_episodes=episodes))) == episodes
    assert Path(zoo.find_card(name)).stat().st_size < 200_000
    json.dumps(card, allow_nan=False)


UNNAMED = {"stop_when_perfect", "repeats"}  # which the table does not have, and the cards of DQN and DDPG neither

# --- the paper's Table 1 --------------------------------------------------------------------------------------------

# Multiframe Cartpole, single-frame Cartpole; rows in the order of the table.
TABLE_1 = {
    "gamma": (0.99, 0.99),
    "total_steps": (500_000, 500_000),
    "validation_interval": (2_000, 2_000),
    "validation_episodes": (10, 10),
    "learning_rate": (0.0001, 0.00005),
    "buffer_size": (100_000, 100_000),
    "learning_starts": (1_000, 1_000),
    "exploration_fraction": (0.16, 0.16),
    "exploration_initial": (1, 1),
    "exploration_final": (0, 0),
    "target_interval": (10, 10),
    "batch_size": (1_024, 1_024),
    "train_interval": (256, 256),
    "gradient_steps": (128, 128),
    "hidden": ((256, 256), (256, 256)),
}


@pytest.mark.parametrize(("column", "task"), [(0, "cartpole-5"), (1, "cartpole-1")])
def test_the_papers_preset_is_its_table(column, task):
    settings = find_settings("paper", task)
    assert {name: getattr(settings, name) for name in TABLE_1} == {name: row[column] for name, row in TABLE_1.items()}
    assert set(settings.as_dict()) == {*TABLE_1, *UNNAMED}  # nothing else is set that the table does not name
    assert (settings.stop_when_perfect, settings.repeats) == (True, 1)
    assert get_task(task).spaces.n_stack == (5, 1)[column]


def test_unknown_presets_list_the_known():
    with pytest.raises(InputError, match=f"unknown preset 'mine'; there are .*{', '.join(PRESETS)}"):
        find_settings("mine", "cartpole-5")
    with pytest.raises(InputError, match="has no settings for 'pong', only for cartpole-5, cartpole-1"):
        find_settings("paper", "pong")


# --- memory -----------------------------------------------------------------------------------------------------------


def memories():
    weights, biases = layers(np.random.default_rng(0), 3 * 6, 5, 2)
    arm = layers(np.random.default_rng(0), 4, 5, 1)
    low, high = (-0.5,), (0.7,)
    yield Policy(
        MLP(weights, biases), Spaces(shape=(4,), n_actions=2, n_stack=3), FrameStack(3, action_size=2), name="frames"
    )
    yield Policy(MLP(*arm, "tanh"), Spaces(shape=(4,), n_actions=None, low=low, high=high), name="clipped")
    for kind in ("gru", "lstm"):
        yield recurrent(kind)
        yield recurrent(kind, n_actions=None, squashed=True)
        yield recurrent(kind, n_actions=None, encoder=0, last_action=False)


@pytest.mark.parametrize("policy", list(memories()), ids=lambda policy: f"{policy.name} {policy.spaces.n_actions}")
def test_agents_with_memory_come_back_as_they_were(policy, tmp_path):
    zoo.save(policy, tmp_path / "agent", {})
    again = zoo.load(str(tmp_path / "agent.json"))
    assert again.sha256 == zoo.load_card(str(tmp_path / "agent.json"))["sha256"]
    assert again.sha256 == policy.sha256 or not policy.sha256
    for name in ("n_stack", "shape", "n_actions"):
        assert getattr(again.spaces, name) == getattr(policy.spaces, name)
    seen, memory = torch.randn(7, 4, generator=torch.Generator().manual_seed(0)), [None, None]
    episode_start = torch.ones(7, dtype=torch.bool)
    for place, one in enumerate((policy, again)):
        state, action = one.memory.empty(seen), None
        for step in range(3):
            state = one.memory.advance(state, seen + step, action, episode_start if step == 0 else None)
            action = one.act(state)
        memory[place] = (state, action)
    assert all(torch.equal(one, other) for one, other in zip(*memory, strict=True))


BROKEN = [
    (lambda layout, arrays: arrays.pop("bias_hh"), "missing or wrong|do not fit together"),
    (lambda layout, arrays: arrays.pop("head0.weight"), "missing or wrong|do not fit together"),
    (lambda layout, arrays: arrays.update(more=np.zeros(1)), "got or misses more"),
    (lambda layout, arrays: arrays.update(weight_hh=np.zeros((24, 7), np.float32)), "the cell has shapes"),
    (lambda layout, arrays: layout.update(n_actions=3), "do not fit together"),
    (lambda layout, arrays: layout.update(last_action=False), "do not lead from 4 inputs over 8 to 2 outputs"),
    (lambda layout, arrays: layout.update(kind="lstm"), "the cell has shapes"),
    (lambda layout, arrays: layout.update(activation="sine"), "activation must be one of"),
    (lambda layout, arrays: layout.pop("last_action"), "missing or wrong 'last_action'"),
    (lambda layout, arrays: layout.update(n_actions=None), "missing or wrong 'low'"),
]


@pytest.mark.parametrize(("spoil", "text"), BROKEN)
def test_recurrent_files_that_do_not_fit_are_rejected(spoil, text):
    layout, arrays = zoo.parts_of(recurrent())
    spoil(layout, arrays)
    card = {"schema": 1, "name": "spoilt", "layout": layout, "sha256": weights_hash(arrays, layout)}
    with pytest.raises(InputError, match=text):
        zoo.from_parts(card, arrays, "spoilt.json")


def test_a_recurrent_agent_is_not_given_stacks():
    with pytest.raises(InputError, match="an agent with a memory of its own is not given stacks"):
        as_policy(recurrent(), Spaces(shape=(2,), n_actions=2))
