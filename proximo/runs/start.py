"""Starting and resuming runs: what the command line and the Python API share."""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from proximo.catalog import config_class
from proximo.config import Config
from proximo.envs.custom.env_file import played_script, with_function
from proximo.envs.custom.imports import check_imports, named_modules, with_moved_script
from proximo.envs.machine.cores import set_passive_openmp_wait
from proximo.errors import FilesError, UsageError, warn
from proximo.processes import world_from_environment
from proximo.runs.custom_parts import NO_CUSTOM_PARTS, CustomParts
from proximo.runs.elastic import announce_sizes, continue_schedule, fit_to_processes, refuse_earlier_end
from proximo.runs.folder.checkpoint import find_checkpoint, read_summary
from proximo.runs.folder.files import refuse_links
from proximo.runs.folder.lock import locked
from proximo.runs.folder.run import (
    Run,
    check_new,
    class_in_file,
    read_config,
    read_record,
    run_folder,
    write_config,
    written_files,
)
from proximo.runs.folder.writing import named_faults
from proximo.runs.init_from import with_start
from proximo.runs.logs.announce import (
    announce_callbacks,
    announce_changes,
    announce_parts,
    announce_resume,
    announce_start,
    announced,
)
from proximo.runs.run_group import (
    NO_MEMBERS,
    Members,
    check_group,
    forget_start,
    member_folders,
    members_of_seeds,
    runs_of_members,
    same_iteration,
    warn_if_one_of_several,
    write_start,
)
from proximo.runs.session import Session, train_nothing, train_together
from proximo.runs.settings.choice import config_of_env
from proximo.runs.settings.resolve import (
    problems_of,
    problems_of_parts,
    record_problems,
    resolve,
    usage_errors,
    with_changes,
)
from proximo.runs.timing import Recorder, timed
from proximo.runs.watcher import Watcher, restore_summaries


@named_faults()
def start(cfg: Config, variant: str, custom: CustomParts = NO_CUSTOM_PARTS, wrong: Sequence[str] = (),
          sweep: Members = NO_MEMBERS, fit: bool = False) -> Session:
    """Create the folder of a new run, or of several that one compiled function trains.

    Args:
        cfg: The configuration as given; what it leaves open is filled in.
        variant: The name of its variant.
        custom: Parts that take the place of the variant's.
        wrong: Problems that were found already, besides those of `custom`; they are reported with the others.
        sweep: The runs of a sweep; without one, there is one run, or one for each of cfg.num_seeds seeds.
        fit: Change sizes that cannot be divided among the processes, instead of refusing them.

    Raises:
        UsageError: The run cannot work, or the folder contains a run already.
        FilesError: The folder cannot be written.
    """
    world = world_from_environment()
    cfg = resolve(custom.with_workers(cfg), variant, world.size, world.local_size, custom.make_envs is not None,
                  len(sweep))
    if fit:
        cfg = announce_sizes(cfg, fit_to_processes(cfg, world.size), world.size)
    set_passive_openmp_wait(cfg)
    custom.check_processes(world.size)
    parts = custom.parts(variant, cfg.framework)
    swept = [replace(cfg, **changes) for changes in sweep.values()]
    if problems := [*custom.problems(cfg), *wrong, *problems_of_runs(swept or [cfg], world.size)]:
        problems += usage_errors(lambda: with_start(parts, cfg))
        raise UsageError("\n".join([*problems, *problems_of_parts(cfg, parts)]))
    parts = with_start(parts, cfg)
    folder = run_folder(cfg)
    runs = [custom.new_run(folder, cfg, variant)]
    if members := sweep or members_of_seeds(cfg):
        custom.check_several_seeds()
        runs = runs_of_members(runs[0], members)
    with ExitStack() as held:
        held.enter_context(locked(*dict.fromkeys([folder, *[run.folder for run in runs]]), new=True))
        check_new([folder, *[run.folder for run in runs]], runs[0]._replace(folder=folder).resume_line)
        runs = with_absolute_folders(runs)
        write_start(folder, runs, sweep)
        watchers = _watchers(runs, custom, recorder := Recorder(cfg.overlap), [(None, None)] * len(runs))
        make_envs = announced(timed(parts.make_envs, recorder), partial(announce_start, cfg, custom), bool(members))
        training = parts._replace(make_envs=make_envs)
        return Session(folder, watchers, train_together([run.cfg for run in runs], training),
                       partial(forget_start, folder, runs),
                       lambda: [] if recorder.tried else problems_of_parts(cfg, parts), held.pop_all().close)


