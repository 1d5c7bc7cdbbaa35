"""Starting and resuming runs: what the command line and the Python API share."""

import os
import shlex
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from proximo.catalog import Parts, config_class, config_of_env
from proximo.config import Config
from proximo.envs.imports import check_imports, named_modules
from proximo.errors import UsageError, warn
from proximo.processes import world_from_environment
from proximo.runs.announce import announce_changes, announce_resume, announce_start, announced
from proximo.runs.checkpoint import find_checkpoint
from proximo.runs.files import refuse_links
from proximo.runs.lock import locked
from proximo.runs.loop import Session, train_nothing, train_together
from proximo.runs.own_parts import NO_OWN_PARTS, OwnParts
from proximo.runs.resolve import problems_of, problems_of_parts, resolve, with_changes
from proximo.runs.run import (
    Run,
    check_new,
    forget_run,
    read_config,
    read_record,
    run_folder,
    write_config,
    written_files,
)
from proximo.runs.seed_runs import check_group, one_run_per_seed, same_iteration, seed_folders, warn_if_one_of_several
from proximo.runs.watcher import Watcher


def start(cfg: Config, variant: str, own: OwnParts = NO_OWN_PARTS, wrong: Sequence[str] = ()) -> Session:
    """Create the folder of a new run, or of one run per seed.

    Args:
        cfg: The configuration as given; what it leaves open is filled in.
        variant: The name of its variant.
        own: Parts that take the place of the variant's.
        wrong: Problems that were found already; they are reported together with the others.

    Raises:
        UsageError: The run cannot work, or the folder contains a run already.
        FilesError: The folder cannot be written.
    """
    world = world_from_environment()
    cfg = resolve(cfg, variant, world.size, world.local_size, own_env=own.make_envs is not None)
    share_cores(cfg)
    own.check_processes(world.size)
    parts = own.parts(variant, cfg.framework)
    if problems := [*wrong, *problems_of(cfg, world.size)]:
        raise UsageError("\n".join([*problems, *problems_of_parts(cfg, parts)]))
    folder = run_folder(cfg)
    runs = [Run(folder, cfg, variant, own.resume_with)]
    if cfg.num_seeds > 1:
        own.check_several_seeds()
        runs = one_run_per_seed(folder, cfg, variant)
    with ExitStack() as held:
        held.enter_context(locked(*dict.fromkeys([folder, *[run.folder for run in runs]]), new=True))
        check_new([folder, *[run.folder for run in runs]])
        runs = with_absolute_folders(runs)
        for run in runs:
            write_config(run)
        watchers = [Watcher(run, own) for run in runs]
        training = parts._replace(make_envs=announced(parts.make_envs, partial(announce_start, cfg, world.size)))
        return Session(folder, watchers, train_together(cfg, training), partial(withdraw, cfg, parts, runs),
                       held.pop_all().close)


def resume(folder: Path, changes: dict[str, Any], own: OwnParts = NO_OWN_PARTS,
           allow_import: Collection[str] = ()) -> Session:
    """Continue a run, or the runs of several seeds together, from the newest checkpoint.

    Only the lock file appears in the folder before the first iteration has ended.

    Args:
        folder: The folder of a run, or of the runs of a --num-seeds command.
        changes: Fields of the configuration that change from here on.
        own: Parts that take the place of the variant's, as they did at the start of the run.
        allow_import: Modules and scripts that the run may name; those of an environment in `changes` are allowed too.

    Raises:
        UsageError: There is no run, or it cannot continue with these changes and parts.
        FilesError: Its files are damaged.
    """
    with ExitStack() as held:
        held.enter_context(locked(folder, *seed_folders(folder)))
        return _resume(folder, changes, own, held, [*allow_import, *named_modules(config_of_env(changes))])


def _resume(folder: Path, changes: dict[str, Any], own: OwnParts, held: ExitStack, allowed: list[str]) -> Session:
    """Continue runs whose folders are locked; the session takes over `held`, which frees them."""
    seeds = seed_folders(folder)
    if not seeds:
        warn_if_one_of_several(folder)
    refuse_links(path for each in seeds or [folder] for path in written_files(each))
    before = [read_config(each, lambda variant: own.config or config_class(variant)) for each in seeds or [folder]]
    runs = [run._replace(cfg=with_changes(run.cfg, changes)) for run in before]
    own.check_resume(before[0])
    own.check_processes(world_from_environment().size)
    for run in runs:
        check_imports(run.cfg, allowed, folder)
    cfg = runs[0].cfg
    if seeds:
        own.check_several_seeds()
        check_group(folder, [run.cfg for run in runs])
        cfg = replace(cfg, num_seeds=len(runs))
    if problems := problems_of(cfg):
        raise UsageError("\n".join(problems))
    runs = [run._replace(cfg=without_recorded_entity(run.cfg, changes)) for run in runs]
    checkpoints = same_iteration(runs, [find_checkpoint(run) for run in runs])
    if not announce_resume(folder, cfg, checkpoints[0]):
        return Session(folder, [], train_nothing(), release=held.pop_all().close)
    announce_changes(before[0].cfg, runs[0].cfg)
    share_cores(cfg)
    parts = own.parts(runs[0].variant, cfg.framework)
    watchers = [Watcher(run, own, kept, partial(write_config, run) if run.cfg != old.cfg else None)
                for run, old, kept in zip(with_absolute_folders(runs), before, checkpoints)]
    states = [kept["state"] for kept in checkpoints if kept is not None]
    return Session(folder, watchers, train_together(cfg, parts, states or None), release=held.pop_all().close)


def without_recorded_entity(cfg: Config, changes: dict[str, Any]) -> Config:
    """Return the configuration without the team of Weights & Biases that a file names: the file may be a stranger's."""
    if not cfg.wandb_entity or "wandb_entity" in changes or not (cfg.track or cfg.logger == "wandb"):
        return cfg
    warn(f"The run was logged to the Weights & Biases entity {cfg.wandb_entity!r}. A resume uses it only if it is "
         f"given again: --wandb-entity {shlex.quote(cfg.wandb_entity)}, or the environment variable WANDB_ENTITY.")
    return replace(cfg, wandb_entity="")


def with_absolute_folders(runs: Sequence[Run]) -> list[Run]:
    """Return runs whose files are found also after an environment has changed the current folder."""
    return [run._replace(folder=run.folder.absolute()) for run in runs]


def recorded_class(folder: Path) -> type[Config]:
    """Return the configuration class of a run, or of the runs of several seeds; raises what `read_config` raises."""
    first = (seed_folders(folder) or [folder])[0]
    return config_class(read_record(first)["variant"])


def withdraw(cfg: Config, parts: Parts, runs: Sequence[Run]) -> list[str]:
    """Remove the files of runs that could not start, and return the problems of their device, environment, network."""
    if world_from_environment().rank == 0:
        for run in runs:
            forget_run(run.folder)
    return problems_of_parts(cfg, parts)


def share_cores(cfg: Config) -> None:
    """Before torch is imported: make its threads sleep between two products where worker processes need the cores.

    By default they spin (docs/performance.md).
    """
    if cfg.env_workers and cfg.threads > 1:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
