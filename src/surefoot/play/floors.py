"""What the rules of known environments say about floor and ceiling of the return, each with its proof.

Only what follows from the source of an environment is here; the range that was observed would not be a bound. The
return of T steps lies between T times the lowest and T times the highest reward of a step, plus what can come once.
``docs/guides/floor-and-ceiling.md`` shows this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import wrappers

from surefoot.errors import InputError
from surefoot.play.envs.source import parse_wrapper
from surefoot.play.envs.vector import OneRow

VECTORIZATION = "vectorization_mode"  # the argument of ``gymnasium.make_vec``
DOCS = "guides/floor-and-ceiling.md"


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How low and how high rewards can be."""

    step: tuple[float | None, float | None]  # lowest and highest reward of every step; None where there is no bound
    # What can come on top of that at most once per episode, or in all, 0 among it.
    once: tuple[float, float] = (0.0, 0.0)
    proof: str  # why, from the source; or why there is no bound

    @property
    def rewards(self) -> tuple[float | None, float | None]:
        """Lowest and highest reward of one step, 0 among them; None where there is no bound."""
        low, high = self.step
        if low is not None:
            low += self.once[0]
        if high is not None:
            high += self.once[1]
        return low, high

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """Lowest and highest reward of one step, where both are known."""
        low, high = self.rewards
        if low is None or high is None:
            return None
        return low, high

    def limits(self, max_steps: int, gamma: float | None = None) -> tuple[float | None, float | None]:
        """Return floor and ceiling of the return, or of the discounted return, of at most ``max_steps`` steps."""
        return self._limits_with(max_steps, gamma, _with_room)

    def tightest(self, max_steps: int, gamma: float | None = None) -> tuple[float | None, float | None]:
        """Return the same without room for the rounding of sums: whoever states more than this has no proof."""
        return self._limits_with(max_steps, gamma, _without_room)

    def _limits_with(
        self, max_steps: int, gamma: float | None, bound_above: Callable[[float, bool], float]
    ) -> tuple[float | None, float | None]:
        steps = float(max_steps)
        if gamma is not None:
            steps = discounted_steps(gamma, max_steps)
        low, high = self.step
        floor = None
        if low is not None:
            # Bounded from below as its negative is from above. Sums of whole rewards are exact, discounted ones not.
            floor = -bound_above(-(low * steps + self.once[0]), gamma is None and low == round(low))
        ceiling = None
        if high is not None:
            ceiling = bound_above(high * steps + self.once[1], high == 0 or (gamma is None and high == round(high)))
        return floor, ceiling


NOTHING = Rules(step=(None, None), proof="nothing is known of its rewards")
# Of an environment whose return is an event, whatever its own rewards are.
SUCCESS = Rules(step=(0.0, 0.0), once=(0.0, 1.0), proof="1 for an episode that met the declared condition, else 0")


def discounted_steps(gamma: float, max_steps: int) -> float:
    """Return the discounted sum of so many rewards of 1."""
    # A geometric sum: (1 - gamma^T) / (1 - gamma).
    share = 1 - gamma**max_steps
    if share < 1e-3:  # near a discount of 1 the difference has lost its digits, and a limit would be too narrow
        share = -math.expm1(max_steps * math.log(gamma))
    return share / (1 - gamma)


def _without_room(value: float, exact: bool) -> float:
    """Return the value itself, as far as it can be computed."""
    if exact:
        return value
    return value - 1e-12 * abs(value)


def _with_room(value: float, exact: bool) -> float:
    """Return a bound above the value, for the rounding of a sum of many rewards; sums of whole ones are exact."""
    if exact or value == 0:
        return value
    return math.ceil(value * 1e6 + 1) / 1e6


def of_rewards(low: float, high: float) -> Rules:
    """Return the rules that a given range of every step's reward makes."""
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise InputError(f"reward_range= must be two finite numbers LOW,HIGH with LOW <= HIGH, got {low},{high}")
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

# Vector entry points whose every row has the rules of the ID, by their source: 1 at every step of an episode, 0 at the
# one that starts the row again.
VECTORS = dict.fromkeys(("CartPole-v0", "CartPole-v1"), "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv")

# Wrappers that pass actions and rewards on as they are.
TRANSPARENT = (wrappers.OrderEnforcing, wrappers.PassiveEnvChecker, wrappers.TimeLimit, wrappers.FlattenObservation)
# All wrappers that rules are known behind, by what they are called in setups.
NAMED = {
    f"{module}:{kind.__name__}": kind
    for kind in (*TRANSPARENT, wrappers.ClipReward)
    for module in (kind.__module__, "gymnasium.wrappers")
}


