"""Agents that are torch modules: plain networks, those of CleanRL, and TorchScript files.

A network answers rows of observations with values or actions when it is called. CleanRL's agents answer through methods
that sample: ``get_action`` (SAC, C51) and ``get_action_and_value`` (PPO). Unless the agent is declared stochastic its
most probable action is taken, as Stable-Baselines3 does with ``deterministic=True``.
"""

from __future__ import annotations

import copy
import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from surefoot.agents.callables import probe_policy, trial_rows
from surefoot.agents.imported import search_here
from surefoot.agents.networks import weights_hash
from surefoot.agents.policies import Policy, Spaces
from surefoot.errors import InputError, NotAllowedError
from surefoot.files import MOST_ARRAYS, check_members, check_size, read_bytes
from surefoot.provenance import sha256

MODULE_WAY_OUT = "make it a surefoot.Policy, whose network maps (rows, n_stack, *shape) to values or actions"


class Called(nn.Module):
    """What a module answers when it, or one of its methods, is called."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module = module
        self.method = method

    def forward(self, seen: Tensor) -> Any:
        """Ask it, in the precision of its weights."""
        return getattr(self.module, self.method)(self.in_own_precision(seen))

    def in_own_precision(self, seen: Tensor) -> Tensor:
        """Return observations in the precision of the module's weights."""
        for weight in self.module.parameters():
            if weight.is_floating_point():
                return seen.to(weight.dtype)
        return seen


class OneByOne(Called):
    """What a module answers that takes one observation without rows, as the policies of many robots do."""

    def forward(self, seen: Tensor) -> Any:
        """Ask it for every row."""
        return torch.stack([super(OneByOne, self).forward(row) for row in seen])

    def takes_rows(self, seen: Tensor) -> bool:
        """Return whether it answers rows too: then it is asked so, and one whose rows mix is not asked alone."""
        try:
            answer = super().forward(seen)
        except Exception:
            return False
        return isinstance(answer, Tensor) and answer.dim() > 0 and len(answer) == len(seen)


class SacMean(Called):
    """The mean action, or the probability of each, which ``get_action`` of CleanRL's SAC answers in third place."""

    def forward(self, seen: Tensor) -> Any:
        """Ask for (action, log-probability, mean or probabilities)."""
        return super().forward(seen)[2]


class LogProbabilities(Called):
    """The log-probability of each discrete action, as ``get_action_and_value`` of CleanRL's PPO computes it."""

    def __init__(self, module: nn.Module, n_actions: int) -> None:
        super().__init__(module, "get_action_and_value")
        self.n_actions = n_actions

    def forward(self, seen: Tensor) -> Any:
        """Ask for every action of every row."""
        every = torch.arange(self.n_actions, device=seen.device).repeat(len(seen))
        rows = self.in_own_precision(seen).repeat_interleave(self.n_actions, dim=0)
        return getattr(self.module, self.method)(rows, every)[1].reshape(len(seen), self.n_actions)


class Mean(Called):
    """The mean of continuous actions, ``actor_mean`` of CleanRL's PPO."""

    def check(self, seen: Tensor) -> None:
        """Raise if an action next to it is more probable: then the agent's actions do not center on it."""
        judge = getattr(self.module, "get_action_and_value")  # noqa: B009
        rows = self.in_own_precision(seen)
        action = self(seen)
        likely = judge(rows, action)[1]
        for move in (0.1, -0.1):
            if bool((judge(rows, action + move)[1] > likely).any()):
                raise InputError("actor_mean is not its most probable action")


def from_module(module: nn.Module, spaces: Spaces, *, name: str, stochastic: bool = False) -> Policy:
    """Return a policy that acts as a copy of the module does, in evaluation mode; later training does not change it.

    Its observations are those of the environment, or stacks of ``spaces.n_stack`` of them, frames first or side by
    side along the last axis, as the module takes them; images with channels last become channels first where it needs
    that. Continuous actions are clipped to the environment's bounds.
    """
    try:
        # Copies of TorchScript's weights would else remember where they come from.
        with torch.no_grad():
            own = copy.deepcopy(module).eval()
        for weight in own.parameters():
            weight.requires_grad_(False)
    except Exception as error:
        raise InputError(f"the torch module {name} cannot be copied ({error}); {MODULE_WAY_OUT}") from error
    # Every layout and every way to ask is tried; what does not fit fails on made-up observations.
    problems: list[str] = []
    for shape in _possible_shapes(spaces.shape, spaces.n_stack):
        for inner in _ways_to_ask(own, spaces, stochastic):
            try:
                known = replace(spaces, shape=shape, n_stack=1)
                if isinstance(inner, OneByOne) and inner.takes_rows(trial_rows(known)[:, 0]):
                    continue
                policy = probe_policy(inner, known, stochastic=stochastic, ignores_draws=isinstance(inner, SacMean))
                if isinstance(inner, Mean):
                    inner.check(trial_rows(known)[:, 0])
                return replace(policy, name=name)
            except Exception as error:
                problems.append(" ".join(str(error).split())[:400] or type(error).__name__)
    if not problems:
        raise InputError(f"{name} samples its actions, and nothing says which is the most probable; {MODULE_WAY_OUT}")
    kind = "observations"
    if spaces.n_stack > 1:
        kind = f"stacks of {spaces.n_stack} observations"
    raise InputError(f"{name} does not fit {kind} of shape {spaces.shape}: {problems[0]}; {MODULE_WAY_OUT}")


