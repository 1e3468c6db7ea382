"""Which files an ONNX model would open and whether it draws random numbers, read from its bytes before it is run.

onnxruntime opens whatever file a tensor names. So the model is walked as protobuf lays it out, field by field: fields
that lead to no tensor and no node are skipped by their length, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from surefoot.errors import InputError

# The messages of onnx.proto that lead to a tensor or a node: which of their fields are such messages, by number.
FIELDS_INSIDE = {
    "model": {7: "main graph", 20: "training", 25: "function"},
    "main graph": {1: "node", 5: "initializer", 15: "sparse"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
# The other fields that matter: their numbers in a node, and in a tensor.
NODE_INPUT = 1
NODE_OP_TYPE = 4
EXTERNAL_DATA = 13
DATA_LOCATION = 14
READ = {
    "node": (NODE_INPUT, NODE_OP_TYPE),
    "initializer": (EXTERNAL_DATA, DATA_LOCATION),
    "tensor": (EXTERNAL_DATA, DATA_LOCATION),
}
# The two fields of an entry of external data.
ENTRY_KEY = 1
ENTRY_VALUE = 2
# What a value on the wire is by the last three bits of its tag; groups (3, 4) have no place in ONNX.
VARINT = 0
EIGHT_BYTES = 1
BYTES = 2
FOUR_BYTES = 5
RANDOM_OPERATORS = frozenset(
    ("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial", "Bernoulli")
)
# The number of the input of Dropout that makes it draw.
TRAINING_MODE = 2
# Walking so many takes a few seconds; large networks have some ten thousands.
MOST_FIELDS = 2_000_000
# As deep as protobuf's own readers go.
DEEPEST_MESSAGE = 100


class _Field(NamedTuple):
    """One field of a message: its number, its kind on the wire, a varint's value, and where its bytes are."""

    number: int
    kind: int
    value: int
    begin: int
    end: int


class _DamagedError(Exception):
    """The bytes are not what protobuf writes."""


def needs_data_file(path: Path, content: bytes) -> bool:
    """Return whether a model keeps weights in ``NAME.onnx.data``, the one other file that may belong to it.

    Raises:
        InputError: If it names another file, or one where onnxruntime would read it from the disk; if it draws random
            numbers; or if it is not an ONNX model.
    """
    walk = _Walk(content)
    needed = False
    try:
        for kind, fields in walk.messages():
            if kind == "node":
                _refuse_random(path, content, fields)
            elif kind in ("initializer", "tensor"):
                needed |= _is_external(path, kind, walk, fields)
    except _DamagedError as error:
        raise InputError(f"{path} is not an ONNX model: {error}; it may be truncated") from error
    return needed


