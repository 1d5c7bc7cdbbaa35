"""One iteration of PPO (Schulman et al. 2017, algorithm 1) from state to state: play, estimate advantages, update.

Everything is pure here but for `play`, which may step environments outside JAX (play_pool.py, play_host.py).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from proximo.envs.normalize import Normalizer
from proximo.on_jax.gae import without_fillers
from proximo.on_jax.learner import (
    Adam,
    Learner,
    explained_variance,
    make_batch,
    minibatch_advantages,
    minibatch_indices,
)
from proximo.on_jax.rollout import Collected, collect
from proximo.on_jax.value_norm import count_returns
from proximo.protocols import Episode, PureEnv
from proximo.streams import stream_seed
from proximo.types import Carry, Coefficients, Minibatches, Rollout

Rank = Callable[[], Array | int]  # this rank's number, inside the compiled function


class Keys(NamedTuple):
    """The streams of random numbers. They never change: each is folded with the iteration and the rank."""

    action: Array
    minibatch: Array
    rpo: Array


class TrainState(NamedTuple):
    """Everything that a run continues from."""

    adam: Adam
    carry: Carry
    envs: Any  # state of the environments; () where they are stepped outside the compiled function
    keys: Keys
    iteration: Array  # () int32, iterations done


class Metrics(NamedTuple):
    """What an iteration reports, as arrays of fixed shape."""

    losses: dict[str, Any]  # () means over all minibatches
    charts: dict[str, Any]  # () see Collected
    episode: Episode  # (T, N) arrays: `finished`, and the return and length of what finished
    valid: Any  # (T,) number of valid rows


PlayFn = Callable[[TrainState], Collected]
LearnFn = Callable[..., tuple[Adam, dict[str, Array]]]  # (adam, rollout, recurrent state, keys, iteration)
StepFn = Callable[[TrainState], tuple[TrainState, Metrics]]


def key_data(number: int) -> np.ndarray:
    """Return the data of the key that a 64-bit number stands for, (2,) uint32."""
    return np.array([number >> 32, number & 0xFFFFFFFF], np.uint32)


def stream_key(seed: int, stream: str, iteration: int = 0) -> Array:
    """Make the key of one stream."""
    return jax.random.wrap_key_data(jnp.asarray(key_data(stream_seed(seed, stream, iteration))))


def stream_keys(seed: int) -> Keys:
    """Make the keys that an iteration draws from."""
    return Keys(*(stream_key(seed, stream) for stream in Keys._fields))


def fold_key(key: Array, iteration: Array, rank: Array | int) -> Array:
    """Return the key of a stream in one iteration on one rank."""
    return jax.random.fold_in(jax.random.fold_in(key, iteration), rank)


def make_play(learner: Learner, envs: PureEnv, normalizer: Normalizer, rank: Rank = lambda: 0) -> PlayFn:
    """Make the function that plays T steps inside the compiled function, with the weights of a state."""
    return partial(play, learner, envs, normalizer, rank)


def play(learner: Learner, envs: PureEnv, normalizer: Normalizer, rank: Rank, state: TrainState) -> Collected:
    """Play T steps with the weights of a state."""
    agent, key = learner.bind(state.adam.weights), fold_key(state.keys.action, state.iteration + 1, rank())
    noise = agent.head.noise(key, learner.cfg.num_steps, envs.num_envs)
    return collect(agent, envs, normalizer, state.envs, state.carry, noise)


def make_learn(learner: Learner, rank: Rank = lambda: 0) -> LearnFn:
    """Make the function learn() for one rank."""
    return partial(learn, learner, rank)


def learn(learner: Learner, rank: Rank, adam: Adam, rollout: Rollout, memory: tuple[Array, ...], keys: Keys,
          iteration: Array) -> tuple[Adam, dict[str, Array]]:
    """Estimate advantages and train on minibatches. Returns the losses too.

    `memory` is the recurrent state at the start of the rollout, and `iteration` that of this rollout, counted from 1.
    """
    cfg, agent, reduce_sum = learner.cfg, learner.agent, learner.all_reduce_sum
    rollout = without_fillers(jax.tree.map(jnp.asarray, rollout))
    advantage = learner.estimate(rollout, cfg)
    ret = advantage + rollout.value
    if cfg.norm_value:
        adam = adam._replace(weights=count_returns(adam.weights, ret, rollout.valid, reduce_sum, adam.ok))
    index = minibatch_indices(cfg, rollout.valid.shape, agent.recurrent, fold_key(keys.minibatch, iteration, rank()))
    sequence = rollout.valid.shape[:1] if agent.recurrent else ()
    noise = agent.head.learning_noise(fold_key(keys.rpo, iteration, rank()), *index.shape[:2], *sequence,
                                      index.shape[-1])
    normalized, count = minibatch_advantages(advantage, rollout.valid, index, agent.recurrent, cfg, reduce_sum)
    adam, losses = learner.update(learner, adam, make_batch(rollout, ret, memory, agent.recurrent),
                                  Minibatches(index=index, advantage=normalized, count=count, noise=noise),
                                  cfg.learning_rate_at(iteration),
                                  Coefficients(cfg.clip_coef_at(iteration), cfg.ent_coef_at(iteration)))
    losses["explained_variance"] = explained_variance(rollout.value, ret, rollout.valid, reduce_sum)
    return adam, losses


def make_step(play: PlayFn, learn: LearnFn) -> StepFn:
    """Make the function of one whole iteration; it is pure where `play` is."""
    def step(state: TrainState) -> tuple[TrainState, Metrics]:
        iteration = state.iteration + 1
        played = play(state)
        adam, losses = learn(state.adam, played.rollout, state.carry.state, state.keys, iteration)
        after = TrainState(adam=adam, carry=played.carry, envs=played.envs, keys=state.keys, iteration=iteration)
        valid = played.rollout.valid.sum(1, dtype=np.int32)
        return after, Metrics(losses=losses, charts=played.charts, episode=played.episode, valid=valid)

    return step
