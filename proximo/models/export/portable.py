"""A trained agent as one module from raw observations to actions, with everything in between inside."""

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from proximo.errors import UsageError
from proximo.models.export.actions import MostLikelyAction
from proximo.models.export.observations import make_observation, read_parts
from proximo.models.export.ports import Port, Trained, action_ports, extra_port, mask_port, obs_ports
from proximo.on_torch.agent import SeparateAgent, SharedAgent


class NoValue(nn.Module):
    """Takes the place of the value function, which an exported file does not need."""

    def forward(self, x: Any) -> Tensor:
        """Return a value that nothing reads."""
        return torch.zeros(1)


class Portable(nn.Module):
    """Named arrays to named arrays: observations, mask, state and first to the most likely action and the next state.

    Attributes:
        inputs: The inputs, in order.
        outputs: The outputs, in order.

    Args:
        model: What is exported. Its network is copied.
        also: An additional output, "logits" or "mean", or "".
        mask: Whether there is an input for action masks, where actions can be masked.

    Raises:
        UsageError: The network is not one of torch, or the spaces cannot be inputs and outputs of a file.
    """

    def __init__(self, model: Trained, also: str = "", mask: bool = True) -> None:
        super().__init__()
        if not isinstance(model.module, nn.Module):
            raise UsageError("The network is one of your own in JAX. Only networks of torch can be exported; those of "
                             "Proximo can, whichever framework trained them.")
        agent: Any = copy.deepcopy(model.module).cpu().eval().requires_grad_(False)
        if isinstance(agent, (SeparateAgent, SharedAgent)):
            agent.critic = NoValue()
        read_parts(agent, model.spec, model.cfg)
        self.agent = agent
        space = model.spec.action_space
        masks = mask_port(space) if mask else None
        self.state_shapes = [part.shape[1:] for part in agent.initial_state(1)]
        state = (sum(map(math.prod, self.state_shapes)),)
        self.inputs = [*obs_ports(model.spec, model.cfg), *([masks] if masks else [])]
        self.outputs = [*action_ports(space), *([extra_port(space, also)] if also else [])]
        if self.state_shapes:
            self.inputs += [Port("state", state, np.dtype(np.float32)), Port("first", (), np.dtype(np.bool_))]
            self.outputs.append(Port("next_state", state, np.dtype(np.float32)))
        self.observation = make_observation(model.spec, model.cfg, model.moments)
        self.action = MostLikelyAction(space, also)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Act once for every row."""
        rows = inputs[self.inputs[0].name].shape[0]
        first = inputs["first"] if self.state_shapes else torch.zeros(rows, dtype=torch.bool)
        rows_of = inputs["state"].split([*map(math.prod, self.state_shapes)], -1) if self.state_shapes else ()
        state = tuple(part.reshape(-1, *shape) for part, shape in zip(rows_of, self.state_shapes, strict=True))
        dist, _, state = self.agent(self.observation(inputs), inputs.get("mask"), first, state)
        outputs = self.action(dist)
        rest = {"next_state": torch.cat([part.reshape(rows, -1) for part in state], -1)} if self.state_shapes else {}
        return outputs | rest
