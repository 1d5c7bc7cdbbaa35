"""Normalisation of observations and rewards (details 28-31): one statistic of all environments, as in openai/baselines.

Environments return raw observations and rewards. The loop passes every Step through a Normalizer, and carries its
statistics. The functions are pure and take the array module as `xp` (numpy, jax.numpy, torch_arrays), so that they run
in compiled code too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from proximo.config import Config
from proximo.envs.arrays.moments import Moments, Statistics, known_statistics, start_moments, update_moments
from proximo.envs.arrays.obs_layout import FloatView, float_view
from proximo.errors import UsageError
from proximo.protocols import Array, Spec, Step, VecEnv

EPSILON = 1e-8  # added to each variance before its square root

Normalize = Callable[[Any, Step], tuple[Any, Step]]  # (statistics, step) -> the same, with the step counted in


class Normalizer(NamedTuple):
    """What stands between environments and learner: pure functions, which take and return the statistics.

    Where nothing is normalised, the statistics are None, and `reset` and `step` return what they get.
    """

    start: Callable[[], Statistics | None]  # makes the statistics before the first reset
    reset: Normalize  # for what reset() returned
    step: Normalize  # for what step() returned
    spec: Spec  # the environments as the agent sees them


def make_normalizer(cfg: Config, envs: VecEnv) -> Normalizer:
    """Make the functions that normalise what environments return, as the configuration says.

    They use the array module of the environments. If these return JAX arrays and cfg.framework is "torch", the
    functions are compiled and return steps of tensors, which share the memory of the arrays. Steps of torch tensors are
    normalised on their device.

    Args:
        cfg: Its `norm_obs`, `norm_reward`, their clips, `gamma` and `framework` are read.
        envs: The environments, or others of the same kind and number. Moments of "obs" and "ret" in `start_moments`
            are the first statistics.

    Raises:
        UsageError: Floats in packed observations are to be normalised, and the environments return torch tensors.
    """
    on_torch = cfg.framework == "torch" and envs.arrays == "jax"
    view = float_view(envs.observation_space, envs.obs_shape)
    spec = Spec(obs_shape=envs.obs_shape, action_space=envs.action_space, observation_space=envs.observation_space,
                obs_dtype=np.dtype(np.float32) if cfg.norm_obs and view.whole else envs.obs_dtype)
    if not (cfg.norm_obs or cfg.norm_reward):
        unchanged = share_with_torch(keep_step) if on_torch else keep_step
        return Normalizer(start=lambda: None, reset=unchanged, step=unchanged, spec=spec)
    if envs.arrays == "torch" and cfg.norm_obs and not view.whole:
        raise UsageError("norm_obs=True needs torch tensors of floats only; these have parts of other dtypes. Set "
                         "norm_obs=False (norm_reward is possible), or return numpy arrays.")
    xp = numpy_module(envs.arrays)
    begin: Callable[..., Statistics] = partial(count_reset, cfg=cfg, xp=xp, joins=bool(envs.players))
    count: Callable[..., Statistics] = partial(count_step, cfg=cfg, xp=xp, waits=bool(envs.players or cfg.restart_envs))
    apply: Callable[..., Step] = partial(apply_statistics, cfg=cfg, xp=xp)
    if on_torch:
        import jax

        begin, count, apply = accepting_numpy(begin), jax.jit(count), jax.jit(apply)
    if envs.arrays == "torch":
        from proximo.envs.arrays.torch_arrays import counted_on_device

        begin, count = counted_on_device(begin), counted_on_device(count)
    reset, step = count_then_apply(begin, apply), count_then_apply(count, apply)
    if on_torch:
        reset, step = share_with_torch(reset), share_with_torch(step)
    if cfg.norm_obs and not view.whole:
        reset, step = normalize_floats(view, reset), normalize_floats(view, step)
    start = partial(start_statistics, envs.num_envs, view.shape, np if envs.arrays == "torch" else xp)
    start = partial(known_statistics, start, envs.start_moments) if hasattr(envs, "start_moments") else start
    return Normalizer(start=start, reset=reset, step=step, spec=spec)


def keep_step(statistics: None, step: Step) -> tuple[None, Step]:
    """Normalise nothing."""
    return statistics, step


def numpy_module(arrays: str) -> Any:
    """Return the module that computes with the arrays of environments, "numpy", "torch" or "jax"."""
    if arrays == "numpy":
        return np
    if arrays == "torch":
        from proximo.envs.arrays import torch_arrays

        return torch_arrays
    from jax import numpy as jnp

    return jnp


def count_then_apply(count: Callable[..., Statistics], apply: Callable[..., Step]) -> Normalize:
    """Make the function that counts a step, then normalises it by the statistics that include it."""
    def normalize(statistics: Statistics, step: Step) -> tuple[Statistics, Step]:
        statistics = count(statistics, step)
        return statistics, apply(statistics, step)

    return normalize


def normalize_floats(view: FloatView, normalize: Normalize) -> Normalize:
    """Normalise only the numbers of a view, in observations of several parts."""
    def normalize_within(statistics: Any, step: Step) -> tuple[Any, Step]:
        final = None if step.final_obs is None else view.read(step.final_obs)
        statistics, after = normalize(statistics, step._replace(obs=view.read(step.obs), final_obs=final))
        final = None if step.final_obs is None else view.write(step.final_obs, after.final_obs)
        return statistics, after._replace(obs=view.write(step.obs, after.obs), final_obs=final)

    return normalize_within


def accepting_numpy(count: Callable[..., Statistics]) -> Callable[..., Statistics]:
    """Let a function for JAX arrays take statistics in numpy too, such as those of a checkpoint."""
    from jax import numpy as jnp
    from jax import tree

    return lambda statistics, step: count(tree.map(lambda x: jnp.asarray(x, jnp.float32), statistics), step)


def share_with_torch(normalize: Normalize) -> Normalize:
    """Let a function for JAX arrays return torch tensors, which share their memory (DLPack)."""
    import jax
    import torch

    def normalize_to_tensors(statistics: Any, step: Step) -> tuple[Any, Step]:
        statistics, step = normalize(statistics, step)
        return statistics, jax.tree.map(torch.from_dlpack, step)

    return normalize_to_tensors


def start_statistics(num_envs: int, obs_shape: tuple[int, ...], xp: Any = np) -> Statistics:
    """Return the statistics before the first observation."""
    return Statistics(obs=start_moments(obs_shape, xp), ret=start_moments((), xp),
                      running=xp.zeros(num_envs, xp.float64 if xp is np else xp.float32))


def normalize_obs(moments: Moments, obs: Array, clip: float, xp: Any = np) -> Array:
    """Return normalised observations, float32, clipped to plus and minus `clip` (detail 29)."""
    mean, var = moments.mean[None], moments.var[None]  # for one row, numpy takes half the time if all shapes are equal
    scaled = obs - mean
    scaled /= xp.sqrt(var + EPSILON)
    return xp.asarray(xp.minimum(xp.maximum(scaled, -clip), clip), xp.float32)


def count_reset(statistics: Statistics, step: Step, cfg: Config, xp: Any = np, joins: bool = False) -> Statistics:
    """Count what reset() returned: its observations are counted, and all returns begin at 0.

    With `joins`, rows may begin later (`first` False), and are not counted.
    """
    begun = step.first if joins else None
    obs = update_moments(statistics.obs, step.obs, begun, xp) if cfg.norm_obs else statistics.obs
    return statistics._replace(obs=obs, running=xp.zeros(step.reward.shape, statistics.running.dtype))


def count_step(statistics: Statistics, step: Step, cfg: Config, xp: Any = np, waits: bool = False) -> Statistics:
    """Count what step() returned: observations that the policy acts on, and returns of valid rows.

    A next-step suite (`final_obs` None) returns the last observation of an episode as obs. It is not counted, because
    the row after it is a filler. The obs of the filler begins the next episode and is counted. A same-step suite has
    fillers only in self-play, where a player who is out waits until the next game begins (`first`), and where a worker
    process was replaced (--restart-envs), whose rows begin an episode.

    Args:
        statistics: The statistics so far.
        step: A Step before normalisation.
        cfg: Its `norm_obs`, `norm_reward` and `gamma` are read.
        xp: numpy, jax.numpy or torch_arrays.
        waits: Whether a same-step suite may have fillers.
    """
    over = step.terminated | step.truncated
    acted_on, played = _counted_rows(step, over) if waits or step.final_obs is None else (None, None)
    obs, ret, running = statistics
    if cfg.norm_obs:
        obs = update_moments(obs, step.obs, acted_on, xp)
    if cfg.norm_reward:
        gathered = running * cfg.gamma + step.reward
        ret = update_moments(ret, gathered, played, xp)
        after = gathered if xp is np and not np.count_nonzero(over) else xp.where(over, 0, gathered)
        running = after if played is None else xp.where(step.valid | over, after, running)
    return Statistics(obs=obs, ret=ret, running=running)


def _counted_rows(step: Step, over: Array) -> tuple[Array, Array]:
    """Return (N,) bool each, for steps with fillers: the rows whose observation counts, and those whose return does."""
    return ~over if step.final_obs is None else step.first | (step.valid & ~over), step.valid


def apply_statistics(statistics: Statistics, step: Step, cfg: Config, xp: Any = np) -> Step:
    """Return the step as the learner sees it (details 28-31)."""
    obs, final, reward = step.obs, step.final_obs, step.reward
    if cfg.norm_obs:
        obs = normalize_obs(statistics.obs, step.obs, cfg.clip_obs, xp)
        if step.final_obs is not None:
            unread = xp is np and not (np.count_nonzero(step.first) or np.count_nonzero(step.truncated))  # no row ended
            final = obs if unread else normalize_obs(statistics.obs, final, cfg.clip_obs, xp)
    if cfg.norm_reward:
        scaled, clip = reward / xp.sqrt(statistics.ret.var + EPSILON), cfg.clip_norm_reward
        reward = xp.asarray(xp.minimum(xp.maximum(scaled, -clip), clip), xp.float32)
    return step._replace(obs=obs, final_obs=final, reward=reward)


def to_numpy(statistics: Statistics | None) -> Statistics | None:
    """Return a copy in numpy's float64; None where nothing is normalised."""
    if statistics is None:
        return None
    obs, ret = (Moments(*map(_on_host, moments)) for moments in (statistics.obs, statistics.ret))
    return Statistics(obs=obs, ret=ret, running=_on_host(statistics.running))


