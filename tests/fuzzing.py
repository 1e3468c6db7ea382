"""Files and arguments as a stranger might make them: seeded, bounded, and nothing may crash, stay behind or swell.

A case is a real file of one kind (SB3 zip, model card, weights, ONNX model, statistics and settings of a published
agent, certificate of each threat, episode data with rewards or luck, setup, notes, bundle, recorded episode, attack,
learned attacker, list of trials, comparison, returns) that was damaged in one of many ways and is then opened by a
command that would open it; or a command line of random words.
"""

import contextlib
import copy
import io
import json
import os
import random
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import mixing_agents
from surefoot.agents import files as zoo
from surefoot.agents.sb3.write import write_zip
from surefoot.attacks.learned import BudgetNetwork, LearnedAttacker, count_known
from surefoot.cli import main as cli
from surefoot.episodes import Episodes
from surefoot.play.tasks import get_task
from surefoot.proof.query import certify

SCRAPS: list[Any] = [
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    "",
    "x" * 300,
    "\x1b[2J",
    "../../etc/passwd",
    [],
    {},
    [[]],
    {"a": 1},
    "nan",
]
PUBLISHED = ["certify", "{}/published", "--episodes", "0", "--sigma", "0.1"]
VERIFIED = ["verify", "{}/run", "--blocks", "0"]
RERUN = ["verify", "{}/run", "--blocks", "1", "--fresh", "1"]
ATTACKED = ["attack", "cartpole-1", "--agent", "cartpole-1-s0.2", "--sigma", "0.2", "--budgets", "0.1", "--quiet"]
STRONGEST = [*ATTACKED, "--episodes", "2", "--method", "strongest", "--workers", "1", "--out", "{}/strongest"]
EVENT = ["verify", "{}/event", "--env", "CartPole-v1", "--success", "fuzzing:stands", "--blocks", "1", "--fresh", "2"]
COMMANDS: dict[str, tuple[list[str], ...]] = {
    "certificate.json": (["verify", "{}", "--blocks", "0"], ["report", "{}"]),
    "episodes.npz": (["verify", "{}", "--blocks", "0"], ["certify", "--returns", "{}/episodes.npz"]),
    "agent.json": (["certify", "cartpole-1", "--agent", "{}/agent", "--episodes", "0"],),
    "agent.npz": (["export", "{}/agent", "--out", "{}/out.zip"],),
    "model.zip": (["certify", "cartpole-1", "--agent", "{}/model.zip", "--episodes", "0", "--sigma", "0.1"],),
    "returns.npy": (["certify", "--returns", "{}/returns.npy", "--sigma", "0.1", "--floor", "0"],),
    "model.onnx": (["certify", "cartpole-1", "--agent", "{}/model.onnx", "--episodes", "0", "--sigma", "0.1"],),
    "published/vecnormalize.pkl": (PUBLISHED,),
    "published/config.yml": (PUBLISHED,),
    "published/args.yml": (PUBLISHED,),
    "run/setup.json": (VERIFIED, ["report", "{}/run"]),
    "run/run.json": (VERIFIED, ["report", "{}/run"]),
    "run/episodes.npz": (VERIFIED, RERUN, ["report", "{}/run"]),
    "run/replay.npz": (["report", "{}/run"],),
    "attack/attack.json": (["report", "{}/attack"], ["report", "{}/run", "{}/attack"]),
    "attack/B0.1/episodes.npz": (["report", "{}/attack"],),
    "strongest/attacker.npz": (STRONGEST,),
    "strongest/trials.json": (STRONGEST,),
    "compared/comparison.json": (["verify", "{}/compared", "--blocks", "0"], ["report", "{}/compared"]),
    "compared/A/episodes.npz": (["verify", "{}/compared", "--blocks", "0"], ["verify", "{}/compared", "--fresh", "1"]),
    "compared/B/setup.json": (["verify", "{}/compared", "--blocks", "0"],),
    "shared/shared.json": (["verify", "{}/shared", "--blocks", "0"], ["report", "{}/shared"]),
    "steps/per-step.json": (["verify", "{}/steps", "--blocks", "0"], ["report", "{}/steps"]),
    "steps/episodes.npz": (["verify", "{}/steps", "--blocks", "0"], ["verify", "{}/steps", "--fresh", "1"]),
    "lucky/certificate.json": (["verify", "{}/lucky", "--blocks", "0"], ["report", "{}/lucky"]),
    "lucky/episodes.npz": (["verify", "{}/lucky", "--blocks", "0"], ["verify", "{}/lucky", "--fresh", "1"]),
    "event/certificate.json": (["verify", "{}/event", "--blocks", "0"], ["report", "{}/event"]),
    "event/episodes.npz": (["verify", "{}/event", "--blocks", "0"], EVENT),
    "event/setup.json": (EVENT,),
    "event/bundle.json": (EVENT,),
}
WRITTEN = {"report.html", "out.zip"}  # by commands that did well, in whichever directory
WORDS = ["certify", "verify", "report", "attack", "plan", "tune", "agents", "export", "baseline", "train", "--help"]
WORDS += ["cartpole-1", "--env", "CartPole-v1", "--sigma", "0.1", "-1", "nan", "1e999", "9" * 40, "--floor", "--agent"]
WORDS += [
    "--episodes",
    "--budgets",
    "0:1:0",
    "0,",
    "--seed",
    "--confidence",
    "2",
    "--out",
    "\x1b[2J",
    "",
    "é",
    "--json",
]
WORDS += ["--returns", "--quantiles", "--thresholds", "--norm", "linf", "--blocks", "all", "--require", "1@", "--gamma"]
WORDS += ["--cvar", "--luck", "0,2", "--success", "--draws-per-seed", "--action-sigma", "--mixed", "obs=0.1,act=0.1"]
WORDS += ["--per-step", "--shared-episodes", "--certain", "--feature-units", "pos=m", "--step-seconds", "compare"]
WORDS += ["explain-budget", "--units", "normalized", "--gate", "--attacker", "merge"]


