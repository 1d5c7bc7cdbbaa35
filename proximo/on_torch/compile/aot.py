"""Ahead-of-time compilation of a function of tensors: one call of a native library, without guards or Python.

Only this file, aot_build.py, aot_cache.py and aot_record.py use private entry points of torch. They are imported inside
the function that needs them: if one moves, `unsupported_reason` says so and the run is not compiled, instead of an
ImportError.
"""

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from proximo.errors import UsageError
from proximo.on_torch.compile.aot_build import (
    FEW_ROWS_OPTIONS,
    FORMAT,
    INDUCTOR_OPTIONS,
    STACK_OPTIONS,
    one_sentence,
    quiet,
    start_build,
)
from proximo.on_torch.compile.aot_cache import (
    Run,
    cache_folder,
    checked_file,
    describe_graph,
    describe_layout,
    library_key,
    load_library,
)

TensorFunction = Callable[..., Sequence[Tensor]]
Record = TypeVar("Record")

# Matrix products of at most this many rows, or columns of few numbers each, are compiled in place. A library takes five
# times as long for a product with 2 columns as for one with 1.
FEW_ROWS = 8
FEW_COLUMNS = 4
FEW_TERMS = 2048
# How libraries are built.
WAY = f"{FORMAT} {INDUCTOR_OPTIONS} {FEW_ROWS_OPTIONS} {STACK_OPTIONS} {FEW_ROWS} {FEW_COLUMNS} {FEW_TERMS}"


def unsupported_reason() -> str | None:
    """Return why functions cannot be compiled on this machine, as one sentence, or None if they can.

    A file in the cache says that they can: to find it out, the compiler of torch is imported, which takes seconds.
    """
    if platform.system() != "Linux":
        return f"--compile is tested on Linux only, not on {platform.system()}. Running without it."
    if (checked := checked_file()) is not None and checked.exists():
        return None
    try:
        from torch._C._aoti import AOTIModelContainerRunnerCpu  # noqa: F401
        from torch._inductor import aot_compile  # noqa: F401
        from torch._inductor.cpp_builder import _run_compile_cmd, get_cpp_compiler  # noqa: F401
        from torch._inductor.cpu_vec_isa import VecISA  # noqa: F401
        from torch._inductor.exc import InvalidCxxCompiler
        from torch.fx.experimental.proxy_tensor import make_fx  # noqa: F401
        from torch.nn.utils.stateless import _reparametrize_module  # noqa: F401

        from proximo.on_torch.compile import aot_record  # noqa: F401
    except ImportError as fault:
        return f"--compile does not support torch {torch.__version__} ({fault}). Running without it."
    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        return "--compile needs a C++ compiler (apt-get install g++, or set CXX). Running without it."
    if checked is not None:
        with suppress(OSError):
            checked.touch()
    return None


def functional(agent: nn.Module, function: TensorFunction) -> TensorFunction:
    """Return `function` with the agent's weights as an additional first argument.

    The weights are one tensor (P,) in the order of `agent.named_parameters()`. While `function` runs, the agent's
    parameters are slices of it that require a gradient where the parameters do, so `torch.autograd.grad` works with
    them. No gradient flows into the weights themselves.
    """
    from torch.nn.utils.stateless import _reparametrize_module

    kept = {name: (parameter.shape, parameter.requires_grad) for name, parameter in agent.named_parameters()}
    sizes = [shape.numel() for shape, _ in kept.values()]
    own = [(module, name, parameter) for module in agent.modules() for name, parameter in module._parameters.items()]

    def with_weights(weights: Tensor, *tensors: Tensor) -> Sequence[Tensor]:
        parts = weights.detach().split(sizes)
        slices = {name: part.view(shape).requires_grad_(trained)
                  for (name, (shape, trained)), part in zip(kept.items(), parts, strict=True)}
        try:
            with _reparametrize_module(agent, slices, tie_weights=True):
                return function(*tensors)
        finally:  # torch does not put back those of a module that is reached by two names
            for module, name, parameter in own:
                module._parameters[name] = parameter

    return with_weights


