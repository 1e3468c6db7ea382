"""Cartpole equals Gymnasium's over whole episodes; any other Gymnasium environment is played by its own rules."""

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Text

from surefoot.attacks.composed import Structured
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.environments import make_task
from surefoot.play.envs.cartpole import CartPole, is_cartpole
from surefoot.play.envs.gymnasium_env import Gymnasium
from surefoot.play.envs.source import Source
from surefoot.play.loop import play_block
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import Stream
from surefoot.play.task import Backend
from surefoot.play.tasks import TASKS, get_task
from toys import balancer, from_callable, off, run_episodes

CPU = torch.device("cpu")


def cartpole(slots, seed=0, **more):
    return CartPole(slots, Stream(np.random.SeedSequence(seed), CPU), **more)


# --- Cartpole -------------------------------------------------------------------------------------------------------


def lean(state):
    """Balance as a person would: episodes last long enough to reach the walls and the step limit."""
    return int(state[2] + 0.5 * state[3] + 0.05 * state[0] + 0.1 * state[1] > 0)


@pytest.mark.parametrize(("slots", "skill"), [(200, 0.0), (40, 0.9), (20, 1.0)])
def test_cartpole_is_gymnasiums(slots, skill):
    """Same starts, same actions: the same states to 1e-12, the same float32 observations, rewards and endings."""
    rng = np.random.default_rng(1)
    game = cartpole(slots)
    first = game.reset()
    starts = game.read_state().numpy().copy()
    plan = rng.integers(0, 2, (200, slots))
    use = rng.random((200, slots)) < skill
    records, ends = [first.numpy().copy()], []
    states, choices = [starts], []
    for step in range(200):
        action = np.where(use[step], [lean(s) for s in states[-1]], plan[step])
        choices.append(action)
        observation, reward, over = game.step(torch.from_numpy(action))
        assert reward.dtype == torch.float64
        assert (reward == 1).all()
        records.append(observation.numpy().copy())
        states.append(game.read_state().numpy().copy())
        ends.append(over.numpy().copy())
    reference = gymnasium.make("CartPole-v1", max_episode_steps=200)
    how = set()
    for slot in range(slots):
        reference.reset(seed=slot)
        reference.unwrapped.state = starts[slot].copy()
        for step in range(200):
            observation, reward, terminated, truncated, _ = reference.step(choices[step][slot])
            assert np.abs(states[step + 1][slot] - reference.unwrapped.state).max() < 1e-12
            assert records[step + 1].dtype == observation.dtype == np.float32
            assert (records[step + 1][slot] == observation).all()
            assert reward == 1
            assert ends[step][slot] == (terminated or truncated)
            if terminated or truncated:
                how.add((bool(terminated), bool(truncated)))
                break
        assert terminated or truncated
    reference.close()
    assert how == ({(True, False)} if skill == 0 else how)
    assert skill < 1 or (False, True) in how


def test_cartpole_starts_where_gymnasium_starts():
    game = cartpole(5_000)
    observation = game.reset()
    assert observation.dtype == torch.float32
    assert game.read_state().dtype == torch.float64
    assert torch.equal(observation, game.read_state().float())
    starts = game.read_state().flatten()
    assert float(starts.abs().max()) <= 0.05
    assert not off(int((starts < 0).sum()), starts.numel(), 0.5)
    assert not off(int((starts.abs() < 0.025).sum()), starts.numel(), 0.5)
    assert len(starts.unique()) == starts.numel()


def test_cartpole_restarts_only_the_rows_marked():
    game = cartpole(4)
    game.reset()
    for _ in range(5):
        game.step(torch.ones(4, dtype=torch.int64))
    before = game.read_state().clone()
    fresh = game.restart_rows(torch.tensor([False, True, False, True]))
    assert fresh.shape == (2, 4)
    assert torch.equal(fresh, game.read_state()[[1, 3]].float())
    assert (fresh.abs() <= 0.05).all()
    assert torch.equal(game.read_state()[[0, 2]], before[[0, 2]])
    assert game.clock.steps.tolist() == [5, 0, 5, 0]


