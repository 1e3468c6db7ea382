"""What a plan says of itself, and what is made of it: every difference that changes episodes is in the record."""

import ast
import math
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from surefoot.agents.policies import Policy, Spaces
from surefoot.compute import usable_cores
from surefoot.episodes import LIMITS
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play import plan as plan_module
from surefoot.play.channel import Scope
from surefoot.play.environments import _read_step_seconds, task_of_card
from surefoot.play.plan import Plan, agent_hash, own_seed, resolve_device
from surefoot.play.reset_luck import read_luck
from surefoot.play.rollout import play
from surefoot.play.streams import Purpose
from surefoot.play.task import Blocks
from surefoot.play.tasks import TASKS, discounted, get_task
from surefoot.play.workers import Processes
from toys import Constant, Spy, actor_with_critic, balancer, constant, fixed, pay_steps, recurrent, short_pole, toy_task

TASK = short_pole(30)
BASE = Plan(task=TASK, policy=balancer(), noise=Noise.of(0.2), n_episodes=7, n_envs=2, episodes_per_env=1)
CAR = {"task": get_task("mountain-car"), "policy": actor_with_critic()}
CHANGES = {
    "sigma": {"noise": Noise.of(0.3)},
    "sigma_per_feature": {"noise": Noise.of([0.2, 0.2, 0.2, 0.4])},
    "seed": {"seed": 1},
    "purpose": {"purpose": (Purpose.PILOT,)},
    "n_planned": {"n_episodes": 8},
    "n_envs": {"n_envs": 3},
    "block_size": {"episodes_per_env": 2},
    "device": {"device": "cuda"},
    "agent": {"policy": replace(balancer(), name="other")},
    "agent_sha256": {"policy": replace(balancer(), sha256="other")},
    "n_stack": {"policy": balancer(2)},
    "memory": {"policy": replace(recurrent(), sha256="by-hand")},
    "stochastic": {"policy": replace(balancer(), stochastic=True)},
    "pixel_max": {"policy": replace(balancer(), pixel_max=255.0)},
    "attacker": {"attacker": Spy()},
    "budget": {"attacker": Spy(), "budget": 0.3},
    "reward_range": {"per_step": True},
    "gamma": {"task": discounted(TASK, 0.9)},
    "max_steps": {"task": short_pole(31)},
    "ceiling": {"task": replace(TASK, scoring=replace(TASK.scoring, ceiling=40.0))},
    "floor": {"task": replace(TASK, scoring=replace(TASK.scoring, floor=-1.0))},
    "task": {"task": replace(TASK, name="other")},
    "environment": {"task": replace(TASK, environment="other")},
    "env_kwargs": {"task": replace(TASK, made_with={"env_kwargs": {"g": 1}})},
    "binary": {"task": replace(TASK, scoring=replace(TASK.scoring, binary=True))},
    "scope": {"attacker": Spy(), "scope": Scope(per_step=True)},
    "draws_per_seed": {"n_episodes": 8, "draws_per_seed": 2},
    "luck": {"luck": "0"},
    "deployed_noise": {"deployed_noise": True},
    "stated_by_user": {"task": replace(TASK, scoring=replace(TASK.scoring, stated=("floor",)))},
    "features": {"task": replace(TASK, features=(("pole", 4, "m"),))},
    "step_seconds": {"task": replace(TASK, step_seconds=0.5)},
    "action_sigma": {**CAR, "noise": Noise.of(0.2, 0.3)},
    "channels": {**CAR, "noise": Noise.of(0.2, 0.3), "attacker": Spy(), "channels": ("actions",)},
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_changes_episodes_changes_the_setup(name):
    """Otherwise a run directory of other episodes would be resumed, and a verification would rerun others."""
    before, after = BASE.setup(), replace(BASE, **CHANGES[name]).setup()
    assert before.get(name) != after.get(name)


def test_all_that_a_setup_may_say_is_tried():
    """Every key that the plan writes, and every field of the plan, has a change above."""
    tree = ast.parse(Path(plan_module.__file__).read_text())
    written = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name in ("facts", "_attack_facts"):
            for node in ast.walk(function):
                if isinstance(node, ast.Dict):
                    written |= {key.value for key in node.keys if key is not None}
                elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                    written.add(node.slice.value)
    assert {"task", "attacker", "luck"} < written <= set(CHANGES)
    assert {field.name for field in fields(Plan)} == {name for change in CHANGES.values() for name in change}


def test_what_the_user_stated_is_said_of_what_is_used():
    """The range of a reward where rewards are kept, the ceiling where there is one."""
    stated = replace(TASK, scoring=replace(TASK.scoring, stated=LIMITS))
    endless = replace(stated, scoring=replace(stated.scoring, ceiling=None))
    for task, per_step, said in (
        (stated, False, ["floor", "ceiling"]),
        (stated, True, ["floor", "ceiling", "reward_range"]),
        (endless, True, ["floor", "reward_range"]),
    ):
        assert replace(BASE, task=task, per_step=per_step).facts()["stated_by_user"] == said
    assert "stated_by_user" not in BASE.facts()


@pytest.mark.parametrize("name", ["luck", "draws_per_seed"])
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"attacker": Spy(), "budget": 0.1}, "goes with certificates of whole episodes"),
        ({"per_step": True}, "goes with certificates of whole episodes"),
        ({"purpose": (Purpose.PILOT,)}, "goes with certificates of whole episodes"),
        ({"episodes_per_env": 2}, "goes with one episode per environment"),
    ],
    ids=["attacked", "per step", "pilot", "in turn"],
)
def test_luck_and_draws_of_a_seed_are_of_certificates_of_whole_episodes(name, change, match):
    """Each of these alone is refused: what is certified of them is about other episodes."""
    plan = replace(BASE, n_episodes=8, **({"luck": "0"} if name == "luck" else {"draws_per_seed": 2}))
    with pytest.raises(InputError, match=f"^{name}= {match}"):
        replace(plan, **change)
    if name == "luck":
        with pytest.raises(InputError, match=r"^luck= goes with certificates of whole episodes"):
            replace(plan, draws_per_seed=2)


