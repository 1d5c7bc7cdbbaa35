"""What an expression is worth, as far as that is known before the program runs."""

import ast
import operator
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch

from proximo.config import Config
from proximo.models.export.eject.bindings import bindings, called_name
from proximo.models.export.eject.definition import Definition, Function
from proximo.models.export.eject.known import IDENTITIES, KNOBS, PURE, Facts
from proximo.models.export.eject.library import Library
from proximo.models.export.eject.value import (
    FUNCTION,
    PRESENT,
    Value,
    changing_attributes,
    is_plain,
    joined,
    literal,
    literal_if_short,
    short_text,
)

COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b}
READABLE = (ModuleType, type, Config, gym.Space, np.dtype, torch.device)  # attributes of these never change


class Knowledge(NamedTuple):
    """What is known of a program: facts, and what the parameters of its functions always are."""

    library: Library
    facts: Facts
    arguments: dict[tuple[str, str], Value]  # (function, parameter)
    returned: dict[str, Value]  # what functions return that always return the same constant
    attributes: dict[tuple[str, str], Value]  # (class, attribute): what every object of the class has there


class Scope:
    """Evaluates the expressions of one function, or of the top of a file."""

    def __init__(self, known: Knowledge, definition: Definition, name: str, function: Function | None) -> None:
        self.known, self.definition, self.name, self.function = known, definition, name, function
        self.text = definition.text
        self.clean = False  # whether nothing was left to simplify
        self.calls: Any = None  # what find_calls found
        self.bindings = bindings(function) if function is not None else {}
        self._busy: set[str] = set()
        self._found: dict[int, Value | None] = {}

    def value(self, node: ast.expr | None) -> Value | None:
        """Return the value of an expression, None if it is not known."""
        if id(node) in self._found:
            return self._found[id(node)]
        if self.known.facts.expressions and (text := short_text(node)) in self.known.facts.expressions:
            return literal(self.known.facts.expressions[text])
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        found: Value | None = method(node) if method else None
        if not self._busy:
            self._found[id(node)] = found
        return found

    def truth(self, node: ast.expr) -> bool | None:
        """Return whether a condition holds, None if that is not known."""
        bound = self.bindings.get(node.id, []) if isinstance(node, ast.Name) else []
        if len(bound) == 1 and getattr(bound[0], "keys", None):  # a dictionary with entries
            return True
        found = self.value(node)
        return None if found is None or not is_plain(found.value) else bool(found.value)

    def _constant(self, node: ast.Constant) -> Value:
        return literal(node.value)

    def _name(self, node: ast.Name) -> Value | None:
        if node.id in self.bindings:
            return self._local(node.id)
        if node.id in self.known.library.imports:
            value = self.known.library.value(node.id)
            return Value(value, node.id if isinstance(value, ModuleType) else None)
        try:
            value = self.known.library.value(node.id)
        except (KeyError, AttributeError):
            return None
        is_named = node.id in self.known.library.places and (
            isinstance(value, (FunctionType, type)) or node.id.isupper())
        return Value(value, node.id if is_named else None)

    def _local(self, name: str) -> Value | None:
        """Return what a local name always is: all its bindings have the same value."""
        if name in self._busy:
            return None
        if name == "self":
            instance = self.known.facts.instances.get(self._own_class())
            return None if instance is None else Value(instance)
        self._busy.add(name)
        assumed = self.known.facts.assumed.get((self.name, name))
        values = [(self.known.arguments.get((self.name, name)) or (None if assumed is None else Value(assumed)))
                  if isinstance(node, ast.arg) else self.value(node)
                  for node in self.bindings[name] if not (isinstance(node, ast.Name) and node.id == name)]
        self._busy.discard(name)
        named = self.known.facts.named
        return joined(values) or (Value(named[name]) if name in named else None)

    def _own_class(self) -> Any:
        try:
            return self.known.library.value(self.definition.name)
        except (KeyError, AttributeError):
            return None

    def _attribute(self, node: ast.Attribute) -> Value | None:
        facts = self.known.facts
        if node.attr == "device":
            return Value(torch.device("cpu"))
        if own := self.own_attribute(node):
            return own
        return literal(facts.fields[node.attr]) if node.attr in facts.fields else self._member(node)

    def own_attribute(self, node: ast.Attribute) -> Value | None:
        """Return what an attribute of `self` is for every object."""
        if not isinstance(node.value, ast.Name) or node.value.id != "self":
            return None
        name = node.attr
        kinds = [self.definition.name, *(ast.unparse(base) for base in getattr(self.definition.node, "bases", []))]
        return next((found for kind in kinds if (found := self.known.attributes.get((kind, name)))), None)

    def fixed_value(self, node: ast.expr) -> Value | None:
        """Return the value of an expression that __init__ stores, if it may be written wherever it is read."""
        found = self.value(node)
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if found is not None and isinstance(root, ast.Name) and root.id not in self.bindings and (
                callable(found.value) or isinstance(found.value, ModuleType)):
            return Value(found.value, self.definition.segment(node))
        return None if found is PRESENT else found

    def _member(self, node: ast.Attribute) -> Value | None:
        """Return an attribute of an object that is known."""
        facts = self.known.facts
        base = self.value(node.value)
        if base is None or base is PRESENT:
            return PRESENT if node.attr in facts.present else None
        owner = base.value
        record = isinstance(owner, tuple) and hasattr(owner, "_fields")
        program = type(owner).__module__.startswith("proximo.") and node.attr not in changing_attributes(type(owner))  # type: ignore[arg-type]
        space = isinstance(owner, gym.Env) and node.attr.endswith("_space")
        if not (record or program or space or isinstance(owner, READABLE)) or not hasattr(owner, node.attr):
            return PRESENT if node.attr in facts.present else None
        value = getattr(owner, node.attr)
        if type(owner).__name__ == "World":
            return literal(value)
        if record and isinstance(value, str):
            return Value(value)
        if isinstance(owner, Config):
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            return Value(value) if number or node.attr in KNOBS else literal(value)
        return Value(value) if isinstance(value, str) else literal_if_short(value)

    def _compare(self, node: ast.Compare) -> Value | None:
        values = [self.value(one) for one in (node.left, *node.comparators)]
        if len(values) != 2 or values[0] is None or values[1] is None:
            return None
        left, right, kind = values[0].value, values[1].value, type(node.ops[0])
        if kind in (ast.Is, ast.IsNot) or (is_plain(left) and is_plain(right)):
            return literal(bool(COMPARE[kind](left, right)))
        return None

    def _boolop(self, node: ast.BoolOp) -> Value | None:
        wanted = isinstance(node.op, ast.And)  # continue while this is found
        for one in node.values:
            found = self.value(one)
            if found is None or not is_plain(found.value):
                return None
            if bool(found.value) != wanted:
                return found
        return found

    def _unaryop(self, node: ast.UnaryOp) -> Value | None:
        truth = self.truth(node.operand) if isinstance(node.op, ast.Not) else None
        return None if truth is None else literal(not truth)

    def _ifexp(self, node: ast.IfExp) -> Value | None:
        truth = self.truth(node.test)
        if truth is None:
            return joined([self.value(node.body), self.value(node.orelse)])
        return self.value(node.body if truth else node.orelse)

    def _tuple(self, node: ast.Tuple) -> Value | None:
        values = [self.value(one) for one in node.elts]
        if any(one is None for one in values):
            return None
        return Value(tuple(one.value for one in values if one), "()" if not values else None)

    def _dict(self, node: ast.Dict) -> Value | None:
        return None if node.keys else literal({})

    def _subscript(self, node: ast.Subscript) -> Value | None:
        base, index = self.value(node.value), self.value(node.slice)
        if base is None or not isinstance(base.value, (list, tuple, dict)):
            return None
        if index is None:
            items = list(base.value.values() if isinstance(base.value, dict) else base.value)
            return literal(None) if items and all(item is None for item in items) else None
        try:
            return literal_if_short(base.value[index.value])
        except (KeyError, IndexError, TypeError):
            return None

    def _lambda(self, node: ast.Lambda) -> Value:
        return FUNCTION

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        return PRESENT

    def _namedexpr(self, node: ast.NamedExpr) -> Value | None:
        return self.value(node.value)

    def _call(self, node: ast.Call) -> Value | None:
        name = called_name(node)
        if name in self.known.facts.results:
            return literal_if_short(self.known.facts.results[name])
        if name in IDENTITIES and len(node.args) > IDENTITIES[name]:
            return self.value(node.args[IDENTITIES[name]])
        if isinstance(node.func, ast.Attribute) and name in ("items", "values", "keys"):
            found = self.value(node.func.value)
            return found if found is not None and found.text == "{}" else None
        function = self._member(node.func) if isinstance(node.func, ast.Attribute) else self.value(node.func)
        if function is None or function is PRESENT:
            return self.known.returned.get(name)
        if isinstance(function.value, FunctionType) and function.value.__name__ == "<lambda>" and not node.args:
            return literal_if_short(function.value())
        if isinstance(function.value, type) and self.known.library.name_of(function.value):
            return PRESENT  # an object of the program
        values = [self.value(one) for one in node.args]
        if name in ("bool", "len") and not all(one is not None and is_plain(one.value) for one in values):
            return None
        if name in PURE and not node.keywords and all(one is not None and one is not PRESENT for one in values):
            try:
                return literal_if_short(function.value(*(one.value for one in values if one)))
            except Exception:
                return None
        return self.known.returned.get(name)
