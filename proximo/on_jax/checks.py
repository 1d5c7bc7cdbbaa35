"""Checks of what a program passes to train(): its network, and what its loss function returns."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from proximo.config import Config
from proximo.envs.custom.pure import naming_traced_code
from proximo.errors import EnvError, NumbersError, ProximoError, UsageError, call_part, with_place
from proximo.on_jax.parameters import is_built_in
from proximo.part_checks import check_acted, check_loss, check_rows, compare_sequence, kind_of
from proximo.protocols import AGENT_PARTS
from proximo.types import Carry, LossInputs


def check_agent(agent: Any) -> None:
    """Check what make_agent returned.

    Arrays that are attributes of a module are constants, which are neither trained nor saved.

    Raises:
        UsageError: The result is not an agent, or has parts that cannot be trained; all problems are listed.
    """
    advice = "Return an agent such as SeparateAgent or SharedAgent (proximo/on_jax/agent.py)"
    if not isinstance(agent, nnx.Module):
        of_torch = any(kind.__module__.startswith("torch.") for kind in type(agent).__mro__)
        torch = ', or train with framework="torch"' * of_torch
        raise UsageError(f"make_agent returned {kind_of(agent)}, which is not an nnx.Module. {advice}{torch}.")
    if lacking := [name for name in AGENT_PARTS if not hasattr(agent, name)]:
        raise UsageError(f"make_agent returned {type(agent).__name__}, which lacks {', '.join(lacking)}. {advice}.")
    if wrong := problems_of_variables(agent):
        raise UsageError("\n".join(wrong))


def problems_of_variables(module: nnx.Module) -> list[str]:
    """Return one sentence for each kind of variables that a network must not have."""
    parts: Any = nnx.split(module, nnx.Param, nnx.RngState, nnx.Variable, ...)
    _, parameters, drawing, others, _ = parts
    kinds = {name: np.dtype(x[...].dtype).name for name, x in named(parameters)}
    wrong = []
    if narrow := [f"{name} is {kind}" for name, kind in kinds.items() if kind not in ("float32", "float64")]:
        wrong.append(f"The network has parameters that are not float32: {', '.join(narrow)}. Use "
                     "param_dtype=jnp.float32, and an array without nnx.Param for a constant.")
    if generators := ", ".join(name for name, _ in named(drawing)):
        wrong.append(f"The network draws random numbers (dropout) from {generators}, so that a resume would not be "
                     "exact. Leave these layers out.")
    if names := ", ".join(name for name, _ in named(others)):
        wrong.append(f"The network has variables that are not parameters: {names}. Under JAX a network is a function "
                     "of its parameters, and nothing else is trained or saved. Use LayerNorm instead of BatchNorm, and "
                     "jnp.asarray(...) for constants.")
    return wrong


def check_constants(agents: Sequence[Any]) -> None:
    """Raise UsageError if agents that one compiled function trains have different constants: arrays or floats."""
    constants = []
    for agent in agents:
        parts: Any = nnx.split(agent, nnx.Param, ...)
        floats = {".".join(map(str, (*path, name))): x for path, module in nnx.iter_modules(agent)
                  for name, x in vars(module).items() if isinstance(x, float)}
        constants.append(dict(named(parts[2])) | floats)
    if wrong := [name for name, x in constants[0].items()
                 if not all(name in other and np.array_equal(x, other[name]) for other in constants)]:
        raise UsageError(f"make_agent makes the constants {', '.join(wrong)} different for runs that train at once, "
                         "which share one compiled function. Draw them with a fixed seed, or train the runs one by "
                         "one.")


def named(state: Any) -> list[tuple[str, Any]]:
    """Return the variables of a state of flax with their names, such as "critic.layers.0.weight"."""
    return [(".".join(map(str, path)), variable) for path, variable in nnx.to_flat_state(state)]


def checked_loss(loss_fn: Callable[..., Any], batch: LossInputs, cfg: Config) -> Any:
    """Call a loss function, and check what it is given and what it returns; UsageError if that cannot be used."""
    check_rows(batch.valid.shape, "rows", logprob=batch.logprob, value=batch.value, entropy=batch.entropy)
    try:
        with naming_traced_code():
            found = call_part("loss_fn", loss_fn, batch, cfg)
    except ProximoError:
        raise
    except Exception as error:
        raise UsageError(f"The loss function raised {with_place(error)}. Under JAX it computes with jax.numpy, as "
                         "ppo_loss of proximo.on_jax.loss does.") from error
    check_loss(found, (Array, float), cfg)
    loss, stats = found
    return with_gradient(loss, {"logprob": batch.logprob, "value": batch.value, "entropy": batch.entropy}), stats


def act_of(agent: Any, carry: Carry, noise: Array) -> Any:
    """Return what Agent.act does, checked by check_acted."""
    acted = agent.act(carry.obs, carry.mask, carry.first, carry.state, noise)
    row = jax.ShapeDtypeStruct((*carry.first.shape, *agent.head.action_shape), agent.head.action_dtype)
    check_acted(acted, agent.evaluates_later, row)
    return acted


def check_calls(agent: Any, carry: Carry) -> None:
    """Trace the calls of a network, without computing them, for the first observations.

    Those of a recurrent network of a program are also computed: see check_sequence.

    Raises:
        UsageError: One of them raises an exception, or returns arrays of other shapes.
    """
    carry = carry._replace(statistics=None)
    noise = jax.eval_shape(lambda: agent.head.noise(jax.random.key(0), *carry.first.shape))
    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "The network": (lambda carry: _learned_value(agent, carry), (carry,)),
        "act() of the network": (lambda carry, noise: act_of(agent, carry, noise).action, (carry, noise)),
        "value() of the network": (lambda carry: value_of(agent, carry.obs, carry.first, carry.state), (carry,))}
    for name, (call, arguments) in calls.items():
        with naming_calls(name, carry):
            jax.eval_shape(call, *arguments)
    built_in = all(is_built_in(module) for _, module in nnx.iter_modules(agent))
    if agent.recurrent and not agent.evaluates_later and not built_in:
        check_sequence(agent, carry)


def check_sequence(agent: Any, carry: Carry) -> None:
    """Warn if a recurrent network gives other results for a sequence, as it learns, than step by step, as it acts.

    The sequence begins with a state that is not zero. In its second step an episode begins in every other row.
    """
    @jax.jit
    def both(carry: Carry) -> tuple[dict[str, Array], dict[str, Array]]:
        never = jnp.zeros_like(carry.first)
        first = jnp.stack([carry.first, never, jnp.arange(len(never)) % 2 == 0, never])
        noise = agent.head.noise(jax.random.key(0), *first.shape)
        states, played = [carry.state], list[Any]()
        for t in range(len(first)):
            played.append(agent.act(carry.obs, carry.mask, first[t], states[-1], noise[t]))
            states.append(played[-1].state)
        obs, mask = jax.tree.map(lambda x: jnp.stack([x] * 3), (carry.obs, carry.mask))
        dist, value, _ = agent(obs, mask, first[1:], states[1])
        acted = {name: jnp.stack([getattr(one, name) for one in played[1:]]) for name in ("value", "logprob", "action")}
        return {"value": value, "logprob": dist.logprob(acted["action"])}, acted

    with naming_calls("The network", carry):
        compare_sequence(*both(carry))


@contextmanager
def naming_calls(name: str, carry: Carry) -> Iterator[None]:
    """Raise UsageError, with the line of the user's code, if a call of a network raises an exception."""
    try:
        with naming_traced_code():
            yield
    except ProximoError:
        raise
    except Exception as error:
        raise UsageError(f"{name} raised {with_place(error)} for observations of shape {carry.obs.shape}. Correct "
                         "make_agent.") from error


