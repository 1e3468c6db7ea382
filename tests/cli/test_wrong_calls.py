"""Wrong calls of every command: one line on stderr, exit code 2, nothing written."""

from pathlib import Path

import pytest
import torch

from cli_commands import refused

pytestmark = pytest.mark.usefixtures("elsewhere")


WRONG_PLAY = {
    "task": ("certify cartpole-7", "unknown task 'cartpole-7'; the tasks are cartpole-5, cartpole-1"),
    "no source": ("certify", "exactly one of TASK, --env or --returns, got none"),
    "two sources": ("certify cartpole-5 --env CartPole-v1", "got task and env"),
    "command": ("prove cartpole-5", "'prove'"),
    "option": ("certify cartpole-5 --speed 3", "--speed"),
    "extra": ("certify cartpole-5 cartpole-1", "cartpole-1"),
    "agent": ("certify cartpole-5 --agent nobody", "unknown agent 'nobody'; pretrained agents: HalfCheetah-v5-s0.2,"),
    "empty agent": ("certify cartpole-5 --agent=", "unknown agent ''"),
    "long agent": (f"certify cartpole-5 --agent {'x' * 300}", ""),
    "sigma of nobody": (
        "certify cartpole-5 --sigma 0.123",
        "there is no pretrained agent for cartpole-5 at sigma 0.123; name one with --agent",
    ),
    "no zip": ("certify cartpole-5 --agent nothing.zip", "no file nothing.zip"),
    "sigma": ("certify cartpole-5 --sigma 0 --agent cartpole-5-s0.2", "sigma must be > 0"),
    "floor": ("certify cartpole-5 --floor 0", "--floor cannot be combined with a task"),
    "ceiling": (
        "certify cartpole-5 --ceiling 10 --max-steps 3",
        "--ceiling, --max-steps cannot be combined with a task",
    ),
    "episodes 0": ("certify cartpole-5 --episodes 0", "episodes must be at least 1, got 0"),
    "episodes 1e4": ("certify cartpole-5 --episodes 1e4", "--episodes"),
    "seed": ("certify cartpole-5 --seed -1", "seed must be at least 0 and below 2**128, got -1"),
    "workers 0": ("certify cartpole-5 --workers 0", "workers must be at least 1, got 0"),
    "device": ("certify cartpole-5 --device tpu", "--device"),
    "cuda": ("certify cartpole-5 --device cuda", "no CUDA device"),
    "step": ("certify cartpole-5 --threshold-spacing 0", "threshold spacing must be"),
    "budget": ("certify cartpole-5 --budgets -1", "a budget must be"),
    "confidence": ("certify cartpole-5 --confidence 1", "confidence must be"),
    "out is a file": ("certify cartpole-5 --out there/file", "cannot use there/file"),
    "out under a file": ("certify cartpole-5 --out there/file/x", "cannot use there/file/x"),
    "out nowhere": ("certify cartpole-5 --out /proc/x", "cannot use /proc/x"),
    "out of others": ("certify cartpole-5 --out there", "not empty and holds no run"),
    "env": ("certify --env NoSuch-v0 --agent x --sigma .1 --floor 0", "cannot make the environment 'NoSuch-v0'"),
    "env malformed": ("certify --env a:b:c --agent x --sigma .1 --floor 0", "cannot import 'a'"),
    "env old": ("certify --env CartPole-v0 --agent x --sigma .1 --floor 0", "unknown agent 'x'"),
    "env tuple": (
        "certify --env Blackjack-v1 --agent x --sigma .1 --floor 0",
        "also needs --max-steps N (it has no step",
    ),
    "env no floor": ("certify --env FrozenLake-v1 --agent x --sigma .1", "also needs --floor F, the lowest return"),
    "env no agent": ("certify --env CartPole-v1 --sigma .1 --floor 0", "--env CartPole-v1 also needs --agent"),
    "env no sigma": ("certify --env CartPole-v1 --agent x --floor 0", "--env CartPole-v1 also needs --sigma"),
    "env nothing": (
        "certify --env Blackjack-v1",
        "--agent NAME_OR_PATH; --sigma S, the noise on every new observation ('surefoot tune' compares several);",
    ),
    "env file": (
        "certify --env ./my_env.py:make --agent x --sigma .1",
        "is not module:name; from the folder of a file",
    ),
    "env module": ("certify --env no_such_module:make --agent x --sigma .1", "cannot import 'no_such_module'"),
    "env no such": (
        "certify --env json:nothing --agent x --sigma .1",
        "import that with --env-module, or give --env module:factory",
    ),
    "env not one": ("certify --env json:dumps --agent x --sigma .1", "json:dumps failed: TypeError"),
    "env text": ("certify --env platform:node --agent x --sigma .1", "made a str, expected a gymnasium.Env"),
    "env wrapper": (
        "certify --env CartPole-v1 --wrapper Nothing --agent x --sigma .1",
        "there is no wrapper 'Nothing'",
    ),
    "env wrapper json": (
        "certify --env CartPole-v1 --wrapper ClipReward={a --agent x --sigma .1",
        "a wrapper looks like",
    ),
    "env kwargs": ("certify --env CartPole-v1 --env-kwargs [1] --agent x --sigma .1", 'must look like {"name": 1}'),
    "env kwargs wrong": ('certify --env CartPole-v1 --env-kwargs {"a":1} --agent x --sigma .1', "unexpected keyword"),
    "env gamma": ("certify --env CartPole-v1 --gamma 1 --agent x --sigma .1", "a discount must be strictly between 0"),
    "env range": ("certify --env CartPole-v1 --reward-range 1,0 --agent x --sigma .1", "LOW,HIGH with LOW <= HIGH"),
    "task kwargs": ("certify cartpole-5 --env-kwargs {}", "--env-kwargs cannot be combined with a task"),
    "attack none": ("attack", "attack needs exactly one of TASK and --env, got none"),
    "attack env": ("attack --env CartPole-v1", "--env CartPole-v1 also needs --agent NAME_OR_PATH"),
    "plan env": ("plan --env CartPole-v1 --require 1@1", "--agent NAME_OR_PATH; --sigmas LIST"),
    "tune env": ("tune --env CartPole-v1 --budget 1", "--agent NAME_OR_PATH; --sigmas LIST"),
    "baseline env": ("baseline --env FrozenLake-v1", "also needs --floor F"),
    "baseline both": ("baseline cartpole-5 --env CartPole-v1", "baseline needs exactly one of TASK and --env"),
    "train env": ("train --env FrozenLake-v1 --sigma .1", "also needs --floor F"),
    "env floor": ("certify --env CartPole-v1 --agent x --sigma .1 --floor nan", "floor must be a finite number"),
    "env limits": ("certify --env CartPole-v1 --agent x --sigma .1 --floor 9 --ceiling 9", "above the floor 9"),
    "max-steps 0": ("certify --env CartPole-v1 --agent x --sigma .1 --floor 0 --max-steps 0", "1,000,000, got 0"),
    "env method": (
        "certify --env waiting_env:Waiting-v0 --agent cartpole-1-s0.2 --sigma .1 --floor 0 --method per-threshold",
        "needs a known ceiling",
    ),
    "zoo agent elsewhere": (
        "certify --env Acrobot-v1 --agent cartpole-5-s0.2 --sigma .1 --floor -500 --ceiling 0",
        "agent has 2 actions from 0, the environment takes 3 actions from 0",
    ),
    "train task": ("train cartpole-7 --sigma .2", "unknown task"),
    "train sigma": ("train cartpole-5 --sigma -1", "sigma must be"),
    "train no sigma": ("train cartpole-5", "--sigma"),
    "train preset": ("train cartpole-5 --sigma .2 --preset best", "unknown preset 'best'"),
    "baseline task": ("baseline cartpole-7", "unknown task"),
    "baseline episodes": ("baseline cartpole-5 --episodes 0", "at least"),
    "baseline seed": ("baseline cartpole-5 --seed -1", "seed must be at least 0"),
    "export agent": ("export nobody --out x.zip", "unknown agent 'nobody'"),
    "export name": ("export cartpole-5-s0.2 --out x.pt", "must end in .zip"),
    "export place": ("export cartpole-5-s0.2 --out there/file/x.zip", "cannot write"),
    "agents extra": ("agents please", "please"),
}


@pytest.mark.parametrize(("arguments", "match"), WRONG_PLAY.values(), ids=WRONG_PLAY)
def test_wrong_calls(capsys, monkeypatch, arguments, match):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for user in ("baseline", "rollout"):  # a module that imports it while it is replaced would keep the replacement
        monkeypatch.setattr(f"surefoot.play.{user}.play", lambda *_, **__: pytest.fail("played"))
    Path("there").mkdir()
    Path("there/file").write_text("something of somebody's")
    refused(capsys, *arguments.split(), match=match)
