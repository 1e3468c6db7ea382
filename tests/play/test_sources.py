"""Where environments come from: IDs, factories, classes, objects; arguments, wrappers, modules; parts of spaces."""

import copy
import random
import re
import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

import surefoot
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.environments import inspect, make_task
from surefoot.play.envs.cartpole import CartPole
from surefoot.play.envs.gymnasium_env import Gymnasium
from surefoot.play.envs.source import Source, _mujoco_warning, step_limit
from surefoot.play.plan import Plan
from surefoot.runs.certified import run_name
from toys import from_callable

PARTS = Dict(
    goal=Box(-1.0, 1.0, (2,), np.float32),
    door=Discrete(3, start=1),
    inner=Dict(speed=Box(-9.0, 9.0, (1,), np.float64), lamps=MultiBinary(2)),
    picture=Box(0, 255, (2, 2), np.uint8),
)


class House(gymnasium.Env):
    """Observations and actions in parts; the reward is the sum of the action."""

    action_space = MultiDiscrete([3, 2], start=[1, 0])
    observation_space = PARTS

    def __init__(self, bonus=0.0, tuples=False, action=None):
        self.bonus, self.tuples = bonus, tuples
        if tuples:
            self.observation_space = Tuple((PARTS["goal"], PARTS["door"]))
        if action is not None:
            self.action_space = action

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action):
        assert action in self.action_space
        return self._seen(), float(np.sum(action)) + self.bonus, False, False, {}

    def _seen(self):
        goal = self.np_random.random(2, dtype=np.float32)
        if self.tuples:
            return goal, np.int64(2)
        lamps, picture = np.array([1, 0], dtype=np.int8), np.full((2, 2), 51, dtype=np.uint8)
        return {
            "goal": goal,
            "door": np.int64(2),
            "inner": {"speed": np.array([4.0]), "lamps": lamps},
            "picture": picture,
        }


def house(**kwargs):
    return gymnasium.wrappers.TimeLimit(House(**kwargs), 4)


def first(task, rows=2, seed=0):
    """Return the batch and its first observations."""
    import torch

    batch = task.backend.batch(rows, np.random.SeedSequence(seed), torch.device("cpu"))
    return batch, batch.reset().numpy()


# --- what names or is an environment --------------------------------------------------------------------------------


def test_a_class_a_function_a_partial_and_module_and_name_are_the_same_environment():
    sources = (house, partial(house), f"{__name__}:house", House)
    tasks = [make_task(source, floor=0, ceiling=20, max_steps=4) for source in sources]
    seen = [first(task)[1] for task in tasks]
    assert all(np.array_equal(seen[0], other) for other in seen[1:])
    assert [task.name for task in tasks] == [
        f"{__name__}:house",
        f"{__name__}:house(){{}}",
        f"{__name__}:house",
        f"{__name__}:House",
    ]
    assert all(task.scoring.max_steps == 4 for task in tasks)


def test_an_environment_object_is_made_again_from_its_spec():
    env = gymnasium.wrappers.ClipReward(gymnasium.make("Pendulum-v1", g=3.0), -1.0, 1.0)
    task = make_task(env, reward_range=(-1, 1))
    assert (task.environment, task.scoring.max_steps, task.scoring.floor) == ("Pendulum-v1", 200, -200)
    assert task.made_with["env_kwargs"] == {"g": 3.0}
    (wrapper,) = task.made_with["wrappers"]
    again = make_task("Pendulum-v1", reward_range=(-1, 1), env_kwargs={"g": 3.0}, wrappers=[wrapper])
    assert again.made_with == task.made_with
    played = [surefoot.rollout(one, lambda seen: np.zeros(1), sigma=0.1, n_episodes=2) for one in (task, again)]
    assert np.array_equal(played[0].returns, played[1].returns)
    fast = make_task(gymnasium.make("CartPole-v1"))
    assert isinstance(first(fast)[0], CartPole)


def test_what_is_given_goes_around_what_a_spec_says():
    """Arguments in place of those of the spec, wrappers outside of its own; and the record says what was made."""
    env = gymnasium.wrappers.ClipReward(gymnasium.make("Pendulum-v1", g=3.0), -1.0, 1.0)
    source = Source.of(env, kwargs={"g": 2.0}, wrappers=("TimeAwareObservation",))
    assert source.setup["env_kwargs"] == {"g": 2.0}
    opened = source.open()
    assert opened.unwrapped.g == 2.0
    made = []
    while isinstance(opened, gymnasium.Wrapper):
        made.append(type(opened).__name__)
        opened = opened.env
    named = [re.split(r"[:=]", text) for text in source.setup["wrappers"]]
    assert [next(part for part in parts if part in made) for parts in named] == ["ClipReward", "TimeAwareObservation"]
    assert made.index("TimeAwareObservation") < made.index("ClipReward")