def test_cartpole_keeps_only_the_rows_named():
    game = cartpole(4)
    game.reset()
    before = game.read_state().clone()
    game.keep_rows(torch.tensor([1, 3]))
    assert torch.equal(game.read_state(), before[[1, 3]])
    assert game.step(torch.zeros(2, dtype=torch.int64))[0].shape == (2, 4)


@pytest.mark.parametrize("others", ["stay", "leave", "restart first", "restart too"])
def test_later_starts_of_a_slot_do_not_depend_on_its_neighbours(others):
    alone = cartpole(4, seed=5)
    alone.reset()
    mine = torch.tensor([False, False, True, False])
    expected = [alone.restart_rows(mine) for _ in range(3)]
    assert len(torch.cat(expected).unique()) == 12
    game = cartpole(4, seed=5)
    game.reset()
    if others == "leave":
        game.keep_rows(torch.tensor([1, 2]))
        game.keep_rows(torch.tensor([1]))
        mine = torch.tensor([True])
    if others == "restart first":
        for _ in range(5):
            game.restart_rows(~mine)
    for start in expected:
        got = (
            game.restart_rows(torch.ones(4, dtype=torch.bool))[2:3]
            if others == "restart too"
            else game.restart_rows(mine)
        )
        assert torch.equal(got, start)


def test_cartpole_tasks_are_the_papers():
    for frames in (1, 5):
        task = get_task(f"cartpole-{frames}")
        assert (task.spaces.n_stack, task.scoring.max_steps, task.scoring.floor, task.scoring.ceiling) == (
            frames,
            200,
            0.0,
            200.0,
        )
        environment = task.backend.open()
        assert environment.spec.max_episode_steps == 200
        environment.close()
    assert set(TASKS) >= {"cartpole-1", "cartpole-5"}


# --- any Gymnasium environment --------------------------------------------------------------------------------------


class Toy(gymnasium.Env):
    """Shows a draw of its own generator for ever; the reward is the action; it ends after five steps."""

    def __init__(self, observation=None, action=None):
        self.observation_space = observation or Box(0.0, 1.0, (2,), np.float32)
        self.action_space = action or Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self._show(), {}

    def step(self, action):
        self.clock += 1
        if isinstance(self.action_space, Box):
            assert action.dtype == self.action_space.dtype
        assert action in self.action_space
        return self._show(), float(np.sum(action)), self.clock == 5, False, {}

    def _show(self):
        if isinstance(self.observation_space, Dict):
            parts = self.observation_space.items()
            return {name: self.np_random.random(part.shape).astype(part.dtype) for name, part in parts}
        if self.observation_space.dtype == np.uint8:
            return np.full(self.observation_space.shape, 51, dtype=np.uint8)
        return self.np_random.random(self.observation_space.shape).astype(self.observation_space.dtype)


VARIANTS = {
    "ToyFloat": {},
    "ToyDouble": {"observation": Box(0.0, 1.0, (2, 3), np.float64)},
    "ToyImage": {"observation": Box(0, 255, (4, 4, 1), np.uint8)},
    "ToyInteger": {"observation": Box(0, 9, (2,), np.int64)},
    "ToyDiscrete": {"observation": Discrete(4)},
    "ToyDict": {"observation": Dict(x=Box(0.0, 1.0, (2,), np.float32))},
    "ToyDoubleDict": {"observation": Dict(x=Box(0.0, 1.0, (2,), np.float32), y=Box(0.0, 1.0, (1,), np.float64))},
    "ToyMove": {"action": Box(-2.0, 2.0, (2,), np.float32)},
    "ToyBits": {"action": MultiBinary(3)},
    "ToyMany": {"action": MultiBinary(17)},
    "ToySay": {"action": Text(3)},
    "ToyText": {"observation": Text(3)},
}


@pytest.fixture(autouse=True)
def registered():
    for name, kwargs in VARIANTS.items():
        gymnasium.register(
            f"{name}-v0", Toy, kwargs=kwargs, max_episode_steps=50, disable_env_checker=True, order_enforce=False
        )
    gymnasium.register("ToyEndless-v0", Toy, disable_env_checker=True)
    yield
    for name in [*VARIANTS, "ToyEndless"]:
        del gymnasium.registry[f"{name}-v0"]


def slots_of(name, slots=3, seed=0):
    return Gymnasium(Source(maker=f"{name}-v0").open, slots, np.random.SeedSequence(seed), CPU)


