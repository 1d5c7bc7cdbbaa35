"""One iteration as a pure function: collect, estimate advantages, update; compiled whole where possible."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.config import Config
from proximo.on_jax.gae import gae
from proximo.on_jax.learner import Learner, draw, explained_variance, flat_batch, normalized_advantage, update
from proximo.on_jax.networks import Weights
from proximo.on_jax.optimizer import Adam
from proximo.on_jax.rollout import Carry, Episodes, Policy, Rollout, Storage, collect, collect_host
from proximo.protocols import PureEnv, VecEnv
from proximo.streams import stream_seed


class Keys(NamedTuple):
    """The streams of random draws; each is folded with the iteration and the rank, and itself never changes."""

    action: Array
    minibatch: Array
    rpo: Array


class TrainState(NamedTuple):
    """All that a run goes on from."""

    adam: Adam
    carry: Carry
    envs: Any  # state of the environments; () where they stand outside the compiled function
    keys: Keys
    iteration: Array  # () int32: iterations done


class Play(NamedTuple):
    """What collecting leaves."""

    rollout: Rollout
    envs: Any
    carry: Carry
    episodes: Episodes


def stream_key(seed: int, stream: str, iteration: int = 0) -> Array:
    """A key of JAX from all 64 bits of streams.stream_seed."""
    number = stream_seed(seed, stream, iteration)
    return jax.random.wrap_key_data(jnp.asarray(np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)))


def stream_keys(seed: int) -> Keys:
    """The streams that an iteration draws from."""
    return Keys(*(stream_key(seed, stream) for stream in Keys._fields))


def at(key: Array, iteration: Array, rank: Array | int) -> Array:
    """A stream's key in one iteration on one rank."""
    return jax.random.fold_in(jax.random.fold_in(key, iteration), rank)


def alone() -> int:
    """The rank where there is only one."""
    return 0


def make_play(cfg: Config, envs: PureEnv, bound: Callable[[Weights], Any],
              rank: Callable[[], Array | int] = alone) -> Callable[[TrainState], Play]:
    """Collecting inside the compiled function."""
    def play(state: TrainState) -> Play:
        agent = bound(state.adam.weights)
        noise = agent.head.noise(at(state.keys.action, state.iteration + 1, rank()), cfg.num_steps, envs.num_envs)
        rollout, env_state, carry, episodes = collect(agent, envs, state.envs, state.carry, noise)
        return Play(rollout, env_state, carry, episodes)
    return play


def make_play_host(envs: VecEnv, policy: Policy, storage: Storage, noise: Callable) -> Callable[[TrainState], Play]:
    """Collecting in environments outside it; `noise` is a compiled (keys, iteration) -> (T, N, ...)."""
    def play(state: TrainState) -> Play:
        rollout, carry, episodes = collect_host(policy, state.adam.weights, envs, state.carry, storage,
                                                noise(state.keys, state.iteration + 1))
        return Play(rollout, (), carry, episodes)
    return play


def make_learn(cfg: Config, learner: Learner, rank: Callable[[], Array | int] = alone) -> Callable:
    """Everything after collecting: (adam, rollout, memory at its start, keys, iteration) -> (adam, stats)."""
    def learn(adam: Adam, rollout: Rollout, memory: tuple[Array, ...], keys: Keys,
              iteration: Array) -> tuple[Adam, dict[str, Array]]:
        rollout = jax.tree.map(jnp.asarray, rollout)
        remaining = 1.0 - (iteration - 1) / cfg.num_iterations
        rate = cfg.learning_rate * (remaining if cfg.anneal_lr else 1.0)
        clip = cfg.clip_coef * (remaining if cfg.anneal_clip else 1.0)
        no_bootstrap = rollout.terminated if cfg.bootstrap_truncated else rollout.done
        advantage = gae(rollout.reward, rollout.value, rollout.next_value, no_bootstrap, rollout.done, cfg.gamma,
                        cfg.gae_lambda, learner.unroll or 1)
        ret = advantage + rollout.value
        agent = learner.bound(adam.weights)
        draws = draw(cfg, agent, rollout.valid.shape, at(keys.minibatch, iteration, rank()),
                     at(keys.rpo, iteration, rank()))
        normalized, count = normalized_advantage(advantage, rollout.valid, draws.minibatch, agent.recurrent, cfg,
                                                 learner.average)
        batch = flat_batch(rollout, ret, memory, agent.recurrent)
        adam, stats = update(learner, adam, batch, normalized, count, draws, rate, clip, cfg)
        stats["explained_variance"] = explained_variance(rollout.value, ret, rollout.valid, learner.average)
        return adam, stats
    return learn


def make_iterate(play: Callable[[TrainState], Play], learn: Callable) -> Callable:
    """TrainState -> (TrainState, stats, Episodes); pure where `play` is."""
    def iterate(state: TrainState) -> tuple[TrainState, dict[str, Array], Episodes]:
        played, iteration = play(state), state.iteration + 1
        adam, stats = learn(state.adam, played.rollout, state.carry.state, state.keys, iteration)
        return TrainState(adam, played.carry, played.envs, state.keys, iteration), stats, played.episodes
    return iterate


def written_out(cfg: Config) -> bool:
    """Whether loops over epochs and minibatches are written out when compiling: a field of the EnvPool XLA variants."""
    return cfg.unrolls
