"""Random numbers of a policy's own, for agents that are declared stochastic.

Such an agent draws from the global generators of torch, numpy and Python, which are seeded for every block of episodes
and restored afterward: a block is then as reproducible as any other, and no two blocks share what the agent draws. To a
certificate its randomness is part of the environment, like the initial state: independent of the noise.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def restored() -> Iterator[None]:
    """Restore the global generators at the end, whatever has been drawn."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 - what agents in the wild draw from
    # CUDA is not to be set up just for this: a forked process could not use it.
    cuda: Any = torch.cuda
    devices = [cuda.current_device()] if cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


@contextmanager
def seeded(seeds: np.random.SeedSequence, torch_seed: int) -> Iterator[None]:
    """Seed the global generators, and restore them at the end; blocks must differ in the 32 bits that torch keeps."""
    words = seeds.generate_state(8)
    with restored():
        random.seed(words.tobytes())
        np.random.seed(words)  # noqa: NPY002
        # Without CUDA it would be noted for later, each time with a trace of all calls: most of what a seed costs.
        if torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
            torch.manual_seed(torch_seed)
        else:
            torch.default_generator.manual_seed(torch_seed)
        yield


def states() -> tuple[object, ...]:
    """Return the states of the global generators, to be compared: drawing changes them."""
    legacy = np.random.get_state(legacy=False)["state"]  # noqa: NPY002
    return random.getstate(), legacy["key"].tobytes(), legacy["pos"], torch.get_rng_state().numpy().tobytes()
