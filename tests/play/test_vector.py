"""Vector simulators: one object that steps all rows of a block, with the episodes that its rows would run alone."""

import os
import pickle
import sys
from dataclasses import replace
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import surefoot
import toys
import vector_toys
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.envs import vector, vector_trial
from surefoot.play.envs.flat import FlatAction, FlatObservation
from surefoot.play.envs.vector import OneRow, Simulators, Vector
from surefoot.play.plan import Plan
from surefoot.play.rollout import play
from surefoot.play.streams import SIMULATOR_SEEDS, block_seeds, simulator_seed
from surefoot.play.workers import can_fork

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def brief_trial(monkeypatch):
    """The fewest steps show what these simulators do."""
    monkeypatch.setattr(vector_trial, "SECONDS", 0.0)


def to_the_right(observation):
    """Go to the right, unless the row is far there."""
    return np.where(observation[:, 0] < 0.75, 2, 0)


def agent_of(task, function=to_the_right):
    return surefoot.as_policy(function, task.spaces, batched=True)


def task_of(kind, **others):
    return surefoot.make_task(kind, floor=-100, ceiling=100, max_steps=vector_toys.STEPS, **others)


def record(kind, **others):
    chosen = {"sigma": 0.2, "n_episodes": 50, "n_envs": 16, "seed": 3} | others
    task = task_of(kind)
    return surefoot.rollout(task, agent_of(task), **chosen)


def assert_same(one, other):
    assert one.returns.tobytes() == other.returns.tobytes()
    assert np.array_equal(one.lengths, other.lengths)


# --- episodes --------------------------------------------------------------------------------------------------------


def test_episodes_are_those_of_the_rows():
    """Block after block, row after row, each up to its end: by hand."""
    played = record(vector_toys.Walk, sigma=0.0)
    returns, lengths = [], []
    for block in range(4):
        simulator = vector_toys.Walk(16)
        observation, _ = simulator.reset(seed=simulator_seed(block_seeds(3, (), block)[0]))
        total, steps, alive = np.zeros(16), np.zeros(16, int), np.ones(16, bool)
        for _ in range(vector_toys.STEPS):
            observation, reward, over, *_ = simulator.step(to_the_right(observation) + 5)
            total += np.where(alive, reward, 0)
            steps += alive
            alive &= ~over
        returns += total.tolist()
        lengths += steps.tolist()
    assert played.returns.tolist() == returns[:50]
    assert played.lengths.tolist() == lengths[:50]
    assert len(set(played.lengths.tolist())) > 5  # rows did wait for each other


def test_all_autoreset_modes_and_kinds_of_arrays_give_the_same_episodes():
    expected = record(vector_toys.Walk)
    for mode in ("SAME_STEP", "DISABLED"):
        assert_same(expected, record(partial(vector_toys.Walk, autoreset=mode)))
    for kind in (vector_toys.OneBuffer, vector_toys.Torch, vector_toys.Immutable):
        assert_same(expected, record(kind))
    assert expected.returns.max() < 70  # what a restarted row is paid is not counted


def test_rows_that_are_over_wait():
    """They show what they showed last and are paid nothing, while the simulator runs their next episodes."""
    batch = Vector(Simulators(vector_toys.Walk), 16, np.random.SeedSequence(0), CPU, max_steps=31)
    before = batch.reset()
    waited = torch.zeros(16, dtype=torch.bool)
    for _ in range(30):
        observation, reward, over = batch.step(torch.full((16,), 2))
        assert torch.equal(observation[over], before[over])
        assert torch.all(reward[waited] == 0)
        assert torch.all(over >= waited)
        before = observation
        waited = over
    assert waited.all()


def test_a_row_that_must_not_be_stepped_is_noticed(monkeypatch):
    """The planted twin of DISABLED."""
    monkeypatch.setattr(Vector, "_restart_at_once", lambda *_: None)
    with pytest.raises(InputError, match="a row that is over was stepped"):
        record(partial(vector_toys.Walk, autoreset="DISABLED"))


def test_processes_are_not_forked_once_jax_computes(monkeypatch):
    computes = [False]
    bridge = SimpleNamespace(backends_are_initialized=lambda: computes[0])
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    before = can_fork()
    computes[0] = True
    assert before == (sys.platform == "linux")
    assert not can_fork()


