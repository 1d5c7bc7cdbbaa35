"""Expressions whose value is known become that value; conditional ones become the part that is used."""

import ast
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from proximo.models.export.eject.bindings import called_name
from proximo.models.export.eject.definition import COMPOSITE, Edit, walk
from proximo.models.export.eject.known import ERRORS, IDENTITIES, SIMPLER, ZEROS
from proximo.models.export.eject.purity import is_pure
from proximo.models.export.eject.value import Value
from proximo.models.export.eject.values import Scope


def expression_edits(scope: Scope, tree: ast.AST) -> list[Edit]:
    """Return the edits that simplify the expressions of a statement or of a whole function."""
    return list(_edits(scope, tree))


def _edits(scope: Scope, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        for child in ast.iter_child_nodes(node):
            yield from _edits(scope, child)
        return
    if isinstance(node, ast.expr):
        text = _simplified(scope, node)
        if text is not None:
            start, end = scope.definition.span(node)
            yield Edit(start, end, text)
            return
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # a method is no field
        if (own := scope.own_attribute(node.func)) and own.text:
            yield Edit(*scope.definition.span(node.func), own.text)
        for child in (node.func.value, *node.args, *node.keywords):
            yield from _edits(scope, child)
        return
    for child in children(node):
        yield from _edits(scope, child)


def children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node in which expressions may be simplified: no annotations, no texts with fields."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns") or isinstance(node, ast.JoinedStr):
            continue
        yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ast.AST))


def _simplified(scope: Scope, node: ast.expr) -> str | None:
    """Return the text that takes the place of an expression, None if it stays."""
    if isinstance(node, ast.Constant):
        return None
    if isinstance(node, ast.Name):
        found = scope.value(node)
        return found.text if found is not None and found.text not in (None, node.id) else None
    if isinstance(node, ast.IfExp):
        truth = scope.truth(node.test)
        return None if truth is None else scope.definition.operand(node.body if truth else node.orelse)
    if isinstance(node, ast.BoolOp):
        return _bool_op(scope, node)
    if isinstance(node, ast.BinOp):
        return _bin_op(scope, node)
    if isinstance(node, ast.Call):
        return _call(scope, node)
    if isinstance(node, ast.Tuple) and any(isinstance(one, ast.Starred) and isinstance(one.value, ast.Tuple)
                                           for one in node.elts):
        parts = _unstarred(scope, node.elts)
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        return _item(scope, node)
    if isinstance(node, (ast.Attribute, ast.Compare, ast.UnaryOp, ast.Subscript)):
        found = scope.value(node)
        return found.text if found is not None and is_short(found) else None
    return None


def is_short(found: Value) -> bool:
    """Return whether a value may be written in the place of an expression."""
    plain = found.value is None or isinstance(found.value, (bool, str, ModuleType)) or callable(found.value)
    return found.text is not None and (plain or found.text in ("()", "{}"))


def _bool_op(scope: Scope, node: ast.BoolOp) -> str | None:
    """Leave out the parts of `and` and `or` that decide nothing."""
    neutral, kept = isinstance(node.op, ast.And), []
    for one in node.values:
        truth = scope.truth(one)
        if truth is neutral and (one is not node.values[-1] or _is_condition(one)):
            continue
        kept.append(one)
        if truth is (not neutral):
            break
    if not kept:
        return repr(neutral)
    last = scope.value(kept[-1])
    if last is not None and last.value is (not neutral) and all(is_pure(one) for one in kept):
        return scope.definition.operand(kept[-1])
    if len(kept) == len(node.values):
        return None
    word = " and " if neutral else " or "
    text = word.join(map(scope.definition.operand, kept))
    return text if len(kept) == 1 else f"({text})"


def _is_condition(node: ast.expr) -> bool:
    return isinstance(node, (ast.Compare, ast.UnaryOp, ast.Attribute, ast.Name, ast.Call))


def _bin_op(scope: Scope, node: ast.BinOp) -> str | None:
    """Leave out a factor or divisor of 1 and a summand of 0, where these are facts such as the number of processes."""
    right, left = scope.value(node.right), scope.value(node.left)
    if isinstance(node.op, ast.Mult) and "scale" in scope.known.facts.dropped_fields.get("Adam", ()) and re.fullmatch(
            r"(float\()?((setup\.)?adam|learner)\.scale\)?", ast.unparse(node.right)):
        return scope.definition.operand(node.left)
    if isinstance(node.op, ast.BitOr) and right is not None and right.text == "{}":
        return scope.definition.operand(node.left)
    neutral = 1 if isinstance(node.op, (ast.Mult, ast.FloorDiv, ast.Div)) else 0
    may = isinstance(node.op, (ast.Mult, ast.FloorDiv, ast.Add, ast.Sub))
    if may and right is not None and type(right.value) is int and right.value == neutral and _from_world(node.right):
        return scope.definition.operand(node.left)
    for factor, found, other in ((node.left, left, node.right), (node.right, right, node.left)):
        zero = isinstance(node.op, ast.Mult) and found is not None and type(found.value) is int and found.value == 0
        if zero and _from_world(factor) and is_pure(other):
            return "0"
    if isinstance(node.op, ast.Add) and left is not None and type(left.value) is int and left.value == 0:
        return scope.definition.operand(node.right) if isinstance(node.left, ast.Constant) else None
    return None


