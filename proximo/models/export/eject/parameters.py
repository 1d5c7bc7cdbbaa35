"""Parameters that are the same at every call, or that a function does not read, are left out, with their arguments."""

import ast
import re
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from proximo.models.export.eject.bindings import called_name
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
from proximo.models.export.eject.value import PRESENT, Value, joined
from proximo.models.export.eject.values import Scope

EXTERNAL = frozenset((  # also methods of other libraries: a call is of the program only where the object is known
    "step", "reset", "close", "copy", "start", "add", "write", "read", "put", "append", "mode", "value", "act",
    "update", "restart", "load", "state", "render"))


class Call(NamedTuple):
    """A call of a function of the program."""

    scope: Scope
    node: ast.Call
    skipped: int  # arguments before the first one of the function: 1 in partial(function, ...)
    partial: bool


def called_function(scope: Scope, node: ast.expr, methods: dict[str, list[str]]) -> str | None:
    """Return the name of the function of the program that an expression means: f, Class.method or Class.__init__."""
    library = scope.known.library
    if isinstance(node, ast.Name) and node.id in library.places and node.id not in scope.bindings:
        return f"{node.id}.__init__" if library.is_class(node.id) else node.id
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "super()":
        bases = getattr(scope.definition.node, "bases", [])
        return f"{ast.unparse(bases[0])}.{node.attr}" if bases else None
    found = scope.value(node)
    if found is not None and found is not PRESENT:
        value = found.value
        qualified = getattr(value, "__qualname__", None)
        if qualified is None and library.name_of(type(value)):
            return _method_of(scope, type(value), "forward") or _method_of(scope, type(value), "__call__")
        if qualified is not None and "." in qualified and getattr(value, "__self__", None) is not None:
            return _method_of(scope, type(value.__self__), qualified.rpartition(".")[2])
        return library.name_of(value)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        own = f"{scope.definition.name}.{node.attr}"
        if own in methods.get(node.attr, []):
            return own
    if isinstance(node, ast.Attribute) and node.attr not in EXTERNAL and not library.is_field(node.attr):
        named = methods.get(node.attr, [])
        return named[0] if len(named) == 1 else None
    return None


def _method_of(scope: Scope, kind: type, name: str) -> str | None:
    """Return the method of the program that a method of a class is; merge_class may have moved it to a subclass."""
    library, below = scope.known.library, ""
    for base in kind.__mro__:
        found = library.name_of(base)
        if name in vars(base):
            moved = library.definitions.get(below) if found not in library.definitions else None
            own = f"{below}.{name}"
            if moved is not None and any(own == method for method, _ in moved.functions()):
                return own
            return f"{found}.{name}" if found else None
        below = found if found in library.definitions else below
    return None


def find_calls(scopes: list[Scope], methods: dict[str, list[str]]) -> tuple[dict[str, list[Call]], set[str]]:
    """Return every call of each function of the program, and the functions that are also used in other ways."""
    calls: dict[str, list[Call]] = {}
    other: set[str] = set()
    version = {name: tuple(found) for name, found in methods.items()}
    for scope in scopes:
        if scope.calls is None or scope.calls[0] != version:
            scope.calls = version, *_calls_in(scope, methods)
        for name, call in scope.calls[1]:
            calls.setdefault(name, []).append(call)
        other |= scope.calls[2]
    return calls, other


def _calls_in(scope: Scope, methods: dict[str, list[str]]) -> tuple[list[tuple[str, Call]], set[str]]:
    tree = scope.function if scope.function is not None else scope.definition.node
    found, handled = [], set()
    quoted = _inside_texts(tree)
    for node in walk(tree):
        if not isinstance(node, ast.Call) or id(node) in quoted:
            continue
        partial = called_name(node) == "partial" and bool(node.args)
        callee = node.args[0] if partial else node.func
        if name := called_function(scope, callee, methods):
            found.append((name, Call(scope, node, int(partial), partial)))
            handled.add(callee)
    return found, set(_other_uses(scope, tree, handled))


def _inside_texts(tree: ast.AST) -> set[int]:
    """Return the nodes inside f-strings, whose places Python 3.11 does not know."""
    return {id(part) for node in walk(tree) if isinstance(node, ast.JoinedStr) for part in walk(node)}


def _other_uses(scope: Scope, tree: ast.AST, handled: set[ast.expr]) -> Iterator[str]:
    skipped = {id(part) for node in walk(tree) for name in ("annotation", "returns")
               if isinstance(getattr(node, name, None), ast.AST) for part in walk(getattr(node, name))}
    for node in walk(tree):
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in handled
                and id(node) not in skipped and node.id in scope.known.library.places
                and node.id not in scope.bindings):
            yield node.id
            yield f"{node.id}.__init__"


def argument_of(call: Call, function: Function, name: str) -> ast.expr | str | None:
    """Return what a call passes for a parameter; "default" if it passes nothing, None if that is not clear."""
    names = [arg.arg for arg in parameters(function)]
    bound = names[1:] if names[:1] == ["self"] else names
    given = call.node.args[call.skipped:]
    for keyword in call.node.keywords:
        if keyword.arg == name:
            return keyword.value
        if keyword.arg is None:
            return None
    for position, one in enumerate(given):
        if isinstance(one, ast.Starred):
            return None
        if position < len(bound) and bound[position] == name:
            return one
    return None if call.partial else "default"


def check_arguments(call: Call, function: Function) -> None:
    """Raise RuntimeError for a call with more arguments than the function has parameters: a step before was wrong."""
    names = [arg.arg for arg in parameters(function) if arg.arg != "self"]
    given = [one for one in call.node.args[call.skipped:] if not isinstance(one, ast.Starred)]
    unknown = {one.arg for one in call.node.keywords} - {*names, None}
    if not (function.args.vararg or function.args.kwarg) and (len(given) > len(names) or unknown):
        raise RuntimeError(f"{ast.unparse(call.node)} does not fit {function.name}({', '.join(names)})")


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
    read = {node.id for one in without_docstring(function.body) for node in walk(one)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    quoted = _inside_texts(function)
    stored = {node.id for node in walk(function) if isinstance(node, ast.Name) and id(node) in quoted}
    stored |= {node.id for node in walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
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
    for arg in parameters(function):
        start, end = definition.span(arg)
        spans.append((start, definition.span(given[arg.arg])[1] if arg.arg in given else end, arg.arg in removed))
    star = function.args.vararg or function.args.kwarg
    if star is not None:
        spans.append((definition.span(star)[0] - 1, definition.span(star)[1], False))
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
    spans = [(*scope.definition.span(one), positions.get(id(one), getattr(one, "arg", None)) in removed)
             for one in parts]
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
