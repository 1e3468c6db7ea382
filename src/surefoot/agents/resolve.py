"""Anything that names or is an agent, as a policy: one set of rules for certifying, attacking, smoothing, verifying."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.answers import from_function
from surefoot.agents.files import find_card, list_agents, load
from surefoot.agents.networks import CNN, MLP, Squashed
from surefoot.agents.normalization import Normalized, normalized
from surefoot.agents.policies import Policy, Spaces
from surefoot.errors import InputError

FILES = (".onnx", ".pt", ".pth", ".torchscript")  # of agents that are run by onnxruntime or torch


def resolve(
    agent: object,
    spaces: Spaces | None = None,
    *,
    n_stack: int | None = None,
    batched: bool | None = None,
    stochastic: bool = False,
    allow_pickle: bool = False,
    vecnormalize: object = None,
) -> Policy:
    """Return the policy that ``agent`` names or is, fitted to the spaces of an environment.

    Every kind of agent is fitted by the same rules. Its observations must have the shape of the environment's, or be a
    stack of them, which then becomes the policy's frame stack. Its actions must be the environment's, with the same
    bounds: clipping to others would make it another agent. A stack size belongs to the agent; ``n_stack``, by default
    ``spaces.n_stack``, says what a function or a torch module is given.

    Args:
        agent: A name or path (``.zip`` is an SB3 model file, a folder with one is a published agent, ``.onnx`` an ONNX
            model, ``.pt`` TorchScript, anything else is looked up by ``files.find_card``: a pretrained agent first,
            then the file system), a live SB3 model, a Policy, a torch module, or a function of observations.
        spaces: What the environment gives and takes; without it nothing is fitted, and what does not know its own
            spaces is rejected.
        n_stack: Number of observations that the agent stacks.
        batched: Whether a function takes rows of observations; found out by a trial if None.
        stochastic: Whether the agent's own randomness is part of it: a function, a torch module or TorchScript.
        allow_pickle: Let a model file execute code while it is loaded or run (pickles, TorchScript).
        vecnormalize: The statistics by which observations are normalized: a file, a live VecNormalize, or "none". By
            default those of a live SB3 model's environment, or those that lie where its author's tools put them; a
            model file with others near it is rejected.

    Raises:
        InputError: If there is no such agent, or it does not fit.
    """
    path = locate(agent) if isinstance(agent, str | Path) else None
    if needs_spaces(agent):
        if spaces is None:
            raise InputError(
                f"{'a function' if path is None else path} needs the shape of one observation: "
                "smooth(function, sigma, shape=(4,), n_actions=2)"
            )
        given = spaces if n_stack is None else replace(spaces, n_stack=n_stack)
        policy = _of_others(agent, path, given, batched, stochastic, allow_pickle, vecnormalize)
    elif stochastic:
        raise InputError(
            "stochastic goes with functions, torch modules and TorchScript; this agent is run with its most probable "
            "actions. For an SB3 model give the function lambda seen: model.predict(seen)[0], with batched=True"
        )
    else:
        policy = _known(agent, path, spaces, allow_pickle, vecnormalize)
    if batched is not None and not is_function(agent):
        raise InputError("batched goes with functions; other agents say themselves what they take")
    if n_stack not in (None, policy.n_stack):
        raise InputError(f"the agent stacks {policy.n_stack} observations, got n_stack={n_stack}")
    return policy


def _known(agent: object, path: Path | None, spaces: Spaces | None, allow_pickle: bool, vecnormalize: object) -> Policy:
    """Return the policy of an agent that says itself what it takes: ours, or one of SB3."""
    if path is not None and (path.suffix == ".zip" or path.is_dir()):
        from surefoot.agents.sb3.read import read_agent

        read = read_agent(path, allow_pickle=allow_pickle, spaces=spaces, vecnormalize=vecnormalize)
        return _fitted(read, spaces, first_action=0)
    if is_sb3_model(agent):
        from surefoot.agents.sb3.read import from_model

        return _fitted(from_model(agent, vecnormalize=vecnormalize), spaces, first_action=0)
    if vecnormalize is not None:
        raise InputError(
            "statistics of VecNormalize go with an SB3 model, a torch module or a model file; leave --vecnormalize out"
        )
    if path is not None:
        return _fitted(load(str(agent)), spaces)
    if isinstance(agent, Policy):
        return _fitted(agent, spaces)
    smoothed = isinstance(getattr(agent, "policy", None), Policy)
    raise InputError(
        "agent must be a name, a path, an SB3 model, a torch module, a surefoot.Policy or a function of observations, "
        f"got {type(agent).__name__}{'; smooth the policy inside it, agent.policy' if smoothed else ''}"
    )


def _of_others(
    agent: object,
    path: Path | None,
    spaces: Spaces,
    batched: bool | None,
    stochastic: bool,
    allow_pickle: bool,
    vecnormalize: object,
) -> Policy:
    """Return the policy of an agent that is asked what it makes of the environment's observations."""
    if is_function(agent):
        if vecnormalize is not None:
            raise InputError("statistics of VecNormalize do not go with a function; let it normalize what it is given")
        return from_function(agent, spaces, batched=batched, stochastic=stochastic)
    from surefoot.agents.sb3.read import statistics_of

    if path is not None and path.suffix == ".onnx":
        if stochastic:
            raise InputError("stochastic does not go with ONNX, whose random numbers cannot be seeded; use TorchScript")
        from surefoot.agents.onnx_agents import read_onnx

        policy = read_onnx(path, spaces)
    else:
        from surefoot.agents.torch_agents import from_module, read_module

        module, digest = read_module(path, allow_pickle=allow_pickle) if path is not None else (agent, "")
        assert isinstance(module, nn.Module)
        name = type(module).__name__ if path is None else path.stem
        policy = replace(from_module(module, spaces, name=name, stochastic=stochastic), sha256=digest)
    statistics = statistics_of(vecnormalize, path)
    return _fitted(policy if statistics is None else normalized(policy, statistics), spaces)


