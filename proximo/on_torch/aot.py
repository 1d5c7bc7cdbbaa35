"""Ahead-of-time compilation of a function of tensors: one call of a native library, without guards or Python.

This file uses private entry points of torch, and is the only one that does. Each is imported inside the function that
needs it: if one moves, `unsupported_reason` says so and the run is not compiled, instead of an ImportError.
"""

import contextlib
import hashlib
import logging
import os
import platform
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proximo.errors import FilesError, UsageError, notify

TensorFunction = Callable[..., Sequence[Tensor]]

# Matrix products of at most this many rows are compiled in place instead of calling a library.
FEW_ROWS = 8

# Increase this whenever the way from a traced function to a library changes, so that no older library is used.
FORMAT = 1

# One compiling process per function: a pool takes longer to start than it saves.
# The low threshold computes Adam's scalar bias corrections once instead of for every 8 weights. tanh computed by exp
# has an error of at most 1e-7, and reduces a minibatch step of two 64-64 networks from 281 to 225 us.
INDUCTOR_OPTIONS = {"compile_threads": 1, "realize_opcount_threshold": 4, "cpp.use_decompose_tanh": True}


def unsupported_reason() -> str | None:
    """Return why functions cannot be compiled on this machine, as one sentence, or None if they can."""
    if platform.system() != "Linux":
        return f"--compile is tested on Linux only, not on {platform.system()}. Running without it."
    try:
        from torch._C._aoti import AOTIModelContainerRunnerCpu  # noqa: F401
        from torch._inductor import aot_compile  # noqa: F401
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler
        from torch.fx.experimental.proxy_tensor import make_fx  # noqa: F401
        from torch.nn.utils.stateless import _reparametrize_module  # noqa: F401
    except ImportError as fault:
        return f"--compile does not support torch {torch.__version__} ({fault}). Running without it."
    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        return "--compile needs a C++ compiler (apt-get install g++, or set CXX). Running without it."
    return None


def functional(agent: nn.Module, function: TensorFunction) -> TensorFunction:
    """Return `function` with the agent's weights as an additional first argument.

    The weights are one tensor (P,) in the order of `agent.named_parameters()`. While `function` runs, the agent's
    parameters are slices of it that require a gradient, so `torch.autograd.grad(loss, list(agent.parameters()))`
    works. No gradient flows into the weights themselves.
    """
    from torch.nn.utils.stateless import _reparametrize_module

    shapes = {name: parameter.shape for name, parameter in agent.named_parameters()}
    sizes = [shape.numel() for shape in shapes.values()]

    def with_weights(weights: Tensor, *tensors: Tensor) -> Sequence[Tensor]:
        parts = weights.detach().split(sizes)
        slices = {name: part.view(shape).requires_grad_()
                  for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        with _reparametrize_module(agent, slices, tie_weights=True):
            return function(*tensors)

    return with_weights


def compile_ahead(function: TensorFunction, example: tuple[Tensor, ...], name: str) -> TensorFunction:
    """Compile `function(*tensors) -> tuple of tensors` on the CPU.

    The compiled function changes its arguments in place wherever `function` does. Arguments that are changed must not
    share memory with others. Everything that `function` closes over keeps its present value. Libraries are stored in
    the user's cache, never in a run folder, because loading one runs its code.

    Args:
        function: Takes and returns tensors only.
        example: Tensors with the shapes, dtypes and strides of all later calls, which the first call checks.
        name: What messages call the function.

    Raises:
        UsageError: torch cannot compile the function.
        FilesError: The cache cannot be written.
    """
    layout = [_layout(tensor) for tensor in example]
    example = tuple(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype) for tensor in example)
    folder = _folder()
    with _quiet(), _one_sentence(name, folder):
        graph = _trace(function, example)
        key = _key(graph, example)
        run = _load(folder, key)
        if run is None:
            notify(f"compiling {name} (about 20 s; cached for later runs)")
            _build(graph, example, folder, key)
            run = _load(folder, key)
    if run is None:
        raise UsageError(f"{name} was compiled, but its library cannot be loaded from {folder}. Run without --compile, "
                         "or set XDG_CACHE_HOME to a folder from which programs may run.")
    return _caller(run, layout, name)


def _caller(run: Callable[[list[Tensor]], list[Tensor]], layout: list[str], name: str) -> TensorFunction:
    """Check the layout at the first call: the library does not, and tensors of another layout would corrupt memory."""
    unchecked = True

    def compiled(*tensors: Tensor) -> list[Tensor]:
        nonlocal unchecked
        if unchecked:
            given = [_layout(tensor) for tensor in tensors]
            if given != layout:
                raise UsageError(f"{name} was compiled for {layout} and was called with {given}.")
            unchecked = False
        return run(list(tensors))

    return compiled