def module_hash(module: nn.Module) -> str:
    """Return a hash of a module's weights, and of the classes and settings of its parts; empty if it has no weights.

    The code of these classes is not in it, and neither is what ``state_dict`` leaves out, such as buffers that are not
    persistent.
    """
    weights = module.state_dict()
    types = {}
    arrays = {}
    for name, one in weights.items():
        if not isinstance(one, Tensor) or one.layout != torch.strided or one.is_quantized or one.is_meta:
            return ""
        types[name] = [str(one.dtype), list(one.shape)]
        # As bytes: numpy does not have all types of torch.
        plain = one.detach().cpu().resolve_conj().resolve_neg().contiguous()
        arrays[name] = plain.reshape(-1).view(torch.uint8).numpy()
    if not weights:
        return ""
    # What a part prints of itself: slopes, sizes, probabilities.
    classes = {name: f"{type(part).__qualname__}({part.extra_repr()})" for name, part in module.named_modules()}
    return weights_hash(arrays, {"classes": classes, "weights": types})


def kept_state(policy: Policy) -> list[str]:
    """Return hashes of all that the modules of an agent could change about themselves: weights, buffers, counters.

    Of a TorchScript program that is everything. A module that is code may keep what no hash covers.
    """
    found = []
    for part in policy.network.modules():
        if not isinstance(part, Called):
            continue
        if isinstance(part.module, torch.jit.ScriptModule):
            written = io.BytesIO()
            torch.jit.save(part.module, written)
            found.append(sha256(written.getvalue()))
        else:
            found.append(module_hash(part.module))
    return found


def read_module(path: Path, *, allow_pickle: bool) -> tuple[nn.Module, str]:
    """Return the module in a TorchScript file, or in a pickle of torch, and the hash of the file.

    TorchScript is a program and a pickle can execute anything, so both need the user's word.
    """
    try:
        content = read_bytes(path, "torch file", MOST_ARRAYS)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    members = _list_members(path, content)
    # Unpacked: a small file may hold a large one.
    check_size(path, "torch file", sum(one.file_size for one in members), MOST_ARRAYS)
    if not members:
        raise InputError(f"{path} is not a file that torch saved; {_suggest_instead(path)}")
    script = _is_script([one.filename for one in members])
    if not script and _is_weights(content):
        raise InputError(f"{path} holds weights without their network; {_suggest_instead(path)}")
    if not allow_pickle:
        what = "a TorchScript program" if script else "a pickle of torch"
        raise NotAllowedError(
            f"{path} is {what}, which may execute code of its author; if you trust it use "
            "allow_pickle=True, else export the agent to ONNX, which is read as data"
        )
    if not script:
        # The class of a pickled module may be in a file of the user.
        search_here()
    try:
        if script:
            loaded = torch.jit.load(io.BytesIO(content), map_location="cpu")  # type: ignore[no-untyped-call]
        else:
            loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=False)
    except Exception as error:
        # A pickle may raise anything.
        raise InputError(f"torch cannot load {path}: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(loaded, nn.Module):
        raise InputError(f"{path} holds a {type(loaded).__name__}, expected a torch module; {_suggest_instead(path)}")
    return loaded, sha256(content)


def _suggest_instead(path: Path) -> str:
    return (
        f"load {path.name} into your nn.Module and give that as the agent from Python, or save the module as ONNX or "
        "TorchScript"
    )


def _list_members(path: Path, content: bytes) -> list[zipfile.ZipInfo]:
    try:
        check_members(path, io.BytesIO(content))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return archive.infolist()
    except InputError:
        raise
    except (zipfile.BadZipFile, ValueError, OSError):
        return []


def _is_script(names: list[str]) -> bool:
    """Return whether these are the members of a TorchScript program."""
    return any(name.endswith("/constants.pkl") for name in names) and any("/code/" in name for name in names)


def _is_weights(content: bytes) -> bool:
    """Return whether a file holds tensors and plain data alone, which torch reads without executing anything."""
    try:
        torch.load(io.BytesIO(content), "cpu", weights_only=True)
    except Exception:
        # A hostile stream may raise anything.
        return False
    return True


def _possible_shapes(shape: tuple[int, ...], n_stack: int) -> Iterator[tuple[int, ...]]:
    """Yield the shapes that a module may take observations in, as ``fit.fit_to`` knows them."""
    if n_stack > 1:
        yield (n_stack, *shape)
        yield (*shape[:-1], n_stack * shape[-1])
    else:
        yield shape
    if len(shape) == 3:
        yield (n_stack * shape[2], *shape[:2])


def _ways_to_ask(module: nn.Module, spaces: Spaces, stochastic: bool) -> Iterator[Called]:
    """Yield the ways to ask a module for its actions; the first one that fits is taken."""
    sampling = "__call__"
    if hasattr(module, "get_action"):
        sampling = "get_action"
    elif hasattr(module, "get_action_and_value"):
        sampling = "get_action_and_value"
    if stochastic or sampling != "get_action_and_value":
        yield Called(module, sampling)
    if sampling == "__call__":
        yield OneByOne(module, sampling)
    if stochastic or sampling == "__call__":
        return
    if sampling == "get_action":
        yield SacMean(module, sampling)
    elif spaces.n_actions is not None:
        yield LogProbabilities(module, spaces.n_actions)
    elif hasattr(module, "actor_mean"):
        yield Mean(module, "actor_mean")