def locate(agent: str | Path) -> Path:
    """Return the model file or the folder, or the model card that a name or path means, or raise InputError."""
    if not str(agent).endswith((".zip", *FILES)):
        published = str(agent) not in list_agents() and is_published(Path(agent))
        return Path(agent) if published else find_card(str(agent))
    if not Path(agent).exists():
        raise InputError(f"no file {agent}")
    return Path(agent)


def needs_spaces(agent: object) -> bool:
    """Return whether an agent does not say itself what it takes and gives: a function, a torch module, its file."""
    if isinstance(agent, str | Path):
        return str(agent).endswith(FILES)
    return is_function(agent) or (isinstance(agent, nn.Module) and not is_sb3_model(agent))


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
    """Return whether ``agent`` is a plain function of observations."""
    return callable(agent) and not isinstance(agent, Policy | nn.Module) and not is_sb3_model(agent)


def _fitted(policy: Policy, spaces: Spaces | None, first_action: int | None = None) -> Policy:
    if spaces is None:
        return policy
    check_actions(policy, spaces, first_action=first_action)
    if policy.parts is not None and spaces.parts is not None and policy.parts != spaces.parts:
        raise InputError(
            f"the agent's observations have the parts {_listed(policy.parts)}, the environment's "
            f"{_listed(spaces.parts)}; expected the same in the same order; a --wrapper can change it"
        )
    if policy.n_actions is None and policy.low is None and spaces.low is not None and spaces.high is not None:
        # What an environment is given is within its bounds, as Stable-Baselines3 has it; floors rely on that.
        policy = replace(policy, low=torch.tensor(spaces.low), high=torch.tensor(spaces.high))
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
    if first_action is not None and policy.factors != spaces.factors:
        raise InputError(
            f"the agent's actions have parts of {policy.factors} values, the environment's of {spaces.factors}; "
            "expected the same"
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


def _listed(parts: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{name} ({size})" for name, size in parts)


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
