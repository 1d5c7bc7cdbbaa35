"""Runs that one compiled function trains: several seeds (--num-seeds), or several values (proximo sweep)."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proximo.config import Config
from proximo.errors import FilesError, UsageError, warn
from proximo.facts import facts
from proximo.processes import world_from_environment
from proximo.runs.command_line import pasted
from proximo.runs.folder.checkpoint import checkpoints, load_tree
from proximo.runs.folder.files import is_folder, is_number, read_json
from proximo.runs.folder.records import Checkpoint, SweepFile
from proximo.runs.folder.run import NEW_RUN, SWEEP, Run, forget_run, has_begun, run_folder, write_config
from proximo.runs.folder.writing import write_json

Members = Mapping[str, Mapping[str, Any]]  # name of the folder of each run -> the fields in which it differs
NO_MEMBERS: Members = MappingProxyType({})


def member_folders(base: Path) -> list[Path]:
    """Return the folders of the runs of one command, in its order; none if `base` is a run itself.

    Raises:
        FilesError: The file that lists them is damaged.
    """
    if not is_folder(base) or (base / "config.json").exists():
        return []
    if (base / SWEEP).exists():
        names = read_json(base / SWEEP, SweepFile)["members"]
        if wrong := [name for name in names if name in ("", ".", "..") or Path(name).name != name]:
            raise FilesError(f"{base / SWEEP}: {wrong[0]!r:.60} is not the name of a folder in {base}.")
        return [base / name for name in names]
    found = [path for path in base.glob("seed-*") if is_number(path.name[5:]) and (path / "config.json").is_file()]
    return sorted(found, key=lambda path: int(path.name[5:]))


def check_one_run(folder: Path) -> None:
    """Raise UsageError if a folder, in which a model is wanted, has several runs."""
    if several := member_folders(folder):
        raise UsageError(f"{folder} contains {len(several)} runs. Name one of them, such as {several[0]}.")


def members_of_seeds(cfg: Config) -> Members:
    """Return one member for each of cfg.num_seeds seeds; none for a single seed."""
    seeds = range(cfg.seed, cfg.seed + cfg.num_seeds) if cfg.num_seeds > 1 else ()
    return {f"seed-{seed}": {"seed": seed} for seed in seeds}


def runs_of_members(run: Run, members: Members) -> list[Run]:
    """Return the run of each member, with the configuration of a run that is trained alone in its folder."""
    cfgs = [replace(run.cfg, **changes, num_seeds=1, run_dir=str(run.folder / name))
            for name, changes in members.items()]
    return [run._replace(folder=run_folder(cfg), cfg=cfg) for cfg in cfgs]


def write_start(folder: Path, runs: Sequence[Run], sweep: Members) -> None:
    """Write what says that there are runs: all of these files, or none if one cannot be written.

    Raises:
        FilesError: One cannot be written.
    """
    try:
        if sweep:
            write_json(folder / SWEEP, {"members": [*sweep]}, NEW_RUN)
        for run in runs:
            write_config(run)
    except FilesError:
        forget_start(folder, runs)
        raise


def forget_start(folder: Path, runs: Sequence[Run]) -> None:
    """Remove the files of runs that could not start: of those without a finished iteration. Only rank 0 removes.

    What cannot be removed stays: the fault that ends the runs is the one to report.
    """
    with suppress(OSError):
        if world_from_environment().rank > 0 or any(has_begun(run.folder) for run in runs):
            return
        (folder / SWEEP).unlink(missing_ok=True)
        for run in runs:
            forget_run(run.folder)


def check_group(base: Path, cfgs: Sequence[Config], changed: Collection[str]) -> None:
    """Check that the runs are those of one command: consecutive seeds of one configuration, or a sweep.

    Args:
        base: Their folder.
        cfgs: Their configurations.
        changed: Fields that a resume changes.

    Raises:
        UsageError: They are not, or a field is to be changed in which they differ.
    """
    is_sweep, seeds = (base / SWEEP).exists(), [cfg.seed for cfg in cfgs]
    swept = [name for name, fact in facts(cfgs[0]).items()
             if is_sweep and fact.sweep and len({getattr(cfg, name) for cfg in cfgs}) > 1]
    if both := [name for name in (*swept, "seed") if name in changed]:
        raise UsageError(f"{', '.join(both)}: the runs in {base} differ in it. Leave it out, or resume one of them.")
    advice = f"Resume them one by one: proximo resume {pasted(base / Path(cfgs[0].run_dir).name)}"
    others = [name for name in facts(cfgs[0]) if name not in ("seed", "run_dir", "logger", *swept)]
    if differs := [name for name in others if any(getattr(cfg, name) != getattr(cfgs[0], name) for cfg in cfgs)]:
        raise UsageError(f"The runs in {base} differ in {', '.join(differs)}: one of them was continued alone. "
                         f"{advice}")
    if not (is_sweep or seeds == [*range(seeds[0], seeds[0] + len(seeds))]):
        raise UsageError(f"The runs in {base} are not those of one --num-seeds command (seeds {seeds}). {advice}")


def same_iteration(runs: Sequence[Run], newest: Sequence[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """Return a checkpoint of each run, all of the newest iteration that every run has; None if one run has none yet.

    Args:
        runs: The runs.
        newest: The newest checkpoint of each, None if it has none.

    Raises:
        UsageError: A run ended long before the others, because its numbers were not finite.
        FilesError: A checkpoint of that iteration is damaged.
    """
    iterations = [one["state"]["iteration"] if one else 0 for one in newest]
    least, most = min(iterations), max(iterations)
    if most <= runs[0].cfg.checkpoint_every and least == 0:
        return [None] * len(runs)
    kept = [{int(path.name) for path in checkpoints(run.folder)} for run in runs]
    common = max((number for number in set.intersection(*kept) if number <= least), default=0)
    if not common:
        ended = [run.folder for run, iteration in zip(runs, iterations) if iteration == least]
        others = [run.folder for run, iteration in zip(runs, iterations) if iteration > least]
        names = ", ".join(folder.name for folder in ended)
        raise UsageError(f"{names} ended early: the newest checkpoint is of iteration {least}, and that of "
                         f"{others[0].name} of iteration {most}. Resume the others one by one: proximo resume "
                         f"{pasted(others[0])}")
    return [one if iteration == common else load_tree(run.folder / "checkpoints" / f"{common:08d}", Checkpoint)
            for run, one, iteration in zip(runs, newest, iterations)]


def warn_if_one_of_several(folder: Path) -> None:
    """Warn that one of several runs of a command is resumed alone."""
    others = member_folders(folder.parent)
    if len(others) > 1 and folder.name in [other.name for other in others]:
        warn(f"{folder.name} was trained together with the other runs in {folder.parent}. Alone it continues equal up "
             f"to rounding; to continue exactly, resume all of them: proximo resume {pasted(folder.parent)}")
