"""Floors and ceilings of known environments: no return leaves them, and they are taken only where they are true."""

import re
import textwrap
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import ClipReward, FlattenObservation, RescaleAction, TransformReward

import surefoot
from surefoot.errors import InputError
from surefoot.play.environments import inspect, make_task
from surefoot.play.envs.source import Source
from surefoot.play.envs.vector import OneRow
from surefoot.play.floors import KNOWN, Rules, known_rules, named_rules, of_rewards

PROVED = [name for name, rules in KNOWN.items() if rules.step[0] is not None]
pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
# How many steps of an episode are run, and how many of the extreme actions are held: this simulator is slow.
STEPS, HELD = {"CarRacing-v3": 40}, {"CarRacing-v3": 2}


def returns_of(name, steps):
    """Return rewards and returns under random actions, and under every extreme of them held for an episode."""
    environment = gymnasium.make(name, max_episode_steps=steps)
    space = environment.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        held = list(range(space.n))
    else:
        corners = np.array(np.meshgrid(*[(-1, 0, 1)] * space.shape[0])).reshape(space.shape[0], -1).T
        held = [np.where(c < 0, space.low, np.where(c > 0, space.high, 0)).astype(space.dtype) for c in corners]
    rewards, returns = [], []
    for number, action in enumerate([None, *held[-HELD.get(name, 27) :]]):
        environment.reset(seed=number)
        space.seed(number)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = environment.step(space.sample() if action is None else action)
            total, over = total + float(reward), terminated or truncated
            rewards.append(float(reward))
        returns.append(total)
    environment.close()
    return np.array(rewards), np.array(returns)


@pytest.mark.parametrize("name", PROVED)
def test_no_return_leaves_the_bounds_of_a_known_environment(name):
    """Random and extreme actions; the twin below shows that they reach the bounds."""
    steps = STEPS.get(name, gymnasium.spec(name).max_episode_steps)
    floor, ceiling = KNOWN[name].limits(steps)
    rewards, returns = returns_of(name, steps)
    low, high = KNOWN[name].reward_range
    assert low <= rewards.min()
    assert rewards.max() <= high
    assert floor <= returns.min()
    assert returns.max() <= ceiling


@pytest.mark.parametrize(
    ("name", "reached"),
    [("Acrobot-v1", -500), ("MountainCar-v0", -200), ("MountainCarContinuous-v0", -99.9), ("Reacher-v5", -100)],
)
def test_the_floor_is_not_idle(name, reached):
    """Planted: with a floor only a little higher, extreme actions go below it."""
    lowest = returns_of(name, gymnasium.spec(name).max_episode_steps)[1].min()
    assert KNOWN[name].limits(gymnasium.spec(name).max_episode_steps)[0] <= lowest <= reached + 1e-9


def test_the_worst_step_of_a_pendulum_is_within_its_rules_and_hardly():
    """No policy stays there, so that no return shows it."""
    environment = gymnasium.make("Pendulum-v1")
    environment.reset(seed=0)
    environment.unwrapped.state = np.array([np.pi, -8.0])
    reward = environment.step(np.array([-2.0], np.float32))[1]
    assert 0 <= reward - KNOWN["Pendulum-v1"].step[0] < 0.001


def test_a_car_that_leaves_the_field_is_within_its_rules():
    environment = gymnasium.make("CarRacing-v3")
    environment.reset(seed=0)
    environment.unwrapped.car.hull.position = (1e4, 0.0)
    _, reward, terminated, *_ = environment.step(np.zeros(3, np.float32))
    environment.close()
    assert terminated
    assert 0 <= reward - sum(ends[0] for ends in (KNOWN["CarRacing-v3"].step, KNOWN["CarRacing-v3"].once)) < 0.2


@pytest.mark.parametrize("name", [name for name in KNOWN if name not in PROVED])
def test_what_cannot_be_proved_is_said_with_the_way_out(name):
    try:
        facts = inspect(Source(maker=name))
    except InputError as error:  # the simulator of an old version
        pytest.skip(str(error))
    (missing,) = facts.missing(None)
    assert KNOWN[name].proof in missing
    assert "floor=F" in missing
    assert "reward_range=(LOW, HIGH)" in missing
    assert facts.missing(-100.0) == []
    assert facts.limits()[0] is None


