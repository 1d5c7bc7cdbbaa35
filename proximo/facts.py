"""Facts of a hyper-parameter, declared once at its field; limits of a variant; and the checks that follow from them."""

import ast
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields, replace
from functools import cache
from pathlib import PureWindowsPath
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from proximo.errors import notify, one_line

Engine = Literal["auto", "gym", "envpool", "ale", "brax", "jax"]
Framework = Literal["torch", "jax"]
Logger = Literal["console", "wandb", "mlflow", "trackio", "none"]
Model = Literal["mlp", "cnn", "impala"]
Recurrent = Literal["none", "lstm", "gru"]
if TYPE_CHECKING:  # what a program may write for a field that converted() makes to the type below
    Schedule = Literal["none", "linear", "cosine"] | bool
    NormAdv = Literal["minibatch", "batch", "none"] | bool
    Sizes = Sequence[int]
    Texts = Sequence[str]
    Arguments = Mapping[str, Any] | Sequence[str]
else:
    Schedule = Literal["none", "linear", "cosine"]
    NormAdv = Literal["minibatch", "batch", "none"]
    Sizes = tuple[int, ...]
    Texts = Arguments = tuple[str, ...]
Group = Literal["environment", "policy", "training", "logging", "machine"]
KEY = "proximo"  # of the metadata of a field
_hints_of = cache(get_type_hints)  # of a class
MANY_ENVS = 1024  # for which a GPU pays off also without convolutions
NAMES = {int: "a whole number", float: "a number", bool: "True or False", str: "text", NoneType: "None",
         tuple[int, ...]: "a list of whole numbers, such as [64, 64]", tuple[str, ...]: "a list of texts"}
Cfg = TypeVar("Cfg")
FROM_THIS_ONE = ", which --init-from RUN begins with these weights"


class Limits(NamedTuple):
    """What the environments of a variant can do."""

    engines: tuple[Engine, ...]  # the first one is used where --engine is left out
    frameworks: tuple[Framework, ...] = ("torch", "jax")
    worker_default: Literal["none", "cores"] = "none"  # cores: emulators, for which a worker process per core pays off
    next_step: bool = True  # can be reset one step late
    gymnasium: bool = False  # steps single Gymnasium environments, which a user can configure, wrap and pass
    emulator: bool = False  # frame_skip, frame_stack and grayscale describe the frames of an emulator
    max_players: int = 1  # of one game; more than one: each environment is a player of a game
    own_distribution: bool = False  # of continuous actions, which cannot be exchanged
    inside_only: bool = False  # exists for environments inside JAX's compiled functions
    advice: str = ""  # the variant that has the engines or frameworks which this one lacks


class Facts(NamedTuple):
    """What a field declares besides its type, its default and its docstring."""

    group: Group = "training"  # "logging": only watches the run, and changes nothing in what is learned
    resume: Literal["fixed", "free", "moved"] = "fixed"  # fixed: a resume refuses another value; moved: it may give
    # the path of a file of the same name
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    detail: str = ""  # numbers of implementation details (docs/details.md), separated by ", "
    ablated: Any = ...  # the value that an ablation sets; for a switch the opposite of its value; ...: no ablation
    switch: tuple[Any, ...] = ()  # what False and True mean, where other implementations have a switch
    task: bool = False  # another value is another task: published scores of the environment do not compare
    sweep: bool = False  # runs with several values can be trained at once, by proximo sweep
    chosen: bool = False  # the default leaves the choice to the run or the machine

    def range_problem(self, value: float) -> str:
        """Return what is wrong with a number, or an empty string."""
        if self.minimum is not None and self.maximum is not None and not self.minimum <= value <= self.maximum:
            return f"must be between {self.minimum} and {self.maximum}"
        if self.minimum is not None and value < self.minimum:
            return f"must be at least {self.minimum}"
        if self.maximum is not None and value > self.maximum:
            return f"must be at most {self.maximum}"
        return f"must be above {self.above}" if self.above is not None and value <= self.above else ""


def setting(default: Any, **facts: Any) -> Any:
    """Make a dataclass field that declares facts; in a subclass, only those that differ from the base class's.

    Args:
        default: The default of the field.
        facts: Fields of `Facts`.
    """
    return field(default=default, metadata={KEY: facts})


def facts(kind: Any) -> dict[str, Facts]:
    """Return the facts of every field of a configuration or its class, in order of the fields."""
    return _facts_of_class(kind if isinstance(kind, type) else type(kind))


def facts_of_all(kinds: Iterable[Any]) -> dict[str, Facts]:
    """Return the facts of every field that one of several classes has; where they differ, those of the first class."""
    return {name: fact for kind in reversed(list(kinds)) for name, fact in facts(kind).items()}


@cache
def _facts_of_class(kind: Any) -> dict[str, Facts]:
    found: dict[str, dict[str, Any]] = {}
    for base in reversed(kind.__mro__):
        for name, one in getattr(base, "__dataclass_fields__", {}).items():
            found.setdefault(name, {}).update(one.metadata.get(KEY, {}))
    return {one.name: Facts(**found[one.name]) for one in fields(kind)}


def with_switch(cfg: Any) -> dict[str, Any]:
    """Return the choice that True or False stands for, for each field that has one of them instead of a choice."""
    return {name: fact.switch[getattr(cfg, name)] for name, fact in facts(cfg).items()
            if fact.switch and isinstance(getattr(cfg, name), bool)}


def fixed_on_resume(cfg: Any) -> dict[str, Any]:
    """Return the values that a resume cannot change: state, shapes, random streams or arithmetic depend on them."""
    values = ((name, getattr(cfg, name)) for name, fact in facts(cfg).items() if fact.resume != "free")
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values}  # as in JSON


