"""ONNX models that name other files or draw random numbers: one hash is one agent."""

import os
import random
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, load, numpy_helper, save_model

import surefoot
from surefoot.agents.onnx_agents import _locate_columns
from surefoot.agents.onnx_model import DEEPEST_MESSAGE, needs_data_file
from surefoot.agents.policies import Spaces
from surefoot.agents.resolve import as_policy
from surefoot.errors import InputError

torch.set_num_threads(1)
SPACES = Spaces(shape=(4,), n_actions=2)
COUNT = 800_000  # 3.2 MB: no optimizer of onnxruntime folds what is picked from it
SEEN = torch.zeros(1, 1, 4)


def apart(place, *, count=COUNT, name="big"):
    """Return a tensor whose numbers are in another file."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[count], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", place), ("offset", "0"), ("length", str(4 * count))):
        tensor.external_data.add(key=key, value=value)
    return tensor


def picked(source):
    return helper.make_node("Gather", [source, "last"], ["bias"])


def model(nodes, initializers, *, functions=(), opset=17):
    """Return a model whose answer is [0, bias]: the sign of ``bias`` is its action."""
    constants = {"last": np.array([[COUNT - 1]]), "nothing": np.zeros((4, 1), np.float32)}
    nodes = [
        *nodes,
        helper.make_node("MatMul", ["seen", "nothing"], ["zeros"]),
        helper.make_node("Add", ["zeros", "bias"], ["second"]),
        helper.make_node("Concat", ["zeros", "second"], ["values"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("seen", TensorProto.FLOAT, ["rows", 4])],
        [helper.make_tensor_value_info("values", TensorProto.FLOAT, ["rows", 2])],
        [*initializers, *(numpy_helper.from_array(value, name) for name, value in constants.items())],
    )
    domains = {one.domain for one in functions}
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))


def written(folder, made, *, name="agent.onnx"):
    (folder / name).write_bytes(made.SerializeToString())
    return folder / name


def bias(path, value):
    np.full(COUNT, value, dtype=np.float32).tofile(path)


def answer(path):
    """Return what onnxruntime answers without Surefoot, in the working directory."""
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    return session.run(None, {"seen": np.zeros((1, 4), np.float32)})[0][0, 1]


def test_weights_in_a_file_that_the_hash_does_not_cover_are_rejected(tmp_path, monkeypatch):
    """The attack is real: onnxruntime alone takes the numbers of whatever file is there."""
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, model([picked("big")], [apart("evil.bin")]))
    for value in (1.0, -1.0):
        bias(tmp_path / "evil.bin", value)
        assert answer(path) == value
    with pytest.raises(InputError, match=r"in another file \('evil\.bin'\), which its hash would not cover.*data"):
        as_policy(path, SPACES)
    with pytest.raises(InputError, match=r"evil\.bin"):
        surefoot.smooth(path, 0.1, SPACES)


def test_the_same_weights_in_the_file_next_to_it_are_read_from_memory_and_hashed(tmp_path, monkeypatch):
    """The honest twin; a file of the same name in the working directory is another one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = written(tmp_path, model([picked("big")], [apart("agent.onnx.data")]))
    with pytest.raises(InputError, match=r"no file .*agent\.onnx\.data"):
        as_policy(path, SPACES)
    bias(tmp_path / "agent.onnx.data", 1.0)
    bias(tmp_path / "here" / "agent.onnx.data", -1.0)
    honest = as_policy(path, SPACES)
    assert honest.act(SEEN).tolist() == [1]
    bias(tmp_path / "agent.onnx.data", -1.0)
    assert honest.act(SEEN).tolist() == [1]
    other = as_policy(path, SPACES)
    assert other.act(SEEN).tolist() == [0]
    assert other.sha256 != honest.sha256


def test_a_file_that_the_model_does_not_use_is_no_part_of_it(tmp_path):
    inside = numpy_helper.from_array(np.ones(COUNT, np.float32), "big")
    path = written(tmp_path, model([picked("big")], [inside]))
    alone = as_policy(path, SPACES).sha256
    bias(tmp_path / "agent.onnx.data", 1.0)
    assert as_policy(path, SPACES).sha256 == alone
    (tmp_path / "agent.onnx.data").unlink()
    save_model(load(path), tmp_path / "agent.onnx", save_as_external_data=True, location="agent.onnx.data")
    assert as_policy(path, SPACES).act(SEEN).tolist() == [1]
    path.rename(tmp_path / "renamed.onnx")
    with pytest.raises(InputError, match=r"'agent\.onnx\.data'.*in renamed\.onnx\.data next to it"):
        as_policy(tmp_path / "renamed.onnx", SPACES)


