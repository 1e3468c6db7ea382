"""The ablation: which training runs are missing, in which order, and that a stopped one keeps what had finished."""

import json

import pytest

from bench import ablation
from bench.ablation import SEEDS, SETUPS, gradient_steps, measure, missing, table


def row_of(job, **more):
    task, setting, seed = job
    certified = [0.0 for _ in SETUPS[task].budgets]
    row = {"task": task, "setting": setting, "seed": seed, "mean": 1.0, "certified": certified}
    return {**row, "seconds": 7.0, "device": "cpu", **more}


def test_what_is_missing_runs_the_longest_first():
    every = missing([], None)
    assert len(set(every)) == len(every) == len(SEEDS) * sum(len(setup.settings()) for setup in SETUPS.values())
    steps = [gradient_steps(SETUPS[task].settings()[name]) for task, name, _ in every]
    assert steps == sorted(steps, reverse=True)
    assert every[0][1] == "DQN as in the paper"
    left = missing([row_of(job) for job in every[1:]], None)
    assert left == every[:1]
    assert {task for task, _, _ in missing([], "cartpole-1")} == {"cartpole-1"}


def test_one_that_is_stopped_keeps_what_had_finished(tmp_path, monkeypatch):
    jobs, out = [(job, "cpu") for job in missing([], "cartpole-1")[:3]], tmp_path / "ablation.json"

    def run(setup, name, seed, device):
        if (setup.name, name, seed) == jobs[2][0]:
            raise KeyboardInterrupt
        return row_of((setup.name, name, seed), device=device)

    monkeypatch.setattr(ablation, "run", run)
    before = [row_of(("cartpole-5", "DQN as in the paper", 0))]
    with pytest.raises(KeyboardInterrupt):
        measure(jobs, before, out, 1)
    kept = [(row["task"], row["setting"], row["seed"]) for row in json.loads(out.read_text())["rows"]]
    assert kept == [("cartpole-5", "DQN as in the paper", 0), jobs[0][0], jobs[1][0]]


def test_one_that_fails_does_not_end_the_others(tmp_path, monkeypatch, capsys):
    jobs, out = [(job, "cuda") for job in missing([], "cartpole-1")[:3]], tmp_path / "ablation.json"

    def run(setup, name, seed, device):
        if (setup.name, name, seed) == jobs[0][0]:
            raise RuntimeError("CUDA out of memory")
        return row_of((setup.name, name, seed), device=device)

    monkeypatch.setattr(ablation, "run", run)
    with pytest.raises(SystemExit, match="1 of 3 training runs failed"):
        measure(jobs, [], out, 1)
    assert [row["seed"] for row in json.loads(out.read_text())["rows"]] == [job[2] for job, _ in jobs[1:]]
    assert "CUDA out of memory" in capsys.readouterr().err


def test_processes_run_every_job_once(tmp_path, monkeypatch):
    jobs, out = [(job, "cpu") for job in missing([], "cartpole-5")], tmp_path / "ablation.json"
    monkeypatch.setattr(ablation, "run", lambda setup, name, seed, device: row_of((setup.name, name, seed)))
    measure(jobs, [], out, 2)
    rows = json.loads(out.read_text())["rows"]
    assert {(row["task"], row["setting"], row["seed"]) for row in rows} == {job for job, _ in jobs}
    assert len(rows) == len(jobs)


def test_seconds_of_a_gpu_are_called_so():
    job = ("cartpole-5", "DQN as in the paper", 0)
    assert "| 7 of a GPU |" in table([row_of(job, device="cuda")])
    assert "| 7 |" in table([row_of(job)])
