"""Several processes or devices that learn as one (detail A2): who takes part, and what processes tell each other."""

import os
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh

from proximo.config import Config
from proximo.envs.normalize import Statistics, merge_statistics
from proximo.errors import UsageError
from proximo.on_jax.device import set_up_jax
from proximo.on_jax.rollout import Episodes

AXIS = "ranks"


class World(NamedTuple):
    """Who learns together: one rank for each device, numbered over all processes."""

    rank: int  # of this process
    size: int  # processes; each of several has one device
    mesh: Mesh | None  # one device a rank, in their order; None where one device learns alone

    @property
    def ranks(self) -> int:
        """Devices over all processes."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def local_ranks(self) -> range:
        """The ranks of this process."""
        return range(self.ranks) if self.size == 1 else range(self.rank, self.rank + 1)


def join(cfg: Config) -> World:
    """Start JAX and meet the other processes that torchrun started, if any: one rank a process, else one for each of
    cfg.device_ids. UsageError for sizes that do not fit, said before anybody waits for another."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    ranks = size if size > 1 else len(cfg.device_ids) or 1
    if ranks > 1:
        check_sizes(cfg, ranks, "processes" if size > 1 else "devices")
    if size > 1:
        meet(cfg, rank, size)
    device = set_up_jax(cfg, ranks)
    if size > 1:
        first = {each.process_index: each for each in reversed(jax.devices(device.platform))}
        return World(rank, size, Mesh(np.array([first[process] for process in range(size)]), (AXIS,)))
    local = jax.local_devices(backend=device.platform)
    if max(cfg.device_ids, default=0) >= len(local):
        raise UsageError(f"--device-ids names device {max(cfg.device_ids)}; JAX sees {len(local)}, numbered from 0")
    chosen = [local[index] for index in cfg.device_ids]
    if ranks == 1:
        jax.config.update("jax_default_device", chosen[0] if chosen else device)
        return World(0, 1, None)
    return World(0, 1, Mesh(np.array(chosen), (AXIS,)))


def check_sizes(cfg: Config, ranks: int, what: str) -> None:
    """UsageError where environments and minibatches cannot be shared out."""
    if cfg.device_ids and len(cfg.device_ids) != ranks:
        raise UsageError(f"--device-ids names {len(cfg.device_ids)} GPUs for {ranks} processes; give one id for each "
                         "process")
    if len(set(cfg.device_ids)) < len(cfg.device_ids) and what == "devices":
        raise UsageError(f"--device-ids names a device twice: {' '.join(map(str, cfg.device_ids))}; name each once")
    if cfg.num_envs % ranks:
        raise UsageError(f"num_envs={cfg.num_envs} does not divide into {ranks} {what}; use a multiple")
    rows = cfg.num_envs // ranks * (1 if cfg.recurrent != "none" else cfg.num_steps)
    if rows % cfg.num_minibatches:
        raise UsageError(f"each of {ranks} {what} holds {rows} rows, which do not divide into "
                         f"num_minibatches={cfg.num_minibatches}; change num_envs, num_steps or num_minibatches")


def meet(cfg: Config, rank: int, size: int) -> None:
    """Once a process: JAX has one group for as long as it lives."""
    if jax.distributed.is_initialized():
        return
    address, local_rank = coordinator_address(), int(os.environ.get("LOCAL_RANK", "0"))
    try:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, size, rank, cfg.device_ids[rank] if cfg.device_ids else local_rank,
                                   initialization_timeout=120, heartbeat_timeout_seconds=20)
    except RuntimeError as error:
        raise UsageError(f"process {rank} of {size} could not meet the others at {address} ({error}); name a free "
                         "port of the first machine with JAX_COORDINATOR_ADDRESS=HOST:PORT") from error


def coordinator_address() -> str:
    """Where JAX's processes meet: torchrun's address, and a port that follows from torchrun's own, since its store
    stays there; below the range from which Linux gives ports away. JAX_COORDINATOR_ADDRESS says otherwise."""
    port = 10_000 + int(os.environ["MASTER_PORT"]) % 20_000
    return os.environ.get("JAX_COORDINATOR_ADDRESS") or f"{os.environ['MASTER_ADDR']}:{port}"


def share_of(cfg: Config, parts: int) -> Config:
    """The configuration inside one of several equal parts: its environments, as many iterations as all."""
    if parts == 1:
        return cfg
    share = cfg.num_envs // parts
    return replace(cfg, num_envs=share, total_timesteps=cfg.num_iterations * share * cfg.num_steps)


def from_every_process(world: World, x: np.ndarray) -> np.ndarray:
    """(*shape) of each process, on every process: (processes, *shape). As bytes, since JAX would round float64."""
    if world.size == 1:
        return x[None]
    sent = np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)
    return np.frombuffer(process_allgather(sent).tobytes(), x.dtype).reshape(world.size, *x.shape)


def agreed_statistics(world: World, base: Statistics, local: Statistics) -> Statistics:
    """What all processes saw since `base`, which is equal on all of them; see merge_statistics."""
    if world.size == 1:
        return local
    return merge_statistics(base, local, lambda sums: from_every_process(world, sums).sum(0))


def episodes_of_all(world: World, episodes: Episodes) -> Episodes:
    """The episodes of all processes, side by side in order of rank, (T, N) over all."""
    if world.size == 1:
        return episodes
    finished, ret, length = (np.concatenate(list(from_every_process(world, np.asarray(x))), axis=1)
                             for x in episodes[:3])
    metrics = {}
    for name, x in episodes.metrics.items():
        every = from_every_process(world, np.asarray(x, np.float64))
        metrics[name] = np.nanmean(every) if not np.isnan(every).all() else np.nan
    valid = from_every_process(world, np.asarray(episodes.valid, np.int64)).sum(0)
    return Episodes(finished, ret, length, valid, metrics)
