"""A function of tensors as one CUDA graph: all its kernels start at once, instead of one after another from Python."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

WARM_UPS = 2  # calls before the recording, in which cuDNN and cuBLAS load kernels and reserve memory


class CudaGraph:
    """A function of tensors that is recorded at its first call and replayed from then on.

    A graph reads and writes fixed addresses (documentation of torch.cuda.CUDAGraph). Therefore arguments are copied to
    where the graph reads them, except those that it changes in place, and results are copied before the next replay
    overwrites them. Its kernels are those of `run`, so it computes the same bits.

    Args:
        run: Takes and returns tensors of one GPU, with the same shapes at every call, and reads nothing on the host.
        changed: For each argument, whether `run` changes it in place. These are the same tensors at every call.
    """

    def __init__(self, run: Callable[..., Sequence[Tensor]], changed: Sequence[bool]) -> None:
        self._run, self._changed = run, list(changed)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []  # of the graph, without those that it changes
        self._outputs: Sequence[Tensor] = ()

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Return what `run` returns, as tensors of the caller's own. Call it within torch.no_grad()."""
        if self._graph is None:
            self._graph = self._record(tensors)
        torch._foreach_copy_(self._inputs, [x for x, stays in zip(tensors, self._changed) if not stays])
        self._graph.replay()
        return [x.clone() for x in self._outputs]

    def _record(self, tensors: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
        """Record the graph, which does not run yet; arguments have the values that they came with."""
        device = tensors[0].device
        every = [x if stays else x.clone() for x, stays in zip(tensors, self._changed, strict=True)]
        self._inputs = [x for x, stays in zip(every, self._changed) if not stays]
        state = [x for x, stays in zip(every, self._changed) if stays]
        before = [x.clone() for x in state]
        stream, current = torch.cuda.Stream(device), torch.cuda.current_stream(device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self._run(*every)
        current.wait_stream(stream)
        for x, value in zip(state, before):
            x.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # another thread may use the GPU (--overlap)
            self._outputs = self._run(*every)
        return graph
