"""Anything that names or is an agent, as a policy: one set of rules for certifying, attacking, smoothing, verifying."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeGuard

import torch
from numpy.typing import NDArray
from torch import nn

from surefoot.agents.callables import check_policy, from_function
from surefoot.agents.files import find_card, list_agents, load
from surefoot.agents.fit import brightened, check_actions, fit_to
from surefoot.agents.imported import called, named_object
from surefoot.agents.normalization import normalized
from surefoot.agents.policies import Policy, Spaces, listed
from surefoot.errors import InputError

FILES = (".onnx", ".pt", ".pth", ".torchscript")  # of agents that are run by onnxruntime or torch


def resolve(
    agent: object,
    spaces: Spaces | None = None,
    *,
    n_stack: int | None = None,
    batched: bool | None = None,
    stochastic: bool = False,
    pixel_max: float | None = None,
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
            model, ``.pt`` TorchScript, ``module:name`` an object in a module, anything else is looked up by
            ``files.find_card``: a pretrained agent first, then the file system), a live SB3 model, a Policy, a torch
            module, or a function of observations.
        spaces: What the environment gives and takes; without it nothing is fitted, and what does not know its own
            spaces is rejected.
        n_stack: Number of observations that the agent stacks.
        batched: Whether a function takes rows of observations; found out by a trial if None.
        stochastic: Whether the agent's own randomness is part of it: a function, a torch module or TorchScript.
        pixel_max: What a torch module, its file or ONNX takes for the brightest pixel, where observations are pictures.
        allow_pickle: Let a model file execute code while it is loaded or run (pickles, TorchScript).
        vecnormalize: The statistics by which observations are normalized: a file, a live VecNormalize, or "none". By
            default those of a live SB3 model's environment, or those that lie where its author's tools put them; a
            model file with others near it is rejected.

    Raises:
        InputError: If there is no such agent, or it does not fit.
    """
    named = named_object(agent) if isinstance(agent, str) else None
    if named is not None:
        agent = wraps(named)(partial(called, str(agent), named)) if is_function(named) else named
    path = locate(agent) if isinstance(agent, str | Path) else None
    if needs_spaces(agent):
        if spaces is None:
            raise InputError(
                f"{'a function' if path is None else path} needs the shape of one observation: "
                "smooth(function, sigma, shape=(4,), n_actions=2)"
            )
        given = spaces if n_stack is None else replace(spaces, n_stack=n_stack)
        policy = _of_others(agent, path, given, batched, stochastic, allow_pickle, vecnormalize)
        if not is_function(agent):
            policy = brightened(policy, spaces, pixel_max)
    elif stochastic:
        raise InputError(
            "stochastic goes with functions, torch modules and TorchScript; this agent is run with its most probable "
            "actions. For an SB3 model give the function lambda seen: model.predict(seen)[0], with batched=True"
        )
    else:
        policy = _known(agent, path, spaces, allow_pickle, vecnormalize)
    if pixel_max is not None and policy.pixel_max is None:
        raise InputError("pixel_max goes with torch modules and their files; others say it, functions get 0 to 1")
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
        if spaces is not None:
            check_policy(agent)
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
        from surefoot.agents.torch_agents import from_module, module_hash, read_module

        if path is not None:
            module, digest = read_module(path, allow_pickle=allow_pickle)
            name = path.stem
        else:
            assert isinstance(agent, nn.Module)
            module, digest = agent, module_hash(agent)
            name = type(agent).__name__
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
            f"the agent's observations have the parts {listed(policy.parts)}, the environment's "
            f"{listed(spaces.parts)}; expected the same in the same order; a --wrapper can change it"
        )
    if policy.n_actions is None and policy.low is None and spaces.low is not None and spaces.high is not None:
        # What an environment is given is within its bounds, as Stable-Baselines3 has it; floors rely on that.
        policy = replace(policy, low=torch.tensor(spaces.low), high=torch.tensor(spaces.high))
    return fit_to(policy, spaces.shape)
