"""Brax: thousands of bodies simulated as one batch by JAX; the place of Isaac Gym, which can no longer be had."""

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
from proximo.protocols import Play, Step
from proximo.variants import BatchedSim

BACKENDS = {  # of Brax's pipelines the faster one that simulates the task well
    "ant": "spring", "halfcheetah": "spring", "hopper": "spring", "humanoid": "spring", "humanoidstandup": "spring",
    "walker2d": "spring", "inverted_pendulum": "generalized", "inverted_double_pendulum": "generalized",
    "pusher": "generalized", "reacher": "generalized", "swimmer": "generalized", "fast": "generalized",
}
ISAAC = {"Ant": "ant", "Humanoid": "humanoid", "HumanoidAMP": "humanoid", "Cartpole": "inverted_pendulum",
         "Anymal": "ant", "AnymalTerrain": "ant"}
ISAAC_ONLY = ("AllegroHand", "BallBalance", "FrankaCabinet", "FrankaCubeStack", "Ingenuity", "Quadcopter",
               "ShadowHand", "Trifinger")


def make_brax(cfg: BatchedSim, seeds: Sequence[int]) -> "BraxEnvs":
    """len(seeds) environments of `cfg.env_id`: a Brax task, or one of Isaac Gym's names for its nearest relative.

    Steps hold torch tensors (`cfg.framework` torch) or jax arrays, on the device that JAX found; nothing is copied.
    """
    pure = make_brax_pure(cfg, len(seeds))
    return BraxEnvs(pure, cfg, seeds[0])


def make_brax_pure(cfg: BatchedSim, num_envs: int) -> "BraxPure":
    """The same environments as a PureEnv, without normalisation. Raises UsageError for unknown ids and engines."""
    if cfg.engine not in ("auto", "brax"):
        raise UsageError(f"engine={cfg.engine} has no batched simulation; use brax")
    task = brax_task(cfg.env_id)
    if importlib.util.find_spec("brax") is None:
        raise UsageError(f'{cfg.env_id} needs brax: pip install "proximo[brax]"')
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave torch its share of a GPU
    use_egl_when_headless()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from brax import envs

        env = envs.get_environment(task, backend=BACKENDS[task])
    return BraxPure(env, num_envs, cfg.num_steps, cfg.reward_scaler)


def brax_task(env_id: str) -> str:
    """Brax's name of a task; replacements are said. Raises UsageError for what has no relative in Brax."""
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
    """BraxPure as a VecEnv: the same numbers, compiled step by step; arrays cross to torch through DLPack."""

    play: Play = "inside"
    keeps_state = True

    def __init__(self, pure: BraxPure, cfg: Config, seed: int):
        import jax

        self.pure, self.cfg = pure, cfg
        self.arrays: str = cfg.framework
        self.num_envs, self.obs_shape, self.obs_dtype = pure.num_envs, pure.obs_shape, pure.obs_dtype
        self.action_space, self.players, self.metric_names = pure.action_space, pure.players, pure.metric_names
        self.render_fps: float | None = 1 / pure.env.dt if hasattr(pure.env, "dt") else None
        self.key = self._on_device(jax.random.PRNGKey(seed))
        self._first_states, self._advance = jax.jit(pure.first_states), jax.jit(self._checked_advance)
        self._count, self._apply = jax.jit(self._count_step), jax.jit(self._apply_statistics)
        self._state: Any = None
        self._renderer: Any = None
        self._statistics: Any
        self.statistics = start_statistics(self.num_envs, self.obs_shape) if cfg.norm_obs or cfg.norm_reward else None

    def reset(self) -> Step:
        """All environments begin anew, as the seed says."""
        import jax
        from jax import numpy as jnp

        parts = [self._first_states(self.key, -1 - int(part)) for part in self.pure.parts()]
        state, step = self.pure.begin(self.key, jax.tree.map(lambda *part: jnp.concatenate(part), *parts))
        self._state = self._on_device(state)
        if self._statistics is not None:
            self._statistics = count_reset(self._statistics, step, self.cfg, jnp)
            step = self._apply(self._statistics, step)
        return self._given(step)

    def step(self, action: Any) -> Step:
        """`action` (N, A) of the kind that `arrays` says. Raises EnvError where the simulation left the numbers."""
        from jax import numpy as jnp

        time = int(self._state.time)
        if time % self.pure.renew_every == 0:
            bank = self._on_device(self._first_states(self._state.key, time // self.pure.renew_every))
            self._state = self._state._replace(bank=bank)
        if self.arrays == "torch":
            action = jnp.from_dlpack(action.detach().contiguous())
        if action.shape != (self.num_envs, *self.action_space.shape):
            raise EnvError(f"actions have shape {tuple(action.shape)}; "
                           f"wanted {(self.num_envs, *self.action_space.shape)}")
        self._state, step, finite = self._advance(self._state, action)
        if not bool(finite.all()):  # waits for the step: `action`, shared with torch, may change from here on
            raise EnvError(f"environment {int(finite.argmin())} ({self.cfg.env_id}) at step {time}: an observation or "
                           "reward is not finite; the actions were not, or the simulation exploded")
        if self._statistics is not None:
            self._statistics = self._count(self._statistics, step)
            step = self._apply(self._statistics, step)
        return self._given(step)

    def _checked_advance(self, state: BraxState, action: Any) -> tuple[BraxState, Step, Any]:
        from jax import numpy as jnp

        state, step = self.pure.advance(state, action)
        return state, step, jnp.isfinite(step.final_obs).all(1) & jnp.isfinite(step.reward)

    def _count_step(self, statistics: Statistics, step: Step) -> Statistics:
        from jax import numpy as jnp

        return count_step(statistics, step, self.cfg, jnp)

    def _apply_statistics(self, statistics: Statistics, step: Step) -> Step:
        from jax import numpy as jnp

        return apply_statistics(statistics, step, self.cfg, jnp)

    def _given(self, step: Step) -> Step:
        if self.arrays == "jax":
            return step
        import jax
        import torch

        return jax.tree.map(torch.from_dlpack, step)

    def _on_device(self, tree: Any) -> Any:
        """Bound to its device from the start, as what comes from torch is; a change would compile anew."""
        import jax

        return jax.device_put(tree, jax.local_devices()[0])

    @property
    def statistics(self) -> Statistics | None:
        """Of the normalisation, as numpy arrays; may be set."""
        import jax

        return jax.tree.map(lambda x: np.asarray(x, np.float64), self._statistics)

    @statistics.setter
    def statistics(self, value: Statistics | None) -> None:
        import jax

        self._statistics = self._on_device(jax.tree.map(lambda x: np.asarray(x, np.float32), value))

    def state(self) -> dict:
        """Every array of the state by its place in it, exactly."""
        import jax

        leaves = jax.tree_util.tree_leaves_with_path((self._state, self._statistics))
        return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}

    def load(self, state: dict) -> None:
        """Continues where state() was taken, in environments of the same task, number and framework."""
        import jax

        if self._state is None:
            self.reset()

        def kept(path: Any, leaf: Any) -> np.ndarray:
            return np.asarray(state[jax.tree_util.keystr(path)], leaf.dtype)

        whole = jax.tree_util.tree_map_with_path(kept, (self._state, self._statistics))
        self._state, self._statistics = self._on_device(whole)

    def render(self) -> np.ndarray | None:
        """(240, 320, 3) uint8 of the first environment by MuJoCo's renderer; None for the task without a body."""
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
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