def test_an_environment_object_that_its_spec_does_not_make_is_refused():
    """Planted: an attribute changed after it was made; copies from its spec would not have it."""
    heavy = gymnasium.make("CartPole-v1")
    heavy.unwrapped.force_mag = 20.0
    with pytest.raises(InputError, match="CartPole-v1 as given behaves otherwise than what its spec makes"):
        make_task(heavy)
    used = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    twin = gymnasium.make("CartPole-v1")
    for environment in (used, twin):
        environment.reset(seed=7)
    after = twin.step(0)[0]
    assert make_task(used).scoring.ceiling == 500
    assert make_task(used, max_steps=5).scoring.ceiling == 5
    assert np.array_equal(used.step(0)[0], after)  # its own episode goes on


def test_what_is_no_environment_is_refused_with_the_way_out():
    with pytest.raises(InputError, match=r"House has no spec.*give its class, or a function that makes it"):
        make_task(House(), floor=0)
    with pytest.raises(InputError, match="a Gymnasium ID, module:factory, an environment, its class or a function"):
        make_task(3, floor=0)
    with pytest.raises(InputError, match="made a vector environment with 2 rows, expected 1; it must take num_envs=N"):
        make_task(lambda: gymnasium.make_vec("Pendulum-v1", 2, vectorization_mode="sync"), floor=0)
    with pytest.raises(InputError, match=r"env_kwargs must be plain values.*give a function that makes"):
        make_task(house, floor=0, env_kwargs={"action": Discrete(2)})
    with pytest.raises(InputError, match=r"house failed: TypeError: .*unexpected keyword argument 'colour'"):
        make_task(house, floor=0, env_kwargs={"colour": 1})


def test_modules_of_the_working_directory_and_modules_that_register(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "my_house.py").write_text(
        "import gymnasium\nfrom test_sources import House, house\n"
        "gymnasium.register('MyHouse-v0', House, max_episode_steps=4)\n"
    )
    (tmp_path / "json.py").write_text("raise SystemExit('what is installed goes first')")
    for name, modules in (("my_house:house", ()), ("my_house:MyHouse-v0", ()), ("MyHouse-v0", ("my_house",))):
        task = make_task(name, floor=0, env_modules=modules)
        assert task.scoring.max_steps == 4
        assert task.made_with == ({"env_modules": ["my_house"]} if modules else {})
    assert sys.path[-1] == str(tmp_path)
    gymnasium.registry.pop("MyHouse-v0")
    (tmp_path / "broken_house.py").write_text("1 / 0")
    with pytest.raises(InputError, match="importing 'broken_house' failed: ZeroDivisionError"):
        make_task("broken_house:make", floor=0)


def test_arguments_and_wrappers_are_applied_and_recorded():
    kwargs = {"env_kwargs": {"bonus": 2.0}, "wrappers": ['ClipReward={"max_reward": 4}'], "floor": 0, "ceiling": 16}
    task = make_task(house, **kwargs)
    always = surefoot.rollout(task, lambda seen: 5, sigma=0.1, n_episodes=2)  # parts 3 and 1: 4, and the bonus
    assert always.returns.tolist() == [16.0, 16.0]
    assert always.metadata["env_kwargs"] == {"bonus": 2.0}
    assert always.metadata["wrappers"] == ['ClipReward={"max_reward": 4}']
    own = make_task(house, floor=0, ceiling=99, wrappers=[lambda env: gymnasium.wrappers.ClipReward(env, 7, 7)])
    assert surefoot.rollout(own, lambda seen: 0, sigma=0.1, n_episodes=1).returns.tolist() == [28.0]


def test_a_certificate_names_what_was_changed_about_the_environment(tmp_path):
    """Clipped rewards under the plain name would be taken for the plain ones, by people and by attacks."""
    plain = make_task("Pendulum-v1", max_steps=5)
    changed = make_task(
        "Pendulum-v1",
        max_steps=5,
        env_kwargs={"g": 3.0},
        wrappers=['ClipReward={"min_reward": -1, "max_reward": 0}'],
        reward_range=(-1, 0),
    )
    assert plain.name == "Pendulum-v1"
    assert changed.name == 'Pendulum-v1 with g=3.0, ClipReward={"min_reward": -1, "max_reward": 0}'
    agent = torch.nn.Linear(3, 1)
    played = [surefoot.rollout(task, agent, sigma=0.1, n_episodes=3) for task in (plain, changed)]
    certificate = surefoot.certify(played[1], [0.1])
    assert certificate.to_json()["task"] == changed.name
    assert certificate.is_about(played[1].metadata, 0.1)
    assert not certificate.is_about(played[0].metadata, 0.1)
    wide = f'RescaleAction={{"min_action": -1, "max_action": {" " * 300}1}}'
    long = make_task("Pendulum-v1", floor=-99, max_steps=5, wrappers=[wide])
    name = run_name(Plan(task=long, policy=from_callable(np.zeros, shape=(3,), n_actions=None), noise=Noise.of(0.1)))
    assert len(name) < 200


