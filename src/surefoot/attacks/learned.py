"""An attacker that was learned: a network from what its view shows to a perturbation, and the file that keeps it.

``learning`` trains one. The file holds plain arrays and a JSON card; opening it executes no code. Pixels are too many
for the network: there ``flips`` attacks by rules that were learned, kept in a file of the same kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surefoot.agents.networks import weights_hash
from surefoot.agents.policies import Policy
from surefoot.attacks.base import check_discrete
from surefoot.attacks.flips import ATTACKER_SCHEMA, PixelAttacker, rules_of
from surefoot.episodes import MOST_STEPS
from surefoot.errors import InputError
from surefoot.files import is_count, read_npz, untrusted, write_npz
from surefoot.play.channel import View
from surefoot.play.task import Task

MOST_INPUTS = 20_000  # numbers of an observation and a memory: more are pixels
FARTHEST = 10.0  # standard deviations: what is farther from the mean is clipped for the network
LEAST_SCALE = 1e-6
CHANNELS = ("observations", "actions")  # one of which an attacker perturbs


class BudgetNetwork(nn.Module):
    """Two hidden layers over what is known and the budget that is left, measured in standard deviations.

    Attacker and critic both are one of these.
    """

    def __init__(self, n_known: int, n_outputs: int, width: int) -> None:
        super().__init__()
        self.center: Tensor
        self.scale: Tensor
        self.budget_scale: Tensor
        self.register_buffer("center", torch.zeros(n_known))
        self.register_buffer("scale", torch.ones(n_known))
        self.register_buffer("budget_scale", torch.ones(()))
        self.layers = nn.ModuleList(
            [nn.Linear(n_known + 2, width), nn.Linear(width, width), nn.Linear(width, n_outputs)]
        )

    @property
    def last(self) -> nn.Linear:
        """The last layer."""
        layer = self.layers[-1]
        assert isinstance(layer, nn.Linear)
        return layer

    @property
    def n_known(self) -> int:
        """How many numbers it is given besides the budget."""
        return self.center.numel()

    def forward(self, known: Tensor, budget_left: Tensor) -> Tensor:
        """Return the outputs, (rows, n_outputs)."""
        inputs = ((known - self.center) * self.scale).clamp(-FARTHEST, FARTHEST)
        left = (budget_left / self.budget_scale).unsqueeze(1)
        # Both, because a small budget is to be told from a smaller one, and a large one from a larger.
        hidden = torch.cat((inputs, left, torch.log(left + 0.01)), dim=1)
        first, second, last = self.layers
        output: Tensor = last(torch.tanh(second(torch.tanh(first(hidden)))))
        return output


def spend(proposed: Tensor, budget_left: Tensor, norm: str = "l2") -> Tensor:
    """Return perturbations of less than the budget left: a share of it, which grows with the network's output."""
    size = proposed.square()
    if norm == "l2":
        size = size.sum(dim=1, keepdim=True)
    return budget_left.unsqueeze(1) * proposed / (1 + size).sqrt()


def read_view(view: View, max_steps: int) -> Tensor:
    """Return what a learned attacker looks at, one row each, but for the budget.

    The clean observation, what the agent remembers, the time, and the action that the agent has chosen; where that is
    still to come, what it would do or value now without noise.
    """
    policy = view.policy
    parts = [view.observation.flatten(1), view.memory.flatten(1), (view.step / max_steps).unsqueeze(1)]
    if view.chosen is not None:
        parts.append(view.chosen.flatten(1))
    elif not policy.open_loop:
        remembered = policy.memory.advance(view.memory, view.observation, view.action, view.step == 0)
        parts.append(policy.network(remembered).flatten(1))
    return torch.cat([part.float() for part in parts], dim=1)


