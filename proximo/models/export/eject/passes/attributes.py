"""Attributes of objects that are a second name for another one, or that are written and never read."""

import ast
from collections import Counter
from collections.abc import Iterator

from proximo.models.export.eject.definition import Definition, Edit, walk
from proximo.models.export.eject.library import Library
from proximo.models.export.eject.passes.branches import delete
from proximo.models.export.eject.purity import is_pure

IN_PLACE = ("fill",)  # methods that only write


def alias_attribute(library: Library) -> dict[Definition, list[Edit]]:
    """Return the edits that write `self.b` for `self.a`, where the only assignment to it is `self.a = self.b`."""
    definitions = list(library.definitions.values())
    stores = Counter(node.attr for one in definitions for node in walk(one.node, ast.Attribute)
                     if isinstance(node.ctx, ast.Store))
    for definition in definitions:
        for node in walk(definition.node):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            target, value = node.targets[0], node.value
            if _is_own(target) and _is_own(value) and stores[target.attr] == stores[value.attr] == 1:  # type: ignore[attr-defined]
                return {definition: [delete(definition, node), *(
                    Edit(*definition.span(one), definition.segment(value)) for one in walk(definition.node)
                    if _is_own(one) and one.attr == target.attr and one is not target)]}  # type: ignore[attr-defined]
    return {}


def write_only_attribute(library: Library) -> dict[Definition, list[Edit]]:
    """Return the edits that leave out an attribute which is changed in place, and never read."""
    definitions = list(library.definitions.values())
    for definition in definitions:
        stored = {node.attr for node in walk(definition.node) if _is_own(node) and isinstance(node.ctx, ast.Store)}
        for name in sorted(stored):
            uses = [node for one in definitions for node in walk(one.node, ast.Attribute) if node.attr == name]
            writers = list(_writers(definition, name))
            if len(writers) == len(uses) and any(isinstance(node.ctx, ast.Load) for node in uses):
                return {definition: [delete(definition, node) for node in writers]}
    return {}


def _writers(definition: Definition, name: str) -> Iterator[ast.stmt]:
    """Yield the statements that do nothing but write an attribute, and are not alone in their block."""
    for holder in walk(definition.node):
        body = getattr(holder, "body", [])
        for node in body if isinstance(body, list) and len(body) > 1 else []:
            target: ast.expr | None = None
            value = getattr(node, "value", None)
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
            elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
                target = node.target
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(
                    node.value.func, ast.Attribute) and node.value.func.attr in IN_PLACE:
                target, value = node.value.func.value, node.value.args[0]
            while isinstance(target, ast.Subscript):
                target = target.value
            if target is not None and _is_own(target) and target.attr == name and is_pure(value):  # type: ignore[attr-defined, arg-type]
                yield node


def _is_own(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
