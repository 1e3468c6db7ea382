"""The reusable workflow and the Dockerfile: what they run exists, and the workflow's commands do what they say."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import surefoot
from surefoot.cli.main import build_parser, main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = {"certify": "robustness", "compare": "no-worse"}  # reusable workflows, and who calls them


def read(folder, name):
    return yaml.safe_load((ROOT / folder / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))


WORKFLOWS = {name: read(".github", name) for name in EXAMPLES}
CALLERS = {name: read("examples", caller) for name, caller in EXAMPLES.items()}


def inputs_of(name):
    return WORKFLOWS[name][True]["workflow_call"]["inputs"]  # YAML reads the key "on" as true


def scripts(name, values):
    """Return the commands of a workflow as a shell splits them, with its inputs as variables."""
    job = WORKFLOWS[name]["jobs"][name]
    given = {key: one.get("default", "") for key, one in inputs_of(name).items()} | values
    names = {key: re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", text)[1] for key, text in job["env"].items()}
    variables = {key: given[source] for key, source in names.items()}
    steps = [step["run"] for step in job["steps"] if "run" in step]
    shown = f"{shlex.quote(sys.executable)} -c 'import json, sys; print(json.dumps(sys.argv[1:]))'"
    # Functions in place of both programs: they print what they are given.
    programs = "".join(f'{program}() {{ {shown} {program} "$@"; }}; ' for program in ("surefoot", "python"))
    commands = []
    for step in steps:
        done = subprocess.run(["sh", "-c", programs + step], env=variables, capture_output=True, text=True, check=True)
        commands.append(json.loads(done.stdout))
    return commands


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_input_reaches_a_step_as_a_variable_and_never_as_a_part_of_a_script(name):
    job = WORKFLOWS[name]["jobs"][name]
    used = {re.search(r"inputs\.([\w-]+)", text)[1] for text in job["env"].values()}
    assert used == set(inputs_of(name))
    for step in job["steps"]:
        assert "${{" not in step.get("run", "")
    quoted = [step["run"] for step in job["steps"] if "run" in step]
    assert [key for key in job["env"] if not key.endswith("OPTIONS") and f'"${key}"' not in " ".join(quoted)] == []
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_gives_all_that_is_required_and_nothing_else(name):
    (job,) = CALLERS[name]["jobs"].values()
    required = {key for key, one in inputs_of(name).items() if one.get("required")}
    assert required <= set(job["with"]) <= set(inputs_of(name))
    assert job["uses"].split("@")[0].endswith(f"/.github/workflows/{name}.yml")
    assert all(isinstance(value, str) for value in job["with"].values())


def test_the_badge_says_what_is_certified():
    (job,) = CALLERS["certify"]["jobs"].values()
    assert CALLERS["certify"]["name"] == f"certified {job['with']['require']}"


def test_the_gate_opens_for_an_agent_that_is_no_worse_and_for_no_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, file in (("cartpole-1-ppo-s0.2", "good.zip"), ("cartpole-1-s0.8", "bad.zip")):
        assert main(["export", name, "--out", file]) == 0
    (job,) = CALLERS["compare"]["jobs"].values()
    options = "--workers 1 --max-steps 100"
    values = {**job["with"], "margin": "20", "max-episodes": "200", "options": options}
    values |= {"agent": "good.zip", "baseline": "bad.zip"}
    _, compare, verify = scripts("compare", values)
    assert main(compare[1:]) == 0
    assert main([*verify[1:], "--fresh", "64"]) == 0
    capsys.readouterr()
    values |= {"agent": "bad.zip", "baseline": "good.zip", "margin": "0", "options": f"{options} --out worse"}
    assert main(scripts("compare", values)[1][1:]) == 1


def test_its_commands_prove_and_verify_and_fail_where_nothing_is_proved(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["export", "cartpole-1-ppo-s0.2", "--out", "model.zip"]) == 0
    (job,) = CALLERS["certify"]["jobs"].values()
    values = {**job["with"], "require": "100@0.1", "max-episodes": "500", "options": "--workers 1 --max-steps 200"}
    install, certify, verify = scripts("certify", values)
    assert install == ["python", "-m", "pip", "install", job["with"]["surefoot"]]
    assert main(certify[1:]) == 0
    assert main(verify[1:]) == 0
    assert "Verified: certificate\n" in capsys.readouterr().out
    assert surefoot.Certificate.load("certificate").at(0.1).lower >= 100
    certify[certify.index("certificate")] = "other"
    certify[certify.index("100@0.1")] = "199@0.4"
    assert main([*certify[1:], "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["require"]["proved"] is False


def test_options_with_json_reach_both_commands_whole():
    """As the guide writes them, without blanks; planted: with blanks a shell splits them."""
    wrapper = 'ClipReward={"min_reward":0,"max_reward":10}'
    (job,) = CALLERS["certify"]["jobs"].values()
    values = {**job["with"], "options": f"--wrapper {wrapper} --reward-range 0,10"}
    values["verify-options"] = f"--env Hopper-v5 --wrapper {wrapper}"
    _, certify, verify = scripts("certify", values)
    assert certify[-4:] == ["--wrapper", wrapper, "--reward-range", "0,10"]
    assert verify == ["surefoot", "verify", "certificate", "--env", "Hopper-v5", "--wrapper", wrapper]
    build_parser().parse_args(certify[1:])
    build_parser().parse_args(verify[1:])
    with_blanks = wrapper.replace(",", ", ")
    values["options"] = f"--wrapper {with_blanks}"
    assert with_blanks not in scripts("certify", values)[1]


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
