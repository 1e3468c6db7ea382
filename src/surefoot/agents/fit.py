"""Fitting a policy to an environment's observations: stacks become frames, channels go first, pixels are scaled."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from surefoot.agents.memory import FrameStack
from surefoot.agents.networks import CNN, MLP, Squashed
from surefoot.agents.normalization import Normalized
from surefoot.agents.policies import AS_IN_TRAINING, Policy, Spaces
from surefoot.errors import InputError
from surefoot.provenance import sha256


def fit_to(policy: Policy, shape: tuple[int, ...]) -> Policy:
    """Return the policy for an environment whose one observation has ``shape``; a stack becomes its frames.

    A file says only which shape it was trained on: (k, *shape) is read as gymnasium's FrameStackObservation, a
    last axis k times as long as VecFrameStack; both put the oldest first. The stack is filled with the first
    observation, where VecFrameStack fills with zeros. Images with channels last become channels first, as in SB3.
    """
    stored = policy.spaces.shape
    if stored == shape:
        return policy
    if not policy.stacks_frames:
        raise InputError(
            f"the agent was made for observations of shape {stored}, the environment gives {shape}; "
            "an agent with a memory of its own is not given stacks"
        )
    # A policy that stacks already is not given stacks of its stacks.
    if policy.spaces.n_stack == 1:
        if stored[1:] == shape:
            return _restacked(policy, shape, stored[0], last_axis=False)
        times = _axis_ratio(stored, shape)
        if times > 1 and stored == (*shape[:-1], times * shape[-1]):
            return _restacked(policy, shape, times, last_axis=True)
        if len(shape) == len(stored) == 3 and stored[1:] == shape[:2] and stored[0] % shape[2] == 0:
            return _with_frames(policy, ChannelsFirst(policy.network, stored), shape, stored[0] // shape[2])
    raise InputError(
        f"the agent was made for observations of shape {stored}, the environment gives {shape}; "
        f"expected the same shape or a stack of them; {AS_IN_TRAINING}"
    )


def _axis_ratio(stacked: tuple[int, ...], single: tuple[int, ...]) -> int:
    """Return how often the last axis of one shape goes into that of the other; 0 without such an axis."""
    if not stacked or not single or single[-1] == 0:
        return 0
    return stacked[-1] // single[-1]


def single_shape(stacked: tuple[int, ...], n_stack: int) -> tuple[int, ...]:
    """Return the shape of one of the ``n_stack`` observations in a stack, or say that it is not a stack."""
    if len(stacked) > 1 and stacked[0] == n_stack:
        return stacked[1:]
    if stacked and stacked[-1] % n_stack == 0:
        return (*stacked[:-1], stacked[-1] // n_stack)
    raise InputError(f"observations of shape {stacked} are not a stack of {n_stack} frames")


class PixelScale(nn.Module):
    """A network that takes pixels from 0 to ``pixel_max``, given pixels from 0 to 1."""

    def __init__(self, network: nn.Module, pixel_max: float) -> None:
        super().__init__()
        self.network = network
        self.pixel_max = pixel_max

    def forward(self, history: Tensor) -> Tensor:
        """Scale, and ask the network."""
        output: Tensor = self.network(history * self.pixel_max)
        return output


def scale_pixels(policy: Policy, spaces: Spaces, pixel_max: float | None) -> Policy:
    """Return the policy for pixels from 0 to 1, which is how they are observed here."""
    if not spaces.pixels:
        if pixel_max is not None:
            raise InputError("pixel_max= goes with observations that are pictures of bytes; leave it out")
        return policy
    if pixel_max is None or not 0 < pixel_max < float("inf"):
        raise InputError(
            "the observations are pictures of bytes: say what the agent takes, pixel_max=255 if it takes bytes and "
            "divides by 255 itself, pixel_max=1 if it takes numbers from 0 to 1"
        )
    if pixel_max == 1:
        return replace(policy, pixel_max=pixel_max)
    digest = ""
    if policy.sha256:
        digest = sha256(policy.sha256.encode(), f"pixels to {pixel_max!r}".encode())
    return replace(policy, network=PixelScale(policy.network, float(pixel_max)), pixel_max=pixel_max, sha256=digest)


class Restacked(nn.Module):
    """A network made for stacks of another layout: frames on the first axis, or concatenated along the last."""

    def __init__(self, network: nn.Module, stored: tuple[int, ...], last_axis: bool) -> None:
        super().__init__()
        self.network = network
        self.stored = stored
        self.last_axis = last_axis

    def forward(self, history: Tensor) -> Tensor:
        """Lay the frames out as the network knows them."""
        if self.last_axis:
            history = history.movedim(1, -2)
        output: Tensor = self.network(history.reshape(len(history), 1, *self.stored))
        return output


class ChannelsFirst(nn.Module):
    """A network made for images (channels, height, width), given (frames, height, width, channels)."""

    def __init__(self, network: nn.Module, stored: tuple[int, ...]) -> None:
        super().__init__()
        self.network = network
        self.stored = stored

    def forward(self, history: Tensor) -> Tensor:
        """Put the channels first, those of the oldest frame before the others."""
        output: Tensor = self.network(history.movedim(-1, 2).reshape(len(history), 1, *self.stored))
        return output


def _restacked(policy: Policy, shape: tuple[int, ...], n_stack: int, *, last_axis: bool) -> Policy:
    network = policy.network
    inner = network.network if isinstance(network, Normalized) else network
    # Concatenated flattened vectors are the flattened stack: an MLP stays the MLP it is.
    same_flat = isinstance(inner, MLP | Squashed) and (not last_axis or len(shape) == 1)
    same_channels = isinstance(inner, CNN) and not last_axis
    if not same_flat and not same_channels:
        network = Restacked(network, policy.spaces.shape, last_axis)
    return _with_frames(policy, network, shape, n_stack)


def _with_frames(policy: Policy, network: nn.Module, shape: tuple[int, ...], n_stack: int) -> Policy:
    """Return the policy over a stack of single observations."""
    spaces = replace(policy.spaces, shape=shape, n_stack=n_stack)
    return replace(policy, network=network, spaces=spaces, memory=FrameStack(n_stack))