@dataclass(frozen=True, eq=False)
class LearnedAttacker:
    """Proposes what its network says, for every budget.

    Attributes:
        network: Maps what ``read_view`` returns and the budget left to ``spend``'s first argument.
        unit: What a perturbation of each feature is measured in, as the ledger measures it; 0 where none is allowed.
        max_steps: The longest episode, by which time is measured.
        channel: What it perturbs: observations or actions.
        card: What it was trained on and how, JSON data.
    """

    network: BudgetNetwork
    unit: Tensor
    max_steps: int
    channel: str = "observations"
    card: dict[str, Any] = field(default_factory=dict)

    @torch.no_grad()
    def propose(self, view: View) -> Tensor:
        """Return the network's perturbations."""
        return self._perturb(view, read_view(view, self.max_steps))

    def _perturb(self, view: View, known: Tensor) -> Tensor:
        device = view.observation.device
        if self.unit.device != device:
            # Once per block: a plan is sent to its workers on the CPU.
            self.network.to(device)
            object.__setattr__(self, "unit", self.unit.to(device))
        left = view.budget_left.float()
        moved = spend(self.network(known, left), left, view.scope.norm) * self.unit
        return moved.view(view.target.shape)

    def describe(self) -> dict[str, Any]:
        """Return its name, hash and what it was trained on, for the record."""
        return {"name": "learned", "sha256": self.sha256, "trained_on": self.card.get("trained_on")}

    @property
    def sha256(self) -> str:
        """Hash of its weights."""
        return weights_hash(self.arrays(), {"max_steps": self.max_steps, "channel": self.channel})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return its weights by their names in the file."""
        named = {"unit": self.unit.cpu().numpy()}
        for name, value in self.network.state_dict().items():
            named[name] = value.detach().cpu().numpy()
        return named

    def check_fit(self, task: Task, policy: Policy, channel: str) -> None:
        """Raise InputError if it cannot attack this agent: another number of observed or remembered numbers.

        Args:
            task: The task that the agent runs.
            policy: The agent.
            channel: What is attacked.
        """
        if channel != self.channel:
            raise InputError(
                f"the attacker was trained to perturb {self.channel}, and {channel} are attacked; use one that was "
                f"trained on {channel}"
            )
        expected = count_known(task, policy, channel)
        if expected != self.network.n_known or count_perturbed(task, channel) != self.unit.numel():
            raise InputError(
                f"the attacker looks at {self.network.n_known} numbers, the agent {policy.name} on {task.name} gives "
                f"{expected}; use an attacker that was trained on an agent of the same kind"
            )

    def save(self, path: str | Path) -> None:
        """Write weights and card to an ``.npz``."""
        header = {"schema": ATTACKER_SCHEMA, "sha256": self.sha256, "max_steps": self.max_steps}
        header |= {"channel": self.channel, "card": self.card}
        write_npz(Path(path), header, self.arrays())


def count_known(task: Task, policy: Policy, channel: str = "observations") -> int:
    """Return how many numbers ``read_view`` returns for an agent."""
    observation = torch.zeros(1, *task.spaces.shape)
    memory = policy.memory.empty(observation)
    count = observation.numel() + memory.numel() + 1
    if channel == "actions":
        count += count_perturbed(task, channel)
    elif not policy.open_loop:
        count += policy.spaces.n_outputs
    return count


def count_perturbed(task: Task, channel: str) -> int:
    """Return how many numbers of an observation, or of an action, there are."""
    if channel == "actions":
        return task.spaces.n_outputs
    return math.prod(task.spaces.shape)


def observes_pixels(task: Task, policy: Policy) -> bool:
    """Return whether an agent sees too many numbers for a network of the attacker's own."""
    return count_known(task, policy) > MOST_INPUTS


def check_learnable(task: Task, policy: Policy) -> None:
    """Raise InputError if an attacker cannot be learned against an agent: on pixels its gradients are needed."""
    if observes_pixels(task, policy):
        check_discrete(policy)


def load_attacker(path: str | Path) -> LearnedAttacker | PixelAttacker:
    """Read the file that ``save`` of a learned attacker wrote.

    Raises:
        InputError: If the file is absent, damaged, of another version, or its weights are not those of its card.
    """
    path = Path(path)
    header, arrays = read_npz(path, "learned attacker")
    if header["schema"] != ATTACKER_SCHEMA:
        raise InputError(f"{path} has schema {header['schema']!r:.20}, this version reads {ATTACKER_SCHEMA}")
    with untrusted(path, "learned attacker"):
        attacker = _attacker_of(header, arrays)
        if attacker.sha256 != header["sha256"]:
            raise ValueError("its weights are not those of its card")
    return attacker


def _attacker_of(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> LearnedAttacker | PixelAttacker:
    card = dict(header["card"])
    if arrays.keys() == {"rules"}:
        return PixelAttacker(rules_of(arrays["rules"]), card)
    if not (is_count(header["max_steps"]) and header["max_steps"] <= MOST_STEPS):
        raise TypeError(f"max_steps is not a whole number from 1 to {MOST_STEPS:,}")
    channel = header["channel"]
    if channel not in CHANNELS:
        raise ValueError(f"channel is {channel!r:.20}, expected one of {', '.join(CHANNELS)}")
    unit = arrays.pop("unit")
    network = _network_of(arrays)
    if unit.shape != (network.last.out_features,) or not np.isfinite(unit).all():
        raise ValueError("its units do not fit its network")
    return LearnedAttacker(network, torch.from_numpy(unit).float(), header["max_steps"], channel, card)


def _network_of(arrays: dict[str, NDArray[Any]]) -> BudgetNetwork:
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite numbers of single precision")
    if not float(arrays["budget_scale"]) > 0:
        raise ValueError("budget_scale is not above 0")
    width = arrays["layers.0.weight"].shape[0]
    n_outputs = arrays["layers.2.weight"].shape[0]
    # Without memory of its own: one large array in the file would ask for its square.
    with torch.device("meta"):
        network = BudgetNetwork(arrays["center"].size, n_outputs, width)
    state = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    # Strict: a name too many or too few, or another shape, is an error.
    network.load_state_dict(state, assign=True)
    return network.requires_grad_(False)
