"""--compile: the closed functions of acting and learning, as freeze.py compiles them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from proximo.config import Config
from proximo.errors import notify
from proximo.on_torch.agent import Acted
from proximo.on_torch.aot import freezable, freeze, functional
from proximo.on_torch.learner import Batch, Learner
from proximo.on_torch.optimizer import Adam, apply_gradient
from proximo.on_torch.rollout import Carry, Policy, Storage


def can_freeze(device: torch.device) -> bool:
    """Whether --compile works here; says why where it does not."""
    reason = freezable() if device.type == "cpu" else "--compile freezes for CPUs only so far; running eager"
    if reason:
        notify(reason)
    return reason is None


def frozen_policy(policy: Policy, agent: Any, adam: Adam, storage: Storage, carry: Carry) -> Policy:
    """The same policy from binaries for exactly these shapes; the weights stay where the optimizer moves them."""
    weights, parts = adam.weights, len(carry.state)
    masked, with_memory = carry.mask is not None, agent.recurrent

    def packed(mask: Tensor | None, first: Tensor, state: tuple) -> tuple[Tensor, ...]:
        return (mask,) * masked + ((first, *state) if with_memory else ())

    def act_on(obs: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        mask = rest[0] if masked else None
        first, state = (rest[masked], rest[masked + 1:-1]) if with_memory else (None, ())
        acted = policy.act(obs, mask, first, state, rest[-1])
        return (acted.action, *acted.state) + (() if acted.value is None else (acted.logprob, acted.value))

    noise = agent.head.noise(torch.Generator(), len(carry.obs))
    example = (weights, carry.obs, *packed(carry.mask, carry.first, carry.state), noise)
    run_act = freeze(functional(agent, act_on), example, "acting")

    def act(obs: Tensor, mask: Tensor | None, first: Tensor, state: tuple, noise: Tensor) -> Acted:
        action, *rest = run_act(weights, obs, *packed(mask, first, state), noise)
        return Acted(action, tuple(rest[:parts]), *(rest[parts:] or (None, None)))

    def act_plainly(obs: Tensor, mask: Tensor | None, first: Tensor, state: tuple, noise: Tensor) -> Acted:
        return Acted(run_act(weights, obs, noise)[0], (), None, None)

    def value_of(obs: Tensor, *memory: Tensor) -> tuple[Tensor]:
        return (policy.value(obs, memory[0] if with_memory else None, memory[1:]),)

    example = (weights, carry.obs, *packed(None, carry.first, carry.state)[masked:])
    run_value = freeze(functional(agent, value_of), example, "the value function")

    def value(obs: Tensor, first: Tensor, state: tuple) -> Tensor:
        return run_value(weights, obs, *packed(None, first, state)[masked:])[0]

    evaluate = None if policy.evaluate is None else frozen_evaluate(policy, agent, weights, storage, masked)
    plain = not masked and not with_memory and agent.evaluates_later
    return Policy(act_plainly if plain else act, value, evaluate)


def frozen_evaluate(policy: Policy, agent: Any, weights: Tensor, storage: Storage, masked: bool) -> Callable:
    """Policy.evaluate for a whole rollout."""
    def evaluate_on(obs: Tensor, action: Tensor, *mask: Tensor) -> tuple[Tensor, Tensor]:
        return policy.evaluate(obs, mask[0] if masked else None, action)

    buffers = storage.tensors
    example = (weights, buffers["obs"], buffers["action"]) + ((buffers["mask"][:-1],) if masked else ())
    run = freeze(functional(agent, evaluate_on), example, "evaluation")
    return lambda obs, mask, action: run(weights, obs, action, *((mask,) if masked else ()))


def frozen_learner(learner: Learner, agent: Any, adam: Adam, storage: Storage, carry: Carry, loss_fn: Callable,
                   cfg: Config) -> Learner:
    """The same minibatch step from binaries: whole, or in two halves where several processes average between them."""
    if agent.recurrent:
        notify("--compile freezes acting only: a memory learns over stretches whose lengths change")
        return learner
    batch, index, advantage, noise, count = example_minibatch(agent, storage, carry, cfg)
    masked, noisy = batch.mask is not None, noise is not None
    clip = rate = torch.tensor(0.1)

    def pack(batch: Batch, index: Tensor, advantage: Tensor, noise: Tensor | None, *rest: Tensor) -> tuple[Tensor, ...]:
        return (batch.obs, *((batch.mask,) if masked else ()), batch.action, batch.logprob, batch.value, batch.ret,
                batch.valid, index, advantage, *((noise,) if noisy else ()), *rest)

    def gradient_on(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        obs, *rest = tensors
        mask = rest.pop(0) if masked else None
        action, logprob, value, ret, valid, index, advantage, *rest = rest
        noise = rest.pop(0) if noisy else None
        batch = Batch(obs, mask, None, (), action, logprob, value, ret, valid)
        return learner.gradient(batch, index, advantage, noise, *rest)

    def step_on(weights: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, step: Tensor, ok: Tensor, rate: Tensor,
                *tensors: Tensor) -> tuple[Tensor]:
        gradient, stats = functional(agent, gradient_on)(weights, *tensors)
        norm = apply_gradient(Adam(weights, exp_avg, exp_avg_sq, step, ok), gradient, rate, cfg.adam_eps,
                              cfg.max_grad_norm)
        return (torch.cat([stats, norm[None]]),)

    tensors = pack(batch, index, advantage, noise, count, clip)
    if learner.step is not None:
        run = freeze(step_on, (*adam, rate, *tensors), "the minibatch step")
        return learner._replace(step=lambda *arguments: run(*adam, arguments[-1], *pack(*arguments[:-1]))[0])

    def apply_on(weights: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, step: Tensor, ok: Tensor, gradient: Tensor,
                 rate: Tensor) -> tuple[Tensor]:
        return (apply_gradient(Adam(weights, exp_avg, exp_avg_sq, step, ok), gradient, rate, cfg.adam_eps,
                               cfg.max_grad_norm),)

    run_gradient = freeze(functional(agent, gradient_on), (adam.weights, *tensors), "the gradient")
    run_apply = freeze(apply_on, (*adam, torch.zeros_like(adam.weights), rate), "the optimizer's step")
    return learner._replace(gradient=lambda *arguments: run_gradient(adam.weights, *pack(*arguments)),
                            apply=lambda flat, rate: run_apply(*adam, flat, rate)[0])


def example_minibatch(agent: Any, storage: Storage, carry: Carry,
                      cfg: Config) -> tuple[Batch, Tensor, Tensor, Tensor | None, Tensor]:
    """Tensors laid out as those of a real minibatch: batch, index, advantage, noise, count."""
    def rows(name: str) -> Tensor:
        return storage.tensors[name][:cfg.num_steps].flatten(0, 1)

    mask = None if carry.mask is None else rows("mask")
    batch = Batch(rows("obs"), mask, None, (), rows("action"), rows("logprob"), rows("value"), rows("reward"),
                  rows("valid"))
    size = len(batch.valid) // cfg.num_minibatches
    noise = agent.head.learning_noise(torch.Generator(), size)
    return batch, torch.arange(size), torch.zeros(size), noise, torch.tensor(float(size))
