"""The build of a library from a traced function by torch's inductor and the C++ compiler, possibly in a child process.

Like aot.py, this file uses private entry points of torch. `unsupported_reason` in aot.py imports them first.
"""

import contextlib
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from proximo.errors import FilesError, ProximoError, UsageError, notify
from proximo.on_torch.compile.aot_cache import store_library
from proximo.on_torch.compile.forked import can_fork, start_forked

# Increase this when a library would be built differently, so that no older one is used.
FORMAT = 5

# One compiling process per function: a pool takes longer to start than it saves.
# The low threshold computes Adam's scalar bias corrections once instead of for every 8 weights. tanh computed by exp
# has an error of at most 1e-7, and reduces a minibatch step of two 64-64 networks from 281 to 225 us.
# vec_isa_ok trusts the flags of the CPU instead of compiling test programs (8 s). Precompiling headers takes 15 s and
# saves 3 s per function.
INDUCTOR_OPTIONS = {"compile_threads": 1, "realize_opcount_threshold": 4, "cpp.use_decompose_tanh": True,
                    "cpp.vec_isa_ok": True, "aot_inductor.precompile_headers": False}
# A function whose temporary arrays take at most STACK_BYTES in all keeps them on the stack: acting in four environments
# takes 14 instead of 21 us. The C++ compiler needs three times as long for the headers of this, also where the arrays
# are too large for it.
STACK_OPTIONS = {"aot_inductor.allow_stack_allocation": True}
STACK_BYTES = 100 * 1024  # of inductor
# Without a product for a library, the rows are few. A first layer, which reads weights with a stride, is then faster
# in vectors (8 instead of 14 us), which inductor's heuristic rejects.
FEW_ROWS_OPTIONS = {"cpp.enable_tiling_heuristics": False}
LIBRARY_PRODUCTS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default,
                    torch.ops.aten.convolution.default}


def inductor_options(graph: torch.fx.GraphModule) -> dict[str, bool | int]:
    """Return the options of inductor for a traced function. Each product of a library is a temporary array."""
    products = [node.meta["val"].nbytes for node in graph.graph.nodes if node.target in LIBRARY_PRODUCTS]
    options = INDUCTOR_OPTIONS if products else INDUCTOR_OPTIONS | FEW_ROWS_OPTIONS
    return options if sum(products) > STACK_BYTES else options | STACK_OPTIONS


def start_build(graph: torch.fx.GraphModule, example: tuple[Tensor, ...], folder: Path, key: str,
                name: str) -> Callable[[], None]:
    """Start to compile a traced function into `folder`, in a child process where that is possible.

    Call it within one_sentence(): without a child process, torch's own errors are raised here.

    Returns:
        A function that waits until the compilation ends, and raises UsageError or FilesError if there is no library.
    """
    notify(f"compiling {name} (10 to 70 s once, then cached)")
    build = partial(_build, graph, example, folder, key, torch.get_num_threads())
    if not can_fork():
        build(lambda library: None)
        return lambda: None
    from torch._inductor import compile_fx  # noqa: F401  (3 s that every process would need)

    def build_alone() -> None:
        with one_sentence(name, folder):
            _prepare_process()
            build(_check_loading)

    wait = start_forked(build_alone, f"The process that compiles {name}")
    return lambda: notify(f"compiled {name} in {wait():.0f} s")


def _build(graph: torch.fx.GraphModule, example: tuple[Tensor, ...], folder: Path, key: str, threads: int,
           check: Callable[[Path], None]) -> None:
    """Compile into a temporary folder, call `check` with the library, and store it.

    Two processes that compile the same function at once do the work twice and do not disturb each other.
    """
    from torch._inductor import aot_compile

    with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as workshop, torch.no_grad():
        library = Path(workshop) / "function.so"
        aot_compile(graph, example, options={**inductor_options(graph), "cpp.threads": threads,
                                             "aot_inductor.output_path": str(library)})
        for calls in Path(workshop).glob("*.wrapper.json"):  # of operators of torch, which the library looks for here
            calls.replace(library.with_suffix(".json"))
        check(library)
        store_library(library, folder, key)


def _check_loading(library: Path) -> None:
    """Load a library in the process that compiles, so that a crash (seen with torch 2.11) does not end training."""
    from torch._C._aoti import AOTIModelContainerRunnerCpu

    AOTIModelContainerRunnerCpu(str(library), 1)


def _prepare_process() -> None:
    """Adapt torch to a forked process that only compiles for the CPU.

    OpenMP's threads do not survive a fork, and neither does CUDA in a process that has looked for a GPU: inductor
    asks for the properties of each GPU. The vector instructions of float32 need no test programs. The two source files
    of a library are compiled at the same time; linking waits for both.
    """
    from torch._inductor import cpp_builder
    from torch._inductor.cpu_vec_isa import VecISA

    torch.set_num_threads(1)
    setattr(torch.cuda, "is_available", lambda: False)  # noqa: B010
    setattr(VecISA, "check_build", lambda self, code: False)  # noqa: B010
    run, thread, wrappers = cpp_builder._run_compile_cmd, ThreadPoolExecutor(1), list[Future[None]]()

    def run_command(command: str, cwd: str) -> None:
        if ".wrapper.cpp " in command:
            wrappers.append(thread.submit(run, command, str(Path(cwd).parent)))  # cwd itself is removed
            return
        if " -c " not in command:  # linking
            wrappers.pop().result()
        run(command, cwd)

    setattr(cpp_builder, "_run_compile_cmd", run_command)  # noqa: B010


@contextlib.contextmanager
def one_sentence(name: str, folder: Path) -> Iterator[None]:
    """Turn every failure of torch into a UsageError, and one of the disk into a FilesError."""
    with torch_fault(name):
        try:
            yield
        except OSError as fault:
            raise FilesError(f"The compiled {name} cannot be written to {folder} ({fault.strerror}). Set "
                             "XDG_CACHE_HOME to another folder, or run without --compile.") from fault
        except RuntimeError as fault:
            if "failed to map segment" not in str(fault):
                raise
            raise FilesError(f"The compiled {name} cannot be loaded from {folder}: its disk does not allow programs "
                             "(noexec), or the address space is limited (ulimit -v). Set XDG_CACHE_HOME to a folder on "
                             "another disk, raise the limit, or run without --compile.") from fault


@contextlib.contextmanager
def torch_fault(name: str) -> Iterator[None]:
    """Turn every failure of torch into a UsageError of one sentence."""
    try:
        yield
    except ProximoError:
        raise
    except Exception as fault:
        reason = str(fault).strip().splitlines() or [type(fault).__name__]
        raise UsageError(f"torch cannot compile {name} ({reason[0]}). Run without --compile.") from fault


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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
