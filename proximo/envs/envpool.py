"""EnvPool as an engine for every family of environments that it has: C++ on threads, reset one step late."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.envs.ale import MAX_FRAMES, clips_rewards
from proximo.envs.atari_ids import sticky_chance
from proximo.envs.envpool_arrays import ActionWriter, pool_reader, true_action_space
from proximo.envs.envpool_ends import death_rule, separate_ends
from proximo.envs.envpool_ids import envpool_id, import_envpool, load_libraries, pool_threads
from proximo.envs.episodes import EpisodeCounter
from proximo.errors import EnvError, UsageError, notify_once, warn
from proximo.protocols import FrameStack, Play, Step
from proximo.variants import Atari

MATCHES = ("Cig-v1", "MultiDuel-v1")  # of ViZDoom, which wait for other players


def make_envpool(cfg: Config, seeds: Sequence[int], options: dict[str, Any] | None = None) -> "PoolEnvs":
    """Make EnvPool's environments; an Atari game gets the defaults of ppo_atari_envpool, with a message.

    Args:
        cfg: Its `env_id` is an id of EnvPool, or Gymnasium's id of an environment that both have. The environments
            reset one step late whatever its `autoreset` says.
        seeds: One seed per environment.
        options: Further arguments of `envpool.make`. ViZDoom has `use_combined_action=True` unless they say otherwise.

    Returns:
        The environments, without normalisation.

    Raises:
        UsageError: The id is unknown, a package is missing, or the game has several players.
    """
    name, atari = find_pool(cfg.env_id)
    if not atari:
        return PoolEnvs(name, seeds, with_usual(name, options or {}))
    settings = Atari()
    notify_once(f"{cfg.env_id} is an Atari game: rewards become their sign, a lost life ends an episode, and an "
                f"observation is {settings.frame_stack} gray frames, as by default in ppo_atari_envpool. Use that "
                "variant to change this.")
    return PoolEnvs(name, seeds, atari_options(cfg.env_id, settings) | (options or {}), True, clips_rewards(settings))


def make_envpool_atari(cfg: Atari, seeds: Sequence[int]) -> "PoolEnvs":
    """Make EnvPool's Atari games as the configuration describes them.

    Raises:
        UsageError: See make_envpool; also if the id is not that of an Atari game, or EnvPool cannot do what the
            configuration asks for (see atari_options).
    """
    name, atari = find_pool(cfg.env_id)
    if not atari:
        raise UsageError(f"env_id={cfg.env_id} is not the id of an Atari game. Use an id such as Breakout-v5, or "
                         "another variant: proximo train ppo --engine envpool.")
    return PoolEnvs(name, seeds, atari_options(cfg.env_id, cfg), True, clips_rewards(cfg))


def find_pool(env_id: str) -> tuple[str, bool]:
    """Return EnvPool's name of an environment, and whether it is an Atari game.

    Raises:
        UsageError: The id is unknown, a package is missing, or the game has several players.
    """
    envpool = import_envpool()
    name = envpool_id(env_id, envpool.list_all_envs())
    try:
        config = envpool.make_spec(name).config
    except ImportError as error:
        raise UsageError(f"{name} cannot be made: {error} Or install Qt with pip install \"proximo[procgen]\", and do "
                         "not import envpool before Proximo does.") from error
    if config.max_num_players != 1 or name in MATCHES:
        players = "several" if name in MATCHES else config.max_num_players
        raise UsageError(f"{name} is a game of {players} players. Only EnvPool's games of one player are supported.")
    return name, "use_fire_reset" in config._fields


def with_usual(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a pool with those that ViZDoom needs: an action is a combination of buttons.

    EnvPool's default is a number for each button, and a button is up only where it is exactly 0.
    """
    doom = "use_combined_action" in import_envpool().make_spec(name).config._fields
    return {"use_combined_action": True} | options if doom else options


