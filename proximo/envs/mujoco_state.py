"""The state of an environment of Gymnasium, with that of the simulation if it is one of MuJoCo."""

import sys
from typing import Any

import gymnasium
import numpy as np

from proximo.envs.env_state import get_env_state, set_env_state

EXCLUDED = ("model", "data", "mujoco_renderer")  # MuJoCo's own functions save these, or they only draw
DERIVED = ("xpos", "xquat", "xmat", "xipos", "ximat", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "subtree_com",
           "cinert", "cvel", "cacc", "cfrc_int", "cfrc_ext", "qfrc_actuator", "actuator_force", "sensordata")


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
    return {"env": attributes, "physics": physics, "derived": derived}


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
    physics = np.array(state["physics"], np.float64)
    mujoco.mj_setState(bare.model, bare.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(bare.model, bare.data)  # changes the warm start of the solver: the state is set a second time
    mujoco.mj_setState(bare.model, bare.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    for name, value in state["derived"].items():
        getattr(bare.data, name)[...] = value