def test_files_that_a_spec_names_are_hashed_too(tmp_path):
    """Else another file under its name would be another environment with the same setup."""
    (tmp_path / "map.txt").write_text("walls")
    (tmp_path / "other.txt").write_text("more")
    spec = copy.copy(gymnasium.spec("CartPole-v1"))
    spec.kwargs = {"inside": [str(tmp_path / "map.txt")]}
    assert list(Source(maker=spec).files) == [str(tmp_path / "map.txt")]
    both = Source(maker=spec, kwargs={"more": str(tmp_path / "other.txt")})
    assert set(both.files) == {str(tmp_path / "map.txt"), str(tmp_path / "other.txt")}


def test_the_step_limit_is_the_least_of_those_around_an_environment():
    assert step_limit(house()) == 4
    assert step_limit(gymnasium.wrappers.TimeLimit(house(), 9)) == 4
    assert step_limit(gymnasium.wrappers.TimeLimit(house(), 3)) == 3
    assert step_limit(House()) is None
    assert inspect(Source(maker=House)).missing(0.0) == [
        "max_steps=N (it has no step limit, so an episode might never end)"
    ]


# --- randomness -----------------------------------------------------------------------------------------------------


class Careless(gymnasium.Env):
    """Draws from the streams of the whole process, whatever it is seeded with."""

    observation_space, action_space = Box(-1.0, 1.0, (1,), np.float32), Discrete(2)

    def __init__(self, stream):
        self.draw = {"numpy": np.random.random, "python": random.random, "torch": lambda: torch.rand(()).item()}[stream]

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action):
        return np.zeros(1, dtype=np.float32), self.draw(), False, False, {}


@pytest.mark.parametrize("stream", ["numpy", "python", "torch"])
def test_environments_that_draw_from_global_streams_still_run_independent_episodes(stream):
    """Planted: without seeding these streams, blocks of forked workers would be copies of each other."""
    task = make_task(Careless, floor=0, ceiling=3, max_steps=3, env_kwargs={"stream": stream})
    outside = np.random.get_state()[1].copy(), random.getstate(), torch.get_rng_state()  # noqa: NPY002
    returns = [
        surefoot.rollout(task, lambda seen: 0, sigma=0.1, n_episodes=512, workers=workers).returns for workers in (1, 2)
    ]
    assert np.array_equal(*returns)
    assert len(np.unique(returns[0])) == 512
    other = surefoot.rollout(task, lambda seen: 0, sigma=0.1, n_episodes=512, seed=1).returns
    assert len(np.unique(np.concatenate((returns[0], other)))) == 1_024
    assert np.array_equal(np.random.get_state()[1], outside[0])  # noqa: NPY002
    assert random.getstate() == outside[1]
    assert torch.equal(torch.get_rng_state(), outside[2])


class SelfSeeded(Careless):
    """Draws from a generator of its own: the same in every copy, one for all copies, or unseeded."""

    everybodys = np.random.default_rng(0)

    def __init__(self, kind):
        own = {"same": np.random.default_rng(0), "shared": self.everybodys, "unseeded": np.random.default_rng()}[kind]
        self.draw = own.random


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("same", "with different seeds run the same episodes"),
        ("shared", "with the same seed run different episodes"),
        ("unseeded", "with the same seed run different episodes"),
    ],
)
def test_an_environment_that_its_seed_does_not_govern_is_refused(kind, what):
    """Its blocks could be copies of each other, in one process or in several: 1,000 episodes would be worth a few."""
    with pytest.raises(
        InputError,
        match=rf"copies of {__name__}:SelfSeeded {what}.*self.np_random, which super\(\).reset\(seed=seed\) seeds",
    ):
        make_task(SelfSeeded, floor=0, ceiling=3, max_steps=3, env_kwargs={"kind": kind})


def test_an_environment_without_randomness_is_as_good_as_any():
    class Still(Careless):
        def __init__(self):
            self.draw = lambda: 0.5

    task = make_task(Still, floor=0, ceiling=3, max_steps=3)
    assert surefoot.rollout(task, lambda seen: 0, sigma=0.1, n_episodes=3).returns.tolist() == [1.5] * 3


def test_copies_must_be_copies():
    """A function that returns one object again and again would let all rows of a block step the same episode."""
    one = Careless("numpy")
    for same in (lambda: one, lambda: gymnasium.wrappers.TimeLimit(one, 3)):
        task = make_task(same, floor=0, ceiling=3, max_steps=3)
        with pytest.raises(InputError, match="returned the same object again; it must make a new environment"):
            surefoot.rollout(task, lambda seen: 0, sigma=0.1, n_episodes=8)


