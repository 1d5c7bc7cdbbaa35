"""Checkpoints: safetensors, JSON and SHA-256 in a folder that appears whole or not at all. Nothing is unpickled."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from proximo.errors import FilesError, warn

ARRAY = "__array__"


def save_tree(folder: Path, tree: dict) -> None:
    """Write a nested dict (string keys; arrays, numbers, strings, booleans, None, lists) as a folder: written beside,
    synced, then renamed over an older one. Raises FilesError where the disk does not take it; older folders stay."""
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        for left in folder.parent.glob(f".{folder.name}.*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        beside.mkdir(parents=True)
        arrays: dict[str, np.ndarray] = {}
        text = json.dumps(_without_arrays(tree, "", arrays), indent=1)
        save_file(arrays, beside / "tensors.safetensors")
        (beside / "tree.json").write_text(text)
        sums = {name: _sha256(beside / name) for name in ("tensors.safetensors", "tree.json")}
        (beside / "manifest.json").write_text(json.dumps({"format": 1, "sha256": sums}, indent=1))
        for path in [*beside.iterdir(), beside]:
            _sync(path)
        if folder.exists():
            old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
            folder.rename(old)
            beside.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        else:
            beside.rename(folder)
        _sync(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise FilesError(f"{folder} could not be written ({error}); earlier checkpoints are intact, "
                         "make room and continue with: proximo resume RUN") from error


def load_tree(folder: Path) -> dict:
    """The nested dict that save_tree wrote; FilesError where a file is missing or its SHA-256 differs."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        for name, expected in manifest["sha256"].items():
            if _sha256(folder / name) != expected:
                raise FilesError(f"{folder / name} is damaged: its SHA-256 differs from the manifest's")
        arrays = load_file(folder / "tensors.safetensors")
        return _with_arrays(json.loads((folder / "tree.json").read_text()), arrays)
    except FilesError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        raise FilesError(f"{folder} cannot be read ({error})") from error


def save_checkpoint(run: Path, iteration: int, tree: dict, keep: int) -> None:
    """Add checkpoints/ITERATION to a run and drop all but the `keep` newest (0: drop none)."""
    folder = run / "checkpoints"
    save_tree(folder / f"{iteration:08d}", tree)
    for old in folder.glob(".*"):
        shutil.rmtree(old, ignore_errors=True)
    if keep:
        for old in checkpoints(run)[:-keep]:
            shutil.rmtree(old, ignore_errors=True)


def checkpoints(run: Path) -> list[Path]:
    """The checkpoint folders of a run, oldest first."""
    folder = run / "checkpoints"
    return sorted(path for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []


def newest_checkpoint(run: Path) -> dict | None:
    """The newest checkpoint that is whole, saying so where newer ones are damaged; None where none was ever written.

    FilesError where there are some and none is whole."""
    found = checkpoints(run)
    for path in reversed(found):
        try:
            return load_tree(path)
        except FilesError as error:
            warn(f"WARNING: {error}; falling back to the checkpoint before it")
    if found:
        raise FilesError(f"none of the {len(found)} checkpoints in {run} is whole; nothing was changed")
    return None


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


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