def test_slots_have_seeds_of_their_own():
    observations = slots_of("ToyFloat", 50).reset()
    assert observations.dtype == torch.float32
    assert len(observations.unique()) == observations.numel()
    assert torch.equal(observations, slots_of("ToyFloat", 50).reset())
    assert len(torch.cat([observations, slots_of("ToyFloat", 50, seed=1).reset()]).unique()) == 2 * observations.numel()


def test_runs_seeded_0_and_1_share_no_episodes():
    task = make_task("ToyMove-v0", floor=-100, ceiling=100)
    follow = from_callable(lambda seen: seen, shape=(2,), n_actions=None)
    returns = [run_episodes(task, follow, 0.0, 40, seed=seed, n_envs=5, episodes_per_env=2).returns for seed in (0, 1)]
    assert len(np.unique(np.concatenate(returns))) == 80


def test_later_episodes_of_a_slot_are_new():
    game = slots_of("ToyFloat", 2)
    first = game.reset()
    again = game.restart_rows(torch.tensor([True, False]))
    assert again.shape == (1, 2)
    assert len(torch.cat([first, again]).unique()) == 6


def test_discrete_actions_begin_at_their_start():
    game = slots_of("ToyFloat")
    game.reset()
    assert game.step(torch.tensor([0, 1, 2]))[1].tolist() == [5, 6, 7]
    assert make_task("ToyFloat-v0", floor=25).spaces.first_action == 5


def test_box_actions_arrive_in_their_shape_and_dtype():
    game = slots_of("ToyMove")
    game.reset()
    _, rewards, over = game.step(torch.tensor([[0.5, 0.5], [1.0, -1.0], [2.0, 2.0]], dtype=torch.float64))
    assert rewards.tolist() == [1, 0, 4]
    assert rewards.dtype == torch.float64
    assert over.tolist() == [False] * 3


def test_images_are_scaled_to_one():
    observation = slots_of("ToyImage").reset()
    assert observation.dtype == torch.float32
    assert observation.shape == (3, 4, 4, 1)
    assert observation.unique().tolist() == pytest.approx([0.2])


@pytest.mark.parametrize("name", ["ToyDouble", "ToyDoubleDict"])
def test_doubles_keep_their_digits_until_the_noise_is_added(name):
    observation = slots_of(name).reset()
    assert observation.dtype == torch.float64
    assert (observation != observation.float()).any()


@pytest.mark.parametrize("attacker", [None, Structured()])
@pytest.mark.parametrize("sigma", [0.5, (0.5, 1.0, 0.0)])
def test_an_agent_that_stacks_doubles_sees_them_rounded_after_the_noise(attacker, sigma):
    """Frames in single precision, whatever else happens on the way; the noise of a feature without any is none."""
    stacks, shown = [], []
    watching = from_callable(lambda stack: stacks.append(stack) or 0, shape=(3,), n_actions=3, n_stack=2)
    task = make_task("ToyDoubleDict-v0", floor=0, ceiling=100)
    plan = Plan(task=task, policy=watching, noise=Noise.of(sigma), n_episodes=2, attacker=attacker, budget=0.1)
    play_block(plan, 0, watch=shown.append)
    assert {stack.dtype for stack in stacks} == {np.dtype(np.float32)}
    assert {step.observation.dtype for step in shown} == {step.seen.dtype for step in shown} == {torch.float32}
    assert all(bool((step.observation != step.seen)[:, :2].all()) for step in shown)
    if not isinstance(sigma, float):
        assert all(torch.equal(step.observation[:, 2], step.seen[:, 2]) for step in shown)


def test_dropped_environments_are_closed():
    game = slots_of("ToyFloat")
    game.reset()
    made, closed = list(game.environments), []
    for row, environment in enumerate(made):
        environment.close = lambda row=row: closed.append(row)
    game.keep_rows(torch.tensor([0, 2]))
    assert closed == [1]
    assert game.environments == [made[0], made[2]]
    game.close()
    assert closed == [1, 0, 2]


