"""Files are whole or absent, hold no pickles, and damaged ones are named."""

import errno
import io
import json
import math
import os
import stat
import tracemalloc
import zipfile
from email.message import Message
from pathlib import Path

import numpy as np
import pytest

from surefoot import files, provenance
from surefoot.errors import InputError
from surefoot.files import (
    MOST_ARRAYS,
    MOST_TEXT,
    read_array,
    read_arrays,
    read_json,
    read_npz,
    write_arrays,
    write_json,
    write_npz,
    write_text,
)
from surefoot.provenance import sha256

ARRAYS = {"a": np.arange(2_000, dtype=np.float64), "b": np.zeros((2, 3), dtype=np.int8)}


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


def test_json_and_arrays_come_back(tmp_path):
    write_json(tmp_path / "deep" / "x.json", {"k": [1, 0.1, None, "ä"]})
    assert read_json(tmp_path / "deep" / "x.json") == {"k": [1, 0.1, None, "ä"]}
    write_arrays(tmp_path / "x.npz", ARRAYS)
    back = read_arrays(tmp_path / "x.npz")
    assert all(np.array_equal(back[name], ARRAYS[name]) and back[name].dtype == ARRAYS[name].dtype for name in ARRAYS)
    assert entries(tmp_path) == ["deep", "x.npz"]
    assert stat.S_IMODE((tmp_path / "x.npz").stat().st_mode) == 0o644


def test_a_new_version_replaces_the_old_one(tmp_path):
    write_text(tmp_path / "x", "one")
    write_text(tmp_path / "x", "two")
    assert (tmp_path / "x").read_text() == "two"
    assert entries(tmp_path) == ["x"]


def no_space(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk(io.FileIO):
    """Takes 100 bytes, then there is no space left on the device."""

    def write(self, data):
        if self.tell() + len(data) > 100:
            no_space()
        return super().write(data)


@pytest.mark.parametrize("old", [None, "old"])
@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, where, old):
    path = tmp_path / "x.npz"
    if old:
        path.write_text(old)
    if where == "write":
        monkeypatch.setattr(files.os, "fdopen", lambda handle, mode: FullDisk(handle, "w"))
    elif where == "fsync":
        monkeypatch.setattr(files.os, "fsync", no_space)
    else:
        monkeypatch.setattr(files.Path, "replace", no_space)
    with pytest.raises(
        InputError, match=r"cannot write .*x\.npz: No space left on device; nothing was left half-written"
    ):
        write_arrays(path, ARRAYS)
    assert entries(tmp_path) == (["x.npz"] if old else [])
    assert not old or path.read_text() == old


def test_an_interrupt_leaves_nothing_half_written(tmp_path):
    def fill(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_whole(tmp_path / "x", fill)
    assert entries(tmp_path) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write .*file/x: (File exists|Not a directory); choose another place"):
        write_text(tmp_path / "file" / "x", "text")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_json_is_refused_before_the_file_is_touched(tmp_path, value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "x.json", {"k": value})
    assert entries(tmp_path) == []


@pytest.mark.parametrize("read", [read_json, read_arrays])
def test_a_missing_file_is_named(tmp_path, read):
    with pytest.raises(InputError, match=r"no file .*gone"):
        read(tmp_path / "gone")


@pytest.mark.parametrize(
    "text",
    [b"", b'{"a": 1', b"\xff\xfe", b"nonsense", b'{"a": 1, "a": 2}', b'{"a": NaN}', b'{"a": 1e999}', b"[" * 100_000],
)
def test_damaged_json_is_refused(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text)
    with pytest.raises(InputError, match=r"x\.json is not a readable JSON file .*may be truncated"):
        read_json(tmp_path / "x.json")


def test_json_that_is_no_object_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match="must hold a JSON object, got list"):
        read_json(tmp_path / "x.json")


def test_truncated_arrays_are_refused_wherever_they_are_cut(tmp_path):
    path = tmp_path / "x.npz"
    write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 41):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"x\.npz is not a readable \.npz file .*may be truncated"):
            read_arrays(path)


def test_damaged_arrays_are_refused_or_read_right(tmp_path):
    path = tmp_path / "x.npz"
    write_arrays(path, {"a": np.arange(40.0)})
    whole = path.read_bytes()
    refused = 0
    for position in range(len(whole)):
        for value in (0, 255, whole[position] ^ 1):
            path.write_bytes(whole[:position] + bytes([value]) + whole[position + 1 :])
            try:
                back = read_arrays(path)
            except InputError:
                refused += 1
            else:
                assert all(np.array_equal(array, np.arange(40.0)) for array in back.values())
    assert refused > len(whole)


