"""Just-in-time compilation of a function of tensors by torch.compile: CUDA graphs on a GPU, C++ kernels on a CPU.

On a GPU a function becomes one CUDA graph, which starts all its kernels at once. A graph reads and writes fixed
addresses (docs: torch.compiler, CUDAGraph Trees). Therefore shapes never change, nothing is read by the host, tensors
that a function changes in place stay where they are, and what it returns is copied: the next call overwrites it.

This was run on CPUs only, where torch takes the same way up to the graphs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from proximo.errors import notify
from proximo.on_torch.aot import TensorFunction, check_layout, trace_function, unshared, unsupported_reason
from proximo.on_torch.aot_build import INDUCTOR_OPTIONS, quiet, torch_fault
from proximo.on_torch.aot_cache import describe_layout


def unsupported_by_device(device: torch.device) -> str | None:
    """Return why torch.compile does not work on a device, as one sentence, or None if it does."""
    if device.type == "cpu":
        return unsupported_reason()
    from torch.utils._triton import has_triton

    if has_triton():
        return None
    return "--compile on a GPU needs Triton and a GPU that it supports (pip install triton). Running without it."


def settings_for(device: torch.device) -> dict[str, Any]:
    """Return the arguments of torch.compile: CUDA graphs on a GPU, and the kernels of aot_build.py on a CPU."""
    return {"mode": "reduce-overhead"} if device.type == "cuda" else {"options": INDUCTOR_OPTIONS}


def compile_just_in_time(function: TensorFunction, example: tuple[Tensor, ...], name: str,
                         torch_compile: Callable[..., Callable[..., Any]] = torch.compile) -> TensorFunction:
    """Compile `function(*tensors) -> tuple of tensors` by torch.compile, at its first call.

    The operations are traced first, gradients included, so that torch.compile gets one graph. torch keeps the kernels
    in a cache of its own (TORCHINDUCTOR_CACHE_DIR). The compiled function changes its arguments in place wherever
    `function` does; these must be the same tensors at every call.

    Args:
        function: Takes and returns tensors only.
        example: Tensors with the shapes, dtypes, strides and device of all later calls. Those that `function` changes
            in place are the ones of all later calls.
        name: What messages call the function.
        torch_compile: torch.compile, or something with its arguments.

    Raises:
        UsageError: torch cannot compile the function.
    """
    layout = [describe_layout(tensor) for tensor in example]
    with quiet(), torch_fault(name):
        graph = trace_function(function, unshared(example), {})
        for tensor in changed_in_place(graph, example):
            torch._dynamo.mark_static_address(tensor)
        run = torch_compile(graph, fullgraph=True, dynamic=False, **settings_for(example[0].device))
    called = False

    def call(tensors: tuple[Tensor, ...]) -> list[Tensor]:
        with torch.no_grad():
            torch.compiler.cudagraph_mark_step_begin()
            return [x.clone() for x in run(*tensors)]

    def compiled(*tensors: Tensor) -> list[Tensor]:
        nonlocal called
        if called:
            return call(tensors)
        check_layout(tensors, layout, name)
        called = True
        notify(f"compiling {name} by torch.compile (up to a minute; cached by torch)")
        with quiet(), torch_fault(name):
            return call(tensors)

    return compiled


def changed_in_place(graph: torch.fx.GraphModule, example: tuple[Tensor, ...]) -> list[Tensor]:
    """Return the arguments that a traced function changes in place."""
    changed = {node.args[0] for node in graph.graph.nodes
               if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable}
    places = graph.graph.find_nodes(op="placeholder")
    return [tensor for tensor, place in zip(example, places, strict=True) if place in changed]
