"""The folder of a run: its name, and config.json, which says everything that is needed to repeat the run."""

import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from importlib import metadata
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from proximo.config import Config
from proximo.envs.custom.imports import import_flags, named_modules
from proximo.envs.machine.cores import usable_cores
from proximo.errors import FilesError, UsageError, one_line, warn
from proximo.facts import type_problems
from proximo.processes import world_from_environment
from proximo.runs.command_line import command_line, pasted, torchrun_words
from proximo.runs.folder.files import POPULATION_FILE, is_folder, read_json
from proximo.runs.folder.records import RunFile
from proximo.runs.folder.version_0_1 import present_fields
from proximo.runs.folder.writing import write_json

NEW_RUN = ", or choose another folder with --run-dir"  # what to do where its files cannot be written
BEST = "model-best"  # in the folder of a run: the best model of the evaluations during training
NOT_BEGUN = "It has not finished an iteration: remove it if no process trains it."
UNNAMED = "own"  # a custom part whose name an earlier version did not record
SWEEP = "sweep.json"  # in the folder of a sweep: lists the folders of its runs
CONTINUED_BY = {"study.journal": "tune", POPULATION_FILE: "pbt", "bench.json": "bench"}  # files in folders of many runs
VERSIONED = ("torch", "jax", "numpy", "gymnasium", "ale-py", "mujoco", "dm-control", "envpool", "brax", "pettingzoo")
# What `resume_with` may be. A file may have anything else, which is not printed as a line to copy.
RESUME = re.compile(r"proximo\.resume\('RUN'(, \w+=\.\.\.)+\)|python (?P<program>(?!-)[\w ./\\:@+,()'-]+) resume RUN")


class Run(NamedTuple):
    """One run, as its config.json records it."""

    folder: Path
    cfg: Config
    variant: str
    resume_with: str = ""  # the call or command that resumes a run with custom parts; RUN stands for the folder
    processes: int = 1  # that trained it last
    custom_parts: Mapping[str, str] = MappingProxyType({})  # their names, by argument

    @property
    def resume_line(self) -> str:
        """Return the command that resumes this run with as many processes as there are now, or the call in a program.

        A line of config.json that is neither is not returned: it could be anything. Words say which program is meant.
        """
        if not self.resume_with:
            return resume_command(self.folder, self.cfg)
        found = RESUME.fullmatch(self.resume_with)
        if found is None:
            return f"the program that started it (config.json has {self.resume_with!r:.200})"
        if found["program"]:
            return resume_command(self.folder, self.cfg, found["program"])
        call = self.resume_with.replace("'RUN'", repr(str(self.folder)), 1)
        return f"{call[:-1]}, allow_import={named_modules(self.cfg)})" if named_modules(self.cfg) else call


def resume_command(folder: Path, cfg: Config, program: str = "") -> str:
    """Return the command that resumes the run, or the runs of several seeds, in a folder.

    Args:
        folder: The folder.
        cfg: The configuration.
        program: The file of the program that trains it by run_program(); "": the command `proximo` does.
    """
    words = [program] if program else ["proximo"]
    if start := torchrun_words():
        words = [*start, *(() if program else ("-m",)), *words]
    elif program:
        words = ["python", program]
    return pasted(*words, "resume", folder, *import_flags(cfg))


def run_folder(cfg: Config) -> Path:
    """Return where a run is written: cfg.run_dir (~ is the home folder), or a new runs/ENV__NAME__SEED__TIME."""
    if cfg.run_dir:
        return Path(os.path.expanduser(cfg.run_dir))
    env_id = re.sub(r"[/:\\]", "-", cfg.env_id)
    first = Path("runs") / f"{env_id}__{cfg.exp_name}__{cfg.seed}__{int(time.time())}"
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(folder for folder in chain([first], others) if not folder.exists())


def check_new(folders: Sequence[Path], resume_line: str) -> None:
    """Check that no run is in these folders. Only rank 0 checks.

    Args:
        folders: The folders of a new run.
        resume_line: The call or command that would resume it.

    Raises:
        UsageError: A folder has a run, or checkpoints of one, from which a resume would continue.
    """
    for folder in folders if world_from_environment().rank == 0 else ():
        if (folder / "config.json").exists() or (folder / SWEEP).exists():
            begun = "" if has_begun(folder) else f" {NOT_BEGUN}"
            raise UsageError(f"{folder} contains a run already. Resume it with `{resume_line}`, or start it with "
                             "--resume auto (resume=\"auto\"), which continues a run that is there, or choose another "
                             f"folder with --run-dir (run_dir=...).{begun}")
        if any((folder / "checkpoints").glob("[0-9]*")):
            raise UsageError(f"{folder} contains checkpoints of a run without its config.json. Move them to another "
                             "place, or choose another folder with --run-dir (run_dir=...).")


def has_begun(folder: Path) -> bool:
    """Return whether a run, or one of several in a folder, has finished an iteration."""
    names = ("metrics.csv", "*/metrics.csv", "checkpoints/[0-9]*", "*/checkpoints/[0-9]*")
    return any(any(folder.glob(name)) for name in names)