def atari_options(env_id: str, cfg: Atari) -> dict[str, Any]:
    """Return details 14-18 and 20 under EnvPool's names. Rewards are clipped here, so that raw ones stay known.

    Raises:
        UsageError: EnvPool does not have `max_pool=False` or `noop_max=0`.
    """
    if not cfg.max_pool or cfg.noop_max < 1:
        raise UsageError(f"max_pool={cfg.max_pool} with noop_max={cfg.noop_max} is not supported by EnvPool, which "
                         "always takes the maximum of two frames and begins with at least one no-op. Use --engine ale.")
    return {"stack_num": cfg.frame_stack, "frame_skip": cfg.frame_skip, "noop_max": cfg.noop_max,
            "episodic_life": cfg.end_on_life_loss, "use_fire_reset": cfg.fire_reset, "reward_clip": False,
            "img_height": cfg.screen_size, "img_width": cfg.screen_size, "gray_scale": cfg.grayscale,
            "repeat_action_probability": sticky_chance(env_id, cfg.sticky),
            "max_episode_steps": MAX_FRAMES // cfg.frame_skip}


class PoolEnvs:
    """A pool as one VecEnv.

    Attributes:
        pool: EnvPool's own object, for its XLA handle.
        clips_rewards: Whether rewards become their sign; EnvPool returns raw ones.
        death_rule: Which rows (N,) died, from their last observations; None if these do not tell.

    Args:
        name: EnvPool's name of the environment.
        seeds: One seed per environment.
        options: Arguments of `envpool.make`.
        atari: A lost life ends an episode but not the game; EnvPool's `info` says which.
        clips_rewards: Whether rewards become their sign.

    Raises:
        UsageError: EnvPool does not accept the options, or there is no policy for the action space.
    """

    arrays = "numpy"
    play: Play = "host"
    keeps_state = False
    render_fps: float | None = None
    players: tuple[str, ...] = ()
    metric_names: tuple[str, ...] = ()

    def __init__(self, name: str, seeds: Sequence[int], options: dict[str, Any], atari: bool = False,
                 clips_rewards: bool = False) -> None:
        self.num_envs, self._name, self._atari, self.clips_rewards = len(seeds), name, atari, clips_rewards
        self.death_rule = death_rule(name)
        self._options = options | {"seed": [int(seed) for seed in seeds]}
        self.pool: Any = self._make_pool()
        native = self.pool.action_space
        self.action_space: Any = true_action_space(native, name)
        self._writer = ActionWriter(self.action_space, native, self.num_envs, name)
        self._reader = pool_reader(self.pool.observation_space, self.action_space)
        self.obs_shape, self.obs_dtype = self._reader.shape, self._reader.dtype
        self.observation_space = self._reader.space
        self.frames = FrameStack(options["stack_num"], 1 if options["gray_scale"] else 3) if atari else None
        self._episodes = EpisodeCounter(self.num_envs)
        self._none, self._time = np.zeros(self.num_envs, bool), -1
        self._over = self._none  # (N,) rows whose next step is spent on a reset

    def _make_pool(self) -> Any:
        try:
            return import_envpool().make(self._name, env_type="gymnasium", num_envs=self.num_envs,
                                         num_threads=pool_threads(self.num_envs), render_mode="rgb_array",
                                         **self._options)
        except Exception as error:
            raise UsageError(f"EnvPool cannot make {self._name} with {self._options}: {error}") from error

    def reset(self) -> Step:
        """Begin all environments again from their seeds. EnvPool reads seeds only when a pool is made."""
        if self._time >= 0:
            self.pool.close()
            self.pool = self._make_pool()
        self._time, self._over = 0, self._none
        raw, info = self.pool.reset()
        obs = self._read(raw)
        self._check_rows(obs, info["env_id"])
        return Step(obs=obs, first=~self._none, mask=self._reader.mask(raw), reward=np.zeros(self.num_envs, np.float32),
                    terminated=self._none, truncated=self._none, final_obs=None, valid=~self._none,
                    episode=self._episodes.clear(), metrics={})

    def _read(self, raw: Any) -> np.ndarray:
        try:
            return self._reader.read(raw)
        except ValueError as error:
            raise EnvError(f"{self._name}, step {self._time}: {error}") from error

    def _check_rows(self, obs: np.ndarray, env_id: np.ndarray) -> None:
        """Check the rows: EnvPool with a NumPy it was not built for once returned the same environment in every row."""
        if not np.array_equal(env_id, np.arange(self.num_envs)):
            raise EnvError(f"{self._name}: EnvPool's rows belong to the environments {env_id.tolist()}; they must be "
                           f"0..{self.num_envs - 1} in order. This EnvPool does not fit NumPy {np.__version__}: "
                           "install another version of one of them.")
        may_be_equal = len(set(self._options["seed"])) == 1 or self._atari or self._options.get("num_levels") == 1
        if not may_be_equal and (obs == obs[0]).all():
            warn(f"every environment of {self._name} begins with the same observation although their seeds differ: "
                 "the environment has one first state, or EnvPool ignores its seeds.")

    def step(self, action: np.ndarray) -> Step:
        self._time += 1
        sent = self._writer.write(action, self._time)
        try:
            raw, reward, terminated, truncated, info = self.pool.step(sent)
        except Exception as error:
            raise EnvError(f"{self._name}, step {self._time}: EnvPool raised {type(error).__name__}: "
                           f"{error}") from error
        obs, fillers = self._read(raw), self._over
        valid = ~fillers
        died = self.death_rule(obs) if self.death_rule and truncated.any() else None
        terminated, truncated = separate_ends(terminated, truncated, valid, info, died)
        over = terminated | truncated
        if fillers.any():  # dm_control repeats its last reward here
            reward = np.where(valid, reward, np.float32(0))
        self._check_finite(obs, reward)
        self._over = over
        if self._atari and over.any():  # a lost life does not end the game
            over = over & (truncated | info["terminated"].astype(bool))
        episode = self._episodes.count(reward, over if over.any() else None, valid)
        return Step(obs=obs, first=fillers, mask=self._reader.mask(raw),
                    reward=np.sign(reward) if self.clips_rewards else reward, terminated=terminated,
                    truncated=truncated, final_obs=None, valid=valid, episode=episode, metrics={})

    def _check_finite(self, obs: np.ndarray, reward: np.ndarray) -> None:
        if not np.isfinite(reward).all() or (obs.dtype.kind == "f" and not np.isfinite(obs).all()):
            good = np.isfinite(reward) & np.isfinite(obs.reshape(self.num_envs, -1)).all(1)
            raise EnvError(f"environment {int(np.flatnonzero(~good)[0])} ({self._name}), step {self._time}: "
                           "observation or reward is not finite (NaN or infinity)")

    def state(self) -> None:
        """Return None: EnvPool cannot save the state of its environments."""
        return

    def load(self, state: dict[str, Any]) -> None:
        """Raise UsageError: EnvPool cannot load the state of environments."""
        raise UsageError("EnvPool cannot load the state of environments. Make them again.")

    def render(self) -> np.ndarray | None:
        """See VecEnv.render; None also for families that EnvPool cannot draw."""
        mujoco = any("mujoco" in base.__module__ for base in type(self.pool).__mro__)
        if mujoco and not load_libraries():
            return None
        try:
            return self.pool.render(env_ids=[0])[0]
        except RuntimeError:
            return None

    def close(self) -> None:
        """Delete the pool, because its threads end with the object and not with its own close method."""
        if self.pool is not None:
            self.pool.close()
            self.pool = None