def test_a_known_environment_needs_neither_floor_nor_ceiling():
    task = make_task("Acrobot-v1")
    assert (task.scoring.floor, task.scoring.ceiling, task.scoring.reward_range) == (-500.0, 0.0, (-1.0, 0.0))
    shorter = make_task("Acrobot-v1", max_steps=7)
    assert (shorter.scoring.floor, shorter.scoring.max_steps) == (-7.0, 7)
    own = make_task("Acrobot-v1", floor=-600, ceiling=5)
    assert (own.scoring.floor, own.scoring.ceiling) == (-600, 5)
    assert make_task("Acrobot-v1", floor=-600).scoring.ceiling == 0.0


def pendulum(*layers, **kwargs):
    environment = gymnasium.make("Pendulum-v1", **kwargs)
    for layer in layers:
        environment = layer(environment)
    return environment


class Double(gymnasium.Wrapper):
    def step(self, action):
        observation, reward, *rest = self.env.step(action)
        return observation, 2 * reward, *rest


class Heavier(type(gymnasium.make("Pendulum-v1").unwrapped)):
    """Another class of the same ID."""


def test_rules_are_those_of_the_environment_as_it_is_registered():
    """Planted: wrappers that change rewards or actions, other arguments, another class, another ID."""
    assert known_rules(pendulum()) is KNOWN["Pendulum-v1"]
    assert known_rules(pendulum(FlattenObservation)) is KNOWN["Pendulum-v1"]
    assert known_rules(pendulum(render_mode="rgb_array")) is KNOWN["Pendulum-v1"]
    changed = [
        pendulum(Double),
        pendulum(lambda env: TransformReward(env, lambda reward: 2 * reward)),
        pendulum(lambda env: RescaleAction(env, -9, 9)),
        pendulum(g=3.0),
    ]
    assert [known_rules(environment) for environment in changed] == [None] * len(changed)
    other = Heavier()
    other.spec = gymnasium.spec("Pendulum-v1")
    assert known_rules(other) is None


def faster(environment):
    """Another rule, and no layer that would show it."""
    environment.unwrapped.max_speed = 80
    return environment


def test_rules_hold_only_where_gymnasium_alone_makes_the_environment():
    """Planted: an attribute changed behind the constructor, by a factory or by a wrapper; another class by its spec."""
    other = replace(gymnasium.spec("Pendulum-v1"), entry_point=Heavier)
    assert make_task(other, floor=-1).scoring.stated == ("floor", "ceiling", "reward_range")
    for made in (
        {"env": lambda: faster(gymnasium.make("Pendulum-v1"))},
        {"env": "Pendulum-v1", "wrappers": [faster]},
        {"env": "Pendulum-v1", "wrappers": [f"{__name__}:faster"]},
    ):
        with pytest.raises(InputError, match=r"(Pendulum-v1|<lambda>) needs floor=F"):
            make_task(**made)
    assert make_task("Pendulum-v1", wrappers=["FlattenObservation"]).scoring.ceiling == 0
    assert make_task("Pendulum-v1", wrappers=[FlattenObservation]).scoring.ceiling == 0


