"""Actions in parts as one number: the values of all combinations, from those of the values of each part."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Joint(nn.Module):
    """A network with outputs for each part of an action, as one value for every combination of them.

    The best combination is the best value of each part: values add, in double precision, so that no sum is rounded to
    another order. The last part counts fastest.
    """

    def __init__(self, network: nn.Module, factors: tuple[int, ...], *, binary: bool) -> None:
        """Wrap a network.

        Args:
            network: Its outputs are the values of the first part, of the second, and so on; of binary parts one each,
                the value of 1, where 0 has the value 0.
            factors: How many values each part has.
            binary: Whether parts are binary in this sense.
        """
        super().__init__()
        self.network = network
        self.factors = factors
        self.binary = binary

    def forward(self, history: Tensor) -> Tensor:
        """Return one value per combination."""
        output: Tensor = self.network(history).double()
        if self.binary:
            output = torch.stack((torch.zeros_like(output), output), dim=2).flatten(1)
        first, *others = torch.split(output, list(self.factors), dim=1)
        for values in others:
            first = (first.unsqueeze(2) + values.unsqueeze(1)).flatten(1)
        return first
