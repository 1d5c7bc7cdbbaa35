"""What the names in a function are bound to."""

import ast
from typing import Any

from proximo.models.export.eject.definition import Definition, Function, loaded_names, walk

Bindings = dict[str, list[ast.expr | None]]  # what each local name is bound to; None: something else


def called_name(node: ast.Call) -> str:
    """Return the last part of the name of what is called; "" if it has none."""
    return node.func.id if isinstance(node.func, ast.Name) else str(getattr(node.func, "attr", ""))


def bindings(function: Function) -> Bindings:
    """Return everything that is bound to each name in a function and in the functions inside it."""
    if not hasattr(function, "bindings"):
        function.bindings = _bindings(function)  # type: ignore[attr-defined]
    found: Bindings = function.bindings  # type: ignore[attr-defined]
    return found


def _bindings(function: Function) -> Bindings:
    found: Any = {}
    for node in walk(function):
        if isinstance(node, ast.arg):
            own = node in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
            found.setdefault(node.arg, []).append(node if own else None)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                bind(target, node.value, found)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            found.setdefault(node.value.id, []).append(None)
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)):
            bind(node.target, node.value, found)
        elif isinstance(node, (ast.FunctionDef, ast.ExceptHandler)) and node is not function and node.name:
            found.setdefault(node.name, []).append(None)
        elif isinstance(node, (ast.AugAssign, ast.For, ast.comprehension)):
            bind(node.target, None, found)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            bind(node.optional_vars, None, found)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                found.setdefault(alias.asname or alias.name.partition(".")[0], []).append(None)
    return found


def bind(target: ast.expr, value: ast.expr | None, found: Bindings) -> None:
    """Add what an assignment binds."""
    if isinstance(target, ast.Name):
        found.setdefault(target.id, []).append(value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        starred = any(isinstance(one, ast.Starred) for one in (*target.elts, *getattr(value, "elts", ())))
        for i, one in enumerate(target.elts):
            part = None if starred or value is None else _item(value, i, len(target.elts))
            bind(one.value if isinstance(one, ast.Starred) else one, part, found)


def _item(value: ast.expr, i: int, count: int) -> ast.expr | None:
    """Return an item of what is taken apart into `count` parts."""
    if isinstance(value, ast.Tuple):
        return value.elts[i] if len(value.elts) == count else None
    return ast.Subscript(value=value, slice=ast.Constant(value=i), ctx=ast.Load())


def bind_attributes(target: ast.expr, value: ast.expr | None, found: Bindings) -> None:
    """Add what an assignment to attributes of `self` binds, by the name of the attribute."""
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
        found.setdefault(target.attr, []).append(value)
    elif isinstance(target, ast.Tuple):
        same = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        for i, one in enumerate(target.elts):
            bind_attributes(one, value.elts[i] if same and isinstance(value, ast.Tuple) else None, found)


def free_names(definition: Definition) -> set[str]:
    """Return the names that a definition reads and does not bind itself."""
    functions = [node for _, node in definition.functions()]
    inside = {id(node) for function in functions for node in walk(function, ast.Name)}
    found = {node.id for node in walk(definition.node, ast.Name)
             if isinstance(node.ctx, ast.Load) and id(node) not in inside}
    for function in functions:
        found |= loaded_names(function) - bindings(function).keys()
        for part in (*function.decorator_list, function.args, *filter(None, [function.returns])):
            found |= loaded_names(part)
    return found