CLIP = 'ClipReward={"min_reward": %s, "max_reward": %s}'
REFUSED = {
    "floor": (
        {"floor": 100},
        r"floor 100 claims more than the rules of CartPole-v1 prove, which allow returns down to 0",
    ),
    "floor by a little": (
        {"floor": 1e-9},
        r"floor 1e-09 claims more .* \(1 at every step .*; leave it out, or give at m",
    ),
    "ceiling": (
        {"ceiling": 499},
        r"ceiling 499 claims more .* returns up to 500 .*; leave it out, or give at least 500",
    ),
    "shorter": ({"ceiling": 19.5, "max_steps": 20}, r"ceiling 19.5 claims more .* returns up to 20"),
    "reward_range": ({"reward_range": (0, 0.5)}, r"a reward range to 0.5 claims more .* rewards up to 1"),
    "clipped": (
        {"env": "Hopper-v5", "wrappers": [CLIP % (0, 10)], "floor": 1},
        r"floor 1 claims more than the rules of Hopper-v5 with ClipReward.* down to 0 .*clipped to \[0, 10\]",
    ),
    "clipped rewards": (
        {"env": "Hopper-v5", "wrappers": [CLIP % (-1, 10)], "reward_range": (-0.5, 10)},
        r"a reward range from -0.5 claims more .* rewards down to -1",
    ),
    "half known": ({"env": "InvertedDoublePendulum-v5", "floor": -5, "ceiling": 9_999}, r"ceiling 9999 claims more"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_limits_that_claim_more_than_the_rules_prove_are_refused(name):
    given, message = REFUSED[name]
    with pytest.raises(InputError, match=message):
        make_task(**{"env": "CartPole-v1", **given})


def test_discounted_limits_are_compared_with_discounted_rules():
    facts = inspect(Source(maker="Acrobot-v1"))
    assert inspect(Source(maker="CartPole-v1")).task(floor=None, ceiling=10.0, gamma=0.9).scoring.stated == ()
    assert make_task("MountainCarContinuous-v0", floor=-99.9).scoring.stated == ()  # 0.1 a step is not exact in binary
    with pytest.raises(InputError, match=r"floor -99.899999 claims more .* returns down to -99\.9 "):
        make_task("MountainCarContinuous-v0", floor=-99.899999)
    assert facts.task(floor=-101.0, ceiling=0.0, gamma=0.99).scoring.stated == ()
    with pytest.raises(InputError, match=r"floor -90 claims more .* returns down to -99\.3\d+ "):
        facts.task(floor=-90.0, ceiling=0.0, gamma=0.99)


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        ({"env": "CartPole-v1"}, ()),
        ({"env": "CartPole-v1", "floor": -10, "ceiling": 1_000}, ()),
        ({"env": "CartPole-v1", "reward_range": (-1, 2)}, ()),
        ({"env": "CartPole-v1", "reward_range": (1, 1)}, ()),  # 0 is always among what a step adds
        ({"env": "Hopper-v5", "wrappers": [CLIP % (0, 10)]}, ()),
        ({"env": "Hopper-v5", "wrappers": [CLIP % (0, 10)], "reward_range": (0, 10)}, ()),
        ({"env": "Hopper-v5", "wrappers": [CLIP % (0, 10), "FlattenObservation"]}, ()),
        ({"env": "Hopper-v5", "reward_range": (0, 10)}, ("floor", "ceiling", "reward_range")),
        ({"env": "Hopper-v5", "wrappers": [CLIP % (-0.1, 10)], "floor": -100}, ("floor", "ceiling", "reward_range")),
        ({"env": "Hopper-v5", "wrappers": ['ClipReward={"min_reward": 0}']}, ("ceiling", "reward_range")),
        (
            {"env": "Hopper-v5", "wrappers": [lambda env: ClipReward(env, 0, 1)], "floor": 0},
            ("floor", "ceiling", "reward_range"),
        ),
        ({"env": "LunarLander-v3", "floor": -300}, ("floor", "ceiling", "reward_range")),
        ({"env": "InvertedDoublePendulum-v5", "floor": -5}, ("floor", "reward_range")),
        ({"env": "Pendulum-v1", "floor": 0, "env_kwargs": {"g": 3.0}}, ("floor", "ceiling", "reward_range")),
        (
            {"env": "Hopper-v5", "wrappers": [partial(ClipReward, max_reward=1)], "floor": 0},
            ("floor", "ceiling", "reward_range"),
        ),
        ({"env": "Pendulum-v1", "floor": 0, "env_modules": ["math"]}, ("floor", "ceiling", "reward_range")),
    ],
)
def test_what_nothing_proves_is_the_users(given, stated):
    assert make_task(**given).scoring.stated == stated


