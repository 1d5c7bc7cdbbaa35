"""Joins trunk (--model), recurrent layer (--recurrent) and head (action space) to the agent of a configuration."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from torch import nn

from proximo.config import Config
from proximo.errors import UsageError
from proximo.on_torch.agent import SeparateAgent, SharedAgent
from proximo.on_torch.box_heads import MakeBoxHead, PolicyNetwork, make_box_head
from proximo.on_torch.distributions import CategoricalHead, GaussianHead, MultiCategoricalHead
from proximo.on_torch.mlp import MLP
from proximo.on_torch.networks import ImpalaCNN, Memory, NatureCNN, layer_init
from proximo.problems import action_problems


def make_trunk(obs_shape: tuple[int, ...], obs_dtype: np.dtype[Any], cfg: Config) -> tuple[nn.Module, int]:
    """Return the trunk that cfg.model names and its number of features; UsageError if it does not fit observations."""
    if cfg.model == "mlp":
        return make_mlp(obs_shape, cfg.hidden_sizes, cfg), cfg.hidden_sizes[-1]
    least = 36 if cfg.model == "cnn" else 8
    if len(obs_shape) != 3 or obs_dtype != np.uint8 or min(obs_shape[1:]) < least:
        raise UsageError(f"--model {cfg.model} needs images of uint8 with at least {least}x{least} pixels. The "
                         f"observations of {cfg.env_id} are {obs_dtype} of shape {obs_shape}. Use --model mlp.")
    return (NatureCNN(obs_shape, 512, cfg.orthogonal_init), 512) if cfg.model == "cnn" else (ImpalaCNN(obs_shape), 256)


def make_mlp(obs_shape: Sequence[int], sizes: Sequence[int], cfg: Config, out_std: float | None = None) -> nn.Module:
    """Return an MLP from flat observations to sizes[-1] units; `out_std` as for MLP."""
    return MLP([math.prod(obs_shape), *sizes], out_std, len(obs_shape), cfg.orthogonal_init, cfg.activation,
               cfg.layer_norm)


def make_head(network: Callable[[int], nn.Module], action_space: gym.Space[Any],
              make_box: Callable[[gym.spaces.Box], nn.Module] | None = None) -> nn.Module:
    """Return the head for an action space; UsageError for a space without a head.

    Args:
        network: Makes the network below the head from its number of outputs.
        action_space: Of one environment.
        make_box: Makes the head of a Box space; None: a GaussianHead over `network(size)`.
    """
    if isinstance(action_space, gym.spaces.Discrete):
        return CategoricalHead(network(int(action_space.n)), int(action_space.n))
    if isinstance(action_space, gym.spaces.MultiDiscrete):
        return MultiCategoricalHead(network(int(action_space.nvec.sum())), action_space.nvec.flatten().tolist())
    if isinstance(action_space, gym.spaces.MultiBinary):
        choices = [2] * math.prod(action_space.shape)
        return MultiCategoricalHead(network(sum(choices)), choices)
    if isinstance(action_space, gym.spaces.Box):
        size = math.prod(action_space.shape)
        return make_box(action_space) if make_box else GaussianHead(network(size), size)
    raise UsageError(f"The action space {action_space} is not supported. Use Discrete, MultiDiscrete, MultiBinary or "
                     "Box.")


def assemble(envs: Any, cfg: Config, make_box: MakeBoxHead = make_box_head) -> nn.Module:
    """Make the agent of a configuration.

    Weights are drawn from torch's generator, which train() seeds from stream "init" around this call.

    Args:
        envs: Anything with obs_shape, obs_dtype and action_space.
        cfg: The configuration.
        make_box: (network, action space, configuration) -> the head for Box actions.

    Raises:
        UsageError: The configuration does not fit the observations or actions.
    """
    if problems := action_problems(cfg, envs.action_space):
        raise UsageError("\n".join(problems))

    def linear(size: int, std: float, features: int) -> nn.Linear:
        return layer_init(nn.Linear(features, size), std, orthogonal=cfg.orthogonal_init)

    trunk, features = make_trunk(envs.obs_shape, envs.obs_dtype, cfg)  # draws weights, even where it is not used
    if cfg.model == "mlp" and cfg.recurrent == "none" and not cfg.shared_network:
        critic = make_mlp(envs.obs_shape, [*(cfg.value_sizes or cfg.hidden_sizes), 1], cfg, 1.0)
        policy_sizes = cfg.policy_sizes or cfg.hidden_sizes
        network = PolicyNetwork(
            whole=lambda n: make_mlp(envs.obs_shape, [*policy_sizes, n], cfg, 0.01),
            parts=lambda n: (make_mlp(envs.obs_shape, policy_sizes, cfg), linear(n, 0.01, policy_sizes[-1])))
        head = make_head(network.whole, envs.action_space, lambda space: make_box(network, space, cfg))
        return SeparateAgent(critic, head)
    memory: Memory | None = None
    if cfg.recurrent != "none":
        memory = Memory(cfg.recurrent, features, cfg.memory_size, cfg.orthogonal_init)
        features = cfg.memory_size
    value = linear(1, 1.0, features)
    network = PolicyNetwork(whole=lambda n: linear(n, 0.01, features),
                            parts=lambda n: (nn.Identity(), linear(n, 0.01, features)))
    head = make_head(network.whole, envs.action_space, lambda space: make_box(network, space, cfg))
    return SharedAgent(trunk, value, head, memory)