@pytest.mark.parametrize("name", ["NormalizeObservation", "NormalizeReward"])
def test_wrappers_that_learn_from_earlier_episodes_are_refused(name):
    """Episodes that depend on earlier ones are not independent."""
    for given in (name, getattr(gymnasium.wrappers, name)):
        with pytest.raises(InputError, match=f"{name} learns from earlier episodes, so that episodes depend on each"):
            make_task("CartPole-v1", floor=-500, ceiling=500, wrappers=[given])


class Thrice(gymnasium.Wrapper):
    """Makes one episode of three, whatever ends them inside."""

    left = 0

    def reset(self, **kwargs):
        self.left = 2
        return self.env.reset(**kwargs)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        if (terminated or truncated) and self.left:
            self.left -= 1
            return self.env.reset()[0], reward, False, False, info
        return observation, reward, terminated, truncated, info


def test_no_wrapper_lets_an_episode_pass_its_step_limit(monkeypatch):
    """The floor of a reward range is times the step limit: below it, no floor holds."""
    around = gymnasium.envs.registration.WrapperSpec("Thrice", f"{__name__}:Thrice", {})
    kind = gymnasium.spec("MountainCar-v0").entry_point
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    gymnasium.register("Thrice-v0", kind, max_episode_steps=9, additional_wrappers=(around,))
    for task in (
        make_task("MountainCar-v0", reward_range=(-1, 0), wrappers=[Thrice]),
        make_task("MountainCar-v0", reward_range=(-1, 0), wrappers=[Thrice], max_steps=7),
        make_task(lambda: Thrice(gymnasium.make("MountainCar-v0")), reward_range=(-1, 0)),
        make_task("Thrice-v0", reward_range=(-1, 0)),
    ):
        played = surefoot.rollout(task, lambda seen: 1, sigma=0.1, n_episodes=2)
        assert played.lengths.tolist() == [task.scoring.max_steps] * 2
        assert played.returns.tolist() == [task.scoring.floor] * 2


# --- spaces in parts ------------------------------------------------------------------------------------------------


def test_observations_in_parts_become_one_vector_in_the_order_of_gymnasium():
    task = make_task(house, floor=0)
    assert task.spaces.shape == (3 + 2 + 2 + 1 + 4,)
    seen = first(task)[1]
    env = house()
    clean = env.reset(seed=0)[0]
    assert seen.dtype == np.float64  # as the speed is
    reference = gymnasium.spaces.flatten(PARTS, clean)
    assert ((seen[0, :2] > 0) & (seen[0, :2] < 1)).all()
    assert seen[0, 2:8].tolist() == reference[2:8].tolist() == [0, 1, 0, 4, 1, 0]  # door, speed, lamps
    assert seen[0, 8:].tolist() == pytest.approx([0.2] * 4)  # pixels, divided by 255
    tuples = first(make_task(house, floor=0, env_kwargs={"tuples": True}))[1]
    assert (tuples.dtype, tuples[0, 2:].tolist()) == (np.float32, [0, 1, 0])


@pytest.mark.parametrize(
    ("space", "factors"), [(None, (3, 2)), (MultiBinary(3), (2, 2, 2)), (MultiDiscrete([[2, 2], [1, 3]]), (2, 2, 1, 3))]
)
def test_actions_in_parts_become_one_number(space, factors):
    def make():
        return house(action=space)

    task = make_task(make, floor=0)
    assert task.spaces.factors == factors
    assert task.spaces.n_actions == np.prod(factors)
    sums = []
    for action in range(task.spaces.n_actions):
        (total,) = surefoot.rollout(task, lambda seen, action=action: action, sigma=0.1, n_episodes=1).returns
        sums.append(total / 4 - (1 if space is None else 0))  # the start of the first part
    assert sums == [sum(parts) for parts in np.ndindex(*factors)]


def test_the_batch_of_any_source_is_stepped_row_by_row():
    batch, _ = first(make_task(house, floor=0))
    assert isinstance(batch, Gymnasium)


def test_mujoco_does_not_repeat_for_every_copy_that_its_models_are_old(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    source = Source(maker="HalfCheetah-v5")
    for _ in range(2):
        source.open().close()
    assert capfd.readouterr().err == ""
    assert not list(tmp_path.iterdir())


def test_gymnasium_says_that_mujoco_is_missing(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.mujoco")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(InputError, match="environment 'HalfCheetah-v5': MuJoCo is not installed, run `pip install"):
        Source(maker="HalfCheetah-v5").open()


def test_other_warnings_of_mujoco_are_printed(capsys):
    _mujoco_warning("Nan, Inf or huge value in QACC at DOF 0. The simulation is unstable. Time = 0.1.")
    assert capsys.readouterr().err.startswith("WARNING: Nan, Inf or huge value in QACC")