def test_clipped_rewards_are_within_their_rules():
    """Also where an environment computes in 32 bits: ends that these represent, and no others."""

    def least(reward, *ends):
        environment = ClipReward(TransformReward(gymnasium.make("Pendulum-v1"), lambda _: reward), *ends)
        environment.reset(seed=0)
        return float(environment.step(np.zeros(1, np.float32))[1])

    assert least(np.float32(-5), -0.1, 1) < -0.1
    assert known_rules(pendulum(lambda env: ClipReward(env, -0.1, 1))) is None
    assert least(np.float32(-5), -0.5, 1) == -0.5
    assert known_rules(pendulum(lambda env: ClipReward(env, -0.5, 1))).step == (-0.5, 0.0)
    assert known_rules(pendulum(lambda env: ClipReward(env, 1, 2))).step == (0.0, 1.0)  # a reward is always 1
    assert least(-5.0, 1, 2) == 1
    inner_first = pendulum(lambda env: ClipReward(env, -8, -4), lambda env: ClipReward(env, -5, 3))
    assert known_rules(inner_first).step == (-5.0, 0.0)
    assert known_rules(pendulum(lambda env: ClipReward(env, None, -4))).step == (-16.274, 0.0)


@pytest.mark.parametrize("name", [*KNOWN, "Ant-v3", "nonsense", "gymnasium:Pendulum-v1"])
def test_names_alone_give_the_rules(name):
    """Without making the environment; what is behind other arguments, wrappers or modules is not known."""
    known = KNOWN.get(name)
    assert named_rules(name) == known
    assert named_rules(name, wrappers=["FlattenObservation", "gymnasium.wrappers:TimeLimit={}"]) == known
    for changed in (
        {"env_kwargs": {"any": 1}},
        {"wrappers": ["RescaleAction={}"]},
        {"wrappers": ["mine:ClipReward={}"]},
        {"wrappers": [CLIP % ('"0"', 1)]},
        {"env_modules": ["mine"]},
    ):
        assert named_rules(name, **changed) is None
    clipped = named_rules(name, wrappers=[CLIP % (-1, 10)])
    assert clipped is None if ":" in name else -1 <= clipped.step[0] <= clipped.step[1] <= 10


def test_rows_of_gymnasiums_cartpole_have_its_rules():
    """By names and by what is made; another reward, another mode or a wrapper of vectors is another environment."""
    whole = {"vectorization_mode": "vector_entry_point"}
    task = make_task("CartPole-v1", env_kwargs=whole)
    assert task.backend.fixed_rows
    assert (task.scoring.floor, task.scoring.ceiling, task.scoring.stated) == (0.0, 500.0, ())
    played = surefoot.rollout(task, lambda seen: int(seen[2] + seen[3] > 0), sigma=0.1, n_episodes=20, n_envs=10)
    assert (played.returns > 0).all()
    assert (played.returns == played.lengths).all()
    made = gymnasium.make_vec("CartPole-v1", num_envs=1, max_episode_steps=90, **whole)
    assert named_rules("CartPole-v1", env_kwargs={**whole, "max_episode_steps": 90}) is KNOWN["CartPole-v1"]
    for changed in ({"sutton_barto_reward": True}, {"vectorization_mode": "sync"}, {"vector_kwargs": {}}):
        assert named_rules("CartPole-v1", env_kwargs={**whole, **changed}) is None
    assert named_rules("CartPole-v1", env_kwargs=whole, wrappers=[CLIP % (-1, 10)]) is None
    assert named_rules("Pendulum-v1", env_kwargs=whole) is None
    punished = gymnasium.make_vec("CartPole-v1", num_envs=1, sutton_barto_reward=True, **whole)
    clipped = gymnasium.wrappers.vector.ClipReward(gymnasium.make_vec("CartPole-v1", num_envs=1, **whole), 0.0, 2.0)
    other = type("CartPoleVectorEnv", (type(made),), {"__module__": "mine"})(1)
    other.spec = made.spec
    assert [known_rules(OneRow(one)) for one in (punished, clipped, other)] == [None] * 3
    assert known_rules(OneRow(made)) is KNOWN["CartPole-v1"]


