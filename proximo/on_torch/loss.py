"""The clipped objective of PPO (Schulman et al. 2017, arXiv 1707.06347, eq. 7 and 9)."""

import torch
from torch import Tensor

from proximo.config import Config


def ppo_loss(logprob: Tensor, old_logprob: Tensor, value: Tensor, old_value: Tensor, advantage: Tensor, ret: Tensor,
             entropy: Tensor, valid: Tensor, count: Tensor, clip_coef: Tensor,
             cfg: Config) -> tuple[Tensor, dict[str, Tensor]]:
    """All rows of one minibatch, any shape; `count` is how many are valid over all ranks (at least 1), `advantage` is
    normalised already. Every mean is over valid rows. Returns the loss to minimise and named means for the log."""
    def mean(x: Tensor) -> Tensor:
        return torch.where(valid, x, 0.0).sum() / count

    logratio = logprob - old_logprob
    ratio = logratio.exp()
    clipped_ratio = torch.clamp(ratio, 1 - clip_coef, 1 + clip_coef)
    policy_loss = mean(torch.maximum(-advantage * ratio, -advantage * clipped_ratio))  # detail 8

    error = (value - ret).square()
    if cfg.clip_vloss:  # detail 9
        clipped_value = old_value + torch.clamp(value - old_value, -clip_coef, clip_coef)
        error = torch.maximum(error, (clipped_value - ret).square())
    value_loss = 0.5 * mean(error)

    mean_entropy = mean(entropy)
    loss = policy_loss - cfg.ent_coef * mean_entropy + cfg.vf_coef * value_loss  # detail 10
    stats = {"value_loss": value_loss, "policy_loss": policy_loss, "entropy": mean_entropy}
    return loss, {name: x.detach() for name, x in stats.items()} | _debug(ratio.detach(), logratio.detach(), mean,
                                                                         clip_coef)


def _debug(ratio: Tensor, logratio: Tensor, mean, clip_coef: Tensor) -> dict[str, Tensor]:
    """Detail 12: both estimators of the KL divergence (Schulman 2020, "Approximating KL divergence") and clipfrac."""
    return {"old_approx_kl": mean(-logratio), "approx_kl": mean(ratio - 1 - logratio),
            "clipfrac": mean(((ratio - 1).abs() > clip_coef).to(ratio.dtype))}
