"""A function of tensors, compiled ahead of time: one call into a native library, without guards, dispatch or Python.

These are private entry points of torch, used nowhere else. Each is imported inside the function that needs it, so that
one that moves gives the sentence of `freezable` and an eager run, never an ImportError.
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

# Up to so many rows a matrix product is compiled in place instead of calling a library.
FEW_ROWS = 8

# Goes up whenever the way from a traced function to a binary changes, so that no older binary is found.
FREEZE_VERSION = 1

# One process that compiles one file: a pool of compiling processes takes longer to start than it saves.
# A low threshold computes Adam's 0-d bias corrections once, not again for every 8 weights. tanh through exp is off by
# 1e-7 at most, and a minibatch of two 64-64 networks takes 225 instead of 281 us.
INDUCTOR_OPTIONS = {"compile_threads": 1, "realize_opcount_threshold": 4, "cpp.use_decompose_tanh": True}


def freezable() -> str | None:
    """None where `freeze` can work; otherwise one sentence that says what is missing."""
    if platform.system() != "Linux":
        return f"compiling ahead of time is tested on Linux only, not on {platform.system()}; running eager"
    try:
        from torch._C._aoti import AOTIModelContainerRunnerCpu  # noqa: F401
        from torch._inductor import aot_compile  # noqa: F401
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler
        from torch.fx.experimental.proxy_tensor import make_fx  # noqa: F401
        from torch.nn.utils.stateless import _reparametrize_module  # noqa: F401
    except ImportError as fault:
        return f"torch {torch.__version__} has moved what compiling ahead of time needs ({fault}); running eager"
    try:
        get_cpp_compiler()
    except (InvalidCxxCompiler, RuntimeError):
        return "compiling ahead of time needs a C++ compiler (apt-get install g++, or set CXX); running eager"
    return None


def functional(agent: nn.Module, function: TensorFunction) -> TensorFunction:
    """Make the agent's weights an argument: the result takes `weights` first, then what `function` takes.

    weights is one flat (P,) tensor in the order of `agent.named_parameters()`. While `function` runs, the agent's
    parameters are slices of it that require a gradient, so `torch.autograd.grad(loss, list(agent.parameters()))` works.
    No gradient flows into `weights` itself.
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


def freeze(function: TensorFunction, example: tuple[Tensor, ...], name: str) -> TensorFunction:
    """Compile `function(*tensors) -> tuple of tensors` for tensors laid out as `example` is, on the CPU.

    The result changes its arguments in place wherever `function` does. It demands the shapes, dtypes and strides of
    `example`, and checks them at its first call only. What `function` closes over is fixed at its present value.
    Binaries are kept in the user's cache, never in a run directory, since loading one runs its code.
    Arguments that are changed must not share memory with others.
    Raises UsageError where torch cannot compile the function, FilesError where the cache cannot be written.
    """
    layout = [_layout(tensor) for tensor in example]
    example = tuple(torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype) for tensor in example)
    folder = _folder()
    with _quiet(), _one_sentence(name, folder):
        graph = _trace(function, example)
        key = _key(graph, example)
        run = _load(folder, key)
        if run is None:
            notify(f"freezing {name} (about 20 s, cached afterwards)")
            _build(graph, example, folder, key)
            run = _load(folder, key)
    if run is None:
        raise UsageError(f"{name} was compiled, but its library does not load from {folder}; run without --compile, "
                         "or set XDG_CACHE_HOME to a folder from which programs may run")
    return _caller(run, layout, name)


def _caller(run: Callable[[list[Tensor]], list[Tensor]], layout: list[str], name: str) -> TensorFunction:
    """`run` behind one check: the library trusts its pointers, so tensors of another layout would corrupt memory."""
    unchecked = True

    def frozen(*tensors: Tensor) -> list[Tensor]:
        nonlocal unchecked
        if unchecked:
            given = [_layout(tensor) for tensor in tensors]
            if given != layout:
                raise UsageError(f"{name} was frozen for {layout}, and was called with {given}")
            unchecked = False
        return run(list(tensors))

    return frozen


def _trace(function: TensorFunction, example: tuple[Tensor, ...]) -> torch.fx.GraphModule:
    """The operations of `function`, gradients included, found without computing or changing any of `example`."""
    from torch.fx.experimental.proxy_tensor import make_fx

    table: dict[Any, Callable[..., Any]] = {torch.ops.aten.addmm.default: _addmm, torch.ops.aten.mm.default: _mm}
    return make_fx(function, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)(*example)


def _mm(a: Tensor, b: Tensor) -> Tensor:
    """A product of few rows as a sum that is compiled in place: calling a library costs more than the product."""
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
    """Everything that decides what the binary computes: operations, constants, layouts, torch, settings, CPU."""
    settings = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
                torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled)
    parts = [str(FREEZE_VERSION), str(INDUCTOR_OPTIONS), graph.code, *map(_layout, example), str(settings),
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
    """The instructions this CPU has: the compiler uses all of them, and a home may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()} {flags}"


def _folder() -> Path:
    """The cache, made where it is missing and closed to other users."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "proximo" / "frozen"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        raise FilesError(f"cannot make the cache {folder} ({fault.strerror}); set XDG_CACHE_HOME to another folder, "
                         "or run without --compile") from fault
    return folder


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _load(folder: Path, key: str) -> Callable[[list[Tensor]], list[Tensor]] | None:
    """The runner of a whole binary of this key, or None. Damaged ones, known by their digest, are removed."""
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
    """Compile, then name the file KEY-DIGEST.so in one step: what bears its final name is whole.

    Each process builds in a folder of its own, so two that freeze the same thing at once only do the work twice.
    """
    from torch._inductor import aot_compile

    with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as workshop, torch.no_grad():
        library = Path(workshop) / "frozen.so"
        aot_compile(graph, example, options={**INDUCTOR_OPTIONS, "aot_inductor.output_path": str(library)})
        library.replace(folder / f"{key}-{_digest(library)}.so")


@contextlib.contextmanager
def _one_sentence(name: str, folder: Path) -> Iterator[None]:
    """torch's many ways to fail, and a full disk, as faults of Proximo."""
    try:
        yield
    except OSError as fault:
        raise FilesError(f"cannot write the frozen {name} to {folder} ({fault.strerror}); set XDG_CACHE_HOME to "
                         "another folder, or run without --compile") from fault
    except Exception as fault:
        reason = str(fault).strip().splitlines() or [type(fault).__name__]
        raise UsageError(f"torch cannot compile {name} ({reason[0]}); run without --compile") from fault


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the compiler's warnings and log lines, which concern torch's own code."""
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
