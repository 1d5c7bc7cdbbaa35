"""The processes that train one agent together, as torchrun starts them (detail A2)."""

import os
from typing import NamedTuple

from proximo.config import Config
from proximo.errors import UsageError

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


class World(NamedTuple):
    """This process among all of them. Ranks are global: the processes may run on several machines."""

    rank: int
    size: int
    local_rank: int
    local_size: int


ALONE = World(rank=0, size=1, local_rank=0, local_size=1)


def world_from_environment() -> World:
    """Return what torchrun has set in the environment variables; ALONE without it.

    Raises:
        UsageError: Only some of the variables are set, as a job of a cluster may leave them, or one is no number.
    """
    present = [name for name in ("RANK", "WORLD_SIZE") if name in os.environ]
    if not present:
        return ALONE
    absent = [name for name in TORCHRUN if name not in os.environ]
    if absent:
        raise UsageError(f"{' and '.join(present)} {'is' if len(present) == 1 else 'are'} set in the environment, "
                         f"{', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not. torchrun sets all of them. "
                         f"To train with one process, remove them: unset {' '.join(present)}")
    wrong = [name for name in TORCHRUN if not os.environ[name].isdigit()]
    if wrong:
        raise UsageError(f"The environment variable {wrong[0]}={os.environ[wrong[0]]} is not a number. Start processes "
                         "with torchrun, or unset it.")
    return World(*(int(os.environ[name]) for name in TORCHRUN))


def check_shares(cfg: Config, ranks: int, unit: str) -> None:
    """Check that environments and minibatches can be divided among ranks.

    Args:
        cfg: The configuration.
        ranks: Number of processes or devices that learn together.
        unit: What a rank is: "processes" or "devices".

    Raises:
        UsageError: They cannot, or --device-ids does not name one device for each rank.
    """
    if cfg.device_ids and len(cfg.device_ids) != ranks:
        example = " ".join(str(i // 2) for i in range(ranks))
        given = f"{ranks} {unit}" if ranks > 1 else {"processes": "1 process", "devices": "1 device"}[unit]
        raise UsageError(f"--device-ids names {len(cfg.device_ids)} GPUs for {given}. Give one id for each, such as "
                         f"{example}.")
    if unit == "devices" and len(set(cfg.device_ids)) < len(cfg.device_ids):
        raise UsageError(f"--device-ids names a device twice: {' '.join(map(str, cfg.device_ids))}. Name each once.")
    if cfg.num_envs % ranks:
        raise UsageError(f"num_envs={cfg.num_envs} is not divisible by {ranks} {unit}. Use a multiple of {ranks}.")
    rows = cfg.num_envs // ranks * (1 if cfg.recurrent != "none" else cfg.num_steps)
    if rows % cfg.num_minibatches:
        raise UsageError(f"Each of {ranks} {unit} has {rows} rows, which are not divisible by "
                         f"num_minibatches={cfg.num_minibatches}. Change num_envs, num_steps or num_minibatches.")
