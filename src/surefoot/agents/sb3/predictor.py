"""SB3 policies whose network cannot be rebuilt, asked through their own ``predict``."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, flatdim
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.networks import weights_hash
from surefoot.agents.policies import Policy
from surefoot.agents.sb3.recurrent import SUPPORTED
from surefoot.agents.sb3.settings import UnreadableError, facts_of_model
from surefoot.errors import InputError


class Predictor(nn.Module):
    """An SB3 policy object asked for its deterministic action, whatever network it holds; no gradient."""

    def __init__(self, policy: Any, n_actions: int | None, factors: tuple[int, ...] | None) -> None:
        super().__init__()
        self.policy = _copy_policy(policy).requires_grad_(False)
        self.n_actions = n_actions
        self.factors = factors

    def forward(self, history: Tensor) -> Tensor:
        """Return one-hot rows for discrete actions, the actions themselves for continuous ones."""
        n_rows = len(history)
        flat = history.reshape(n_rows, -1).cpu().numpy()
        actions, _ = self.policy.predict(self._as_observations(flat), deterministic=True)
        if self.n_actions is None:
            return torch.as_tensor(actions, device=history.device).float().reshape(n_rows, -1)
        if self.factors is not None:
            # The number of a combination of parts, the last part counting fastest.
            actions = np.ravel_multi_index(tuple(actions.reshape(n_rows, -1).T.astype(int)), self.factors)
        chosen = torch.as_tensor(actions, device=history.device).long()
        return nn.functional.one_hot(chosen, self.n_actions).float()

    def _as_observations(self, flat: NDArray[np.float32]) -> Any:
        """Return rows of numbers as observations; SB3 divides pixels by 255 itself, so it gets them back."""
        space = self.policy.observation_space
        if isinstance(space, Dict):
            parts = {}
            begin = 0
            for name, part in space.items():
                end = begin + flatdim(part)
                parts[name] = flat[:, begin:end].reshape(len(flat), *(part.shape or ()))
                begin = end
            return parts
        observations = flat.reshape(len(flat), *space.shape)
        if space.dtype == np.uint8:
            return observations * np.float32(255)
        return observations


def wrap_model(model: Any) -> Policy:
    """Return a policy that asks SB3's own predict; for networks that cannot be rebuilt."""
    if hasattr(model.policy, "lstm_actor"):
        raise InputError(SUPPORTED)
    observations = model.observation_space
    if isinstance(observations, Dict):
        # Of floats alone: pictures in parts may have another order of axes than the environment's.
        readable = all(_is_float_box(part) for part in observations.values())
    else:
        readable = isinstance(observations, Box) and (observations.dtype == np.uint8 or _is_float_box(observations))
    if not readable:
        raise InputError(
            f"observations must be a Box of floats or pixels, or a Dict of floats, the agent takes {observations}; "
            "give a function of the flattened observation instead"
        )
    try:
        spaces = facts_of_model(model).spaces
    except UnreadableError as error:
        raise InputError(
            f"actions must be discrete from 0 or a one-dimensional Box, the agent has {model.action_space}; wrap its "
            "environment"
        ) from error
    arrays = {name: value.detach().cpu().numpy() for name, value in model.policy.state_dict().items()}
    layout = {"predict": type(model.policy).__qualname__, "shape": spaces.shape, "n_actions": spaces.n_actions}
    if spaces.factors is not None:
        layout["factors"] = spaces.factors
    predictor = Predictor(model.policy, spaces.n_actions, spaces.factors)
    return Policy(predictor, spaces, sha256=weights_hash(arrays, layout), differentiable=False)


def _is_float_box(space: Any) -> bool:
    return isinstance(space, Box) and np.issubdtype(space.dtype, np.floating)


def _copy_policy(policy: Any) -> Any:
    """Return a copy that further training does not change."""
    try:
        return copy.deepcopy(policy)
    except RuntimeError:
        # State-dependent exploration keeps tensors torch cannot copy; they are noise, which acting here does not use.
        with torch.random.fork_rng(devices=[]):
            fresh = type(policy)(**policy._get_constructor_parameters())
        fresh.load_state_dict(policy.state_dict())
        return fresh
