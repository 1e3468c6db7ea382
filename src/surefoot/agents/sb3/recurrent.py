"""The LSTM of sb3-contrib's RecurrentPPO (MlpLstmPolicy), from its weights.

Its memory begins with zeros and does not hold the last action; only the actor's LSTM acts.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from surefoot.agents.networks import Layers
from surefoot.agents.policies import Policy
from surefoot.agents.recurrent import CELL_PARTS, Form, recurrent_policy
from surefoot.agents.sb3.settings import Facts, UnreadableError
from surefoot.errors import InputError

RECURRENT = "sb3_contrib.common.recurrent.policies"
SUPPORTED = (
    "of recurrent agents only one plain LSTM over flat float observations is supported; others can be certified as a "
    "surefoot.Policy with a memory"
)
ACTOR_NAMES = {f"lstm_actor.{part}_l0": part for part in CELL_PARTS}


def rebuild_lstm(facts: Facts, weights: Mapping[str, Tensor], heads: Layers, form: Form) -> Policy:
    """Build the policy of one LSTM and the fully connected layers after it, ``heads``."""
    if facts.pixels:
        raise InputError(f"the model's observations are images: {SUPPORTED}")
    found = {name for name in weights if name.startswith("lstm_actor.")}
    if found != set(ACTOR_NAMES) or facts.settings.get("lstm_kwargs"):
        odd = ", ".join(sorted(found ^ set(ACTOR_NAMES))[:3]) or "with lstm_kwargs"
        raise InputError(f"the model's LSTM is not one plain layer ({odd}): {SUPPORTED}")
    arrays = {ours: weights[theirs].detach().cpu().float().numpy().copy() for theirs, ours in ACTOR_NAMES.items()}
    for index, (matrix, bias) in enumerate(zip(*heads, strict=True)):
        arrays[f"head{index}.weight"] = matrix
        arrays[f"head{index}.bias"] = bias
    try:
        return recurrent_policy(arrays, facts.spaces, form)
    except InputError as error:
        raise UnreadableError(f"its layers do not fit together: {error}") from error
