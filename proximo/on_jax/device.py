"""Which device runs the compiled functions, and where they are kept between runs."""

import os
from pathlib import Path

import jax

from proximo.config import Config
from proximo.errors import UsageError, notify


def pick_device(cfg: Config) -> jax.Device:
    """The device that cfg.device and --cuda ask for; auto takes a GPU for convolutions and the CPU for small networks.

    UsageError where a GPU is asked for that is not there."""
    gpus = [device for device in jax.local_devices() if device.platform == "gpu"] if cfg.cuda else []
    if cfg.device == "cpu":
        return jax.local_devices(backend="cpu")[0]
    if cfg.device == "auto":
        large = cfg.model != "mlp" or cfg.num_envs >= 1024
        if gpus:
            notify(f"--device auto: {'the GPU' if large else 'the CPU'}, since the network is "
                f"{'large' if large else 'small'}")
        return gpus[0] if gpus and large else jax.local_devices(backend="cpu")[0]
    index = int(cfg.device.partition(":")[2] or 0)
    if index >= len(gpus):
        why = "JAX sees none on this machine" if cfg.cuda else "--no-cuda forbids it"
        raise UsageError(f"--device {cfg.device} asks for a GPU, but {why if not gpus else f'JAX sees {len(gpus)}'}; "
                         "use --device cpu or auto")
    return gpus[index]


def cache_folder() -> Path:
    """Where compiled functions are kept between runs: JAX's own setting, else the user's cache."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or base / "proximo" / "jax")


def set_up_jax(cfg: Config, ranks: int = 1) -> jax.Device:
    """Keeps compiled functions between runs, and makes the chosen device the default of this process. Before anything
    else touches JAX. `ranks`: devices that learn together."""
    jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    start_cpu(cfg.threads, ranks)
    device = pick_device(cfg)
    jax.config.update("jax_default_device", device)
    return device


def start_cpu(threads: int, ranks: int) -> None:
    """JAX's CPU backend with `threads` threads (0: all cores), as far as this process has not started it yet.

    XLA reads the size of its pool from NPROC when it starts, which otherwise stays untouched. Small functions run where
    they are called, since handing one over to another thread takes longer than many need; several devices are started
    one after another without waiting."""
    if ranks == 1:
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    before = os.environ.get("NPROC")
    if threads and before is None:
        os.environ["NPROC"] = str(threads)
    jax.local_devices(backend="cpu")
    if before is None:
        os.environ.pop("NPROC", None)
