"""Stable-Baselines3 models as policies; a model file is read as data, without unpickling anything in it.

A model ``.zip`` holds ``policy.pth`` (tensors, read with ``weights_only=True``) and ``data`` (JSON with pickles of
spaces and of the policy's settings, which are read as data); a model that they do not describe completely is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium

from surefoot.agents.clock import with_clock
from surefoot.agents.normalization import Statistics, normalized
from surefoot.agents.policies import Policy, Spaces
from surefoot.agents.sb3.pickled import facts_of_file
from surefoot.agents.sb3.predictor import wrap_model
from surefoot.agents.sb3.published import Published, read_published, statistics_near
from surefoot.agents.sb3.rebuild import rebuild_policy
from surefoot.agents.sb3.settings import (
    UnreadableError,
    facts_of_model,
    read_settings,
    read_tensors,
)
from surefoot.agents.sb3.statistics import live_statistics, read_statistics
from surefoot.errors import InputError, NotAllowedError
from surefoot.files import untrusted
from surefoot.provenance import install_command

NONE = "none"
TRUST = "if you trust its author, use allow_pickle=True"


def read_agent(path: Path, *, allow_pickle: bool, spaces: Spaces | None, vecnormalize: object) -> Policy:
    """Read an SB3 model file, or the folder of a published one, with what belongs to the agent besides its network.

    ``spaces`` are those of the environment, which may append the time left to observations itself.
    """
    published = read_published(path)
    policy = read_zip(published.model, allow_pickle=allow_pickle)
    policy = replace(policy, name=published.name)
    shape = policy.spaces.stacked_shape
    statistics = statistics_of(vecnormalize, published.model, published.statistics, shape=shape)
    if statistics is None and vecnormalize is None and published.normalizes is None:
        _refuse_lost_statistics(published.model)
    if statistics is not None:
        policy = normalized(policy, statistics)
    # An environment that appends the time itself gives observations of the agent's own shape.
    if not published.time_feature or (spaces is not None and spaces.shape == policy.spaces.shape):
        return policy
    return with_clock(policy, _episode_length(published))


def _episode_length(published: Published) -> int:
    """Return the maximum episode length of what an agent was trained on; its versions share it."""
    base = str(published.environment).rpartition("-v")[0]
    specs = [spec for spec in gymnasium.registry.values() if spec.name == base and spec.max_episode_steps is not None]
    if not specs:
        raise InputError(
            f"{published.model} was trained with the time left as an observation, and Gymnasium does not know how long "
            f"an episode of {published.environment} is; import the package that registers it with env='MODULE:ID'"
        )
    length = specs[-1].max_episode_steps
    assert length is not None
    return length


def statistics_of(
    vecnormalize: object, model: Path | None, found: Path | None = None, *, shape: tuple[int, ...] | None = None
) -> Statistics | None:
    """Return the statistics that were given, or those that belong to a model file without doubt.

    Args:
        found: The file of statistics that lies where its author's tools put it.
        shape: What the model was made for: other files near it, of other observations, are not its own.
    """
    if isinstance(vecnormalize, Statistics):
        return vecnormalize
    if isinstance(vecnormalize, str | Path):
        if str(vecnormalize) == NONE:
            return None
        return read_statistics(Path(vecnormalize))
    if vecnormalize is not None:
        return live_statistics(vecnormalize)
    if found is not None:
        return read_statistics(found)
    if model is None:
        return None
    for near in statistics_near(model):
        if _may_normalize(near, shape):
            raise InputError(
                f"{near} is near {model.name} and may hold the statistics its observations were normalized with; give "
                f"vecnormalize={str(near)!r}, or vecnormalize={NONE!r} if the agent was trained without them"
            )
    return None


def _refuse_lost_statistics(model: Path) -> None:
    """Raise InputError if the file of a model says that it was trained behind VecNormalize, and no statistics are near.

    SB3 keeps the last observation from before the normalization; of what learns from a replay buffer in any case.
    """
    data = read_settings(model)
    if data.get("_last_original_obs") is None or "buffer_size" in data or statistics_near(model):
        return
    raise InputError(
        f"{model} was trained behind VecNormalize, and no statistics are near it; give their file as "
        f"vecnormalize=, or vecnormalize={NONE!r} if only rewards were normalized"
    )


def _may_normalize(path: Path, shape: tuple[int, ...] | None) -> bool:
    """Return whether a file may hold statistics of such observations: all but those that say that they do not."""
    try:
        statistics = read_statistics(path)
    except InputError:
        # What it holds is unknown.
        return True
    if statistics is None:
        return False
    return shape is None or statistics.fits(shape)


def read_zip(path: str | Path, *, allow_pickle: bool = False) -> Policy:
    """Read an SB3 model file as a policy over its own observation shape, executing no code from it.

    MlpPolicy and CnnPolicy of DQN, PPO, A2C, DDPG, TD3 and SAC, and of QR-DQN, TQC, ARS, TRPO and MaskablePPO (played
    without masks) of sb3-contrib can be read so, and MlpLstmPolicy of RecurrentPPO with one layer.

    Args:
        path: The model's zip file.
        allow_pickle: Load any model with SB3 itself, which unpickles: the file may then execute any code.
    """
    path = Path(path)
    data = read_settings(path)
    if allow_pickle:
        policy = from_model(_load_model(path, data))
    else:
        weights = read_tensors(path)
        with untrusted(path, "SB3 model file"):
            try:
                policy = rebuild_policy(facts_of_file(data), weights)
            except UnreadableError as reason:
                raise NotAllowedError(f"{path} cannot be read without unpickling: {reason}; {TRUST}") from reason
    return replace(policy, name=path.stem)


def from_model(model: Any, *, vecnormalize: object = None) -> Policy:
    """Return the deterministic policy of a live SB3 model, as it is now; further training does not change it.

    Statistics of its VecNormalize are part of it; ``vecnormalize`` gives those of a model without its environment. A
    network that cannot be rebuilt acts through SB3's own predict, without gradient (``differentiable`` is False).
    """
    name = type(model).__name__
    try:
        policy = replace(rebuild_policy(facts_of_model(model), model.policy.state_dict()), name=name)
    except UnreadableError:
        policy = replace(wrap_model(model), name=name)
    if vecnormalize is None:
        vecnormalize = model.get_vec_normalize_env()
    statistics = statistics_of(vecnormalize, None)
    if statistics is None:
        return policy
    return normalized(policy, statistics)


# Algorithms by the module of their policy class, and by settings that only they have.
CONTRIB = {
    "sb3_contrib.qrdqn": "QRDQN",
    "sb3_contrib.tqc": "TQC",
    "sb3_contrib.ars": "ARS",
    "sb3_contrib.common.maskable": "MaskablePPO",
    "sb3_contrib.common.recurrent": "RecurrentPPO",
    "sb3_contrib.crossq": "CrossQ",
}
ALGORITHMS = {
    "exploration_fraction": "DQN",
    "clip_range": "PPO",
    "policy_delay": "TD3",
    "target_entropy": "SAC",
    "cg_max_steps": "TRPO",
    "gae_lambda": "A2C",
}


def _find_algorithm(data: Mapping[str, Any]) -> str | None:
    policy_class = data.get("policy_class")
    if isinstance(policy_class, dict):
        for module, algorithm in CONTRIB.items():
            if str(policy_class.get("__module__")).startswith(module):
                return algorithm
    for setting, algorithm in ALGORITHMS.items():
        if setting in data:
            return algorithm
    return None


def _load_model(path: Path, data: Mapping[str, Any]) -> Any:
    """Load with SB3 itself, unpickling; the algorithm follows from the policy's module or from settings only it has."""
    algorithm = _find_algorithm(data)
    if algorithm is None:
        known = ", ".join([*ALGORITHMS.values(), *CONTRIB.values()])
        raise InputError(f"{path} is of an unknown algorithm; expected {known} or DDPG")
    package = "stable_baselines3"
    if algorithm in CONTRIB.values() or algorithm == "TRPO":
        package = "sb3_contrib"
    try:
        # Acting needs no replay buffer, which would otherwise take gigabytes.
        return getattr(import_module(package), algorithm).load(path, device="cpu", buffer_size=1)
    except ImportError as error:
        how = "pip install sb3-contrib" if package == "sb3_contrib" else install_command("train")
        raise InputError(f"{path} needs a package that is not installed ({error}); install it with: {how}") from error
    except Exception as error:
        # Unpickling may raise anything.
        raise InputError(f"{path} could not be loaded by Stable-Baselines3: {error}") from error
