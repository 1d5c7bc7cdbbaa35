"""Environments that are pure functions of JAX: a whole iteration is one compiled function."""

from functools import partial
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


class InsidePlayer:
    """Plays such environments on one device; see Player.

    Attributes:
        step: The pure function of one iteration, not compiled.
        reset: The pure function (key, statistics) -> (state of the environments, first Step), compiled.
    """

    charts_latest = True

    def __init__(self, cfg: Config, envs: Any, learner: Learner) -> None:
        self.envs, self.keeps_state = envs, True
        self.agent, self._cfg = learner.agent, cfg
        self.step = make_step(make_play(cfg, normalize_pure(envs, cfg), learner.bind), make_learn(cfg, learner))
        self.iterate = jax.jit(self.step, donate_argnums=0)
        self.reset = jax.jit(partial(reset_pure, envs, cfg))

    def begin(self, iteration: int, statistics: Statistics | None = None) -> tuple[Any, Carry]:
        """See Player."""
        return self.begin_with(stream_key(self._cfg.seed, "env", iteration), statistics)

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


def normalize_pure(envs: Any, cfg: Config) -> PureEnv:
    """Return what a compiled function steps: `envs.pure`, normalised as the configuration says."""
    return envs.pure if envs.statistics is None else NormalizedPure(envs.pure, cfg)


def reset_pure(envs: Any, cfg: Config, key: Array, statistics: Statistics | None) -> tuple[Any, Step]:
    """Reset what normalize_pure returns. `statistics` continue; None where nothing is normalised."""
    state, step = envs.pure.reset(key)
    if statistics is None:
        return state, step
    return NormalizedPure(envs.pure, cfg).normalize_reset(state, step, statistics)


def first_statistics(envs: Any) -> Statistics | None:
    """Return the statistics that normalisation inside a compiled function starts with; None where nothing is."""
    return None if envs.statistics is None else start_statistics(envs.num_envs, envs.obs_shape, jnp)
