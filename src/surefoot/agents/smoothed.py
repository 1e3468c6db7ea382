"""The deployed agent: the certified policy with its own Gaussian noise, called like SB3's predict.

A certificate bounds an attacker who sees every past noise exactly, never the present one. The state of a
non-cryptographic generator (PCG64, Mersenne Twister) can be recovered from such a past, so deployed noise
comes from the operating system's generator instead.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from torch import Tensor

from surefoot.agents.policies import FrameStack, Policy, from_callable
from surefoot.agents.sb3 import read as sb3
from surefoot.episodes import parted_sigma
from surefoot.errors import InputError
from surefoot.play.channel import feature_table

State = tuple[NDArray[np.float32], ...]


class PredictableNoiseWarning(UserWarning):
    """The noise was given a seed: who knows it can predict the noise, and then the certificate is void."""


def smooth(
    agent: Any,
    sigma: float | Sequence[float],
    *,
    frames: int | None = None,
    shape: tuple[int, ...] | None = None,
    choices: int | None = None,
    seed: int | None = None,
) -> SmoothedPolicy:
    """Return ``agent`` behind noise of standard deviation ``sigma``, one or one per feature, ready to be deployed.

    ``agent``    a Policy, a Stable-Baselines3 model, an SB3 ``.zip`` path, a name or path the zoo knows,
                 or a function of one observation (needs ``shape``, and ``choices`` for discrete actions)
    ``frames``   how many observations the agent stacks, where its file cannot tell
    ``shape``    shape of one observation of the environment; it tells the frames as well
    ``choices``  number of discrete actions of a function; None when its actions are continuous
    ``seed``     for tests only: seeded noise voids the certificate, and a PredictableNoiseWarning says so
    """
    policy = _policy_of(agent, shape, choices, frames)
    stored = hasattr(agent, "predict") or str(agent).endswith(".zip")
    if stored and shape is None and frames is None and policy.frames == 1 and len(policy.shape) == 2:
        # Noise on a whole stack would renew the noise of old frames: another agent than the one that is certified.
        raise InputError(
            f"the agent's observations {policy.shape} may be a stack of frames; say what one observation is: "
            f"shape={policy.shape[1:]} for a stack of {policy.shape[0]}, or frames=1 if this is one observation"
        )
    if choices is not None and choices != policy.choices:
        raise InputError(f"the agent chooses among {policy.choices} actions, got choices={choices}")
    return SmoothedPolicy(_framed(policy, frames, shape), sigma, seed=seed)


class SmoothedPolicy:
    """A policy that adds fresh noise once to every observation and remembers observations as it saw them."""

    def __init__(self, policy: Policy, sigma: float | Sequence[float], *, seed: int | None = None) -> None:
        self.policy = policy
        self.sigma, self.features = parted_sigma(sigma)
        self._spread = (
            np.float32(self.sigma) if self.features is None else feature_table(self.features, policy.shape).numpy()
        )
        self._normal = system_normal if seed is None else _seeded_normal(seed)
        self._history: Tensor | None = None

    def __repr__(self) -> str:
        noise = f"{self.sigma:g}" if self.features is None else str(self.features)
        return f"SmoothedPolicy({self.policy.name}, sigma={noise}, frames={self.policy.frames})"

    def reset(self) -> None:
        """Forget everything seen; the next observation begins a new episode in every row."""
        self._history = None

    def predict(
        self,
        observation: ArrayLike,
        state: State | None = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = False,  # noqa: ARG002
    ) -> tuple[NDArray[Any], State]:
        """Return the action for one observation (shape) or rows of them (n, *shape), and the memory after it.

        ``state``          memory from an earlier call; without it the policy goes on from its own last call.
                           A call with a state leaves the policy's own memory alone
        ``episode_start``  which rows begin a new episode: their memory is filled with what they now see
        ``deterministic``  accepted for the signature and ignored: the policy under the noise is always
                           deterministic and the noise is always drawn, for that is what was certified
        """
        rows, single = self._rows(observation)
        fresh = _fresh(episode_start, len(rows))
        before = self._history if state is None else self._memory(state)
        seen = torch.from_numpy(rows + self._spread * self._normal(rows.shape))
        history = self._remember(before, seen, fresh)
        if state is None:
            self._history = history
        actions = self._act(history)
        return (actions.squeeze(0) if single else actions), (history.numpy().copy(),)

    def _act(self, history: Tensor) -> NDArray[Any]:
        weights = next(self.policy.network.parameters(), history)
        with torch.no_grad():
            return np.asarray(self.policy.act(history.to(weights.device)).cpu().numpy())

    def _remember(self, before: Tensor | None, seen: Tensor, fresh: Tensor) -> Tensor:
        stack = FrameStack(self.policy.frames)
        if before is None or bool(fresh.all()):
            return stack.fill(seen)
        if len(before) != len(seen):
            raise InputError(
                f"expected {len(before)} rows as in the last call, got {len(seen)}; "
                "call reset(), or mark every row with episode_start"
            )
        stack.history = before
        return stack.push(seen, fresh if bool(fresh.any()) else None)

    def _rows(self, observation: ArrayLike) -> tuple[NDArray[np.float32], bool]:
        """Return the observations as rows of floats in declared units, and whether a single one came."""
        shape = self.policy.shape
        values = _floats(observation)
        single = values.shape == shape
        if not single and (values.ndim != len(shape) + 1 or values.shape[1:] != shape or len(values) == 0):
            raise InputError(f"expected an observation of shape {shape}, or rows (n, *{shape}), got {values.shape}")
        return (values[None] if single else values), single

    def _memory(self, state: State) -> Tensor:
        expected = (self.policy.frames, *self.policy.shape)
        found = np.shape(state[0]) if isinstance(state, tuple) and len(state) == 1 else None
        if found is None or found[1:] != expected:
            raise InputError(
                f"state must be the tuple an earlier predict returned, with one array (n, *{expected}), got "
                f"{type(state).__name__ if found is None else found}"
            )
        return torch.from_numpy(np.array(state[0], dtype=np.float32))


def system_normal(shape: int | tuple[int, ...]) -> NDArray[np.float32]:
    """Return standard normal draws from ``os.urandom``, unpredictable even to who knows all earlier ones.

    Uniforms are odd multiples of 2**-53, so they lie strictly inside (0, 1), symmetric about 1/2; the normal
    law is cut at 8.2 standard deviations, a mass below 2**-51.
    """
    count = int(np.prod(shape))
    words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    # An odd numerator fits the 53 bits of a float; adding a half would round the largest one up to exactly 1.
    uniforms = ((words >> np.uint64(11)) | np.uint64(1)) * 2.0**-53
    return np.asarray(ndtri(uniforms), dtype=np.float32).reshape(shape)


def _seeded_normal(seed: int) -> Callable[[tuple[int, ...]], NDArray[np.float32]]:
    warnings.warn(
        f"the noise is seeded with {seed}: the certificate is void if the adversary can predict the noise; "
        "leave seed out when deploying",
        PredictableNoiseWarning,
        stacklevel=4,
    )
    generator = np.random.default_rng(seed)
    return lambda shape: generator.standard_normal(shape, dtype=np.float32)


def _floats(observation: ArrayLike) -> NDArray[np.float32]:
    """Return float32 units; integers other than uint8 pixels are refused: a guess would change the units."""
    if isinstance(observation, (dict, tuple)):
        raise InputError(
            f"expected an observation as one array, got a {type(observation).__name__}; "
            "env.reset() of gymnasium returns (observation, info)"
        )
    values = np.asarray(observation)
    if values.dtype == np.uint8:
        return values.astype(np.float32) / np.float32(255)
    if not np.issubdtype(values.dtype, np.floating):
        raise InputError(f"expected float observations or uint8 pixels, got {values.dtype}; turn them into floats")
    with np.errstate(over="ignore"):
        values = values.astype(np.float32)
    if not np.isfinite(values).all():
        raise InputError("observations must be finite, got NaN or infinity; mend the environment or the sensor")
    return values


def _fresh(episode_start: ArrayLike | None, rows: int) -> Tensor:
    if episode_start is None:
        return torch.zeros(rows, dtype=torch.bool)
    marks = np.atleast_1d(np.asarray(episode_start, dtype=bool))
    if marks.shape != (rows,):
        raise InputError(f"episode_start must have one entry per observation ({rows}), got shape {marks.shape}")
    return torch.from_numpy(marks.copy())


def _policy_of(agent: Any, shape: tuple[int, ...] | None, choices: int | None, frames: int | None) -> Policy:
    if isinstance(agent, Policy):
        return agent
    if isinstance(agent, SmoothedPolicy):
        raise InputError("the agent is smoothed already; smooth the policy below it (agent.policy)")
    if isinstance(agent, (str, Path)):
        if str(agent).endswith(".zip"):
            return sb3.read_zip(agent)
        from surefoot.agents import files as zoo

        return zoo.load(str(agent))
    if hasattr(agent, "policy") and hasattr(agent, "predict"):
        return sb3.from_model(agent)
    if not callable(agent):
        raise InputError(
            "agent must be a Policy, an SB3 model, a path, a zoo name or a function of one observation, "
            f"got {type(agent).__name__}"
        )
    if shape is None:
        raise InputError(
            "a function needs the shape of one observation: smooth(function, sigma, shape=(4,), choices=2)"
        )
    chosen = agent if choices is not None else _continuous(agent)
    return from_callable(chosen, shape=tuple(shape), choices=choices, frames=frames or 1)


def _continuous(function: Callable[[NDArray[Any]], Any]) -> Callable[[NDArray[Any]], Any]:
    """Guard against the likeliest mistake: a function of discrete actions without their number."""

    def checked(seen: NDArray[Any]) -> Any:
        action = np.asarray(function(seen))
        if not np.issubdtype(action.dtype, np.floating):
            raise InputError(
                f"the function returned {action.tolist()} where float actions were expected; "
                "give choices=, the number of discrete actions"
            )
        return action

    checked.__name__ = getattr(function, "__name__", type(function).__name__)
    return checked


def _framed(policy: Policy, frames: int | None, shape: tuple[int, ...] | None) -> Policy:
    """Return the policy over single observations, as far as ``shape`` or ``frames`` tell what one is."""
    if shape is None and frames is not None and policy.frames == 1 and frames > 1:
        shape = sb3.single_shape(policy.shape, frames)
    fitted = policy if shape is None else sb3.fit_to(policy, tuple(shape))
    if frames is not None and frames != fitted.frames:
        raise InputError(f"the agent remembers {fitted.frames} observations, got frames={frames}")
    return fitted