def test_workers_blocks_and_attackers_change_no_episode():
    expected = record(vector_toys.Walk)
    assert_same(expected, record(vector_toys.Walk, workers=2))
    # An attacker without a budget: the loop looks at rows after every step, and drops them at once.
    task = task_of(vector_toys.Walk)
    plan = Plan(task=task, policy=agent_of(task), noise=Noise.of(0.2), n_episodes=50, n_envs=16, seed=3)
    assert_same(expected, play(replace(plan, attacker=toys.Spy(), budget=0.0)))
    longer = record(vector_toys.Walk, n_episodes=64)
    assert longer.returns[:48].tobytes() == expected.returns[:48].tobytes()


def test_simulators_are_used_again_and_never_by_two():
    made = []

    def make(n_envs):
        made.append(vector_toys.Walk(n_envs))
        return made[-1]

    simulators = Simulators(make)
    first = simulators.take(4)
    second = simulators.take(4)
    assert first is not second
    simulators.give_back(first)
    assert simulators.take(4) is first
    simulators.give_back(first)
    simulators.give_back(second)
    assert second.closed
    assert not first.closed
    # In a process that was forked they are the other's.
    simulators.process = os.getpid() - 1
    assert simulators.take(4) is made[2]
    assert not first.closed
    assert len(pickle.loads(pickle.dumps(Simulators(vector_toys.Walk))).idle) == 0


def test_a_row_runs_one_episode_of_a_block():
    task = task_of(vector_toys.Walk)
    with pytest.raises(InputError, match="a row of vector_toys:Walk runs one episode of a block"):
        Plan(task=task, policy=agent_of(task), noise=Noise.of(0.1), episodes_per_env=2)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_training_restarts_rows_as_the_simulator_does(mode):
    """Each mode by hand: what a restarted row shows, when, and what it is paid."""
    batch = Vector(
        Simulators(partial(vector_toys.Walk, autoreset=mode)), 4, np.random.SeedSequence(1), CPU, max_steps=999
    )
    by_hand = vector_toys.Walk(4, "SAME_STEP")
    first = batch.reset()
    by_hand.reset(seed=batch.seed)
    to_the_walls = torch.tensor([0, 1, 2, 2])
    late = torch.zeros(4, dtype=torch.bool)
    restarted = torch.zeros(4)
    for _ in range(40):
        before = first
        first, reward, over = batch.step(to_the_walls)
        assert torch.all(reward < 5)
        # A row that this step has restarted was paid nothing, and shows its first place.
        assert torch.all(reward[late] == 0)
        assert torch.all(first[late, 0].abs() <= 0.5)
        assert torch.equal(first[over], before[over])
        if mode != "NEXT_STEP":
            seen, paid, ended, *_ = by_hand.step(to_the_walls.numpy() + 5)
            assert over.tolist() == ended.tolist()
            assert reward.tolist() == paid.tolist()
        late = torch.zeros(4, dtype=torch.bool)
        if over.any():
            shown = batch.restart_rows(over)
            first = first.clone()
            first[over] = shown
            restarted += over
            late = over if mode == "NEXT_STEP" else late
        if mode != "NEXT_STEP":
            np.testing.assert_array_equal(first.numpy(), seen)
    assert restarted[2] > 3
    assert restarted.sum() > 8


def test_an_episode_that_is_over_is_not_over_twice():
    """The step that starts a row again is none of its episodes, whatever a simulator says of it."""
    batch = Vector(Simulators(vector_toys.StillOver), 4, np.random.SeedSequence(1), CPU, max_steps=999)
    batch.reset()
    to_the_wall = torch.full((4,), 2)
    over = torch.zeros(4, dtype=torch.bool)
    while not over.any():
        over = batch.step(to_the_wall)[2]
    batch.restart_rows(over)
    assert not (batch.step(to_the_wall)[2] & over).any()


def test_a_row_that_is_only_cut_cannot_be_restarted_alone():
    batch = Vector(Simulators(vector_toys.Walk), 4, np.random.SeedSequence(1), CPU, max_steps=1)
    batch.reset()
    over = batch.step(torch.ones(4, dtype=torch.int64))[2]
    assert over.all()
    with pytest.raises(InputError, match=r"Walk does not end episodes after 1 steps by itself, .* in env_kwargs"):
        batch.restart_rows(over)


