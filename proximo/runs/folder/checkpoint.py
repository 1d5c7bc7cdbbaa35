"""Checkpoints: safetensors, JSON and SHA-256 in a folder that appears completely or not at all; no pickle."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from proximo.envs.machine.cores import cpu_model
from proximo.errors import FilesError, UsageError, warn
from proximo.facts import refused_changes
from proximo.processes import world_from_environment
from proximo.runs.command_line import pasted
from proximo.runs.elastic import SIZES, continue_schedule
from proximo.runs.folder.files import is_number, read_json, refuse_links, sha256
from proximo.runs.folder.records import Checkpoint, Manifest, SummaryFile
from proximo.runs.folder.run import Run, versions
from proximo.runs.folder.version_0_1 import refuse_checkpoint
from proximo.runs.folder.writing import OF_THE_PROCESS, exchange, named_faults, number_of, unwritten

ARRAY = "__array__"
TENSORS, TREE, MANIFEST = "tensors.safetensors", "tree.json", "manifest.json"
REMOVED = "removed"  # an empty file next to the checkpoints if all of them were removed on purpose
LEFT = re.compile(r"\.(.+)\.[0-9]+\.(tmp|old)")  # beside a folder by a process that was killed
MOST_BYTES = 1 << 30  # of tree.json, which holds the states of all environments


def save_tree(folder: Path, tree: dict[str, Any], otherwise: str = "") -> None:
    """Write a nested dict as a folder: under another name first, synced, then renamed.

    Args:
        folder: The folder to write or to replace.
        tree: String keys; arrays, numbers, strings, booleans, None, lists and such dicts as values.
        otherwise: What follows the remedy in the sentence of an error, see `unwritten`.

    Raises:
        FilesError: The disk does not take it; earlier folders stay as they were.
    """
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        beside.parent.mkdir(parents=True, exist_ok=True)
        for name in os.listdir(folder.parent):  # of names: there may be thousands of checkpoints
            if (left := LEFT.fullmatch(name)) and left[1] == folder.name:
                shutil.rmtree(folder.with_name(name), ignore_errors=name != beside.name)
        beside.mkdir()
        arrays: dict[str, np.ndarray] = {}
        (beside / TREE).write_text(json.dumps(_without_arrays(tree, "", arrays), indent=1))
        save_file(arrays, beside / TENSORS)
        shutil.copymode(beside / TREE, beside / TENSORS)  # safetensors lets only the owner read its files
        sums = {name: sha256(beside / name) for name in (TENSORS, TREE)}
        (beside / MANIFEST).write_text(json.dumps({"format": 1, "sha256": sums}, indent=1))
        for path in [*beside.iterdir(), beside]:
            _sync(path)
        if folder.exists() and exchange(beside, folder):
            shutil.rmtree(beside, ignore_errors=True)
        elif folder.exists():
            old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
            folder.rename(old)
            beside.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            beside.rename(folder)
        _sync(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise unwritten(folder, error, otherwise) from error


def load_tree(folder: Path, kind: Any = dict[str, Any]) -> dict[str, Any]:
    """Read the nested dict that `save_tree` wrote.

    Args:
        folder: The folder.
        kind: The TypedDict that tree.json must have (runs/folder/records.py).

    Raises:
        FilesError: A file is missing, is not a regular one, its SHA-256 differs, or its content has other types.
    """
    try:
        sums = read_json(folder / MANIFEST, Manifest)["sha256"]
        for name, most in ((TREE, MOST_BYTES), (TENSORS, None)):
            if sha256(folder / name, most) != dict(sums)[name]:
                raise FilesError(f"{folder / name} is damaged: its SHA-256 differs from the one in manifest.json")
        arrays = load_file(folder / TENSORS)
        return cast(dict[str, Any], _with_arrays(read_json(folder / TREE, kind, MOST_BYTES), arrays))
    except FilesError:
        raise
    except KeyError as error:
        raise FilesError(f"{folder} cannot be read: {TENSORS} has no {error}") from error
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, MemoryError, SafetensorError) as error:
        raise FilesError(f"{folder} cannot be read ({str(error) or type(error).__name__})") from error


@named_faults()
def save_checkpoint(run: Path, iteration: int, tree: dict[str, Any], keep: int) -> None:
    """Add checkpoints/ITERATION to the folder of a run, and remove all but the `keep` newest (0: remove none).

    Checkpoints of later iterations are removed in any case: the run has continued from an older one, because they are
    damaged or not all runs of a group have them, and its log has no lines for them.
    """
    folder = run / "checkpoints"
    refuse_links([folder])  # older folders in it are removed
    save_tree(folder / f"{iteration:08d}", tree)
    names = os.listdir(folder)
    hidden, numbers = [name for name in names if name[0] == "."], sorted(filter(is_number, names), key=int)
    later = [name for name in numbers if int(name) > iteration]
    earlier = numbers[:len(numbers) - len(later)]
    for name in [*hidden, *later, *(earlier[:-keep] if keep else ())]:
        shutil.rmtree(folder / name, ignore_errors=True)


@named_faults()
def checkpoints(run: Path) -> list[Path]:
    """Return the checkpoint folders of a run, oldest first."""
    folder = run / "checkpoints"
    return sorted(path for path in folder.iterdir() if is_number(path.name)) if folder.is_dir() else []


def remove_checkpoints(run: Path) -> None:
    """Remove all checkpoints of a run, and record it: a resume would otherwise train from the first iteration."""
    folder = run / "checkpoints"
    refuse_links([run, folder])
    if folder.is_dir():
        (folder / REMOVED).touch()
        for path in checkpoints(run):
            shutil.rmtree(path, ignore_errors=True)


def newest_checkpoint(run: Path) -> dict[str, Any] | None:
    """Return the newest checkpoint that is complete, with a warning if newer ones are damaged; None if there is none.

    Raises:
        FilesError: There are checkpoints, and all are damaged; or they were removed on purpose.
    """
    faults: list[str] = []
    for path in reversed(checkpoints(run)):
        try:
            kept = load_tree(path, Checkpoint)
        except FilesError as error:
            if number_of(error.__cause__) in OF_THE_PROCESS or isinstance(error.__cause__, MemoryError):
                raise  # nothing is known about the checkpoint
            refuse_checkpoint(path, MOST_BYTES)
            faults.append(f"{' '.join(str(error).splitlines()).rstrip('.')}.")
            continue
        for fault in faults:
            warn(f"{fault} The checkpoint before it is used.")
        return kept
    if faults:
        which = f"All {len(faults)} checkpoints in {run} are" if len(faults) > 1 else f"The only checkpoint in {run} is"
        raise FilesError(f"{faults[0]}\n{which} damaged. Nothing was changed. Restore checkpoints/ from a copy, or "
                         "start a new run.")
    if (run / "checkpoints" / REMOVED).exists():
        raise FilesError(f"The checkpoints of {run} were removed when a later round of its population had finished. "
                         "It can be evaluated, but not resumed. Resume a run of the newest round.")
    return None


def find_checkpoint(run: Run) -> dict[str, Any] | None:
    """Return the newest complete checkpoint of a run; None if it was stopped before its first one.

    Args:
        run: The run, with the configuration that it is to continue with.

    Raises:
        UsageError: The checkpoint does not fit the configuration.
        FilesError: All checkpoints are damaged, or were removed.
    """
    if run.cfg.num_seeds > 1:
        raise UsageError(f"num_seeds={run.cfg.num_seeds} was given, but a resume continues with the seeds that the run "
                         "was started with. Leave --num-seeds out.")
    if (kept := newest_checkpoint(run.folder)) is None:
        return None
    before, now = kept.get("processes", run.processes), world_from_environment().size
    cfg, movable = continue_schedule(run.cfg, kept), {"iteration_shift", *(SIZES if before != now else ())}
    if refused := refused_changes(cfg, {name: x for name, x in kept["fixed"].items() if name not in movable}):
        raise UsageError("\n".join(refused))
    if before != now and kept["state"]["iteration"] < cfg.num_iterations:
        warn(f"{run.folder} was trained with {before} process{'es' * (before > 1)} and is resumed with {now}. Weights, "
             "optimizer, statistics and counts continue, and the environments begin new episodes. The result will "
             "differ from an uninterrupted run.")
    _check_cpu(kept.get("cpu", ""), cpu_model(), run)
    for name, version in versions().items():
        if kept["versions"].get(name, version) != version:
            warn(f"The checkpoint was written with {name} {kept['versions'][name]}; this is {name} {version}. The "
                 "weights may differ from those of an uninterrupted run.")
    return kept


def read_summary(run: Path) -> SummaryFile:
    """Read the summary.json of a finished run; FilesError, which says how to go on, if it is damaged."""
    try:
        return read_json(run / "summary.json", SummaryFile)
    except FilesError as error:
        advice = (f"Continue from the newest checkpoint with `proximo resume {pasted(run)}`." if checkpoints(run) else
                  "The checkpoints were removed: the run can be evaluated, but not trained longer. Start a new run.")
        raise FilesError(f"{error}\nNothing was changed. {advice}") from error


def _check_cpu(before: str, now: str, run: Run) -> None:
    """Warn if a checkpoint was written on another type of CPU, or refuse it with --require-same-cpu."""
    if before in ("", now):
        return
    message = f"The checkpoint was written on the CPU {before!r}; this is {now!r}."
    if run.cfg.require_same_cpu:
        raise UsageError(f"{message} Resume {run.folder} on a machine of the first type, or with "
                         "--no-require-same-cpu.")
    warn(f"{message} The weights may differ in the last bits from those of an uninterrupted run.")


def _without_arrays(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        return {key: _without_arrays(x, f"{path}/{key}", arrays) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_arrays(x, f"{path}/{i}", arrays) for i, x in enumerate(value)]
    if isinstance(value, np.ndarray):
        arrays[path] = value.copy(order="C")
        return {ARRAY: path}
    return value.item() if isinstance(value, np.generic) else value


def _with_arrays(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, dict):
        return arrays[value[ARRAY]] if ARRAY in value else {key: _with_arrays(x, arrays) for key, x in value.items()}
    return [_with_arrays(x, arrays) for x in value] if isinstance(value, list) else value


def _sync(path: Path) -> None:
    if os.name == "nt":  # cannot open folders, nor flush files that are opened for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
