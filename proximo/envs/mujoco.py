"""MuJoCo's robots of Gymnasium (v4, v5) and the dm_control suite, for continuous control (details 23-31)."""

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from proximo.config import Config
from proximo.envs.env_state import StateFunctions, get_env_state, set_env_state
from proximo.envs.envpool import make_envpool
from proximo.envs.gym_ids import gym_id, make_one
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.headless import use_egl_when_headless
from proximo.envs.workers import make_rows_or_workers
from proximo.errors import UsageError, notify
from proximo.protocols import VecEnv

APART = ("model", "data", "mujoco_renderer")  # kept by MuJoCo's own functions, or only drawing
DERIVED = ("xpos", "xquat", "xmat", "xipos", "ximat", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "subtree_com",
           "cinert", "cvel", "cacc", "cfrc_int", "cfrc_ext", "qfrc_actuator", "actuator_force", "sensordata")


def make_mujoco(cfg: Config, seeds: Sequence[int]) -> VecEnv:
    """One environment of `cfg.env_id` a seed: HalfCheetah-v4, Ant-v5, dm_control/cartpole-balance-v0, ...

    Observations are flat float32, actions are clipped to the bounds; both normalisations are as `cfg` says. Any other
    Gymnasium id with Box actions works too. Raises UsageError for unknown ids, engines and missing packages.
    """
    use_egl_when_headless()
    if cfg.engine not in ("auto", "gym", "envpool"):
        raise UsageError(f"engine={cfg.engine} has no MuJoCo; use gym or envpool")
    if cfg.engine == "envpool":
        return make_envpool(cfg, seeds)
    if cfg.env_id == "Pusher-v4":
        return make_pusher(cfg, seeds)
    name = mujoco_id(cfg.env_id)
    return make_rows_or_workers(partial(make_mujoco_rows, name, cfg.autoreset), cfg, seeds, name)


def make_pusher(cfg: Config, seeds: Sequence[int]) -> VecEnv:
    """Gymnasium's Pusher-v4 needs mujoco<3; EnvPool brings a MuJoCo of its own that still runs it."""
    if cfg.engine == "gym" or importlib.util.find_spec("envpool") is None:
        raise UsageError("Pusher-v4 cannot run on mujoco 3; use Pusher-v5, or EnvPool's Pusher-v4 "
                         '(pip install "proximo[envpool]", --engine envpool)')
    notify("Pusher-v4 runs on EnvPool, since Gymnasium's needs mujoco<3")
    return make_envpool(replace(cfg, engine="envpool"), seeds)


def mujoco_id(env_id: str) -> str:
    """The id that runs. Raises UsageError where a package is missing."""
    if not env_id.startswith("dm_control/"):
        return gym_id(env_id)
    missing = [name for name in ("dm_control", "shimmy") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f'{env_id} needs {" and ".join(missing)}: pip install "proximo[dm_control]"')
    return gym_id(f"shimmy:{env_id}", typed=env_id)


def make_mujoco_rows(name: str, autoreset: str, seeds: Sequence[int], first_index: int = 0) -> GymEnvs:
    """Without normalisation; MuJoCo's state is kept exactly, dm_control's is not."""
    return GymEnvs(partial(make_one, name), seeds, name, autoreset, first_index,
                   StateFunctions(get=get_mujoco_state, set=set_mujoco_state))


def get_mujoco_state(env: gymnasium.Env) -> dict | None:
    """The simulation, and all that the environment and its wrappers hold beside it; None where it cannot be kept."""
    from gymnasium.envs.mujoco import MujocoEnv

    bare = env.unwrapped
    if not isinstance(bare, MujocoEnv):
        return get_env_state(env)
    import mujoco

    kept = get_env_state(env, APART)
    physics = np.empty(mujoco.mj_stateSize(bare.model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(bare.model, bare.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    derived = {name: np.array(getattr(bare.data, name)) for name in DERIVED}
    return None if kept is None else {"env": kept, "physics": physics, "derived": derived}


def set_mujoco_state(env: gymnasium.Env, state: dict) -> None:
    """The inverse. Derived arrays lag half a step behind the state, and rewards read them so: they are kept too."""
    bare: Any = env.unwrapped
    if "physics" not in state:
        set_env_state(env, state)
        return
    import mujoco

    set_env_state(env, state["env"], APART)
    physics = np.array(state["physics"], np.float64)
    mujoco.mj_setState(bare.model, bare.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    mujoco.mj_forward(bare.model, bare.data)  # moves the warm start of the solver: the state is set once more
    mujoco.mj_setState(bare.model, bare.data, physics, mujoco.mjtState.mjSTATE_INTEGRATION)
    for name, value in state["derived"].items():
        getattr(bare.data, name)[...] = value
