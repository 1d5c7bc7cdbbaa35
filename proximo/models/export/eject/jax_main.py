"""Networks and training loop of an ejected file on JAX, for environments that are part of an iteration.

The library makes them for every kind of environment, network and device; here they are written for one.
"""

import math
from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from proximo.config import Config
from proximo.envs.episodes import finished_episodes
from proximo.envs.jax_control import ControlPure, make_jax_control
from proximo.errors import NumbersError
from proximo.on_jax.agent import SeparateAgent
from proximo.on_jax.distributions import CategoricalHead
from proximo.on_jax.learner import start_adam
from proximo.on_jax.networks import times_transposed
from proximo.on_jax.parameters import Weights, make_bind, orthogonal_matrix
from proximo.on_jax.train_step import Metrics, TrainState, learn, play, stream_key, stream_keys
from proximo.streams import stream_generator
from proximo.types import Carry, Iteration


class Linear(nnx.Module):
    """x W^T + b."""

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        self.weight, self.bias = nnx.Param(jnp.zeros((outputs, inputs))), nnx.Param(jnp.zeros(outputs))
        self.std = std  # gain of the first weights

    def __call__(self, x: Array) -> Array:
        """(..., inputs) -> (..., outputs)."""
        return times_transposed(x, self.weight[...]) + self.bias[...]


class MLP(nnx.Module):
    """Linear layers with tanh between them (details 13 and 26). `sizes` begins with that of an observation."""

    def __init__(self, sizes: Sequence[int], out_std: float) -> None:
        gains = [math.sqrt(2)] * (len(sizes) - 2) + [out_std]
        self.layers = nnx.List([Linear(a, b, std) for (a, b), std in zip(pairwise(sizes), gains)])

    def __call__(self, x: Array) -> Array:
        """(..., sizes[0]) -> (..., sizes[-1])."""
        *hidden, last = self.layers
        for layer in hidden:
            x = jnp.tanh(layer(x))
        return last(x)


def seeded_agent(envs: ControlPure, cfg: Config) -> tuple[Callable[[Weights], Any], Weights]:
    """Return the function that makes the agent with given weights, and the first weights, of stream "init"."""
    inputs, actions = math.prod(envs.obs_shape), int(envs.action_space.n)  # type: ignore[attr-defined]
    critic, network = MLP([inputs, *cfg.hidden_sizes, 1], 1.0), MLP([inputs, *cfg.hidden_sizes, actions], 0.01)
    agent = SeparateAgent(critic, CategoricalHead(network, actions))
    return make_bind(agent), initial_weights(agent, stream_generator(cfg.seed, "init"))


def initial_weights(agent: SeparateAgent, generator: np.random.Generator) -> Weights:
    """Draw orthogonal weights, and biases of 0, by parameter name (detail 2)."""
    weights: Weights = {}
    for path, layer in nnx.iter_modules(agent):
        if isinstance(layer, Linear):
            name, weight = ".".join(map(str, path)), orthogonal_matrix(generator, *layer.weight.shape)
            weights |= {f"{name}.weight": jnp.asarray(layer.std * weight, jnp.float32),
                        f"{name}.bias": jnp.zeros(len(weight))}
    return weights


def iterate(cfg: Config, bind: Callable[[Weights], Any], envs: ControlPure,
            state: TrainState) -> tuple[TrainState, Metrics]:
    """Play T steps in every environment, and learn from them."""
    played, iteration = play(cfg, bind, envs, state), state.iteration + 1  # type: ignore[arg-type, call-arg]
    adam, losses = learn(cfg, bind, state.adam, played.rollout, state.keys.minibatch, iteration)  # type: ignore[arg-type, call-arg]
    after = TrainState(adam=adam, carry=played.carry, envs=played.envs, keys=state.keys, iteration=iteration)
    return after, Metrics(losses=losses, charts={}, episode=played.episode, valid=None)


def train(cfg: Config) -> Generator[Iteration, None, None]:
    """Proximal policy optimization (Schulman et al. 2017, algorithm 1). Yields an Iteration per update."""
    jax.config.update("jax_platforms", "cpu")  # small networks are faster there than on a GPU
    jax.config.update("jax_enable_x64", False)
    envs: ControlPure = make_jax_control(cfg, ())  # type: ignore[assignment]
    bind, weights = seeded_agent(envs, cfg)
    env_state, step = jax.jit(lambda key: envs.reset(key))(stream_key(cfg.seed, "env"))
    now = TrainState(adam=start_adam(weights), carry=Carry(obs=step.obs, mask=None, first=step.first, state=(),
                     statistics=None), envs=env_state, keys=stream_keys(cfg.seed), iteration=jnp.int32(0))
    compiled = jax.jit(lambda state: iterate(cfg, bind, envs, state), donate_argnums=0)
    steps = 0
    for iteration in range(1, cfg.num_iterations + 1):
        now, metrics = compiled(now)
        if not now.adam.ok:
            raise NumbersError(
                f"The loss or its gradient is not finite in iteration {iteration}, after {steps} steps. The weights "
                "are those before it. Lower --learning-rate, or check the rewards.")
        finished, steps = finished_episodes(jax.tree.map(np.array, metrics.episode), np.zeros(0), steps)
        stats = {f"losses/{name}": float(x) for name, x in metrics.losses.items()}
        yield Iteration(iteration=iteration, steps=steps, stats=stats, finished=finished,  # type: ignore[call-arg]
                        weights=partial(jax.tree.map, np.array, now.adam.weights))
