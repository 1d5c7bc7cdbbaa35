"""Functions inside functions that are passed on become functions of the file. What they read becomes an argument."""

import ast
from functools import partial

from proximo.models.export.eject.bindings import bindings
from proximo.models.export.eject.definition import Definition, Edit, Function, loaded_names, parameters, walk
from proximo.models.export.eject.known import CLOSURES
from proximo.models.export.eject.library import Import, Library
from proximo.models.export.eject.passes.branches import delete


def lift_function(library: Library) -> bool:
    """Move one function to the top of the file. Return whether there was one."""
    for definition in list(library.definitions.values()):
        for _, outer in definition.functions():
            for inner in (node for node in walk(outer, ast.FunctionDef) if node is not outer):
                if _may_be_lifted(library, outer, inner):
                    _lift(library, definition, outer, inner)
                    return True
    return False


def _may_be_lifted(library: Library, outer: Function, inner: Function) -> bool:
    """Return whether a function is passed on within the program, and reads only names that are bound once around it."""
    calls = walk(outer, ast.Call)
    called = {id(node.func) for node in calls}
    called |= {id(one) for node in calls for one in node.args if _is_of_package(library, node.func)}
    uses = [node for node in walk(outer, ast.Name) if node.id == inner.name]
    passed = bool(uses) and all(id(node) not in called for node in uses)
    stores = [node.id for node in walk(outer, ast.Name) if isinstance(node.ctx, ast.Store)]
    given = {arg.arg for arg in parameters(outer)}
    once = all(stores.count(name) + (name in given) == 1 for name in _captured(outer, inner))
    return passed and once and inner.name not in CLOSURES | library.places.keys() | loaded_names(inner)


def _is_of_package(library: Library, node: ast.expr) -> bool:
    """Return whether a function is one of another package, such as lax.scan."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in library.imports and node.id != "partial"


def _captured(outer: Function, inner: Function) -> list[str]:
    """Return what a function reads of the function around it."""
    found = loaded_names(inner) - bindings(inner).keys()
    return [name for name in bindings(outer) if name in found]


def _lift(library: Library, definition: Definition, outer: Function, inner: Function) -> None:
    captured = _captured(outer, inner)
    types = {arg.arg: definition.segment(arg.annotation) for arg in parameters(outer) if arg.annotation}
    added = ", ".join(f"{name}: {types.get(name, 'Any')}" for name in captured)
    start, end = definition.lines_of(inner)
    lines = definition.text[start:end].rstrip("\n").split("\n")
    text = "\n".join(line[inner.col_offset:] for line in lines)
    head, rest = text.split("(", 1)
    comma = ", " if captured and not rest.startswith(")") else ""
    lifted = Definition(inner.name, definition.module, f"{head}({added}{comma}{rest}")
    definition.apply([delete(definition, inner), *(
        Edit(*definition.span(node), f"partial({', '.join([inner.name, *captured])})")
        for node in walk(outer, ast.Name) if node.id == inner.name and captured)])
    library.add(lifted)
    library.imports.setdefault("Any", Import(line="from typing import Any", value=None))
    library.imports.setdefault("partial", Import(line="from functools import partial", value=partial))


