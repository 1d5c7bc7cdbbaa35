"""A custom loss function: a call before training, and the names of its statistics during training."""

from collections.abc import Callable
from typing import Any

import torch

from proximo.config import Config
from proximo.errors import UsageError, call_part
from proximo.on_torch.learner import make_batch, select_minibatch
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.modes import acting
from proximo.on_torch.rollout import Storage
from proximo.types import LossInputs


def with_network(loss_fn: Callable[..., Any], agent: Any, storage: Storage, cfg: Config) -> Callable[..., Any]:
    """Return a loss function that adds the network, rows of zeros and their distributions to a minibatch of ones.

    Every action is allowed in these rows.
    """
    def loss_of_zeros(batch: LossInputs, cfg: Config) -> Any:
        ones, state = batch.valid, agent.initial_state(cfg.num_envs, storage.device)
        rollout = storage.rollout(*(storage.whole(name) for name in ("logprob", "value", "final_value")))
        mask = None if rollout.mask is None else torch.ones_like(rollout.mask)
        every = make_batch(rollout._replace(mask=mask), rollout.reward, state, agent.recurrent)
        rows_here = every.valid.shape[-1]  # `ones` has those of all processes
        index = torch.arange(ones.shape[-1], device=ones.device) % rows_here
        rows = select_minibatch(every, index, agent.recurrent)
        with acting(agent):  # so that the buffers of the network do not change
            dist, _, _ = agent(rows.obs, rows.mask, rows.first, rows.state)
            return call_part("loss_fn", loss_fn, batch._replace(agent=agent, rows=rows, dist=dist), cfg)

    return loss_fn if loss_fn is ppo_loss else loss_of_zeros


def with_names(loss_fn: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    """Return a loss function that raises UsageError if its statistics are not those of `names`, in this order."""
    def named_loss(batch: LossInputs, cfg: Config) -> Any:
        loss, stats = loss_fn(batch, cfg)
        if list(stats) != names:
            raise UsageError(f"The loss function returns the statistics {', '.join(stats)}, and at first "
                             f"{', '.join(names)}. Return the same names in the same order every time.")
        return loss, stats

    return named_loss
