"""Which device learns, with how many threads, and how exactly."""

import ctypes
import os
import platform

import torch

from proximo.config import Config
from proximo.errors import UsageError, notify
from proximo.on_torch.distributed import World


def pick_device(cfg: Config, world: World) -> torch.device:
    """The device that cfg.device and --cuda ask for; auto takes a GPU for convolutions and the CPU for small networks.

    UsageError where a GPU is asked for that is not there."""
    present = torch.cuda.is_available() and cfg.cuda
    if cfg.device == "cpu":
        return torch.device("cpu")
    if cfg.device == "auto":
        large = cfg.model != "mlp" or cfg.num_envs >= 1024
        if not present:
            return torch.device("cpu")
        notify(f"--device auto: {'the GPU' if large else 'the CPU'}, since the network is {'large' if large else 'small'}")
        if not large:
            return torch.device("cpu")
    elif not present:
        why = "--no-cuda forbids it" if torch.cuda.is_available() else "torch sees none on this machine"
        raise UsageError(f"--device {cfg.device} asks for a GPU, but {why}; use --device cpu or auto")
    index = int(cfg.device.partition(":")[2] or 0)
    if cfg.device_ids:
        index = cfg.device_ids[world.rank]
    elif world.size > 1:
        index = world.local_rank % torch.cuda.device_count()
    if index >= torch.cuda.device_count():
        raise UsageError(f"GPU {index} is not there; torch sees {torch.cuda.device_count()}")
    return torch.device("cuda", index)


def set_up_torch(cfg: Config, world: World, device: torch.device) -> int:
    """Threads and determinism for this process; returns the number of threads, which is part of the run's identity."""
    cores = max(1, (os.cpu_count() or 1) // world.local_size)
    threads = cfg.threads or (1 if cfg.model == "mlp" or device.type == "cuda" else cores)
    torch.set_num_threads(threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.deterministic = cfg.torch_deterministic
        torch.backends.cudnn.benchmark = not cfg.torch_deterministic
    else:
        keep_memory()
    return threads


def keep_memory() -> None:
    """Memory that large minibatches give back stays with the process, where glibc decides about it: given to the system
    and taken again with every minibatch, it costs half as much time as the products. The price is about a third more
    memory, since glibc joins freed blocks only where they touch (docs/performance.md)."""
    if platform.libc_ver()[0] == "glibc":
        for option in (-1, -3):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
            ctypes.CDLL(None).mallopt(option, 2**31 - 1)
