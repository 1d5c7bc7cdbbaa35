"""The inputs and outputs of an exported file: names, shapes and dtypes. Every first axis is the number of rows."""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import PureWindowsPath
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.masks import mask_parts
from proximo.envs.arrays.moments import Moments
from proximo.envs.arrays.obs_layout import leaves, without_mask
from proximo.envs.arrays.spaces import read_space
from proximo.envs.custom.env_file import MAKE_ENVS, names_function
from proximo.envs.custom.imports import split_file
from proximo.envs.gym_source import preprocessing
from proximo.errors import UsageError
from proximo.protocols import Spec

Space = spaces.Space[Any]
READABLE = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Trained(Protocol):
    """What is exported: a proximo.models.model.Model."""

    spec: Spec
    cfg: Config
    variant: str
    moments: Moments | None
    custom_parts: Mapping[str, str]

    @property
    def module(self) -> Any: ...

    def reset(self, seed: int = 0) -> None: ...

    def act(self, raw_obs: Any, first: Any = None, mask: Any = None, deterministic: bool = False) -> Any: ...


def obs_changes(model: Trained) -> dict[str, Any]:
    """Return what changes observations before the network: settings, or a custom make_envs instead of them."""
    script = model.cfg.env_file
    in_file = f"{MAKE_ENVS} of {PureWindowsPath(split_file(script)[0]).name}" if names_function(script) else None
    name = model.custom_parts.get("make_envs", in_file)
    return preprocessing(model.cfg) if name is None else {"make_envs": name}


class Port(NamedTuple):
    """One input or output."""

    name: str
    shape: tuple[int, ...]  # of one row
    dtype: np.dtype[Any]

    @property
    def text(self) -> str:
        """Name, shape and dtype, for people."""
        return f"{self.name} {('N', *self.shape)} {self.dtype}".replace("'", "").replace("(N,)", "(N)")


def part_name(root: str, path: tuple[Any, ...]) -> str:
    """Return the name of one array: "obs", or "obs.camera.0" inside a Dict or Tuple."""
    return ".".join([root, *map(str, path)])


def obs_ports(spec: Spec, cfg: Config) -> list[Port]:
    """Return the inputs that are observations as the environment returns them, without what the policy does not see.

    Raises:
        UsageError: A part is no array of numbers, or two parts have the same name.
    """
    if spec.observation_space is None:
        return [Port("obs", spec.obs_shape, np.dtype(spec.obs_dtype))]
    read_space(spec.observation_space, cfg.env_id)
    found = []
    for path, leaf in leaves(without_mask(spec.observation_space)):
        if not isinstance(leaf, READABLE):
            raise UsageError(f"{part_name('obs', path)} of {cfg.env_id} is a {type(leaf).__name__}, which is no array "
                             "of numbers and cannot be an input of a file. Export supports Box, Discrete, "
                             "MultiDiscrete and MultiBinary, and Dict and Tuple of these.")
        if not path or not cfg.critic_obs or path[0] != cfg.critic_obs:
            found.append(array_port("obs", path, leaf))
    return check_names(found)


def action_ports(space: Space) -> list[Port]:
    """Return the outputs that are actions as the environment takes them; UsageError if two have the same name."""
    return check_names([array_port("action", path, leaf) for path, leaf in leaves(space)])


def array_port(root: str, path: tuple[Any, ...], leaf: Space) -> Port:
    """Return the port of an array of a space."""
    assert leaf.shape is not None
    return Port(part_name(root, path), leaf.shape, np.dtype(leaf.dtype))


def check_names(ports: list[Port]) -> list[Port]:
    """Return the ports; UsageError if two of them have the same name."""
    if twice := [name for name, count in Counter(port.name for port in ports).items() if count > 1]:
        raise UsageError(f"Two parts have the name {', '.join(twice)}: a key of the Dict contains a dot. Rename it.")
    return ports


def mask_port(space: Space) -> Port | None:
    """Return the input for action masks, one entry per choice; None where actions cannot be masked."""
    parts = mask_parts(space)
    return None if parts is None else Port("mask", (int(parts.sum()),), np.dtype(np.bool_))


def extra_port(space: Space, also: str) -> Port:
    """Return the additional output "logits" or "mean".

    Raises:
        UsageError: The actions have none.
    """
    kinds = [leaf for _, leaf in leaves(space) if isinstance(leaf, spaces.Box) == (also == "mean")]
    if not kinds:
        has, other = ("continuous", "mean") if also == "logits" else ("discrete", "logits")
        raise UsageError(f"--with {also} is not available: the actions {space} are {has}. Use --with {other}, or leave "
                         "--with out.")
    width = sum(_outputs(leaf) for leaf in kinds)
    return Port(also, (width,), np.dtype(np.float32))


def _outputs(leaf: Space) -> int:
    parts = mask_parts(leaf)
    assert leaf.shape is not None
    if parts is not None:
        return int(parts.sum())
    return math.prod(leaf.shape) * (2 if isinstance(leaf, spaces.MultiBinary) else 1)
