"""Every option arrives where it counts: in the plan, the query, the stopping rule, the agent or the workers.

Nothing is run: what a command hands to the package is caught at the door. The table has a row for every option of the
commands that run episodes, and a new option fails the last test until it has one.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surefoot
from stand_ins import Reached
from surefoot.agents.normalization import Statistics, normalized
from surefoot.agents.policies import Policy
from surefoot.api.certify import N_EPISODES
from surefoot.cli import main as cli
from surefoot.episodes import MOST_EPISODES, Baseline
from surefoot.noise import Noise
from surefoot.play.baseline import find_baseline
from surefoot.play.channel import Scope
from surefoot.play.plan import own_seed
from surefoot.play.streams import Purpose
from surefoot.play.tasks import get_task
from surefoot.proof.query import Norm
from surefoot.proof.shared_budget import SharedBudget
from surefoot.proof.step_budget import StepBudget
from surefoot.proof.stopping import StoppingRule
from surefoot.runs.attacked import AttackGrid
from surefoot.runs.shares import Share
from toys import actor_with_critic, balancer

DOORS = {
    "certify": "surefoot.api.certify.certified_run",
    "certify --blocks": "surefoot.api.certify.run_share",
    "attack": "surefoot.api.attack.attacked_run",
    "attack --blocks": "surefoot.api.attack.attacked_share",
    "plan": "surefoot.api.plan.play",
    "tune": "surefoot.api.plan.play",
    "tune --all-sigmas": "surefoot.api.plan.certified_run",
    "compare": "surefoot.api.compared_agents.compared_run",
    "baseline": "surefoot.play.baseline.find_baseline",
    "verify": "surefoot.verification.verify.verify",
    "explain-fault": "surefoot.api.faults.measure_faults",
}
TASKS = {"compare": "A B cartpole-1", "verify": "DIR"}


@dataclass(frozen=True)
class Call:
    """What a command asked for: the arguments at the door, and those with which the agent was looked up."""

    given: tuple[Any, ...]
    named: dict[str, Any]
    agents: list[tuple[Any, dict[str, Any]]]

    @property
    def plan(self) -> Any:
        first = self.given[0]
        return first.base if isinstance(first, AttackGrid) else first

    @property
    def query(self) -> Any:
        return self.given[1]


@pytest.fixture
def asked(tmp_path, monkeypatch) -> Callable[..., Call]:
    """Return what types a command and returns what arrives."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUREFOOT_CORES", "1")

    def ask(door: str, words: str, policy: Policy | None = None, *, affords: bool = False) -> Call:
        agents: list[tuple[Any, dict[str, Any]]] = []
        caught: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

        def resolve(agent, spaces=None, **options):
            agents.append((agent, options))
            return balancer() if policy is None else policy

        def stop(*given, **named):
            caught.append((given, named))
            raise Reached

        with monkeypatch.context() as patched:
            patched.setattr("surefoot.api.setup.as_policy", resolve)
            # It would be measured before the door.
            patched.setattr("surefoot.api.certify.can_afford_baseline", lambda plan: affords)
            patched.setattr(DOORS[door], stop)
            command = door.partition(" ")[0]
            line = f"{command} {words}"
            # ``main`` reports whatever ends a command, so that the exit code alone does not say who ended it.
            assert cli.main([*shlex.split(line), "--quiet"]) == 2
            assert caught, "ended before the door"
        return Call(*caught[0], agents)

    return ask


def test_what_a_plain_command_asks_for(asked):
    """The honest twin of all rows below: without options each of them is something else."""
    made = asked("certify", "cartpole-1")
    assert (made.plan.n_episodes, made.plan.purpose, made.plan.device) == (10_000, (), "cpu")
    assert made.plan.seed == own_seed(made.plan)
    assert (made.plan.noise, made.plan.per_step, made.plan.task) == (Noise.of(0.2), False, get_task("cartpole-1"))
    assert made.query.budgets == get_task("cartpole-1").paper.budgets
    assert (made.query.confidence, made.query.method, made.query.norm) == (0.95, None, None)
    assert (made.named["goal"], made.named["required"], made.named["workers"].n) == (None, None, 1)
    assert made.agents == [("cartpole-1-s0.2", {})]