def test_an_environment_is_played_to_its_ends():
    task = make_task("ToyFloat-v0", floor=25, ceiling=35)
    assert (task.spaces.shape, task.spaces.n_actions, task.scoring.max_steps, task.spaces.n_stack) == ((2,), 3, 50, 1)
    policy = from_callable(lambda seen: 2, shape=(2,), n_actions=3)
    played = play(Plan(task=task, policy=policy, noise=Noise.of(0.1), n_episodes=10, n_envs=3, episodes_per_env=2))
    assert played.returns.tolist() == [35] * 10
    assert played.lengths.tolist() == [5] * 10


def test_a_step_limit_may_be_given():
    policy = from_callable(lambda seen: 2, shape=(2,), n_actions=3)
    task = make_task("ToyEndless-v0", floor=0, ceiling=35, max_steps=3)
    assert play(Plan(task=task, policy=policy, noise=Noise.of(0.1), n_episodes=4)).lengths.tolist() == [3] * 4


def one_by_one(task):
    """Return the task run by Gymnasium environments, one for each row."""
    return replace(task, backend=Backend(batch=partial(Gymnasium, task.backend.open), open=task.backend.open))


def test_gymnasiums_cartpole_is_run_as_tensors():
    task = make_task("CartPole-v1", floor=0, ceiling=500)
    env = task.backend.batch(3, np.random.SeedSequence(0), torch.device("cpu"))
    assert isinstance(env, CartPole)
    assert env.max_steps == 500
    assert task.blocks.n_envs == 1_000
    played = play(Plan(task=task, policy=balancer(), noise=Noise.of(0.01), n_episodes=4))
    assert played.returns.tolist() == [500] * 4


class HeavyPole(CartPoleEnv):
    def __init__(self, **options):
        super().__init__(**options)
        self.gravity = 9.81


def test_what_only_looks_like_cartpole_is_run_by_gymnasium(monkeypatch):
    """Planted: other arguments, another class, and Gymnasium's own with another gravity, force, limit or start."""
    gymnasium.register("Heavy-v0", HeavyPole, max_episode_steps=500)
    try:
        for name, kwargs in (("Heavy-v0", {}), ("CartPole-v1", {"sutton_barto_reward": True})):
            task = make_task(name, floor=-1, ceiling=500, env_kwargs=kwargs)
            assert isinstance(task.backend.batch(1, np.random.SeedSequence(0), torch.device("cpu")), Gymnasium)
            assert task.blocks.n_envs == 32
    finally:
        del gymnasium.registry["Heavy-v0"]
    for name, value in (("gravity", 9.8001), ("force_mag", 10.001), ("theta_threshold_radians", 0.2), ("tau", 0.021)):
        env = gymnasium.make("CartPole-v1")
        assert is_cartpole(env)
        setattr(env.unwrapped, name, value)
        assert not is_cartpole(env), name


def test_native_cartpole_and_gymnasiums_are_the_same_law():
    """Two-sample test at level 1e-6 of how often 60 steps are reached, on 400 episodes each."""
    from scipy.stats import fisher_exact

    native = get_task("cartpole-1")
    slow = one_by_one(make_task("CartPole-v1", floor=0, ceiling=200, max_steps=200))
    reached = [
        int((play(Plan(task=t, policy=balancer(), noise=Noise.of(0.6), n_episodes=400)).returns >= 60).sum())
        for t in (native, slow)
    ]
    table = [[r, 400 - r] for r in reached]
    assert fisher_exact(table).pvalue > 1e-6
    other = int((play(Plan(task=native, policy=balancer(), noise=Noise.of(1.2), n_episodes=400)).returns >= 60).sum())
    assert fisher_exact([table[0], [other, 400 - other]]).pvalue < 1e-6


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("ToyText-v0", "has observations of the kind Text, which cannot carry noise; wrap it so that they are a Box"),
        ("ToyInteger-v0", "has int64 observations from 0 to 9; noise needs floats or uint8 images from 0 to 255: turn"),
        ("ToyMany-v0", "has 131,072 combinations of actions, expected at most 65,536; fix some parts in a wrapper"),
        ("ToySay-v0", "must have Discrete, Box, MultiDiscrete or MultiBinary actions, it has Text"),
        ("ToyEndless-v0", r"needs max_steps=N \(it has no step limit, so an episode might never end\)"),
        ("Nowhere-v0", "Gymnasium cannot make the environment 'Nowhere-v0': "),
        ("no such/name", "Gymnasium cannot make the environment"),
    ],
)
def test_environments_that_cannot_be_played_are_refused(name, match):
    with pytest.raises(InputError, match=match):
        make_task(name, floor=0, ceiling=1)