def branch(name, tensor):
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1])
    return helper.make_graph([helper.make_node("Gather", ["big", "last"], [name])], name, [], [value], [tensor])


def hidden(kind, place):
    """Return a model with external data where ``kind`` says."""
    tensor = apart(place)
    if kind == "attribute":
        return model([helper.make_node("Constant", [], ["big"], value=tensor), picked("big")], [])
    if kind == "list":
        node = helper.make_node("Constant", [], ["big"])
        node.attribute.add(name="many", type=9).tensors.append(tensor)
        return model([node, picked("big")], [])
    if kind == "subgraph":
        arms = {"then_branch": branch("yes", tensor), "else_branch": branch("no", tensor)}
        size = helper.make_node("Size", ["seen"], ["size"])
        cast = helper.make_node("Cast", ["size"], ["any"], to=TensorProto.BOOL)
        return model([size, cast, helper.make_node("If", ["any"], ["bias"], **arms)], [])
    if kind == "function":
        body = [helper.make_node("Constant", [], ["big"], value=tensor), picked("big")]
        function = helper.make_function("own", "Pick", ["last"], ["bias"], body, [helper.make_opsetid("", 17)])
        return model([helper.make_node("Pick", ["last"], ["bias"], domain="own")], [], functions=[function])
    made = model([picked("big")], [numpy_helper.from_array(np.ones(COUNT, np.float32), "big")])
    if kind == "sparse":
        made.graph.sparse_initializer.add().values.CopyFrom(tensor)
    if kind == "training":
        made.training_info.add().algorithm.initializer.append(tensor)
    return made


@pytest.mark.parametrize("kind", ["attribute", "list", "subgraph", "function", "sparse", "training"])
@pytest.mark.parametrize("place", ["evil.bin", "agent.onnx.data"])
def test_external_data_are_found_wherever_they_are(tmp_path, kind, place):
    path = written(tmp_path, hidden(kind, place))
    bias(tmp_path / place, 1.0)
    with pytest.raises(InputError, match=r"keeps a tensor of a node, a subgraph, .* only initializers of its main"):
        as_policy(path, SPACES)


def test_a_subgraph_would_be_read_from_the_disk_whatever_is_in_memory(tmp_path, monkeypatch):
    """Why the right name is not enough there."""
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, hidden("subgraph", "agent.onnx.data"))
    bias(tmp_path / "agent.onnx.data", -1.0)
    options = onnxruntime.SessionOptions()
    hashed = np.ones(COUNT, np.float32).tobytes()
    options.add_external_initializers_from_files_in_memory(["agent.onnx.data"], [hashed], [len(hashed)])
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    assert session.run(None, {"seen": np.zeros((1, 4), np.float32)})[0][0, 1] == -1


@pytest.mark.parametrize(
    "places", [[], ["agent.onnx.data", "evil.bin"], ["evil.bin", "agent.onnx.data"], ["./agent.onnx.data"], ["\x1b[2J"]]
)
def test_a_place_is_exactly_the_files_name_and_is_named_once(tmp_path, places):
    tensor = apart("agent.onnx.data")
    del tensor.external_data[0]
    for place in places:
        tensor.external_data.add(key="location", value=place)
    path = written(tmp_path, model([picked("big")], [tensor]))
    with pytest.raises(InputError, match=r"keeps weights in another file \((no name|')") as error:
        as_policy(path, SPACES)
    assert "\x1b" not in str(error.value)


def test_a_place_without_the_mark_and_a_mark_of_any_length_count(tmp_path):
    """A reader may cut numbers, and may take two halves of a tensor for one."""
    unmarked = apart("evil.bin")
    unmarked.ClearField("data_location")
    path = written(tmp_path, model([picked("big")], [unmarked]))
    with pytest.raises(InputError, match=r"evil\.bin"):
        needs_data_file(path, path.read_bytes())
    mark = bytes([14 << 3, 0x81, 0x80, 0x80, 0x80, 0x10])  # 2^32 + 1, which is 1 in 32 bits
    tensor = bytes([5 << 3 | 2, len(mark)]) + mark
    with pytest.raises(InputError, match="no name"):
        needs_data_file(path, bytes([7 << 3 | 2, len(tensor)]) + tensor)