def write_config(run: Run) -> None:
    """Write config.json: variant, hyper-parameters, versions, command. Only rank 0 writes.

    Raises:
        FilesError: The file cannot be written.
    """
    world = world_from_environment()
    if world.rank > 0:
        return
    content = {"variant": run.variant, "config": asdict(run.cfg), "versions": versions(),
               "resume_with": run.resume_with, "own_parts": dict(run.custom_parts), "processes": world.size,
               "command": command_line(), "machine": f"{platform.platform()}, {usable_cores()} cores"}
    path = run.folder / "config.json"
    resumed = path.exists()
    write_json(path, content, f", then continue with `{run.resume_line}`" if resumed else NEW_RUN)


def written_files(folder: Path) -> list[Path]:
    """Return the files and folders of a run that a resume writes to, or in which it removes something."""
    names = ("config.json", "summary.json", "eval.json", "metrics.csv", "episodes.csv", "checkpoints", "model",
             BEST, "tensorboard", "videos", "wandb")
    return [*(folder / name for name in names), *folder.glob("videos/*"), *folder.glob("tensorboard/*")]


def forget_run(folder: Path) -> None:
    """Remove the config.json of a run that could not start."""
    if not has_begun(folder):
        (folder / "config.json").unlink(missing_ok=True)


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python, Proximo and the libraries that are installed. Finding them takes 20 ms."""
    found = {"python": platform.python_version()}
    for name in ("proximo", *VERSIONED):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return found


def read_config(folder: Path, config_class: Callable[[str], type[Config]]) -> Run:
    """Read the config.json of a run.

    Args:
        folder: The folder of the run.
        config_class: Gives the class of the configuration from the name of the variant.

    Raises:
        UsageError: The folder is not that of a run.
        FilesError: The file is damaged.
    """
    content = read_record(folder)
    variant, path = content["variant"], folder / "config.json"
    kind = class_in_file(variant, path, config_class)
    return Run(folder=folder, cfg=config_from(content["config"], kind, path), variant=variant,
               resume_with=content.get("resume_with", ""), processes=content.get("processes", 1),
               custom_parts=custom_settings(content))


def custom_settings(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the custom parts that a config.json names, by argument, as settings of the run.

    The environment is one of them: the env_id is that of the registered environment, also where a wrapper of the
    program changes it. Earlier versions did not record all names.
    """
    return dict(record.get("own_parts") or dict.fromkeys(
        re.findall(r"(\w+)=\.\.\.", record.get("resume_with", "")), UNNAMED))


def parts_of_run(folder: Path) -> dict[str, str]:
    """Return `custom_settings` of the run in a folder; {} where there is none."""
    return custom_settings(read_record(folder)) if (folder / "config.json").is_file() else {}


def class_in_file(variant: str, path: Path, config_class: Callable[[str], type[Config]]) -> type[Config]:
    """Return the class of the configuration that a file names; FilesError, with the file, for an unknown variant."""
    try:
        return config_class(variant)
    except UsageError as error:
        raise FilesError(f"{path}: {error}") from error


def check_folder(folder: Path) -> None:
    """Raise UsageError if the folder of a run does not exist."""
    if not is_folder(folder):
        what = "it is a file. Files of other libraries: docs/coming-from.md (Trained models)"
        what = what if os.path.isfile(folder) else "there is no such folder"
        raise UsageError(f"{one_line(folder)} is not a run: {what}.")


def read_record(folder: Path) -> RunFile:
    """Read the content of config.json; raises what `read_config` raises."""
    check_folder(folder)
    try:
        return read_json(folder / "config.json", RunFile)
    except FileNotFoundError as error:
        run = folder.parent.parent
        if folder.parent.name == "checkpoints" and (run / "config.json").is_file():
            raise UsageError(f"{one_line(folder)} is a checkpoint. `{pasted('proximo', 'resume', run)}` continues from "
                             "the newest one of its run; docs/runs.md has how to go back to an earlier one.") from error
        several = [f" The same `proximo {command} FILE` continues what is in it."
                   for name, command in CONTINUED_BY.items() if (folder / name).exists()]
        raise UsageError(f"{one_line(folder)} is not a run: it contains no config.json.{''.join(several)}") from error


def config_from(values: Mapping[str, Any], kind: type[Config], path: Path) -> Config:
    """Build a configuration from JSON; fields that this version does not know are left out with a warning.

    Args:
        values: Its fields.
        kind: Its class.
        path: The file that has them, for messages.

    Raises:
        FilesError: A value has a type that its field does not allow; one sentence for each.
    """
    known, values = {f.name for f in fields(kind)}, present_fields(values)
    if extra := sorted(values.keys() - known):
        warn(f"The configuration has fields that {kind.__name__} does not have: {', '.join(extra)}. They are ignored.")
    kept: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in values.items() if name in known}
    try:
        cfg = kind(**kept)
        problems = type_problems(cfg)
    except (TypeError, AttributeError, OverflowError) as error:
        raise FilesError(f"{path}: the configuration is not one of {kind.__name__} ({error}).") from error
    if problems:
        raise FilesError("\n".join(f"{path}: {problem}" for problem in problems))
    return cfg
