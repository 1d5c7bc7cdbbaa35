"""EnvPool as an engine for every family that it has: C++ environments on threads, reset one step late."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.envs.ale import MAX_FRAMES, clips_rewards
from proximo.envs.atari_ids import sticky_chance
from proximo.envs.envpool_arrays import ActionWriter, pool_reader, true_action_space
from proximo.envs.envpool_ids import envpool_id, import_envpool, libraries_loaded, notify_once, pool_threads
from proximo.envs.episodes import EpisodeCounter
from proximo.errors import EnvError, UsageError, notify
from proximo.protocols import Play, Step, VecEnv
from proximo.variants import Atari


def make_envpool(cfg: Config, seeds: Sequence[int], options: dict[str, Any] | None = None) -> VecEnv:
    """One environment of `cfg.env_id` a seed, reset one step late whatever cfg.autoreset says; `options` go to
    `envpool.make`.

    Ids are EnvPool's, or Gymnasium's where both have the environment. Raises UsageError for an unknown id, a missing
    package, and options of Atari that EnvPool does not have.
    """
    envpool = import_envpool()
    name = envpool_id(cfg.env_id, envpool.list_all_envs())
    try:
        spec = envpool.make_spec(name)
    except ImportError as error:
        raise UsageError(f'{name} cannot be made: {error} Or pip install "proximo[procgen]", which brings Qt, and '
                         "import envpool nowhere else.") from error
    if spec.config.max_num_players != 1:
        raise UsageError(f"{name} has {spec.config.max_num_players} players; EnvPool's games for one can be used")
    atari = "episodic_life" in spec.config._fields
    settings = cfg if isinstance(cfg, Atari) else Atari()
    if atari and settings is not cfg:
        notify_once(f"{cfg.env_id} is an Atari game: rewards become their sign, a lost life ends an episode and "
                 f"{settings.frame_stack} grey frames are seen at once, as by default in ppo_atari_envpool; use that "
                 "variant to choose")
    chosen = (_atari_options(cfg.env_id, settings) if atari else {}) | (options or {})
    return PoolEnvs(name, seeds, chosen, atari, atari and clips_rewards(settings))


def _atari_options(env_id: str, cfg: Atari) -> dict[str, Any]:
    """Details 14-18 and 20 under EnvPool's names; rewards are clipped by us, so that raw ones stay known."""
    if not cfg.max_pool or cfg.noop_max < 1:
        raise UsageError("EnvPool's Atari always takes the larger of two frames and begins with at least one no-op; "
                         "use --engine ale for max_pool=False or noop_max=0")
    return {"stack_num": cfg.frame_stack, "frame_skip": cfg.frame_skip, "noop_max": cfg.noop_max,
            "episodic_life": cfg.end_on_life_loss, "use_fire_reset": cfg.fire_reset, "reward_clip": False,
            "img_height": cfg.screen_size, "img_width": cfg.screen_size, "gray_scale": cfg.grayscale,
            "repeat_action_probability": sticky_chance(env_id, cfg.sticky),
            "max_episode_steps": MAX_FRAMES // cfg.frame_skip}


class PoolEnvs:
    """A pool as a VecEnv. `games`: a lost life ends an episode, the game goes on and `info` knows which (Atari).

    `pool` is EnvPool's own object, for its XLA handle.
    """

    arrays = "numpy"
    play: Play = "host"
    keeps_state = False
    render_fps: float | None = None
    players: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()
    statistics = None

    def __init__(self, name: str, seeds: Sequence[int], options: dict[str, Any], games: bool, clips: bool) -> None:
        self.num_envs, self._name, self._games, self._clips = len(seeds), name, games, clips
        self._options = options | {"seed": [int(seed) for seed in seeds]}
        self.pool: Any = self._made()
        native = self.pool.action_space
        self.action_space = true_action_space(native, name)
        self._writer = ActionWriter(self.action_space, native, self.num_envs, name)
        self._reader = pool_reader(self.pool.observation_space, int(getattr(self.action_space, "n", 0)))
        self.obs_shape, self.obs_dtype = self._reader.shape, self._reader.dtype
        self._episodes = EpisodeCounter(self.num_envs)
        self._none, self._time = np.zeros(self.num_envs, bool), -1
        self._over = self._none  # (N,) rows whose next step is spent on a reset

    def _made(self) -> Any:
        try:
            return import_envpool().make(self._name, env_type="gymnasium", num_envs=self.num_envs,
                                         num_threads=pool_threads(self.num_envs), render_mode="rgb_array",
                                         **self._options)
        except Exception as error:
            raise UsageError(f"EnvPool cannot make {self._name} with {self._options}: {error}") from error

    def reset(self) -> Step:
        """All environments begin anew from their seeds; EnvPool takes these only when a pool is made."""
        if self._time >= 0:
            self.pool.close()
            self.pool = self._made()
        self._time, self._over = 0, self._none
        raw, info = self.pool.reset()
        obs = self._reader.read(raw)
        self._check_rows(obs, info["env_id"])
        zero = np.zeros(self.num_envs, np.float32)
        return Step(obs, ~self._none, self._reader.mask(raw), zero, self._none, self._none, None, ~self._none,
                    self._episodes.clear(), {})

    def _check_rows(self, obs: np.ndarray, env_id: np.ndarray) -> None:
        """EnvPool with a NumPy that it was not built for has once answered with one environment in every row."""
        if not np.array_equal(env_id, np.arange(self.num_envs)):
            raise EnvError(f"{self._name}: EnvPool's rows belong to environments {env_id.tolist()}, wanted "
                           f"0..{self.num_envs - 1} in order; its wheel does not fit this NumPy {np.__version__}")
        alike_rightly = len(set(self._options["seed"])) == 1 or self._games or self._options.get("num_levels") == 1
        if not alike_rightly and (obs == obs[0]).all():
            notify(f"every environment of {self._name} begins alike though their seeds differ: "
                "it has one first state, or EnvPool ignores its seeds")

    def step(self, action: np.ndarray) -> Step:
        """See VecEnv.step."""
        self._time += 1
        sent = self._writer.write(action, self._time)
        try:
            raw, reward, terminated, truncated, info = self.pool.step(sent)
        except Exception as error:
            raise EnvError(f"{self._name}, step {self._time}: EnvPool raised {type(error).__name__}: "
                           f"{error}") from error
        obs, fillers = self._reader.read(raw), self._over
        valid, over = ~fillers, terminated | truncated
        if fillers.any():  # dm_control repeats its last reward here
            reward = np.where(valid, reward, np.float32(0))
            terminated, truncated, over = terminated & valid, truncated & valid, over & valid
        self._check_finite(obs, reward)
        self._over = over
        terminated = terminated & ~truncated
        episode = self._count(reward, over, truncated, valid, info)
        return Step(obs, fillers, self._reader.mask(raw), np.sign(reward) if self._clips else reward, terminated,
                    truncated, None, valid, episode, {})

    def _count(self, reward: np.ndarray, over: np.ndarray, truncated: np.ndarray, valid: np.ndarray,
               info: dict[str, np.ndarray]) -> Any:
        if self._games and over.any():
            over = over & (truncated | info["terminated"].astype(bool))
        return self._episodes.count(reward, over if over.any() else None, valid)

    def _check_finite(self, obs: np.ndarray, reward: np.ndarray) -> None:
        if not np.isfinite(reward).all() or (obs.dtype.kind == "f" and not np.isfinite(obs).all()):
            good = np.isfinite(reward) & np.isfinite(obs.reshape(self.num_envs, -1)).all(1)
            raise EnvError(f"environment {int(np.flatnonzero(~good)[0])} ({self._name}), step {self._time}: "
                           "observation or reward is not finite (NaN or infinity)")

    def state(self) -> None:
        """EnvPool cannot keep its environments' state."""
        return

    def load(self, state: dict) -> None:
        """See VecEnv.load."""
        raise UsageError("EnvPool cannot take up the state of environments")

    def render(self) -> np.ndarray | None:
        """The first environment, where its family can draw."""
        mujoco = any("mujoco" in base.__module__ for base in type(self.pool).__mro__)
        if mujoco and not libraries_loaded():
            return None
        try:
            return self.pool.render(env_ids=[0])[0]
        except RuntimeError:
            return None

    def close(self) -> None:
        """EnvPool's threads end with its object, not with its own close()."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None