@pytest.mark.parametrize("name", ["RandomUniform", "RandomNormal", "RandomUniformLike", "Bernoulli", "Multinomial"])
def test_random_numbers_are_rejected(tmp_path, name):
    if name in ("RandomUniform", "RandomNormal"):
        nodes = [helper.make_node(name, [], ["bias"], shape=[1, 1])]
    elif name == "Multinomial":
        chosen = helper.make_node(name, ["values_"], ["drawn"], dtype=TensorProto.INT32)
        nodes = [helper.make_node("MatMul", ["seen", "nothing"], ["values_"]), chosen]
        nodes.append(helper.make_node("Cast", ["drawn"], ["bias"], to=TensorProto.FLOAT))
    else:
        nodes = [helper.make_node("MatMul", ["seen", "nothing"], ["base"]), helper.make_node(name, ["base"], ["bias"])]
    path = written(tmp_path, model(nodes, []))
    with pytest.raises(InputError, match=rf"draws random numbers \({name}\).*cannot be seeded.*with stochastic=True"):
        as_policy(path, SPACES)


def test_dropout_is_rejected_only_where_it_draws(tmp_path):
    one, half = (numpy_helper.from_array(np.float32(value), name) for name, value in (("one", 1), ("half", 0.5)))
    on = numpy_helper.from_array(np.array(True), "on")
    base = helper.make_node("MatMul", ["seen", "nothing"], ["base"])
    lifted = helper.make_node("Add", ["base", "one"], ["more"])
    idle = written(tmp_path, model([base, lifted, helper.make_node("Dropout", ["more"], ["bias"])], [one]))
    assert as_policy(idle, SPACES).act(SEEN).tolist() == [1]
    drawing = helper.make_node("Dropout", ["more", "half", "on"], ["bias"])
    path = written(tmp_path, model([base, lifted, drawing], [one, half, on]))
    with pytest.raises(InputError, match=r"draws random numbers \(Dropout with training_mode\)"):
        as_policy(path, SPACES)


def nested(depth):
    """Return graphs in attributes of nodes of graphs."""
    content = b""
    for _ in range(depth):
        for tag in (6, 5, 1):
            content = bytes([tag << 3 | 2]) + _length(content) + content
    return bytes([7 << 3 | 2]) + _length(content) + content


def _length(content):
    number, written_ = len(content), []
    while True:
        number, low = number >> 7, number & 127
        written_.append(low | (128 if number else 0))
        if not number:
            return bytes(written_)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"no", "byte 1 begins a value of kind 6"),
        (b"\x3a\x05\x0a", "is longer than what is there"),
        (b"\x3a" + b"\xff" * 20, "does not end"),
        (b"\x3b\x3c", "begins a value of kind 3"),
        (b"\x38\x01", "field 7 of a model is not a message"),
        (b"\x02\x00", "has the field number 0"),
        (nested(DEEPEST_MESSAGE), f"nested more than {DEEPEST_MESSAGE} deep"),
        (b"\x08\x01" * 50_000, "more than 40000 fields"),
    ],
)
def test_damaged_bytes_are_one_line(tmp_path, monkeypatch, content, what):
    monkeypatch.setattr("surefoot.agents.onnx_model.MOST_FIELDS", 40_000)
    with pytest.raises(InputError, match=f"is not an ONNX model: .*{what}"):
        needs_data_file(tmp_path / "agent.onnx", content)


def test_random_damage_ends_in_words(tmp_path):
    whole = bytearray(model([picked("big")], [apart("agent.onnx.data")]).SerializeToString())
    draw = random.Random(3)
    outcomes = set()
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            outcomes.add(needs_data_file(tmp_path / "agent.onnx", bytes(damaged)))
        except InputError:
            outcomes.add("refused")
    assert outcomes == {True, False, "refused"}


def test_a_pipe_next_to_the_model_is_not_waited_for(tmp_path):
    path = written(tmp_path, model([picked("big")], [apart("agent.onnx.data")]))
    os.mkfifo(tmp_path / "agent.onnx.data")
    with pytest.raises(InputError, match=r"agent\.onnx\.data is not a regular file"):
        as_policy(path, SPACES)


def an_input(name, *shape):
    return SimpleNamespace(name=name, shape=shape)


def test_inputs_are_all_parts_of_an_observation_and_no_others():
    """A part that the model has no input for would be out of its sight, and of the reader's."""
    spaces = Spaces(shape=(6,), n_actions=2, parts=(("joints", 3), ("command", 1), ("goal", 2)))
    joints, command, goal = an_input("joints", None, 3), an_input("command", "rows", 1), an_input("goal", 1, "any")
    expected = {"joints": (0, 3), "command": (3, 4), "goal": (4, 6)}
    assert _locate_columns([goal, joints, command], spaces) == expected
    for wrong in (
        [joints, command],
        [joints, command, goal, an_input("wind", None, 1)],
        [joints, command, an_input("aim", None, 2)],
        [joints, command, an_input("goal", None, 3)],
        [joints, command, an_input("goal", 2)],
        [joints, command, an_input("goal", None, 1, 2)],
    ):
        assert _locate_columns(wrong, spaces) == {}
