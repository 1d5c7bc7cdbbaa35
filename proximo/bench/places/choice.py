"""The choice of a place, and what is wrong with the flags that describe it."""

import math
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

from proximo.bench.places.local import LocalPlace
from proximo.bench.places.ray import RayPlace
from proximo.bench.places.slurm import SlurmPlace
from proximo.bench.task import Place, Where, bytes_of
from proximo.config import Config
from proximo.facts import facts

NEEDS = {"ray": "ray", "slurm": "submitit"}  # package of each place; the extra has the name of the place


def open_place(where: Where, folder: Path) -> Place:
    """Return the place that was asked for.

    Raises:
        UsageError: It cannot be reached.
    """
    match where.on:
        case "ray":
            return RayPlace(where)
        case "slurm":
            return SlurmPlace(where, folder)
    return LocalPlace()


def where_problems(where: Where) -> list[str]:
    """Return what is wrong with a description of a place, one sentence each."""
    wrong = []
    if where.on not in ("local", *NEEDS):
        wrong.append(f"on={where.on!r} is not allowed. Use local, ray or slurm.")
    if where.on in NEEDS and find_spec(NEEDS[where.on]) is None:
        wrong.append(f'--on {where.on} needs {NEEDS[where.on]}: pip install "proximo[{where.on}]"')
    if where.on == "slurm" and where.slurm_cluster == "slurm" and not shutil.which("sbatch"):
        wrong.append("--on slurm needs the command sbatch, which this machine does not have. Use a login node of the "
                     "cluster, or --slurm-cluster local to try the command out.")
    if where.workers is not None and where.workers < 1:
        wrong.append(f"workers={where.workers} must be at least 1.")
    most = facts(Config)["threads"].maximum
    if where.job_threads is not None and not 1 <= where.job_threads <= (most or math.inf):
        wrong.append(f"job_threads={where.job_threads} must be between 1 and {most}.")
    return wrong + _resource_problems(where) + _foreign_flags(where)


def _resource_problems(where: Where) -> list[str]:
    wrong = []
    if not (math.isfinite(where.job_gpus) and where.job_gpus >= 0):
        wrong.append(f"job_gpus={where.job_gpus} is not allowed. Use 0, a fraction such as 0.25, or a whole number.")
    elif where.job_gpus != int(where.job_gpus) and (where.on == "slurm" or where.job_gpus > 1):
        wrong.append(f"job_gpus={where.job_gpus} is not allowed on {where.on}. Use a whole number"
                     f"{' or a fraction below 1' * (where.on == 'ray')}.")
    if where.job_memory and bytes_of(where.job_memory) is None:
        wrong.append(f"job_memory={where.job_memory!r} is not allowed. Use a number with a unit, such as 4GB or 500MB.")
    if where.address and not re.fullmatch(r"[\w.\-\[\]:]+:\d+|auto", where.address):
        wrong.append(f"address={where.address!r} is not allowed. Use HOST:PORT of the head of a Ray cluster.")
    if where.slurm_time < 3:
        wrong.append(f"slurm_time={where.slurm_time} must be at least 3 minutes: a run is stopped 90 seconds "
                     "before the limit.")
    return wrong


def _foreign_flags(where: Where) -> list[str]:
    """Return one sentence for each flag that means nothing at this place."""
    default = Where()
    owners = {"address": ("ray",), "job_gpus": ("ray", "slurm"), "job_memory": ("ray", "slurm"),
              **dict.fromkeys(("slurm_partition", "slurm_constraint", "slurm_time", "slurm_cluster"), ("slurm",))}
    return [f"--{name.replace('_', '-')} needs --on {' or --on '.join(places)}."
            for name, places in owners.items()
            if where.on not in places and getattr(where, name) != getattr(default, name)]
