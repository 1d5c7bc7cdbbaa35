"""What an update that failed was computed from, and which of its numbers is the first that is not finite."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from proximo.config import Config
from proximo.errors import NumbersError
from proximo.on_torch.gae import estimate_advantages, without_fillers
from proximo.on_torch.learner import make_batch
from proximo.on_torch.loss import ppo_loss
from proximo.on_torch.snapshot import named_weights, to_arrays
from proximo.protocols import Spec
from proximo.types import LossInputs, Rollout


def failed_update(agent: nn.Module, spec: Spec, rollout: Rollout, start: tuple[Tensor, ...], iteration: int,
                  steps: int) -> NumbersError:
    """Return the error of an update in which a gradient was not finite.

    Args:
        agent: The network; its weights are those before the failed step.
        spec: What the network knows of its environments.
        rollout: What was learned from.
        start: The recurrent state before the rollout.
        iteration: The iteration.
        steps: Environment steps before it.
    """
    return NumbersError(f"The loss or its gradient is not finite in iteration {iteration}, after {steps} steps. The "
                        "weights are those before it. Lower --learning-rate, or check the rewards, or your own loss.",
                        partial(evidence, agent, spec, rollout, start, iteration))


def evidence(agent: nn.Module, spec: Spec, rollout: Rollout, start: tuple[Tensor, ...],
             iteration: int) -> dict[str, Any]:
    """Return what an update was computed from: weights, rollout, and the recurrent state before it, as numpy arrays."""
    obs = rollout.obs.index_select(0, torch.arange(len(rollout.reward), device=rollout.reward.device))
    arrays = {name: x for name, x in rollout._replace(obs=obs)._asdict().items() if x is not None}
    return {"spec": spec, "iteration": iteration, "weights": named_weights(agent), "rollout": to_arrays(arrays),
            "state": to_arrays({str(i): x for i, x in enumerate(start)})}


def explain(agent: Any, found: dict[str, Any], cfg: Config) -> Iterator[tuple[bool, str]]:
    """Compute the update again, and yield (whether all is finite, what it is) for every quantity up to the first fault.

    The loss is Proximo's own, over the whole batch instead of minibatches. The noise of RPO and the weights of
    --overlap are left out.

    Args:
        agent: The network, with the weights before the failed step.
        found: What `evidence` returned.
        cfg: The configuration of the run.
    """
    arrays = {name: torch.from_numpy(x) for name, x in found["rollout"].items()}
    rollout = Rollout(**{name: arrays.get(name) for name in Rollout._fields})
    start = tuple(torch.from_numpy(found["state"][str(i)]) for i in range(len(found["state"])))
    for name, x, counts in quantities(agent, rollout, start, found["iteration"], cfg):
        if not x.is_floating_point():
            continue
        kept, bad = x[counts], (~x.isfinite() & counts).nonzero()
        if len(bad):
            where = f", the first one at index {tuple(bad[0].tolist())}" if x.ndim else ""
            yield False, f"{name} {tuple(x.shape)}: {len(bad)} of {kept.numel()} numbers are not finite{where}"
            return
        yield True, f"{name} {tuple(x.shape)}: " + (f"{float(kept.min()):.4g} to {float(kept.max()):.4g}"
                                                    if kept.numel() else "none is valid")


def quantities(agent: Any, rollout: Rollout, start: tuple[Tensor, ...], iteration: int,
               cfg: Config) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield every quantity of the update of an iteration, in the order in which they depend on each other.

    Each is its name, the tensor, and which of its elements count (bool, the same shape): those of valid rows.
    """
    rollout = without_fillers(rollout)
    valid = rollout.valid
    for name, x in rollout._asdict().items():
        if x is not None:
            yield f"rollout: {name}", x, valid if x.ndim == valid.ndim else everything(x)
    for name, x in agent.named_parameters():
        yield f"weights: {name}", x.detach(), everything(x)
    advantage = estimate_advantages(rollout, cfg)
    yield "advantage", advantage, valid
    batch = make_batch(rollout, advantage + rollout.value, start, agent.recurrent)
    shape = batch.value.shape
    kept = advantage[valid].double()
    scaled = (advantage - kept.mean()) / (kept.std(unbiased=False) + 1e-8) if cfg.norm_adv != "none" else advantage
    yield "normalised advantage", scaled, valid
    dist, value, _ = agent(batch.obs, batch.mask, batch.first, batch.state)
    logprob, entropy = dist.logprob(batch.action), dist.entropy()
    for name, x in (("value", value), ("log-probability", logprob), ("entropy", entropy),
                    ("ratio of probabilities", (logprob - batch.logprob).exp())):
        yield f"network: {name}", x.detach(), batch.valid
    loss, stats = ppo_loss(LossInputs(
        logprob=logprob, old_logprob=batch.logprob, value=value, old_value=batch.value,
        advantage=scaled.float().reshape(shape), ret=batch.ret, entropy=entropy, valid=batch.valid,
        count=batch.valid.sum().clamp(min=1).float(), clip_coef=torch.tensor(cfg.clip_coef_at(iteration)),
        ent_coef=torch.tensor(cfg.ent_coef_at(iteration))), cfg)
    for name in ("policy_loss", "value_loss", "entropy"):
        yield f"loss: {name}", stats[name], everything(stats[name])
    yield "loss", loss.detach(), everything(loss)
    trained = {name: p for name, p in agent.named_parameters() if p.requires_grad}
    for name, x in zip(trained, torch.autograd.grad(loss, list(trained.values()), allow_unused=True)):
        if x is not None:
            yield f"gradient: {name}", x, everything(x)


def everything(x: Tensor) -> Tensor:
    """Return that every element counts."""
    return torch.ones_like(x, dtype=torch.bool)
