"""The user's cache of compiled functions: one library for each function, named by all that decides what it computes."""

import hashlib
import os
import platform
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from proximo.envs.machine.cache import user_cache
from proximo.errors import FilesError
from proximo.on_torch.device import cpu_flags

Run = Callable[[list[Tensor]], list[Tensor]]


def describe_layout(tensor: Tensor) -> str:
    """Return dtype, shape, strides and device of a tensor."""
    return f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.device}"


def library_key(operations: str, example: tuple[Tensor, ...], way: str) -> str:
    """Hash what decides what the library computes: operations, constants, layouts, torch, its settings, the machine.

    The C++ compiler and the settings of inductor are not part of it (docs/concepts.md).

    Args:
        operations: What the function computes, with the values of its constants.
        example: Its arguments.
        way: How it is compiled.
    """
    settings = (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(),
                torch.get_float32_matmul_precision(), torch.backends.mkldnn.enabled)
    parts = [way, operations, *map(describe_layout, example), str(settings),
             torch.__version__, str(torch.version.git_version), torch.backends.cpu.get_cpu_capability(), _machine()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def describe_graph(graph: torch.fx.GraphModule) -> str:
    """Return what a traced function computes, with a digest of its constants."""
    digest = hashlib.sha256()
    for name, constant in sorted(_constants(graph).items()):
        digest.update(f"{name} {describe_layout(constant)}".encode())
        digest.update(constant.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return f"{graph.code}\n{digest.hexdigest()}"


def _constants(graph: torch.fx.GraphModule) -> dict[str, Tensor]:
    named = {**dict(graph.named_parameters()), **dict(graph.named_buffers())}
    return {node.target: named[node.target] for node in graph.graph.find_nodes(op="get_attr")}


def _machine() -> str:
    """Return the C library, and the instruction sets of the CPU: the compiler uses all. Machines may share a cache."""
    return f"{platform.machine()} {' '.join(platform.libc_ver())} {cpu_flags()}"


def cache_folder() -> Path:
    """Return the cache folder, created if it does not exist. What is in it is run as code.

    Raises:
        FilesError: It cannot be created, or other users may write into it.
    """
    folder = user_cache("aot")
    status = folder.stat()
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise FilesError(f"The cache {folder} belongs to another user, or others may write into it. Set XDG_CACHE_HOME "
                         f"to a folder of your own, run chmod go-w {folder}, or run without --compile.")
    return folder


def checked_file() -> Path | None:
    """Return the file that exists once this torch has been found to compile with this compiler; None without either."""
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    found = f"{torch.__version__} {torch.version.git_version} {compiler}"
    with suppress(FilesError):
        return cache_folder() / f"checked-{hashlib.sha256(found.encode()).hexdigest()}" if compiler else None
    return None


def _digest(library: Path) -> str:
    digest, calls = hashlib.sha256(library.read_bytes()), library.with_suffix(".json")
    if calls.exists():
        digest.update(calls.read_bytes())
    return digest.hexdigest()


def load_library(folder: Path, key: str) -> Run | None:
    """Load the library of a key, or return None. Damaged ones, recognised by their digest, are removed.

    An intact one that cannot be loaded stays: other machines may use it, or this one when it has more memory.
    """
    from torch._C._aoti import AOTIModelContainerRunnerCpu

    for file in sorted(folder.glob(f"{key}-*.so")):
        with suppress(OSError, RuntimeError):
            if _digest(file) == file.stem.removeprefix(f"{key}-"):
                return AOTIModelContainerRunnerCpu(str(file), 1).run
            file.unlink(missing_ok=True)
            file.with_suffix(".json").unlink(missing_ok=True)
    return None


def store_library(library: Path, folder: Path, key: str) -> None:
    """Rename a complete file of the same file system to KEY-DIGEST.so, so that a file of that name is complete.

    KEY-DIGEST.json names the operators that the library calls in torch, such as weight_norm; most call none.
    """
    stored, calls = folder / f"{key}-{_digest(library)}.so", library.with_suffix(".json")
    if calls.exists():
        calls.replace(stored.with_suffix(".json"))
    library.replace(stored)