def _learned_value(agent: Any, carry: Carry) -> Any:
    """Return the value of a network as learning calls it: with an axis of time if it is recurrent."""
    obs, mask, first = jax.tree.map(lambda x: x[None] if agent.recurrent else x, (carry.obs, carry.mask, carry.first))
    return agent(obs, mask, first, carry.state)[1]


def value_of(agent: Any, obs: Any, first: Array, state: tuple[Array, ...]) -> Array:
    """Return Agent.value; UsageError if it is not one number per row."""
    value: Array = agent.value(obs, first, state)
    check_rows(first.shape, "a step", value=value)
    return value


def with_gradient(loss: Any, of_network: dict[str, Array]) -> Any:
    """Return the loss. Differentiating it raises UsageError if it depends on no weight.

    `of_network`, outputs of the network, depend on weights: JAX calls `forward` only if an argument does.
    """
    @jax.custom_vjp
    def unchanged(loss: Any, of_network: Any) -> Any:
        return loss

    def forward(loss: Any, of_network: Any) -> tuple[Any, None]:
        if not loss.perturbed:
            raise UsageError("The loss that the loss function returns has no gradient. Compute it from batch without "
                             "stop_gradient().")
        return loss.value, None

    unchanged.defvjp(forward, lambda _, above: (above, None), symbolic_zeros=True)
    return unchanged(loss, of_network)


def _own_rows(x: Any) -> np.ndarray:
    """Return the rows of an array of all devices that this process has."""
    return np.concatenate([np.asarray(part.data) for part in x.addressable_shards]) if isinstance(x, Array) else x


def not_finite(carry: Carry, iteration: str, steps: int) -> ProximoError:
    """Return the error for a gradient that is not finite; `carry` has observations and masks after the rollout.

    With several processes each sees those of its own environments.
    """
    own = _own_rows(carry.obs)
    rows = np.isfinite(own).reshape(len(own), -1).all(1)
    if rows.all() and carry.mask is not None and not (free := _own_rows(carry.mask).any(1)).all():
        row = int(free.argmin())
        return EnvError(f"environment {row}: its action_mask allows no action at the end of {iteration}, "
                        f"which began after {steps} steps. Allow at least one, or end the episode (terminated). The "
                        "weights are those before this iteration.")
    if rows.all():
        return NumbersError(f"The loss or its gradient is not finite in {iteration}, after {steps} steps. The weights "
                            "are those before it. Lower --learning-rate, or check that the environments return finite "
                            "observations, final_obs and rewards in every step. With environments of your own in JAX, "
                            "this is also what a step leads to that breaks a rule of docs/batched-environments.md: a "
                            "mask that allows no action, terminated and truncated both true, no final_obs where an "
                            "episode begins, or final_obs without first where one ends.")
    where = f"environment {int(rows.argmin())}" if rows.any() else "all environments"
    return EnvError(f"{where}: the observation is not finite (NaN or infinity) in {iteration}, after {steps} steps. "
                    "End the episode (terminated) and reset that environment where the simulation is not stable. The "
                    "weights are those before this iteration.")
