"""Just-in-time compilation of a function of tensors: CUDA graphs on a GPU, and torch.compile on a CPU or on both.

Operations are traced first, gradients included. On a GPU the traced operations are recorded as one CUDA graph
(cuda_graph.py); --compile-with inductor lets torch.compile join them into fewer kernels before. On a CPU torch.compile
makes C++ kernels, for tests and comparisons.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from proximo.errors import notify
from proximo.on_torch.compile.aot import TensorFunction, check_layout, trace_function, unshared, unsupported_reason
from proximo.on_torch.compile.aot_build import INDUCTOR_OPTIONS, quiet, torch_fault
from proximo.on_torch.compile.aot_cache import describe_layout
from proximo.on_torch.compile.cuda_graph import CudaGraph

Finish = Callable[[torch.fx.GraphModule, list[bool], str], Callable[..., Any]]


def unsupported_by_inductor(device: torch.device) -> str | None:
    """Return why torch.compile does not work on a device, as one sentence, or None if it does."""
    if device.type == "cpu":
        return unsupported_reason()
    from torch.utils._triton import has_triton

    if has_triton():
        return None
    return ("--compile-with inductor on a GPU needs Triton and a GPU that it supports (pip install triton). Running "
            "without it.")


def record(graph: torch.fx.GraphModule, changed: list[bool], name: str) -> Callable[..., Any]:
    """Make a CUDA graph of traced operations: the kernels of eager training."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        node.target = torch.ops.aten.reshape.default  # cuDNN may arrange a result otherwise than the trace assumes
    graph.recompile()
    return CudaGraph(graph, changed)


def fuse(graph: torch.fx.GraphModule, changed: list[bool], name: str) -> Callable[..., Any]:
    """Let torch.compile make fewer kernels of traced operations, at the first call. torch keeps them in a cache of its
    own (TORCHINDUCTOR_CACHE_DIR)."""
    notify(f"{name}: compiled by torch.compile at its first call (up to a minute; cached by torch)")
    run: Callable[..., Any] = torch.compile(graph, fullgraph=True, dynamic=False, options=dict(INDUCTOR_OPTIONS))
    return run


def fuse_and_record(graph: torch.fx.GraphModule, changed: list[bool], name: str) -> Callable[..., Any]:
    """Make a CUDA graph of the kernels of torch.compile."""
    return CudaGraph(fuse(graph, changed, name), changed)


def compile_just_in_time(function: TensorFunction, example: tuple[Tensor, ...], name: str,
                         finish: Finish) -> TensorFunction:
    """Compile `function(*tensors) -> tuple of tensors`.

    The compiled function changes its arguments in place wherever `function` does; these must be the same tensors at
    every call. What it returns belongs to the caller.

    Args:
        function: Takes and returns tensors only.
        example: Tensors with the shapes, dtypes, strides and device of all later calls.
        name: What messages call the function.
        finish: Makes the compiled function from the traced operations, which of its arguments they change, and `name`:
            record, fuse or fuse_and_record.

    Raises:
        UsageError: torch cannot compile the function.
    """
    layout = [describe_layout(tensor) for tensor in example]
    with quiet(), torch_fault(name):
        graph = trace_function(function, unshared(example), {})
    run, called = finish(graph, changed_in_place(graph), name), False

    def compiled(*tensors: Tensor) -> list[Tensor]:
        nonlocal called
        with torch.no_grad():
            if called:
                return list(run(*tensors))
            check_layout(tensors, layout, name)
            called = True
            with quiet(), torch_fault(name):
                return list(run(*tensors))

    return compiled


def changed_in_place(graph: torch.fx.GraphModule) -> list[bool]:
    """Return for each argument of a traced function whether it is changed in place."""
    changed = {node.args[0] for node in graph.graph.nodes
               if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable}
    return [place in changed for place in graph.graph.find_nodes(op="placeholder")]