@pytest.mark.parametrize("limit", [0, -3])
def test_a_step_limit_must_be_positive(limit):
    with pytest.raises(InputError, match=f"max_steps= must be from 1 to 1,000,000, got {limit}"):
        make_task("ToyFloat-v0", floor=0, ceiling=1, max_steps=limit)


@pytest.mark.parametrize(
    ("floor", "ceiling", "match"),
    [
        (float("nan"), 1.0, "floor must be a finite number, got nan"),
        (0.0, 0.0, "ceiling must be a finite number above the floor 0"),
        (0.0, float("inf"), "ceiling must be a finite number above the floor 0"),
    ],
)
def test_limits_of_the_return_are_checked_before_playing(floor, ceiling, match):
    with pytest.raises(InputError, match=match):
        make_task("ToyFloat-v0", floor=floor, ceiling=ceiling)


# --- environments and agents that misbehave -------------------------------------------------------------------------


class Broken(gymnasium.Env):
    """CartPole's spaces; the third step goes wrong."""

    observation_space = Box(-1.0, 1.0, (4,), np.float32)

    def __init__(self, fault, *, discrete=True):
        self.fault, self.steps = fault, 0
        self.action_space = Discrete(2) if discrete else Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(4, dtype=np.float32), {}

    def step(self, action):
        self.steps += 1
        return self.fault() if self.steps == 3 else (np.zeros(4, dtype=np.float32), 1.0, False, False, {})


def crash():
    raise ZeroDivisionError("division by zero")


FAULTS = {
    "an exception": (crash, "the environment Broken failed in step: ZeroDivisionError: division by zero"),
    "NaN": (lambda: (np.full(4, np.nan), 1.0, False, False, {}), "an observation that is not finite"),
    "infinity": (lambda: (np.full(4, np.inf), 1.0, False, False, {}), "an observation that is not finite"),
    "a shape that broadcasts": (lambda: (np.zeros(1), 1.0, False, False, {}), r"of shape \(1,\), expected \(4,\)"),
    "a number": (lambda: (0.0, 1.0, False, False, {}), r"of shape \(\), expected \(4,\)"),
    "no reward": (lambda: (np.zeros(4), None, False, False, {}), "failed in step: TypeError"),
    "too few results": (lambda: (np.zeros(4), 1.0), "failed in step: IndexError"),
}


@pytest.mark.parametrize(("fault", "match"), FAULTS.values(), ids=FAULTS)
def test_what_goes_wrong_in_an_environment_is_said_in_one_line(fault, match):
    environments = Gymnasium(lambda: Broken(fault), 2, np.random.SeedSequence(0), CPU)
    environments.reset()
    for _ in range(2):
        environments.step(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(InputError, match=match):
        environments.step(torch.zeros(2, dtype=torch.int64))


def full():
    raise MemoryError("cannot allocate 9 TiB")


def test_out_of_memory_is_not_an_error_of_the_environment():
    environments = Gymnasium(lambda: Broken(full), 2, np.random.SeedSequence(0), CPU)
    environments.reset()
    for _ in range(2):
        environments.step(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(MemoryError, match="9 TiB"):
        environments.step(torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("action", [np.nan, None, np.inf])
def test_actions_that_are_none_are_refused(action):
    continuous = from_callable(lambda seen: [action], shape=(4,), n_actions=None)
    with pytest.raises(InputError, match="must return finite actions"):
        continuous.act(torch.zeros(1, 1, 4))
    with pytest.raises(InputError, match="must choose an action from 0 to 1"):
        from_callable(lambda seen: action, shape=(4,), n_actions=2).act(torch.zeros(1, 1, 4))
    environments = Gymnasium(lambda: Broken(crash, discrete=False), 2, np.random.SeedSequence(0), CPU)
    environments.reset()
    with pytest.raises(InputError, match="chose an action that is not finite"):
        environments.step(torch.full((2, 1), torch.nan))