def test_a_reward_range_gives_floor_and_ceiling_and_is_checked():
    def clipped():
        return ClipReward(gymnasium.make("Pendulum-v1"), -1, 1)

    with pytest.raises(InputError, match=r"clipped needs floor=F, the lowest return its rules allow, or reward_range="):
        make_task(clipped)
    task = make_task(clipped, reward_range=(-1, 1))
    assert (task.scoring.floor, task.scoring.ceiling, task.scoring.reward_range) == (-200.0, 200.0, (-1.0, 1.0))
    import surefoot

    played = surefoot.rollout(task, lambda seen: np.zeros(1), sigma=0.1, n_episodes=2)
    assert played.returns.min() >= -200
    false = make_task(clipped, reward_range=(-0.5, 1), max_steps=20)
    with pytest.raises(InputError, match=r"every reward must be between -0.5 and 1, got -"):
        surefoot.rollout(false, lambda seen: np.zeros(1), sigma=0.1, n_episodes=2)


def test_limits_are_rounded_outward_and_discounted():
    rules = Rules(step=(-0.1, 0.0), once=(0.0, 100.0), proof="")
    assert sum([-0.1] * 999) >= rules.limits(999)[0] > -99.9001
    assert rules.limits(999)[1] == 100.0
    floor, ceiling = rules.limits(999, 0.99)
    assert sum(-0.1 * 0.99**t for t in range(999)) >= floor > -10.0001
    assert ceiling == pytest.approx(100, abs=1e-5)
    assert of_rewards(1.0, 2.0).limits(10) == (0.0, 20.0)  # an episode may be short
    assert of_rewards(-2.0, -1.0).limits(10) == (-20.0, 0.0)
    for low, high in ((1, 0), (float("nan"), 1), (0, float("inf"))):
        with pytest.raises(InputError, match="LOW,HIGH"):
            of_rewards(low, high)


def test_the_guides_event_is_a_landing():
    """It is met once, at the end of a landing, and never in a fall."""
    from gymnasium.envs.box2d.lunar_lander import heuristic

    guide = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "floor-and-ceiling.md").read_text("utf-8")
    (code,) = re.findall(r"^ *```python\n(.*?)```", guide, flags=re.DOTALL | re.MULTILINE)
    names = {}
    exec(textwrap.dedent(code), names)
    environment = gymnasium.make("LunarLander-v3")
    met = []
    for seed, steered in ((0, True), (1, True), (0, False)):
        observation, _ = environment.reset(seed=seed)
        events, over = [], False
        while not over:
            action = heuristic(environment.unwrapped, observation) if steered else 0
            step = environment.step(action)
            observation, over = step[0], step[2] or step[3]
            events.append(bool(names["landed"](*step)))
        met.append((sum(events), events[-1]))
    assert met == [(1, True), (1, True), (0, False)]


def test_nested_clips_are_applied_from_the_inside_out():
    """The outer one has the last word: rewards from -8 to -4 are all -3 behind it."""
    nested = pendulum(lambda env: ClipReward(env, -8, -4), lambda env: ClipReward(env, -3, 3))
    assert known_rules(nested).step == (-3.0, 0.0)
    assert named_rules("Pendulum-v1", wrappers=[CLIP % (-8, -4), CLIP % (-3, 3)]).step == (-3.0, 0.0)


def test_discounted_sums_of_whole_rewards_are_rounded_and_have_room():
    """A floor or ceiling without it would be left by the last bit of a return."""
    for step, end in (((-1.0, 0.0), 0), ((0.0, 1.0), 1)):
        rules = Rules(step=step, proof="")
        assert abs(rules.limits(3)[end]) == 3.0
        assert abs(rules.limits(3, 0.9)[end]) > 2.71 + 5e-7


def test_only_the_render_mode_changes_nothing():
    assert named_rules("Pendulum-v1", env_kwargs={"render_mode": "rgb_array"}) == KNOWN["Pendulum-v1"]
    for name in ("render", "reward_scale", "reset_noise_scale", "render_modes", "mode"):
        assert named_rules("Pendulum-v1", env_kwargs={name: "rgb_array"}) is None
