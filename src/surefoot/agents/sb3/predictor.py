"""SB3 policies whose network cannot be rebuilt, asked through their own ``predict``."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from surefoot.agents.networks import weights_hash
from surefoot.agents.policies import Policy
from surefoot.errors import InputError


class Predictor(nn.Module):
    """An SB3 policy object asked for its deterministic action, whatever network it holds; no gradient."""

    def __init__(self, policy: Any, n_actions: int | None) -> None:
        super().__init__()
        self.policy = _snapshot(policy).requires_grad_(False)
        self.n_actions = n_actions
        # SB3 divides pixels by 255 itself, so it must get them back in its own units, as floats.
        self.unit = 255.0 if policy.observation_space.dtype == np.uint8 else 1.0

    def forward(self, history: Tensor) -> Tensor:
        """Return one-hot rows for discrete actions, the actions themselves for continuous ones."""
        shape = self.policy.observation_space.shape
        observations = (history.reshape(len(history), *shape) * self.unit).cpu().numpy()
        actions = torch.as_tensor(self.policy.predict(observations, deterministic=True)[0], device=history.device)
        if self.n_actions is not None:
            return nn.functional.one_hot(actions.long(), self.n_actions).float()
        return actions.float().reshape(len(history), -1)


def _snapshot(policy: Any) -> Any:
    """Return a copy that further training does not change."""
    try:
        return copy.deepcopy(policy)
    except RuntimeError:  # gSDE keeps tensors torch cannot copy; they are noise, which acting here does not use
        with torch.random.fork_rng(devices=[]):
            fresh = type(policy)(**policy._get_constructor_parameters())
        fresh.load_state_dict(policy.state_dict())
        return fresh


def wrapped(model: Any) -> Policy:
    """Return a policy that asks SB3's own predict; for networks that cannot be rebuilt."""
    observations, actions = model.observation_space, model.action_space
    if hasattr(model.policy, "lstm_actor"):
        raise InputError("of recurrent agents only one plain LSTM over flat float observations is supported")
    if not isinstance(observations, Box) or not (
        observations.dtype == np.uint8 or np.issubdtype(observations.dtype, np.floating)
    ):
        raise InputError(f"observations must be a Box of floats or uint8 pixels, the agent takes {observations}")
    discrete = isinstance(actions, Discrete) and actions.start == 0
    if not discrete and not (isinstance(actions, Box) and len(actions.shape) == 1):
        raise InputError(f"actions must be Discrete from 0 or a one-dimensional Box, the agent has {actions}")
    n_actions = int(actions.n) if discrete else None
    arrays = {name: value.detach().cpu().numpy() for name, value in model.policy.state_dict().items()}
    layout = {"predict": type(model.policy).__qualname__, "shape": observations.shape, "choices": n_actions}
    return Policy(
        Predictor(model.policy, n_actions),
        1,
        observations.shape,
        n_actions,
        sha256=weights_hash(arrays, layout),
        differentiable=False,
        low=None if discrete else torch.from_numpy(actions.low.astype(np.float32)),
        high=None if discrete else torch.from_numpy(actions.high.astype(np.float32)),
    )