def _from_world(node: ast.expr) -> bool:
    owner, _, name = ast.unparse(node).rpartition(".")
    return isinstance(node, ast.Constant) or owner.endswith("world") or (bool(owner) and name in ZEROS) or (
        name == "rank" and not owner)


def _call(scope: Scope, node: ast.Call) -> str | None:
    name = called_name(node)
    if name in scope.known.facts.identities:
        return scope.definition.operand(node.args[0])
    if name in ERRORS.values() and len(node.args) > 1:  # what the library adds to the message
        return f"{name}({scope.definition.segment(node.args[0])})"
    if name in IDENTITIES and len(node.args) > IDENTITIES[name]:
        return scope.definition.operand(node.args[IDENTITIES[name]])
    if isinstance(node.func, ast.Attribute) and _is_cpu(scope, node.args[:1], name):
        base = scope.definition.segment(node.func.value)
        return f"{base}.clone()" if any(one.arg == "copy" for one in node.keywords) else base
    kept = [one for one in node.keywords if not (one.arg == "device" and _is_cpu(scope, [one.value], "to"))]
    if len(kept) < len(node.keywords):
        parts = [scope.definition.segment(one) for one in (*node.args, *kept)]
        return f"{scope.definition.segment(node.func)}({', '.join(parts)})"
    if isinstance(node.func, (ast.Name, ast.Lambda)) and (text := _applied(scope, node)):
        return text
    if name == "cast" and len(node.args) == 2:
        return scope.definition.operand(node.args[1])
    if isinstance(node.func, ast.Call) and called_name(node.func) == "partial":
        parts = [scope.definition.segment(one) for one in (*node.func.args[1:], *node.args, *node.func.keywords,
                                                           *node.keywords)]
        return f"{scope.definition.segment(node.func.args[0])}({', '.join(parts)})"
    if (text := SIMPLER.get(name, scope.known.facts.written.get(name))) and isinstance(node.func, ast.Name):
        return text.format(*(scope.definition.segment(one) for one in node.args))
    if name == "replace" and node.keywords and all(ast.unparse(one.value) == f"{ast.unparse(node.args[0])}.{one.arg}"
                                                   for one in node.keywords):
        return scope.definition.operand(node.args[0])
    if any(isinstance(one, ast.Starred) and isinstance(one.value, ast.Tuple) for one in node.args):
        return f"{scope.definition.segment(node.func)}({', '.join(_unstarred(scope, node.args))})"
    found = scope.value(node)
    return found.text if found is not None and is_short(found) and is_pure(node) else None


def _unstarred(scope: Scope, items: list[ast.expr]) -> list[str]:
    """Return the texts of the items of a list in which tuples are written out."""
    parts = [one.value.elts if isinstance(one, ast.Starred) and isinstance(one.value, ast.Tuple) else [one]
             for one in items]
    return [scope.definition.segment(one) for part in parts for one in part]


def _applied(scope: Scope, node: ast.Call) -> str | None:
    """Return what a lambda, which may have a name, returns for the arguments of a call."""
    bound = scope.bindings.get(getattr(node.func, "id", ""), [node.func])
    function: Any = bound[0] if len(bound) == 1 else None
    if function is None and scope.function is not None:
        function = _short_function(scope.function, getattr(node.func, "id", ""))
    if not isinstance(function, (ast.Lambda, ast.FunctionDef)) or node.keywords:
        return None
    if len(function.args.args) != len(node.args):
        return None
    body: Any = function.body if isinstance(function, ast.Lambda) else getattr(function.body[0], "value", None)
    given = {arg.arg: scope.definition.segment(one) for arg, one in zip(function.args.args, node.args)}
    if sum(one.id in given for one in walk(body, ast.Name)) > len(given):
        return None
    text = scope.definition.segment_with(body, given)
    return f"({text})" if isinstance(body, COMPOSITE) else text


def _short_function(outer: ast.FunctionDef, name: str) -> ast.FunctionDef | None:
    """Return a function inside another one that returns one expression and is used once, or returns its argument."""
    found = [node for node in walk(outer, ast.FunctionDef) if node.name == name and node is not outer]
    uses = [node for node in walk(outer, ast.Name) if node.id == name]
    if len(found) != 1 or len(found[0].body) != 1:
        return None
    only = found[0].body[0]
    if not isinstance(only, ast.Return) or only.value is None:
        return None
    same = isinstance(only.value, ast.Name) and [arg.arg for arg in found[0].args.args] == [only.value.id]
    return found[0] if same or len(uses) == 1 else None


def _is_cpu(scope: Scope, arguments: list[ast.expr], name: str) -> bool:
    if name == "cpu":
        return not arguments
    found = scope.value(arguments[0]) if name == "to" and arguments else None
    return found is not None and str(found.value) == "cpu" and type(found.value).__name__ == "device"


def _item(scope: Scope, node: ast.Subscript) -> str | None:
    """Return the entry of a constant dict."""
    name = node.value.id if isinstance(node.value, ast.Name) else ""
    library, index = scope.known.library, scope.value(node.slice)
    definition = library.definition(name) if name in library.places else None
    table = getattr(definition.node, "value", None) if definition else None
    if definition is None or index is None or not isinstance(table, ast.Dict) or name in scope.bindings:
        return None
    for key, value in zip(table.keys, table.values):
        if isinstance(key, ast.Constant) and key.value == index.value:
            return definition.segment(value)
    return None