def originals(folder: Path) -> dict[str, bytes]:
    """Write one good file of each kind."""
    policy = zoo.load("cartpole-1-s0.2")
    zoo.save(policy, folder / "agent", {"task": "cartpole-1", "sigma": 0.2})
    write_zip(policy, folder / "model.zip")
    episodes = Episodes.from_returns(
        np.arange(40.0), sigma=0.2, floor=0, ceiling=50, lengths=np.arange(1, 41), task="t", agent="a"
    )
    episodes.save(folder / "episodes.npz")
    certify(episodes, [0.0, 0.1], method="band").save(folder)
    np.save(folder / "returns.npy", np.arange(40.0))
    mixing_agents.honest(folder / "model.onnx")
    _publish(folder / "published", policy)
    _run_small(folder)
    # Pages and pictures are written again, and read by nobody.
    written = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".html", ".png")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in written}


def stands(seen: Any, reward: float, terminated: bool, truncated: bool, info: Any) -> bool:
    """Whether the pole still stood at the end."""
    return truncated and not terminated


def _choose_strongest(folder: Path) -> None:
    """Write an attacker that has learned nothing, and that another attack was found to be stronger."""
    folder.mkdir()
    trial = {"budget": 0.1, "method": "random", "lambda_": None, "mean": 9.0}
    (folder / "trials.json").write_text(json.dumps({"schema": 1, "trials": [trial]}))
    task = get_task("cartpole-1")
    network = BudgetNetwork(count_known(task, zoo.load("cartpole-1-s0.2")), 4, 8)
    LearnedAttacker(network, torch.ones(4), task.scoring.max_steps).save(folder / "attacker.npz")


def _publish(folder: Path, policy: Any) -> None:
    """Write an agent as RL Baselines3 Zoo publishes it."""
    write_zip(policy, folder / "CartPole-v1.zip")
    statistics = VecNormalize(DummyVecEnv([lambda: gymnasium.make("CartPole-v1")]))
    statistics.save(str(folder / "vecnormalize.pkl"))
    (folder / "config.yml").write_text("normalize: true\nnormalize_kwargs: dict(norm_obs=True)\nenv_wrapper: []\n")
    (folder / "args.yml").write_text("algo: dqn\nenv: CartPole-v1\nenv_kwargs: {render_mode: null}\n")


def _run_small(folder: Path) -> None:
    """Certify, attack and compare agents in a few episodes."""
    how = ["--sigma", "0.2", "--quiet", "--workers", "1"]
    agent = ["cartpole-1", "--agent", "cartpole-1-s0.2", *how]
    event = ["--env", "CartPole-v1", "--max-steps", "9", "--success", "fuzzing:stands", "--feature-units", "m", *how]
    event += ["--step-seconds", "0.02", "--draws-per-seed", "2", "--agent", f"{folder}/model.zip", "--bundle"]
    compared = ["compare", "cartpole-1-s0.2", "cartpole-1-s0.4", "--budgets", "0.1"]
    _choose_strongest(folder / "strongest")
    for call in (
        ["certify", *agent, "--episodes", "8", "--record", "--out", f"{folder}/run"],
        ["certify", *agent, "--episodes", "8", "--shared-episodes", "3", "--certain", "--out", f"{folder}/shared"],
        ["certify", *agent, "--episodes", "4", "--per-step", "--out", f"{folder}/steps"],
        ["certify", *agent, "--episodes", "8", "--luck", "0,2", "--method", "luck", "--out", f"{folder}/lucky"],
        ["certify", *event, "--episodes", "8", "--out", f"{folder}/event"],
        ["attack", *agent, "--episodes", "4", "--method", "random", "--budgets", "0.1", "--out", f"{folder}/attack"],
        [word.format(folder) for word in STRONGEST],
        [*compared, "--episodes", "4", "--quiet", "--workers", "1", "--out", f"{folder}/compared"],
    ):
        code, shown = _called(call, folder)
        assert code == 0, shown


