"""The simulations of MuJoCo that an environment holds, and their state. MuJoCo is not imported to look for them."""

import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from proximo.errors import warn_once

DERIVED = ("xpos", "xquat", "xmat", "xipos", "ximat", "xanchor", "xaxis", "geom_xpos", "geom_xmat", "site_xpos",
           "site_xmat", "cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "flexvert_xpos", "subtree_com",
           "subtree_linvel", "subtree_angmom", "cdof", "cdof_dot", "cinert", "crb", "cvel", "cacc", "cfrc_int",
           "cfrc_ext", "M", "qM", "qLD", "qLDiagInv", "qacc", "qacc_smooth", "qfrc_actuator", "qfrc_bias",
           "qfrc_constraint", "qfrc_gravcomp", "qfrc_passive", "qfrc_smooth", "act_dot", "actuator_force",
           "actuator_length", "actuator_moment", "actuator_velocity", "ten_length", "ten_velocity", "energy",
           "sensordata")  # of MjData

CHANGED = ("actuator_", "body_", "cam_", "dof_", "eq_", "geom_", "hfield_", "jnt_", "light_", "mat_", "pair_", "qpos",
           "site_", "tendon_")  # of MjModel, by programs; no meshes and textures
DRAWS = ("pygame.", "gymnasium.envs.mujoco.mujoco_rendering.", "mujoco.render", "mujoco.viewer.", "mujoco._render.",
         "mujoco._simulate.", "mujoco._structs.Mjv", "mujoco._enums.")  # the last ones are constants
CONTAINERS = (list, tuple, dict)

Names = tuple[str, ...]


class Kept(NamedTuple):
    """An object whose state is saved once, wherever it is held: there, codes have its number."""

    number: int
    value: Any


def only_draws(name: str, value: Any) -> bool:
    """Return whether an attribute only draws, or is a constant of MuJoCo."""
    kind = type(value)
    return name in ("render_mode", "mujoco_renderer") or f"{kind.__module__}.{kind.__qualname__}".startswith(DRAWS)


