"""The device that runs the compiled functions, its number of threads, and the folder that keeps them between runs."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import entry_points
from math import ceil
from pathlib import Path
from typing import Any

import jax

from proximo.config import Config
from proximo.envs.machine.cache import user_cache
from proximo.errors import FilesError, UsageError, first_line, warn, warn_once
from proximo.facts import auto_selects_gpu
from proximo.on_jax.networks import on_cpu

IN_ORDER: dict[str, Any] = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
                            "xla_cpu_copy_insertion_use_region_analysis": True}
STARTED: dict[str, int] = {}  # "process": the one that has trained first


def pick_device(cfg: Config) -> jax.Device:
    """Return the device that cfg.device and --cuda name; auto selects a GPU for convolutions or many environments.

    Raises:
        UsageError: The GPU that was asked for does not exist.
    """
    gpus = [device for device in jax.local_devices() if device.platform == "gpu"] if cfg.cuda else []
    if cfg.device == "cpu":
        return jax.local_devices(backend="cpu")[0]
    if cfg.device == "auto":
        named = bool(gpus and cfg.device_ids)
        return gpus[0] if named or auto_selects_gpu(cfg, bool(gpus)) else jax.local_devices(backend="cpu")[0]
    index = int(cfg.device.partition(":")[2] or 0)
    if not gpus:
        why = "JAX sees none on this machine" if cfg.cuda else "--no-cuda forbids it"
        raise UsageError(f"--device {cfg.device} needs a GPU, but {why}. Use --device cpu or auto.")
    if index >= len(gpus):
        raise UsageError(f"GPU {index} does not exist. JAX sees {len(gpus)}.")
    return gpus[index]


def keep_compiled() -> None:
    """Let JAX store compiled functions in the user's cache, unless the program or JAX_COMPILATION_CACHE_DIR names a
    folder."""
    if not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]
        try:
            jax.config.update("jax_compilation_cache_dir", str(user_cache("jax")))
        except FilesError as fault:
            warn_once(f"{fault} Without it, every run compiles its functions again.")
    if jax.config.jax_persistent_cache_min_compile_time_secs == 1.0:  # type: ignore[attr-defined]  # JAX's default
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def refuse_forked() -> None:
    """Raise UsageError in a process that was forked from one that has trained: JAX would wait for threads forever."""
    first = STARTED.setdefault("process", os.getpid())
    if first != os.getpid():
        raise UsageError("This process was forked from one that has trained with JAX, and would hang. Start it with "
                         'multiprocessing.get_context("spawn").')


def set_up_jax(cfg: Config, ranks: int = 1, runs: int = 1) -> jax.Device:
    """Keep compiled functions between runs, and make the selected device the default of this process.

    Call it before anything else uses JAX.

    Args:
        cfg: The hyper-parameters.
        ranks: Number of devices that learn together.
        runs: Number of runs that are trained at once.

    Raises:
        UsageError: JAX does not start, or the device that was asked for does not exist.
    """
    refuse_forked()
    keep_compiled()
    with naming_platforms():
        if may_use_gpu(cfg):
            prepare_gpu(cfg)
            start_cpu(0, ranks)
        else:
            start_cpu(cfg.threads, ranks, devices_for(runs, cfg.threads))
        device = pick_device(cfg)
    jax.config.update("jax_default_device", device)
    keep_backend(device)
    return device


@contextmanager
def naming_platforms() -> Iterator[None]:
    """Raise UsageError where JAX does not start because JAX_PLATFORMS names a platform that is not there, or no CPU."""
    try:
        yield
    except (RuntimeError, AssertionError) as error:
        named: str | None = jax.config.jax_platforms  # type: ignore[attr-defined]
        if not named:
            raise
        why = f" ({first_line(error)})" if str(error) else ""
        raise UsageError(f"JAX does not start with JAX_PLATFORMS={named}{why}. Unset JAX_PLATFORMS, or name platforms "
                         "that this machine has, with the CPU: JAX_PLATFORMS=cpu or cuda,cpu.") from error


def keep_backend(device: jax.Device) -> None:
    """Let the backend of a device exist until the process ends.

    After a KeyboardInterrupt, XLA goes on compiling on threads of its own, for which the end of the interpreter would
    wait, or which would use the backend after its end and crash.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(device.client))


