"""Brax: thousands of environments that JAX simulates as one batch, in place of Isaac Gym, which is discontinued."""

import importlib.util
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.envs.brax_pure import BraxPure, BraxState
from proximo.envs.headless import use_egl_when_headless
from proximo.envs.normalize import Statistics, apply_statistics, count_reset, count_step, start_statistics
from proximo.errors import EnvError, UsageError, nearest, notify
from proximo.protocols import Array, Play, Step
from proximo.variants import BatchedSim

BACKENDS = {  # for each task, the faster one of Brax's pipelines that simulates it well
    "ant": "spring", "halfcheetah": "spring", "hopper": "spring", "humanoid": "spring", "humanoidstandup": "spring",
    "walker2d": "spring", "inverted_pendulum": "generalized", "inverted_double_pendulum": "generalized",
    "pusher": "generalized", "reacher": "generalized", "swimmer": "generalized", "fast": "generalized",
}
ISAAC = {"Ant": "ant", "Humanoid": "humanoid", "HumanoidAMP": "humanoid", "Cartpole": "inverted_pendulum",
         "Anymal": "ant", "AnymalTerrain": "ant"}
ISAAC_ONLY = ("AllegroHand", "BallBalance", "FrankaCabinet", "FrankaCubeStack", "Ingenuity", "Quadcopter",
              "ShadowHand", "Trifinger")


def make_brax(cfg: BatchedSim, seeds: Sequence[int]) -> "BraxEnvs":
    """Make environments of a task of Brax, which normalise by themselves as the configuration says.

    Args:
        cfg: Its `env_id` is a task of Brax, or a task of Isaac Gym, which is replaced by the nearest one of Brax. Steps
            hold torch tensors or JAX arrays, as its `framework` says, on the device that JAX found. Nothing is copied.
        seeds: One seed per environment; the first one seeds the batch.

    Raises:
        UsageError: The task is unknown, or Brax is not installed.
    """
    task = brax_task(cfg.env_id)
    if importlib.util.find_spec("brax") is None:
        raise UsageError(f'{cfg.env_id} needs brax: pip install "proximo[brax]"')
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave torch its share of a GPU
    use_egl_when_headless()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from brax import envs

        env = envs.get_environment(task, backend=BACKENDS[task])
    return BraxEnvs(BraxPure(env, len(seeds), cfg.num_steps, cfg.reward_scaler), cfg, seeds[0])


def brax_task(env_id: str) -> str:
    """Return Brax's name of a task, with a message if another task takes its place.

    Raises:
        UsageError: Brax has no such task.
    """
    if env_id in BACKENDS:
        return env_id
    lower = {name.lower(): task for name, task in [*ISAAC.items(), *zip(BACKENDS, BACKENDS)]}
    task = lower.get(env_id.lower())
    if task is None:
        cause = "has no counterpart in Brax." if env_id in ISAAC_ONLY else \
            f"is unknown to Brax.{nearest(env_id, lower)}"
        raise UsageError(f"env_id={env_id} {cause} Use {', '.join(sorted(BACKENDS))}.")
    notify(f"{env_id} runs as Brax's {task} ({BACKENDS[task]} physics)")
    return task


