"""Environments that a compiled rollout steps through a handle (EnvPool): playing and learning are compiled apart.

A compiled rollout steps the pool that it was compiled with, so it is compiled again for every new pool.
"""

from typing import Any

import jax

from proximo.envs.normalize import Statistics
from proximo.envs.pure import pack_tree
from proximo.errors import UsageError
from proximo.on_jax.distributed import Ranks, gather_metrics, merge_arrays_over_processes
from proximo.on_jax.learner import Learner
from proximo.on_jax.mesh import compile_learn, local_copy, place_for_learning
from proximo.on_jax.play_inside import first_statistics, make_pure
from proximo.on_jax.player import SeededEnvs
from proximo.on_jax.rollout import Collected
from proximo.on_jax.snapshot import unpack_statistics_inside
from proximo.on_jax.train_step import Metrics, TrainState, make_play, make_step, stream_key
from proximo.types import Carry


class PoolPlayer:
    """Plays such environments; see Player.

    Attributes:
        learn: The compiled function that follows playing; see make_learn.
    """

    charts_latest, keeps_state = True, False

    def __init__(self, ranks: Ranks, envs: Any, learner: Learner, seeded_envs: SeededEnvs) -> None:
        if len(ranks.local) > 1:
            raise UsageError(f"EnvPool's XLA handle steps one pool on one device, so {ranks.size} --device-ids cannot "
                             "share it. Start one process for each device with torchrun.")
        self.envs, self.agent = envs, learner.agent
        self._ranks, self._learner, self._seeded_envs = ranks, learner, seeded_envs
        self.learn = compile_learn(ranks, learner)

    def begin(self, iteration: int, statistics: Statistics | None = None) -> tuple[Any, Carry]:
        """See Player. The pool has its own seeds."""
        statistics = statistics or first_statistics(self.envs)
        pure, reset = make_pure(self.envs, self._learner.cfg)
        env_state, step = reset(stream_key(self._learner.cfg.seed, "env", iteration), statistics)
        if statistics is not None:
            merged = merge_arrays_over_processes(self._ranks, statistics, env_state.statistics)
            env_state = env_state._replace(statistics=merged)
        self._compiled_play = jax.jit(make_play(self._learner, pure, lambda: self._ranks.process))
        self._step = make_step(self.play, self.learn)
        memory = self.agent.initial_state(self.envs.num_envs)
        return env_state, Carry(obs=step.obs, mask=step.mask, first=step.first, state=memory)

    def place(self, state: TrainState) -> TrainState:
        """See Player."""
        return place_for_learning(self._ranks, state)

    def play(self, state: TrainState) -> Collected:
        """Play in this process's pool, then merge the statistics of all processes."""
        played = self._compiled_play(state._replace(adam=local_copy(self._ranks, state.adam)))
        if self.envs.statistics is None:
            return played
        merged = merge_arrays_over_processes(self._ranks, state.envs.statistics, played.envs.statistics)
        return played._replace(envs=played.envs._replace(statistics=merged))

    def iterate(self, state: TrainState) -> tuple[TrainState, Metrics]:
        """See Player."""
        state, metrics = self._step(state)
        return state, gather_metrics(self._ranks, metrics)

    def rebuild(self, state: TrainState, iteration: int) -> TrainState:
        """See Player."""
        statistics = self.statistics(state)
        self.envs.close()
        self.envs = self._seeded_envs(iteration)
        env_state, carry = self.begin(iteration, statistics)
        return state._replace(carry=carry, envs=env_state)

    def statistics(self, state: TrainState) -> Statistics | None:
        """See Player."""
        return None if self.envs.statistics is None else state.envs.statistics

    def pack(self, state: TrainState) -> dict[str, Any]:
        """See Player."""
        statistics = self.statistics(state)
        return {} if statistics is None else {"statistics": pack_tree(statistics)}

    def unpack(self, kept: dict[str, Any], state: TrainState, whole: bool) -> TrainState:
        """See Player."""
        return unpack_statistics_inside(kept, state, whole)
