"""PPO in JAX with the environment inside: pure functions `init` and `step`, to jit, vmap and scan as you like.

Four agents are trained at once. Agent i ends with the weights of `proximo train ppo --framework jax --seed i`, up to
the rounding that vmap changes. One agent without vmap ends with the same weights, bit for bit.
"""

import sys
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from proximo.config import Config
from proximo.envs.jax_control import make_jax_control
from proximo.on_jax.agent import SeparateAgent
from proximo.on_jax.distributions import CategoricalHead
from proximo.on_jax.mlp import MLP
from proximo.on_jax.pure_training import make_training
from proximo.protocols import Spec


def make_agent(spec: Spec, cfg: Config) -> SeparateAgent:
    """Separate networks of two layers of 64 tanh units (detail 13)."""
    obs_size, num_actions = spec.obs_shape[0], int(spec.action_space.n)
    critic = MLP([obs_size, 64, 64, 1], 1.0)
    return SeparateAgent(critic, CategoricalHead(MLP([obs_size, 64, 64, num_actions], 0.01), num_actions))


def train_one(seed: int = 1, **settings: Any) -> dict[str, np.ndarray]:
    """Train one agent, an iteration per call, and return the weights by name."""
    cfg = replace(Config(env_id="CartPole-v1", total_timesteps=500_000, framework="jax"), **settings)
    training = make_training(cfg, make_jax_control, make_agent)
    state, step = training.init(jax.random.key(seed)), jax.jit(training.step)
    for _ in range(cfg.num_iterations):
        state, _ = step(state)
    return {name: np.asarray(x) for name, x in state.adam.weights.items()}


def train_four(**settings: Any) -> jax.Array:
    """Train four agents in one compiled program. Returns the mean return of each iteration's episodes, (I, 4)."""
    cfg = replace(Config(env_id="CartPole-v1", total_timesteps=500_000, framework="jax"), **settings)
    training = make_training(cfg, make_jax_control, make_agent)
    keys = jnp.stack([jax.random.key(seed) for seed in range(1, 5)])
    states, step = jax.vmap(training.init)(keys), jax.vmap(training.step)

    def iteration(states: Any, _: None) -> tuple[Any, jax.Array]:
        states, metrics = step(states)
        finished, ret = metrics.episode.finished, metrics.episode.ret  # (4, T, N)
        return states, jnp.where(finished, ret, 0.0).sum((1, 2)) / finished.sum((1, 2)).clip(1)

    return jax.jit(lambda states: jax.lax.scan(iteration, states, length=cfg.num_iterations)[1])(states)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit("jax_ppo.py takes no arguments: change the values of cfg.")
    for i, means in enumerate(np.asarray(train_four())):
        if i % 50 == 0:
            print(f"iteration {i:4}: mean return of four agents {means.round(1)}")