def _trace(function: TensorFunction, example: tuple[Tensor, ...]) -> torch.fx.GraphModule:
    """Record the operations of `function`, gradients included, without computing or changing any of `example`."""
    from torch.fx.experimental.proxy_tensor import make_fx

    table: dict[Any, Callable[..., Any]] = {torch.ops.aten.addmm.default: _addmm, torch.ops.aten.mm.default: _mm}
    return make_fx(function, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)(*example)


def _mm(a: Tensor, b: Tensor) -> Tensor:
    """Replace a product of few rows by a sum that is compiled in place: calling a library costs more than it."""
    if a.shape[0] > FEW_ROWS:
        return NotImplemented
    return (a.unsqueeze(1) * b.t().unsqueeze(0)).sum(-1)


def _addmm(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    if a.shape[0] > FEW_ROWS or beta != 1 or alpha != 1:
        return NotImplemented
    return _mm(a, b) + bias


def _layout(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.device}"


def _key(graph: torch.fx.GraphModule, example: tuple[Tensor, ...]) -> str:
    """Hash everything that decides what the library computes: operations, constants, layouts, torch, settings, CPU."""
    settings = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
                torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled)
    parts = [str(FORMAT), str(INDUCTOR_OPTIONS), graph.code, *map(_layout, example), str(settings),
             torch.__version__, str(torch.version.git_version), torch.backends.cpu.get_cpu_capability(), _cpu()]
    digest = hashlib.sha256("\n".join(parts).encode())
    for constant_name, constant in sorted(_constants(graph).items()):
        digest.update(f"{constant_name} {_layout(constant)}".encode())
        digest.update(constant.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _constants(graph: torch.fx.GraphModule) -> dict[str, Tensor]:
    named = {**dict(graph.named_parameters()), **dict(graph.named_buffers())}
    return {node.target: named[node.target] for node in graph.graph.find_nodes(op="get_attr")}


def _cpu() -> str:
    """Return the instruction sets of this CPU: the compiler uses all, and machines may share a home folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {flags}"


def _folder() -> Path:
    """Return the cache folder. It is created if it does not exist, and other users cannot read it."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proximo" / "aot"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise FilesError(f"The cache {folder} cannot be created ({fault.strerror}). Set XDG_CACHE_HOME to another "
                         "folder, or run without --compile.") from fault
    return folder


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _load(folder: Path, key: str) -> Callable[[list[Tensor]], list[Tensor]] | None:
    """Load the library of a key, or return None. Damaged ones, recognised by their digest, are removed."""
    from torch._C._aoti import AOTIModelContainerRunnerCpu

    for file in sorted(folder.glob(f"{key}-*.so")):
        try:
            if _digest(file) == file.stem.removeprefix(f"{key}-"):
                return AOTIModelContainerRunnerCpu(str(file), 1).run
        except (OSError, RuntimeError):
            pass
        file.unlink(missing_ok=True)
    return None


def _build(graph: torch.fx.GraphModule, example: tuple[Tensor, ...], folder: Path, key: str) -> None:
    """Compile into a temporary folder, then rename the file to KEY-DIGEST.so, so that a file of that name is complete.

    Two processes that compile the same function at once do the work twice and do not disturb each other.
    """
    from torch._inductor import aot_compile

    with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as workshop, torch.no_grad():
        library = Path(workshop) / "function.so"
        aot_compile(graph, example, options={**INDUCTOR_OPTIONS, "aot_inductor.output_path": str(library)})
        library.replace(folder / f"{key}-{_digest(library)}.so")


@contextlib.contextmanager
def _one_sentence(name: str, folder: Path) -> Iterator[None]:
    """Turn every failure of torch, and a full disk, into an error of Proximo."""
    try:
        yield
    except OSError as fault:
        raise FilesError(f"The compiled {name} cannot be written to {folder} ({fault.strerror}). Set XDG_CACHE_HOME to "
                         "another folder, or run without --compile.") from fault
    except Exception as fault:
        reason = str(fault).strip().splitlines() or [type(fault).__name__]
        raise UsageError(f"torch cannot compile {name} ({reason[0]}). Run without --compile.") from fault


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the compiler's warnings and log lines, which concern torch's own code."""
    loggers = [logger for name, logger in logging.root.manager.loggerDict.items() if name.startswith("torch")]
    handlers = [handler for logger in loggers for handler in getattr(logger, "handlers", ())]
    levels = [handler.level for handler in handlers]
    try:
        for handler in handlers:
            handler.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)