def compile_ahead(function: TensorFunction, example: tuple[Tensor, ...], name: str) -> TensorFunction:
    """Compile `function(*tensors) -> tuple of tensors` on the CPU, in a child process.

    The first call waits for that process and loads the library, so several functions are compiled at the same time.
    The compiled function changes its arguments in place wherever `function` does. Arguments that are changed must not
    share memory with others. Numbers and tensors that `function` closes over keep their present values. Libraries are
    stored in the user's cache, never in a run folder, because loading one runs its code.

    Args:
        function: Takes and returns tensors only.
        example: Tensors with the shapes, dtypes and strides of all later calls, which the first call checks.
        name: What messages call the function.

    Raises:
        UsageError: torch cannot compile the function.
        FilesError: The cache cannot be written.
    """
    layout = [describe_layout(tensor) for tensor in example]
    example, folder = unshared(example), cache_folder()
    with quiet(), one_sentence(name, folder):
        from proximo.on_torch.compile.aot_record import record_operations

        trace = cache(partial(trace_function, function, example, SMALL_PRODUCTS))
        key = library_key(record_operations(function, example) or describe_graph(trace()), example, WAY)
        stored = load_library(folder, key)
        if stored is not None:
            return _caller(lambda: stored, layout, name)
        wait = start_build(trace(), example, folder, key, name)

    def load_built() -> Run:
        wait()
        run = load_library(folder, key)
        if run is None:
            raise UsageError(f"{name} was compiled, but its library cannot be loaded from {folder}. Run without "
                             "--compile, or set XDG_CACHE_HOME to a folder from which programs may run.")
        return run

    return _caller(load_built, layout, name)


def _caller(load: Callable[[], Run], layout: list[str], name: str) -> TensorFunction:
    """Load the library at the first call, and check the layout then: the library does not, and tensors of another
    layout would corrupt memory. Results are copied, because a small library overwrites them in its next call."""
    run: Run | None = None

    def compiled(*tensors: Tensor) -> list[Tensor]:
        nonlocal run
        if run is None:
            check_layout(tensors, layout, name)
            run = load()
        return [x.clone() for x in run(list(tensors))]

    return compiled


def check_layout(tensors: Sequence[Tensor], layout: list[str], name: str) -> None:
    """Raise UsageError if tensors are not as those that a function was compiled for."""
    given = [describe_layout(tensor) for tensor in tensors]
    if given != layout:
        raise UsageError(f"{name} was compiled for {layout} and was called with {given}.")


def as_rows(record: Record) -> Record:
    """Return a record whose tensors have the strides of the rows of a rollout, also along an axis with one entry.

    There `contiguous()` keeps any stride, such as the 0 of `x[None]` in numpy.
    """
    return cast(Record, tree_map_only(Tensor, lambda x: x.clone(memory_format=torch.contiguous_format), record))


def unshared(example: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return tensors with the same layouts, none of which is the same as another or shares its memory."""
    return tuple(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for x in example)


def trace_function(function: TensorFunction, example: tuple[Tensor, ...],
                   table: dict[Any, Callable[..., Any]]) -> torch.fx.GraphModule:
    """Record the operations of `function`, gradients included, without computing or changing any of `example`.

    Args:
        function: Takes and returns tensors only.
        example: Its arguments; tensors that are the same become one argument, see unshared().
        table: What operators are replaced by.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)(*example)


def _calls_library(a: Tensor, b: Tensor) -> bool:
    return a.shape[0] > FEW_ROWS and not (b.shape[1] <= FEW_COLUMNS and b.shape[0] <= FEW_TERMS)


def _mm(a: Tensor, b: Tensor) -> Tensor:
    """Replace a small product by a sum that is compiled in place: calling a library costs more than it."""
    if _calls_library(a, b):
        return NotImplemented
    return (a.unsqueeze(1) * b.t().unsqueeze(0)).sum(-1)


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if _calls_library(a, b) or beta != 1 or alpha != 1:
        return NotImplemented
    return _mm(a, b) + bias


SMALL_PRODUCTS: dict[Any, Callable[..., Any]] = {torch.ops.aten.addmm.default: _addmm, torch.ops.aten.mm.default: _mm}