def _on_host(x: Array) -> np.ndarray:
    return np.array(x.numpy(force=True) if hasattr(x, "detach") else x, np.float64)


def continue_statistics(kept: Statistics | None, fresh: Statistics | None) -> Statistics | None:
    """Return the moments of a checkpoint with the running returns of new episodes."""
    return None if kept is None or fresh is None else kept._replace(running=fresh.running)


def pack_statistics(statistics: Statistics | None) -> dict[str, np.ndarray] | None:
    """Return statistics as a dict of arrays, for checkpoints."""
    if statistics is None:
        return None
    packed = {"running": np.array(statistics.running)}
    for name, moments in (("obs", statistics.obs), ("ret", statistics.ret)):
        packed |= {f"{name}_{field}": np.array(value) for field, value in moments._asdict().items()}
    return packed


def unpack_statistics(packed: dict[str, Any] | None) -> Statistics | None:
    """Return the statistics that pack_statistics packed, in float64; earlier versions packed no `rest`."""
    if packed is None:
        return None
    packed = {f"{name}_rest": np.zeros((2, *np.shape(packed[f"{name}_mean"]))) for name in ("obs", "ret")} | packed
    obs, ret = (Moments(**{field: np.asarray(packed[f"{name}_{field}"], np.float64) for field in Moments._fields})
                for name in ("obs", "ret"))
    return Statistics(obs=obs, ret=ret, running=np.asarray(packed["running"], np.float64))