def compiler_options() -> dict[str, Any]:
    """Return the options of XLA for a whole iteration as one compiled function: on a CPU IN_ORDER, if XLA has it.

    The operations then run in a fixed order and fewer arrays are copied, which makes small networks 3 to 13 %
    faster (docs/measurements.md). The results are the same, bit for bit.
    """
    return IN_ORDER if on_cpu() and knows_order() else {}


@cache
def knows_order() -> bool:
    """Return whether this version of XLA has the options of IN_ORDER."""
    try:
        jax.jit(lambda: 0, compiler_options=IN_ORDER).lower().compile()
    except RuntimeError:
        return False
    return True


def devices_for(runs: int, threads: int) -> int:
    """Return over how many devices of the CPU runs are divided: one for each thread, but no more than are needed so
    that none has more runs than it would have then."""
    return ceil(runs / ceil(runs / max(1, threads)))


def devices_of_runs(device: jax.Device, runs: int, threads: int) -> list[jax.Device]:
    """Return the devices that train several runs at once: those of the CPU that are there, or the GPU."""
    if device.platform != "cpu":
        return [device]
    present, wanted = jax.local_devices(backend="cpu"), devices_for(runs, threads)
    if len(present) < wanted and "JAX_NUM_CPU_DEVICES" not in os.environ:
        warn(f"{runs} runs train on {len(present)} instead of {wanted} threads, because JAX started before training "
             f"and has no more devices. For more, set JAX_NUM_CPU_DEVICES={wanted} before the program starts.")
    return present[:devices_for(runs, min(threads, len(present)))]


def may_use_gpu(cfg: Config) -> bool:
    """Return whether a GPU may be selected, without asking JAX, which starts its backends when it is first asked.

    JAX uses a GPU only with a plugin of its own, a package such as jax-cuda12-plugin.
    """
    present = cfg.cuda and Path("/dev/nvidiactl").exists() and bool(entry_points(group="jax_plugins"))
    named = present and bool(cfg.device_ids)
    return cfg.device.startswith("cuda") or (cfg.device == "auto" and (named or auto_selects_gpu(cfg, present)))


def prepare_gpu(cfg: Config) -> None:
    """Let XLA choose only kernels whose results do not depend on timing, unless XLA_FLAGS or `cfg` decide it.

    Otherwise it measures matrix products and convolutions whenever it compiles, and a resumed run may get other ones.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if cfg.torch_deterministic and "xla_gpu_deterministic_ops" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()


def start_cpu(threads: int, ranks: int, devices: int = 1) -> None:
    """Start JAX's CPU backend with `threads` threads (0: all cores), unless this process has started it already.

    XLA reads the size of its thread pools from the environment variable NPROC when it starts, also that of the pool
    which compiles for a GPU. It is restored afterwards.
    With one rank, functions run in the thread that calls them, because passing a small one to another thread takes
    longer than running it. With several, they are started one after another without waiting.

    Args:
        threads: Number of threads of all devices together.
        ranks: Number of devices that learn together.
        devices: Number of devices that share the cores. Each runs a function of its own on a thread of its own.
    """
    if devices > 1:
        if jax.config.jax_num_cpu_devices < 0:  # type: ignore[attr-defined]  # JAX_NUM_CPU_DEVICES is not set
            with suppress(RuntimeError):  # JAX has started
                jax.config.update("jax_num_cpu_devices", devices)
    elif ranks == 1:
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    before = os.environ.get("NPROC")
    if threads and before is None:
        os.environ["NPROC"] = str(max(1, threads // devices))
    jax.local_devices(backend="cpu")
    if before is None:
        os.environ.pop("NPROC", None)