# --- spaces ----------------------------------------------------------------------------------------------------------


def test_parts_are_those_of_one_environment():
    task = task_of(vector_toys.Parts)
    one = task.backend.open()
    assert task.spaces.shape == (16,)
    assert task.spaces.n_actions == 6
    assert [name for name, _ in task.spaces.parts] == ["picture", "place", "which.0", "which.1", "which.2"]
    batch = task.backend.batch(1, np.random.SeedSequence(5), CPU)
    shown = [one.reset(seed=batch.seed)[0]]
    rows = [batch.reset()[0]]
    for action in (5, 5, 0, 4, 2, 5, 5):
        shown.append(one.step(action)[0])
        rows.append(batch.step(torch.tensor([action]))[0][0])
    assert isinstance(one, FlatAction)
    assert isinstance(one.env, FlatObservation)
    assert rows[0].dtype == torch.float32
    np.testing.assert_array_equal(np.stack(shown), torch.stack(rows).numpy())


def test_arrays_that_nobody_can_write_are_not_copied():
    array = np.arange(4.0)
    assert vector.as_tensor(vector_toys.Frozen(array)).data_ptr() == array.ctypes.data
    for writable in (array, torch.from_numpy(array)):
        assert vector.as_tensor(writable).data_ptr() != array.ctypes.data


class Clipping(vector_toys.Walk):
    """Writes over the actions that it is given."""

    def step(self, actions):
        shown = super().step(actions)
        actions[:] = 0
        return shown


class Forces(Clipping):
    """The same with continuous actions, which reach it as the agent chose them."""

    def __init__(self, num_envs=1):
        super().__init__(num_envs)
        self.single_action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)

    def moves(self, actions):
        return super().moves(actions[:, 0] + 6)


@pytest.mark.parametrize(("kind", "action"), [(Clipping, torch.full((4,), 2)), (Forces, torch.full((4, 1), 0.5))])
def test_actions_of_a_simulator_are_its_own(kind, action):
    """A simulator that clips them in place changes nothing of what the agent remembers."""
    batch = Vector(Simulators(kind), 4, np.random.SeedSequence(0), CPU, max_steps=9)
    batch.reset()
    chosen = action.clone()
    batch.step(chosen)
    assert torch.equal(chosen, action)


class Global(vector_toys.Walk):
    """Draws its noise from numpy's global stream."""

    def noise(self):
        return np.random.normal(0, 0.1, self.num_envs)  # noqa: NPY002


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(1.0, 2.0, (3,)),
        spaces.Box(np.float32([-3, -1]), np.float32([-2, 1])),
        spaces.Discrete(3, start=5),
        spaces.MultiDiscrete([2, 3], start=[4, -7]),
        spaces.MultiBinary((2, 2)),
    ],
    ids=str,
)
def test_rows_without_an_episode_are_stepped_with_an_action_that_is_allowed(space):
    """Those of the last block, from its first step on."""
    first = vector._first_action(space)
    assert space.contains(first)
    assert np.asarray(first).dtype == space.dtype


def test_blocks_that_draw_from_a_global_stream_share_nothing_and_leave_ours_alone():
    ours = np.random.get_state()[1].tolist()  # noqa: NPY002
    drawn = []
    for block in (0, 1, 0):
        batch = Vector(Simulators(Global), 4, block_seeds(7, (), block)[0], CPU, max_steps=9)
        batch.reset()
        # The middle action moves a row by its noise alone.
        drawn.append(batch.step(torch.full((4,), 1))[1].tolist())
        batch.close()
    assert drawn[0] == drawn[2]
    assert not set(drawn[0]) & set(drawn[1])
    assert np.random.get_state()[1].tolist() == ours  # noqa: NPY002