@pytest.mark.parametrize("door", ["certify", "certify --blocks", "tune --all-sigmas", "compare"])
def test_where_no_seed_is_given_it_follows_from_all_that_is_run(asked, door):
    """Of a comparison from both agents: one that knew the seed of the other alone could be made for it."""
    words = {
        "certify --blocks": "cartpole-1 --blocks 1/2",
        "tune --all-sigmas": "cartpole-1 --agent x --all-sigmas --budget 0.4 --sigmas 0.2,0.4 --episodes 7",
        "compare": "A B cartpole-1 --sigma 0.3 --sigma-b 0.1 --budgets 0.2",
    }
    made = asked(door, words.get(door, "cartpole-1"))
    plans = [made.given[0]["A"], made.given[0]["B"]] if door == "compare" else [made.plan]
    assert {plan.seed for plan in plans} == {own_seed(*plans)}


ENV = "--env CartPole-v1 --sigma 0.3 --agent a.zip"
SCORING = "plan.task.scoring"
# Command, what is typed, and what then arrives, as attributes of the call.
ROWS: list[tuple[str, str, dict[str, Any]]] = [
    ("certify", "--episodes 7", {"plan.n_episodes": 7}),
    ("certify", "--seed 5", {"plan.seed": 5}),
    ("certify", "--device cpu", {"plan.device": "cpu"}),
    ("certify", "--workers 3", {"named.workers.n": 3}),
    ("certify", "--out here", {"given.2": Path("here")}),
    ("certify", "--sigma 0.4", {"plan.noise": Noise.of(0.4), "agents.0.0": "cartpole-1-s0.4"}),
    ("certify", "--agent x --sigma 0.1,0.2,0.3,0.4", {"plan.noise.features": (0.1, 0.2, 0.3, 0.4)}),
    ("certify", "--agent mine.zip", {"agents.0.0": "mine.zip"}),
    ("certify", "--gamma 0.9", {f"{SCORING}.gamma": 0.9}),
    ("certify", "--draws-per-seed 4", {"plan.draws_per_seed": 4, "plan.purpose": ()}),
    ("certify", "--luck 0,2", {"plan.luck": "0,2", "plan.draws_per_seed": 1}),
    ("certify", "--budgets 0:0.3:0.1", {"query.budgets": (0.0, 0.1, 0.2, 0.3)}),
    ("certify", "--norm l1", {"query.norm": Norm(name="l1", coordinates=4, observations=200)}),
    ("certify", "--norm linf", {"query.norm": Norm(name="linf", coordinates=4, observations=200)}),
    (
        "certify",
        "--norm linf --shared-episodes 3",
        {"query.norm": Norm(name="linf", coordinates=4, observations=600), "query.threat": SharedBudget(3)},
    ),
    (
        "certify",
        "--norm linf --per-step",
        {"query.norm": Norm(name="linf", coordinates=4, observations=1), "plan.per_step": True},
    ),
    ("certify", "--per-step", {"plan.per_step": True, "query.threat": StepBudget()}),
    ("certify", "--shared-episodes 3", {"query.threat": SharedBudget(3), "plan.per_step": False}),
    ("certify", "--confidence 0.9", {"query.confidence": 0.9}),
    ("certify", "--method dkw", {"query.method": "dkw"}),
    ("certify", "--threshold-spacing 2", {"query.threshold_spacing": 2.0}),
    ("certify", "--thresholds 100,150", {"query.thresholds": (100.0, 150.0)}),
    ("certify", "--quantiles 0.05,0.5", {"query.quantiles": (0.05, 0.5)}),
    ("certify", "--cvar 0.1", {"query.cvars": (0.1,)}),
    ("certify", "--shared-episodes 4 --certain", {"query.threat": SharedBudget(4, certain=True)}),
    (
        "certify",
        "--require 150@0.45 --budgets 0,1",
        {"named.required": 0.45, "query.budgets": (0.0, 0.45, 1.0), "named.goal": None},
    ),
    ("certify", "--tol 5", {"named.goal": StoppingRule(budget=0.2, tolerance=5.0), "plan.n_episodes": MOST_EPISODES}),
    (
        "certify",
        "--tol 5 --tol-budget 0.35 --budgets 0,1",
        {"named.goal": StoppingRule(budget=0.35, tolerance=5.0), "query.budgets": (0.0, 0.35, 1.0)},
    ),
    (
        "certify",
        "--require 150@0.45 --max-episodes 99 --episodes 7",
        {"named.goal": StoppingRule(budget=0.45, require=150.0), "plan.n_episodes": 99, "named.required": 0.45},
    ),
    (
        "certify",
        "--require 150@0.45 --tol 5",
        {"named.goal": StoppingRule(budget=0.45, tolerance=5.0, require=150.0), "plan.n_episodes": MOST_EPISODES},
    ),
    ("certify --blocks", "--blocks 2/5 --episodes 5000 --seed 5", {"given.1": Share(2, 5), "plan.seed": 5}),
    ("certify --blocks", "--blocks 1/1 --per-step --out there", {"plan.per_step": True, "given.2": Path("there")}),
    # An environment of one's own.
    ("certify", f"{ENV} --max-steps 30", {f"{SCORING}.max_steps": 30, f"{SCORING}.ceiling": 30.0}),
    ("certify", f"{ENV} --floor -3", {f"{SCORING}.floor": -3.0, f"{SCORING}.ceiling": 500.0}),
    ("certify", f"{ENV} --ceiling 600", {f"{SCORING}.floor": 0.0, f"{SCORING}.ceiling": 600.0}),
    ("certify", f"{ENV} --reward-range -1,2", {f"{SCORING}.reward_range": (-1.0, 2.0), f"{SCORING}.ceiling": 1000.0}),
    ("certify", f"{ENV} --gamma 0.5", {f"{SCORING}.gamma": 0.5}),
    (
        "certify",
        f"{ENV} --floor 0 --env-kwargs '{{\"sutton_barto_reward\": true}}'",
        {"plan.task.made_with.env_kwargs": {"sutton_barto_reward": True}},
    ),
    (
        "certify",
        f"{ENV} --floor 0 --wrapper 'ClipReward={{\"min_reward\": 0}}'",
        {"plan.task.made_with.wrappers.0": 'ClipReward={"min_reward": 0}'},
    ),
    ("certify", f"{ENV} --floor 0 --env-module json", {"plan.task.made_with.env_modules": ["json"]}),
    (
        "certify",
        f"{ENV} --floor 0 --feature-units m --step-seconds 0.5",
        {"plan.task.features": (("value", 4, "m"),), "plan.task.step_seconds": 0.5},
    ),
    ("certify", f"{ENV} --success won", {"plan.task.made_with.success": "won", "plan.task.scoring.binary": True}),
    ("certify", "--record", {"named.record": True}),
    # Attacks.
    ("attack", "--method random --record", {"named.record": True}),
    ("attack", "--method random --episodes 7", {"plan.n_episodes": 7}),
    ("attack", "--method random --seed 5", {"plan.seed": 5}),
    ("attack", "--method random --sigma 0.4", {"plan.noise": Noise.of(0.4), "agents.0.0": "cartpole-1-s0.4"}),
    ("attack", "--agent x --method random --sigma 0.1,0.2,0,0.4", {"plan.noise.features": (0.1, 0.2, 0.0, 0.4)}),
    ("attack", "--method random --budgets 0.1,0.3", {"given.0.budgets": (0.1, 0.3)}),
    ("attack", "--method structured", {"given.0.method": "structured"}),
    ("attack", "--method random --per-step --norm linf", {"plan.scope": Scope(per_step=True, norm="linf")}),
    ("attack", "--lambda-q 0,0.7", {"given.0.lambdas": (0.0, 0.7), "given.0.method": "paper"}),
    ("attack", "--lambda-q paper", {"given.0.lambdas": get_task("cartpole-1").paper.lambdas}),
    ("attack", "--method random --noise-samples 9", {"given.0.noise_samples": 9}),
    ("attack", "--method random --out there", {"given.1": Path("there")}),
    ("attack", "--method random --workers 3 --device cpu", {"named.workers.n": 3, "plan.device": "cpu"}),
    ("attack --blocks", "--method random --blocks 1/1 --seed 5", {"given.1": Share(1, 1), "plan.seed": 5}),
    ("attack", f"--method random {ENV} --max-steps 30", {f"{SCORING}.max_steps": 30, "agents.0.0": "a.zip"}),
    # What is expected, and which sigma.
    ("plan", "--require 150@0.4", {"plan.purpose": (Purpose.PILOT,), "plan.n_episodes": 1_000}),
    ("plan", "--require 150@0.4 --pilot-episodes 7 --seed 5", {"plan.n_episodes": 7, "plan.seed": 5}),
    ("plan", "--require 150@0.4 --sigmas 0.3,0.4 --agent x", {"plan.noise": Noise.of(0.3), "agents.0.0": "x"}),
    (
        "plan",
        "--require 150@0.4 --agent x --sigmas '0.1,0,0,0.2; 0.2,0,0,0.4'",
        {"plan.noise.features": (0.1, 0.0, 0.0, 0.2)},
    ),
    ("plan", "--require 150@0.4 --workers 3", {"named.workers.n": 3}),
    ("tune", "--budget 0.4", {"plan.purpose": (Purpose.PILOT,), "plan.n_episodes": 1_000}),
    ("tune", "--budget 0.4 --pilot-episodes 7 --seed 5", {"plan.n_episodes": 7, "plan.seed": 5}),
    ("tune", "--budget 0.4 --workers 3", {"named.workers.n": 3}),
    ("tune --all-sigmas", "--budget 0.4 --all-sigmas --sigmas 0.2 --workers 3", {"named.workers.n": 3}),
    (
        "tune --all-sigmas",
        "--all-sigmas --budget 0.4 --sigmas 0.2,0.4 --episodes 7 --confidence 0.9 --out there --agent x",
        {
            "plan.purpose": (),
            "plan.n_episodes": 7,
            "query.budgets": (0.4,),
            "query.confidence": 1 - (1 - 0.9) / 2,
            "given.2.parent": Path("there"),
        },
    ),
    # Two agents.
    ("compare", "--sigma 0.3", {"given.0.A.noise": Noise.of(0.3), "given.0.B.noise": Noise.of(0.3)}),
    (
        "compare",
        "--sigma 0.3 --sigma-b 0 --budgets 0.2 --confidence 0.9",
        {
            "given.0.A.noise": Noise.of(0.3),
            "given.0.B.noise": Noise.of(0.0),
            "given.1.budgets": (0.2,),
            "given.1.confidence": 0.9,
            "given.1.gate": None,
            "named.anytime": False,
        },
    ),
    ("compare", "--sigma 0.3 --seed 5", {"given.0.A.seed": 5, "given.0.B.seed": 5}),
    ("compare", "--sigma 0.3 --record", {"named.record": True}),
    ("compare", "--sigma 0.3 --episodes 7", {"given.0.A.n_episodes": 7, "given.0.B.n_episodes": 7}),
    ("compare", "--sigma 0.3 --max-episodes 7", {"given.0.A.n_episodes": 7, "named.anytime": True}),
    (
        "compare",
        "--sigma 0.3 --budgets 0.2 --attack random --out there --workers 3 --device cpu",
        {
            "given.0.A.attacker": None,
            "given.0.B.attacker": None,
            "given.0.B-attacked.budget": 0.2,
            "given.0.B-attacked.purpose": (Purpose.ATTACK,),
            "given.2": Path("there"),
            "named.workers.n": 3,
        },
    ),
    (
        "compare",
        "--sigma 0.3 --allow-pickle --vecnormalize a.pkl --vecnormalize-b none",
        {
            "agents.0.1": {"allow_pickle": True, "vecnormalize": "a.pkl"},
            "agents.1.1": {"allow_pickle": True, "vecnormalize": "none"},
        },
    ),
    (
        "compare",
        "--sigma 0.1,0.2,0,0.4 --n-stack 3 --stochastic --pixel-max 255",
        {
            "given.0.B.noise.features": (0.1, 0.2, 0.0, 0.4),
            "agents.0.1": {"n_stack": 3, "stochastic": True, "pixel_max": 255.0},
            "agents.1.1": {"n_stack": 3, "stochastic": True, "pixel_max": 255.0},
        },
    ),
    ("compare", "--sigma 0.3", {"agents.0.0": "A", "agents.1.0": "B"}),
    # The rest.
    ("baseline", "--episodes 7", {"named.measure": 7, "given.0": get_task("cartpole-1")}),
    ("baseline", "--seed 5", {"named.seed": 5}),
    ("baseline", "--workers 3", {"named.workers.n": 3}),
    ("explain-fault", "--episodes 7", {"named.n_episodes": 7, "named.seed": 0, "given.0": get_task("cartpole-1")}),
    ("explain-fault", "--seed 5", {"named.seed": 5, "named.n_episodes": 64, "named.sigma": None}),
    ("explain-fault", "--sigma 0.4", {"named.sigma": 0.4, "named.steps": [1, 10, 100]}),
    ("explain-fault", "--steps 2,20", {"named.steps": [2, 20], "given.1": None}),
    ("explain-fault", "--agent x", {"given.1.name": balancer().name, "agents.0.0": "x"}),
    ("verify", "--agent x", {"named.agent": "x", "given.0": Path("DIR")}),
    ("verify", "--agent-b y", {"named.agent_b": "y"}),
    ("verify", "--luck m:f", {"named.luck": "m:f"}),
    ("verify", "--blocks 3", {"named.blocks": 3}),
    ("verify", "--blocks all", {"named.blocks": None}),
    ("verify", "--seed 5", {"named.seed": 5}),
    ("verify", "--env my:Env", {"named.environment": "my:Env"}),
    ("verify", "--fresh 7", {"named.fresh": 7}),
    ("verify", "--env-kwargs '{\"g\": 9.0}'", {"named.env_kwargs": {"g": 9.0}}),
    ("verify", "--env-module m --env-module n", {"named.env_modules": ["m", "n"]}),
    ("verify", "--wrapper w --wrapper v", {"named.wrappers": ["w", "v"]}),
    ("verify", "--success m:won", {"named.success": "m:won"}),
    ("verify", "--allow-pickle", {"named.allow_pickle": True}),
    ("verify", "--vecnormalize s.pkl", {"named.vecnormalize": "s.pkl"}),
    ("verify", "--workers 3", {"named.workers.n": 3}),
]
# What the agent is looked up with, by every command that runs one of any kind.
LOOKED_UP = {
    "--n-stack 3": {"n_stack": 3},
    "--pixel-max 255": {"pixel_max": 255.0},
    "--stochastic": {"stochastic": True},
    "--vecnormalize s.pkl": {"vecnormalize": "s.pkl"},
    "--allow-pickle": {"allow_pickle": True},
}
RUNNING = {
    "certify": "",
    "attack": "--method random",
    "plan": "--require 150@0.4 --sigmas 0.2",
    "tune": "--budget 0.4 --sigmas 0.2",
    "explain-fault": "",
}


