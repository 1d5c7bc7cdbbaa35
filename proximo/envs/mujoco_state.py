"""The state of an environment of Gymnasium, with that of the simulation if it is one of MuJoCo."""

import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import gymnasium
import numpy as np

from proximo.envs.env_state import get_env_state, load_sharing, set_env_state
from proximo.errors import warn_once

EXCLUDED = ("model", "data", "mujoco_renderer")  # MuJoCo's own functions save these, or they only draw
DERIVED = ("xpos", "xquat", "xmat", "xipos", "ximat", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "subtree_com",
           "cinert", "cvel", "cacc", "cfrc_int", "cfrc_ext", "qfrc_actuator", "actuator_force", "sensordata")

CHANGED = ("actuator_", "body_", "cam_", "dof_", "eq_", "geom_", "hfield_", "jnt_", "light_", "mat_", "pair_", "qpos",
           "site_", "tendon_")  # by programs; no meshes and textures


def read_state(env: gymnasium.Env) -> dict[str, Any]:
    """Return the simulation and what the environment and its wrappers hold; OpaqueError if it cannot be saved."""
    bare: Any = env.unwrapped
    package = sys.modules.get("gymnasium.envs.mujoco")  # imported where an environment is one of its classes
    if package is None or not isinstance(bare, package.MujocoEnv):
        return get_env_state(env)
    import mujoco

    attributes = get_env_state(env, EXCLUDED)
    physics = np.empty(mujoco.mj_stateSize(bare.model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(bare.model, bare.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    derived = {name: np.array(getattr(bare.data, name)) for name in DERIVED}
    return {"env": attributes, "physics": physics, "derived": derived, "model": read_model(bare.model)}


def read_model(model: Any) -> dict[str, Any]:
    """Return what a program may change of a MjModel (masses, friction, gravity, ...), as one array: floats and options.

    Two hundred arrays for each environment would take most of the time and space of a checkpoint.
    """
    values = changeable()[1](model)
    sizes = np.array([np.size(value) for value in values])
    layout = zlib.crc32(sizes.tobytes(), zlib.crc32(repr(changeable()[0]).encode()))
    return {"layout": layout, "numbers": np.concatenate([np.ravel(value) for value in values], dtype=np.float64)}


def write_model(model: Any, state: dict[str, Any]) -> None:
    """Set what read_model returned; a warning says if the model has other arrays."""
    now, numbers = read_model(model), np.asarray(state["numbers"])
    if now["layout"] != state["layout"]:
        warn_once("The checkpoint has the masses, friction and options of another model or version of MuJoCo. Those of "
                  "the environment, as it is made, are used.")
    elif now["numbers"].tobytes() != numbers.tobytes():
        begin = 0
        for name in changeable()[0]:
            part, _, attribute = name.rpartition(".")
            owner = getattr(model, part) if part else model
            value = getattr(owner, attribute)
            new, begin = numbers[begin:begin + np.size(value)], begin + np.size(value)
            if isinstance(value, np.ndarray):
                value[...] = new.reshape(value.shape)
            else:
                setattr(owner, attribute, type(value)(new[0]))


@cache
def changeable() -> tuple[list[str], Callable[[Any], tuple[Any, ...]]]:
    """Return the names of the float arrays in CHANGED and of the options of a MjModel, and what reads their values."""
    import mujoco

    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    names = [name for name in dir(model) if name.startswith(CHANGED)
             and isinstance(value := getattr(model, name), np.ndarray) and value.dtype.kind == "f"]
    names += [f"{part}.{name}" for part in ("opt", "stat") for name in dir(getattr(model, part))
              if isinstance(getattr(getattr(model, part), name), (int, float, np.ndarray))]
    return names, attrgetter(*names)


def write_states(envs: Sequence[gymnasium.Env], states: Mapping[str, Any]) -> None:
    """Make environments continue from what read_state returned for each, by its number."""
    load_sharing(envs, lambda i: write_state(envs[i], states[str(i)]))


def write_state(env: gymnasium.Env, state: dict[str, Any]) -> None:
    """Continue from what read_state returned.

    Derived arrays are half a step behind the state, and rewards are computed from them. Therefore they are saved too.
    """
    bare: Any = env.unwrapped
    if "physics" not in state:
        set_env_state(env, state)
        return
    import mujoco

    set_env_state(env, state["env"], EXCLUDED)
    if "model" in state:  # checkpoints of version 0.1 have none
        write_model(bare.model, state["model"])
    physics = np.array(state["physics"], np.float64)
    mujoco.mj_setState(bare.model, bare.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(bare.model, bare.data)  # changes the warm start of the solver: the state is set a second time
    mujoco.mj_setState(bare.model, bare.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    for name, value in state["derived"].items():
        getattr(bare.data, name)[...] = value