# --- seeds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("blocks", "rows"), [(39_063, 256), (20_000, 512), (2_500, 4_096), (153, 65_536)])
def test_blocks_of_a_run_share_no_row(blocks, rows):
    seeds = sorted(simulator_seed(block_seeds(7, (), block)[0]) for block in range(0, blocks, max(1, blocks // 4_000)))
    assert min(after - before for before, after in pairwise([*seeds, seeds[0] + SIMULATOR_SEEDS])) >= rows
    assert SIMULATOR_SEEDS + rows < 2**31


def test_random_seeds_would_share_rows():
    """The planted twin: 31 random bits of each block."""
    drawn = sorted(int(block_seeds(7, (), block)[0].generate_state(1)[0]) >> 1 for block in range(20_000))
    assert min(after - before for before, after in pairwise(drawn)) < 512


def test_purposes_and_seeds_have_other_simulators():
    seeds = {simulator_seed(block_seeds(seed, purpose, 0)[0]) for seed in (0, 1) for purpose in ((), (4,), (5,))}
    assert len(seeds) == 6


# --- the trial -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (vector_toys.SharedNoise, "the rows of vector_toys:SharedNoise share random numbers"),
        (vector_toys.Twins, "the rows of vector_toys:Twins share random numbers"),
        (vector_toys.SharedWind, "the rows of vector_toys:SharedWind share random numbers"),
        (vector_toys.Crowd, "rows of vector_toys:Crowd depend on what their neighbors do"),
        (vector_toys.Pushed, "rows of vector_toys:Pushed depend on what their neighbors do"),
        (vector_toys.Pulled, "rows of vector_toys:Pulled depend on what their neighbors do"),
        (vector_toys.OneGenerator, "rows of vector_toys:OneGenerator depend on .* when these end"),
        (vector_toys.DeafToMask, "rows of vector_toys:DeafToMask depend on .* when these end"),
        (vector_toys.Unrepeatable, "two copies of vector_toys:Unrepeatable with the same seed run different episodes"),
        (vector_toys.DeafToSeed, "vector_toys:DeafToSeed runs the same episodes with different seeds"),
        (vector_toys.Aging, "vector_toys:Aging runs other episodes after reset with a seed than a new copy"),
        (vector_toys.BornDifferent, "vector_toys:BornDifferent runs other episodes after reset with a seed than a new"),
        (vector_toys.Terrains, "the rows of vector_toys:Terrains are different environments"),
        (vector_toys.NotFinite, "the simulator NotFinite returned an observation that is not finite"),
        (vector_toys.Flat, r"Flat returned rewards or ends of shape \(\), expected one number for each of its 32 rows"),
        (vector_toys.Silent, r"Silent must say in metadata\['autoreset_mode'\] what it does with rows"),
        (vector_toys.Stubborn, "Stubborn made a vector environment with 7 rows, expected 1; it must take num_envs=N"),
    ],
)
def test_a_bad_simulator_is_rejected_by_what_it_does(kind, message):
    with pytest.raises(InputError, match=message) as caught:
        task_of(kind)
    assert "\n" not in str(caught.value)


def shown_by_seeds(change):
    """Return what 32 seeds show of 32 rows in 20 steps, each number and end by chance, after a change of each table."""
    random = np.random.default_rng(0)
    tables = []
    for seed in range(32):
        arrays = {
            "observations": random.normal(size=(21, 32, 3)),
            "rewards": random.normal(size=(20, 32)),
            "over": np.arange(20)[:, None] >= random.integers(5, 20, size=32),
        }
        change(arrays, seed)
        tables.append(vector_trial.Table(**arrays))
    return tables


def first_seen(arrays, row, size):
    arrays["observations"][0, row, 1] += size


def last_seen(arrays, row, size):
    arrays["observations"][-1, row, 2] += size


def earned(arrays, row, size):
    arrays["rewards"][7, row] += 8 * size


def length(arrays, row, size):
    arrays["over"][:, row] = np.arange(20)[:, None] >= 4 + size


@pytest.mark.parametrize("shift", [first_seen, last_seen, earned, length])
def test_what_rows_share_is_found_in_what_they_see_first_and_last_earn_and_last(shift):
    """In one of these alone: in every seed all rows have a number of the seed more, or every row one of its own."""

    def by_seed(arrays, seed):
        shift(arrays, np.arange(32), seed % 7)

    def by_row(arrays, _):
        for row in range(32):
            shift(arrays, [row], row % 7)

    assert vector_trial._dependent_rows(shown_by_seeds(lambda *_: None)) is None
    assert vector_trial._dependent_rows(shown_by_seeds(by_seed)) == vector_trial.ROWS_ALIKE
    assert vector_trial._dependent_rows(shown_by_seeds(by_row)) == vector_trial.DIFFERENT


@pytest.mark.parametrize("name", ["observations", "rewards", "over"])
def test_rows_that_differ_in_one_number_are_no_copies(name):
    def copied(arrays, _):
        for array in arrays.values():
            array[:, 1] = array[:, 0]

    table = shown_by_seeds(copied)[0]
    assert table.rows()[1] == table.rows()[0]
    getattr(table, name)[3, 1] = 1 - getattr(table, name)[3, 1]
    assert table.rows()[1] != table.rows()[0]
    assert len(set(table.rows())) == 32


def test_what_coincides_by_chance_is_no_copy():
    """Few values coincide across seeds too; copies within one seed are rejected however few values there are."""
    random = np.random.default_rng(0)
    few = [[bytes([value]) for value in random.integers(50, size=32)] for _ in range(32)]
    assert vector_trial.log_chance_of_copies(few) == 0.0
    twins = [[bytes([seed, row // 2]) for row in range(32)] for seed in range(32)]
    assert vector_trial.log_chance_of_copies(twins) < -1_000
    # One pair of 1,024 is within its seed by chance in one of 33 cases, as 31 of 1,023 cells are.
    pair = [[bytes([seed, row]) for row in range(32)] for seed in range(32)]
    pair[3][4] = pair[3][5]
    assert np.exp(vector_trial.log_chance_of_copies(pair)) == pytest.approx(31 / 1_023)


def test_a_simulator_without_chance_has_nothing_to_share():
    class Certain(vector_toys.Walk):
        def starts(self):
            return np.linspace(0, 1e-12, self.num_envs)  # rounded by where a row lies

        def noise(self):
            return np.zeros(self.num_envs)

    assert task_of(Certain).spaces.n_actions == 3


# --- where simulators come from ---------------------------------------------------------------------------------------


def test_gymnasiums_own_by_class_id_and_object():
    """The vector entry point of an ID that has both is used where the arguments say so."""
    by_class = surefoot.make_task(
        "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv", floor=0, ceiling=500, max_steps=500
    )
    made = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="vector_entry_point")
    by_object = surefoot.make_task(made, floor=0, ceiling=500)
    by_id = surefoot.make_task("CartPole-v1", env_kwargs={"vectorization_mode": "vector_entry_point"})
    for task in (by_class, by_object, by_id):
        assert task.backend.fixed_rows
        assert isinstance(task.backend.open().unwrapped, OneRow)
    assert "num_envs" not in by_object.made_with["env_kwargs"]
    assert by_id.scoring.max_steps == 500
    balancing = agent_of(by_id, lambda seen: (seen[:, 2] + seen[:, 3] > 0).astype(int))
    shorter = surefoot.make_task(made, floor=0, ceiling=100, max_steps=100)
    kept = surefoot.rollout(shorter, balancing, sigma=0.0, n_episodes=20)
    assert kept.returns.max() == 100
    with pytest.raises(InputError, match="a wrapped vector environment cannot be made again by its spec"):
        surefoot.make_task(gymnasium.wrappers.vector.ClipReward(made, 0.0, 0.5), floor=0)


def test_wrappers_are_those_of_vectors():
    halved = task_of(vector_toys.Walk, wrappers=['ClipReward={"min_reward": 0.0, "max_reward": 0.1}'])
    played = surefoot.rollout(halved, agent_of(halved), sigma=0.1, n_episodes=20, n_envs=10)
    assert played.returns.min() >= 0
    assert np.all(played.returns <= 0.1 * played.lengths + 1e-9)
    with pytest.raises(InputError, match="NormalizeObservation learns from earlier episodes"):
        task_of(vector_toys.Walk, wrappers=["NormalizeObservation"])


def test_rewards_outside_of_their_range_are_rejected():
    task = surefoot.make_task(vector_toys.Walk, reward_range=(-0.1, 0.1), max_steps=vector_toys.STEPS)
    with pytest.raises(InputError, match=r"every reward must be between -0\.1 and 0\.1"):
        surefoot.rollout(task, agent_of(task), sigma=0.1, n_episodes=20)
