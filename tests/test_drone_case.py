"""The drone case without its simulator: what counts as a landing, what its pilots remember, what its spoofers spend."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

import surefoot
from cases.drone import pilot
from cases.drone.landing import SensorsOnly, landed
from cases.drone.spoofer import STEPS, EvenSpoof, LateSpoof


class Falling(VectorEnv):
    """Drones that stand still at the same place for 500 steps, in the parts that crazyflow has."""

    def __init__(self, num_envs=1):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        sizes = {"pos": 3, "quat": 4, "vel": 3, "ang_vel": 3, "difference_to_goal": 3}
        parts = {name: spaces.Box(-np.inf, np.inf, (size,)) for name, size in sizes.items()}
        self.single_observation_space = spaces.Dict(parts)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        low, high = (np.array(ends, np.float32) for ends in pilot.LIMITS)
        self.single_action_space = spaces.Box(low, high)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.pos = self.random.uniform((-1, -1, 1), (1, 1, 2), (self.num_envs, 3)).astype(np.float32)
        self.count = 0
        return self.seen(), {}

    def step(self, actions):
        self.count += 1
        nothing = np.zeros(self.num_envs, bool)
        return self.seen(), np.zeros(self.num_envs), nothing, nothing | (self.count == STEPS), {}

    def seen(self):
        rest = np.zeros((self.num_envs, 3), np.float32)
        upright = np.tile(np.float32([0, 0, 0, 1]), (self.num_envs, 1))
        return {"pos": self.pos, "quat": upright, "vel": rest, "ang_vel": rest, "difference_to_goal": -self.pos}


def test_pilots_are_shown_what_sensors_measure():
    """The difference is computed from the true position: whoever sees it needs no other."""
    env = SensorsOnly(Falling(3))
    seen, _ = env.reset(seed=1)
    assert set(seen) == set(env.single_observation_space) == {"pos", "quat", "vel", "ang_vel"}
    assert set(env.step(env.action_space.sample())[0]) == set(seen)
    sizes = [(name, part.shape[0]) for name, part in env.single_observation_space.items()]
    begins = dict(zip((name for name, _ in sizes), np.cumsum([0, *(size for _, size in sizes)]), strict=False))
    assert (begins["pos"], begins["vel"]) == (pilot.POSITION.start, pilot.VELOCITY.start)


def test_what_a_landing_is():
    at = np.array([[0, 0, 0.1], [0.19, 0, 0.1], [0.21, 0, 0.1], [0, 0, 0.1], [0, 0, 0.1], [0.1, 0, 0]])
    speed = np.array([0, 0.5, 0, 0.51, 0, 0.4])
    velocity = np.stack((0 * speed, 0 * speed, -speed), axis=1)
    terminated = np.array([False, False, False, False, False, True])
    truncated = np.array([True, True, True, True, False, False])
    met = landed({"pos": at, "vel": velocity}, None, terminated, truncated, {})
    # Too far, too fast, not over yet.
    assert met.tolist() == [True, True, False, False, False, True]


def readings(n, sigma, rows=400):
    """Return what arrives from a drone that flies at 0.7 m/s, and where it is in the end."""
    random = torch.Generator().manual_seed(5)
    seen = torch.zeros(n, rows, 13)
    start = torch.tensor([0.4, -0.3, 1.5])
    way = pilot.STEP * torch.arange(n)[:, None, None] * torch.tensor([0.7, 0.0, 0.0])
    seen[:, :, pilot.POSITION] = start + way + sigma * torch.randn(n, rows, 3, generator=random)
    seen[:, :, pilot.VELOCITY] = torch.tensor([0.7, 0.0, 0.0])
    return seen, (start + way)[-1, 0]


def remembered(seen):
    policy = pilot.averaging()
    memory = policy.memory.empty(seen[0])
    begins = torch.ones(seen.shape[1], dtype=torch.bool)
    for number, one in enumerate(seen):
        memory = policy.memory.advance(memory, one, None, begins if number == 0 else None)
    return memory


@pytest.mark.parametrize("n", [1, 25, 100])
def test_error_of_the_mean_falls_with_the_root_of_readings(n):
    sigma = 0.2
    seen, place = readings(n, sigma)
    position, _, count = pilot.averaging().network.estimate(remembered(seen))
    assert bool((count == n).all())
    error = (position - place).flatten()
    expected = sigma / math.sqrt(n)
    # 1,200 independent errors: their root mean square has a relative error of 2%.
    assert abs(error.square().mean().sqrt() / expected - 1) < 0.1
    assert abs(float(error.mean())) < 5 * expected / math.sqrt(len(error))


def test_a_new_flight_forgets_the_last_one():
    seen, _ = readings(30, 0.2)
    policy = pilot.averaging()
    begins = torch.ones(seen.shape[1], dtype=torch.bool)
    again = policy.memory.advance(remembered(seen), seen[0], None, begins)
    assert torch.equal(again[:, :4], remembered(seen[:1])[:, :4])


def test_pilots_that_ignore_positions():
    one, other = (readings(20, sigma)[0] for sigma in (0.0, 5.0))
    network = pilot.blind().network
    assert torch.equal(network(remembered(one)), network(remembered(other)))
    assert not torch.equal(pilot.averaging().network(remembered(one)), pilot.averaging().network(remembered(other)))
    assert len({policy().sha256 for policy in (pilot.averaging, pilot.believing, pilot.quick, pilot.blind)}) == 4


@pytest.mark.parametrize("spoof", [EvenSpoof(), LateSpoof()])
def test_spoofers_use_their_budget_and_no_more(spoof, monkeypatch):
    monkeypatch.setattr("surefoot.play.envs.vector_trial.SECONDS", 0.0)
    task = surefoot.make_task(
        Falling, wrappers=["cases.drone.landing:SensorsOnly"], success="cases.drone.landing:landed", max_steps=STEPS
    )
    episodes = surefoot.rollout(
        task, pilot.averaging(), sigma={"pos": 0.1}, n_episodes=4, n_envs=4, seed=1, attacker=spoof, budget=1.5
    )
    assert episodes.budget_used.max() <= 1.5
    assert episodes.budget_used.min() > 1.49
    used = np.sqrt(np.cumsum(episodes.budget_used_per_step))
    # The late one spends nothing worth mentioning before the last four seconds.
    assert (used[300] < 0.01 * used[-1]) == isinstance(spoof, LateSpoof)
