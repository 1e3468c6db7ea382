"""The deployed agent: the certified policy with its own Gaussian noise, called like SB3's predict.

A certificate bounds an attacker who sees every past noise exactly, never the present one. The state of a
non-cryptographic generator (PCG64, Mersenne Twister) can be recovered from such a past, so deployed noise
comes from the operating system's generator instead.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from surefoot.agents.observation_parts import Floats, join_parts
from surefoot.agents.policies import Policy, Sigma, Spaces
from surefoot.agents.resolve import as_policy
from surefoot.errors import InputError
from surefoot.noise import Noise

State = tuple[NDArray[Any], ...]
Observation = ArrayLike | Mapping[str, Any]


class PredictableNoiseWarning(UserWarning):
    """The noise was given a seed: anyone who knows it can predict the noise, and then the certificate is void.

    >>> import surefoot, warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     agent = surefoot.smooth("cartpole-1-s0.2", sigma=0.2, seed=0)
    >>> caught[0].category.__name__
    'PredictableNoiseWarning'
    """


def smooth(agent: object, sigma: Sigma, spaces: Spaces | None = None, *, seed: int | None = None) -> SmoothedPolicy:
    """Return ``agent`` with Gaussian noise on every observation it is given, ready to be deployed.

    >>> import numpy as np, surefoot
    >>> agent = surefoot.smooth("cartpole-5-s0.2", sigma=0.2)
    >>> agent
    SmoothedPolicy(cartpole-5-s0.2, sigma=0.2, n_stack=5)
    >>> action, state = agent.predict(np.zeros(4))
    >>> action.shape, [part.shape for part in state]
    ((), [(1, 5, 4)])

    Args:
        agent: A Policy (``surefoot.as_policy`` makes one of any agent), or what ``surefoot.as_policy`` takes.
        sigma: Standard deviation of the noise, one number, one per feature, or one per part, ``{"camera": 0.1}``.
        spaces: What the environment gives and takes, such as ``task.spaces``: an SB3 model does not say whether it
            takes single observations or stacks of them, and functions and torch modules do not know their spaces.
        seed: For tests only: seeded noise voids the certificate, and a PredictableNoiseWarning says so.

    Raises:
        InputError: If there is no such agent, if it does not fit ``spaces``, or if its observations may be stacks.
    """
    return SmoothedPolicy(as_policy(agent, spaces), sigma, seed=seed)


class SmoothedPolicy:
    """A policy that adds fresh noise once to every observation and remembers the noisy observations.

    >>> import numpy as np, surefoot
    >>> agent = surefoot.SmoothedPolicy(surefoot.as_policy("cartpole-1-s0.2"), sigma=0.2)
    >>> actions, state = agent.predict(np.zeros((3, 4)))  # of three environments
    >>> agent.predict(np.zeros((3, 4)), state, episode_start=[False, True, False])[0].shape
    (3,)
    """

    def __init__(self, policy: Policy, sigma: Sigma, *, seed: int | None = None) -> None:
        if policy.may_be_stack:
            # Noise on a whole stack would draw fresh noise for old frames: another agent than the one that is
            # certified.
            raise InputError(
                f"the agent's observations {policy.spaces.shape} may be a stack of frames; say what one observation "
                "is with spaces=, or with as_policy(agent, n_stack=1) if this is one observation"
            )
        self.policy = policy
        self.noise = Noise.of(policy.spaces.sigma_of(sigma))
        self.sigma = self.noise.sigma
        self._spread = self.noise.over(policy.spaces.shape)
        self._normal = system_normal if seed is None else _seeded_normal(seed)
        self._state: tuple[Tensor, ...] | None = None
        # The thread, and the coroutine in it, that the state belongs to.
        self._user: object = None
        if self.sigma == 0:
            warnings.warn(
                "sigma is 0: no noise is added, and no certificate is about this agent",
                PredictableNoiseWarning,
                stacklevel=3,
            )

    def __getstate__(self) -> dict[str, Any]:
        # A copy belongs to no thread yet.
        return {**self.__dict__, "_user": None}

    def __repr__(self) -> str:
        noise = f"{self.sigma:g}"
        if self.noise.features is not None:
            noise = str(self.noise.features)
        return f"SmoothedPolicy({self.policy.name}, sigma={noise}, n_stack={self.policy.spaces.n_stack})"

    def reset(self) -> None:
        """Empty the memory; the next observation begins a new episode in every row."""
        self._state = None
        self._user = None

    def predict(
        self,
        observation: Observation,
        state: State | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = False,  # noqa: ARG002
    ) -> tuple[NDArray[Any], State]:
        """Return the action for one observation (shape) or rows of them (n, *shape), and the memory after it.

        Args:
            observation: Floats in the units that were certified, or uint8 pixels; a dict of them where the agent was
                made for observations in parts.
            state: Memory returned by an earlier call (frame stack, or state of a recurrent network; and the last action
                where the agent remembers it); without it the policy continues from its own last call. A call with a
                state does not change the policy's own memory.
            episode_start: Which rows begin a new episode: of them only the present noisy observation is remembered.
            deterministic: Accepted for the signature and ignored: the policy acts as it was certified (a stochastic one
                draws its actions), and the noise is always drawn.
        """
        rows, single = self._read_rows(observation)
        fresh = _begin_marks(episode_start, len(rows))
        before = self._own_state() if state is None else self._read_state(state)
        # Rounded to single precision once, after the noise: rounded before it, a perturbation could grow.
        seen = torch.from_numpy((rows + self._spread * self._normal(rows.shape)).astype(np.float32))
        memory, action = self._take_step(before, seen, fresh)
        after = (memory, action) if self.policy.memory.has_action else (memory,)
        if state is None:
            self._state = after
        kept = tuple(part.numpy().copy() for part in after)
        actions = action.numpy()
        if single:
            actions = actions.squeeze(0)
        return actions, kept

    def _own_state(self) -> tuple[Tensor, ...] | None:
        """Return the state after the last call; two threads with one state would see each other's observations."""
        here = _current_user()
        if self._user not in (None, here):
            raise InputError(
                "this agent is used by another thread or coroutine; give each an agent of its own, or pass the state "
                "that predict returns, or call reset() when the other one is done"
            )
        self._user = here
        return self._state

    def _take_step(self, before: tuple[Tensor, ...] | None, seen: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
        """Return memory and action after one more noisy observation."""
        if before is not None and not bool(fresh.all()) and len(before[0]) != len(seen):
            raise InputError(
                f"expected {len(before[0])} rows as in the last call, got {len(seen)}; "
                "call reset(), or mark every row with episode_start"
            )
        if before is None or bool(fresh.all()):
            before = (self.policy.memory.empty(seen),)
            fresh = torch.ones_like(fresh)
        device = next(self.policy.network.parameters(), seen).device
        memory = before[0].to(device)
        action = before[1].to(device) if len(before) > 1 else None
        with torch.no_grad():
            memory = self.policy.memory.advance(memory, seen.to(device), action, fresh.to(device))
            return memory.cpu(), self.policy.act(memory).cpu()

    def _read_rows(self, observation: Observation) -> tuple[NDArray[np.float64], bool]:
        """Return the observations as rows of floats in declared units, and whether a single one came."""
        shape = self.policy.spaces.shape
        values = self._read_floats(observation)
        single = values.shape == shape
        if not single and (values.ndim != len(shape) + 1 or values.shape[1:] != shape or len(values) == 0):
            raise InputError(f"expected an observation of shape {shape}, or rows (n, *{shape}), got {values.shape}")
        sizes = np.abs(values)
        if self.noise.features is not None:
            # Features without noise are infinitely large in these units; nothing is claimed of them.
            with np.errstate(divide="ignore", invalid="ignore"):
                sizes = sizes / self._spread
        largest = float(sizes[np.isfinite(sizes)].max(initial=0.0))
        self.noise.check_observed(largest, is_double=values.dtype == np.float64)
        if single:
            values = values[None]
        return values.astype(np.float64), single

    def _read_floats(self, observation: Observation) -> Floats:
        """Return an observation, or rows of them, as one array of floats in declared units, in their precision."""
        parts = self.policy.spaces.parts
        if parts is not None and isinstance(observation, (Mapping, tuple)):
            return join_parts(observation, parts, lambda part: _floats(part, pixels=np.ndim(part) > 1))
        return _floats(observation, pixels=len(self.policy.spaces.shape) > 1)

    def _read_state(self, state: State) -> tuple[Tensor, ...]:
        """Return a state that was passed in, checked to be one of this agent's."""
        own = self.policy.memory
        expected = tuple(own.empty(torch.empty(1, *self.policy.spaces.shape)).shape[1:])
        parts: State = ()
        if isinstance(state, tuple) and len(state) == 1 + own.has_action:
            parts = state
        shapes = [np.shape(part) for part in parts]
        if not shapes or shapes[0][1:] != expected or len({shape[:1] for shape in shapes}) > 1:
            raise InputError(
                f"state must be the tuple an earlier predict returned, with an array (n, *{expected})"
                f"{' and the last actions' if self.policy.memory.has_action else ''}, "
                f"got {' and '.join(map(str, shapes)) or type(state).__name__}"
            )
        if not all(_is_whole(part) for part in parts):
            raise InputError("state must be the tuple an earlier predict returned, got NaN, infinities or other things")
        memory, *action = (torch.from_numpy(np.array(part)) for part in parts)
        return (memory.float(), *action)


def _current_user() -> tuple[object, object]:
    """Return the thread, and the coroutine that runs in it, as objects: their numbers are given to others later."""
    task = None
    # Without asyncio there are no coroutines to tell apart.
    if "asyncio" in sys.modules:
        # Raised where no coroutine runs.
        with suppress(RuntimeError):
            task = sys.modules["asyncio"].current_task()
    return threading.current_thread(), task


def _is_whole(part: ArrayLike) -> bool:
    """Return whether all entries of a state are there, and are finite numbers."""
    values = np.asarray(part)
    return values.dtype.kind in "iuf" and not np.ma.is_masked(part) and bool(np.isfinite(values).all())


def system_normal(shape: int | tuple[int, ...]) -> NDArray[np.float64]:
    """Return standard normal samples from ``os.urandom``, unpredictable even to anyone who knows all earlier ones.

    Uniforms are odd multiples of 2**-53, so they lie strictly inside (0, 1), symmetric about 1/2; the normal
    distribution is cut at 8.2 standard deviations, a mass below 2**-51.
    """
    count = int(np.prod(shape))
    words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    # An odd numerator fits the 53 bits of a float; adding a half would round the largest one up to exactly 1.
    uniforms = ((words >> np.uint64(11)) | np.uint64(1)) * 2.0**-53
    return np.asarray(torch.special.ndtri(torch.from_numpy(uniforms)), dtype=np.float64).reshape(shape)


def _seeded_normal(seed: int) -> Callable[[tuple[int, ...]], NDArray[np.float32]]:
    warnings.warn(
        f"the noise is seeded with {seed}: the certificate is void if an attacker can predict the noise; "
        "omit seed when deploying",
        PredictableNoiseWarning,
        stacklevel=4,
    )
    # The seed's first child, as play.streams lists it: env.reset(seed=seed) draws from the seed as it is.
    generator = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    return lambda shape: generator.standard_normal(shape, dtype=np.float32)


def _floats(observation: Observation, *, pixels: bool) -> Floats:
    """Return floats in declared units and in their precision, single or double.

    Whole numbers other than pixels are rejected: a guess would change the units.

    Where an observation may be a picture (``pixels``), bytes are divided by 255.
    """
    if isinstance(observation, (dict, tuple)):
        raise InputError(
            f"expected an observation as one array, got a {type(observation).__name__}; "
            "env.reset() of gymnasium returns (observation, info)"
        )
    if np.ma.is_masked(observation):
        raise InputError("observation has masked entries; fill them in with what the agent was certified with")
    values = np.asarray(observation)
    if values.dtype == np.uint8 and not pixels:
        raise InputError(
            "expected floats, got a vector of uint8; divide by 255 if these are pixels that were certified as such, "
            "else turn them into floats"
        )
    if values.dtype == np.uint8:
        # In single precision, as they were certified.
        return values.astype(np.float32) / np.float32(255)
    if not np.issubdtype(values.dtype, np.floating):
        raise InputError(f"expected float observations or uint8 pixels, got {values.dtype}; turn them into floats")
    with np.errstate(over="ignore"):
        finite = np.isfinite(values.astype(np.float32)).all()
    if not finite:
        raise InputError("observation contains NaN or infinity; check the environment or sensor that produced it")
    if values.dtype.itemsize <= 4:
        return values.astype(np.float32)
    return values.astype(np.float64)


def _begin_marks(episode_start: ArrayLike | None, rows: int) -> Tensor:
    if episode_start is None:
        return torch.zeros(rows, dtype=torch.bool)
    marks = np.atleast_1d(np.asarray(episode_start, dtype=bool))
    if marks.shape != (rows,):
        raise InputError(f"episode_start must have one entry per observation ({rows}), got shape {marks.shape}")
    return torch.from_numpy(marks.copy())
