"""Joins trunk (--model), recurrent layer (--recurrent) and head (action space) to the agent of a configuration."""

import math
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from flax import nnx

from proximo.config import Config
from proximo.envs.arrays.joint_actions import action_parts, has_mask, num_outputs
from proximo.envs.arrays.model_fit import action_problems, all_parts, check_model, has_image_parts
from proximo.errors import UsageError
from proximo.on_jax.agent import SeparateAgent, SharedAgent
from proximo.on_jax.box_heads import Identity, MakeBoxHead, PolicyNetwork, make_box_head
from proximo.on_jax.distributions import CategoricalHead, GaussianHead, MultiCategoricalHead
from proximo.on_jax.joint import JointHead
from proximo.on_jax.networks import Linear, RecurrentLayer
from proximo.on_jax.parameters import layer_init
from proximo.on_jax.trunks import make_network, make_trunk
from proximo.on_jax.value_norm import NormalizedCritic
from proximo.protocols import Spec


def make_head(network: Callable[[int], nnx.Module], action_space: gym.Space[Any],
              make_box: Callable[[gym.spaces.Box], nnx.Module] | None = None) -> nnx.Module:
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
    if isinstance(action_space, (gym.spaces.Dict, gym.spaces.Tuple)):
        return make_joint_head(network, action_parts(action_space))
    raise UsageError(f"The action space {action_space} is not supported. Use Discrete, MultiDiscrete, MultiBinary, "
                     "Box, or Dict and Tuple of these.")


def make_joint_head(network: Callable[[int], nnx.Module], parts: list[gym.Space[Any]]) -> nnx.Module:
    """Return the head of an action of several parts over one network; Box parts are Gaussians."""
    sizes = [num_outputs(part) for part in parts]
    heads = [make_head(lambda n: Identity(), part) for part in parts]
    return JointHead(network(sum(sizes)), heads, sizes, [has_mask(part) for part in parts])


def assemble(spec: Spec, cfg: Config, make_box: MakeBoxHead = make_box_head) -> nnx.Module:
    """Make the agent of a configuration.

    Its weights are zero; train() draws first values from stream "init" (parameters.initial_weights).

    Args:
        spec: What the agent sees of the environments.
        cfg: The configuration.
        make_box: (network, action space, configuration) -> the head for Box actions.

    Raises:
        UsageError: The configuration does not fit the observations or actions.
    """
    if problems := action_problems(cfg, spec.action_space):
        raise UsageError("\n".join(problems))

    if cfg.model == "mlp" and cfg.recurrent == "none" and not cfg.shared_network and not has_image_parts(spec):
        check_model(spec, cfg)
        return separate_agent(spec, cfg, make_box)
    return shared_agent(spec, cfg, make_box)


def separate_agent(spec: Spec, cfg: Config, make_box: MakeBoxHead) -> SeparateAgent:
    """Make networks of policy and value that share nothing."""
    critic = make_network(spec, [*(cfg.value_sizes or cfg.hidden_sizes), 1], cfg, 1.0, all_parts)
    policy_sizes = cfg.policy_sizes or cfg.hidden_sizes

    def whole(size: int) -> nnx.Module:
        return make_network(spec, [*policy_sizes, size], cfg, 0.01)

    def parts(size: int) -> tuple[nnx.Module, Linear]:
        return make_network(spec, policy_sizes, cfg), linear(policy_sizes[-1], size, 0.01, cfg)

    network = PolicyNetwork(whole=whole, parts=parts)
    head = make_head(whole, spec.action_space, lambda space: make_box(network, space, cfg))
    return SeparateAgent(scaled(critic, cfg), head)


def shared_agent(spec: Spec, cfg: Config, make_box: MakeBoxHead) -> SharedAgent:
    """Make a linear policy and a linear value function over a trunk and its recurrent layer, if there is one."""
    trunk, features = make_trunk(spec, cfg)
    memory = None if cfg.recurrent == "none" else RecurrentLayer(
        cfg.recurrent, features, cfg.memory_size, cfg.orthogonal_init)
    width = features if memory is None else cfg.memory_size
    value = linear(width, 1, 1.0, cfg)

    def whole(size: int) -> nnx.Module:
        return linear(width, size, 0.01, cfg)

    def parts(size: int) -> tuple[nnx.Module, Linear]:
        return Identity(), linear(width, size, 0.01, cfg)

    network = PolicyNetwork(whole=whole, parts=parts)
    head = make_head(whole, spec.action_space, lambda space: make_box(network, space, cfg))
    return SharedAgent(trunk, scaled(value, cfg), head, memory)


def scaled(critic: nnx.Module, cfg: Config) -> nnx.Module:
    """Return the network of a value function, with the moments of --norm-value around it."""
    return NormalizedCritic(critic) if cfg.norm_value else critic


def linear(features: int, size: int, std: float, cfg: Config) -> Linear:
    """Return a linear layer of a head, with weights of gain `std`."""
    return layer_init(Linear(features, size), std, orthogonal=cfg.orthogonal_init)
