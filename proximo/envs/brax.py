"""Brax: thousands of environments that JAX simulates as one batch, in place of Isaac Gym, which is discontinued."""

import importlib.util
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from proximo.envs.brax_pure import BraxPure, BraxState
from proximo.envs.render import use_egl_when_headless
from proximo.errors import EnvError, UsageError, nearest, notify
from proximo.protocols import Array, FrameStack, Play, Step
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
    """Make environments of a task of Brax. Steps hold JAX arrays on the device that JAX found.

    Args:
        cfg: Its `env_id` is a task of Brax, or a task of Isaac Gym, which is replaced by the nearest one of Brax.
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
    return BraxEnvs(BraxPure(env, len(seeds), cfg.num_steps, cfg.reward_scaler), cfg.env_id, seeds[0])


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
    """BraxPure as a VecEnv: the same numbers, compiled step by step.

    Actions may be torch tensors too, whose memory is shared through DLPack.

    Args:
        pure: The environments.
        env_id: The name of the task in errors.
        seed: Seed of the batch.
    """

    arrays = "jax"
    play: Play = "inside"
    keeps_state = True
    observation_space = None
    frames: FrameStack | None = None

    def __init__(self, pure: BraxPure, env_id: str, seed: int) -> None:
        import jax

        self.pure, self._env_id = pure, env_id
        self.num_envs, self.obs_shape, self.obs_dtype = pure.num_envs, pure.obs_shape, pure.obs_dtype
        self.action_space, self.players, self.metric_names = pure.action_space, pure.players, pure.metric_names
        self.render_fps: float | None = 1 / pure.env.dt if hasattr(pure.env, "dt") else None
        self.key = self._to_device(jax.random.PRNGKey(seed))
        self._first_states, self._advance = jax.jit(pure.first_states), jax.jit(self._checked_advance)
        self._state: Any = None
        self._renderer: Any = None

    def reset(self) -> Step:
        """Begin all environments again from the seed."""
        import jax
        from jax import numpy as jnp

        parts = [self._first_states(self.key, -1 - int(part)) for part in self.pure.parts()]
        begun = self.pure.begin(self.key, jax.tree.map(lambda *part: jnp.concatenate(part), *parts))
        step: Step
        self._state, step = self._to_device(begun)
        return step

    def step(self, action: Array) -> Step:
        """See VecEnv.step. `action` is (N, A)."""
        time = int(self._state.time)
        if time % self.pure.renew_every == 0:
            bank = self._to_device(self._first_states(self._state.key, time // self.pure.renew_every))
            self._state = self._state._replace(bank=bank)
        self._state, step, finite = self._advance(self._state, self._to_jax(action))
        if not bool(finite.all()):  # waits for the step: `action`, which is shared with torch, may change from here on
            raise EnvError(f"environment {int(finite.argmin())} ({self._env_id}), step {time}: observation or "
                           "reward is not finite (NaN or infinity), because the action was not finite or the "
                           "simulation is not stable")
        return step

    def _checked_advance(self, state: BraxState, action: Any) -> tuple[BraxState, Step, Any]:
        from jax import numpy as jnp

        state, step = self.pure.advance(state, action)
        after: Any = step.final_obs
        return state, step, jnp.isfinite(after).all(1) & jnp.isfinite(step.reward)

    def _to_jax(self, action: Array) -> Array:
        from jax import numpy as jnp

        action = jnp.from_dlpack(action.detach().contiguous()) if hasattr(action, "detach") else jnp.asarray(action)
        shape = (self.num_envs, *self.action_space.shape)
        if action.shape != shape:
            raise EnvError(f"{self._env_id}: actions have shape {tuple(action.shape)}; they must have shape {shape}")
        return action

    def _to_device(self, tree: Any) -> Any:
        """Commit arrays to the device, as those from torch are. Otherwise functions would be compiled a second time."""
        import jax

        return jax.device_put(tree, jax.local_devices()[0])

    def state(self) -> dict[str, Any]:
        """See VecEnv.state: every array by its path in the state."""
        from proximo.envs.pure import pack_tree

        return pack_tree(self._state)

    def load(self, state: dict[str, Any]) -> None:
        from proximo.envs.pure import unpack_tree

        if self._state is None:
            self.reset()
        self._state = self._to_device(unpack_tree(state, self._state))

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
