"""Work on a GPU recorded as a CUDA graph: for small networks launching the kernels takes longer than running them."""

from __future__ import annotations

from collections.abc import Callable

import torch


def recorded(work: Callable[[], None], generator: torch.Generator | None = None) -> torch.cuda.CUDAGraph:
    """Return the work as a graph to replay, on the same tensors.

    It is done three times before, so that libraries have set themselves up.

    Args:
        work: What to record; it may not wait for the GPU.
        generator: Where it draws its random numbers from, if not from torch's own: every replay draws others.
    """
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        work()
    return graph