def known_rules(environment: gymnasium.Env[Any, Any], *transparent: type) -> Rules | None:
    """Return the rules of an environment, behind nothing that changes rewards but Gymnasium's ClipReward.

    They are those of the table, for an environment that is made as it is registered. Behind ClipReward there are rules
    for every environment.

    Args:
        transparent: Further wrappers that change neither actions nor rewards.
    """
    spec = environment.spec
    layer = environment
    clips = []
    while isinstance(layer, gymnasium.Wrapper):
        if type(layer) is wrappers.ClipReward:
            clips.append(layer._saved_kwargs)
        # The type itself: a subclass may change rewards.
        elif type(layer) not in (*TRANSPARENT, *transparent):
            return None
        layer = layer.env
    made: Any = layer
    if isinstance(layer, OneRow):
        made = layer.simulator
        spec = made.spec
    rules = None
    if spec is not None and _is_registered(spec.id, spec.kwargs):
        entry_point = gymnasium.registry[spec.id].entry_point
        if isinstance(layer, OneRow):
            entry_point = VECTORS.get(spec.id)
        if f"{type(made).__module__}:{type(made).__name__}" == entry_point:
            rules = KNOWN[spec.id]
    for arguments in reversed(clips):  # the innermost comes first
        rules = _clip_rules(rules, arguments)
    return rules


def named_rules(
    environment: str,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str] = (),
    env_modules: Sequence[str] = (),
    success: str | None = None,
) -> Rules | None:
    """Return the rules that follow from how a setup names an environment; nothing is imported or made.

    Args:
        environment: A Gymnasium ID; nothing is known of ``module:factory``.
        wrappers: What is around it, from the inside out, as in setups.
        env_modules: Modules that are imported before: these may change anything.
    """
    if success is not None:
        return SUCCESS
    # Code that is imported may register another environment under a known ID.
    if env_modules or ":" in environment:
        return None
    # Around a vector environment there are other wrappers of the same names.
    if wrappers and VECTORIZATION in (env_kwargs or {}):
        return None
    rules = None
    if _is_registered(environment, env_kwargs or {}):
        rules = KNOWN[environment]
    for text in wrappers:
        name = text.partition("=")[0]
        if ":" not in name:
            name = f"gymnasium.wrappers:{name}"
        kind = NAMED.get(name)
        if kind is None:
            return None
        if kind not in TRANSPARENT:
            rules = _clip_rules(rules, parse_wrapper(text)[1])
    return rules


def _is_registered(name: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether the table has this environment, and these are the arguments Gymnasium itself registers it with."""
    registered = gymnasium.registry.get(name)
    if name not in KNOWN or registered is None or not str(registered.entry_point).startswith("gymnasium.envs."):
        return False
    made = {**registered.kwargs, **arguments}
    if VECTORIZATION in made:
        if made.pop(VECTORIZATION) != "vector_entry_point" or name not in VECTORS:
            return False
        if registered.vector_entry_point != VECTORS[name]:
            return False
        # It ends rows by itself; what a step pays is the same.
        made.pop("max_episode_steps", None)
    return _without_rendering(made) == _without_rendering(registered.kwargs)


def _without_rendering(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that an environment is made with; rendering changes nothing."""
    return {name: value for name, value in arguments.items() if name != "render_mode"}


def _clip_rules(rules: Rules | None, arguments: Mapping[str, Any]) -> Rules | None:
    """Return the rules behind ClipReward; None where its ends are rounded.

    Rewards of 32 bits are clipped to the ends as 32 bits have them: -0.1 becomes a little less.
    """
    lower_end = arguments.get("min_reward")
    upper_end = arguments.get("max_reward")
    for end in (lower_end, upper_end):
        if end is not None and not _is_exact(end):
            return None
    low = _number_or(lower_end, -math.inf)
    high = _number_or(upper_end, math.inf)
    least, most = (rules or NOTHING).rewards
    least = min(max(_number_or(least, -math.inf), low), high)
    most = min(max(_number_or(most, math.inf), low), high)
    return Rules(
        # An episode may be short, so that 0 is among what a step adds.
        step=(_finite_or_none(min(least, 0.0)), _finite_or_none(max(most, 0.0))),
        proof=f"every reward is clipped to [{low:g}, {high:g}] (`ClipReward`)",
    )


def _number_or(end: float | None, other: float) -> float:
    if end is None:
        return other
    return float(end)


def _finite_or_none(end: float) -> float | None:
    if math.isfinite(end):
        return end
    return None


def _is_exact(end: Any) -> bool:
    """Return whether this is a number that 32 bits represent."""
    # Python counts True and False among the whole numbers.
    number = isinstance(end, int | float) and not isinstance(end, bool)
    return number and abs(end) <= float(np.finfo(np.float32).max) and float(np.float32(end)) == end
