"""Stable-Baselines3 models as policies; a model file is read as data, without unpickling anything in it.

A model ``.zip`` holds ``policy.pth`` (tensors, read with ``weights_only=True``) and ``data`` (JSON). Next to
every pickled field of ``data`` SB3 prints its first-level attributes; only these are read, and a model that
they do not describe completely is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.sb3.rebuild import rebuilt, wrapped
from surefoot.agents.sb3.settings import (
    Facts,
    UnreadableError,
    facts_of_file,
    facts_of_model,
    read_settings,
    read_tensors,
)
from surefoot.errors import InputError

TRUST = "if you trust its author, use --allow-pickle (allow_pickle=True)"


def read_zip(path: str | Path, *, allow_pickle: bool = False, spaces: Spaces | None = None) -> Policy:
    """Read an SB3 model file as a policy over its own observation shape, executing no code from it.

    MlpPolicy of DQN, PPO, A2C, DDPG, TD3 and SAC and CnnPolicy of DQN can be read so.

    Args:
        path: The model's zip file.
        allow_pickle: Load any model with SB3 itself, which unpickles: the file may then execute any code.
        spaces: Of the environment; gives the bounds of continuous actions where the file prints them too coarsely.
    """
    path = Path(path)
    data = read_settings(path)
    _refuse_contrib(path, data)
    if allow_pickle:
        policy = from_model(_load(path, data))
    else:
        weights = read_tensors(path)
        try:
            policy = rebuilt(_with_bounds(facts_of_file(data), path, spaces), weights)
        except UnreadableError as reason:
            raise InputError(f"{path} cannot be read without unpickling: {reason}; {TRUST}") from reason
    return replace(policy, name=path.stem)


def from_model(model: Any) -> Policy:
    """Return the deterministic policy of a live SB3 model, as it is now; further training does not change it.

    A network that is neither a plain MLP nor DQN's convolutional one acts through SB3's own predict, without
    gradient (``differentiable`` is False).
    """
    name = type(model).__name__
    try:
        return replace(rebuilt(facts_of_model(model), model.policy.state_dict()), name=name)
    except UnreadableError:
        return replace(wrapped(model), name=name)


def _with_bounds(facts: Facts, path: Path, spaces: Spaces | None) -> Facts:
    """Take the bounds of actions from the environment where the file does not print all their digits."""
    if facts.n_actions is not None or facts.limits is not None:
        return facts
    if spaces is None or spaces.low is None or spaces.high is None or len(spaces.low) != facts.width:
        raise InputError(
            f"{path} does not print every digit of the bounds of its {facts.width} continuous actions; "
            f"resolve it for an environment that takes {facts.width} of them"
        )
    return replace(facts, limits=(np.array(spaces.low, dtype=np.float32), np.array(spaces.high, dtype=np.float32)))


def _refuse_contrib(path: Path, data: Mapping[str, Any]) -> None:
    policy_class = data.get("policy_class")
    module = str(policy_class.get("__module__") if isinstance(policy_class, dict) else None)
    if module.startswith("sb3_contrib"):
        memory = "recurrent agents are not supported" if "recurrent" in module else "expected an algorithm of SB3"
        raise InputError(f"{path} was made by {module}; {memory}")


def _load(path: Path, data: Mapping[str, Any]) -> Any:
    """Load with SB3 itself, unpickling; the kind of algorithm follows from the settings only it has."""
    kinds = {
        "policy_delay": "TD3",
        "target_entropy": "SAC",
        "exploration_fraction": "DQN",
        "clip_range": "PPO",
        "gae_lambda": "A2C",
    }
    kind = next((name for setting, name in kinds.items() if setting in data), None)
    if kind is None:
        raise InputError(f"{path} is of an unknown algorithm; expected DQN, PPO, A2C, DDPG, TD3 or SAC of SB3")
    try:
        import stable_baselines3

        # Acting needs no replay buffer, which would otherwise take gigabytes.
        return getattr(stable_baselines3, kind).load(path, device="cpu", buffer_size=1)
    except ImportError as error:
        raise InputError(
            f"{path} needs a package that is not installed ({error}); from a checkout: pip install '.[all]'"
        ) from error
    except Exception as error:  # unpickling may raise anything
        raise InputError(f"{path} could not be loaded by Stable-Baselines3: {error}") from error
