"""What a bundle copies: the agent with all that belongs to it, nothing of an earlier one, and what is read of it."""

import json

import pytest

from surefoot.agents import files as zoo
from surefoot.agents.bundle import Bundle, read_bundle, write_bundle
from surefoot.errors import InputError
from toys import balancer

# What the author has, which of it is named, and what belongs to it.
LAID_OUT = {
    "weights of an ONNX model": (["a.onnx", "a.onnx.data", "b.onnx.data"], "a.onnx", ["a.onnx", "a.onnx.data"]),
    "a lone model": (["a.onnx", "b.onnx"], "a.onnx", ["a.onnx"]),
    "a zip and the folder named like it": (
        ["z.zip", "z/vecnormalize.pkl", "z/config.yml", "y/vecnormalize.pkl"],
        "z.zip",
        ["z.zip", "z/config.yml", "z/vecnormalize.pkl"],
    ),
    "a published folder": (["p/z.zip", "p/z/args.yml"], "p", ["p/z.zip", "p/z/args.yml"]),
}

ENVIRONMENT = {
    **{"environment": "my:Env", "env_kwargs": {"g": 1}, "wrappers": ["w"], "env_modules": ["m"]},
    **{"success": "won", "max_steps": 9},
}


@pytest.fixture
def author(tmp_path, monkeypatch):
    """A folder of an author, with a run directory."""
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    run.mkdir()
    made = {"environment": "my:Env", "env_kwargs": {"g": 1}, "wrappers": ["w"], "env_modules": ["m"]}
    (run / "setup.json").write_text(json.dumps({**made, "success": "won", "max_steps": 9, "seed": 3}))
    return tmp_path


def lay_out(author, names):
    for name in names:
        (author / name).parent.mkdir(exist_ok=True)
        (author / name).write_text(name)


def copied(author):
    place = author / "run" / "agent"
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", LAID_OUT)
def test_all_that_belongs_to_an_agent_is_copied_and_nothing_else(author, name):
    there, agent, expected = LAID_OUT[name]
    lay_out(author, there)
    write_bundle(author / "run", agent, vecnormalize=None, command="typed")
    assert copied(author) == expected
    for one in expected:
        assert (author / "run" / "agent" / one).read_text() == one
    assert read_bundle(author / "run") == Bundle(author / "run" / "agent" / agent, None, ENVIRONMENT)
    content = json.loads((author / "run" / "bundle.json").read_text())
    assert content["command"] == "typed"
    assert content["environment"] == ENVIRONMENT


def test_an_agent_of_ours_has_its_card_and_its_weights(author):
    zoo.save(balancer(), author / "mine", {})
    write_bundle(author / "run", "./mine", vecnormalize=None, command=None)
    assert copied(author) == ["mine.json", "mine.npz"]
    assert zoo.load(str(read_bundle(author / "run").agent)).sha256 == zoo.load("./mine").sha256


def test_nothing_of_an_earlier_bundle_is_left(author):
    lay_out(author, ["a.onnx", "a.onnx.data", "b.onnx", "s.pkl"])
    write_bundle(author / "run", "a.onnx", vecnormalize="s.pkl", command=None)
    assert copied(author) == ["a.onnx", "a.onnx.data", "statistics.pkl"]
    assert read_bundle(author / "run").vecnormalize == str(author / "run" / "agent" / "statistics.pkl")
    write_bundle(author / "run", "b.onnx", vecnormalize="none", command=None)
    assert copied(author) == ["b.onnx"]
    assert read_bundle(author / "run").vecnormalize == "none"


@pytest.mark.parametrize(
    "name", ["../s.pkl", "agent/../../s.pkl", "/etc/hostname", "setup.json", "agent/../setup.json", "agent-2/s.pkl", 3]
)
def test_statistics_are_read_from_the_bundle_alone(author, name):
    lay_out(author, ["a.onnx", "s.pkl"])
    write_bundle(author / "run", "a.onnx", vecnormalize="s.pkl", command=None)
    path = author / "run" / "bundle.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "vecnormalize": name}))
    with pytest.raises(InputError, match="not a readable bundle"):
        read_bundle(author / "run")


def test_a_bundle_is_made_again_of_the_agent_that_is_in_it(author):
    """Which may be the only copy; one that cannot be made leaves the earlier one as it was."""
    lay_out(author, ["a.onnx", "s.pkl"])
    write_bundle(author / "run", "a.onnx", vecnormalize="s.pkl", command=None)
    for name in ("a.onnx", "s.pkl"):
        (author / name).unlink()
    inside = author / "run" / "agent"
    write_bundle(author / "run", inside / "a.onnx", vecnormalize=str(inside / "statistics.pkl"), command=None)
    assert copied(author) == ["a.onnx", "statistics.pkl"]
    with pytest.raises(InputError, match="no file"):
        write_bundle(author / "run", "gone.onnx", vecnormalize=None, command=None)
    assert copied(author) == ["a.onnx", "statistics.pkl"]
    assert sorted(path.name for path in (author / "run").iterdir()) == ["agent", "bundle.json", "setup.json"]
