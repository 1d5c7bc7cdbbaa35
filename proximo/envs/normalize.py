"""Observation and reward normalisation (details 28-31): one statistic for all environments, as in openai/baselines.

The functions are pure and take the array module as `xp` (numpy or jax.numpy), so they run inside compiled code too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from proximo.config import Config
from proximo.errors import UsageError
from proximo.protocols import Array, Step, VecEnv

EPSILON = 1e-8  # added to each variance before its root
PRIOR_COUNT = 1e-4  # the weight of the mean 0 and variance 1 that statistics begin with


class Moments(NamedTuple):
    """Mean and variance of `count` rows; float64 in numpy."""

    mean: Array  # (*shape,)
    var: Array  # (*shape,)
    count: Array  # ()


class Statistics(NamedTuple):
    """All that normalisation remembers."""

    obs: Moments
    ret: Moments  # of the discounted return
    running: Array  # (N,) discounted return of each row so far


def start_statistics(num_envs: int, obs_shape: tuple[int, ...], xp=np) -> Statistics:
    """Nothing seen yet."""
    dtype = xp.float64 if xp is np else xp.float32

    def moments(shape: tuple[int, ...]) -> Moments:
        return Moments(xp.zeros(shape, dtype), xp.ones(shape, dtype), xp.asarray(PRIOR_COUNT, dtype))

    return Statistics(moments(obs_shape), moments(()), xp.zeros(num_envs, dtype))


def update_moments(moments: Moments, batch: Array, counted: Array | None, xp=np) -> Moments:
    """With the rows of `batch` (N, *shape) that `counted` (N,) bool names; None: all. Chan et al. 1983."""
    number, mean, within = _within(batch, counted, moments.mean.dtype, xp)
    delta = mean - moments.mean
    total = moments.count + number
    share = number / total  # 0 where nothing is counted
    spread = moments.var * moments.count + within + delta * delta * (moments.count * share)
    return Moments(moments.mean + delta * share, spread / total, total)


def _within(batch: Array, counted: Array | None, dtype: Any, xp: Any) -> tuple[Any, Array, Any]:
    """How many rows count, their mean, and the sum of their squared distances to it."""
    if counted is None and len(batch) == 1:  # one environment: half the work of the general case
        return 1, batch[0].astype(dtype), 0.0
    if counted is None:
        mean = batch.sum(axis=0, dtype=dtype) / len(batch)
        return len(batch), mean, ((batch - mean) ** 2).sum(axis=0)
    number = counted.sum()
    kept = counted.reshape(-1, *(1,) * (batch.ndim - 1))
    mean = xp.where(kept, batch, 0).sum(axis=0, dtype=dtype) / xp.maximum(number, 1)
    return number, mean, xp.where(kept, (batch - mean) ** 2, 0).sum(axis=0)


def normalize_obs(moments: Moments, obs: Array, clip: float, xp=np) -> Array:
    """float32, clipped to plus and minus `clip` (detail 29)."""
    scaled = (obs - moments.mean) / xp.sqrt(moments.var + EPSILON)
    return xp.minimum(xp.maximum(scaled, -clip), clip).astype(xp.float32)


def count_reset(statistics: Statistics, step: Step, cfg: Config, xp=np) -> Statistics:
    """With what reset() returned: its observations count, and all returns begin at 0."""
    obs = update_moments(statistics.obs, step.obs, None, xp) if cfg.norm_obs else statistics.obs
    return statistics._replace(obs=obs, running=xp.zeros_like(statistics.running))


def count_step(statistics: Statistics, step: Step, cfg: Config, xp=np, waits: bool = False) -> Statistics:
    """With what step() returned: observations that the policy acts on in a valid row, returns of valid rows.

    A next-step suite (`final_obs` None) returns the last observation of an episode as obs: the row after it is a
    filler, so it is not counted; the filler's own obs begins the next episode and is. A same-step suite has fillers
    only in self-play, where a player who is out `waits`, and acts again where the next game is `first`.
    """
    over = step.terminated | step.truncated
    acted_on, played = _counted(step, over) if waits or step.final_obs is None else (None, None)
    obs, ret, running = statistics
    if cfg.norm_obs:
        obs = update_moments(obs, step.obs, acted_on, xp)
    if cfg.norm_reward:
        gathered = running * cfg.gamma + step.reward
        ret = update_moments(ret, gathered, played, xp)
        after = xp.where(over, 0, gathered)
        running = after if played is None else xp.where(step.valid, after, running)
    return Statistics(obs, ret, running)


def _counted(step: Step, over: Array) -> tuple[Array, Array]:
    """(N,) bool each, where there are fillers: the rows whose observation and whose return count."""
    return ~over if step.final_obs is None else step.first | (step.valid & ~over), step.valid


def apply_statistics(statistics: Statistics, step: Step, cfg: Config, xp=np) -> Step:
    """The step as the learner sees it (details 28-31)."""
    obs, final, reward = step.obs, step.final_obs, step.reward
    if cfg.norm_obs:
        obs = normalize_obs(statistics.obs, step.obs, cfg.clip_obs, xp)
        if final is not None:
            unread = xp is np and not step.first.any()  # no row ended: spares numpy a pass
            final = obs if unread else normalize_obs(statistics.obs, final, cfg.clip_obs, xp)
    if cfg.norm_reward:
        scaled, clip = reward / xp.sqrt(statistics.ret.var + EPSILON), cfg.clip_norm_reward
        reward = xp.minimum(xp.maximum(scaled, -clip), clip).astype(xp.float32)
    return step._replace(obs=obs, final_obs=final, reward=reward)


def normalize_step(statistics: Statistics, step: Step, cfg: Config, xp=np) -> tuple[Statistics, Step]:
    """Counts the step, then normalises it: `ret = ret * gamma + r; update; ret[done] = 0`."""
    statistics = count_step(statistics, step, cfg, xp)
    return statistics, apply_statistics(statistics, step, cfg, xp)


def merge_statistics(base: Statistics, local: Statistics, reduce_sum: Callable[[np.ndarray], np.ndarray]) -> Statistics:
    """One statistic for all ranks, in numpy: what each rank saw since `base` (equal on all ranks), added up.

    `reduce_sum` adds a float64 vector over the ranks. Running returns stay each rank's own.
    """
    sums = reduce_sum(np.concatenate([_increments(base.obs, local.obs), _increments(base.ret, local.ret)]))
    size = 1 + 2 * base.obs.mean.size
    return Statistics(_grown(base.obs, sums[:size]), _grown(base.ret, sums[size:]), local.running)


def _increments(base: Moments, local: Moments) -> np.ndarray:
    """Count, sum and sum of squares of the rows since `base`, both about its mean."""
    number = local.count - base.count
    first = (local.mean - base.mean) * local.count
    second = local.var * local.count - base.var * base.count + (local.mean - base.mean) * first
    return np.concatenate([np.atleast_1d(number), np.ravel(first), np.ravel(second)]).astype(np.float64)


def _grown(base: Moments, sums: np.ndarray) -> Moments:
    shape = base.mean.shape
    first, second = (part.reshape(shape) for part in np.split(sums[1:], 2))
    total = base.count + sums[0]
    shift = first / total
    spread = np.maximum(base.var * base.count + second - shift * first, 0)
    return Moments(base.mean + shift, spread / total, total)


def apply_normalization(envs: VecEnv, cfg: Config) -> VecEnv:
    """Normalize observations and rewards where the configuration asks for it (details 28-31).

    Args:
        envs: Environments without normalization, or environments that already normalize by themselves.
        cfg: Its `norm_obs` and `norm_reward` say what is normalized.

    Returns:
        `envs` unchanged if nothing is to be normalized or if `envs.statistics` shows that they already normalize;
        otherwise Normalized environments.

    Raises:
        UsageError: The environments return torch or JAX arrays and do not normalize by themselves.
    """
    if envs.statistics is not None or not (cfg.norm_obs or cfg.norm_reward):
        return envs
    if envs.arrays != "numpy":
        raise UsageError(f"norm_obs={cfg.norm_obs} and norm_reward={cfg.norm_reward} need environments that return "
                         f"numpy arrays; these return {envs.arrays} arrays. Set both to False.")
    return Normalized(envs, cfg)


class Normalized:
    """A numpy suite with normalised observations and rewards, as cfg.norm_obs and cfg.norm_reward say.

    `statistics` may be read and set.
    """

    def __init__(self, envs: VecEnv, cfg: Config) -> None:
        self._envs, self._cfg = envs, cfg
        self.num_envs, self.obs_shape, self.action_space = envs.num_envs, envs.obs_shape, envs.action_space
        self.obs_dtype = np.dtype(np.float32) if cfg.norm_obs else envs.obs_dtype
        self.arrays, self.players, self.metric_names = envs.arrays, envs.players, envs.metric_names
        self.play = envs.play
        self.statistics = start_statistics(envs.num_envs, envs.obs_shape)

    def reset(self) -> Step:
        step = self._envs.reset()
        self.statistics = count_reset(self.statistics, step, self._cfg)
        return apply_statistics(self.statistics, step._replace(reward=np.zeros_like(step.reward)), self._cfg)

    def step(self, action: np.ndarray) -> Step:
        """See VecEnv.step."""
        step = self._envs.step(action)
        self.statistics = count_step(self.statistics, step, self._cfg, waits=bool(self.players))
        return apply_statistics(self.statistics, step, self._cfg)

    @property
    def keeps_state(self) -> bool:
        """See VecEnv.keeps_state."""
        return self._envs.keeps_state

    def state(self) -> dict | None:
        """With the statistics; None where the environments' own cannot be kept."""
        inner = self._envs.state()
        return None if inner is None else {"envs": inner, "statistics": pack_statistics(self.statistics)}

    def load(self, state: dict) -> None:
        """See VecEnv.load."""
        self._envs.load(state["envs"])
        self.statistics = unpack_statistics(state["statistics"])

    @property
    def render_fps(self) -> float | None:
        """See VecEnv.render_fps."""
        return self._envs.render_fps

    def render(self) -> np.ndarray | None:
        return self._envs.render()

    def close(self) -> None:
        self._envs.close()


def pack_statistics(statistics: Statistics) -> dict:
    """As a dict of float64 arrays, for checkpoints and models."""
    packed = {"running": np.array(statistics.running, np.float64)}
    for name, moments in (("obs", statistics.obs), ("ret", statistics.ret)):
        packed |= {f"{name}_{field}": np.array(value, np.float64) for field, value in moments._asdict().items()}
    return packed


def unpack_statistics(packed: dict) -> Statistics:
    """The inverse of pack_statistics."""
    obs, ret = (Moments(*(np.asarray(packed[f"{name}_{field}"], np.float64) for field in Moments._fields))
                for name in ("obs", "ret"))
    return Statistics(obs, ret, np.asarray(packed["running"], np.float64))
