"""Environments that a compiled rollout steps through a handle (EnvPool): playing and learning are compiled apart.

A compiled rollout steps the pool that it was compiled with, so it is compiled again for every new pool.
"""

from typing import Any

import jax

from proximo.envs.arrays.moments import Statistics
from proximo.envs.normalize import Normalizer
from proximo.errors import UsageError
from proximo.on_jax.distributed import Ranks, gather_metrics, merge_arrays_over_processes
from proximo.on_jax.learner import Learner
from proximo.on_jax.mesh import compile_learn, local_copy, place_for_learning
from proximo.on_jax.play_inside import make_reset
from proximo.on_jax.player import SeededEnvs
from proximo.on_jax.rollout import Collected
from proximo.on_jax.snapshot import unpack_statistics_inside
from proximo.on_jax.train_step import Metrics, TrainState, make_play, make_step, stream_key
from proximo.types import Carry


class PoolPlayer:
    """Player of environments that the compiled rollout steps through a handle.

    Attributes:
        learn: The compiled function that follows playing; see make_learn.
    """

    charts_latest, keeps_state = True, False

    def __init__(self, ranks: Ranks, envs: Any, normalizer: Normalizer, learner: Learner,
                 seeded_envs: SeededEnvs) -> None:
        if len(ranks.local) > 1:
            raise UsageError(f"EnvPool's XLA handle steps one pool on one device, so {ranks.size} --device-ids cannot "
                             "share it. Start one process for each device with torchrun.")
        self.envs, self.normalizer, self.agent = envs, normalizer, learner.agent
        self._ranks, self._learner, self._seeded_envs = ranks, learner, seeded_envs
        self.learn = compile_learn(ranks, learner)

    def begin(self, iteration: int, statistics: Statistics | None) -> tuple[Any, Carry]:
        """See Player. The pool has its own seeds."""
        reset = make_reset(self.envs.pure, self.normalizer)
        env_state, after, step = reset(stream_key(self._learner.cfg.seed, "env", iteration), statistics)
        merged = merge_arrays_over_processes(self._ranks, statistics, after)
        play = make_play(self._learner, self.envs.pure, self.normalizer, lambda: self._ranks.process)
        self._compiled_play = jax.jit(play)
        self._step = make_step(self.play, self.learn)
        memory = self.agent.initial_state(self.envs.num_envs)
        return env_state, Carry(obs=step.obs, mask=step.mask, first=step.first, state=memory, statistics=merged)

    def place(self, state: TrainState) -> TrainState:
        return place_for_learning(self._ranks, state)

    def play(self, state: TrainState) -> Collected:
        """Play in this process's pool, then merge the statistics of all processes."""
        played = self._compiled_play(state._replace(adam=local_copy(self._ranks, state.adam)))
        merged = merge_arrays_over_processes(self._ranks, state.carry.statistics, played.carry.statistics)
        return played._replace(carry=played.carry._replace(statistics=merged))

    def iterate(self, state: TrainState) -> tuple[TrainState, Metrics]:
        state, metrics = self._step(state)
        return state, gather_metrics(self._ranks, metrics)

    def rebuild(self, state: TrainState, iteration: int) -> TrainState:
        self.envs.close()
        self.envs = self._seeded_envs(iteration)
        env_state, carry = self.begin(iteration, state.carry.statistics)
        return state._replace(carry=carry, envs=env_state)

    def statistics(self, state: TrainState) -> Statistics | None:
        return state.carry.statistics

    def pack(self, state: TrainState) -> dict[str, Any]:
        return {}

    def unpack(self, kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
        return unpack_statistics_inside(kept, state, whole)
