"""`--resume auto`: the same command starts a run, continues it, or finds it finished, however often it is started."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from proximo.catalog import config_class
from proximo.config import Config
from proximo.envs.custom.imports import named_modules
from proximo.errors import UsageError, notify, one_line
from proximo.facts import facts, fixed_on_resume, refused_changes
from proximo.processes import world_from_environment
from proximo.runs.custom_parts import NO_CUSTOM_PARTS, CustomParts, differs_from_variant
from proximo.runs.elastic import fit_to_processes
from proximo.runs.folder.checkpoint import checkpoints, read_summary
from proximo.runs.folder.lock import locked
from proximo.runs.folder.run import NOT_BEGUN, SWEEP, Run, forget_run, has_begun, read_config, run_folder
from proximo.runs.folder.writing import named_faults
from proximo.runs.run_group import NO_MEMBERS, Members, member_folders, members_of_seeds
from proximo.runs.session import Session, train_nothing
from proximo.runs.settings.resolve import resolve
from proximo.runs.start import resume, start

VARIABLE = "PROXIMO_RESUME"


@named_faults()
def start_or_resume(cfg: Config, variant: str, custom: CustomParts = NO_CUSTOM_PARTS, wrong: Sequence[str] = (),
                    mode: str | None = None, sweep: Members = NO_MEMBERS) -> Session:
    """Start a run, or continue the one in its folder.

    Args:
        cfg: The configuration as given.
        variant: The name of its variant.
        custom: Parts that take the place of the variant's.
        wrong: Problems that were found already, besides those of `custom`.
        mode: "auto": continue a run that is in the folder, and do nothing where it is finished; "never": refuse such a
            folder; None: what the environment variable PROXIMO_RESUME says, otherwise "never".
        sweep: The runs of a sweep; see start().

    Raises:
        UsageError: The run cannot work, or the folder contains a run with another configuration.
        FilesError: The folder cannot be written, or its files are damaged.
    """
    if custom.config is None and differs_from_variant(type(cfg)):
        custom = custom._replace(config=type(cfg))
    problem = _mode_problem(cfg, mode)
    if problem or not _is_auto(mode):
        return start(cfg, variant, custom, [*wrong, *problem], sweep)
    folder = run_folder(cfg)
    found = member_folders(folder) or [folder] * (folder / "config.json").exists()
    written = [one for one in found if (one / "config.json").exists()]
    if found not in ([], [folder]) and len(written) < len(sweep or members_of_seeds(cfg)):
        found = _forget_unfinished_start(folder, found)
    if custom.wrong or wrong:
        return start(cfg, variant, custom, wrong, sweep)
    if not found:
        return start(cfg, variant, custom, wrong, sweep, fit=True)
    if sweep and {one.name for one in found} != {*sweep}:
        raise UsageError(f"{folder} contains other runs: {', '.join(one.name for one in found)}. Choose another folder "
                         "with --run-dir.")
    before = read_config(found[0], lambda recorded: custom.config or config_class(recorded))
    first = replace(cfg, **sweep.get(found[0].name, {}))
    changes = _changes(first, variant, custom, before, 1 if sweep else len(found))
    if "total_timesteps" not in changes and (steps := steps_of_early_end(before)):
        notify(f"{folder}: a callback has ended the run after {steps} steps. proximo.resume continues it.")
        return Session(folder, [], train_nothing())
    return resume(folder, changes, custom, named_modules(cfg))


def steps_of_early_end(run: Run) -> int | None:
    """Return the steps of a run that a callback has ended before total_timesteps; None for others."""
    saved = checkpoints(run.folder)
    if not (run.folder / "summary.json").exists() or (saved and int(saved[-1].name) >= run.cfg.num_iterations):
        return None
    steps = read_summary(run.folder)["steps"]
    return steps if run.cfg.total_timesteps - steps >= run.cfg.batch_size else None


def _is_auto(mode: str | None) -> bool:
    return (os.environ.get(VARIABLE) if mode is None else mode) == "auto"


def _mode_problem(cfg: Config, mode: str | None) -> list[str]:
    name, value = (VARIABLE, os.environ.get(VARIABLE) or "never") if mode is None else ("resume", mode)
    if not isinstance(value, str) or value not in ("auto", "never"):
        return [f"{name}={one_line(value):.60} is not allowed. Use auto or never."]
    if value == "auto" and not cfg.run_dir:
        return [f"{name}=auto needs the folder of the run. Name it with --run-dir."]
    return []


def _forget_unfinished_start(base: Path, found: list[Path]) -> list[Path]:
    """Return the folders of several runs; none, if a process was killed before all of them were written."""
    if any(has_begun(folder) for folder in found):
        return found
    with locked(*found):
        for folder in found:
            forget_run(folder)
        (base / SWEEP).unlink(missing_ok=True)
    return []


def _fitted(cfg: Config, variant: str, custom: CustomParts, processes: int) -> Config:
    """Return the configuration with which a command trains in this number of processes."""
    local = min(processes, world_from_environment().local_size)
    return fit_to_processes(resolve(cfg, variant, processes, local, custom_env=custom.make_envs is not None), processes)


def _changes(cfg: Config, variant: str, custom: CustomParts, before: Run, num_seeds: int) -> dict[str, Any]:
    """Return the fields of a recorded run that a command changes.

    What the command leaves to the machine, such as the number of threads, stays as it was recorded. The number of
    processes may be another one: the command would have made the run with the number that is recorded.

    Raises:
        UsageError: It changes what a resume cannot change.
    """
    processes = world_from_environment().size
    old, defaults = replace(before.cfg, num_seeds=num_seeds), type(cfg)()
    left_open = {name for name, fact in facts(cfg).items()
                 if fact.chosen and getattr(cfg, name) == getattr(defaults, name)}
    recorded = {name: getattr(old, name) for name in {"run_dir", *left_open}}
    new = replace(_fitted(cfg, variant, custom, before.processes), **recorded)
    wrong = refused_changes(new, fixed_on_resume(old))
    if variant != before.variant:
        wrong = [f"variant={variant} was given, but the run has variant={before.variant}. Start a new run."]
    if wrong:
        begun = [] if has_begun(before.folder) else [NOT_BEGUN]
        raise UsageError("\n".join([f"{before.folder} contains another run:", *wrong, *begun]))
    if before.processes != processes:
        new = replace(_fitted(cfg, variant, custom, processes), **recorded)
    given = {"wandb_entity": new.wandb_entity} if new.wandb_entity else {}  # the recorded one is not used
    return given | {name: getattr(new, name) for name in facts(new) if getattr(new, name) != getattr(old, name)}