@named_faults()
def resume(folder: Path, changes: dict[str, Any], custom: CustomParts = NO_CUSTOM_PARTS,
           allow_import: Collection[str] = (), wrong: Sequence[str] = ()) -> Session:
    """Continue a run, or the runs of one command together, from the newest checkpoint.

    Only the lock file appears in the folder before the first iteration has ended.

    Args:
        folder: The folder of a run, or of the runs of a --num-seeds command or a sweep.
        changes: Fields of the configuration that change from here on.
        custom: Parts that take the place of the variant's, as they did at the start of the run.
        allow_import: Modules and scripts that the run may name; those of an environment in `changes` are allowed too.
        wrong: Problems that were found already; they are reported together with the others.

    Raises:
        UsageError: There is no run, or it cannot continue with these changes and parts.
        FilesError: Its files are damaged.
    """
    changes = changes | played_script(changes)
    with ExitStack() as held:
        held.enter_context(locked(folder, *member_folders(folder)))
        return _resume(folder, changes, custom, held, [*allow_import, *named_modules(config_of_env(changes))], wrong)


def _watchers(runs: Sequence[Run], custom: CustomParts, recorder: Recorder,
              starts: Iterable[tuple[dict[str, Any] | None, Callable[[], None] | None]]) -> list[Watcher]:
    """Return a watcher for each run; the last one shows the progress of all.

    Args:
        runs: The runs.
        custom: The custom parts.
        recorder: Notes the steps of the environments.
        starts: For each run, the checkpoint that it continues from, and what is called before anything is written.
    """
    watchers: list[Watcher] = []
    for run, (checkpoint, before_first) in zip(runs, starts):
        watchers.append(Watcher(run, custom, checkpoint, before_first, recorder, run is runs[-1], group=watchers))
    return watchers


def _resume(folder: Path, changes: dict[str, Any], custom: CustomParts, held: ExitStack, allowed: list[str],
            wrong: Sequence[str]) -> Session:
    """Continue runs whose folders are locked; the session takes over `held`, which frees them."""
    members = member_folders(folder)
    if not members:
        warn_if_one_of_several(folder)
    refuse_links([*members, *(path for each in members or [folder] for path in written_files(each))])
    processes = world_from_environment().size
    before = [read_config(each, lambda variant: custom.config or config_class(variant)) for each in members or [folder]]
    runs = changed_runs(before, changes, allowed, processes)
    custom.check_resume(before[0])
    custom.check_processes(processes)
    for run in runs:
        check_imports(run.cfg, allowed, folder)
    if members:
        custom.check_several_seeds()
        check_group(folder, [run.cfg for run in before], changes)
    if problems := [*wrong, *problems_of_runs([run.cfg for run in runs])]:
        problems += usage_errors(lambda: [find_checkpoint(run) for run in runs])
        raise UsageError("\n".join(dict.fromkeys(problems)))
    runs = [run._replace(cfg=without_recorded_entity(run.cfg, changes)) for run in runs]
    checkpoints = same_iteration(runs, [find_checkpoint(run) for run in runs])
    runs = [run._replace(cfg=continue_schedule(run.cfg, kept)) for run, kept in zip(runs, checkpoints)]
    refuse_earlier_end(before, runs, checkpoints)
    cfg = replace(runs[0].cfg, num_seeds=len(runs))
    ended = None if checkpoints[0] else steps_without_checkpoints(folder, runs)
    if not announce_resume(folder, cfg, checkpoints[0], ended):
        restore_summaries(runs, checkpoints)
        return Session(folder, [], train_nothing(), release=held.pop_all().close)
    announce_changes(before[0].cfg, runs[0].cfg, checkpoints[0], len({run.cfg.learning_rate for run in runs}) == 1)
    announce_callbacks(runs[0].folder, bool(custom.callbacks))
    runs = [custom.recorded_by(run) for run in runs]
    announce_parts(before[0], runs[0])
    set_passive_openmp_wait(cfg)
    parts, recorder = custom.parts_of_resume(runs[0]), Recorder(cfg.overlap)
    parts = parts._replace(make_envs=timed(parts.make_envs, recorder))
    runs = [run._replace(processes=processes) for run in with_absolute_folders(runs)]
    watchers = _watchers(runs, custom, recorder, [
        (kept, partial(write_config, run) if run != old else None)
        for run, old, kept in zip(runs, with_absolute_folders(before), checkpoints)])
    states = [kept["state"] for kept in checkpoints if kept is not None]
    training = train_together([run.cfg for run in runs], parts if states else with_start(parts, cfg), states or None)
    return Session(folder, watchers, training, release=held.pop_all().close)


