"""Anything that names or is an agent, as a policy: one set of rules for certifying, attacking, smoothing, verifying."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.files import find_card, list_agents, load
from surefoot.agents.networks import CNN, MLP, Squashed
from surefoot.agents.normalization import Normalized
from surefoot.agents.policies import Policy, Spaces, from_callable
from surefoot.errors import InputError


def resolve(
    agent: object, spaces: Spaces | None = None, *, allow_pickle: bool = False, vecnormalize: object = None
) -> Policy:
    """Return the policy that ``agent`` names or is, fitted to the spaces of an environment.

    Every kind of agent is fitted by the same rules. Its observations must have the shape of the environment's, or be a
    stack of them, which then becomes the policy's frame stack. Its actions must be the environment's, with the same
    bounds: clipping to others would make it another agent. A stack size belongs to the agent; ``spaces.n_stack`` says
    only what a function is given.

    Args:
        agent: A name or path (a string ending in ``.zip`` is an SB3 model file, a folder with one is a published
            agent, anything else is looked up by ``files.find_card``: a pretrained agent first, then the file system), a
            live SB3 model, a Policy, or a function of one observation (of the stack of them where ``spaces.n_stack`` is
            above 1).
        spaces: What the environment gives and takes; without it nothing is fitted and functions are rejected.
        allow_pickle: Let Stable-Baselines3 unpickle a model file, which may execute code from it.
        vecnormalize: The statistics by which an SB3 model's observations are normalized: a file, a live VecNormalize,
            or "none". By default those of a live model's environment, or those that lie where its author's tools put
            them; a model file with others near it is rejected.

    Raises:
        InputError: If there is no such agent, or it does not fit.
    """
    path = locate(agent) if isinstance(agent, str | Path) else None
    stored = path is not None and (path.suffix == ".zip" or path.is_dir())
    if vecnormalize is not None and not stored and not is_sb3_model(agent):
        raise InputError("statistics of VecNormalize go with an SB3 model or its file; leave --vecnormalize out")
    if path is not None and stored:
        from surefoot.agents.sb3.read import read_agent

        read = read_agent(path, allow_pickle=allow_pickle, spaces=spaces, vecnormalize=vecnormalize)
        return _fitted(read, spaces, first_action=0)
    if isinstance(agent, str | Path):
        return _fitted(load(str(agent)), spaces)
    if isinstance(agent, Policy):
        return _fitted(agent, spaces)
    if is_sb3_model(agent):
        from surefoot.agents.sb3.read import from_model

        return _fitted(from_model(agent, vecnormalize=vecnormalize), spaces, first_action=0)
    if not is_function(agent):
        smoothed = isinstance(getattr(agent, "policy", None), Policy)
        raise InputError(
            "agent must be a name, a path, an SB3 model, a Policy or a function of one observation, "
            f"got {type(agent).__name__}{'; smooth the policy inside it, agent.policy' if smoothed else ''}"
        )
    if spaces is None:
        raise InputError(
            "a function needs the shape of one observation: smooth(function, sigma, shape=(4,), n_actions=2)"
        )
    # A space of continuous actions has bounds; where there are none, the number of actions may have been forgotten.
    chosen = agent if spaces.n_actions is not None or spaces.low is not None else _continuous(agent)
    return from_callable(chosen, shape=spaces.shape, n_actions=spaces.n_actions, n_stack=spaces.n_stack)


def locate(agent: str | Path) -> Path:
    """Return the SB3 model file or its folder, or the model card that a name or path means, or raise InputError."""
    if not str(agent).endswith(".zip"):
        published = str(agent) not in list_agents() and is_published(Path(agent))
        return Path(agent) if published else find_card(str(agent))
    if not Path(agent).exists():
        raise InputError(f"no file {agent}")
    return Path(agent)


def is_published(path: Path) -> bool:
    """Return whether a folder holds an SB3 model file rather than an agent of ours."""
    return (
        path.is_dir()
        and not (path / "agent.json").exists()
        and any(any(path.glob(pattern)) for pattern in ("*.zip", "*/*.zip", "*/*/*.zip"))
    )


def is_sb3_model(agent: object) -> bool:
    """Return whether ``agent`` is a live Stable-Baselines3 model."""
    return all(hasattr(agent, name) for name in ("policy", "predict", "observation_space"))


def is_function(agent: object) -> TypeGuard[Callable[[NDArray[Any]], Any]]:
    """Return whether ``agent`` is a plain function of one observation."""
    return callable(agent) and not isinstance(agent, Policy) and not is_sb3_model(agent)


def _fitted(policy: Policy, spaces: Spaces | None, first_action: int | None = None) -> Policy:
    if spaces is None:
        return policy
    check_actions(policy, spaces, first_action=first_action)
    return fit_to(policy, spaces.shape)


def fit_to(policy: Policy, shape: tuple[int, ...]) -> Policy:
    """Return the policy for an environment whose one observation has ``shape``; a stack becomes its frames.

    A file says only which shape it was trained on: (k, *shape) is read as gymnasium's FrameStackObservation, a
    last axis k times as long as VecFrameStack; both put the oldest first. The stack is filled with the first
    observation, where VecFrameStack fills with zeros. Images with channels last become channels first, as in SB3.
    """
    stored = policy.shape
    if stored == shape:
        return policy
    if policy.memory is not None:
        raise InputError(
            f"the agent was made for observations of shape {stored}, the environment gives {shape}; "
            "an agent with a memory of its own is not given stacks"
        )
    if policy.n_stack == 1 and stored[1:] == shape:
        return _restacked(policy, shape, stored[0], last_axis=False)
    times = stored[-1] // shape[-1] if stored and shape and shape[-1] else 0
    if policy.n_stack == 1 and times > 1 and stored == (*shape[:-1], times * shape[-1]):
        return _restacked(policy, shape, times, last_axis=True)
    if policy.n_stack == 1 and len(shape) == len(stored) == 3 and stored[1:] == shape[:2] and stored[0] % shape[2] == 0:
        network = ChannelsFirst(policy.network, stored)
        return replace(policy, network=network, n_stack=stored[0] // shape[2], shape=shape)
    raise InputError(
        f"the agent was made for observations of shape {stored}, the environment gives {shape}; "
        "expected the same shape or a stack of them"
    )


def single_shape(stacked: tuple[int, ...], n_stack: int) -> tuple[int, ...]:
    """Return the shape of one of the ``n_stack`` observations in a stack, or say that it is not a stack."""
    if len(stacked) > 1 and stacked[0] == n_stack:
        return stacked[1:]
    if stacked and stacked[-1] % n_stack == 0:
        return (*stacked[:-1], stacked[-1] // n_stack)
    raise InputError(f"observations of shape {stacked} are not a stack of {n_stack} frames")


def check_actions(policy: Policy, spaces: Spaces, *, first_action: int | None = None) -> None:
    """Raise InputError if the environment does not take the actions of the policy.

    Args:
        policy: The agent.
        spaces: The environment's.
        first_action: The number of the first action the agent was trained with, where that is known (SB3: 0). Other
            agents choose by position.
    """
    if policy.n_actions != spaces.n_actions or (
        policy.n_actions is not None and first_action not in (None, spaces.first_action)
    ):
        raise InputError(
            f"the agent has {_actions(policy.n_actions, 0)}, "
            f"the environment takes {_actions(spaces.n_actions, spaces.first_action)}"
        )
    if policy.low is None or policy.high is None or spaces.low is None or spaces.high is None:
        return
    low, high = policy.low.cpu().numpy(), policy.high.cpu().numpy()
    if len(low) != len(spaces.low) or not (
        np.allclose(low, spaces.low, rtol=1e-6) and np.allclose(high, spaces.high, rtol=1e-6)
    ):
        raise InputError(
            f"the agent's actions range from {low.tolist()} to {high.tolist()}, "
            f"the environment's from {list(spaces.low)} to {list(spaces.high)}"
        )


def _actions(count: int | None, first: int) -> str:
    return "continuous actions" if count is None else f"{count} actions from {first}"


class Restacked(nn.Module):
    """A network made for stacks of another layout: frames on the first axis, or concatenated along the last."""

    def __init__(self, network: nn.Module, stored: tuple[int, ...], last_axis: bool) -> None:
        super().__init__()
        self.network = network
        self.stored = stored
        self.last_axis = last_axis

    def forward(self, history: Tensor) -> Tensor:
        """Lay the frames out as the network knows them."""
        frames = history.movedim(1, -2) if self.last_axis else history
        output: Tensor = self.network(frames.reshape(len(history), 1, *self.stored))
        return output


class ChannelsFirst(nn.Module):
    """A network made for images (channels, height, width), given (frames, height, width, channels)."""

    def __init__(self, network: nn.Module, stored: tuple[int, ...]) -> None:
        super().__init__()
        self.network = network
        self.stored = stored

    def forward(self, history: Tensor) -> Tensor:
        """Put the channels first, those of the oldest frame before the others."""
        output: Tensor = self.network(history.movedim(-1, 2).reshape(len(history), 1, *self.stored))
        return output


def _restacked(policy: Policy, shape: tuple[int, ...], n_stack: int, *, last_axis: bool) -> Policy:
    # Concatenated flattened vectors are the flattened stack: an MLP stays the MLP it is.
    inner = policy.network.network if isinstance(policy.network, Normalized) else policy.network
    flat = isinstance(inner, (MLP, Squashed)) and (not last_axis or len(shape) == 1)
    flat = flat or (isinstance(inner, CNN) and not last_axis)
    network = policy.network if flat else Restacked(policy.network, policy.shape, last_axis)
    return replace(policy, network=network, n_stack=n_stack, shape=shape)


def _continuous(function: Callable[[NDArray[Any]], Any]) -> Callable[[NDArray[Any]], Any]:
    """Guard against the likeliest mistake: a function of discrete actions without their number."""

    def checked(seen: NDArray[Any]) -> Any:
        action = np.asarray(function(seen))
        if not np.issubdtype(action.dtype, np.floating):
            raise InputError(
                f"the function returned {action.tolist()} where float actions were expected; "
                "give n_actions=, the number of discrete actions"
            )
        return action

    checked.__name__ = getattr(function, "__name__", type(function).__name__)
    return checked
