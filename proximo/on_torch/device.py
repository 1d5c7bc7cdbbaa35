"""The device that learns, its number of threads and instruction sets, deterministic kernels, and copies to a GPU."""

import ctypes
import platform
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proximo.config import Config
from proximo.envs.machine.cores import default_threads
from proximo.errors import UsageError, warn
from proximo.facts import auto_selects_gpu
from proximo.processes import World


def pick_device(cfg: Config, world: World) -> torch.device:
    """Return the device that cfg.device and --cuda name; auto selects a GPU for convolutions or many environments.

    Raises:
        UsageError: The GPU that was asked for does not exist, or is one GPU for several processes.
    """
    if ":" in cfg.device and world.size > 1:
        raise UsageError(f"--device {cfg.device} names one GPU for {world.size} processes. Use --device cuda, where "
                         "each takes the GPU with the number of its local rank, or name one for each by --device-ids.")
    present = torch.cuda.is_available() and cfg.cuda
    named = present and bool(cfg.device_ids)
    if cfg.device == "cpu" or (cfg.device == "auto" and not (named or auto_selects_gpu(cfg, present))):
        if cfg.device_ids:
            warn("--device-ids has no effect: this run trains on the CPU.")
        return torch.device("cpu")
    if not present:
        why = "--no-cuda forbids it" if torch.cuda.is_available() else "torch sees none on this machine"
        raise UsageError(f"--device {cfg.device} needs a GPU, but {why}. Use --device cpu or auto.")
    index = int(cfg.device.partition(":")[2] or 0)
    if cfg.device_ids:
        index = cfg.device_ids[world.rank]
    elif world.size > 1:
        index = world.local_rank % torch.cuda.device_count()
    if index >= torch.cuda.device_count():
        raise UsageError(f"GPU {index} does not exist. torch sees {torch.cuda.device_count()}.")
    return torch.device("cuda", index)


def set_up_torch(cfg: Config, world: World, device: torch.device) -> int:
    """Set threads and determinism of this process.

    Returns:
        The number of threads, on which results depend.

    Raises:
        UsageError: Gradients are switched off, or torch computes in another dtype or on another device by default.
    """
    if not torch.is_grad_enabled():
        raise UsageError("Gradients are switched off where training begins. Call it outside of torch.no_grad() and "
                         "torch.inference_mode().")
    check_defaults()
    threads = cfg.threads or (1 if device.type == "cuda" else default_threads(cfg, world.local_size))
    torch.set_num_threads(threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.deterministic = cfg.torch_deterministic
        torch.backends.cudnn.benchmark = not cfg.torch_deterministic
        # Weights are views of one vector (flat_adam): cuDNN joins those of a recurrent layer again at every call.
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous")
    else:
        keep_memory()
    return threads


def check_defaults() -> None:
    """Raise UsageError if the default dtype or device of torch is another one, or autocast is on: results would change.

    An environment or a callback may have changed them, also while a run trains.
    """
    if torch.get_default_dtype() != torch.float32:
        raise UsageError(f"The default dtype of torch is {torch.get_default_dtype()}, and networks are trained in "
                         "float32. Call torch.set_default_dtype(torch.float32) before training, and wherever an "
                         "environment or a callback has changed it.")
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise UsageError("torch.autocast is on where training begins or continues, and would change what is computed. "
                         "Train outside of it, and leave it before an environment or a callback returns; "
                         "--precision bf16 computes in bfloat16.")
    if (default := torch.get_default_device()).type != "cpu":
        raise UsageError(f"The default device of torch is {default}. Call torch.set_default_device(None); "
                         "--device chooses where it takes place.")


def keep_memory() -> None:
    """Tell glibc to keep freed memory in the process.

    Returning it to the system and requesting it again for every large minibatch costs half as much time as the matrix
    products. The price is up to a third more memory, because glibc joins freed blocks only if they are adjacent
    (docs/measurements.md).
    """
    if platform.libc_ver()[0] == "glibc":
        for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            ctypes.CDLL(None).mallopt(option, 2**31 - 1)


def host_zeros(shape: tuple[int, ...], dtype: Any, device: torch.device) -> np.ndarray:
    """Return an array that environments write: page-locked where a GPU learns, so that copies to it do not wait."""
    return torch.zeros(shape, dtype=torch_dtype(dtype), pin_memory=device.type == "cuda").numpy()


def torch_dtype(dtype: Any) -> torch.dtype:
    """Return the dtype of torch for one of numpy."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


def local_copies(device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return the function that brings a tensor to the device that learns. On the CPU it is there already.

    A copy of page-locked memory to a GPU is queued: the array may change after the next copy back, which waits for it.
    """
    return (lambda x: x) if device.type == "cpu" else (lambda x: x.to(device, non_blocking=True))


def keep_computed(device: torch.device, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors of a rollout, after moving those that only the network writes to the device that learns.

    The action is then all that a step brings to the host, and a GPU is waited for once.
    """
    return tensors | {name: tensors[name].to(device) for name in ("logprob", "value", "final_value")}


def cpu_flags() -> str:
    """Return the line of /proc/cpuinfo with the instruction sets of this CPU, or an empty string if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:  # not Linux
        lines = []
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