def changed_runs(runs: Sequence[Run], changes: Mapping[str, Any], allowed: Collection[str],
                 processes: int) -> list[Run]:
    """Return runs with the changes of a resume, with scripts that have moved, for this number of processes."""
    cfgs = [with_moved_script(with_changes(run.cfg, with_function(changes, run.cfg)), allowed) for run in runs]
    if runs[0].processes != processes:
        cfgs = [fit_to_processes(cfg, processes) for cfg in cfgs]
    return [run._replace(cfg=cfg) for run, cfg in zip(runs, cfgs)]


def steps_without_checkpoints(folder: Path, runs: Sequence[Run]) -> int | None:
    """Return the steps of finished runs whose checkpoints were removed; None for runs that have not finished.

    Raises:
        FilesError: They were asked to train longer, or a summary.json is damaged.
    """
    if not all((run.folder / "summary.json").exists() for run in runs):
        return None
    steps = min(read_summary(run.folder)["steps"] for run in runs)
    if runs[0].cfg.total_timesteps - steps >= runs[0].cfg.batch_size:
        raise FilesError(f"{folder} finished after {steps} steps, and its checkpoints were removed. It can be "
                         "evaluated, but not trained longer. Nothing was changed. Start a new run.")
    return steps


def without_recorded_entity(cfg: Config, changes: dict[str, Any]) -> Config:
    """Return the configuration without the Weights & Biases team of the run's file, which is untrusted."""
    if not cfg.wandb_entity or "wandb_entity" in changes or not (cfg.track or cfg.logger == "wandb"):
        return cfg
    warn(f"The run was logged to the Weights & Biases entity {cfg.wandb_entity!r}. A resume uses it only if it is "
         f"given again: --wandb-entity {shlex.quote(cfg.wandb_entity)}, or the environment variable WANDB_ENTITY.")
    return replace(cfg, wandb_entity="")


def with_absolute_folders(runs: Sequence[Run]) -> list[Run]:
    """Return runs with absolute folders, because an environment may change the current folder."""
    return [run._replace(folder=run.folder.absolute()) for run in runs]


def recorded_class(folder: Path) -> type[Config]:
    """Return the configuration class of a run, or of several runs of one command; raises what `read_config` raises."""
    first = (member_folders(folder) or [folder])[0]
    return class_in_file(read_record(first)["variant"], first / "config.json", config_class)


def problems_of_runs(cfgs: Sequence[Config], processes: int = 1) -> list[str]:
    """Return everything that is wrong with the configurations of runs of one command, each sentence once."""
    return [*dict.fromkeys(problem for cfg in cfgs
                           for problem in (*problems_of(cfg, processes), *record_problems(cfg)))]
