"""Records of which one field is left become the value of that field."""

import ast
from collections.abc import Iterator

from proximo.export.eject.definition import Definition, Edit, parameters, walk
from proximo.export.eject.library import Library
from proximo.export.eject.unused import record_fields


def unwrap_record(library: Library) -> bool:
    """Replace one record that has one field. Return whether there was one."""
    for name, definition in library.definitions.items():
        fields = record_fields(definition)
        if fields is not None and len(fields) == 1 and isinstance(definition.node, ast.ClassDef) and not any(
                isinstance(node, ast.FunctionDef) for node in definition.node.body):
            field = next(node for node in definition.node.body if isinstance(node, ast.AnnAssign))
            names = set(_names_of(library, name))
            edits = {each: list(_edits(each, name, fields[0], definition.segment(field.annotation), names))
                     for each in library.definitions.values() if each is not definition}
            changed = [each.apply(changes) for each, changes in edits.items()]
            return any(changed)
    return False


def _names_of(library: Library, record: str) -> Iterator[str]:
    """Yield the names of variables, parameters and fields that hold a record."""
    makers = {record, *(function.name for definition in library.definitions.values()
                        for _, function in definition.functions() if _is_name(function.returns, record))}
    for definition in library.definitions.values():
        for node in walk(definition.node):
            if isinstance(node, ast.FunctionDef):
                yield from (arg.arg for arg in parameters(node) if _is_name(arg.annotation, record))
            elif isinstance(node, ast.AnnAssign) and _is_name(node.annotation, record):
                yield ast.unparse(node.target).rpartition(".")[2]
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                called = getattr(node.value.func, "id", None) or getattr(node.value.func, "attr", "")
                if called in makers and isinstance(node.targets[0], (ast.Name, ast.Attribute)):
                    yield ast.unparse(node.targets[0]).rpartition(".")[2]


def _is_name(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _edits(definition: Definition, record: str, field: str, annotation: str, names: set[str]) -> Iterator[Edit]:
    for node in walk(definition.node):
        if isinstance(node, ast.Attribute) and node.attr == field and _last(node.value) in names:
            yield Edit(*definition.span(node), definition.segment(node.value))
        elif isinstance(node, ast.Attribute) and node.attr == field and isinstance(node.value, ast.Call) and _is_name(
                node.value.func, record):
            yield Edit(*definition.span(node), definition.segment(_only(node.value)))
        elif isinstance(node, ast.Call) and _is_name(node.func, record):
            yield Edit(*definition.span(node), definition.segment(_only(node)))
        elif _is_name(node, record):
            yield Edit(*definition.span(node), annotation)


def _only(node: ast.Call) -> ast.expr:
    return node.args[0] if node.args else node.keywords[0].value


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
