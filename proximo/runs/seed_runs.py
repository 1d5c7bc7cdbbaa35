"""Runs of several seeds that one compiled function trains (--num-seeds): one folder per seed, and what they share."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from proximo.config import Config
from proximo.errors import UsageError, warn
from proximo.runs.checkpoint import load_tree
from proximo.runs.files import is_folder
from proximo.runs.run import Run, run_folder

Checkpoint = dict[str, Any] | None  # what save_checkpoint wrote


def seed_folders(base: Path) -> list[Path]:
    """Return the folders seed-1, seed-2, ... of one command in order of seed; none if `base` is a run itself."""
    if not is_folder(base):
        return []
    found = [path for path in base.glob("seed-*") if path.name[5:].isdigit() and (path / "config.json").is_file()]
    return [] if (base / "config.json").exists() else sorted(found, key=lambda path: int(path.name[5:]))


def one_run_per_seed(base: Path, cfg: Config, variant: str) -> list[Run]:
    """Return the runs of cfg.num_seeds seeds, each as if it was trained alone; only the first one uses the console."""
    runs = []
    for seed in range(cfg.seed, cfg.seed + cfg.num_seeds):
        one = replace(cfg, seed=seed, num_seeds=1, run_dir=str(base / f"seed-{seed}"),
                      logger=cfg.logger if seed == cfg.seed else "none")
        runs.append(Run(run_folder(one), one, variant))
    return runs


def check_group(base: Path, cfgs: Sequence[Config]) -> None:
    """Check that the runs are consecutive seeds of one configuration.

    Raises:
        UsageError: They are not.
    """
    alike = [replace(cfg, seed=0, run_dir="", logger="none") for cfg in cfgs]
    seeds = [cfg.seed for cfg in cfgs]
    if any(cfg != alike[0] for cfg in alike) or seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        raise UsageError(f"The runs in {base} are not those of one --num-seeds command (seeds {seeds}). Resume them "
                         f"one by one: proximo resume {base}/seed-{seeds[0]}")


def same_iteration(runs: Sequence[Run], newest: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Return a checkpoint of each run, all of the newest iteration that every run has; None if one run has none.

    Args:
        runs: The runs.
        newest: The newest checkpoint of each, None if it has none.

    Raises:
        FilesError: A checkpoint of that iteration is damaged or missing.
    """
    found = [one for one in newest if one is not None]
    if len(found) < len(runs):
        return [None] * len(runs)
    iteration = min(one["state"]["iteration"] for one in found)
    return [one if one["state"]["iteration"] == iteration else
            load_tree(run.folder / "checkpoints" / f"{iteration:08d}") for run, one in zip(runs, found)]


def warn_if_one_of_several(folder: Path) -> None:
    """Say that a run of a --num-seeds command is resumed alone."""
    if len(seed_folders(folder.parent)) > 1:
        warn(f"{folder.name} was trained together with the other seeds in {folder.parent}. Alone it continues equal up "
             f"to rounding; to continue exactly, resume all of them: proximo resume {folder.parent}")
