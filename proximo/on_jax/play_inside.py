"""Environments that are pure functions of JAX: a whole iteration is one compiled function."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from proximo.config import Config
from proximo.envs.normalize import Statistics, start_statistics
from proximo.envs.pure import NormalizedPure
from proximo.on_jax.learner import Learner
from proximo.on_jax.snapshot import pack_inside, unpack_inside
from proximo.on_jax.train_step import TrainState, make_learn, make_play, make_step, stream_key
from proximo.protocols import PureEnv, Step
from proximo.types import Carry

ResetFn = Callable[[Array, Any], tuple[Any, Step]]  # (key, statistics) -> state of the environments, first Step


class InsidePlayer:
    """Plays such environments on one device; see Player.

    Attributes:
        step: The pure function of one iteration, not compiled.
        reset: The pure function that resets the environments, compiled.
    """

    charts_latest = True

    def __init__(self, envs: Any, learner: Learner) -> None:
        self.envs, self.agent, self.keeps_state = envs, learner.agent, True
        self._seed = learner.cfg.seed
        pure, reset = make_pure(envs, learner.cfg)
        self.step = make_step(make_play(learner, pure), make_learn(learner))
        self.iterate, self.reset = jax.jit(self.step, donate_argnums=0), jax.jit(reset)

    def begin(self, iteration: int, statistics: Statistics | None = None) -> tuple[Any, Carry]:
        """See Player."""
        return self.begin_with(stream_key(self._seed, "env", iteration), statistics)

    def begin_with(self, key: Array, statistics: Statistics | None = None) -> tuple[Any, Carry]:
        """Do what begin() does with a key, as a pure function of JAX."""
        env_state, step = self.reset(key, statistics or first_statistics(self.envs))
        memory = self.agent.initial_state(self.envs.num_envs)
        return env_state, Carry(obs=step.obs, mask=step.mask, first=step.first, state=memory)

    def place(self, state: TrainState) -> TrainState:
        """See Player. Everything is on the default device already."""
        return state

    def rebuild(self, state: TrainState, iteration: int) -> TrainState:
        """See Player."""
        env_state, carry = self.begin(iteration, self.statistics(state))
        return state._replace(carry=carry, envs=env_state)

    def statistics(self, state: TrainState) -> Statistics | None:
        """See Player."""
        return None if self.envs.statistics is None else state.envs.statistics

    def pack(self, state: TrainState) -> dict[str, Any]:
        """See Player."""
        return pack_inside(state, self.statistics(state), self.keeps_state)

    def unpack(self, kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
        """See Player."""
        return unpack_inside(kept, state, whole)


def make_pure(envs: Any, cfg: Config) -> tuple[PureEnv, ResetFn]:
    """Return what a compiled function steps, normalised as the configuration says, and the function that resets it.

    Statistics of normalisation continue at a reset; they are None where nothing is normalised.
    """
    if envs.statistics is None:
        return envs.pure, lambda key, statistics: envs.pure.reset(key)
    normalized = NormalizedPure(envs.pure, cfg)

    def reset(key: Array, statistics: Statistics) -> tuple[Any, Step]:
        state, step = envs.pure.reset(key)
        return normalized.normalize_reset(state, step, statistics)

    return normalized, reset


def first_statistics(envs: Any) -> Statistics | None:
    """Return the statistics that normalisation inside a compiled function starts with; None where nothing is."""
    return None if envs.statistics is None else start_statistics(envs.num_envs, envs.obs_shape, jnp)
