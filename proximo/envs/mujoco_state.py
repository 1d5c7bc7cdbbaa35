"""The state of an environment of Gymnasium, with that of the simulation if it is one of MuJoCo."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from proximo.envs.env_state import get_env_state, load_sharing, set_env_state

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


def read_model(model: Any) -> dict[str, dict[str, Any]]:
    """Return what a program may change of a MjModel (masses, friction, gravity, ...): arrays of floats, and options."""
    arrays = {name: np.array(value) for name in dir(model) if name.startswith(CHANGED)
              and isinstance(value := getattr(model, name), np.ndarray) and value.dtype.kind == "f"}
    return {"arrays": arrays} | {part: {name: np.array(value)[()] for name in dir(getattr(model, part))
                                        if isinstance(value := getattr(getattr(model, part), name),
                                                      (int, float, np.ndarray))} for part in ("opt", "stat")}


def write_model(model: Any, state: dict[str, dict[str, Any]]) -> None:
    """Set what read_model returned."""
    for name, value in state["arrays"].items():
        getattr(model, name)[...] = value
    for part, values in ((getattr(model, name), state[name]) for name in ("opt", "stat")):
        for name, value in values.items():
            before = getattr(part, name)
            if isinstance(before, np.ndarray):
                before[...] = value
            else:
                setattr(part, name, type(before)(value))


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
