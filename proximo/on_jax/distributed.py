"""Several processes or devices that learn as one (detail A2): which they are, and what processes tell each other."""

import math
import os
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh

from proximo.config import Config
from proximo.envs.arrays.moments import Statistics, merge_statistics, most_merged
from proximo.errors import UsageError
from proximo.on_jax.device import set_up_jax
from proximo.on_jax.rendezvous import call_roll
from proximo.on_jax.train_step import Metrics
from proximo.problems import check_shares
from proximo.processes import (
    World,
    master_address,
    refuse_different_settings,
    refuse_different_starts,
    refuse_different_weights,
    settings_numbers,
    world_from_environment,
)
from proximo.protocols import COUNTS, Episode

AXIS = "ranks"  # of the mesh
HEARTBEAT_TIMEOUT = 20  # seconds without a heartbeat after which a process counts as lost


class Ranks(NamedTuple):
    """The ranks that learn together: one for each device, numbered over all processes."""

    process: int  # number of this process
    processes: int  # number of processes; if there are several, each has one device
    mesh: Mesh | None  # one device per rank, in order; None where one device learns alone

    @property
    def size(self) -> int:
        """Number of ranks."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def local(self) -> range:
        """The ranks of this process."""
        return range(self.size) if self.processes == 1 else range(self.process, self.process + 1)


def join(cfg: Config, runs: int = 1) -> Ranks:
    """Start JAX and connect to the other processes that torchrun started, if any.

    Each process is one rank; a single process has one rank for each of cfg.device_ids.

    Args:
        cfg: The hyper-parameters.
        runs: Number of runs that are trained at once.

    Raises:
        UsageError: Sizes or devices do not fit. It is raised before any process waits for another.
    """
    world = world_from_environment()
    count = world.size if world.size > 1 else len(cfg.device_ids) or 1
    if count > 1:
        check_shares(cfg, count, "processes" if world.size > 1 else "devices")
    if world.size > 1:
        connect(cfg, world)
    device = set_up_jax(cfg, count, runs)
    if world.size > 1:
        first = {each.process_index: each for each in reversed(jax.devices(device.platform))}
        devices = np.array([first[process] for process in range(world.size)])
        return Ranks(process=world.rank, processes=world.size, mesh=Mesh(devices, (AXIS,)))
    local = jax.local_devices(backend=device.platform)
    if max(cfg.device_ids, default=0) >= len(local):
        raise UsageError(f"--device-ids names device {max(cfg.device_ids)}. JAX sees {len(local)}, numbered from 0.")
    chosen = [local[index] for index in cfg.device_ids]
    if count == 1:
        jax.config.update("jax_default_device", chosen[0] if chosen else device)
        return Ranks(process=0, processes=1, mesh=None)
    return Ranks(process=0, processes=1, mesh=Mesh(np.array(chosen), (AXIS,)))


def connect(cfg: Config, world: World) -> None:
    """Connect this process to the others, once: JAX has one group for the life of a process.

    Raises:
        PeerError: Others have not come within cfg.collective_timeout.
        UsageError: The port of the coordinator is in use.
    """
    if jax.distributed.is_initialized():
        return
    address, seconds = coordinator_address(), math.ceil(cfg.collective_timeout)
    call_roll(address, world, cfg.collective_timeout)
    try:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, world.size, world.rank,
                                   cfg.device_ids[world.rank] if cfg.device_ids else world.local_rank,
                                   initialization_timeout=seconds,
                                   heartbeat_timeout_seconds=min(seconds, HEARTBEAT_TIMEOUT))
    except RuntimeError as error:
        raise UsageError(f"Process {world.rank} of {world.size} could not connect to the others at {address} ({error})."
                         " Name a free port of the first machine with JAX_COORDINATOR_ADDRESS=HOST:PORT.") from error


def coordinator_address() -> str:
    """Return the address at which JAX's processes connect: JAX_COORDINATOR_ADDRESS, or a port of torchrun's machine.

    torchrun's store keeps its own port, so another one is derived from it, below those that Linux gives away.

    Raises:
        UsageError: JAX_COORDINATOR_ADDRESS has no port, or there is no address at all.
    """
    if not (address := os.environ.get("JAX_COORDINATOR_ADDRESS")):
        host, port = master_address()
        return f"{host}:{10_000 + port % 20_000}"
    if not address.rpartition(":")[2].isdigit():
        raise UsageError(f"JAX_COORDINATOR_ADDRESS={address} has no port. Write HOST:PORT.")
    return address


def share_of(cfg: Config, parts: int) -> Config:
    """Return the configuration of one of several equal parts: its environments, and as many iterations as all."""
    if parts == 1:
        return cfg
    share = cfg.num_envs // parts
    iterations = cfg.num_iterations - cfg.iteration_shift
    return replace(cfg, num_envs=share, total_timesteps=iterations * share * cfg.num_steps)


def all_gather(ranks: Ranks, x: np.ndarray) -> np.ndarray:
    """Return (processes, *shape) from (*shape) of each process. Sent as bytes because JAX would round float64."""
    if ranks.processes == 1:
        return x[None]
    sent = np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)
    return np.frombuffer(process_allgather(sent).tobytes(), x.dtype).reshape(ranks.processes, *x.shape)


def check_same_start(ranks: Ranks, iteration: int) -> None:
    """Check that all processes continue after the same iteration; FilesError if they do not."""
    refuse_different_starts(all_gather(ranks, np.array(float(iteration))).tolist())


def check_same_settings(ranks: Ranks, cfg: Config) -> None:
    """Check that all processes have the same settings, but for those of logging and machines; UsageError otherwise."""
    numbers = settings_numbers(cfg)
    refuse_different_settings(list(numbers), all_gather(ranks, np.array(list(numbers.values()))).tolist())


def check_same_weights(ranks: Ranks, weights: dict[str, Any]) -> None:
    """Check that all processes begin with the same weights; UsageError if they do not."""
    exact = np.concatenate([np.asarray(x, np.float64).ravel() for x in weights.values()])
    sums = np.array([exact.size, exact.sum(), np.square(exact).sum()])
    refuse_different_weights(all_gather(ranks, sums).tolist())


def merge_over_processes(ranks: Ranks, base: Statistics | None, local: Statistics | None) -> Statistics | None:
    """Add up what all processes saw since `base`, which is equal on all of them; see merge_statistics."""
    if ranks.processes == 1 or base is None or local is None:
        return local
    return merge_statistics(base, local, lambda sums: all_gather(ranks, sums).sum(0), most_merged(local.obs))


def merge_arrays_over_processes(ranks: Ranks, base: Statistics | None, local: Statistics | None) -> Statistics | None:
    """Do the same with statistics of the compiled function, which are arrays of JAX."""
    if ranks.processes == 1 or base is None or local is None:
        return local
    merged = merge_over_processes(ranks, *jax.device_get((base, local)))
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), merged)


def gather_metrics(ranks: Ranks, metrics: Metrics) -> Metrics:
    """Return the metrics of all processes: environments side by side in order of rank, (T, N) over all.

    Of charts, counts are added up, and others are averaged over the processes that have them.
    """
    if ranks.processes == 1:
        return metrics
    finished, ret, length = (np.concatenate(list(all_gather(ranks, np.asarray(x))), axis=1) for x in metrics.episode)
    charts = {}
    for name, x in metrics.charts.items():
        each = all_gather(ranks, np.asarray(x, np.float64))
        mean = np.nanmean(each) if not np.isnan(each).all() else np.nan
        charts[name] = each.sum() if name in COUNTS else mean
    valid = all_gather(ranks, np.asarray(metrics.valid, np.int64)).sum(0)
    return Metrics(losses=metrics.losses, charts=charts, episode=Episode(finished=finished, ret=ret, length=length),
                   valid=valid)