def test_an_attack_that_is_not_there_has_no_budget():
    assert replace(BASE, budget=0.3).setup()["budget"] is None


def test_the_probe_has_the_noise_and_the_limits_of_the_plan():
    plan = replace(BASE, noise=Noise.of([0.2, 0.2, 0.2, 0.4]), per_step=True)
    probe = plan.probe()
    assert (probe.sigma, tuple(probe.metadata["sigma_per_feature"])) == (0.2, (0.2, 0.2, 0.2, 0.4))
    assert probe.returns.tolist() == [0.0, 30.0]
    assert (probe.floor, probe.ceiling, probe.reward_repeats.tolist()) == (0.0, 30.0, [30, 30])
    assert replace(BASE, task=discounted(TASK, 0.9)).probe().metadata["gamma"] == 0.9
    assert replace(BASE, **CAR, noise=Noise.of(0.2, 0.3)).probe().noise == Noise.of(0.2, 0.3)
    drawn = replace(BASE, n_episodes=8, draws_per_seed=2).probe()
    assert (drawn.draws_per_seed, drawn.returns.tolist()) == (2, [0.0, 0.0, 30.0, 30.0])
    assert replace(BASE, luck="0").probe().luck.shape == (2, 1)


@pytest.mark.parametrize(("n_episodes", "blocks", "last"), [(1, 1, 1), (2, 1, 2), (3, 2, 1), (8, 4, 2)])
def test_blocks_have_all_episodes_and_no_more(n_episodes, blocks, last):
    plan = replace(BASE, n_episodes=n_episodes)
    assert (plan.n_blocks, plan.block_length(blocks - 1)) == (blocks, last)
    assert sum(plan.block_length(index) for index in range(plan.n_blocks)) == n_episodes


def test_a_block_fills_a_gpu_and_one_that_waits_for_emulators_half_of_it():
    pong = TASKS["pong-1r"]
    player = Policy(Constant(), Spaces(shape=pong.spaces.shape, n_actions=pong.spaces.n_actions, n_stack=4))
    shares = {
        device: (
            replace(BASE, device=device).gpu_share,
            Plan(task=pong, policy=player, noise=Noise.of(0.1), device=device).gpu_share,
        )
        for device in ("cpu", "cuda")
    }
    assert shares == {"cpu": (0.0, 0.0), "cuda": (1.0, 0.5)}
    assert [Processes(4).n_parallel(share) for share in (0.0, 0.5, 1.0)] == [4, 4, 1]


@pytest.mark.parametrize("here", [True, False])
def test_a_device_is_that_of_this_machine_unless_others_run_the_episodes(monkeypatch, here):
    monkeypatch.setattr("torch.cuda.is_available", lambda: here)
    assert resolve_device("auto") == ("cuda" if here else "cpu")
    assert [resolve_device(name, remote=True) for name in ("auto", "cpu", "cuda")] == ["cpu", "cpu", "cuda"]
    assert resolve_device("cpu") == "cpu"
    if here:
        assert resolve_device("cuda") == "cuda"
    else:
        with pytest.raises(InputError, match="torch sees no CUDA device"):
            resolve_device("cuda")
    with pytest.raises(InputError, match="device must be auto, cpu or cuda, got 'tpu'"):
        resolve_device("tpu")


def test_what_reads_an_episode_at_reset_is_a_function():
    with pytest.raises(InputError, match="there is no function 'math:pi'; luck= must be places"):
        read_luck("math:pi", torch.zeros(2, 4), None)


def test_cores_are_lowered_and_never_raised(monkeypatch):
    monkeypatch.setattr("surefoot.compute._allowed_cores", lambda: 3)
    for given, cores in (("", 3), ("2", 2), ("8", 3), ("0", 1), ("many", 3)):
        monkeypatch.setenv("SUREFOOT_CORES", given)
        assert usable_cores() == cores, given