def test_pickles_are_not_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    trap = np.empty(1, dtype=object)
    trap[0] = Trap()
    np.savez(tmp_path / "x.npz", a=trap)
    with pytest.raises(InputError, match=r"not a readable \.npz"):
        read_arrays(tmp_path / "x.npz")
    np.save(tmp_path / "y.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"not a readable \.npz file \(File is not a zip file\)"):
        read_arrays(tmp_path / "y.npy")
    assert not (tmp_path / "sprung").exists()


def test_sha256_is_the_usual_one():
    assert sha256(b"a", b"bc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert json.dumps(sha256()) == '"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"'


def test_a_header_that_is_no_text_is_rejected(tmp_path):
    """The same bytes as other numbers would be another file to those who read them as text."""
    text = np.frombuffer(b'{"schema": 1}   ', dtype=np.uint8)
    np.savez(tmp_path / "text.npz", header=text, a=np.zeros(2))
    np.savez(tmp_path / "floats.npz", header=text.view(np.float64), a=np.zeros(2))
    assert read_npz(tmp_path / "text.npz", "record", "a")[0] == {"schema": 1}
    with pytest.raises(InputError, match="its header is not text"):
        read_npz(tmp_path / "floats.npz", "record", "a")


def test_arrays_with_a_header_come_back(tmp_path):
    write_npz(tmp_path / "a.npz", {"schema": 1, "what": "é"}, {"x": np.arange(3)})
    header, arrays = read_npz(tmp_path / "a.npz", "test", "x")
    assert header == {"schema": 1, "what": "é"}
    assert list(arrays) == ["x"]
    assert (arrays["x"] == np.arange(3)).all()
    with pytest.raises(InputError, match=r"a\.npz is not a test: no readable header and x and y"):
        read_npz(tmp_path / "a.npz", "test", "x", "y")
    with pytest.raises(ValueError, match="Out of range float"):
        write_npz(tmp_path / "b.npz", {"schema": 1, "best": math.inf}, {})
    assert not (tmp_path / "b.npz").exists()


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"{}", b"\xff", b'{"schema": 1, "schema": 1}', b'{"a": 1e999}'])
def test_a_file_without_a_readable_header_is_rejected(tmp_path, text):
    write_arrays(tmp_path / "a.npz", {"header": np.frombuffer(text, dtype=np.uint8)})
    with pytest.raises(InputError, match=r"is not a (readable )?checkpoint"):
        read_npz(tmp_path / "a.npz", "checkpoint")


def npy(shape, content=b"", dtype="<f8"):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue() + content


@pytest.mark.parametrize(
    ("member", "match"),
    [
        (npy((10**12,)), "(Unable to allocate|EOF: reading array data)"),
        (npy((2,), b"12345678"), "expected 16 bytes got 8"),
        (npy((1,), b"12345678" * 2), "ends after 136 of 144 bytes"),
        (npy((1,), b"12345678", dtype="<U2"), "expected plain numbers, got <U2"),
        (npy((1,), b"12345678", dtype="<c8"), "expected plain numbers, got complex64"),
        (npy((1,), b"12345678", dtype="|O"), "expected plain numbers, got object"),
        (b"\x93NUMPY\x09\x00" + npy((1,), b"12345678")[8:], "version"),
        (b"nonsense", "magic string"),
    ],
)
def test_an_array_must_have_the_size_it_claims(tmp_path, member, match):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", member)
    with pytest.raises(InputError, match=match):
        read_arrays(tmp_path / "x.npz")
    (tmp_path / "x.npy").write_bytes(member)
    with pytest.raises(InputError, match=match):
        read_array(tmp_path / "x.npy")


def test_a_reader_keeps_to_the_size_that_its_caller_allows(tmp_path):
    """A page takes smaller files than a certificate; and what a file says of its own size may be less than it is."""
    write_npz(tmp_path / "x.npz", {"schema": 1}, ARRAYS)
    for read in (read_arrays, lambda path, most: read_npz(path, "replay", most=most)):
        read(tmp_path / "x.npz", most=20_000)
        with pytest.raises(InputError, match=r"too large for a \.npz file: \d+ bytes, expected at most 100"):
            read(tmp_path / "x.npz", most=100)
    endless = Path("/proc/self/status")
    if endless.exists():
        assert endless.stat().st_size == 0
        with pytest.raises(InputError, match="too large for a JSON file: 11 bytes, expected at most 10"):
            files.read_bytes(endless, "JSON file", 10)


def test_what_unpacks_to_more_than_is_allowed_is_not_unpacked(tmp_path):
    """A bomb: 300 MB of zeros in 300 KB. Its size is known before anything of it is read."""
    zeros = np.zeros(MOST_ARRAYS // 8 + 1)
    write_arrays(tmp_path / "x.npz", {"a": zeros})
    del zeros
    tracemalloc.start()
    with pytest.raises(InputError, match=r"too large for a \.npz file: 268435.* bytes, expected at most 268435456"):
        read_arrays(tmp_path / "x.npz")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(MOST_TEXT + 1)
    with pytest.raises(InputError, match="too large for a JSON file"):
        read_json(tmp_path / "x.json")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("other", "words"), [("a.npy", "two members of one name"), ("a", "two of its arrays have the same name")]
)
def test_two_arrays_of_one_name_are_refused(tmp_path, other, words):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", npy((1,), b"12345678"))
        archive.writestr(other, npy((1,), b"87654321"))
    with pytest.raises(InputError, match=words):
        read_arrays(tmp_path / "x.npz")


def test_pages_are_on_the_site_once_the_project_has_an_address(monkeypatch):
    assert provenance.find_page("guides/units.md") == "docs/guides/units.md"
    made = Message()
    made["Project-URL"] = "Repository, https://example.org/code"
    made["Project-URL"] = "Documentation, https://example.org/docs/"
    monkeypatch.setattr(provenance, "metadata", lambda name: made)
    assert provenance.find_page("guides/units.md") == "https://example.org/docs/guides/units.html"


def test_every_source_of_the_package_is_hashed(tmp_path, monkeypatch):
    """In folders too, by content and by name: a run says which code it was run with."""
    monkeypatch.setattr(provenance, "files", lambda name: tmp_path)
    found = set()
    for path, text in (("a.py", "1"), ("deep/b.py", "2"), ("deep/b.py", "3"), ("deep/er/c.py", ""), ("a.py", "4")):
        write_text(tmp_path / path, text)
        found.add(provenance.source_hash())
    (tmp_path / "a.py").rename(tmp_path / "z.py")
    found.add(provenance.source_hash())
    assert len(found) == 6
    write_text(tmp_path / "notes.txt", "no code")
    assert provenance.source_hash() in found
