"""The victim's values as an attacker can compute them: on noisy observations, on clean ones, averaged over noise.

A smoothed agent is attacked through the mean of its values over noise samples (paper, "Attacks on Smoothed Agents").
The dirty context holds the noise that was really added, so only the present observation is averaged over. A clean stack
is averaged over too, which estimates the values of an unattacked smoothed agent in this state; noise cannot be added to
the state of a recurrent network afterwards, so there it is the state that clean observations led to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from surefoot.agents.networks import CNN
from surefoot.agents.policies import Policy
from surefoot.attacks.base import check_continuous, normalize_rows
from surefoot.compute import expand_rows
from surefoot.errors import InputError
from surefoot.noise import Noise
from surefoot.play.channel import View

# Rows of one forward and backward pass: what fits the cache of a core, what fills a GPU.
ROWS_AT_ONCE = {"cpu": 16_384, "cuda": 1_048_576}
# Of large observations fewer: numbers in the memories of one pass.
NUMBERS_AT_ONCE = {"cpu": 2**23, "cuda": 2**29}

# Numbers in the memories of one batch, which holds noise for all of its rows, gigabytes at most.
NUMBERS_OF_SCENE = {"cpu": 2**28, "cuda": 2**32}
# Directions in which an agent without gradients is probed.
MOST_PROBES = 16


@dataclass(frozen=True)
class Smoothing:
    """The noise an attacker averages over: none for an undefended agent."""

    # Standard deviation of the victim's noise, or those of the features where they differ.
    sigma: float | tuple[float, ...] = 0.0
    n_samples: int = 128  # number of noise samples that an average is taken over (the paper: 128)

    def __post_init__(self) -> None:
        sigmas = self.sigma if isinstance(self.sigma, tuple) else (self.sigma,)
        if not all(sigma >= 0 for sigma in sigmas):
            raise InputError(f"sigma must be >= 0, got {self.sigma}")
        if self.n_samples < 1:
            raise InputError(f"the number of noise samples must be at least 1, got {self.n_samples}")

    @property
    def samples_used(self) -> int:
        """How many samples an average really takes: one for an undefended agent."""
        if self.sigma == 0:
            return 1
        return self.n_samples

    def draw_noise(self, view: View, rows: Tensor, n_stack: int) -> Tensor | None:
        """Draw (rows, samples, n_stack, *shape) of noise, or None for an undefended agent."""
        if self.sigma == 0:
            return None
        shape = view.observation.shape[1:]
        noise = view.stream.normal((rows.numel(), self.n_samples, n_stack, *shape))
        if isinstance(self.sigma, tuple):
            return noise.mul_(torch.tensor(self.sigma, dtype=noise.dtype, device=noise.device).view(shape))
        return noise.mul_(self.sigma)


UNDEFENDED = Smoothing()


def smoothing_of(noise: Noise, n_samples: int) -> Smoothing:
    """Return the smoothing of an agent with this noise, each feature with its own sigma."""
    return Smoothing(noise.features or noise.sigma, n_samples)


def noisy_clean_memories(view: View, rows: Tensor, smoothing: Smoothing) -> Tensor:
    """Return the clean memories of some rows, (rows, samples, ...), with noise on every frame or on the newest."""
    if not view.policy.stacks_frames:
        batch = VictimBatch.of(replace(view, memory=view.clean), rows, smoothing)
        remembered = batch.memory_after(batch.clean)
        return remembered.view(rows.numel(), batch.n_samples, *remembered.shape[1:])
    begins = view.step[rows] == 0
    stack = view.policy.memory.advance(view.clean[rows], view.observation[rows], episode_start=begins).unsqueeze(1)
    noise = smoothing.draw_noise(view, rows, view.policy.spaces.n_stack)
    if noise is None:
        return stack
    return stack + _share_among_copies(noise, view.step[rows])


def clean_values(view: View, smoothing: Smoothing, rows: Tensor | None = None) -> Tensor:
    """Return the values of every action on the clean context and observation, averaged over noise on both.

    ``rows``  whose values are wanted (default: all)
    """
    if rows is None:
        rows = torch.arange(view.observation.shape[0], device=view.observation.device)
    with torch.no_grad():
        if smoothing.sigma == 0:
            return _network_values(view.policy, noisy_clean_memories(view, rows, smoothing).flatten(0, 1))
        means = []
        for some in torch.split(rows, max(1, rows_per_pass(view) // smoothing.samples_used)):
            memories = noisy_clean_memories(view, some, smoothing)
            values = _network_values(view.policy, memories.flatten(0, 1))
            means.append(_mean_over_samples(values, *memories.shape[:2]))
        return torch.cat(means)


@dataclass(eq=False)
class VictimBatch:
    """Agent memories and noise samples that an attack searches with, row by row."""

    policy: Policy  # the victim
    context: Tensor  # what agents remember of the steps before, with their perturbations and the noise really added
    action: Tensor | None  # the action of the step before; None when every row begins an episode
    # Which rows begin an episode, so that only the present observation counts; None when none does.
    episode_start: Tensor | None
    # Samples for the present observation, (rows, samples, *shape), or None for an undefended agent.
    noise: Tensor | None
    rows_per_pass: int  # how many memories one pass through the network takes
    clean: Tensor  # the present observation as it is
    # What the network's first layer makes of memories with ``clean`` in them, (rows, samples, ...). It is linear, so a
    # search computes it once, and then adds that of the perturbation, the same for all samples.
    first_layer_output: Tensor | None = None
    # Directions in which the values of an agent without gradients are compared, (directions, *shape).
    probes: Tensor | None = None

    @classmethod
    def of(cls, view: View, rows: Tensor, smoothing: Smoothing) -> VictimBatch:
        """Make the batch of some rows of a view; the noise samples stay the same as long as it lasts."""
        episode_start = (view.step == 0)[rows]
        noise = smoothing.draw_noise(view, rows, 1)
        batch = cls(
            view.policy,
            context=view.memory[rows],
            action=None if view.action is None else view.action[rows],
            episode_start=episode_start if bool(episode_start.any()) else None,
            noise=None if noise is None else noise[:, :, 0],
            rows_per_pass=rows_per_pass(view),
            clean=view.observation[rows],
            probes=None if view.policy.differentiable else _make_probes(view),
        )
        batch.compute_first_layer()
        return batch

    def compute_first_layer(self) -> None:
        """Compute its output where the first layer of the agent's network can be computed by itself."""
        network = self.policy.network
        if not isinstance(network, CNN) or not len(self.clean):
            return
        outputs = []
        with torch.no_grad():
            for some in self._row_slices():
                part = self.select_rows(some)
                outputs.append(network.first(part.memory_after(part.clean)))
        whole = torch.cat(outputs)
        self.first_layer_output = whole.view(-1, self.n_samples, *whole.shape[1:])

    @property
    def n_samples(self) -> int:
        """How many noise samples every row has; one for an undefended agent."""
        return 1 if self.noise is None else self.noise.shape[1]

    def select_rows(self, rows: Tensor | slice) -> VictimBatch:
        """Return the batch of some of its rows, by mask, index or slice."""
        return VictimBatch(
            self.policy,
            context=self.context[rows],
            action=_rows_of(self.action, rows),
            episode_start=_rows_of(self.episode_start, rows),
            noise=_rows_of(self.noise, rows),
            rows_per_pass=self.rows_per_pass,
            clean=self.clean[rows],
            first_layer_output=_rows_of(self.first_layer_output, rows),
            probes=self.probes,
        )

    def memory_after(self, moved: Tensor) -> Tensor:
        """Return what the agent would remember when it is shown ``moved``, row after row the noise samples."""
        if self.noise is None:
            return self.policy.memory.advance(self.context, moved, self.action, self.episode_start)
        context = self.context.repeat_interleave(self.n_samples, dim=0)
        action = _repeat_rows(self.action, self.n_samples)
        episode_start = _repeat_rows(self.episode_start, self.n_samples)
        seen = (moved.unsqueeze(1) + self.noise).flatten(0, 1)
        return self.policy.memory.advance(context, seen, action, episode_start)

    def values(self, moved: Tensor) -> Tensor:
        """Return the values of every action when the present observation is ``moved``, averaged over the noise."""
        return self.sample_values(moved).mean(dim=1)

    def sample_values(self, moved: Tensor) -> Tensor:
        """Return the same for each sample of the noise, (rows, samples, actions)."""
        network = self.policy.network
        if self.first_layer_output is None or not isinstance(network, CNN):
            values = _network_values(self.policy, self.memory_after(moved))
        else:
            # Linear: first(clean + change) = first(clean) + first_of_change(change).
            change = network.first_of_change(moved - self.clean, self.episode_start)
            values = network.after_first((self.first_layer_output + change.unsqueeze(1)).flatten(0, 1))
        return values.reshape(len(moved), self.n_samples, *values.shape[1:])

    def value_gradient(self, moved: Tensor, clean: Tensor) -> Tensor:
        """Return the gradient, with respect to ``moved``, of the critic's value of what the agent would then do.

        The critic judges on the stacks ``clean``, (rows, samples, n_stack, *shape), each with one noise sample of
        the batch.
        """
        critic = check_continuous(self.policy)
        here = moved.detach().requires_grad_()
        # The critic judges the clean context, the agent acts on the perturbed one: Q(C; o, pi(C'; o')).
        with torch.enable_grad():
            action = self.policy.act(self.memory_after(here))
            value = critic(clean.flatten(0, 1), action).reshape(clean.shape[:2]).mean(dim=1).sum()
            (gradient,) = torch.autograd.grad(value, here)
        return gradient

    def values_and_gradient(self, moved: Tensor, actions: Tensor, reach: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the values, and the gradient of the log-softmax of ``actions`` with respect to ``moved``.

        Of an agent without gradients it is estimated by differences over the distance ``reach``, one per row.
        """
        if self.probes is not None and reach is not None:

            def log_likelihood(at: Tensor) -> Tensor:
                return torch.log_softmax(self.values(at).double(), dim=1).gather(1, actions.unsqueeze(1)).squeeze(1)

            return self.values(moved), self._estimate_gradient(log_likelihood, moved, reach)
        all_values = []
        all_gradients = []
        for some in self._row_slices():
            values, gradient = self.select_rows(some)._log_probability_gradient(moved[some], actions[some])
            all_values.append(values)
            all_gradients.append(gradient)
        return torch.cat(all_values), torch.cat(all_gradients)

    def lead_and_gradient(self, moved: Tensor, harmful: Tensor, softness: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return whether the best action is a harmful one, by how much the others lead, and the gradient of the lead.

        Args:
            moved: The present observation, row by row.
            harmful: Which actions of each row are harmful, (rows, actions).
            softness: What values of each row are divided by before the best of several is taken, smoothly.
        """
        flipped = []
        leads = []
        gradients = []
        for some in self._row_slices():
            here = moved[some].detach().requires_grad_()
            with torch.enable_grad():
                values = self.select_rows(some).values(here)
                scaled = values / softness[some].unsqueeze(1)
                best_harmful = scaled.masked_fill(~harmful[some], -torch.inf).logsumexp(dim=1)
                best_other = scaled.masked_fill(harmful[some], -torch.inf).logsumexp(dim=1)
                lead = softness[some] * (best_other - best_harmful)
                gradients.append(torch.autograd.grad(lead.sum(), here)[0])
            leads.append(lead.detach())
            chosen = values.detach().argmax(dim=1, keepdim=True)
            flipped.append(harmful[some].gather(1, chosen).squeeze(1))
        return torch.cat(flipped), torch.cat(leads), torch.cat(gradients)

    def loss_gradient(self, moved: Tensor, loss: Tensor, softness: Tensor) -> Tensor:
        """Return the gradient, with respect to ``moved``, of the mean loss of the actions chosen under the noise.

        Args:
            moved: The present observation, row by row.
            loss: What is lost by each action, (rows, actions).
            softness: What values of each row are divided by before one is chosen, smoothly.
        """
        gradients = []
        for some in self._row_slices():
            here = moved[some].detach().requires_grad_()
            with torch.enable_grad():
                values = self.select_rows(some).sample_values(here)
                choices = torch.softmax(values / softness[some].view(-1, 1, 1), dim=2).mean(dim=1)
                gradients.append(torch.autograd.grad((choices * loss[some]).sum(), here)[0])
        return torch.cat(gradients)

    def actions(self, moved: Tensor) -> Tensor:
        """Return the continuous actions when the present observation is ``moved``, averaged over the noise."""
        with torch.no_grad():
            return torch.cat(
                [self.select_rows(some)._mean_action(moved[some], clipped=True) for some in self._row_slices()]
            )

    def action_gradient(self, moved: Tensor, slope: Tensor, reach: Tensor) -> Tensor:
        """Return the gradient, with respect to ``moved``, of the mean action's product with ``slope``, row by row.

        Actions that are clipped have a gradient all the same: that of what is clipped. Of an agent without gradients
        it is estimated by differences over the distance ``reach``, one per row.
        """
        if self.probes is not None:
            return self._estimate_gradient(lambda at: (self.actions(at).double() * slope).sum(dim=1), moved, reach)
        parts = []
        for some in self._row_slices():
            here = moved[some].detach().requires_grad_()
            with torch.enable_grad():
                product = (self.select_rows(some)._mean_action(here, clipped=False) * slope[some]).sum()
                parts.append(torch.autograd.grad(product, here)[0])
        return torch.cat(parts)

    def _mean_action(self, moved: Tensor, *, clipped: bool) -> Tensor:
        remembered = self.memory_after(moved)
        # What is clipped has no gradient outside of its limits; the network's own output has.
        actions = self.policy.act(remembered) if clipped else _network_values(self.policy, remembered)
        return _mean_over_samples(actions, len(moved), self.n_samples)

    def _row_slices(self) -> list[slice]:
        """Cut the rows into parts for one pass each."""
        size = max(1, self.rows_per_pass // self.n_samples)
        return [slice(first, first + size) for first in range(0, len(self.clean), size)]

    def share_choosing(self, moved: Tensor, actions: Tensor) -> Tensor:
        """Return the share of the noise samples under which the agent chooses ``actions`` (undefended: 0 or 1)."""
        plain = VictimBatch(
            self.policy, self.context, self.action, self.episode_start, None, self.rows_per_pass, self.clean
        )
        with torch.no_grad():
            if self.noise is None:
                return (plain.values(moved).argmax(dim=1) == actions).double()
            # Sample by sample, because the agent chooses under one of them, not by the mean of its values.
            samples = self.noise.unbind(dim=1)
            choices = [plain.values(moved + sample).argmax(dim=1) for sample in samples]
            chosen = torch.stack(choices) == actions
            return chosen.double().sum(dim=0) / len(samples)

    def _estimate_gradient(self, score: Callable[[Tensor], Tensor], moved: Tensor, reach: Tensor) -> Tensor:
        """Return twice the slope of ``score`` over the distance ``reach`` in every direction of ``probes``."""
        assert self.probes is not None
        gradient = torch.zeros_like(moved)
        for probe in self.probes:
            step = probe * expand_rows(reach.to(moved.dtype), moved)
            ahead = score(moved + step)
            behind = score(moved - step)
            gradient += probe * expand_rows((ahead - behind).to(moved.dtype), moved)
        return gradient

    def _log_probability_gradient(self, moved: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        here = moved.detach().requires_grad_()
        with torch.enable_grad():
            values = self.values(here)
            wanted = torch.log_softmax(values, dim=1).gather(1, actions.unsqueeze(1)).squeeze(1)
            (gradient,) = torch.autograd.grad(wanted.sum(), here)
        return values.detach(), gradient


def _share_among_copies(noise: Tensor, step: Tensor) -> Tensor:
    """Let the copies of an episode's first observation share its noise, as they do in the agent's frame stack."""
    # At step t the n_stack - 1 - t oldest frames are copies of the first observation.
    n_stack = noise.shape[2]
    first = (n_stack - 1 - step).clamp_min(0)
    place = torch.maximum(torch.arange(n_stack, device=noise.device), first.unsqueeze(1))
    index = place.view(place.shape[0], 1, n_stack, *[1] * (noise.dim() - 3)).expand_as(noise)
    return noise.gather(2, index)


def _rows_of(held: Tensor | None, rows: Tensor | slice) -> Tensor | None:
    return None if held is None else held[rows]


def _repeat_rows(held: Tensor | None, times: int) -> Tensor | None:
    return None if held is None else held.repeat_interleave(times, dim=0)


def _mean_over_samples(values: Tensor, rows: int, samples: int) -> Tensor:
    return values.reshape(rows, samples, *values.shape[1:]).mean(dim=1)


def _network_values(policy: Policy, memory: Tensor) -> Tensor:
    values: Tensor = policy.network(memory)
    return values


def _make_probes(view: View) -> Tensor:
    """Return the coordinates of a small observation, or random directions of a large one."""
    shape = view.observation.shape[1:]
    if shape.numel() <= MOST_PROBES:
        return torch.eye(shape.numel(), device=view.observation.device).reshape(-1, *shape)
    return normalize_rows(view.stream.normal((MOST_PROBES, *shape)))


def rows_per_pass(view: View) -> int:
    """Return how many rows one pass takes on the view's device."""
    kind = view.observation.device.type
    return max(1, min(ROWS_AT_ONCE[kind], NUMBERS_AT_ONCE[kind] // _memory_size(view)))


def rows_per_batch(view: View, smoothing: Smoothing) -> int:
    """Return how many rows one batch takes."""
    return max(1, NUMBERS_OF_SCENE[view.observation.device.type] // (_memory_size(view) * smoothing.samples_used))


def _memory_size(view: View) -> int:
    return view.memory[0].numel()
