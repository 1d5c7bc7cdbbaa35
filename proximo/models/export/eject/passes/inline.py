"""Functions of one expression are written where they are called."""

import ast

from proximo.models.export.eject.bindings import called_name
from proximo.models.export.eject.calls import Call, argument_of, check_arguments
from proximo.models.export.eject.definition import (
    COMPOSITE,
    Definition,
    Edit,
    Function,
    code_of,
    parameters,
    walk,
    without_docstring,
)
from proximo.models.export.eject.known import ERRORS
from proximo.models.export.eject.purity import is_pure

LONGEST = 90  # characters of an expression that is written where its function was called
SIMPLE = (ast.Name, ast.Attribute, ast.Constant)


def inline_edit(call: Call, definition: Definition, function: Function) -> Edit | None:
    """Return the edit that writes the body of a function in the place of a call; None if that is not possible."""
    body = without_docstring(function.body)
    check_arguments(call, function)
    if call.partial or len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return None
    values: dict[str, ast.expr] = {}
    for arg in parameters(function):
        given = argument_of(call, function, arg.arg)
        if arg.arg == "self" and isinstance(call.node.func, ast.Attribute):
            given = call.node.func.value
        if not isinstance(given, ast.expr):
            return None
        values[arg.arg] = given
    expression, own = body[0].value, call.scope.definition
    counts = {name: sum(one.id == name for one in walk(expression, ast.Name)) for name in values}
    if any(count > 1 and not isinstance(values[name], SIMPLE) for name, count in counts.items()):
        return None
    if any(not count and not is_pure(values[name]) for name, count in counts.items()):
        return None
    quoted = {part.id for node in walk(expression, ast.JoinedStr) for part in walk(node, ast.Name)}
    if any('"' in own.segment(value) for name, value in values.items() if name in quoted):
        return None  # before Python 3.12, an f-string cannot contain its own quotes
    text = definition.segment_with(expression, {name: own.operand(value) for name, value in values.items()})
    return Edit(*own.span(call.node), f"({text})" if isinstance(expression, COMPOSITE) else text)


def is_short_function(function: Function, calls: int) -> bool:
    """Return whether a function is better read at its call: it returns a name, or one line and is called once."""
    body = without_docstring(function.body)
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    if value is None or function.args.vararg or function.args.kwarg:
        return False
    error = isinstance(value, ast.Call) and called_name(value) in ERRORS.values()
    return isinstance(value, (ast.Name, ast.Constant)) or (calls == 1 and (error or len(code_of(value)) <= LONGEST))
