"""Wrong calls of every command: one line on stderr, exit code 2, nothing written."""

import argparse
from pathlib import Path

import numpy as np
import pytest

from cli_commands import refused
from surefoot.cli import main as cli

pytestmark = pytest.mark.usefixtures("elsewhere")


WRONG_PLAY = {
    "task": ("certify cartpole-7", "unknown task 'cartpole-7'; the tasks are cartpole-5, cartpole-1"),
    "task that is an env": ("certify Acrobot-v1 --agent x --sigma .1", "no task of Surefoot; give --env Acrobot-v1"),
    "no source": ("certify", "exactly one of TASK, --env or --returns, got none"),
    "two sources": ("certify cartpole-5 --env CartPole-v1", "got task and env"),
    "command": ("prove cartpole-5", "'prove'"),
    "option": ("certify cartpole-5 --speed 3", "--speed"),
    "extra": ("certify cartpole-5 cartpole-1", "cartpole-1"),
    "sigma of nobody": (
        "certify cartpole-5 --sigma 0.123",
        "there is no pretrained agent for cartpole-5 at sigma 0.123; name one with --agent",
    ),
    "no zip": ("certify cartpole-5 --agent nothing.zip", "no file nothing.zip"),
    "floor": ("certify cartpole-5 --floor 0", "--floor cannot be combined with a task"),
    "ceiling": (
        "certify cartpole-5 --ceiling 10 --max-steps 3",
        "--ceiling, --max-steps cannot be combined with a task",
    ),
    "episodes 1e4": ("certify cartpole-5 --episodes 1e4", "--episodes"),
    "device": ("certify cartpole-5 --device tpu", "--device"),
    "out is a file": ("certify cartpole-5 --out there/file", "cannot use there/file"),
    "out nowhere": ("certify cartpole-5 --out /proc/x", "cannot use /proc/x"),
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
        "is not module:name; from the folder of my_env.py it is --env my_env:make",
    ),
    "env no such": (
        "certify --env json:nothing --agent x --sigma .1",
        "there is no 'nothing' in the module json",
    ),
    "env misspelled": ("certify --env json:dump_ --agent x --sigma .1", "in the module json; did you mean dump?"),
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
    "env gamma": ("certify --env CartPole-v1 --gamma 1 --agent x --sigma .1", "a discount must be strictly between 0"),
    "task kwargs": ("certify cartpole-5 --env-kwargs {}", "--env-kwargs cannot be combined with a task"),
    "draws sequential": (
        "certify cartpole-1 --draws-per-seed 2 --require 1@0 --max-episodes 50",
        "cannot be combined with a sequential",
    ),
    "attack none": ("attack", "attack needs exactly one of TASK and --env, got none"),
    "attack env": ("attack --env CartPole-v1", "--env CartPole-v1 also needs --agent NAME_OR_PATH"),
    "plan env": ("plan --env CartPole-v1 --require 1@1", "--env CartPole-v1 also needs --agent NAME_OR_PATH"),
    "tune budget 0": (
        "tune --env CartPole-v1 --agent cartpole-1-s0.2 --budget 0",
        "give --sigmas, for a budget of 0 says nothing about the noise",
    ),
    "baseline both": ("baseline cartpole-5 --env CartPole-v1", "baseline needs exactly one of TASK and --env"),
    "train env": ("train --env FrozenLake-v1 --sigma .1", "also needs --floor F"),
    "env limits": ("certify --env CartPole-v1 --agent x --sigma .1 --floor 9 --ceiling 9", "above the floor 9"),
    "max-steps 0": ("certify --env CartPole-v1 --agent x --sigma .1 --floor 0 --max-steps 0", "1,000,000, got 0"),
    "train no sigma": ("train cartpole-5", "--sigma"),
    "train preset": ("train cartpole-5 --sigma .2 --preset best", "unknown preset 'best'"),
    "baseline episodes": ("baseline cartpole-5 --episodes 0", "at least"),
    "export name": ("export cartpole-5-s0.2 --out x.pt", "must end in .zip"),
    "agents extra": ("agents please", "please"),
}


@pytest.mark.parametrize(("arguments", "match"), WRONG_PLAY.values(), ids=WRONG_PLAY)
def test_wrong_calls(capsys, monkeypatch, arguments, match):
    for user in ("baseline", "rollout"):  # a module that imports it while it is replaced would keep the replacement
        monkeypatch.setattr(f"surefoot.play.{user}.play", lambda *_, **__: pytest.fail("played"))
    Path("there").mkdir()
    Path("there/file").write_text("something of somebody's")
    refused(capsys, *arguments.split(), match=match)


