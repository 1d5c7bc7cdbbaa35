"""Gymnasium's classic control written in JAX, so that a whole iteration is one compiled function.

Each state follows from the last one as in Gymnasium, but in float32 instead of float64; tests compare both. The random
first states come from another generator.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.config import Config
from proximo.envs.episodes import Running, count_episodes, start_episodes
from proximo.envs.gym_source import changed_fields
from proximo.envs.pure import PureVec, cond_of_any
from proximo.errors import UsageError, nearest
from proximo.protocols import Episode, Step

Parts = tuple[Array, ...]  # the numbers of a task's state, one (N,) array each


class Task(NamedTuple):
    """One task as functions over N environments at once."""

    low: tuple[float, ...]  # first states are uniform between low and high
    high: tuple[float, ...]
    advance: Callable[[Parts, Array], tuple[Parts, Array, Array]]  # (state, action) -> state, reward, terminated
    observe: Callable[[Parts], Parts]
    obs_size: int
    action_space: gym.Space[Any]
    limit: int  # steps after which an episode is truncated


class ControlState(NamedTuple):
    """All that continues N environments."""

    parts: Parts
    running: Running
    key: Array  # for first states; changes at a step in which an episode ends


class ControlPure:
    """A task as a PureEnv that resets in the same step."""

    players: tuple[str, ...] = ()
    fills = False  # every row is valid
    metric_names: tuple[str, ...] = ()
    obs_dtype = np.dtype(np.float32)
    observation_space = None

    def __init__(self, task: Task, num_envs: int) -> None:
        self.task, self.num_envs = task, num_envs
        self.obs_shape: tuple[int, ...] = (task.obs_size,)
        self.action_space = task.action_space

    def _first_states(self, key: Array) -> Parts:
        low, high = (jnp.array(x, jnp.float32)[:, None] for x in (self.task.low, self.task.high))
        return tuple(low + (high - low) * jax.random.uniform(key, (len(self.task.low), self.num_envs)))

    def _observe(self, parts: Parts) -> Array:
        return jnp.stack(self.task.observe(parts), -1)

    def reset(self, key: Array) -> tuple[ControlState, Step]:
        key, own = jax.random.split(key)
        parts, running = self._first_states(own), start_episodes(self.num_envs, jnp)
        no, zero, obs = jnp.zeros(self.num_envs, bool), jnp.zeros(self.num_envs), self._observe(parts)
        step = Step(obs=obs, first=~no, mask=None, reward=zero, terminated=no, truncated=no, final_obs=obs, valid=~no,
                    episode=Episode(finished=no, ret=running.ret, length=running.length), metrics={})
        return ControlState(parts=parts, running=running, key=key), step

    def step(self, state: ControlState, action: Array) -> tuple[ControlState, Step]:
        """See PureEnv.step. The task gets actions of one number as (N,)."""
        action = action.reshape(self.num_envs) if action.size == self.num_envs else action
        after, reward, terminated = self.task.advance(state.parts, action)
        truncated = ~terminated & (state.running.length + 1 >= self.task.limit)
        over, valid = terminated | truncated, jnp.ones(self.num_envs, bool)
        running, episode = count_episodes(state.running, reward, over, valid, jnp)

        def begin_again(over: Array, after: Parts, key: Array) -> tuple[Parts, Array]:
            key, own = jax.random.split(key)
            return tuple(jnp.where(over, new, old) for new, old in zip(self._first_states(own), after)), key

        parts, key = cond_of_any(over.any(), begin_again, lambda over, *kept: kept, over, after, state.key)
        step = Step(obs=self._observe(parts), first=over, mask=None, reward=reward, terminated=terminated,
                    truncated=truncated, final_obs=self._observe(after), valid=valid, episode=episode, metrics={})
        return ControlState(parts=parts, running=running, key=key), step


def make_jax_control(cfg: Config, seeds: Sequence[int]) -> PureVec:
    """Make environments of a task that is written in JAX; see PureVec.

    Args:
        cfg: Its `env_id` is one of control_tasks.
        seeds: One seed per environment; the first one seeds the batch.

    Raises:
        UsageError: The task is not written in JAX.
    """
    tasks = control_tasks()
    if cfg.env_id not in tasks:
        raise UsageError(f"--engine jax has no {cfg.env_id}.{nearest(cfg.env_id, tasks)} All that it has are "
                         f"{', '.join(sorted(tasks))}. Use one of these, or --engine gym.")
    return PureVec(ControlPure(tasks[cfg.env_id], len(seeds)), seeds[0])


def control_tasks() -> dict[str, Task]:
    """Return every task by its id in Gymnasium."""
    two, three = gym.spaces.Discrete(2), gym.spaces.Discrete(3)
    return {
        "CartPole-v1": Task(low=(-0.05,) * 4, high=(0.05,) * 4, advance=cart_pole, observe=_identity, obs_size=4,
                            action_space=two, limit=500),
        "Acrobot-v1": Task(low=(-0.1,) * 4, high=(0.1,) * 4, advance=acrobot, observe=_observe_acrobot, obs_size=6,
                           action_space=three, limit=500),
        "MountainCar-v0": Task(low=(-0.6, 0.0), high=(-0.4, 0.0), advance=mountain_car, observe=_identity, obs_size=2,
                               action_space=three, limit=200),
        "MountainCarContinuous-v0": Task(low=(-0.6, 0.0), high=(-0.4, 0.0), advance=mountain_car_continuous,
                                         observe=_identity, obs_size=2, action_space=gym.spaces.Box(-1.0, 1.0, (1,)),
                                         limit=999),
        "Pendulum-v1": Task(low=(-np.pi, -1.0), high=(np.pi, 1.0), advance=pendulum, observe=_observe_pendulum,
                            obs_size=3, action_space=gym.spaces.Box(-2.0, 2.0, (1,)), limit=200),
    }


def _identity(parts: Parts) -> Parts:
    return parts


def cart_pole(parts: Parts, action: Array) -> tuple[Parts, Array, Array]:
    """A pole of 0.1 kg and 1 m on a cart of 1 kg that 10 N push, in Euler steps of 20 ms (Barto et al. 1983)."""
    x, x_dot, theta, theta_dot = parts
    force = jnp.where(action == 1, 10.0, -10.0)
    cos, sin = jnp.cos(theta), jnp.sin(theta)
    push = (force + 0.05 * theta_dot**2 * sin) / 1.1
    theta_acc = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
    x_acc = push - 0.05 * theta_acc * cos / 1.1
    after = (x + 0.02 * x_dot, x_dot + 0.02 * x_acc, theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc)
    terminated = (jnp.abs(after[0]) > 2.4) | (jnp.abs(after[2]) > 12 * 2 * np.pi / 360)
    return after, jnp.ones_like(x), terminated


def acrobot(parts: Parts, action: Array) -> tuple[Parts, Array, Array]:
    """Two links with a torque between them, in Runge-Kutta steps of 0.2 s (Sutton 1996, the book's equations)."""
    torque = action.astype(jnp.float32) - 1.0

    def slope(at: Parts) -> Parts:
        a, b, a_dot, b_dot = at
        d1 = 0.25 + (1.25 + jnp.cos(b)) + 2.0
        d2 = 0.25 + 0.5 * jnp.cos(b) + 1.0
        phi2 = 0.5 * 9.8 * jnp.cos(a + b - np.pi / 2)
        phi1 = (-0.5 * b_dot**2 - b_dot * a_dot) * jnp.sin(b) + 1.5 * 9.8 * jnp.cos(a - np.pi / 2) + phi2
        b_acc = (torque + d2 / d1 * phi1 - 0.5 * a_dot**2 * jnp.sin(b) - phi2) / (1.25 - d2**2 / d1)
        return a_dot, b_dot, -(d2 * b_acc + phi1) / d1, b_acc

    a, b, a_dot, b_dot = runge_kutta(slope, parts, 0.2)
    after = (wrap_angle(a), wrap_angle(b),
             jnp.clip(a_dot, -4 * np.pi, 4 * np.pi), jnp.clip(b_dot, -9 * np.pi, 9 * np.pi))
    terminated = -jnp.cos(after[0]) - jnp.cos(after[1] + after[0]) > 1.0
    return after, jnp.where(terminated, 0.0, -1.0), terminated


def _observe_acrobot(parts: Parts) -> Parts:
    a, b, a_dot, b_dot = parts
    return jnp.cos(a), jnp.sin(a), jnp.cos(b), jnp.sin(b), a_dot, b_dot


def runge_kutta(slope: Callable[[Parts], Parts], parts: Parts, span: float) -> Parts:
    """Integrate over `span` by one classical step of order 4."""
    def move(along: Parts, share: float) -> Parts:
        return tuple(x + share * span * k for x, k in zip(parts, along))

    k1 = slope(parts)
    k2 = slope(move(k1, 0.5))
    k3 = slope(move(k2, 0.5))
    k4 = slope(move(k3, 1.0))
    return tuple(x + span / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in zip(parts, k1, k2, k3, k4))


def wrap_angle(angle: Array) -> Array:
    """Return the angle in [-pi, pi]. Angles in this range are not changed by a single bit."""
    turned = angle - 2 * np.pi * jnp.ceil((angle - np.pi) / (2 * np.pi))
    turned = jnp.where(angle < -np.pi, angle + 2 * np.pi * jnp.ceil((-angle - np.pi) / (2 * np.pi)), turned)
    return jnp.where(jnp.abs(angle) <= np.pi, angle, turned)


def _drive(parts: Parts, push: Array) -> Parts:
    """Move the car of Moore 1990 by one step."""
    position, velocity = parts
    velocity = jnp.clip(velocity + push - 0.0025 * jnp.cos(3 * position), -0.07, 0.07)
    position = jnp.clip(position + velocity, -1.2, 0.6)
    return position, jnp.where((position <= -1.2) & (velocity < 0), 0.0, velocity)


def mountain_car(parts: Parts, action: Array) -> tuple[Parts, Array, Array]:
    """Push to the left, not at all or to the right; the reward is -1 per step until the flag at 0.5."""
    after = _drive(parts, (action.astype(jnp.float32) - 1.0) * 0.001)
    return after, -jnp.ones_like(after[0]), (after[0] >= 0.5) & (after[1] >= 0.0)


def mountain_car_continuous(parts: Parts, action: Array) -> tuple[Parts, Array, Array]:
    """Push by a force in [-1, 1], which costs 0.1 of its square; the reward is 100 for the flag at 0.45."""
    force = jnp.clip(action, -1.0, 1.0)  # a suite clips what the policy sampled
    after = _drive(parts, force * 0.0015)
    terminated = (after[0] >= 0.45) & (after[1] >= 0.0)
    return after, jnp.where(terminated, 100.0, 0.0) - 0.1 * force**2, terminated


def pendulum(parts: Parts, action: Array) -> tuple[Parts, Array, Array]:
    """A rod of 1 kg and 1 m with a torque of at most 2 Nm, in semi-implicit Euler steps of 50 ms; never ends."""
    angle, speed = parts
    torque = jnp.clip(action, -2.0, 2.0)
    cost = ((angle + np.pi) % (2 * np.pi) - np.pi) ** 2 + 0.1 * speed**2 + 0.001 * torque**2
    speed = jnp.clip(speed + (15.0 * jnp.sin(angle) + 3.0 * torque) * 0.05, -8.0, 8.0)
    return (angle + speed * 0.05, speed), -cost, jnp.zeros(angle.shape, bool)


def _observe_pendulum(parts: Parts) -> Parts:
    return jnp.cos(parts[0]), jnp.sin(parts[0]), parts[1]


def takes_jax_control(cfg: Config) -> bool:
    """Return whether environments written in JAX are used: they are requested, or exist and no engine is requested."""
    return cfg.engine == "jax" or (cfg.engine == "auto" and cfg.autoreset == "same-step" and not cfg.env_workers
                                   and cfg.env_id in control_tasks() and not (changed_fields(cfg) or cfg.info_metrics))
