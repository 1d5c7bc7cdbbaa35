"""Parameters that are the same at every call, or that a function does not read, are left out, with their arguments."""

import ast
import re
from collections.abc import Collection, Iterator
from typing import Any

from proximo.models.export.eject.calls import Call, argument_of, inside_texts
from proximo.models.export.eject.definition import (
    Definition,
    Edit,
    Function,
    defaults,
    parameters,
    walk,
    without_docstring,
)
from proximo.models.export.eject.purity import is_pure
from proximo.models.export.eject.value import Value, joined
from proximo.models.export.eject.values import Scope


def constant_argument(calls: list[Call], function: Function, name: str) -> Value | None:
    """Return what a parameter is at every call; None if it differs or is not known."""
    values: list[Value | None] = []
    for call in calls:
        given = argument_of(call, function, name)
        if given is None:
            return None
        if isinstance(given, str):
            default = defaults(function).get(name)
            own = Scope(call.scope.known, call.scope.definition, "", None)
            values.append(own.value(default) if default is not None else None)
        else:
            values.append(call.scope.value(given))
    return joined(values)


def removable_parameters(definition: Definition, function: Function,
                         calls: list[Call]) -> dict[str, str | None]:
    """Return the parameters that can be left out, with the text that takes their place in the body.

    None instead of a text: the body does not read the parameter.
    """
    found: dict[str, str | None] = {}
    if function.args.vararg or function.args.kwarg:
        return found
    read = {node.id for one in without_docstring(function.body) for node in walk(one, ast.Name)
            if isinstance(node.ctx, ast.Load)}
    read |= {node.target.id for node in walk(function, ast.AugAssign) if isinstance(node.target, ast.Name)}
    quoted = inside_texts(function)
    stored = {node.id for node in walk(function, ast.Name) if id(node) in quoted}
    stored |= {node.id for node in walk(function, ast.Name) if isinstance(node.ctx, ast.Store)}
    for arg in parameters(function):
        if arg.arg == "self":
            continue
        given = [argument_of(call, function, arg.arg) for call in calls]
        if any(one is None for one in given) or any(isinstance(one, ast.expr) and not is_pure(one) for one in given):
            continue
        if arg.arg not in read:
            found[arg.arg] = None
            continue
        value = constant_argument(calls, function, arg.arg)
        if value is not None and value.text is not None and arg.arg not in stored:
            found[arg.arg] = value.text
        elif all(one == "default" for one in given) and arg.arg not in stored:
            found[arg.arg] = definition.segment(defaults(function)[arg.arg])
    return found


def removal_edits(definition: Definition, function: Function, removed: dict[str, str | None]) -> Iterator[Edit]:
    """Yield the edits of a function that leave parameters out of its signature, its body and its docstring."""
    for node in walk(function):
        if isinstance(node, ast.Name) and removed.get(node.id) is not None:
            yield Edit(*definition.span(node), str(removed[node.id]))
    given, spans = defaults(function), []
    whole = definition.span(function)[0], definition.span(function.body[0])[0]
    for arg in parameters(function):
        start, end = definition.span(arg)
        end = definition.item_span(given[arg.arg], *whole)[1] if arg.arg in given else end
        spans.append((start, end, arg.arg in removed))
    yield from item_edits(spans)
    yield from _documentation_edits(definition, function, list(removed))


def item_edits(spans: list[tuple[int, int, bool]]) -> Iterator[Edit]:
    """Yield the edits that leave items between commas out; a span is (start, end, whether it is left out)."""
    kept = False
    for i, (start, end, gone) in enumerate(spans):
        if gone and kept:
            yield Edit(spans[i - 1][1], end, "")
        elif gone:
            yield Edit(start, spans[i + 1][0] if i + 1 < len(spans) else end, "")
        kept = kept or not gone


def argument_edits(scope: Scope, node: ast.Call, names: list[str], removed: Collection[str],
                   skipped: int = 0) -> Iterator[Edit]:
    """Yield the edits that leave arguments out of a call; `names` are the parameters of what is called, in order."""
    positions = {id(one): name for one, name in zip(node.args[skipped:], names)}
    parts: list[Any] = [*node.args, *node.keywords]
    callee, end = scope.definition.span(node.func)[1], scope.definition.span(node)[1]
    begin = scope.definition.text.index("(", callee) + 1
    spans = [(*scope.definition.item_span(one, begin, end - 1),
              positions.get(id(one), getattr(one, "arg", None)) in removed) for one in parts]
    yield from item_edits(spans)


def _documentation_edits(definition: Definition, function: Function, names: list[str]) -> Iterator[Edit]:
    """Yield the edit that leaves parameters out of the section Args of a docstring."""
    holder: Any = definition.node if function.name == "__init__" and not ast.get_docstring(function) else function
    if not ast.get_docstring(holder):
        return
    start, end = definition.span(holder.body[0])
    text, margin = definition.text[start:end], " " * holder.body[0].col_offset
    for name in names:
        entry = re.search(rf"\n{margin}    {name}: .*(\n{margin}      +.*)*", text)
        text = text[:entry.start()] + text[entry.end():] if entry else text
    text = re.sub(rf"\n\n{margin}Args:(?=\n\n|\n{margin}\"\"\"|\n{margin}[A-Z])", "", text)
    text = re.sub(r'\A"""([^\n]*[^\s\\])\s*\n\s*"""\Z', r'"""\1"""', text)
    if text != definition.text[start:end]:
        yield Edit(start, end, text)
