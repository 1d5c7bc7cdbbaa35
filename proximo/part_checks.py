"""Checks of what custom loss functions and networks return: other shapes would be broadcast silently."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.joint_actions import action_shape
from proximo.errors import (
    COLUMNS,
    USES,
    ProximoError,
    UsageError,
    call_part,
    is_column,
    is_out_of_memory,
    warn_once,
    with_place,
)
from proximo.protocols import AGENT_PARTS, Acted, Spec, VecEnv

CLOSE = 2e-3  # relative and absolute difference that rounding may cause, also in bfloat16
HEAD_PARTS = ("action_shape", "action_dtype", "noise", "learning_noise", "perturbed")  # what every head must have
RESERVED = ("grad_norm", "explained_variance")  # statistics that the update adds itself


def call_loss(loss_fn: Callable[..., Any], batch: Any, cfg: Config) -> Any:
    """Call a loss function of torch; UsageError if it raises an exception."""
    try:
        return call_part("loss_fn", loss_fn, batch, cfg)
    except Exception as error:
        if isinstance(error, ProximoError) or is_out_of_memory(error):
            raise
        raise UsageError(f"The loss function raised {with_place(error)}. Correct loss_fn.") from error


def check_loss(found: Any, scalar: type | tuple[type, ...], cfg: Config, function: str = "The loss function") -> None:
    """Raise UsageError unless a function returns the loss and statistics, each a `scalar` with no axis."""
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
        raise UsageError(f"{function} returns {_shown(found)}. Return the loss, and a dict of statistics.")
    (loss, stats), tensors = found, hasattr(scalar, "detach")
    need = f"It must be {'a tensor' if tensors else 'an array'} with one number, such as a mean."
    wrong = [f"{function} returns {name}={_shown(x)}. {need}" for name, x in (("the loss", loss), *stats.items())
             if getattr(x, "ndim", 0) or not isinstance(x, scalar)]
    wrong += [f"{function} returns {name}={_shown(x)}. Return a real number."
              for name, x in (("the loss", loss), *stats.items()) if "complex" in str(getattr(x, "dtype", ""))]
    if not getattr(loss, "requires_grad", True):
        wrong.append("The loss that the loss function returns has no gradient. Compute it from batch without detach().")
    wrong += _name_problems(f"{function} returns", stats)
    wrong += [f"{name}={getattr(cfg, name)} needs the statistic approx_kl, and {function[0].lower()}{function[1:]} "
              f"returns {', '.join(stats)}. Add approx_kl to them, or leave {name} out."
              for name in ("target_kl", "desired_kl") if getattr(cfg, name) is not None and "approx_kl" not in stats]
    if not stats:
        value = "loss.detach()" if tensors else "loss"
        wrong.append(f"{function} returns no statistics. Return at least one: {{\"loss\": {value}}}.")
    if wrong:
        raise UsageError("\n".join(wrong))


def check_statistic_names(names: Sequence[str]) -> None:
    """Raise UsageError unless the names of the statistics of a step can be logged, each as a column of its own."""
    wrong = _name_problems("learner.names of set_up has", names)
    wrong += [f"learner.names of set_up has {name} twice. Give each statistic a name of its own."
              for name in dict.fromkeys(names) if names.count(name) > 1]
    if wrong:
        raise UsageError("\n".join(wrong))


def _name_problems(has: str, names: Collection[str]) -> list[str]:
    """Return a sentence, which begins with `has`, for every statistic that cannot be logged by its name."""
    return [f"{has} a statistic with the name {name!r:.60}. {COLUMNS}" for name in names if not is_column(name)] + \
           [f"{has} the statistic {name}, which the update adds itself. Use another name." for name in RESERVED
            if name in names]


def _shown(x: Any) -> str:
    """Return the dtype and the shape of an array, which JAX would print as a tracer, and other things as they are."""
    if not hasattr(x, "shape") or isinstance(x, np.generic):
        return f"{x!r:.60}"
    return f"{'a tensor' if hasattr(x, 'detach') else 'an array'} {str(x.dtype).rpartition('.')[2]} {tuple(x.shape)}"


def state_change(before: Sequence[Any], after: Sequence[Any]) -> str:
    """Return what a network has made of its recurrent state, "" if all arrays have the shapes and dtypes of before."""
    given, found = (", ".join(map(_shown, state)) for state in (before, after))
    return "" if given == found else f"{found} for {given}"


def check_rows(shape: tuple[int, ...], rows: str, **computed: Any) -> None:
    """Raise UsageError unless the network computes one number per row: arrays of `shape`. Others broadcast."""
    shapes = {name: None if x is None else tuple(x.shape) for name, x in computed.items()}
    if wrong := [f"The network computes {f'{name} of shape {found}' if found is not None else f'no {name}'} for {rows} "
                 f"of shape {tuple(shape)}. Return one number per row."
                 for name, found in shapes.items() if found != tuple(shape)]:
        raise UsageError("\n".join(wrong))


def check_acted(acted: Acted, evaluates_later: bool, row: Any) -> None:
    """Check what an agent returns for one step.

    Args:
        acted: What Agent.act returned for N rows.
        evaluates_later: Agent.evaluates_later.
        row: Something with the shape (N, *action_shape) and the dtype of actions in the rollout.

    Raises:
        UsageError: There is not one action, log-probability and value per row.
    """
    if not isinstance(acted, Acted):
        raise UsageError(f"The network acts by returning {type(acted).__name__}. Return proximo.protocols.Acted.")
    if not hasattr(acted.action, "dtype"):
        raise UsageError(f"The network acts by {acted.action!r:.60}. Return one action per row, as an array.")
    found, dtype = acted.action.shape, acted.action.dtype
    if found != row.shape or (dtype != row.dtype and ("float" in str(dtype)) is not ("float" in str(row.dtype))):
        raise UsageError(f"The network acts by an array of shape {tuple(found)} and dtype {dtype}. Return one action "
                         f"per row, as the head declares them: shape {tuple(row.shape)} and dtype {row.dtype}.")
    if not evaluates_later:
        check_rows(row.shape[:1], "a step", logprob=acted.logprob, value=acted.value)


def compare_sequence(learned: Mapping[str, Any], acted: Mapping[str, Any]) -> None:
    """Warn if a recurrent network gives other numbers for a sequence, as it learns, than step by step, as it acts.

    Args:
        learned: Arrays (T, N) by name, such as "value", of one call for the sequence.
        acted: The same of T calls, one for each step.
    """
    if other := [name for name, x in learned.items() if not np.allclose(x, acted[name], rtol=CLOSE, atol=CLOSE)]:
        warn_once(f"The recurrent network gives another {other[0]} for a sequence of steps, as it learns, than step by "
                  "step, as it acts. The ratio of old and new probabilities is therefore not 1 before the first "
                  "step. In both, begin with the state that is given, and set it to 0 in rows where `first` is "
                  "True, also inside a sequence.")


def problems_of_head(head: Any, space: spaces.Space[Any]) -> list[str]:
    """Return how the head of a custom network differs from the actions of the environments."""
    if missing := [name for name in HEAD_PARTS if not hasattr(head, name)]:
        return [f"make_agent returned a network whose head {type(head).__name__} lacks {', '.join(missing)} of Head "
                "(proximo/protocols.py)."]
    wrong, wanted, shape = [], action_shape(space), tuple(head.action_shape)
    has = f"make_agent returned a network whose head {type(head).__name__} has"
    if shape != wanted and not (isinstance(space, spaces.Box) and shape == (math.prod(wanted),)):
        wrong.append(f"{has} action_shape={shape}, and one action of {space} has the shape {wanted}. Give the head "
                     "that shape.")
    whole = isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
    if whole is (np.dtype(head.action_dtype).kind == "f"):
        wrong.append(f"{has} action_dtype={np.dtype(head.action_dtype)}, and actions of {space} are "
                     f"{'whole numbers' if whole else 'floats'}. Use a head for this kind of actions.")
    for name, kind, attribute in (("num_actions", spaces.Discrete, "n"), ("nvec", spaces.MultiDiscrete, "nvec")):
        given = getattr(head, name, None)
        if not isinstance(space, kind) or given is None:
            continue
        if not np.array_equal(np.ravel(given), np.ravel(getattr(space, attribute))):
            wrong.append(f"{has} {name}={given}, and the actions are {space}. Give the head as many choices.")
    return wrong


def make_complete_agent(make_agent: Callable[..., Any], spec: Spec, cfg: Config) -> Any:
    """Call make_agent(spec, cfg).

    Raises:
        UsageError: It is a network itself, or a class that takes other arguments, the result lacks parts of Agent, or
            its head does not fit the actions of the environments.
    """
    if is_network(make_agent):
        raise UsageError(f"make_agent={kind_of(make_agent)}(...) is a network, and a function that makes one is "
                         f"needed. {USES['make_agent']}")
    try:
        agent = call_part("make_agent", make_agent, spec, cfg)
    except TypeError as error:
        if not isinstance(make_agent, type):
            raise
        raise UsageError(f"make_agent={make_agent.__name__} is a class, and {make_agent.__name__}(spec, cfg) raised "
                         f"{with_place(error)}. {USES['make_agent']}") from error
    if missing := [name for name in AGENT_PARTS if not hasattr(agent, name)]:
        raise UsageError(f"make_agent returned {kind_of(agent)}, which lacks {', '.join(missing)} of Agent "
                         "(proximo/protocols.py). Return a network such as SharedAgent: docs/add-a-network.md.")
    if wrong := problems_of_head(agent.head, spec.action_space):
        raise UsageError("\n".join(wrong))
    if cfg.recurrent != "none" and not agent.recurrent:
        warn_once(f"recurrent={cfg.recurrent} has no effect, because the network that make_agent returned is not "
                  "recurrent.")
    return agent


def check_estimate(advantage: Any, rows: tuple[int, ...]) -> None:
    """Raise UsageError unless an estimate returned one advantage for each of the rows of a rollout, (T, N)."""
    if getattr(advantage, "shape", None) != rows:
        raise UsageError(f"estimate returned {_shown(advantage)}, and a rollout has the shape {tuple(rows)}. Return "
                         "one advantage per row.")


def is_network(part: Any) -> bool:
    """Return whether something is a module of torch or flax. Neither is imported."""
    return any((kind.__module__.partition(".")[0], kind.__name__) in (("torch", "Module"), ("flax", "Module"))
               for kind in type(part).__mro__)


def check_inside(cfg: Config, envs: VecEnv) -> None:
    """Raise UsageError if a compiled function of JAX cannot step the environments."""
    if envs.play != "inside":
        raise UsageError(f"{cfg.env_id} is not simulated inside the compiled function. Use environments that are "
                         "written in JAX (--engine jax or brax).")


def kind_of(part: Any) -> str:
    """Return the class of what a custom function returned, or None: the text of a network has many lines."""
    kind = type(part)
    return "None" if part is None else kind.__name__ if kind.__module__ in ("builtins", "__main__") else (
        f"{kind.__module__}.{kind.__qualname__}")


def check_value_norm(found: int, cfg: Config) -> None:
    """Raise UsageError unless an agent has one NormalizedCritic with --norm-value, and otherwise none."""
    if cfg.norm_value and found != 1:
        raise UsageError(f"norm_value=True needs an agent with one NormalizedCritic, and this one has {found}. Put the "
                         f"network of the value function into one (proximo.on_{cfg.framework}.value_norm), or leave "
                         "norm_value out.")
    if found and not cfg.norm_value:
        raise UsageError("The agent has a NormalizedCritic, whose moments change only with norm_value=True. Set it, or "
                         "use the network of the value function without it.")