def damaged(content: bytes, name: str, rng: random.Random) -> bytes:
    """Return the file with one fault."""
    if name.endswith(".json"):
        return _damaged_json(content, rng)
    if name.endswith((".npz", ".zip")) and rng.random() < 0.6:
        return _damaged_zip(content, rng)
    return _damaged_bytes(content, rng)


def _damaged_bytes(whole: bytes, rng: random.Random) -> bytes:
    way, content = rng.randrange(4), bytearray(whole)
    if way == 0:
        return bytes(content[: rng.randrange(len(content) + 1)])
    if way == 1:
        for _ in range(rng.randrange(1, 20)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        return bytes(content)
    if way == 2:
        at = rng.randrange(len(content))
        return bytes(content[:at]) + rng.randbytes(rng.randrange(50)) + bytes(content[at:])
    return rng.randbytes(rng.randrange(2_000))


def _damaged_json(content: bytes, rng: random.Random) -> bytes:
    if rng.random() < 0.2:
        return _damaged_bytes(content, rng)
    made = json.loads(content)
    for _ in range(rng.randrange(1, 3)):
        place = made
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(place[key], dict | list) and rng.random() < 0.7:
                place = place[key]
                continue
            if rng.random() < 0.2 and isinstance(place, dict):
                del place[key]
            else:
                place[key] = copy.deepcopy(rng.choice(SCRAPS))
            break
    return json.dumps(made).encode()


def _damaged_zip(content: bytes, rng: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name, way = rng.choice(list(parts)), rng.randrange(5)
    if way == 0:
        del parts[name]
    elif way == 1:
        parts[rng.choice(["extra.npy", "../up.npy", "data", "header.npy"])] = rng.choice(list(parts.values()))
    elif way == 2:
        parts[name] = bytes(rng.choice([2**20, 2**25]))
    elif way == 3 and name == "data":
        parts[name] = _damaged_json(parts[name], rng)
    else:
        parts[name] = _damaged_bytes(parts[name] or b"x", rng)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for one, part in parts.items():
            archive.writestr(one, part)
    return out.getvalue()


def case(number: int, good: Mapping[str, bytes], folder: Path) -> dict[str, Any] | None:
    """Run one case; return what went wrong, or None. The folder must be empty before, and is so afterwards."""
    rng = random.Random(number)
    if rng.random() < 0.25:
        words = [rng.choice(WORDS) for _ in range(rng.randrange(1, 7))]
        words = [*words, "--episodes", "0"] if words[0] in ("certify", "attack", "baseline", "plan", "tune") else words
        words = ["agents"] if words[0] == "train" else words
    else:
        name = rng.choice(list(COMMANDS))
        command = rng.choice(COMMANDS[name])
        _write_needed(command, good, folder)
        (folder / name).write_bytes(damaged(good[name], name, rng))
        words = [word.format(folder) for word in command]
    code, shown = _called(words, folder)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    left = sorted(one for one in there - set(good) if one.rpartition("/")[2] not in WRITTEN)
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    # 4: nothing failed, but not everything could be checked.
    expected = (0, 1, 2, 4) if words[0] == "verify" else (0, 1, 2)
    if code not in expected or "Traceback" in shown or left or "\x1b" in shown:
        return {"case": number, "words": words, "code": code, "left": left, "shown": shown[-400:]}
    return None


def _write_needed(command: list[str], good: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of the directories that a command names, and those of none."""
    for name, content in good.items():
        place = name.partition("/")[0]
        if place == name or f"{{}}/{place}" in command:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


def _called(words: list[str], folder: Path) -> tuple[Any, str]:
    out, err, here = io.StringIO(), io.StringIO(), Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code: Any = cli.main(words)
            except SystemExit as exit_:  # --help
                code = exit_.code or 0
    finally:
        os.chdir(here)
    return code, out.getvalue() + err.getvalue()
