"""Write a model to a folder. A program that names the folder replaces nothing but an earlier model."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.envs.arrays.moments import IN_MODELS, Moments, Statistics
from proximo.errors import UsageError
from proximo.models.spaces import space_to_json
from proximo.protocols import Spec
from proximo.runs.folder.checkpoint import MANIFEST, TENSORS, TREE, save_tree

NO_PARTS: Mapping[str, str] = MappingProxyType({})  # of a run without custom parts


def replaceable(folder: Path) -> Path:
    """Return the real path of a folder that a model may be written to: a new or empty one, or that of a model alone.

    Raises:
        UsageError: Something else is there, or it is the folder that the process works in.
    """
    path = folder.resolve()
    held = {one.name for one in path.iterdir()} if path.is_dir() else set()
    files = {TENSORS, TREE, MANIFEST}
    if (path.exists() and not path.is_dir()) or (held and (held - files or MANIFEST not in held)):
        raise UsageError(f"{folder} exists and is not a folder of a model alone. Nothing was changed. Name another "
                         "folder.")
    if Path.cwd().is_relative_to(path):
        raise UsageError(f"{folder} is the working directory, which a model cannot replace. Name another folder.")
    return path


def save_model(folder: Path, variant: str, cfg: Config, spec: Spec, statistics: Statistics | None,
               weights: dict[str, np.ndarray], custom_parts: Mapping[str, str] = NO_PARTS) -> None:
    """Write a model as one folder: weights and normaliser in safetensors, everything else in JSON.

    Args:
        folder: The folder to write or to replace.
        variant: The name of the variant.
        cfg: The configuration of the run.
        spec: Shapes and action space of the run's environments.
        statistics: Those of normalisation; None where nothing is normalised.
        weights: The parameters of the network by name.
        custom_parts: The names of parts of the run that a program passed, by argument.

    Raises:
        FilesError: The folder cannot be written.
    """
    save_tree(folder, trained_tree(variant, cfg, spec, statistics, weights, custom_parts))


def trained_tree(variant: str, cfg: Config, spec: Spec, statistics: Statistics | None, weights: dict[str, np.ndarray],
                 custom_parts: Mapping[str, str] = NO_PARTS) -> dict[str, Any]:
    """Return the content of the folder that save_model writes from the same arguments."""
    moments = {"obs": statistics.obs if statistics is not None and cfg.norm_obs else None,
               "ret": statistics.ret if statistics is not None and cfg.norm_reward else None}
    return model_tree(variant, cfg, spec, moments, weights, custom_parts)


def model_tree(variant: str, cfg: Config, spec: Spec, moments: Mapping[str, Moments | None],
               weights: dict[str, np.ndarray], custom_parts: Mapping[str, str] = NO_PARTS) -> dict[str, Any]:
    """Return the content of a model folder; `moments` are those of "obs" and "ret", None for what is not normalised."""
    tree = {"variant": variant, "config": asdict(cfg), "obs_shape": list(spec.obs_shape),
            "obs_dtype": str(np.dtype(spec.obs_dtype)), "action_space": space_to_json(spec.action_space),
            "observation_space": None if spec.observation_space is None else space_to_json(spec.observation_space),
            "masked": spec.masked, "weights": weights, "own_parts": dict(custom_parts)}
    return tree | {f"{name}_moments": {field: np.asarray(getattr(each, field)) for field in IN_MODELS}
                   for name, each in moments.items() if each is not None}


def moments_of(tree: Mapping[str, Any]) -> dict[str, Moments]:
    """Return the statistics that the content of a model folder has."""
    return {name: Moments(*(tree[f"{name}_moments"][field] for field in IN_MODELS)) for name in ("obs", "ret")
            if f"{name}_moments" in tree}
