"""Values that are known before the program runs."""

import ast
import inspect
import textwrap
from functools import cache
from typing import Any, NamedTuple

import numpy as np


class Value(NamedTuple):
    """A value that is known.

    `text` is how it is written, if it may take the place of the expression; None: it is only used in conditions.
    """

    value: Any
    text: str | None = None


class Present:
    """The value of something of which only one thing is known: it is not None."""


class Function(Present):
    """The value of a lambda, which is true in a condition."""


PRESENT = Value(Present())
FUNCTION = Value(Function())


def literal(value: Any) -> Value:
    """Return a value that may be written down."""
    text = repr(value)
    return Value(value, f'"{text[1:-1]}"' if isinstance(value, str) and '"' not in text else text)


def literal_if_short(value: Any) -> Value:
    """Return a value that may be written down if it is None, True, False, text or an empty tuple."""
    short = value is None or isinstance(value, (bool, str)) or (isinstance(value, (tuple, dict)) and not value)
    return literal(value) if short else Value(value)


def joined(values: list[Value | None]) -> Value | None:
    """Return the value that all of several values are."""
    if not values or any(one is None for one in values):
        return None
    first, *rest = [one for one in values if one is not None]
    if all(one.value is first.value or (is_plain(first.value) and is_plain(one.value) and one.value == first.value)
           for one in rest):
        return first if all(one.text == first.text for one in rest) else Value(first.value)
    return PRESENT if all(one.value is not None for one in (first, *rest)) else None


def is_plain(value: Any) -> bool:
    """Return whether a value can safely be compared and converted to bool: no array, no object of unknown kind."""
    if isinstance(value, (tuple, list, frozenset)) and not hasattr(value, "_fields"):
        return all(map(is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, bytes, type, np.dtype, dict, Function))


def short_text(node: ast.expr | None) -> str:
    """Return the text of an attribute of a name, of such a method called without arguments, and of `"x" in name`."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not (node.args or node.keywords):
        return f"{short_text(node.func)}()"
    if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and isinstance(node.ops[0], ast.In):
        return f"{node.left.value!r} in {getattr(node.comparators[0], 'id', '')}"
    return ""


@cache
def changing_attributes(kind: type) -> frozenset[str]:
    """Return the attributes that a class of the library assigns outside of __init__."""
    found: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.startswith("proximo."):
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
            for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
                found |= {node.attr for node in ast.walk(function) if function.name != "__init__"
                          and isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    return frozenset(found)