# --- options that would be ignored ------------------------------------------------------------------------------------

PRINTED = {"-h", "--json", "--quiet"}
QUERY = {"--budgets", "--confidence", "--method", "--threshold-spacing", "--thresholds", "--quantiles", "--cvar"}
QUERY |= {"--norm", "--per-step", "--shared-episodes", "--certain"}
OF_AGENT = {"--agent", "--n-stack", "--pixel-max", "--stochastic", "--vecnormalize", "--allow-pickle", "--sigma"}
OF_AGENT |= {"--action-sigma", "--units"}
OF_ENV = {"--env", "--floor", "--ceiling", "--max-steps", "--reward-range", "--feature-units", "--step-seconds"}
OF_ENV |= {"--env-kwargs", "--env-module", "--wrapper", "--success"}
WORKERS = {"--device", "--workers", "--ray"}  # which change no result
OF_RUN = {"--episodes", "--seed", "--out", "--blocks"} | WORKERS
# Ways to call a command in which it does only a part of what it can do, and the options that this part uses.
PARTS = {
    "certify --returns r.npy --sigma 0.2 --floor 0": (
        QUERY | {"--returns", "--sigma", "--floor", "--ceiling", "--require", "--out"}
    ),
    "certify cartpole-1 --blocks 1/2": QUERY | OF_AGENT | OF_ENV | OF_RUN | {"--returns", "--gamma", "--mixed"},
    "attack cartpole-1 --method random --blocks 1/2": (
        {"--method", "--attacker", "--channel", "--per-step", "--norm", "--budgets", "--lambda-q", "--lambda"}
        | {"--noise-samples", *OF_AGENT, *OF_ENV, *OF_RUN}
    ),
    "compare r.npy r.npy --floor 0 --ceiling 300": (
        {"--floor", "--ceiling", "--only-wins", "--budgets", "--confidence", "--better-than", "--no-worse-than"}
        | {"--margin", "--out", "--runs", *WORKERS}
    ),
    "compare --runs r* r*": {"--runs", "--confidence", "--floor", "--ceiling", *WORKERS},
}
GIVEN = ("7", "1,2", "2/3", "150@0.4", "obs=0.1", '{"g": 1}')


def options_of(command):
    (action,) = (one for one in cli.build_parser()._actions if isinstance(one, argparse._SubParsersAction))
    parser = action.choices[command]
    return {one.option_strings[0]: one for one in parser._actions if one.option_strings}, parser


def words_of(option, parser):
    """Return the option as it could be typed, with something else than its default."""
    name = option.option_strings[0]
    if option.nargs == 0:
        return [name]
    for given in option.choices or GIVEN:
        try:
            value = parser._get_value(option, given)
        except argparse.ArgumentError:
            continue
        if value != option.default:
            return [name, *[given] * (option.nargs or 1)]
    raise AssertionError(f"nothing to give as {name}")


def ignored_options():
    for call, used in PARTS.items():
        options, parser = options_of(call.split()[0])
        assert used <= set(options), f"{call}: {used - set(options)}"
        for name in sorted(set(options) - used - PRINTED):
            yield pytest.param(call, words_of(options[name], parser), id=f"{call.partition(' r')[0]} {name}")


@pytest.mark.parametrize(("call", "words"), list(ignored_options()))
def test_an_option_that_would_be_ignored_is_refused(call, words, capsys):
    """It would seem to be what the result is about."""
    for name in ("r.npy", "r2.npy"):
        np.save(name, np.linspace(20, 200, 30))
    refused(capsys, *call.split(), *words, match=words[0])


@pytest.mark.parametrize(
    "call",
    ["certify", "attack", "explain-fault", "plan --require 1@1", "tune --budget 1", "train --sigma 0.2"],
)
@pytest.mark.parametrize(
    "words", ["--n-stack 3", "--stochastic", "--pixel-max 255", "--vecnormalize s.pkl", "--allow-pickle"]
)
def test_nothing_is_declared_about_an_agent_that_is_not_named(call, words, capsys):
    """Ours say themselves what they are."""
    named = words.split()[0]
    call = [*call.split(), "cartpole-1", *words.split()]
    refused(capsys, *call, match=f"{named} cannot be combined with an agent that is not named")