def found(call: Call, name: str) -> Any:
    """Return what a dotted name means: attributes, entries by number or by key."""
    value: Any = call
    for part in name.split("."):
        if isinstance(value, dict):
            value = value[part]
        else:
            value = value[int(part)] if part.isdecimal() else getattr(value, part)
    return value


@pytest.mark.parametrize(("door", "words", "expected"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_an_option_arrives(asked, door, words, expected):
    task = "" if "--env " in words and door != "verify" else TASKS.get(door.partition(" ")[0], "cartpole-1")
    made = asked(door, f"{task} {words}")
    for name, value in expected.items():
        arrived = found(made, name)
        if isinstance(value, dict) and "." in name and name.startswith("agents"):
            arrived = {key: arrived[key] for key in value}
        assert arrived == value, name


@pytest.mark.parametrize("command", RUNNING)
@pytest.mark.parametrize("words", LOOKED_UP)
def test_what_is_declared_about_an_agent_arrives(asked, command, words):
    made = asked(command, f"cartpole-1 --agent mine {RUNNING[command]} {words}")
    agent, options = made.agents[0]
    silent = {"n_stack": None, "stochastic": False, "pixel_max": None, "allow_pickle": False, "vecnormalize": None}
    assert agent == "mine"
    assert options == silent | LOOKED_UP[words]


@pytest.mark.parametrize("door", ["certify", "attack", "compare", "baseline"])
def test_the_command_line_is_written_down(asked, door):
    more = {"compare": "--sigma 0.3", "attack": "--method random"}.get(door, "")
    words = f"{TASKS.get(door, 'cartpole-1')} {more}".strip()
    assert asked(door, words).named["command"] == f"surefoot {door} {words} --quiet"


@pytest.mark.parametrize(("gate", "margin"), [("--better-than B", None), ("--no-worse-than B --margin 5", 5.0)])
def test_gates_name_the_agent_to_compare_with(asked, gate, margin):
    made = asked("compare", f"A cartpole-1 --sigma 0.3 {gate}")
    assert [agent for agent, _ in made.agents] == ["A", "B"]
    assert made.given[1].gate.margin == margin


POLE_AND_CAR = [
    "cartpole-1",
    "cartpole-1 --sigma 0.4 --seed 5 --episodes 5000 --device cpu",
    "cartpole-1 --agent x --sigma 0.1,0.2,0.3,0.4",
    "mountain-car --agent x --sigma 0.2 --action-sigma 0.3",
    "mountain-car --agent x --action-sigma 0.3",
    f"{ENV} --max-steps 30 --floor -3",
]


@pytest.mark.parametrize("words", [*POLE_AND_CAR, "cartpole-1 --per-step", "cartpole-1 --gamma 0.9"])
def test_a_share_is_run_as_the_whole_run_would_be(asked, words):
    """Otherwise all shares together are another run than the one that was asked for."""
    policy = replace(actor_with_critic(), sha256="known") if "mountain" in words else None
    whole = asked("certify", words, policy)
    share = asked("certify --blocks", f"{words} --blocks 1/1", policy)
    assert share.plan.setup() == whole.plan.setup()


@pytest.mark.parametrize(
    "words", [*POLE_AND_CAR, "mountain-car --agent x --action-sigma 0.3 --sigma 0.2 --channel actions"]
)
def test_a_share_of_an_attack_is_run_as_the_whole_attack_would_be(asked, words):
    policy = replace(actor_with_critic(), sha256="known") if "mountain" in words else None
    words = f"{words} --method random --budgets 0.1,0.3"
    whole = asked("attack", words, policy).given[0]
    share = asked("attack --blocks", f"{words} --blocks 1/1", policy).given[0]
    assert share.twin.setup() == whole.twin.setup()
    for one in whole.configurations():
        assert share.plan(*one).setup() == whole.plan(*one).setup()


@pytest.mark.parametrize(
    ("words", "affords", "measured"),
    [("", True, True), ("", False, False), ("--baseline", False, True), ("--no-baseline", True, False)],
)
def test_whether_a_baseline_is_measured_arrives(asked, monkeypatch, words, affords, measured):
    found = Baseline(mean=9.0, sem=0.1, n_episodes=9, what="it", command="it")
    monkeypatch.setattr("surefoot.api.certify.find_baseline", lambda task, **how: found)
    baseline = asked("certify", f"{ENV} {words}", affords=affords).plan.task.baseline
    assert baseline == (found if measured else None)


def test_weights_of_the_norm_are_those_given(asked):
    made = asked("attack", "mountain-car --lambda 0.5,0.25 --budgets 0.1", actor_with_critic())
    assert made.given[0].lambdas == (0.5, 0.25)


def test_noise_and_budgets_on_actions_arrive(asked):
    pairs = "--mixed obs=0.1,act=0.3 --mixed act=0.6"
    made = asked("certify", f"mountain-car --agent x --sigma 0.2 --action-sigma 0.3 {pairs}", actor_with_critic())
    assert made.plan.noise == Noise.of(0.2, 0.3)
    assert made.query.mixed == ((0.1, 0.3), (0.0, 0.6))
    assert made.query.budgets == pytest.approx((1.25**0.5, 2.0))
    alone = asked("certify", "mountain-car --agent x --action-sigma 0.3", actor_with_critic())
    assert alone.plan.noise == Noise.of(0.0, 0.3)
    assert alone.query.budgets == pytest.approx([0.15 * step for step in range(9)])
    assert alone.plan.task.baseline is None
    # The budget of --tol is by default one standard deviation, of whatever has noise.
    for sigmas, budget in (("--action-sigma 0.3", 0.3), ("--sigma 0.2 --action-sigma 0.3", 1.0), ("--sigma 0.2", 0.2)):
        made = asked("certify", f"mountain-car --agent x {sigmas} --tol 0.1", actor_with_critic())
        assert made.named["goal"] == StoppingRule(budget=budget, tolerance=0.1), sigmas
    attack = "mountain-car --agent x --method random --budgets 0.1 --sigma 0.2 --action-sigma 0.3"
    assert asked("attack", attack, actor_with_critic()).plan.channels == ("observations", "actions")
    assert asked("attack", f"{attack} --channel actions", actor_with_critic()).plan.channels == ("actions",)
    both = "A B mountain-car --action-sigma 0.3"
    compared = asked("compare", f"{both} --action-sigma-b 0.1", actor_with_critic()).given[0]
    assert [compared[side].noise for side in "AB"] == [Noise.of(0.0, 0.3), Noise.of(0.0, 0.1)]
    alike = asked("compare", f"{both} --sigma 0.2", actor_with_critic()).given[0]
    assert [alike[side].noise for side in "AB"] == [Noise.of(0.2, 0.3)] * 2


@pytest.mark.parametrize("pair", ["0.1", "obs=x", "both=0.1", "obs"])
def test_a_pair_of_budgets_that_is_none_is_refused(pair, capsys):
    assert cli.main(["certify", "mountain-car", "--action-sigma", "0.3", "--mixed", pair]) == 2
    assert "must look like obs=0.2,act=0.1" in capsys.readouterr().err


def test_no_two_workers_share_a_gpu_that_one_block_fills(asked, monkeypatch):
    """A block of CartPole fills a GPU; of Atari games, which wait for emulators, two share one."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setenv("SUREFOOT_CORES", "8")
    made = asked("certify", "cartpole-1 --device cuda")
    assert (made.plan.device, made.named["workers"].n) == ("cuda", 1)


PLAIN = {
    "certify": "cartpole-1",
    "certify --blocks": "cartpole-1 --blocks 1/1",
    "attack": "cartpole-1 --method random",
    "attack --blocks": "cartpole-1 --method random --blocks 1/1",
    "plan": "cartpole-1 --require 150@0.4 --sigmas 0.2",
    "tune": "cartpole-1 --budget 0.4 --sigmas 0.2",
    "tune --all-sigmas": "cartpole-1 --budget 0.4 --sigmas 0.2 --all-sigmas",
    "compare": "A B cartpole-1 --sigma 0.3",
}


@pytest.mark.parametrize("door", PLAIN)
def test_networks_run_where_it_was_said(asked, monkeypatch, door):
    """Where this machine has a GPU, which is taken if nothing is said."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    for words, device in (("", "cuda"), ("--device auto", "cuda"), ("--device cpu", "cpu"), ("--device cuda", "cuda")):
        made = asked(door, f"{PLAIN[door]} {words}")
        plans = made.given[0].values() if door == "compare" else [made.plan]
        assert {plan.device for plan in plans} == {device}, words


def test_a_cluster_has_processors_of_its_own(monkeypatch, asked):
    """With --ray nothing is said by whether this machine has a GPU."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    from contextlib import nullcontext

    monkeypatch.setattr("surefoot.play.ray_cluster.ray_cluster", lambda address: nullcontext(address))
    made = asked("certify", "cartpole-1 --ray host:1")
    assert (made.plan.device, made.named["workers"]) == ("cpu", "host:1")
    made = asked("compare", "A B cartpole-1 --sigma 0.3 --ray host:1")
    assert (made.given[0]["A"].device, made.named["workers"]) == ("cpu", "host:1")


# --- units ------------------------------------------------------------------------------------------------------------

SCALES = (3.0, 0.5, 2.0, 1.0)


def test_every_budget_in_normalized_units_is_turned_into_raw_ones(asked):
    """A budget counts by the feature with the least scale, here 0.5; a mean return has no such units."""
    statistics = Statistics(mean=np.zeros(4), var=np.square(SCALES), epsilon=0.0, clip=10.0)
    policy = replace(normalized(balancer(), statistics), sha256="known")
    words = "cartpole-1 --agent x --units normalized --sigma 0.4"
    plain = asked("certify", f"{words} --budgets 0,1", policy)
    assert plain.plan.noise.features == pytest.approx([0.4 * scale for scale in SCALES])
    assert plain.query.budgets == (0.0, 0.5)
    required = asked("certify", f"{words} --budgets 0,1 --require 150@0.6", policy)
    assert required.query.budgets == (0.0, 0.3, 0.5)
    assert required.named["required"] == 0.3
    stopping = asked("certify", f"{words} --budgets 0,1 --tol 5 --tol-budget 0.6", policy)
    assert stopping.named["goal"] == StoppingRule(budget=0.3, tolerance=5.0)
    proving = asked("certify", f"{words} --budgets 0,1 --require 150@0.6 --max-episodes 99", policy)
    assert proving.named["goal"] == StoppingRule(budget=0.3, require=150.0)
    by_default = asked("certify", f"{words} --tol 5 --budgets 0,1", policy)
    assert by_default.named["goal"].budget == pytest.approx(0.4 * 0.5)  # sigma, of the feature with the least
    attacked = asked("attack", f"{words} --method random --budgets 0.2,1", policy)
    assert attacked.plan.noise == plain.plan.noise
    assert attacked.given[0].budgets == (0.1, 0.5)


# --- defaults ---------------------------------------------------------------------------------------------------------

FUNCTIONS: dict[str, list[Callable[..., Any]]] = {
    "certify": [surefoot.certify_run, surefoot.Query.for_task],
    "attack": [surefoot.attack],
    "plan": [surefoot.plan],
    "tune": [surefoot.tune],
    "compare": [surefoot.compare],
    "explain-fault": [surefoot.measure_faults],
    "verify": [surefoot.verify],
    "baseline": [find_baseline],
}
# In Python one process on the CPU runs what nobody wants to wait for; runs that may stop have no number of episodes;
# and a bundle is of the file that is named, which a command knows.
OTHERWISE = {("workers", None, 1), ("device", "auto", "cpu"), ("n_episodes", N_EPISODES, None), ("mixed", None, ())}
OTHERWISE |= {("bundle", False, None)}


def options_with_defaults(command: str) -> list[tuple[argparse.Action, Any]]:
    (action,) = (a for a in cli.build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    parser = action.choices[command]
    found = []
    for option in parser._actions:
        default = option.default
        if isinstance(default, str) and option.type is not None:
            default = parser._get_value(option, default)
        found.append((option, default))
    return found


@pytest.mark.parametrize("command", FUNCTIONS)
def test_what_is_not_given_is_the_same_from_python(command):
    compared = 0
    for option, default in options_with_defaults(command):
        name = {"episodes": "n_episodes"}.get(option.dest, option.dest)
        for function in FUNCTIONS[command]:
            argument = inspect.signature(function).parameters.get(name)
            if argument is None or argument.default is inspect.Parameter.empty:
                continue
            compared += 1
            assert default == argument.default or (name, default, argument.default) in OTHERWISE, name
    assert compared >= 2


def test_the_help_says_the_default_that_is_taken():
    said = []
    for command in FUNCTIONS:
        for option, default in options_with_defaults(command):
            number = re.search(r"\(default: ([0-9,]+(\.[0-9]+)?)\)", option.help or "")
            if number is not None and default is not None:
                said.append(option.dest)
                assert float(number[1].replace(",", "")) == default, (command, option.dest)
    assert len(said) > 15


# --- the table has them all -------------------------------------------------------------------------------------------

ELSEWHERE = {
    "--help",
    "--json",  # what is printed, not what is run
    "--quiet",
    "--verbose",
    *("--baseline", "--no-baseline"),  # above
    "--bundle",  # test_bundle.py
    "--returns",  # test_cli.py, runs/test_returns.py
    "--units",  # above
    "--certificate",  # runs/test_attacked_run.py
    "--lambda",  # above
    "--minutes",  # attacks/test_learned.py
    "--attacker",
    *("--action-sigma", "--action-sigma-b"),  # above
    "--mixed",  # above
    "--channel",  # above
    "--ray",  # above
    "--cores",  # test_cli.py: what is said of the time
    "--all-sigmas",
    *("--better-than", "--no-worse-than", "--margin"),  # above
    *("--only-wins", "--runs"),  # test_compare.py
}
SHARED = {
    "--env-kwargs",
    "--env-module",
    "--wrapper",
    "--success",
    "--floor",
    "--ceiling",
    "--reward-range",
    "--max-steps",
    "--env",
    "--feature-units",
    "--step-seconds",
}


@pytest.mark.parametrize(
    "command", ["certify", "attack", "plan", "tune", "compare", "baseline", "verify", "explain-fault"]
)
def test_every_option_of_the_commands_that_run_episodes_has_a_row(command):
    (action,) = (a for a in cli.build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    options = {name for one in action.choices[command]._actions for name in one.option_strings if name[:2] == "--"}
    typed = {word for door, words, _ in ROWS for word in shlex.split(words) if door.partition(" ")[0] == command}
    typed |= {words.split()[0] for words in LOOKED_UP} if command in RUNNING else set()
    # One function adds them to every command and one reads them: certify stands for all.
    typed |= SHARED if command != "verify" else set()
    missing = options - typed - ELSEWHERE
    # What is predicted with them: the last test.
    allowed = {"--device", "--confidence", "--episodes"} if command == "plan" else {"--device"}
    assert missing - allowed == set(), "options without a row"


def test_what_is_predicted_is_asked_with_the_options_of_plan(tmp_path, monkeypatch, capsys):
    """Episodes, confidence, budget and requirement go to the forecast; cores to the words on time."""
    from surefoot.proof.forecast import forecast

    seen = []

    def watched(pilot, **options):
        seen.append((len(pilot), options))
        return forecast(pilot, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("surefoot.api.plan.forecast", watched)
    words = "plan cartpole-1 --require 20@0.1 --sigmas 0.2 --pilot-episodes 20 --episodes 300 --confidence 0.9"
    assert cli.main([*words.split(), "--cores", "7", "--workers", "1", "--json", "--quiet"]) == 0
    assert seen == [(20, {"budget": 0.1, "alpha": 1 - 0.9, "n_episodes": 300, "require": 20.0})]
    made = json.loads(capsys.readouterr().out)
    assert made["forecasts"][0]["cost"]["cores"] == 7
    assert made["confidence"] == 0.9
    from surefoot.proof.forecast import best_achievable

    assert made["most"] == best_achievable(300, 0.1 / 0.2, 1 - 0.9, 0.0, 200.0)