class _Walk:
    """Goes through the messages of a model and counts their fields: a hostile one has any number of them."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.n_fields = 0

    def messages(self) -> Iterator[tuple[str, list[_Field]]]:
        """Yield the kind of every message, and its fields of ``READ``, for all that ``FIELDS_INSIDE`` leads to."""
        waiting = [("model", 0, len(self.content), 0)]
        while waiting:
            kind, begin, end, depth = waiting.pop()
            if depth > DEEPEST_MESSAGE:
                raise _DamagedError(f"its messages are nested more than {DEEPEST_MESSAGE} deep")
            inside = FIELDS_INSIDE.get(kind, {})
            kept = []
            for field in self.fields(begin, end):
                if field.number in inside:
                    if field.kind != BYTES:
                        raise _DamagedError(f"field {field.number} of a {kind} is not a message")
                    waiting.append((inside[field.number], field.begin, field.end, depth + 1))
                elif field.number in READ.get(kind, ()):
                    kept.append(field)
            yield kind, kept

    def fields(self, begin: int, end: int) -> Iterator[_Field]:
        """Yield the fields of the message in these bytes."""
        place = begin
        while place < end:
            self.n_fields += 1
            if self.n_fields > MOST_FIELDS:
                raise _DamagedError(f"it has more than {MOST_FIELDS} fields")
            tag, place = self._read_varint(place, end)
            number = tag >> 3
            kind = tag & 7
            value = 0
            start = place
            if kind == VARINT:
                value, place = self._read_varint(place, end)
            elif kind == BYTES:
                length, start = self._read_varint(place, end)
                place = start + length
            elif kind == EIGHT_BYTES:
                place += 8
            elif kind == FOUR_BYTES:
                place += 4
            else:
                raise _DamagedError(f"byte {start} begins a value of kind {kind}, which ONNX does not have")
            if place > end:
                raise _DamagedError(f"a field at byte {start} is longer than what is there")
            if not 0 < number < 2**29:
                raise _DamagedError(f"byte {start} has the field number {number}")
            yield _Field(number, kind, value, start, place)

    def _read_varint(self, place: int, end: int) -> tuple[int, int]:
        value = 0
        for index in range(10):
            if place + index >= end:
                break
            byte = self.content[place + index]
            value |= (byte & 127) << 7 * index
            if byte < 128:
                return value, place + index + 1
        raise _DamagedError(f"the number at byte {place} does not end")


def _refuse_random(path: Path, content: bytes, fields: list[_Field]) -> None:
    operators = []
    input_lengths = []
    for one in fields:
        if one.number == NODE_OP_TYPE:
            operators.append(content[one.begin : one.end].decode(errors="replace"))
        elif one.number == NODE_INPUT:
            input_lengths.append(one.end - one.begin)
    drawing = [operator for operator in operators if operator in RANDOM_OPERATORS]
    # An input without a name is one that is left out.
    if "Dropout" in operators and len(input_lengths) > TRAINING_MODE and input_lengths[TRAINING_MODE] > 0:
        drawing.append("Dropout with training_mode")
    if drawing:
        raise InputError(
            f"{path} draws random numbers ({drawing[0]}), and those of ONNX cannot be seeded; export an agent without "
            "them, or use TorchScript with stochastic=True"
        )


def _is_external(path: Path, kind: str, walk: _Walk, fields: list[_Field]) -> bool:
    """Return whether a tensor's numbers are in the other file, or raise if they are in a file that is not hashed."""
    entries = []
    is_marked = False
    for one in fields:
        if one.number == EXTERNAL_DATA:
            entries.append(_read_entry(walk, one))
        # Any value but 0, however long it is written: a reader may cut it.
        elif one.number == DATA_LOCATION and (one.kind != VARINT or one.value != 0):
            is_marked = True
    if not entries and not is_marked:
        return False
    name = f"{path.name}.data"
    # onnxruntime takes initializers of the main graph from memory, and opens a file of this name for all others.
    if kind != "initializer":
        raise InputError(
            f"{path} keeps a tensor of a node, a subgraph, a function or a sparse tensor in another file; only "
            f"initializers of its main graph may be in {name}: save it again with those tensors inside the model"
        )
    places = [value for key, value in entries if key == b"location"]
    if places != [name.encode()]:
        found = ", ".join(repr(one.decode(errors="replace")[:80]) for one in places) or "no name"
        raise InputError(
            f"{path} keeps weights in another file ({found}), which its hash would not cover; expected them inside the "
            f"model or in {name} next to it: save it again so"
        )
    return True


def _read_entry(walk: _Walk, entry: _Field) -> tuple[bytes, bytes]:
    if entry.kind != BYTES:
        raise _DamagedError("external data are not named")
    parts = sorted(walk.fields(entry.begin, entry.end))
    # A reader takes the last of several: with one of each there is nothing to choose.
    if [(part.number, part.kind) for part in parts] != [(ENTRY_KEY, BYTES), (ENTRY_VALUE, BYTES)]:
        raise _DamagedError("an entry of external data is not one key and one value")
    key, value = parts
    return walk.content[key.begin : key.end], walk.content[value.begin : value.end]
