"""Everything that continues a run exactly, as dicts of numpy arrays, numbers and strings; and back."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from proximo.config import Config
from proximo.envs.normalize import continue_statistics, pack_statistics, unpack_statistics
from proximo.envs.state.gym import check_masks
from proximo.errors import UsageError, reading_checkpoint
from proximo.models.weights import SAME_NETWORK, check_weights
from proximo.on_torch.learner import Adam
from proximo.protocols import VecEnv
from proximo.types import Carry

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def snapshot(iteration: int, steps: int, adam: Adam, agent: nn.Module, carry: Carry,
             env_state: Callable[[], dict[str, Any] | None], keeps_state: bool) -> dict[str, Any]:
    """Return the content of a checkpoint, without the environments if their state cannot be saved."""
    kept: dict[str, Any] = {"iteration": iteration, "steps": steps, "adam": to_arrays(adam._asdict()),
                            "buffers": to_arrays(saved_buffers(agent)), "parameters": describe_parameters(agent),
                            "statistics": pack_statistics(carry.statistics)}
    if keeps_state:
        memory = {f"state{i}": x for i, x in enumerate(carry.state)}
        mask = {} if carry.mask is None else {"mask": carry.mask}
        kept |= {"carry": to_arrays({"obs": carry.obs, "first": carry.first} | mask | memory), "envs": env_state()}
    return kept


@reading_checkpoint()
def restore(state: dict[str, Any], adam: Adam, agent: nn.Module, envs: VecEnv, carry: Carry, keeps_state: bool,
            cfg: Config) -> Carry:
    """Restore a snapshot and return the carry to continue from; UsageError if it belongs to another network.

    The factor of the learning rate keeps its limits where the learning rate has changed, and is 1 without desired_kl.
    """
    check_parameters(state, agent)
    for name, x in adam._asdict().items():
        x.copy_(torch.as_tensor(state["adam"][name]))
    for p, average in zip(agent.parameters(), adam.exp_avg.split([p.numel() for p in agent.parameters()])):
        average.mul_(p.requires_grad)  # of weights that were not frozen before: Adam would still move them
    scale = 1.0 if cfg.desired_kl is None else cfg.adapted_scale(adam.scale, cfg.desired_kl)
    adam.scale.copy_(torch.as_tensor(scale))
    for name, x in saved_buffers(agent).items():
        x.copy_(torch.as_tensor(state["buffers"][name]))
    statistics = unpack_statistics(state["statistics"])
    if not keeps_state:
        return carry._replace(statistics=continue_statistics(statistics, carry.statistics))
    check_masks("mask" in state["carry"], carry.mask is not None)
    envs.load(state["envs"])
    kept = {name: torch.as_tensor(x, device=carry.obs.device) for name, x in state["carry"].items()}
    return Carry(obs=kept["obs"], mask=kept.get("mask"), first=kept["first"],
                 state=tuple(kept[f"state{i}"] for i in range(len(carry.state))), statistics=statistics)


def describe_parameters(agent: nn.Module) -> list[str]:
    """Return the name and the shape of every parameter, in the order in which Adam's vector has them."""
    return [f"{name} {tuple(x.shape)}" for name, x in agent.named_parameters()]


def check_parameters(state: dict[str, Any], agent: nn.Module) -> None:
    """Raise UsageError if a checkpoint belongs to a network with other parameters, or with the same in another order.

    Checkpoints of version 0.1 do not name them; then the numbers of weights are compared.
    """
    here = describe_parameters(agent)
    for before, now in zip(state.get("parameters", here), here):
        if before != now:
            raise UsageError(f"The network of the checkpoint has the parameter {before} where this run's network has "
                             f"{now}. {SAME_NETWORK}")
    found, wanted = state["adam"]["weights"].size, sum(x.numel() for x in agent.parameters())
    if found != wanted:
        raise UsageError(f"The checkpoint has a network of {found} weights, but this run's network has {wanted}. "
                         f"{SAME_NETWORK}")


def named_weights(agent: nn.Module) -> dict[str, np.ndarray]:
    """Return the agent's parameters and buffers as numpy arrays, in the layout that models of both frameworks use."""
    return to_arrays(dict(agent.named_parameters()) | saved_buffers(agent))


def load_weights(agent: AnyModule, weights: Mapping[str, np.ndarray]) -> AnyModule:
    """Give an agent weights by name, as named_weights() returns them, and return it.

    Raises:
        FilesError: They belong to another network.
    """
    tensors = dict(agent.named_parameters()) | saved_buffers(agent)
    check_weights({name: tuple(x.shape) for name, x in tensors.items()}, {name: x.shape for name, x in weights.items()})
    with torch.no_grad():
        for name, x in tensors.items():
            x.copy_(torch.from_numpy(weights[name]))
    return agent


def saved_buffers(agent: nn.Module) -> dict[str, torch.Tensor]:
    """Return the saved buffers of a network, such as running statistics, by name.

    Buffers that were registered with persistent=False are left out, as in state_dict().
    """
    persistent = agent.state_dict(keep_vars=True)
    return {name: x for name, x in agent.named_buffers() if name in persistent}


def to_arrays(tensors: dict[str, Any]) -> dict[str, np.ndarray]:
    """Copy tensors to the host."""
    return {name: x.detach().cpu().numpy().copy() for name, x in tensors.items()}

