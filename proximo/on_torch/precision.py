"""--precision bf16: the networks of an agent in bfloat16, by autocast; everything around them stays in float32."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from proximo.errors import UsageError
from proximo.on_torch.agent import SeparateAgent, SharedAgent
from proximo.on_torch.device import cpu_flags
from proximo.on_torch.distributions import ActionHead

BF16_FLAGS = {"avx512_bf16", "amx_bf16"}  # of processors with instructions for products of bfloat16


def use_bf16(agent: Any, device: torch.device) -> None:
    """Make the networks of an agent compute convolutions and products in bfloat16, with sums in float32.

    Inputs and weights of each layer are rounded, and so are the results and the activations between layers
    (mixed precision: Micikevicius et al. 2018, arXiv 1710.03740; bfloat16: Kalamkar et al. 2019, arXiv 1905.12322).
    Weights and their gradients, layers that give values and parameters of distributions, and recurrent layers stay in
    float32. bfloat16 has the exponents of float32, so the loss is not scaled. Parameters keep their names.

    Args:
        agent: A SharedAgent, or a SeparateAgent with an ActionHead. Modules of it get another `forward`.
        device: Where it computes.

    Raises:
        UsageError: The device would emulate bfloat16, or the agent is of another kind.
    """
    if not has_bf16(device):
        place = "GPU" if device.type == "cuda" else "processor"
        raise UsageError(f"precision=bf16 is not available: this {place} would emulate it, which is slower than "
                         "float32. It needs a CPU with AVX512-BF16 or AMX, or a GPU with bfloat16. Use --precision "
                         "float32.")
    if isinstance(agent, SharedAgent):
        compute_in_bf16(agent.trunk)
        return
    network = policy_network(agent) if isinstance(agent, SeparateAgent) else None
    if network is None:
        raise UsageError(f"precision=bf16 does not know the networks of {type(agent).__name__}. Make it a SharedAgent, "
                         "or a SeparateAgent with an ActionHead, or use --precision float32.")
    for one in (agent.critic, network):
        compute_in_bf16(one)
        linear = [layer for layer in one.modules() if isinstance(layer, nn.Linear)]
        for layer in linear[-1:]:
            layer.forward = partial(float32_forward, layer)  # type: ignore[method-assign]


def has_bf16(device: torch.device) -> bool:
    """Return whether a device has instructions for products of bfloat16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return not BF16_FLAGS.isdisjoint(cpu_flags().split())


def policy_network(agent: SeparateAgent) -> nn.Module | None:
    """Return the network below the head, or None if the head has none of its own."""
    part: Any = agent.head
    while isinstance(part, ActionHead):
        part = part.network
    return None if part is agent.head else part


def compute_in_bf16(network: nn.Module) -> None:
    """Replace the `forward` of a network that maps one tensor to another; a copy of the network keeps the new one."""
    network.forward = partial(bf16_forward, network)


def bf16_forward(network: Any, x: Tensor) -> Tensor:
    """Call a network with convolutions and products in bfloat16. Returns float32."""
    with torch.autocast(x.device.type, torch.bfloat16):
        return type(network).forward(network, x).float()  # type: ignore[no-any-return]


def float32_forward(layer: nn.Linear, x: Tensor) -> Tensor:
    """Call a layer of such a network in float32."""
    with torch.autocast(x.device.type, enabled=False):
        return type(layer).forward(layer, x.float())
