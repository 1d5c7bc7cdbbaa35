"""A sweep: one run for every combination of some values, all at once in one compiled function of JAX."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, get_origin, get_type_hints

from proximo.config import Config
from proximo.errors import UsageError
from proximo.facts import facts
from proximo.processes import world_from_environment
from proximo.runs.custom_parts import NO_CUSTOM_PARTS, CustomParts
from proximo.runs.restart import start_or_resume
from proximo.runs.run_group import Members
from proximo.runs.session import Session
from proximo.runs.settings.arguments import configure
from proximo.runs.settings.resolve import with_changes

MOST_MEMBERS = 256  # each has open files


def configure_sweep(config: str | Config | type[Config] | None, env: Any, custom: CustomParts,
                    values: dict[str, Any]) -> tuple[Config, str, dict[str, list[Any]]]:
    """Return the configuration that all members share, its variant, and the values of each field that has a list.

    Raises:
        UsageError: A list is empty, a value has a type that its field does not allow, or the environment is no id.
    """
    if not (env is None or isinstance(env, str)):
        raise UsageError(f"env={getattr(env, '__name__', type(env).__name__)} was given. A sweep trains in "
                         "environments that are written in JAX: name one by its id, as text, or give make_envs.")
    kind = config if isinstance(config, type) and issubclass(config, Config) else (
        type(config) if isinstance(config, Config) else Config)
    swept = [*swept_fields(kind), "seed"]
    lists = {name: list(value) for name, value in values.items() if name in swept
             and (isinstance(value, (list, tuple, range)) or getattr(value, "ndim", 0) == 1)}
    if empty := [name for name, given in lists.items() if not given]:
        raise UsageError(f"{', '.join(empty)}: the list is empty. Give at least one value.")
    others = {name: value for name, value in values.items() if name not in lists}
    hints = get_type_hints(kind)
    if several := [name for name, value in others.items() if name in hints and get_origin(hints[name]) is not tuple
                   and (isinstance(value, (list, tuple, range)) or getattr(value, "shape", None))]:
        raise UsageError(f"a sweep cannot have several values of {', '.join(several)}. Use one value, or several of "
                         f"{', '.join(swept[:-1])} or seed.")
    cfg, variant = configure(config, env, custom, {"framework": "jax"} | others)
    return cfg, variant, {name: [getattr(with_changes(cfg, {name: value}), name) for value in given]
                          for name, given in lists.items()}


def start_sweep(cfg: Config, variant: str, lists: Mapping[str, Sequence[Any]], wrong: Sequence[str] = (),
                mode: str | None = None, custom: CustomParts = NO_CUSTOM_PARTS) -> tuple[Session, Members]:
    """Start a sweep, or continue the one in its folder.

    Args:
        cfg: The configuration that all members share.
        variant: The name of its variant.
        lists: The values of each field that has several; without any there is one member.
        wrong: Problems that were found already, besides those of `custom`.
        mode: "auto", "never" or None; see start_or_resume().
        custom: Parts that take the place of the variant's.

    Returns:
        What trains, and the fields of each member by the name of its folder.

    Raises:
        UsageError: The sweep cannot work.
    """
    lists = {name: given for name, given in lists.items() if given} or {"seed": [cfg.seed]}
    count = prod(map(len, lists.values()))
    members = members_of(lists) if count <= MOST_MEMBERS else {}
    problems = [*wrong, *_problems(cfg, lists, count)]
    return start_or_resume(cfg, variant, custom, wrong=problems, mode=mode, sweep=members), members


def swept_fields(kind: type[Config]) -> list[str]:
    """Return the fields, besides the seed, of which a sweep takes several values."""
    return [name for name, fact in facts(kind).items() if fact.sweep]


def members_of(lists: Mapping[str, Sequence[Any]]) -> Members:
    """Return every combination of values, by the name of its folder."""
    combinations = [dict(zip(lists, values)) for values in product(*lists.values())]
    shown = [name for name, given in lists.items() if len(given) > 1 or name == "seed"] or [*lists]
    return {",".join(f"{name}={one[name]}" for name in shown): one for one in combinations}


def _problems(cfg: Config, lists: Mapping[str, Sequence[Any]], count: int) -> list[str]:
    wrong = [f"{name} has a value twice: {' '.join(map(str, given))}. Name each value once."
             for name, given in lists.items() if len({*given}) < len(given)]
    if cfg.framework != "jax":
        wrong.append(f"framework={cfg.framework} was given. A sweep trains all runs in one compiled function of JAX. "
                     "Leave --framework out.")
    if cfg.num_seeds > 1:
        wrong.append(f"num_seeds={cfg.num_seeds} was given. Name the seeds of a sweep: --seeds 1 2 3.")
    if world_from_environment().size > 1:
        wrong.append("A sweep trains all runs in one process. Start it without torchrun.")
    if count > MOST_MEMBERS:
        wrong.append(f"{count} combinations of values were given. A sweep has at most {MOST_MEMBERS} runs.")
    return wrong