def test_the_hash_of_an_agent_in_memory_is_of_all_its_weights():
    """Actor, critic, memory, and the hash it came with."""
    one = actor_with_critic(seed=0)
    others = [
        replace(one, network=actor_with_critic(seed=1).network),
        replace(one, critic=actor_with_critic(seed=1).critic),
        replace(one, sha256="known"),
        replace(one, memory=recurrent().memory),
    ]
    assert agent_hash(one) == agent_hash(actor_with_critic(seed=0))
    assert len({agent_hash(agent) for agent in (one, *others)}) == 5


@pytest.mark.parametrize("limits", [{"ceiling": 2.0}, {"floor": 4.0, "ceiling": 5.0}])
def test_a_return_outside_of_the_limits_stops_the_run_at_its_block(limits):
    """Episodes of three rewards of 1; planted: limits that they leave."""
    task = toy_task(fixed(3), pay_steps, **{"ceiling": 3.0, **limits})
    plan = Plan(task=task, policy=constant(), noise=Noise.of(0.1), n_episodes=4, n_envs=2, episodes_per_env=1)
    with pytest.raises(InputError, match="in episodes 0 to 1 of toy: no return may be"):
        play(plan)
    honest = toy_task(fixed(3), pay_steps, ceiling=3.0)
    assert play(replace(plan, task=honest)).returns.tolist() == [3.0] * 4


# --- environments -----------------------------------------------------------------------------------------------------


def test_a_model_card_says_all_that_an_environment_is_made_with():
    made = {"env": "Pendulum-v1", "floor": -50.0, "ceiling": 3.0, "max_steps": 30, "env_kwargs": {"g": 2.0}}
    task = task_of_card({"task": "any", "environment": {**made, "wrappers": ["TimeAwareObservation"]}})
    assert (task.scoring.floor, task.scoring.ceiling, task.scoring.max_steps) == (-50.0, 3.0, 30)
    assert task.made_with == {"env_kwargs": {"g": 2.0}, "wrappers": ["TimeAwareObservation"]}
    with_module = task_of_card({"task": "any", "environment": {**made, "env_modules": ["json"]}})
    assert with_module.made_with["env_modules"] == ["json"]
    event = {"env": "CartPole-v1", "floor": 0.0, "ceiling": 1.0, "max_steps": 30, "success": "won"}
    assert task_of_card({"task": "any", "environment": event}).made_with == {"success": "won"}
    assert task_of_card({"task": "cartpole-1"}) is TASKS["cartpole-1"]


@pytest.mark.parametrize(
    ("says", "seconds"),
    [
        ({"dt": 0.05, "metadata": {"render_fps": 50}}, 0.05),
        ({"metadata": {"render_fps": 50}}, 0.02),
        ({"freq": 25, "metadata": {"render_fps": 50}}, 0.04),
        ({"dt": 0.05, "freq": 25, "metadata": {}}, 0.05),
        ({"metadata": None}, None),
        ({"metadata": {"render_fps": 0}}, None),
        ({"metadata": {"render_fps": "often"}}, None),
        ({"dt": 0.0, "metadata": {}}, None),
        ({"dt": math.inf, "metadata": {}}, None),
        ({"dt": "short", "metadata": {}}, None),
    ],
)
def test_how_long_a_step_takes_is_what_an_environment_says(says, seconds):
    """Its own step before how often it is drawn; a number above 0, or nothing."""
    assert _read_step_seconds(SimpleNamespace(**says)) == pytest.approx(seconds)


# --- the open-loop baseline -------------------------------------------------------------------------------------------


def test_the_seed_follows_from_what_an_agent_is_not_from_what_it_is_called():
    """An author who renames a file must not get another draw; of code the name is all there is."""
    named = [replace(BASE, policy=replace(balancer(), name=name, sha256="known")) for name in ("one", "other")]
    assert own_seed(named[0]) == own_seed(named[1])
    code = [replace(BASE, policy=replace(balancer(), name=name, sha256="")) for name in ("one", "other")]
    assert own_seed(code[0]) != own_seed(code[1])
    assert len({own_seed(plan) for plan in (*named, *code)}) == 3


@pytest.mark.parametrize(
    ("options", "size"), [({}, 12), ({"draws_per_seed": 3}, 12), ({"draws_per_seed": 6}, 24), ({"luck": "0"}, 4)]
)
def test_several_draws_and_luck_have_one_episode_for_each_environment(options, size):
    """A later one would begin where the noise of the one before has left its generator, and has no reset of its own."""
    task = replace(TASK, blocks=Blocks(n_envs=4, episodes_per_env=3))
    plan = Plan(task=task, policy=balancer(), noise=Noise.of(0.2), n_episodes=120, **options)
    assert (plan.block_envs, plan.block_size) == (4, size)
