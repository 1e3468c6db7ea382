"""``as_policy``: anything that names or is an agent, as a policy, by one set of rules for every command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeGuard

from numpy.typing import NDArray
from torch import nn

from surefoot.agents.callables import check_policy, from_function
from surefoot.agents.files import find_card, list_agents, load
from surefoot.agents.fit import fit_to, scale_pixels, single_shape
from surefoot.agents.imported import called, named_object
from surefoot.agents.normalization import normalized
from surefoot.agents.policies import Policy, Spaces
from surefoot.errors import InputError

# Suffixes of agents that are run by onnxruntime or torch.
MODEL_SUFFIXES = (".onnx", ".pt", ".pth", ".torchscript")


def as_policy(
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

    ``surefoot.rollout``, ``attack`` and ``smooth`` call this themselves; call it first where an agent needs one of the
    arguments below. Every kind of agent is fitted by the same rules. Its observations must have the shape of the
    environment's, or be a stack of them, which then becomes the policy's frame stack. Its actions must be the
    environment's, with the same bounds: clipping to others would make it another agent.

    >>> import surefoot
    >>> surefoot.as_policy("cartpole-5-s0.2")
    <Policy cartpole-5-s0.2: observations of shape (4,), 5 frames, 2 actions>
    >>> def push_right(observation):
    ...     return 1
    >>> surefoot.as_policy(push_right, surefoot.get_task("cartpole-1").spaces)
    <Policy push_right: observations of shape (4,), 1 frames, 2 actions>

    Args:
        agent: A name or path (``.zip`` is an SB3 model file, a folder with one is a published agent, ``.onnx`` an ONNX
            model, ``.pt`` TorchScript, ``module:name`` an object in a module, anything else is looked up by
            ``files.find_card``: a pretrained agent first, then the file system), a live SB3 model, a Policy, a torch
            module (also CleanRL's), or a function of observations.
        spaces: What the environment gives and takes, such as ``task.spaces``. Without it nothing is fitted, and a
            function, a torch module or its file, which do not know their own spaces, are rejected.
        n_stack: Number of observations that the agent stacks: says what a function or a torch module is given (by
            default ``spaces.n_stack``), and, without ``spaces``, what an observation of an SB3 model consists of.
        batched: Whether a function takes rows of observations; found out by a trial if None.
        stochastic: Whether the agent's own randomness is part of it: a function, a torch module or TorchScript.
        pixel_max: What a torch module, its file or ONNX takes for the brightest pixel, where observations are pictures:
            255 if it divides by 255 itself, 1 if it takes numbers from 0 to 1.
        allow_pickle: Let a model file execute code while it is loaded or run (pickles, TorchScript).
        vecnormalize: The statistics by which observations are normalized: a file, a live VecNormalize, or "none". By
            default those of a live SB3 model's environment, or those that lie where its author's tools put them; a
            model file with others near it is rejected.

    Raises:
        InputError: If there is no such agent, or it does not fit.
    """
    agent = _import_named(agent)
    path = locate(agent) if isinstance(agent, str | Path) else None
    if needs_spaces(agent):
        if spaces is None:
            raise InputError(
                f"{path or 'a function'} needs the spaces of its environment: "
                "as_policy(agent, surefoot.Spaces(shape=(4,), n_actions=2)), or those of a task, task.spaces"
            )
        if n_stack is not None:
            spaces = replace(spaces, n_stack=n_stack)
        policy = _of_others(agent, path, spaces, batched, stochastic, allow_pickle, vecnormalize)
        if not is_function(agent):
            policy = scale_pixels(policy, spaces, pixel_max)
    elif stochastic:
        raise InputError(
            "stochastic=True goes with functions, torch modules and TorchScript; this agent is run with its most "
            "probable actions. For an SB3 model give the function lambda seen: model.predict(seen)[0], with "
            "batched=True"
        )
    else:
        policy = _known(agent, path, spaces, allow_pickle, vecnormalize)
        if spaces is None and n_stack is not None:
            # Nothing else says what one observation is.
            if policy.spaces.n_stack == 1 and n_stack > 1:
                policy = fit_to(policy, single_shape(policy.spaces.shape, n_stack))
            policy = replace(policy, may_be_stack=False)
    if pixel_max is not None and policy.pixel_max is None:
        raise InputError("pixel_max= goes with torch modules and their files; others say it, functions get 0 to 1")
    if batched is not None and not is_function(agent):
        raise InputError("batched= goes with functions; other agents say themselves what they take")
    if n_stack not in (None, policy.spaces.n_stack):
        raise InputError(f"the agent stacks {policy.spaces.n_stack} observations, got n_stack={n_stack}")
    return policy


def _import_named(agent: object) -> object:
    """Return the object that ``module:name`` means; anything else as it is."""
    named = named_object(agent) if isinstance(agent, str) else None
    if named is None:
        return agent
    if is_function(named):
        # Its failures are reported as those of the user's code.
        reporting = wraps(named)(partial(called, str(agent), named))
        # An object that can be called has no name of its own.
        reporting.__name__ = getattr(named, "__name__", type(named).__name__)
        return reporting
    return named


