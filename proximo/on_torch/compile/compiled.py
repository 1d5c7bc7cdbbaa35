"""--compile: acting and the minibatch step, compiled ahead of time by aot.py, or just in time by jit.py on GPUs.

Values and log-probabilities of a whole rollout are one call per iteration. On a CPU, compiling them would save 0.1 ms,
so only jit.py does it, for the sake of GPUs.

A compiled function takes and returns tensors only. The functions here pack the arguments of the plain ones into tuples
of tensors and back, leaving out what is None.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from proximo.config import Config
from proximo.errors import UsageError, warn
from proximo.on_torch.compile.aot import TensorFunction, as_rows, compile_ahead, functional, unsupported_reason
from proximo.on_torch.compile.fused_step import FusedStep, can_fuse, collect_fused, make_advance
from proximo.on_torch.compile.jit import compile_just_in_time, fuse, fuse_and_record, record, unsupported_by_inductor
from proximo.on_torch.learner import Adam, apply_gradient, make_batch
from proximo.on_torch.rollout import (
    Collected,
    Policy,
    Storage,
    make_evaluate_all,
    make_evaluate_last,
    make_policy,
)
from proximo.on_torch.rollout_groups import one_group
from proximo.on_torch.snapshot import saved_buffers
from proximo.part_checks import state_change
from proximo.protocols import Acted
from proximo.types import Batch, Carry, Coefficients, Minibatches

Gradient = Callable[..., tuple[Tensor, Tensor]]


class Compiler(NamedTuple):
    """A way to compile closed functions of tensors."""

    compile: Callable[[TensorFunction, tuple[Tensor, ...], str], TensorFunction]  # (function, example, name)
    unsupported_reason: Callable[[], str | None]
    compiles_evaluation: bool  # whether what is called once per iteration is worth it
    compiles_recurrent: bool  # whether it can trace the acting of a recurrent agent
    fuses_steps: bool = False  # whether what is between two steps of the environments becomes one function


def pick_compiler(cfg: Config, device: torch.device) -> Compiler:
    """Return the compiler that --compile-with names; auto compiles ahead of time on CPUs, and records CUDA graphs.

    Raises:
        UsageError: That compiler does not support the device.
    """
    on_cpu = device.type == "cpu"
    if cfg.compile_with == "inductor":
        return Compiler(compile=partial(compile_just_in_time, finish=fuse if on_cpu else fuse_and_record),
                        unsupported_reason=partial(unsupported_by_inductor, device), compiles_evaluation=True,
                        compiles_recurrent=on_cpu)
    if on_cpu:
        return Compiler(compile=compile_ahead, unsupported_reason=unsupported_reason, compiles_evaluation=False,
                        compiles_recurrent=True, fuses_steps=True)
    if cfg.compile_with == "aot":
        raise UsageError(f"compile_with=aot compiles for CPUs only, and this run learns on {device}. Leave "
                         "--compile-with out, or use --device cpu.")
    return Compiler(compile=partial(compile_just_in_time, finish=record), unsupported_reason=lambda: None,
                    compiles_evaluation=True, compiles_recurrent=False)


def usable_compiler(cfg: Config, agent: Any, device: torch.device) -> Compiler | None:
    """Return the compiler of --compile for an agent; None without --compile, or where it does not work here."""
    if not cfg.compile:
        return None
    compiler, buffers = pick_compiler(cfg, device), ", ".join(saved_buffers(agent))
    reason = compiler.unsupported_reason()
    if buffers:
        reason = (f"--compile does not support buffers ({buffers}): they would not change any more. "
                  "Running without it.")
    elif agent.recurrent and not compiler.compiles_recurrent:
        reason = "--compile does not support recurrent layers on a GPU. Running without it."
    if reason:
        warn(reason)
        return None
    return compiler


def compile_collect(collect: Callable[..., Collected], agent: Any, weights: Tensor, storage: Storage, carry: Carry,
                    cfg: Config, compiler: Compiler) -> Callable[..., Collected]:
    """Return `collect` with the compiled functions of an agent, or collect_fused() where that fits."""
    policy, carry = make_policy(agent), as_rows(carry)
    if compiler.fuses_steps and can_fuse(agent, storage, carry):
        return partial(collect_fused, compile_fused(policy, agent, weights, storage, carry, cfg, compiler), policy)
    policy = policy._replace(act=compile_act(policy, agent, weights, as_rows(one_group(carry, cfg)), compiler))
    if compiler.compiles_evaluation:
        policy = policy._replace(evaluate=compile_evaluation(agent, weights, storage, carry, compiler))
    return partial(collect, policy)


def compile_fused(policy: Policy, agent: Any, weights: Tensor, storage: Storage, carry: Carry, cfg: Config,
                  compiler: Compiler) -> FusedStep:
    """Compile a FusedStep for exactly these shapes. The weights stay where the optimizer changes them."""
    fused = FusedStep(weights, carry, cfg)
    advance = functional(agent, make_advance(policy.act, cfg.num_steps, cfg))
    noise = agent.head.noise(torch.Generator(), cfg.num_steps, len(carry.obs))
    fused.compile(compiler.compile, advance, storage, noise)
    return fused


def compile_act(policy: Policy, agent: Any, weights: Tensor, carry: Carry,
                compiler: Compiler) -> Callable[..., Acted]:
    """Compile Policy.act for exactly these shapes. The weights stay where the optimizer changes them."""
    parts, masked, recurrent = len(carry.state), carry.mask is not None, agent.recurrent

    def pack(mask: Tensor | None, first: Tensor, state: tuple[Tensor, ...]) -> tuple[Any, ...]:
        kept = [x.clone(memory_format=torch.contiguous_format) for x in state]  # with the strides of the example
        return (*([mask] if masked else []), *([first, *kept] if recurrent else []))

    def act_on(obs: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        *rest, noise = tensors
        mask = rest.pop(0) if masked else None
        first, *state = rest if recurrent else [None]
        acted = policy.act(obs, mask, first, tuple(state), noise)
        evaluated = () if acted.logprob is None or acted.value is None else (acted.logprob, acted.value)
        return (acted.action, *acted.state, *evaluated)

    noise = agent.head.noise(torch.Generator(), len(carry.obs)).to(weights.device)
    with torch.no_grad():
        after = policy.act(carry.obs, carry.mask, carry.first, carry.state, noise).state if recurrent else ()
    if change := state_change(carry.state, after):
        warn(f"--compile needs a recurrent state whose shapes and dtypes stay, and the network returned {change}. "
             "Acting runs without it.")
        return policy.act
    example = (weights, carry.obs, *pack(carry.mask, carry.first, carry.state), noise)
    run = compiler.compile(functional(agent, act_on), example, "acting")

    def act(obs: Tensor, mask: Tensor | None, first: Tensor, state: tuple[Tensor, ...], noise: Tensor) -> Acted:
        action, *rest = run(weights, obs, *pack(mask, first, state), noise)
        logprob, value = rest[parts:] or (None, None)
        return Acted(action=action, state=tuple(rest[:parts]), logprob=logprob, value=value)

    def act_only(obs: Tensor, mask: Tensor | None, first: Tensor, state: tuple[Tensor, ...], noise: Tensor) -> Acted:
        return Acted(run(weights, obs, noise)[0], (), None, None)

    return act_only if not masked and not recurrent and agent.evaluates_later else act


def compile_evaluation(agent: Any, weights: Tensor, storage: Storage, carry: Carry,
                       compiler: Compiler) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Compile Policy.evaluate."""
    if not agent.evaluates_later:
        def value_on(obs: Tensor, first: Tensor, *state: Tensor) -> tuple[Tensor]:
            return (agent.value(obs, first, state),)

        run = compiler.compile(functional(agent, value_on), (weights, carry.obs, carry.first, *carry.state),
                               "values after the rollout")
        return make_evaluate_last(lambda obs, first, state: run(weights, obs, first, *as_rows(state))[0])

    def evaluate_on(obs: Tensor, action: Tensor, *mask: Tensor) -> tuple[Tensor, Tensor]:
        return agent.evaluate(obs, mask[0] if mask else None, action)  # type: ignore[no-any-return]

    mask = () if carry.mask is None else (storage.whole("mask")[:-1],)
    run = compiler.compile(functional(agent, evaluate_on),
                           (weights, storage.whole("obs"), storage.whole("action"), *mask), "the evaluation")

    def evaluate(obs: Tensor, mask: Tensor | None, action: Tensor) -> tuple[Tensor, Tensor]:
        logprob, value = run(weights, obs, action, *([] if mask is None else [mask]))
        return logprob, value

    return make_evaluate_all(evaluate)


