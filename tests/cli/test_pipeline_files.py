"""The reusable workflow and the Dockerfile: what they run exists, and the workflow's commands do what they say."""

import json
import re
import shlex
from pathlib import Path
from string import Template

import yaml

import surefoot
from surefoot.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "certify.yml").read_text(encoding="utf-8"))
CALLER = yaml.safe_load((ROOT / "examples" / "workflows" / "robustness.yml").read_text(encoding="utf-8"))
INPUTS = WORKFLOW[True]["workflow_call"]["inputs"]  # YAML reads the key "on" as true
JOB = WORKFLOW["jobs"]["certify"]


def scripts(values):
    """Return the commands of the workflow as a shell would split them, with its inputs filled in."""
    given = {name: one.get("default", "") for name, one in INPUTS.items()} | values
    names = {name: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text)[1] for name, text in JOB["env"].items()}
    variables = {name: given[source] for name, source in names.items()}
    steps = [step["run"] for step in JOB["steps"] if "run" in step]
    return [shlex.split(Template(step).substitute(variables)) for step in steps]


def test_every_input_reaches_a_step_as_a_variable_and_never_as_a_part_of_a_script():
    used = {re.search(r"inputs\.([\w-]+)", text)[1] for text in JOB["env"].values()}
    assert used == set(INPUTS)
    for step in JOB["steps"]:
        assert "${{" not in step.get("run", "")
    quoted = [step["run"] for step in JOB["steps"] if "run" in step]
    assert [name for name in JOB["env"] if name != "OPTIONS" and f'"${name}"' not in " ".join(quoted)] == []
    assert WORKFLOW["permissions"] == {"contents": "read"}


def test_the_example_gives_all_that_is_required_and_nothing_else():
    (job,) = CALLER["jobs"].values()
    required = {name for name, one in INPUTS.items() if one.get("required")}
    assert required <= set(job["with"]) <= set(INPUTS)
    assert job["uses"].split("@")[0].endswith("/.github/workflows/certify.yml")
    assert all(isinstance(value, str) for value in job["with"].values())
    assert CALLER["name"] == f"certified {job['with']['require']}"  # what the badge says


def test_its_commands_prove_and_verify_and_fail_where_nothing_is_proved(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "cartpole-1-ppo-s0.2", "--out", "model.zip"]) == 0
    (job,) = CALLER["jobs"].values()
    values = {**job["with"], "require": "100@0.1", "max-episodes": "500", "options": "--workers 1 --max-steps 200"}
    install, certify, verify = scripts(values)
    assert install == ["python", "-m", "pip", "install", job["with"]["surefoot"]]
    assert main(certify[1:]) == 0
    assert main(verify[1:]) == 0
    assert "Verified: certificate\n" in capsys.readouterr().out
    assert surefoot.Certificate.load("certificate").at(0.1).lower >= 100
    certify[certify.index("certificate")] = "other"
    certify[certify.index("100@0.1")] = "199@0.4"
    assert main([*certify[1:], "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["require"]["proved"] is False


def test_the_dockerfile_runs_the_two_commands_by_targets_that_exist():
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    made = set(re.findall(r"\bmake ([\w-]+)", text.replace('"make", "', "make ")))
    assert {"certify", "test", "setup"} <= made <= targets
    assert json.loads(re.search(r"^CMD (\[.*\])$", text, flags=re.MULTILINE)[1]) == ["make", "certify"]
    version = re.search(r"^FROM python:(\d\.\d+)-", text, flags=re.MULTILINE)[1]
    assert f"Python :: {version}" in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    order = [re.search(pattern, text, flags=re.MULTILINE).start() for pattern in ("^COPY", "^RUN make setup", "^CMD")]
    assert order == sorted(order)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert {".venv", "runs"} <= set(ignored)  # a virtual environment of this machine would not run there
    assert all(not (ROOT / "src").match(pattern) for pattern in ignored)