def _known(agent: object, path: Path | None, spaces: Spaces | None, allow_pickle: bool, vecnormalize: object) -> Policy:
    """Return the policy of an agent that says itself what it takes: ours, or one of SB3."""
    if path is not None and (path.suffix == ".zip" or path.is_dir()):
        from surefoot.agents.sb3.read import read_agent

        read = read_agent(path, allow_pickle=allow_pickle, spaces=spaces, vecnormalize=vecnormalize)
        return _fitted_sb3(read, spaces)
    if is_sb3_model(agent):
        from surefoot.agents.sb3.read import from_model

        return _fitted_sb3(from_model(agent, vecnormalize=vecnormalize), spaces)
    if vecnormalize is not None:
        raise InputError(
            "statistics of VecNormalize go with an SB3 model, a torch module or a model file; leave vecnormalize= out"
        )
    if path is not None:
        return _fitted(load(str(agent)), spaces)
    if isinstance(agent, Policy):
        if spaces is not None:
            check_policy(agent)
        return _fitted(agent, spaces)
    got = type(agent).__name__
    if isinstance(getattr(agent, "policy", None), Policy):
        got += "; smooth the policy inside it, agent.policy"
    raise InputError(
        "agent must be a name, a path, an SB3 model, a torch module, a surefoot.Policy or a function of observations, "
        f"got {got}"
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
            raise InputError(
                "stochastic=True does not go with ONNX, whose random numbers cannot be seeded; use TorchScript"
            )
        from surefoot.agents.onnx_agents import read_onnx

        policy = read_onnx(path, spaces)
    else:
        from surefoot.agents.torch_agents import from_module, module_hash, read_module

        if path is not None:
            module, digest = read_module(path, allow_pickle=allow_pickle)
            name = path.stem
        else:
            assert isinstance(agent, nn.Module)
            module = agent
            digest = module_hash(agent)
            name = type(agent).__name__
        policy = replace(from_module(module, spaces, name=name, stochastic=stochastic), sha256=digest)
    statistics = statistics_of(vecnormalize, path, shape=policy.spaces.stacked_shape)
    if statistics is not None:
        policy = normalized(policy, statistics)
    return _fitted(policy, spaces)


def locate(agent: str | Path) -> Path:
    """Return the model file or the folder, or the model card that a name or path means, or raise InputError."""
    if not str(agent).endswith((".zip", *MODEL_SUFFIXES)):
        # The name of a pretrained agent means that agent, whatever is in the working directory.
        if str(agent) not in list_agents() and is_published(Path(agent)):
            return Path(agent)
        return find_card(str(agent))
    if not Path(agent).exists():
        raise InputError(f"no file {agent}")
    return Path(agent)


def needs_spaces(agent: object) -> bool:
    """Return whether an agent does not say itself what it takes and gives: a function, a torch module, its file."""
    if isinstance(agent, str | Path):
        return str(agent).endswith(MODEL_SUFFIXES)
    return is_function(agent) or (isinstance(agent, nn.Module) and not is_sb3_model(agent))


def is_published(path: Path) -> bool:
    """Return whether a folder holds an SB3 model file rather than an agent of ours."""
    if not path.is_dir() or (path / "agent.json").exists():
        return False
    return any(any(path.glob(pattern)) for pattern in ("*.zip", "*/*.zip", "*/*/*.zip"))


def is_sb3_model(agent: object) -> bool:
    """Return whether ``agent`` is a live Stable-Baselines3 model."""
    return all(hasattr(agent, name) for name in ("policy", "predict", "observation_space"))


def is_function(agent: object) -> TypeGuard[Callable[[NDArray[Any]], Any]]:
    """Return whether ``agent`` is a plain function of observations."""
    return callable(agent) and not isinstance(agent, Policy | nn.Module) and not is_sb3_model(agent)


def _fitted(policy: Policy, spaces: Spaces | None) -> Policy:
    if spaces is None:
        return policy
    own = policy.spaces
    spaces.check_agent(own)
    if own.n_actions is None and own.low is None and spaces.low is not None and spaces.high is not None:
        # What an environment is given is within its bounds, as Stable-Baselines3 has it; floors rely on that.
        policy = replace(policy, spaces=replace(own, low=spaces.low, high=spaces.high))
    fitted = fit_to(policy, spaces.shape)
    return replace(fitted, may_be_stack=False) if fitted.may_be_stack else fitted


def _fitted_sb3(policy: Policy, spaces: Spaces | None) -> Policy:
    """Return the policy of an SB3 model, which says what it was given, but not whether that is a stack."""
    if spaces is not None:
        return _fitted(policy, spaces)
    # Frames may be on the first axis, or along the last.
    shape = policy.spaces.shape
    several = len(shape) > 1 or any(shape[0] % count == 0 for count in range(2, shape[0]))
    return replace(policy, may_be_stack=policy.spaces.n_stack == 1 and several)
