"""MuJoCo's robots in Gymnasium (v4, v5) and the dm_control suite, for continuous control (details 23-31)."""

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gymnasium.envs.registration import registry

from proximo.config import Config
from proximo.envs.envpool import make_envpool
from proximo.envs.gym import make_gym_rows
from proximo.envs.gym_ids import gym_id
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.gym_source import EnvSource, changed_fields, env_source
from proximo.envs.render import gl_advice, use_egl_when_headless
from proximo.envs.workers.choice import make_rows_or_workers
from proximo.errors import EnvError, UsageError, warn, warn_once, with_place
from proximo.protocols import VecEnv


def make_mujoco(cfg: Config, seeds: Sequence[int]) -> VecEnv:
    """Make environments of HalfCheetah-v4, Ant-v5, dm_control/cartpole-balance-v0 or any Gymnasium id with Box actions.

    Observations are flat float32. Actions are clipped to the bounds of the action space.

    Args:
        cfg: The fields of its group "environment" are read, without those of normalisation.
        seeds: One seed per environment.

    Returns:
        The environments, without normalisation.

    Raises:
        UsageError: The id is unknown, a package is missing, or there is no policy for a space.
        EnvError: Making an environment fails.
    """
    use_egl_when_headless()
    if cfg.engine == "envpool":
        return make_envpool(cfg, seeds)
    if cfg.env_id == "Pusher-v4" and not cfg.env_file:
        return make_pusher(cfg, seeds)
    source = env_source(cfg, mujoco_id)
    return make_rows_or_workers(partial(make_mujoco_rows, source, cfg.autoreset), cfg, seeds, source.name)


def make_pusher(cfg: Config, seeds: Sequence[int]) -> VecEnv:
    """Make EnvPool's Pusher-v4. Gymnasium's needs mujoco<3; EnvPool includes a MuJoCo of its own.

    Raises:
        UsageError: engine=gym was given, or EnvPool is not installed.
    """
    if cfg.engine == "gym" or importlib.util.find_spec("envpool") is None:
        raise UsageError("Gymnasium's Pusher-v4 cannot run on mujoco 3. Use Pusher-v5, or EnvPool's Pusher-v4 "
                         '(pip install "proximo[envpool]", --engine envpool).')
    if changed := changed_fields(cfg):
        raise UsageError(f"Pusher-v4 runs on EnvPool, which does not take {' and '.join(changed)}. Use Pusher-v5.")
    warn("Pusher-v4 runs on EnvPool, because Gymnasium's needs mujoco<3.")
    return make_envpool(replace(cfg, engine="envpool"), seeds)


def mujoco_id(env_id: str) -> str:
    """Return the id that Gymnasium makes; for dm_control, with the module that registers it.

    Raises:
        UsageError: The id is unknown, or a package is missing.
    """
    if not env_id.startswith("dm_control/"):
        return gym_id(env_id)
    missing = [name for name in ("dm_control", "shimmy") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f'{env_id} needs {" and ".join(missing)}: pip install "proximo[dm_control]"')
    return gym_id(f"shimmy:{env_id}", typed=env_id)


def make_mujoco_rows(source: EnvSource, autoreset: str, seeds: Sequence[int], first_index: int = 0) -> GymEnvs:
    """Make environments in this process; see GymEnvs. The state of MuJoCo can be saved, that of dm_control cannot."""
    pass_on_warnings(source.name)
    return make_gym_rows(source, autoreset, seeds, first_index)


def pass_on_warnings(name: str) -> None:
    """Let each warning of MuJoCo about Gymnasium's environments be one message of this program.

    MuJoCo itself prints it for every environment, and appends it to MUJOCO_LOG.TXT in the current folder. The time of
    the simulation, with which it ends, is left out: each time would be a message of its own.
    """
    entry = str(getattr(registry.get(name), "entry_point", ""))
    if not entry.startswith("gymnasium.envs.mujoco.") or not importlib.util.find_spec("mujoco"):
        return
    try:
        mujoco = importlib.import_module("mujoco")
    except Exception as error:
        raise EnvError(f"{name} could not be made: {with_place(error)}{gl_advice(error)}") from error
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(lambda text: warn_once(f"MuJoCo: {text.partition(' Time = ')[0].strip()}"))