class BraxEnvs:
    """BraxPure as a VecEnv: the same numbers, compiled step by step. Arrays are shared with torch through DLPack.

    Args:
        pure: The environments.
        cfg: Its `framework`, `env_id` and settings of normalisation are read.
        seed: Seed of the batch.
    """

    play: Play = "inside"
    keeps_state = True
    observation_space = None

    def __init__(self, pure: BraxPure, cfg: Config, seed: int) -> None:
        import jax

        self.pure, self.cfg = pure, cfg
        self.arrays: str = cfg.framework
        self.num_envs, self.obs_shape, self.obs_dtype = pure.num_envs, pure.obs_shape, pure.obs_dtype
        self.action_space, self.players, self.metric_names = pure.action_space, pure.players, pure.metric_names
        self.render_fps: float | None = 1 / pure.env.dt if hasattr(pure.env, "dt") else None
        self.key = self._to_device(jax.random.PRNGKey(seed))
        self._first_states, self._advance = jax.jit(pure.first_states), jax.jit(self._checked_advance)
        self._count, self._apply = jax.jit(self._count_step), jax.jit(self._apply_statistics)
        self._state: Any = None
        self._renderer: Any = None
        self._statistics: Any
        self.statistics = start_statistics(self.num_envs, self.obs_shape) if cfg.norm_obs or cfg.norm_reward else None

    def reset(self) -> Step:
        """Begin all environments again from the seed."""
        import jax
        from jax import numpy as jnp

        parts = [self._first_states(self.key, -1 - int(part)) for part in self.pure.parts()]
        state, step = self.pure.begin(self.key, jax.tree.map(lambda *part: jnp.concatenate(part), *parts))
        self._state = self._to_device(state)
        if self._statistics is not None:
            self._statistics = count_reset(self._statistics, step, self.cfg, jnp)
            step = self._apply(self._statistics, step)
        return self._to_arrays(step)

    def step(self, action: Array) -> Step:
        """See VecEnv.step. `action` is (N, A)."""
        time = int(self._state.time)
        if time % self.pure.renew_every == 0:
            bank = self._to_device(self._first_states(self._state.key, time // self.pure.renew_every))
            self._state = self._state._replace(bank=bank)
        self._state, step, finite = self._advance(self._state, self._to_jax(action))
        if not bool(finite.all()):  # waits for the step: `action`, which is shared with torch, may change from here on
            raise EnvError(f"environment {int(finite.argmin())} ({self.cfg.env_id}), step {time}: observation or "
                           "reward is not finite (NaN or infinity), because the action was not finite or the "
                           "simulation is not stable")
        if self._statistics is not None:
            self._statistics = self._count(self._statistics, step)
            step = self._apply(self._statistics, step)
        return self._to_arrays(step)

    def _checked_advance(self, state: BraxState, action: Any) -> tuple[BraxState, Step, Any]:
        from jax import numpy as jnp

        state, step = self.pure.advance(state, action)
        after: Any = step.final_obs
        return state, step, jnp.isfinite(after).all(1) & jnp.isfinite(step.reward)

    def _count_step(self, statistics: Statistics, step: Step) -> Statistics:
        from jax import numpy as jnp

        return count_step(statistics, step, self.cfg, jnp)

    def _apply_statistics(self, statistics: Statistics, step: Step) -> Step:
        from jax import numpy as jnp

        return apply_statistics(statistics, step, self.cfg, jnp)

    def _to_jax(self, action: Array) -> Array:
        from jax import numpy as jnp

        if self.arrays == "torch":
            action = jnp.from_dlpack(action.detach().contiguous())
        shape = (self.num_envs, *self.action_space.shape)
        if action.shape != shape:
            raise EnvError(f"{self.cfg.env_id}: actions have shape {tuple(action.shape)}; they must have shape {shape}")
        return action

    def _to_arrays(self, step: Step) -> Step:
        if self.arrays == "jax":
            return step
        import jax
        import torch

        return jax.tree.map(torch.from_dlpack, step)

    def _to_device(self, tree: Any) -> Any:
        """Commit arrays to the device, as those from torch are. Otherwise functions would be compiled a second time."""
        import jax

        return jax.device_put(tree, jax.local_devices()[0])

    @property
    def statistics(self) -> Statistics | None:
        """See VecEnv.statistics: numpy arrays. May be set."""
        import jax

        return jax.tree.map(lambda x: np.asarray(x, np.float64), self._statistics)

    @statistics.setter
    def statistics(self, value: Statistics | None) -> None:
        import jax

        self._statistics = self._to_device(jax.tree.map(lambda x: np.asarray(x, np.float32), value))

    def state(self) -> dict[str, Any]:
        """See VecEnv.state: every array by its path in the state."""
        import jax

        leaves = jax.tree_util.tree_leaves_with_path((self._state, self._statistics))
        return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}

    def load(self, state: dict[str, Any]) -> None:
        """See VecEnv.load."""
        import jax

        if self._state is None:
            self.reset()

        def find(path: Any, leaf: Any) -> np.ndarray:
            return np.asarray(state[jax.tree_util.keystr(path)], leaf.dtype)

        whole = jax.tree_util.tree_map_with_path(find, (self._state, self._statistics))
        self._state, self._statistics = self._to_device(whole)

    def render(self) -> np.ndarray | None:
        """Return a picture (240, 320, 3) uint8 by MuJoCo's renderer; None for the task "fast", which has no body."""
        if not hasattr(self.pure.env, "sys"):
            return None
        import mujoco

        model, body = self.pure.env.sys.mj_model, self._state.env.pipeline_state
        if self._renderer is None:
            self._renderer = mujoco.Renderer(model, height=240, width=320)
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = np.asarray(body.q[0]), np.asarray(body.qd[0])
        mujoco.mj_forward(model, data)
        self._renderer.update_scene(data, camera=0 if model.ncam else -1)
        return self._renderer.render()

    def close(self) -> None:
        """Close the renderer."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