def find_objects(layers: Sequence[Any]) -> list[Any]:
    """Return every MjModel, then every MjData, then every object of Python that an environment with simulations holds.

    Searched are the attributes of its layers and of the objects in them, and lists, tuples and dicts there; those may
    hold models and data. An environment without a MjData has no objects.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is None:
        return []
    found: dict[int, Any] = {}
    known, owners = {id(layer) for layer in layers}, [*layers]
    for owner in owners:
        inside = type(owner) in CONTAINERS
        for name, value in _contents(owner):
            simulation = isinstance(value, mujoco.MjData) and not _has_more(value)
            if isinstance(value, mujoco.MjModel) or simulation:
                for one in (value, value.model) if simulation else (value,):  # the model of a copy is a second copy
                    found.pop(id(one), None)  # the order is that of a list where an attribute holds one of its items
                    found[id(one)] = one
            elif id(value) not in known and (type(value) in CONTAINERS or (
                    not inside and _is_plain(value) and not only_draws(name, value))):
                known.add(id(value))
                owners.append(value)
    models = [one for one in found.values() if isinstance(one, mujoco.MjModel)]
    data = [one for one in found.values() if isinstance(one, mujoco.MjData)]
    return [*models, *data, *(one for one in owners[len(layers):] if type(one) not in CONTAINERS)] if data else []


def _contents(owner: Any) -> Iterable[tuple[str, Any]]:
    if type(owner) in CONTAINERS:
        return (("", value) for value in (owner.values() if type(owner) is dict else owner))
    return vars(owner).items()


def _is_plain(value: Any) -> bool:
    """Return whether a value is an object whose class and bases are written in Python: its state is in attributes."""
    return hasattr(value, "__dict__") and type(value).__new__ is object.__new__ and not isinstance(
        value, (gymnasium.Space, EnvSpec))


def _has_more(data: Any) -> bool:
    """Return whether a MjData has state that MuJoCo does not save, which is of bodies that sleep, or no known model."""
    import mujoco

    sleep = getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0)
    return not hasattr(data, "model") or bool(data.model.opt.enableflags & int(sleep))


def read_simulation(one: Any) -> dict[str, Any] | None:
    """Return the state of a MjModel or a MjData; None of another object.

    Derived arrays are half a step behind the state, and rewards are computed from them. Therefore they are saved too.
    """
    import mujoco

    if isinstance(one, mujoco.MjModel):
        return _read(one, *_changeable())
    if not isinstance(one, mujoco.MjData):
        return None
    physics = np.empty(mujoco.mj_stateSize(one.model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(one.model, one, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    return {"physics": physics, "derived": _read(one, *_derived())}


def write_simulation(one: Any, state: Mapping[str, Any]) -> None:
    """Set what read_simulation returned; a warning says if a model has other arrays."""
    import mujoco

    if isinstance(one, mujoco.MjModel):
        if "numbers" in state and not _write(one, state, *_changeable()):
            warn_once("The saved state is of another model or version of MuJoCo: names, sizes or whole numbers differ. "
                      "Masses, friction and options stay as the environment has made them.")
        return
    physics = np.array(state["physics"], np.float64)
    mujoco.mj_setState(one.model, one, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(one.model, one)  # changes the warm start of the solver: the state is set a second time
    mujoco.mj_setState(one.model, one, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    if "layout" in state["derived"]:
        _write(one, state["derived"], *_derived())
    else:  # version 0.1
        for name, value in state["derived"].items():
            getattr(one, name)[...] = value


def _read(one: Any, names: Names, constant: Names) -> dict[str, Any]:
    """Return arrays and numbers as one array, with sums that other names, sizes and constant arrays do not have.

    Two hundred arrays for each environment would take most of the time and space of a checkpoint.
    """
    values = attrgetter(*names)(one)
    sizes = np.array([np.size(value) for value in values])
    layout = zlib.crc32(sizes.tobytes(), zlib.crc32(repr([*names]).encode()))
    kept = {"layout": layout, "numbers": np.concatenate([np.ravel(value) for value in values], dtype=np.float64)}
    return kept | ({"constants": zlib.crc32(b"".join(map(bytes, attrgetter(*constant)(one))))} if constant else {})


def _write(one: Any, state: Mapping[str, Any], names: Names, constant: Names) -> bool:
    """Set what _read returned. Return whether this object has the same arrays."""
    now, numbers = _read(one, names, constant), np.asarray(state["numbers"])
    if any(state.get(name, now[name]) != now[name] for name in now if name != "numbers"):  # version 0.1: no constants
        return False
    if now["numbers"].tobytes() == numbers.tobytes():
        return True
    begin = 0
    for name in names:
        part, _, attribute = name.rpartition(".")
        owner = getattr(one, part) if part else one
        value = getattr(owner, attribute)
        new, begin = numbers[begin:begin + np.size(value)], begin + np.size(value)
        if isinstance(value, np.ndarray):
            value[...] = new.reshape(value.shape)
        else:
            setattr(owner, attribute, type(value)(new[0]))
    return True


@cache
def _changeable() -> tuple[Names, Names]:
    """Return the names of the float arrays in CHANGED and of the options of a MjModel, and those of what stays."""
    import mujoco

    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    arrays = {name: value.dtype.kind == "f" for name in dir(model) if name.startswith(CHANGED)
              and isinstance(value := getattr(model, name), np.ndarray)}
    options = [f"{part}.{name}" for part in ("opt", "stat") for name in dir(getattr(model, part))
               if isinstance(getattr(getattr(model, part), name), (int, float, np.ndarray))]
    return (*(name for name in arrays if arrays[name]), *options), ("names", *(
        name for name in arrays if not arrays[name]))


@cache
def _derived() -> tuple[Names, Names]:
    """Return the names in DERIVED that this version of MuJoCo has, and no other ones."""
    import mujoco

    return tuple(name for name in DERIVED if hasattr(mujoco.MjData, name)), ()


def find_part(value: np.ndarray, seen: Mapping[int, Any]) -> dict[str, Any] | None:
    """Return where an array is that shows a part of a simulation, such as data.qpos[:3]; None of any other array.

    Args:
        value: The array.
        seen: See encode_value.
    """
    root = value
    while isinstance(root.base, np.ndarray):
        root = root.base
    if type(root.base).__name__ != "PyCapsule":
        return None
    simulations = [one for one in seen.values() if isinstance(one, Kept) and not hasattr(one.value, "__dict__")]
    for number, one in simulations:
        for name in dir(one):
            whole = getattr(one, name, None)
            if isinstance(whole, np.ndarray) and np.may_share_memory(value, whole):
                offset = value.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
                return {"object": number, "name": name, "dtype": value.dtype.str, "shape": [*value.shape],
                        "offset": offset, "strides": [*value.strides]}
    return None


def make_part(part: Mapping[str, Any], objects: Sequence[Any]) -> np.ndarray:
    """Return the array that find_part described, for the objects of another environment."""
    whole = getattr(objects[part["object"]], part["name"])
    return np.ndarray(tuple(part["shape"]), part["dtype"], whole, part["offset"], tuple(part["strides"]))
