"""Joins trunk (--model), recurrent layer (--recurrent) and head (action space) to the agent of a configuration."""

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from flax import nnx

from proximo.config import Config
from proximo.errors import UsageError
from proximo.on_jax.agent import SeparateAgent, SharedAgent
from proximo.on_jax.distributions import CategoricalHead, GaussianHead, MultiCategoricalHead
from proximo.on_jax.networks import MLP, ImpalaCNN, Linear, Memory, NatureCNN
from proximo.on_jax.parameters import layer_init

MakeGaussian = Callable[[nnx.Module, int], nnx.Module]  # (network, number of actions) -> head


def make_trunk(obs_shape: tuple[int, ...], obs_dtype: np.dtype[Any], cfg: Config) -> tuple[nnx.Module, int]:
    """Return the trunk that cfg.model names and its number of features; UsageError if it does not fit observations."""
    if cfg.model == "mlp":
        sizes = [math.prod(obs_shape), cfg.hidden_size, cfg.hidden_size]
        return MLP(sizes, obs_ndim=len(obs_shape), orthogonal=cfg.orthogonal_init), cfg.hidden_size
    least = 36 if cfg.model == "cnn" else 8
    if len(obs_shape) != 3 or obs_dtype != np.uint8 or min(obs_shape[1:]) < least:
        raise UsageError(f"--model {cfg.model} needs images of uint8 with at least {least}x{least} pixels. The "
                         f"observations of {cfg.env_id} are {obs_dtype} of shape {obs_shape}. Use --model mlp.")
    return (NatureCNN(obs_shape, 512, cfg.orthogonal_init), 512) if cfg.model == "cnn" else (ImpalaCNN(obs_shape), 256)


def make_head(network: Callable[[int], nnx.Module], action_space: gym.Space[Any],
              make_gaussian: MakeGaussian = GaussianHead) -> nnx.Module:
    """Return the head for an action space over `network(out_size)`; UsageError for a space without a head."""
    if isinstance(action_space, gym.spaces.Discrete):
        return CategoricalHead(network(int(action_space.n)), int(action_space.n))
    if isinstance(action_space, gym.spaces.MultiDiscrete):
        return MultiCategoricalHead(network(int(action_space.nvec.sum())), action_space.nvec.flatten().tolist())
    if isinstance(action_space, gym.spaces.MultiBinary):
        choices = [2] * math.prod(action_space.shape)
        return MultiCategoricalHead(network(sum(choices)), choices)
    if isinstance(action_space, gym.spaces.Box):
        size = math.prod(action_space.shape)
        return make_gaussian(network(size), size)
    raise UsageError(f"The action space {action_space} is not supported. Use Discrete, MultiDiscrete, MultiBinary or "
                     "Box.")


def assemble(envs: Any, cfg: Config, make_gaussian: MakeGaussian = GaussianHead) -> nnx.Module:
    """Make the agent of a configuration.

    Its weights are zero; train() draws first values from stream "init" (parameters.initial_weights).

    Args:
        envs: Anything with obs_shape, obs_dtype and action_space.
        cfg: The configuration.
        make_gaussian: The head for Box actions.
    """
    def linear(size: int, std: float) -> nnx.Module:
        return layer_init(Linear(features, size), std, orthogonal=cfg.orthogonal_init)

    trunk, features = make_trunk(envs.obs_shape, envs.obs_dtype, cfg)
    if cfg.model == "mlp" and cfg.recurrent == "none" and not cfg.shared_network:
        hidden, ndim = [math.prod(envs.obs_shape), features, features], len(envs.obs_shape)
        return SeparateAgent(MLP([*hidden, 1], 1.0, ndim, cfg.orthogonal_init),
                             make_head(lambda n: MLP([*hidden, n], 0.01, ndim, cfg.orthogonal_init),
                                       envs.action_space, make_gaussian))
    memory = None
    if cfg.recurrent != "none":
        memory = Memory(cfg.recurrent, features, cfg.memory_size, cfg.orthogonal_init)
        features = cfg.memory_size
    critic = linear(1, 1.0)
    return SharedAgent(trunk, critic, make_head(lambda n: linear(n, 0.01), envs.action_space, make_gaussian), memory)
