"""Normalisation of observations and rewards (details 28-31): one statistic of all environments, as in openai/baselines.

The functions are pure and take the array module as `xp` (numpy or jax.numpy), so that they run in compiled code too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from proximo.config import Config
from proximo.envs.moments import Moments, add_increments, moment_increments, start_moments, update_moments
from proximo.envs.obs_layout import FloatView, float_view
from proximo.errors import UsageError
from proximo.protocols import Array, Step, VecEnv

EPSILON = 1e-8  # added to each variance before its square root


class Statistics(NamedTuple):
    """Everything that normalisation remembers."""

    obs: Moments
    ret: Moments  # of the discounted return
    running: Array  # (N,) discounted return of each row so far


def start_statistics(num_envs: int, obs_shape: tuple[int, ...], xp: Any = np) -> Statistics:
    """Return the statistics before the first observation."""
    return Statistics(obs=start_moments(obs_shape, xp), ret=start_moments((), xp),
                      running=xp.zeros(num_envs, xp.float64 if xp is np else xp.float32))


def normalize_obs(moments: Moments, obs: Array, clip: float, xp: Any = np) -> Array:
    """Return normalised observations, float32, clipped to plus and minus `clip` (detail 29)."""
    scaled = (obs - moments.mean) / xp.sqrt(moments.var + EPSILON)
    return xp.minimum(xp.maximum(scaled, -clip), clip).astype(xp.float32)


def count_reset(statistics: Statistics, step: Step, cfg: Config, xp: Any = np) -> Statistics:
    """Count what reset() returned: its observations are counted, and all returns begin at 0."""
    obs = update_moments(statistics.obs, step.obs, None, xp) if cfg.norm_obs else statistics.obs
    return statistics._replace(obs=obs, running=xp.zeros_like(statistics.running))


def count_step(statistics: Statistics, step: Step, cfg: Config, xp: Any = np, waits: bool = False) -> Statistics:
    """Count what step() returned: observations that the policy acts on, and returns of valid rows.

    A next-step suite (`final_obs` None) returns the last observation of an episode as obs. It is not counted, because
    the row after it is a filler. The obs of the filler begins the next episode and is counted. A same-step suite has
    fillers only in self-play, where a player who is out waits until the next game begins (`first`).

    Args:
        statistics: The statistics so far.
        step: A Step before normalisation.
        cfg: Its `norm_obs`, `norm_reward` and `gamma` are read.
        xp: numpy or jax.numpy.
        waits: Whether players may have to wait.
    """
    over = step.terminated | step.truncated
    acted_on, played = _counted_rows(step, over) if waits or step.final_obs is None else (None, None)
    obs, ret, running = statistics
    if cfg.norm_obs:
        obs = update_moments(obs, step.obs, acted_on, xp)
    if cfg.norm_reward:
        gathered = running * cfg.gamma + step.reward
        ret = update_moments(ret, gathered, played, xp)
        after = xp.where(over, 0, gathered)
        running = after if played is None else xp.where(step.valid, after, running)
    return Statistics(obs=obs, ret=ret, running=running)


def _counted_rows(step: Step, over: Array) -> tuple[Array, Array]:
    """Return (N,) bool each, for steps with fillers: the rows whose observation counts, and those whose return does."""
    return ~over if step.final_obs is None else step.first | (step.valid & ~over), step.valid


def apply_statistics(statistics: Statistics, step: Step, cfg: Config, xp: Any = np) -> Step:
    """Return the step as the learner sees it (details 28-31)."""
    obs, final, reward = step.obs, step.final_obs, step.reward
    if cfg.norm_obs:
        obs = normalize_obs(statistics.obs, step.obs, cfg.clip_obs, xp)
        if final is not None:
            unread = xp is np and not step.first.any()  # no row ended: numpy need not compute it
            final = obs if unread else normalize_obs(statistics.obs, final, cfg.clip_obs, xp)
    if cfg.norm_reward:
        scaled, clip = reward / xp.sqrt(statistics.ret.var + EPSILON), cfg.clip_norm_reward
        reward = xp.minimum(xp.maximum(scaled, -clip), clip).astype(xp.float32)
    return step._replace(obs=obs, final_obs=final, reward=reward)


def select_floats(view: FloatView, step: Step) -> Step:
    """Return the step with only those numbers of its observations that are normalised."""
    final = None if step.final_obs is None else view.read(step.final_obs)
    return step._replace(obs=view.read(step.obs), final_obs=final)


def replace_floats(view: FloatView, step: Step, normalized: Step) -> Step:
    """Return what `normalized` holds, with its numbers put back into the observations of `step`."""
    final = None if step.final_obs is None else view.write(step.final_obs, normalized.final_obs)
    return normalized._replace(obs=view.write(step.obs, normalized.obs), final_obs=final)


def normalize_step(statistics: Statistics, step: Step, cfg: Config, xp: Any = np) -> tuple[Statistics, Step]:
    """Count the step, then normalise it: `ret = ret * gamma + r; update; ret[done] = 0`."""
    statistics = count_step(statistics, step, cfg, xp)
    return statistics, apply_statistics(statistics, step, cfg, xp)


def merge_statistics(base: Statistics, local: Statistics, reduce_sum: Callable[[np.ndarray], np.ndarray]) -> Statistics:
    """Merge the statistics of all ranks, in numpy: `base` and what each rank added since then.

    Args:
        base: Statistics that are equal on all ranks.
        local: This rank's statistics, which continue `base`.
        reduce_sum: Sums a float64 vector over all ranks.

    Returns:
        The merged statistics; `running` is this rank's own.
    """
    sums = reduce_sum(np.concatenate([moment_increments(base.obs, local.obs), moment_increments(base.ret, local.ret)]))
    size = 1 + 2 * base.obs.mean.size
    return Statistics(obs=add_increments(base.obs, sums[:size]), ret=add_increments(base.ret, sums[size:]),
                      running=local.running)


def apply_normalization(envs: VecEnv, cfg: Config) -> VecEnv:
    """Normalise observations and rewards if the configuration asks for it (details 28-31).

    Args:
        envs: Environments without normalisation, or environments that normalise by themselves.
        cfg: Its `norm_obs` and `norm_reward` say what is normalised.

    Returns:
        `envs` unchanged if nothing is to be normalised, or if `envs.statistics` shows that they normalise by
        themselves; otherwise Normalized environments.

    Raises:
        UsageError: The environments return torch or JAX arrays and do not normalise by themselves.
    """
    if envs.statistics is not None or not (cfg.norm_obs or cfg.norm_reward):
        return envs
    if envs.arrays != "numpy":
        raise UsageError(f"norm_obs={cfg.norm_obs} and norm_reward={cfg.norm_reward} need environments that return "
                         f"numpy arrays; these return {envs.arrays} arrays. Set both to False.")
    return Normalized(envs, cfg)


class Normalized:
    """A numpy suite with normalised observations and rewards.

    Attributes:
        statistics: May be read and set.

    Args:
        envs: The environments without normalisation.
        cfg: Its `norm_obs` and `norm_reward` say what is normalised.
    """

    def __init__(self, envs: VecEnv, cfg: Config) -> None:
        self._envs, self._cfg = envs, cfg
        self.num_envs, self.obs_shape, self.action_space = envs.num_envs, envs.obs_shape, envs.action_space
        self.observation_space = envs.observation_space
        self._view = float_view(envs.observation_space, envs.obs_shape)
        self.obs_dtype = np.dtype(np.float32) if cfg.norm_obs and self._view.whole else envs.obs_dtype
        self.arrays, self.players, self.metric_names = envs.arrays, envs.players, envs.metric_names
        self.play = envs.play
        self.statistics = start_statistics(envs.num_envs, self._view.shape)

    def reset(self) -> Step:
        """See VecEnv.reset."""
        step = self._envs.reset()
        step = step._replace(reward=np.zeros_like(step.reward))
        floats = select_floats(self._view, step)
        self.statistics = count_reset(self.statistics, floats, self._cfg)
        return replace_floats(self._view, step, apply_statistics(self.statistics, floats, self._cfg))

    def step(self, action: np.ndarray) -> Step:
        """See VecEnv.step."""
        step = self._envs.step(action)
        floats = select_floats(self._view, step)
        self.statistics = count_step(self.statistics, floats, self._cfg, waits=bool(self.players))
        return replace_floats(self._view, step, apply_statistics(self.statistics, floats, self._cfg))

    @property
    def keeps_state(self) -> bool:
        """See VecEnv.keeps_state."""
        return self._envs.keeps_state

    def state(self) -> dict[str, Any] | None:
        """See VecEnv.state; the statistics are part of it."""
        inner = self._envs.state()
        return None if inner is None else {"envs": inner, "statistics": pack_statistics(self.statistics)}

    def load(self, state: dict[str, Any]) -> None:
        """See VecEnv.load."""
        self._envs.load(state["envs"])
        self.statistics = unpack_statistics(state["statistics"])

    @property
    def render_fps(self) -> float | None:
        """See VecEnv.render_fps."""
        return self._envs.render_fps

    def render(self) -> np.ndarray | None:
        """See VecEnv.render."""
        return self._envs.render()

    def close(self) -> None:
        """See VecEnv.close."""
        self._envs.close()


def pack_statistics(statistics: Statistics) -> dict[str, np.ndarray]:
    """Return statistics as a dict of float64 arrays, for checkpoints and models."""
    packed = {"running": np.array(statistics.running, np.float64)}
    for name, moments in (("obs", statistics.obs), ("ret", statistics.ret)):
        packed |= {f"{name}_{field}": np.array(value, np.float64) for field, value in moments._asdict().items()}
    return packed


def unpack_statistics(packed: dict[str, Any]) -> Statistics:
    """Return the statistics that pack_statistics packed."""
    obs, ret = (Moments(**{field: np.asarray(packed[f"{name}_{field}"], np.float64) for field in Moments._fields})
                for name in ("obs", "ret"))
    return Statistics(obs=obs, ret=ret, running=np.asarray(packed["running"], np.float64))
