"""Generalized advantage estimation (Schulman et al. 2016, arXiv 1506.02438, eq. 16; detail 5)."""

import torch
from torch import Tensor

from proximo.config import Config
from proximo.types import Rollout


def without_fillers(rollout: Rollout) -> Rollout:
    """Put 0 for rewards and values of rows that are not valid, so that they add nothing to advantages.

    Their log-probabilities stay those of the network: with others, the ratio of probabilities could overflow.
    """
    return rollout._replace(**{name: torch.where(rollout.valid, getattr(rollout, name), 0.0)
                               for name in ("reward", "value", "next_value")})


def estimate_advantages(rollout: Rollout, cfg: Config) -> Tensor:
    """Return the advantages (T, N) of a rollout in which rows that are not valid are 0; see Setup.estimate."""
    no_bootstrap = rollout.terminated if cfg.bootstrap_truncated else rollout.done
    return gae(rollout.reward, rollout.value, rollout.next_value, no_bootstrap, rollout.done, cfg.gamma, cfg.gae_lambda)


def gae(reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, done: Tensor,
        gamma: float, gae_lambda: float) -> Tensor:
    """Estimate advantages: A[t] = delta[t] + gamma * gae_lambda * A[t + 1], and A[t] = delta[t] where `done`.

    delta[t] = reward[t] + gamma * next_value[t] - value[t]. `next_value` is the value of what followed each action; it
    counts as 0 where `terminated`. All tensors are (T, N). The targets of the value function are A + value.
    """
    delta = reward + gamma * torch.where(terminated, 0.0, next_value) - value
    decay = (~done).to(delta.dtype) * (gamma * gae_lambda)
    return _sum_backwards_on_cpu(delta, decay) if delta.device.type == "cpu" else _sum_backwards_doubling(delta, decay)


def _sum_backwards_on_cpu(delta: Tensor, decay: Tensor) -> Tensor:
    """Compute x[t] = delta[t] + decay[t] * x[t + 1] over numpy views, which is faster than operators per step.

    The rows of a vector are no views, so it gets a second axis.
    """
    total = delta.numpy().copy()
    rows, decays = (list(x[:, None] if x.ndim == 1 else x) for x in (total, decay.numpy()))
    for t in range(len(rows) - 2, -1, -1):
        rows[t] += decays[t] * rows[t + 1]
    return torch.from_numpy(total)


def _sum_backwards_doubling(delta: Tensor, decay: Tensor) -> Tensor:
    """Compute the same in log2(T) steps (Hillis & Steele 1986), for devices where loops are slow."""
    total, decay, span = delta.clone(), decay.clone(), 1
    while span < len(total):
        total[:-span] = total[:-span] + decay[:-span] * total[span:]
        decay[:-span] = decay[:-span] * decay[span:]
        span *= 2
    return total
