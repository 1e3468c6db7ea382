"""Tasks made of any Gymnasium environment, and what has to be said about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import gymnasium

from surefoot.agents.policies import Spaces
from surefoot.episodes import LIMITS, check_return_limits
from surefoot.errors import InputError
from surefoot.play.envs.cartpole import CartPole, is_cartpole
from surefoot.play.envs.flat import FlatAction, FlatObservation, flatten_env
from surefoot.play.envs.gymnasium_env import Gymnasium
from surefoot.play.envs.source import Source, step_limit
from surefoot.play.envs.trial import check_made_again, check_seeded
from surefoot.play.envs.vector import OneRow, Simulators, Vector
from surefoot.play.envs.vector_trial import check_simulator
from surefoot.play.floors import DOCS, KNOWN, NOTHING, Rules, known_rules, named_rules, of_rewards
from surefoot.play.task import Backend, BaselineSearch, Blocks, PaperSetup, Scoring, Task
from surefoot.play.tasks import TENSOR_BLOCKS, check_discount, discounted, get_task, tensors
from surefoot.play.workers import run_apart
from surefoot.provenance import find_page


def make_task(
    env: object,
    *,
    floor: float | None = None,
    ceiling: float | None = None,
    reward_range: tuple[float, float] | None = None,
    n_stack: int = 1,
    max_steps: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | Callable[[Any], Any]] = (),
    env_modules: Sequence[str] = (),
    success: str | Callable[..., Any] | None = None,
    feature_units: str | Mapping[str, str] | None = None,
    step_seconds: float | None = None,
) -> Task:
    """Create a certification task from a Gymnasium environment.

    Args:
        env: A Gymnasium ID, ``module:factory``, an environment with a spec, or a class or function that makes one. A
            vector environment (``gymnasium.vector.VectorEnv``) too: an ID that has only a vector entry point, or a
            class or function that takes ``num_envs``.
            Observations in parts (Dict, Tuple) become one vector, actions in parts (MultiDiscrete, MultiBinary) one
            number.
        floor: Lowest return the rules allow, not the lowest observed: a floor that is too high makes the bound false.
            By default that of ``reward_range``, or of a known environment (see the guide to floor and ceiling). Where
            no rules prove it, certificates say that the user stated it.
        ceiling: Highest return the rules allow; by default as the floor. None if unknown (the mean then has no upper
            bound).
        reward_range: Lowest and highest reward of every step; times the step limit it gives floor and ceiling.
        n_stack: How many observations a function is given as an agent; other agents bring their own number.
        max_steps: Maximum episode length; required if the environment does not define one.
        env_kwargs: What else the environment is made with.
        wrappers: Applied to the environment in this order: functions of it, or ``module:Class={"argument": 1}``.
        env_modules: Modules to import first, which register IDs.
        success: What makes an episode a success: a function of what ``step`` returns, ``module:function`` of one, or
            the key of an info that says it. The return is then 1 for an episode that met it at any of its steps, else
            0. Of a vector environment the function takes all rows and answers for each.
        feature_units: The unit of the observations, or of each part that has one, such as ``{"position": "m"}``.
            Certificates and reports then say what a budget is in it.
        step_seconds: How long a step takes, for durations in seconds; with ``feature_units`` by default what the
            environment says (``dt``, or ``render_fps`` in its metadata).

    Raises:
        InputError: If ``ceiling`` is not above ``floor``, if they claim more than the rules of a known environment
            prove, or if floor or episode length are unknown.

    Examples:
        >>> import surefoot
        >>> surefoot.make_task("Acrobot-v1")
        <Task Acrobot-v1: observations of shape (6,), 3 actions, floor -500, ceiling 0, at most 500 steps>
        >>> surefoot.make_task("CartPole-v1", max_steps=100).scoring.ceiling
        100.0

        An event as the return: the pole still stands after 100 steps.

        >>> stands = lambda seen, reward, terminated, truncated, info: truncated and not terminated
        >>> surefoot.make_task("CartPole-v1", max_steps=100, success=stands).scoring.binary
        True
    """
    source = Source.of(
        env,
        kwargs=dict(env_kwargs or {}),
        wrappers=tuple(wrappers),
        modules=tuple(env_modules),
        max_steps=max_steps,
        success=success,
    )
    facts = inspect(source, reward_range=reward_range)
    missing = facts.missing(floor)
    if missing:
        raise InputError(f"{source.name} needs {'; and '.join(missing)}")
    task = facts.task(floor=floor, ceiling=ceiling, n_stack=n_stack)
    task = facts.with_units(task, feature_units, step_seconds)
    if isinstance(env, gymnasium.Env):
        check_made_again(source.name, flatten_env(source.name, env), Source.of(env).open)
    return task


def task_of_card(card: Mapping[str, Any]) -> Task:
    """Return what an agent was trained on, as its model card says: a task, or an environment with its limits.

    The card may name wrappers and modules, which are imported: it has to be one that you trust.
    """
    made = card.get("environment")
    if made is None:
        return get_task(card["task"])
    return make_task(
        made["env"],
        floor=made["floor"],
        ceiling=made["ceiling"],
        max_steps=made["max_steps"],
        env_kwargs=made.get("env_kwargs"),
        wrappers=made.get("wrappers", ()),
        env_modules=made.get("env_modules", ()),
        success=made.get("success"),
    )


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """What an environment says about itself."""

    source: Source  # how it is made
    spaces: Spaces  # its observations and actions
    max_steps: int | None  # after how many steps episodes are cut off, None if never
    proved: Rules | None  # how low and high its rewards can be, as its rules prove it; None if they prove nothing
    reward_range: tuple[float, float] | None  # the range of every reward that was given
    is_known: bool  # whether it is an environment of Gymnasium whose rules are known, as it is registered
    is_cartpole: bool  # whether it is exactly the CartPole that is also written as tensors
    is_vector: bool  # whether it is a vector simulator, which steps many rows at once
    step_seconds: float | None  # how long a step takes, if it says so

    @property
    def rules(self) -> Rules | None:
        """How low and high its rewards can be: the range that was given, else what is proved."""
        if self.reward_range is not None:
            return of_rewards(*self.reward_range)
        return self.proved

    def missing(self, floor: float | None) -> list[str]:
        """Return what has to be given, each with the way to find it."""
        wanted = []
        if self.max_steps is None:
            wanted.append("max_steps=N (it has no step limit, so an episode might never end)")
        if floor is None and (self.rules is None or self.rules.step[0] is None):
            why = ""
            if self.rules is not None:
                why = f"none can be proved, because {self.rules.proof}; clip rewards or certify success, "
            wanted.append(
                "floor=F, the lowest return its rules allow, or reward_range=(LOW, HIGH), the range of every reward "
                f"({why}see {find_page(DOCS)})"
            )
        return wanted

    def limits(self, gamma: float | None = None) -> tuple[float | None, float | None]:
        """Return floor and ceiling where none are given, of the discounted return if there is a discount."""
        assert self.max_steps is not None
        if self.rules is None:
            return None, None
        return self.rules.limits(self.max_steps, gamma)

    def task(self, *, floor: float | None, ceiling: float | None, n_stack: int = 1, gamma: float | None = None) -> Task:
        """Return the task, with the floor and ceiling of the rules where none is given."""
        assert self.max_steps is not None
        condition = self.source.condition
        if condition is not None and (floor not in (None, 0.0) or ceiling not in (None, 1.0) or self.reward_range):
            raise InputError(
                f"success={condition.name!r} makes every return 0 or 1; leave out floor=, ceiling= and reward_range="
            )
        if gamma is not None:
            check_discount(gamma)
        low, high = self.limits(gamma)
        if floor is not None:
            low = floor
        if ceiling is not None:
            high = ceiling
        assert low is not None
        check_return_limits(low, high)
        stated = self._stated_limits(low, high, gamma)
        make = replace(self.source, max_steps=self.max_steps).open
        # Gymnasium's own, made as they are registered, need no trial.
        if not self.is_known and not self.is_vector:
            check_seeded(self.source.name, make)
        rewards = None
        if self.rules is not None:
            rewards = self.rules.reward_range
        backend = Backend(batch=partial(Gymnasium, make, reward_range=self.reward_range), open=make)
        blocks = Blocks()
        if self.is_vector:
            simulators = Simulators(self.source.open_rows)
            check_simulator(self.source.name, simulators, self.max_steps)
            batch = partial(
                Vector, simulators, max_steps=self.max_steps, reward_range=self.reward_range, condition=condition
            )
            backend = Backend(batch=batch, open=make, fixed_rows=True)
            # Rows wait for the last of a block, which is why each runs one episode of it only.
            blocks = Blocks(n_envs=512, episodes_per_env=1, gpu_n_envs=4_096)
        baseline_search = BaselineSearch(n_search=32, n_measure=400)
        if self.is_cartpole:
            # The same rules as tensors are twenty times as fast.
            backend = tensors(partial(CartPole, max_steps=self.max_steps), make)
            # Agents that come with an environment of their own choice are mostly small networks over one observation.
            blocks = replace(TENSOR_BLOCKS, n_envs=1_000)
        made = Task(
            name=self.source.title,
            environment=self.source.name,
            made_with=self.source.setup,
            spaces=replace(self.spaces, n_stack=n_stack),
            scoring=Scoring(
                max_steps=self.max_steps,
                floor=low,
                ceiling=high,
                reward_range=rewards,
                binary=condition is not None,
                stated=stated,
            ),
            backend=backend,
            blocks=blocks,
            paper=PaperSetup(),
            baseline_search=baseline_search,
        )
        if gamma is None:
            return made
        return discounted(made, gamma, limits=(low, high))

    def with_units(
        self, task: Task, feature_units: str | Mapping[str, str] | None, step_seconds: float | None = None
    ) -> Task:
        """Return the task with names and units of its features, and with how long a step takes."""
        if step_seconds is not None and not 0 < step_seconds < inf:
            raise InputError(f"step_seconds= must be a number above 0, got {step_seconds}")
        if feature_units is None:
            return replace(task, features=self.spaces.named_parts(), step_seconds=step_seconds)
        return replace(
            task,
            features=self.spaces.features_of(feature_units),
            step_seconds=step_seconds or self.step_seconds,
        )

    def _stated_limits(self, floor: float, ceiling: float | None, gamma: float | None) -> tuple[str, ...]:
        """Return which limits nothing proves, after refusing those that claim more than the rules prove."""
        assert self.max_steps is not None
        proved = self.proved or NOTHING
        least, most = proved.limits(self.max_steps, gamma)
        low, high = (self.rules or NOTHING).rewards
        self._refuse_above("a reward range from", "rewards", low, proved.rewards[0])
        self._refuse_below("a reward range to", "rewards", high, proved.rewards[1])
        tight_floor, tight_ceiling = proved.tightest(self.max_steps, gamma)
        self._refuse_above("floor", "returns", floor, tight_floor)
        self._refuse_below("ceiling", "returns", ceiling, tight_ceiling)
        unproved = {"floor": least is None, "ceiling": most is None, "reward_range": proved.reward_range is None}
        return tuple(name for name in LIMITS if unproved[name])

    def _refuse_above(self, what: str, of: str, claimed: float | None, proved: float | None) -> None:
        if claimed is not None and proved is not None and claimed > proved:
            raise self._too_much(f"{what} {claimed:.12g}", f"{of} down to {proved:.9g}", f"at most {proved:.9g}")

    def _refuse_below(self, what: str, of: str, claimed: float | None, proved: float | None) -> None:
        if claimed is not None and proved is not None and claimed < proved:
            raise self._too_much(f"{what} {claimed:.12g}", f"{of} up to {proved:.9g}", f"at least {proved:.9g}")

    def _too_much(self, claim: str, allowed: str, possible: str) -> InputError:
        assert self.proved is not None
        return InputError(
            f"{claim} claims more than the rules of {self.source.title} prove, which allow {allowed} "
            f"({self.proved.proof}); leave it out, or give {possible}"
        )


def inspect(source: Source, *, reward_range: tuple[float, float] | None = None) -> Inspected:
    """Open an environment once, in a process of its own, and return what it says about itself."""
    facts = run_apart(f"opening {source.name}", _inspect_opened, source)
    # In this process too, from which workers are forked.
    source.load()
    return Inspected(source=source, reward_range=reward_range, **facts)


def _inspect_opened(source: Source, _: int) -> dict[str, Any]:
    """Return what an environment says about itself, by the names of ``Inspected``."""
    opened = source.open()
    try:
        _check_resets(opened)
        # A function may have changed the rules behind an environment's back, so its names must say the same.
        made = source.setup
        named = named_rules(
            source.name,
            env_kwargs=made.get("env_kwargs"),
            wrappers=made.get("wrappers", ()),
            env_modules=made.get("env_modules", ()),
            success=made.get("success"),
        )
        pays_success = source.condition is not None
        # Both must agree: what a setup names is not always what is made of it, and a record has the names only.
        proved = None
        if pays_success or named == known_rules(opened, FlatObservation):
            proved = named
        is_known = proved is not None and source.name in KNOWN and not pays_success
        return {
            "spaces": _read_spaces(opened),
            "max_steps": step_limit(opened),
            "proved": proved,
            "is_known": is_known,
            "is_cartpole": is_known and is_cartpole(opened),
            "is_vector": isinstance(opened.unwrapped, OneRow),
            "step_seconds": _read_step_seconds(opened.unwrapped),
        }
    finally:
        opened.close()


def _read_step_seconds(environment: Any) -> float | None:
    """Return how long a step takes, as far as an environment says it."""
    if isinstance(environment, OneRow):
        environment = environment.simulator.unwrapped
    seconds = getattr(environment, "dt", None)
    rate = getattr(environment, "freq", None) or (environment.metadata or {}).get("render_fps")
    if seconds is None and isinstance(rate, int | float) and rate > 0:
        seconds = 1 / rate
    if not isinstance(seconds, int | float) or not 0 < seconds < inf:
        return None
    return float(seconds)


def _check_resets(environment: Any) -> None:
    """Refuse SB3's wrapper whose reset goes on with a game after a lost life: such episodes depend on each other."""
    layer = environment
    while isinstance(layer, gymnasium.Wrapper):
        if type(layer).__name__ == "EpisodicLifeEnv":
            raise InputError(
                "EpisodicLifeEnv does not reset the game after a lost life, so its episodes are not independent; give "
                "wrappers=['stable_baselines3.common.atari_wrappers:AtariWrapper={\"terminal_on_life_loss\": false}']"
            )
        layer = layer.env


def _read_spaces(environment: Any) -> Spaces:
    shape = tuple(environment.observation_space.shape)
    space = environment.action_space
    layer = environment
    factors = None
    if isinstance(environment, FlatAction):
        layer = environment.env
        factors = environment.factors
    parts = None
    if isinstance(layer, FlatObservation):
        parts = tuple((part.name, part.size) for part in layer.parts)
    pixels = str(environment.observation_space.dtype) == "uint8"
    if hasattr(space, "n"):
        first = int(space.start)
        common = Spaces(shape=shape, n_actions=int(space.n), factors=factors, parts=parts, pixels=pixels)
        return replace(common, first_action=first)
    low = tuple(space.low.ravel().tolist())
    high = tuple(space.high.ravel().tolist())
    return Spaces(shape=shape, n_actions=None, low=low, high=high, parts=parts, pixels=pixels)
