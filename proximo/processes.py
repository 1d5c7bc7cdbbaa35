"""The processes that train one agent together, as torchrun starts them (detail A2), and what they must agree on."""

import math
import os
import re
import socket
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from proximo.config import Config
from proximo.errors import FilesError, UsageError, is_of_communication
from proximo.facts import facts

if TYPE_CHECKING:
    from proximo.on_torch.presence import Presence

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
GREETING_SECONDS = 5.0  # for a connection to send its rank; other programs may connect too


class World(NamedTuple):
    """This process among all of them. Ranks are global: the processes may run on several machines."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    presence: "Presence | None" = None  # of torch; None: one process, or not connected yet


ALONE = World(rank=0, size=1, local_rank=0, local_size=1)


def world_from_environment() -> World:
    """Return what torchrun has set in the environment; ALONE without it, UsageError for parts and wrong values."""
    if not (present := [name for name in ("RANK", "WORLD_SIZE") if name in os.environ]):
        return ALONE
    if absent := [name for name in TORCHRUN if name not in os.environ]:
        raise UsageError(f"{' and '.join(present)} {'is' if len(present) == 1 else 'are'} set in the environment, "
                         f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not. torchrun sets all of them. "
                         f"To train with one process, remove them: unset {' '.join(present)}")
    texts = [os.environ[name] for name in TORCHRUN]
    rank, size, local_rank, local_size = (int(text) if re.fullmatch("[0-9]{1,9}", text) else -1 for text in texts)
    if not (0 <= rank < size and 0 <= local_rank < local_size <= size):
        raise UsageError(f"{' '.join(map('='.join, zip(TORCHRUN, texts)))} in the environment are not numbers of "
                         "processes: RANK must be below WORLD_SIZE, LOCAL_RANK below LOCAL_WORLD_SIZE, which is at "
                         f"most WORLD_SIZE. Start with torchrun. To train with one process: unset {' '.join(TORCHRUN)}")
    return World(rank, size, local_rank, local_size)


def is_of_another_process(error: BaseException) -> bool:
    """Return whether communication with other processes has failed."""
    return world_from_environment().size > 1 and is_of_communication(error)


def master_address() -> tuple[str, int]:
    """Return the address and port of the first process from the environment; UsageError if they are not there."""
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if not address or not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 1 << 16:
        raise UsageError(f"MASTER_ADDR={address!r} and MASTER_PORT={port!r} in the environment are not the address and "
                         "the port (1 to 65535) of the first process. Start processes with torchrun, or set both.")
    return address, int(port)


def listener(port: int) -> socket.socket:
    """Return a socket that listens at a port of all addresses of this machine; 0: a port that the system chooses."""
    both = socket.has_dualstack_ipv6()
    return socket.create_server(("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both)


def settings_numbers(cfg: Config) -> dict[str, float]:
    """Return a number for each setting that all processes of a run must share, and one for the variant."""
    shared = [name for name, fact in facts(Config).items()
              if fact.group not in ("logging", "machine") and fact.resume != "moved"]
    values = {"variant": type(cfg).__name__} | {name: getattr(cfg, name) for name in shared}
    return {name: float(zlib.crc32(repr(value).encode())) for name, value in values.items()}


def refuse_different_starts(iterations: Sequence[float]) -> None:
    """Raise FilesError if the processes continue after different iterations, given in order of rank."""
    if len(set(iterations)) > 1:
        raise FilesError("The processes found different newest checkpoints, of the iterations "
                         f"{', '.join(f'{x:.0f}' for x in iterations)} in order of rank. The folder of the run must be "
                         "on storage that all of them share. Start again; network file systems can take a minute to "
                         "show new files.")


def refuse_different_settings(names: Sequence[str], each: Sequence[Sequence[float]]) -> None:
    """Raise UsageError if the processes have different settings; `each` has a number for each name, by rank."""
    for rank, numbers in enumerate(each):
        if wrong := [name for name, x, first in zip(names, numbers, each[0], strict=True) if x != first]:
            raise UsageError(f"Process {rank} was started with other settings than process 0: {', '.join(wrong)}. "
                             "Start all processes with the same command.")


def refuse_different_weights(sums: Sequence[Sequence[float]]) -> None:
    """Raise UsageError if the processes begin with different weights.

    Args:
        sums: Number, sum and sum of squares of the weights of each process. They may differ by rounding, because
            processors of other types compute the last bits of initial weights differently.
    """
    first = sums[0]
    other = [rank for rank, found in enumerate(sums)
             if any(not math.isclose(x, y, rel_tol=1e-4, abs_tol=1e-4) for x, y in zip(found, first, strict=True))]
    if other:
        raise UsageError(f"make_agent made other weights in process {other[0]} than in process 0. Draw them with the "
                         "generator that it is given (torch's global one, or nnx.Rngs(cfg.seed)), or from cfg.seed.")
