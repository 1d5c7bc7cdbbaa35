"""Environments that are pure functions of JAX: a whole iteration is one compiled function."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from proximo.config import Config
from proximo.envs.arrays.moments import Statistics
from proximo.envs.normalize import Normalizer, make_normalizer
from proximo.on_jax.device import compiler_options
from proximo.on_jax.learner import Learner
from proximo.on_jax.snapshot import pack_inside, unpack_inside
from proximo.on_jax.train_step import StepFn, TrainState, make_learn, make_play, make_step, stream_key
from proximo.protocols import PureEnv, Step
from proximo.types import Carry

ResetFn = Callable[[Array, Any], tuple[Any, Any, Step]]  # (key, statistics) -> state of the environments, statistics,
#                                                                              first Step


class InsidePlayer:
    """Player of environments that are pure functions of JAX, on one device.

    Attributes:
        step: The pure function of one iteration, not compiled.
    """

    charts_latest = True

    def __init__(self, envs: Any, normalizer: Normalizer, learner: Learner) -> None:
        self.envs, self.normalizer, self.agent, self.keeps_state = envs, normalizer, learner.agent, True
        self._learner, self._seed = learner, learner.cfg.seed
        self.step = self.step_of(learner.cfg)
        self.iterate = jax.jit(self.step, donate_argnums=0, compiler_options=compiler_options())
        self._reset = jax.jit(make_reset(envs.pure, normalizer))

    def step_of(self, cfg: Config) -> StepFn:
        """Make the function of one iteration with the numbers of another configuration, which may be arrays, ()."""
        learner = self._learner._replace(cfg=cfg)
        return make_step(make_play(learner, self.envs.pure, make_normalizer(cfg, self.envs)), make_learn(learner))

    def begin(self, iteration: int, statistics: Statistics | None) -> tuple[Any, Carry]:
        return self.begin_with(stream_key(self._seed, "env", iteration), statistics)

    def begin_with(self, key: Array, statistics: Statistics | None) -> tuple[Any, Carry]:
        """Do what begin() does with a key, as a pure function of JAX."""
        env_state, statistics, step = self._reset(key, statistics)
        memory = self.agent.initial_state(self.envs.num_envs)
        return env_state, Carry(obs=step.obs, mask=step.mask, first=step.first, state=memory, statistics=statistics)

    def place(self, state: TrainState) -> TrainState:
        """See Player. Everything is on the default device already."""
        return state

    def rebuild(self, state: TrainState, iteration: int) -> TrainState:
        env_state, carry = self.begin(iteration, self.statistics(state))
        return state._replace(carry=carry, envs=env_state)

    def statistics(self, state: TrainState) -> Statistics | None:
        return state.carry.statistics

    def pack(self, state: TrainState) -> dict[str, Any]:
        return pack_inside(state)

    def unpack(self, kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
        return unpack_inside(kept, state, whole)


def make_reset(envs: PureEnv, normalizer: Normalizer) -> ResetFn:
    """Make the function that resets environments and normalises their first Step. The statistics continue."""
    def reset(key: Array, statistics: Statistics | None) -> tuple[Any, Statistics | None, Step]:
        env_state, step = envs.reset(key)
        return env_state, *normalizer.reset(statistics, step)

    return reset
