"""SB3 policies whose network cannot be rebuilt, asked through their own ``predict``."""

from __future__ import annotations

import copy
from math import prod
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, flatdim
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.networks import weights_hash
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.sb3.recurrent import SUPPORTED
from surefoot.agents.sb3.settings import factors_of
from surefoot.errors import InputError


class Predictor(nn.Module):
    """An SB3 policy object asked for its deterministic action, whatever network it holds; no gradient."""

    def __init__(self, policy: Any, n_actions: int | None, factors: tuple[int, ...] | None) -> None:
        super().__init__()
        self.policy = _snapshot(policy).requires_grad_(False)
        self.n_actions = n_actions
        self.factors = factors

    def forward(self, history: Tensor) -> Tensor:
        """Return one-hot rows for discrete actions, the actions themselves for continuous ones."""
        actions = self.policy.predict(self._seen(history.reshape(len(history), -1).cpu().numpy()), deterministic=True)[
            0
        ]
        if self.n_actions is None:
            return torch.as_tensor(actions, device=history.device).float().reshape(len(history), -1)
        if self.factors is not None:
            actions = np.ravel_multi_index(tuple(actions.reshape(len(history), -1).T.astype(int)), self.factors)
        return nn.functional.one_hot(torch.as_tensor(actions, device=history.device).long(), self.n_actions).float()

    def _seen(self, flat: NDArray[np.float32]) -> Any:
        """Return rows of numbers as observations; SB3 divides pixels by 255 itself, so it gets them back."""
        space = self.policy.observation_space
        if isinstance(space, Dict):
            ends = np.cumsum([flatdim(part) for part in space.values()])
            columns = zip(space, np.split(flat, ends[:-1], axis=1), strict=True)
            return {name: own.reshape(len(flat), *(space[name].shape or ())) for name, own in columns}
        seen = flat.reshape(len(flat), *space.shape)
        return seen * np.float32(255) if space.dtype == np.uint8 else seen


def wrapped(model: Any) -> Policy:
    """Return a policy that asks SB3's own predict; for networks that cannot be rebuilt."""
    observations, actions = model.observation_space, model.action_space
    if hasattr(model.policy, "lstm_actor"):
        raise InputError(SUPPORTED)
    whole: list[Any] = list(observations.values()) if isinstance(observations, Dict) else [observations]
    pixels = observations.dtype == np.uint8  # pictures in parts may have another order of axes than the environment's
    if not all(isinstance(one, Box) and (pixels or np.issubdtype(one.dtype, np.floating)) for one in whole):
        raise InputError(
            f"observations must be a Box of floats or pixels, or a Dict of floats, the agent takes {observations}; "
            "give a function of the flattened observation instead"
        )
    discrete = isinstance(actions, Discrete) and actions.start == 0
    factors = factors_of(actions)
    if not discrete and factors is None and not (isinstance(actions, Box) and len(actions.shape) == 1):
        raise InputError(
            f"actions must be discrete from 0 or a one-dimensional Box, the agent has {actions}; wrap its environment"
        )
    n_actions = int(actions.n) if discrete else None if factors is None else prod(factors)
    sizes = [prod(one.shape) for one in whole]
    shape = (sum(sizes),) if isinstance(observations, Dict) else observations.shape
    arrays = {name: value.detach().cpu().numpy() for name, value in model.policy.state_dict().items()}
    layout = {"predict": type(model.policy).__qualname__, "shape": shape, "choices": n_actions}
    layout |= {} if factors is None else {"factors": factors}
    continuous = isinstance(actions, Box)
    spaces = Spaces(
        shape=shape,
        n_actions=n_actions,
        low=actions.low.astype(np.float32) if continuous else None,
        high=actions.high.astype(np.float32) if continuous else None,
        first_action=0,
        factors=factors,
        parts=tuple(zip(observations, sizes, strict=True)) if isinstance(observations, Dict) else None,
    )
    predictor = Predictor(model.policy, n_actions, factors)
    return Policy(predictor, spaces, sha256=weights_hash(arrays, layout), differentiable=False)


def _snapshot(policy: Any) -> Any:
    """Return a copy that further training does not change."""
    try:
        return copy.deepcopy(policy)
    except RuntimeError:  # gSDE keeps tensors torch cannot copy; they are noise, which acting here does not use
        with torch.random.fork_rng(devices=[]):
            fresh = type(policy)(**policy._get_constructor_parameters())
        fresh.load_state_dict(policy.state_dict())
        return fresh