def auto_selects_gpu(cfg: Any, present: bool) -> bool:
    """Return whether --device auto selects a GPU, for convolutions or many environments; say why, if one is present."""
    reason = "the network has convolutions" if cfg.model != "mlp" else (
        f"num_envs={cfg.num_envs} is at least {MANY_ENVS}" if cfg.num_envs >= MANY_ENVS else "")
    if present and reason:
        notify(f"--device auto selects the GPU: {reason}.")
    elif present:
        notify(f"--device auto selects the CPU: no convolutions, and num_envs={cfg.num_envs} is below {MANY_ENVS}.")
    return present and bool(reason)


def shown(value: Any) -> str:
    """Return a value of a field as messages show it: the numbers of a tuple as on the command line."""
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def refused_changes(cfg: Any, recorded: dict[str, Any]) -> list[str]:
    """Return one line for each field in which `cfg` differs from `recorded`, the fixed_on_resume() of a run."""
    known, given = facts(cfg), fixed_on_resume(cfg)
    return [f"{name}={shown(value)} was given, but the run has {name}={shown(recorded[name])} and a resume cannot "
            f"change it. Start a new run{FROM_THIS_ONE * (known[name].group != 'policy')}."
            for name, value in given.items() if name in recorded and recorded[name] != value
            and not (known[name].resume == "moved" and _same_name(value, recorded[name]))]


def _same_name(one: Any, other: Any) -> bool:
    """Return whether two paths, of any operating system, have the same last part."""
    return PureWindowsPath(str(one)).name == PureWindowsPath(str(other)).name


def field_types(kind: Any) -> dict[str, Any]:
    """Return the type of every field. A class of a program gives a field of Proximo a default, not another type."""
    ours = next((base for base in kind.__mro__ if base.__module__.startswith("proximo.")), kind)
    try:
        return _hints_of(kind) | _hints_of(ours)
    except NameError:  # a class inside of a function, with annotations that are texts
        return dict.fromkeys(kind.__dataclass_fields__, Any) | _hints_of(ours)


def options_of(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def describe_type(hint: Any) -> str:
    """Return in words which values a type hint of a field allows."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    return " or ".join(NAMES[one] for one in options_of(hint))


def converted(value: Any, hint: Any) -> Any:
    """Return a value as the type of a field, where nothing is lost: 1e3 as 1000, numpy's numbers, a Path as text.

    Raises:
        TypeError: The value does not fit.
    """
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if get_origin(hint) is Literal and isinstance(value, str) and value in get_args(hint):
        return str(value)
    for one in options_of(hint):
        if one not in NAMES and get_origin(one) is not Literal:  # a type of a user's own field
            return value
        if (value is None and one is NoneType) or (isinstance(value, bool) and one is bool):
            return value
        if one is str and isinstance(value, (str, os.PathLike)):
            return os.fspath(value)
        if one == tuple[str, ...] and isinstance(value, dict):
            return tuple(f"{key}={_literal(key, part)}" for key, part in value.items())
        if get_origin(one) is tuple and (isinstance(value, (list, tuple, range)) or getattr(value, "ndim", 0) == 1):
            return tuple(converted(part, get_args(one)[0]) for part in value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if one is float or (one is int and (isinstance(value, int) or value.is_integer())):
            return one(value)
    raise TypeError


def _literal(key: str, value: Any) -> str:
    """Write a value so that ast.literal_eval reads the same value; TypeError where there is no such text."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    with suppress(ValueError, SyntaxError):
        if ast.literal_eval(repr(value)) == value:
            return repr(value)
    raise TypeError(f"{key} is a {type(value).__name__}, which is not a Python literal (numbers, text, True, None, and "
                    "lists, tuples and dicts of these). Pass such an object in a function: env=lambda: MyEnv(...)")


def converted_fields(cfg: Cfg) -> Cfg:
    """Return the configuration with every value as its field's type; what does not fit stays (see problems())."""
    return replace(cfg, **{name: value for name, value, problem in _checked(cfg) if not problem})  # type: ignore


def type_problems(cfg: Any) -> list[str]:
    """Return one sentence for each value that does not fit its field's type."""
    return [problem for _, _, problem in _checked(cfg) if problem]


def range_problems(cfg: Any) -> list[str]:
    """Return one sentence for each number that is not finite or out of its range; the types are right."""
    found = []
    for name, fact in facts(cfg).items():
        value = getattr(cfg, name)
        numbers = [x for x in (value if isinstance(value, tuple) else (value,)) if isinstance(x, (int, float))]
        endless = any(isinstance(x, float) and not math.isfinite(x) for x in numbers)
        problem = "is not a finite number" if endless else next(filter(None, map(fact.range_problem, numbers)), "")
        if problem:
            found.append(f"{name}={' '.join(map(str, numbers))} {problem}")
    return found


def _checked(cfg: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield (field, its value as the field's type, what is wrong with it or "")."""
    hints = field_types(type(cfg))
    for name in facts(cfg):
        value = getattr(cfg, name)
        try:
            fitting = converted(value, hints[name])
            if isinstance(fitting, str) and fitting != one_line(fitting):
                raise TypeError("Write it on one line")
            yield name, fitting, ""
        except (TypeError, OverflowError, RuntimeError) as error:  # a number beyond floats; a tensor without one
            why = str(error) or f"Use {describe_type(hints[name])}"
            yield name, value, f"{name}={one_line(repr(value)):.60} is not allowed. {why}."
