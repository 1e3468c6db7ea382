"""The state of an SB3 model as plain arrays: networks, Adam's moments, replay buffer, counters.

A resumed run starts a new episode in a freshly seeded environment, so it is not bit for bit the run that was stopped;
everything learned and collected is kept. Only the replay buffer of pixels is not, which takes gigabytes: a resumed run
collects as many transitions again before it learns, and these steps do not count.
"""

from __future__ import annotations

import sys

import torch
from stable_baselines3 import DDPG
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from surefoot.errors import InputError
from surefoot.train.cuda_graph import buffer_of, sees_pixels
from surefoot.train.folder import TrainingFolder, load_optimizer, optimizer_arrays, under

# The last two are DQN's alone.
COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_n_calls", "exploration_rate")
COLUMNS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def save_checkpoint(folder: TrainingFolder, model: OffPolicyAlgorithm) -> None:
    """Write everything needed to resume."""
    buffer = buffer_of(model)
    folder.curve.steps = model.num_timesteps
    header = {
        "counters": {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)},
        "buffer": {"pos": buffer.pos, "full": buffer.full},
        "total_steps": model._total_timesteps,
        "observation_shape": list(model.observation_space.shape or ()),
    }
    arrays = {f"policy.{name}": value.cpu().numpy() for name, value in model.policy.state_dict().items()}
    for whose, optimizer in _optimizers(model).items():
        arrays |= optimizer_arrays(optimizer, f"{whose}adam.")
    filled = 0 if sees_pixels(model) else buffer.size()
    arrays |= {f"buffer.{name}": getattr(buffer, name)[:filled] for name in COLUMNS}
    folder.save(header, checkpoint=arrays)


def load_checkpoint(folder: TrainingFolder, model: OffPolicyAlgorithm) -> None:
    """Restore the model and the directory's curve that ``save_checkpoint`` wrote."""
    header, parts = folder.load()
    arrays = parts["checkpoint"]
    if header["observation_shape"] != list(model.observation_space.shape or ()):
        raise InputError(f"{folder.path} contains a checkpoint of another task or version; choose another --out")
    for name, value in header["counters"].items():
        setattr(model, name, value)
    weights = {name: torch.from_numpy(value) for name, value in under(arrays, "policy.").items()}
    model.policy.load_state_dict(weights)
    for whose, optimizer in _optimizers(model).items():
        load_optimizer(optimizer, under(arrays, f"{whose}adam."))
    # Another stream than the first run's, because it starts in the middle of the schedule.
    model.set_random_seed(((model.seed or 0) + model.num_timesteps) % 2**32)
    if hasattr(model, "reload"):
        model.reload()
    buffer, position = buffer_of(model), header["buffer"]
    if sees_pixels(model):
        count = buffer.buffer_size if position["full"] else position["pos"]
        _refill(model, count, header["total_steps"] - model.num_timesteps)
        return
    buffer.pos, buffer.full = position["pos"], position["full"]
    for name in COLUMNS:
        stored = arrays[f"buffer.{name}"]
        getattr(buffer, name)[: len(stored)] = stored


def _refill(model: OffPolicyAlgorithm, count: int, left: int) -> None:
    """Collect transitions without learning from them, exploring as the schedule says; counters stay as they were."""
    counters = {name: getattr(model, name) for name in COUNTERS if hasattr(model, name)}
    last = model.num_timesteps + count  # the step at which a callback stops is not collected
    learns, model.gradient_steps = model.gradient_steps, 0
    model.learn(left, lambda *_: model.num_timesteps <= last, log_interval=sys.maxsize, reset_num_timesteps=False)
    model.gradient_steps = learns
    for name, value in counters.items():
        setattr(model, name, value)


def _optimizers(model: OffPolicyAlgorithm) -> dict[str, torch.optim.Optimizer]:
    """Return the optimizers by the network they train; DQN has one, DDPG two."""
    if isinstance(model, DDPG):
        return {"actor.": model.actor.optimizer, "critic.": model.critic.optimizer}
    return {"": model.policy.optimizer}