def compile_step(gradient: Gradient, agent: Any, adam: Adam, storage: Storage, cfg: Config,
                 compiler: Compiler) -> Callable[..., tuple[Tensor, Tensor]]:
    """Compile Learner.step as a whole, for one process."""
    batch, minibatch = example_minibatch(agent, storage, cfg)
    rate = torch.tensor(0.1, device=storage.device)
    gradient_on = functional(agent, unpack_gradient(gradient, batch, minibatch))

    def step_on(rate: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        adam = Adam(*tensors[:len(Adam._fields)])
        flat, stats = gradient_on(adam.weights, *tensors[len(adam):])
        return stats, apply_gradient(adam, flat, rate, cfg.adam_eps, cfg.max_grad_norm)

    packed = pack_minibatch(batch, minibatch, Coefficients(rate, rate))
    run = compiler.compile(step_on, (rate, *adam, *packed), "the minibatch step")

    def step(batch: Batch, minibatch: Minibatches, rate: Tensor, coefficients: Coefficients) -> tuple[Tensor, Tensor]:
        stats, norm = run(rate, *adam, *pack_minibatch(batch, minibatch, coefficients))
        return stats, norm

    return step


def compile_gradient(gradient: Gradient, agent: Any, adam: Adam, storage: Storage, cfg: Config,
                     compiler: Compiler) -> tuple[Callable[..., Any], Callable[..., Tensor]]:
    """Compile the two halves of Learner.step, between which several processes add their gradients."""
    batch, minibatch = example_minibatch(agent, storage, cfg)
    rate = torch.tensor(0.1, device=storage.device)

    def apply_on(flat: Tensor, rate: Tensor, *state: Tensor) -> tuple[Tensor]:
        return (apply_gradient(Adam(*state), flat, rate, cfg.adam_eps, cfg.max_grad_norm),)

    packed = pack_minibatch(batch, minibatch, Coefficients(rate, rate))
    run_gradient = compiler.compile(functional(agent, unpack_gradient(gradient, batch, minibatch)),
                                    (adam.weights, *packed), "the gradient")
    run_apply = compiler.compile(apply_on, (torch.zeros_like(adam.weights), rate, *adam), "the optimizer's step")
    return (lambda *given: run_gradient(adam.weights, *pack_minibatch(*given)),
            lambda flat, rate: run_apply(flat, rate, *adam)[0])


def pack_minibatch(batch: Batch, minibatch: Minibatches, coefficients: Coefficients) -> tuple[Tensor, ...]:
    """Return the tensors that a gradient reads, in a fixed order, without those that are None."""
    obs = [batch.obs] if isinstance(batch.obs, Tensor) else tree_flatten(batch.obs)[0]
    parts = (*obs, batch.mask, batch.action, batch.logprob, batch.value, batch.ret, batch.valid,
             minibatch.index, minibatch.advantage, minibatch.noise, minibatch.count, *coefficients)
    return tuple(x for x in parts if x is not None)


def unpack_gradient(gradient: Gradient, batch: Batch, minibatch: Minibatches) -> Callable[..., tuple[Tensor, Tensor]]:
    """Make the gradient as a function of the tensors of pack_minibatch; the arguments show which of them are None."""
    masked, noisy, layout = batch.mask is not None, minibatch.noise is not None, tree_flatten(batch.obs)[1]

    def gradient_on(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        obs, rest = tree_unflatten(tensors[:layout.num_leaves], layout), list(tensors[layout.num_leaves:])
        mask = rest.pop(0) if masked else None
        action, logprob, value, ret, valid, index, advantage, *rest = rest
        noise = rest.pop(0) if noisy else None
        count, *coefficients = rest
        rows = Batch(obs=obs, mask=mask, first=None, state=(), action=action, logprob=logprob, value=value, ret=ret,
                     valid=valid)
        minibatch = Minibatches(index=index, advantage=advantage, count=count, noise=noise)
        return gradient(rows, minibatch, Coefficients(*coefficients))

    return gradient_on


def example_minibatch(agent: Any, storage: Storage, cfg: Config) -> tuple[Batch, Minibatches]:
    """Make tensors with the layout of a real minibatch."""
    logprob, value, ret, later = map(storage.whole, ("logprob", "value", "reward", "final_value"))
    batch = make_batch(storage.rollout(logprob, value, later), ret, (), recurrent=False)
    size, device = len(batch.valid) // cfg.num_minibatches, storage.device
    noise = agent.head.learning_noise(torch.Generator(), size)
    return batch, Minibatches(index=torch.arange(size, device=device), advantage=torch.zeros(size, device=device),
                              count=torch.tensor(float(size), device=device),
                              noise=None if noise is None else noise.to(device))
