"""The calls of the functions of a program, and their arguments."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from proximo.models.export.eject.bindings import called_name
from proximo.models.export.eject.definition import Function, code_of, parameters, walk
from proximo.models.export.eject.value import PRESENT
from proximo.models.export.eject.values import Scope

EXTERNAL = frozenset((  # also methods of other libraries: a call is of the program only where the object is known
    "step", "reset", "close", "copy", "start", "add", "write", "read", "put", "append", "mode", "value", "act",
    "update", "restart", "load", "state", "render"))


class Named(NamedTuple):
    """What an attribute that is called may mean where its object is not known."""

    methods: dict[str, list[str]]  # name -> every method of that name, as Class.method
    fields: frozenset[str]  # names of fields that hold functions


class Call(NamedTuple):
    """A call of a function of the program."""

    scope: Scope
    node: ast.Call
    skipped: int  # arguments before the first one of the function: 1 in partial(function, ...)
    partial: bool


def called_function(scope: Scope, node: ast.expr, named: Named) -> str | None:
    """Return the name of the function of the program that an expression means: f, Class.method or Class.__init__."""
    library = scope.known.library
    if isinstance(node, ast.Name) and node.id in library.places and node.id not in scope.bindings:
        return f"{node.id}.__init__" if library.is_class(node.id) else node.id
    if isinstance(node, ast.Attribute) and code_of(node.value) == "super()":
        bases = getattr(scope.definition.node, "bases", [])
        return f"{code_of(bases[0])}.{node.attr}" if bases else None
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
        if own in named.methods.get(node.attr, []):
            return own
    if isinstance(node, ast.Attribute) and node.attr not in EXTERNAL | named.fields:
        methods = named.methods.get(node.attr, [])
        return methods[0] if len(methods) == 1 else None
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


def find_calls(scopes: list[Scope], named: Named) -> tuple[dict[str, list[Call]], set[str]]:
    """Return every call of each function of the program, and the functions that are also used in other ways."""
    calls: dict[str, list[Call]] = {}
    other: set[str] = set()
    version = {name: tuple(found) for name, found in named.methods.items()}, named.fields
    for scope in scopes:
        if scope.calls is None or scope.calls[0] != version:
            scope.calls = version, *_calls_in(scope, named)
        for name, call in scope.calls[1]:
            calls.setdefault(name, []).append(call)
        other |= scope.calls[2]
    return calls, other


def _calls_in(scope: Scope, named: Named) -> tuple[list[tuple[str, Call]], set[str]]:
    tree = scope.function if scope.function is not None else scope.definition.node
    found, handled = [], set()
    quoted, unclear = inside_texts(tree), set[str]()
    for node in walk(tree, ast.Call):
        if id(node) in quoted:
            continue
        partial = called_name(node) == "partial" and bool(node.args)
        callee = node.args[0] if partial else node.func
        if name := called_function(scope, callee, named):
            found.append((name, Call(scope, node, int(partial), partial)))
            handled.add(callee)
        elif isinstance(callee, ast.Attribute) and callee.attr in named.fields and not _is_field(scope, callee):
            unclear.update(named.methods.get(callee.attr, ()))  # the method, or a function in a field of that name
    return found, unclear | set(_other_uses(scope, tree, handled))


def _is_field(scope: Scope, callee: ast.Attribute) -> bool:
    """Return whether a parameter's annotation is a record that has the attribute as a field."""
    if scope.function is None or not isinstance(callee.value, ast.Name):
        return False
    kinds = [code_of(arg.annotation) for arg in parameters(scope.function)
             if arg.arg == callee.value.id and arg.annotation is not None]
    records = [scope.known.library.definitions[kind].node for kind in kinds if kind in scope.known.library.definitions]
    return any(isinstance(node, ast.AnnAssign) and code_of(node.target) == callee.attr
               for record in records for node in getattr(record, "body", ()))


def inside_texts(tree: ast.AST) -> set[int]:
    """Return the nodes inside f-strings, whose places Python 3.11 does not know."""
    return {id(part) for node in walk(tree, ast.JoinedStr) for part in walk(node)}


def _other_uses(scope: Scope, tree: ast.AST, handled: set[ast.expr]) -> Iterator[str]:
    skipped = {id(part) for node in walk(tree, ast.arg, ast.AnnAssign, ast.FunctionDef)
               for kind in (getattr(node, "annotation", None), getattr(node, "returns", None)) if kind is not None
               for part in walk(kind)}
    for node in walk(tree, ast.Name, ast.Attribute):
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in handled
                and id(node) not in skipped and node.id in scope.known.library.places
                and node.id not in scope.bindings):
            yield node.id
            yield f"{node.id}.__init__"
        elif isinstance(node, ast.Attribute) and node not in handled and (name := _method_read(scope, node)):
            yield name  # passed on, so that it is also called where its object is not known


def _method_read(scope: Scope, node: ast.Attribute) -> str | None:
    """Return the method of the program that an attribute is, where its object is known."""
    found = scope.value(node)
    owner = getattr(found.value, "__self__", None) if found is not None else None
    return None if owner is None else _method_of(scope, type(owner), node.attr)


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
        raise RuntimeError(f"{code_of(call.node)} does not fit {function.name}({', '.join(names)})")
