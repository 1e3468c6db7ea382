"""What the rules of known environments say about floor and ceiling of the return, each with its proof.

Only what follows from the source of an environment is here; the range that was observed would not be a bound. The
return of T steps lies between T times the lowest and T times the highest reward of a step, plus what can come once.
``docs/guides/floor-and-ceiling.md`` shows this table.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import wrappers

from surefoot.errors import InputError

DOCS = "docs/guides/floor-and-ceiling.md"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How low and how high rewards can be.

    Attributes:
        step: Lowest and highest reward of every step; None where there is no bound.
        once: What can come on top of that at most once per episode, or in all, 0 among it.
        proof: Why, from the source; or why there is no bound.
    """

    step: tuple[float | None, float | None]
    once: tuple[float, float] = (0.0, 0.0)
    proof: str

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """Lowest and highest reward of one step, where both are known."""
        low, high = self.step
        return None if low is None or high is None else (low + self.once[0], high + self.once[1])

    def limits(self, max_steps: int, gamma: float | None = None) -> tuple[float | None, float | None]:
        """Return floor and ceiling of the return, or of the discounted return, of at most ``max_steps`` steps."""
        steps = float(max_steps) if gamma is None else discounted_steps(gamma, max_steps)
        floor, ceiling = (
            None if one is None else _with_room(sign * (one * steps + extra), exact=gamma is None and one == round(one))
            for one, extra, sign in zip(self.step, self.once, (-1, 1), strict=True)
        )
        return None if floor is None else -floor, ceiling


def discounted_steps(gamma: float, max_steps: int) -> float:
    """Return the discounted sum of so many rewards of 1."""
    share = 1 - gamma**max_steps
    if share < 1e-3:  # near a discount of 1 the difference has lost its digits, and a limit would be too narrow
        share = -math.expm1(max_steps * math.log(gamma))
    return share / (1 - gamma)


def _with_room(value: float, *, exact: bool) -> float:
    """Return a bound above the value, for the rounding of a sum of many rewards; sums of whole ones are exact."""
    return value if exact or value == 0 else math.ceil(value * 1e6 + 1) / 1e6


def of_rewards(low: float, high: float) -> Rules:
    """Return the rules that a given range of every step's reward makes."""
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InputError(f"a reward range must be two finite numbers LOW,HIGH with LOW <= HIGH, got {low},{high}")
    return Rules(step=(min(low, 0.0), max(high, 0.0)), proof="the given range of every reward, times the step limit")


_SPEED = (
    "the reward contains (x_after - x_before) / dt; the simulator bounds neither the speed nor the position of the body"
)
_LANDER = (
    "the shaping terms sum to -100 (distance + speed + |angle|) at the end, and neither height, speed nor angle is "
    "bounded by the source"
)
_WALKER = (
    "the shaping terms sum to 130/30 times the distance covered minus 5 |angle of the hull|, which the source does not "
    "bound"
)

KNOWN: dict[str, Rules] = {
    "CartPole-v0": Rules(step=(0.0, 1.0), proof="1 at every step (`classic_control/cartpole.py`)"),
    "CartPole-v1": Rules(step=(0.0, 1.0), proof="1 at every step (`classic_control/cartpole.py`)"),
    "Acrobot-v1": Rules(
        step=(-1.0, 0.0), proof="-1 at every step, 0 at the one that ends it (`classic_control/acrobot.py`)"
    ),
    "MountainCar-v0": Rules(step=(-1.0, 0.0), proof="-1 at every step (`classic_control/mountain_car.py`)"),
    "MountainCarContinuous-v0": Rules(
        step=(-0.1, 0.0),
        once=(0.0, 100.0),
        proof="-0.1 a^2 with a in [-1, 1], and 100 at the step that reaches the goal and ends the episode "
        "(`classic_control/continuous_mountain_car.py`)",
    ),
    "Pendulum-v1": Rules(
        step=(-16.274, 0.0),
        proof="-(angle^2 + 0.1 speed^2 + 0.001 torque^2), the angle normalized to [-pi, pi], the speed clipped to 8 "
        "and the torque to 2: at least -(9.8697 + 6.4 + 0.004) (`classic_control/pendulum.py`)",
    ),
    "CarRacing-v3": Rules(
        step=(-0.1, 0.0),
        once=(-100.0, 1000.0),
        proof="-0.1 at every step, 1000/N for each of the N tiles when it is first visited, -100 instead at the step "
        "that leaves the field and ends the episode (`box2d/car_racing.py`)",
    ),
    "LunarLander-v3": Rules(step=(None, None), proof=_LANDER),
    "LunarLanderContinuous-v3": Rules(step=(None, None), proof=_LANDER),
    "BipedalWalker-v3": Rules(step=(None, None), proof=_WALKER),
    "BipedalWalkerHardcore-v3": Rules(step=(None, None), proof=_WALKER),
}
for _version in ("v4", "v5"):
    KNOWN |= {
        f"InvertedPendulum-{_version}": Rules(
            step=(0.0, 1.0), proof=f"1 at every step, or 0 at the last one (`mujoco/inverted_pendulum_{_version}.py`)"
        ),
        f"InvertedDoublePendulum-{_version}": Rules(
            step=(None, 10.0),
            proof="10 minus squares of position and speed; the simulator does not bound the speed "
            f"(`mujoco/inverted_double_pendulum_{_version}.py`)",
        ),
        f"Reacher-{_version}": Rules(
            step=(-2.411, 0.0),
            proof="-distance of fingertip and target - |a|^2: the arm is 0.21 long and turns in the plane, the target "
            "stays within 0.2 of its base, both actions are in [-1, 1]: at least -(0.41 + 2) "
            f"(`mujoco/reacher_{_version}.py`, `assets/reacher.xml`)",
        ),
        f"Pusher-{_version}": Rules(
            step=(None, 0.0),
            proof="minus distances of an object that slides; its joints have soft limits, which bound nothing exactly",
        ),
        f"HumanoidStandup-{_version}": Rules(
            step=(None, None), proof="the reward contains height / dt; the simulator does not bound the height"
        ),
        **{
            f"{name}-{_version}": Rules(step=(None, None), proof=_SPEED)
            for name in ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Swimmer", "Walker2d")
        },
    }

# Wrappers that pass actions and rewards on as they are.
TRANSPARENT = (wrappers.OrderEnforcing, wrappers.PassiveEnvChecker, wrappers.TimeLimit, wrappers.FlattenObservation)


def known_rules(environment: gymnasium.Env[Any, Any], *transparent: type) -> Rules | None:
    """Return the rules of an environment of the table, made as it is registered, behind nothing that changes rewards.

    Args:
        environment: The environment, with its wrappers.
        transparent: Further wrappers that change neither actions nor rewards.
    """
    spec, layer = environment.spec, environment
    while isinstance(layer, gymnasium.Wrapper):
        if type(layer) not in (*TRANSPARENT, *transparent):
            return None
        layer = layer.env
    if spec is None or spec.id not in KNOWN or spec.id not in gymnasium.registry:
        return None
    kind, registered = f"{type(layer).__module__}:{type(layer).__name__}", gymnasium.registry[spec.id]
    own = kind.startswith("gymnasium.envs.") and kind == registered.entry_point
    return KNOWN[spec.id] if own and _plain(spec) == _plain(registered) else None


def _plain(spec: Any) -> dict[str, Any]:
    """Return the arguments that an environment is made with; rendering changes nothing."""
    return {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
