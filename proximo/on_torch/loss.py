"""The clipped objective of PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7 and 9)."""

import torch
from torch import Tensor

from proximo.config import Config
from proximo.types import LossInputs


def ppo_loss(batch: LossInputs, cfg: Config) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss of one minibatch to minimise, a scalar, and named scalars for the log.

    Each is this rank's share of a mean: a sum over its valid rows, divided by the number of valid rows of all ranks.
    """
    def mean(x: Tensor) -> Tensor:
        return torch.where(batch.valid, x, 0.0).sum() / batch.count

    logratio = batch.logprob - batch.old_logprob
    ratio, clip = logratio.exp(), batch.clip_coef
    clipped_ratio = torch.clamp(ratio, 1 - clip, 1 + clip)
    policy_loss = mean(torch.maximum(-batch.advantage * ratio, -batch.advantage * clipped_ratio))  # detail 8

    error = (batch.value - batch.ret).square()
    if cfg.clip_vloss:  # detail 9
        clipped_value = batch.old_value + torch.clamp(batch.value - batch.old_value, -clip, clip)
        error = torch.maximum(error, (clipped_value - batch.ret).square())
    value_loss = 0.5 * mean(error)

    entropy = mean(batch.entropy)
    loss = policy_loss - batch.ent_coef * entropy + cfg.vf_coef * value_loss  # detail 10
    with torch.no_grad():  # detail 12; approx_kl: Schulman 2020, "Approximating KL divergence"
        stats = {"value_loss": value_loss, "policy_loss": policy_loss, "entropy": entropy,
                 "old_approx_kl": mean(-logratio), "approx_kl": mean(ratio - 1 - logratio),
                 "clipfrac": mean(((ratio - 1).abs() > clip).to(ratio.dtype))}
    return loss, {name: x.detach() for name, x in stats.items()}
