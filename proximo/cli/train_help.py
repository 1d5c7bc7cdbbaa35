"""The help of `proximo train VARIANT`: the flags that most runs use, or all of them in groups."""

import ast
import inspect
import textwrap
from dataclasses import fields
from itertools import pairwise
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from proximo.config import Config
from proximo.facts import Group, facts, field_types, options_of

COMMON = ("env_id", "env_file", "env_kwargs", "total_timesteps", "seed", "num_envs", "num_steps", "learning_rate",
          "gamma", "ent_coef", "norm_obs", "norm_reward", "model", "hidden_sizes", "framework", "compile", "eval_every",
          "run_dir", "capture_video")
METAVARS = {int: "INT", float: "FLOAT", str: "TEXT", dict: "KEY=VALUE"}


class FlagHelp(NamedTuple):
    """What the help and the documentation say about one field."""

    name: str
    group: Group
    flag: str  # with its negation and its values
    text: str  # what it means
    default: str
    detail: str  # numbers of implementation details, empty: none


PRESET = FlagHelp(name="preset", group="training", flag="--preset NAME", default="", detail="",
                  text="tuned hyper-parameters of an environment, as `proximo list presets` lists them")
RESUME = FlagHelp(name="resume", group="logging", flag="--resume auto|never", default="never", detail="",
                  text="auto: continue the run in --run-dir, or start it; PROXIMO_RESUME=auto means the same")


def flag_helps(kind: type[Config]) -> list[FlagHelp]:
    """Return what there is to say about every field of a configuration, in order of the fields."""
    hints, texts, all_facts = field_types(kind), field_docstrings(kind), facts(kind)
    return [FlagHelp(name=one.name, group=all_facts[one.name].group, flag=_flag(one.name, hints[one.name]),
                     text=texts.get(one.name, ""), default=_default_text(one.default),
                     detail=all_facts[one.name].detail) for one in fields(kind)]


def field_docstrings(kind: type) -> dict[str, str]:
    """Return the strings below the fields of a class and its bases, by field."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        except (OSError, TypeError):  # a class without a file
            continue
        for node, following in pairwise(body):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) \
                    and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                found[node.target.id] = str(following.value.value)
    return found


def print_help(variant: str, kind: type[Config], everything: bool, program: str = "") -> None:
    """Print the help of a variant, or of a program that builds on it: the flags that most runs use, or all of them."""
    console = Console(highlight=False, soft_wrap=False)
    with console.capture() as capture:  # rich would end the process where nothing reads the output any more
        _print_flags(console, variant, kind, everything, program)
    print(capture.get(), end="")


def _print_flags(console: Console, variant: str, kind: type[Config], everything: bool, program: str) -> None:
    command = program or f"proximo train {variant}"
    console.print(f"usage: {command} [--flag value ...]\n", markup=False, soft_wrap=True)
    if kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("):  # that is what @dataclass writes
        console.print(f"{inspect.cleandoc(kind.__doc__)}\n", markup=False)
    helps = flag_helps(kind)
    if everything:
        for group in get_args(Group):
            _print_group(console, group, [one for one in helps if one.group == group])
        console.print("Numbers in brackets are implementation details, which docs/details.md explains.", markup=False)
    else:
        by_name = {one.name: one for one in helps}
        own = [one for one in helps if one.name not in facts(Config)]
        preset = [] if program else [PRESET]  # a program is not a variant, whose place a preset takes
        _print_group(console, "common flags", [*(by_name[name] for name in COMMON), *preset, RESUME])
        _print_group(console, f"flags of {program or variant}", own)
        console.print(f"{len(helps) - len(COMMON) - len(own)} more flags: {command} --help-all", markup=False,
                      soft_wrap=True)


def _print_group(console: Console, title: str, helps: list[FlagHelp]) -> None:
    if not helps:
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(min_width=28, max_width=36, overflow="fold")
    table.add_column(overflow="fold")
    for one in helps:
        detail = f" [{one.detail}]" if one.detail else ""
        default = f" (default: {one.default})" if one.default else ""
        table.add_row(escape(one.flag), escape(one.text + default + detail))
    console.print(f"[bold]{title}[/bold]")
    console.print(Padding(table, (0, 0, 1, 2)))


def _flag(name: str, hint: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    options = [one for one in options_of(hint) if one is not NoneType]
    if bool in options:
        return f"--[no-]{flag[2:]}"
    if get_origin(options[0]) is Literal:
        return f"{flag} {'|'.join(map(str, get_args(options[0])))}"
    if get_origin(options[0]) is tuple:
        return f"{flag} {METAVARS.get(get_args(options[0])[0], 'VALUE')} ..."
    return f"{flag} {METAVARS.get(get_origin(options[0]) or options[0], 'VALUE')}"


def _default_text(default: Any) -> str:
    if default is None or default in ("", ()):
        return ""
    if isinstance(default, bool):
        return "on" if default else "off"
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
