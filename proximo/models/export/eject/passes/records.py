"""Records of which one field is left become that field; those that are taken apart at once become their values."""

import ast
from collections.abc import Iterator

from proximo.models.export.eject.bindings import bindings, called_name
from proximo.models.export.eject.calls import Call
from proximo.models.export.eject.definition import (
    COMPOSITE,
    Definition,
    Edit,
    apply_all,
    code_of,
    is_name,
    parameters,
    walk,
)
from proximo.models.export.eject.library import Library
from proximo.models.export.eject.passes.unused import field_types, record_fields


def unwrap_record(library: Library) -> bool:
    """Replace one record that has one field. Return whether there was one."""
    for name, definition in library.definitions.items():
        fields = record_fields(definition)
        if fields is not None and len(fields) == 1 and isinstance(definition.node, ast.ClassDef) and not any(
                isinstance(node, ast.FunctionDef) for node in definition.node.body):
            field = next(node for node in definition.node.body if isinstance(node, ast.AnnAssign))
            held = {one: _records_by_name(library, one) for one in library.definitions.values()}
            if any(name in kinds and len(kinds) > 1 for each in held.values() for kinds in each.values()):
                continue  # a name of two records: a field that both have would be left out of the other one too
            names = set(_names_of(library, name))
            default = "" if field.value is None else definition.segment(field.value)
            edits = {each: list(_edits(each, name, fields[0], definition.segment(field.annotation), names - {
                one for one, kinds in held[each].items() if kinds and name not in kinds}, default))
                     for each in library.definitions.values() if each is not definition}
            changed = [each.apply(changes) for each, changes in edits.items()]
            return any(changed)
    return False


def unpack_record(library: Library, calls: dict[str, list[Call]], other: set[str]) -> bool:
    """Return values instead of a record that one function makes and every caller takes apart at once."""
    for name, record in library.definitions.items():
        fields = record_fields(record)
        uses = [(one, node) for one in library.definitions.values() for node in walk(one.node) if is_name(node, name)]
        makers = [(one, function) for one in library.definitions.values() for _, function in one.functions()
                  if is_name(function.returns, name)]
        if fields is None or len(makers) != 1 or len(uses) != 2 or makers[0][1].name in other:
            continue
        definition, function = makers[0]
        tail = function.body[-1]
        found = [call for key, each in calls.items() if key.rpartition(".")[2] == function.name for call in each]
        if not isinstance(tail, ast.Return) or not isinstance(tail.value, ast.Call) or not found:
            continue
        edits = [_unpacked(call, fields) for call in found]
        if not is_name(tail.value.func, name) or not all(edits) or tail.value.keywords:
            continue
        types = field_types(record)
        values = ", ".join(definition.segment(one) for one in tail.value.args)
        changes = {definition: [Edit(*definition.span(tail.value), values), Edit(*definition.span(function.returns),
                                f"tuple[{', '.join(types[field] for field in fields)}]")]}
        for call, edit in zip(found, edits):
            changes.setdefault(call.scope.definition, []).extend(edit)
        return apply_all(changes)
    return False


def _unpacked(call: Call, fields: list[str]) -> list[Edit]:
    """Return the edits of a caller that gives the fields names of their own; none if it does more with the record."""
    caller, own = call.scope.function, call.scope.definition
    statement = next((node for node in walk(caller, ast.Assign) if node.value is call.node), None)
    target = statement.targets[0] if statement is not None else None
    if not isinstance(target, ast.Name):
        return []
    uses = [node for node in walk(caller, ast.Name) if node.id == target.id]
    read = [node for node in walk(caller, ast.Attribute) if is_name(node.value, target.id)]
    stored = {node.id for node in walk(caller, ast.Name)}
    passed_on = {code_of(node.targets[0]) for node in walk(caller, ast.Assign)
                 if code_of(node.value) == f"{target.id}.{code_of(node.targets[0])}"
                 and not _is_read_between(caller, code_of(node.targets[0]), call.node, node)}
    if len(uses) != len(read) + 1 or any(field in stored and field not in passed_on for field in fields):
        return []
    return [Edit(*own.span(target), ", ".join(fields)), *(Edit(*own.span(node), node.attr) for node in read)]


def _is_read_between(caller: ast.AST | None, name: str, first: ast.AST, last: ast.AST) -> bool:
    """Return whether a name is read after a call and before a later statement: there it has its old value."""
    begin, end = getattr(first, "end_lineno", 0), getattr(last, "lineno", 0)
    return any(isinstance(node, ast.Name) and node.id == name and begin < node.lineno < end
               for node in walk(caller))


def _names_of(library: Library, record: str) -> Iterator[str]:
    """Yield the names of variables, parameters and fields that hold a record, and of functions that return it."""
    makers = {record, *(function.name for definition in library.definitions.values()
                        for _, function in definition.functions() if is_name(function.returns, record))}
    yield from makers
    for definition in library.definitions.values():
        for node in walk(definition.node):
            if isinstance(node, ast.FunctionDef):
                yield from (arg.arg for arg in parameters(node) if is_name(arg.annotation, record))
            elif isinstance(node, ast.AnnAssign) and is_name(node.annotation, record):
                yield code_of(node.target).rpartition(".")[2]
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                called = getattr(node.value.func, "id", None) or getattr(node.value.func, "attr", "")
                if called in makers and isinstance(node.targets[0], (ast.Name, ast.Attribute)):
                    yield code_of(node.targets[0]).rpartition(".")[2]


def _records_by_name(library: Library, definition: Definition) -> dict[str, set[str]]:
    """Return the records that the local names in a definition hold, as far as the calls that make them say so."""
    makers = {function.name: code_of(function.returns) for one in library.definitions.values()
              for _, function in one.functions() if function.returns is not None}
    makers |= {name: name for name, one in library.definitions.items() if isinstance(one.node, ast.ClassDef)}
    found: dict[str, set[str]] = {}
    for _, function in definition.functions():
        for name, values in bindings(function).items():
            kinds = {makers.get(called_name(one), "") for one in values if isinstance(one, ast.Call)}
            found.setdefault(name, set()).update(kind for kind in kinds if kind in library.definitions)
    return found


def _names_of_others(definition: Definition, record: str) -> set[str]:
    """Return names of something else than the record in a definition: targets of loops, and annotated parameters."""
    looped = {name.id for node in walk(definition.node, ast.For, ast.comprehension)
              for name in walk(node.target, ast.Name)}
    annotated = {arg.arg for node in walk(definition.node, ast.FunctionDef)
                 for arg in parameters(node) if arg.annotation is not None and not is_name(arg.annotation, record)}
    return looped | annotated


def _edits(definition: Definition, record: str, field: str, annotation: str, names: set[str],
           default: str) -> Iterator[Edit]:
    others = _names_of_others(definition, record)
    read = {id(node.value) for node in walk(definition.node, ast.Attribute)}
    for node in walk(definition.node):
        if isinstance(node, ast.Attribute) and node.attr == field and _last(node.value) in names and not (
                isinstance(node.value, ast.Name) and node.value.id in others):
            yield _without_field(definition, node)
        elif isinstance(node, ast.Attribute) and node.attr == field and isinstance(node.value, ast.Call):
            if is_name(node.value.func, record) or called_name(node.value) in names:
                yield _without_field(definition, node)
        elif isinstance(node, ast.Call) and is_name(node.func, record):
            yield from _only(definition, node, default, id(node) in read)
        elif is_name(node, record):
            yield Edit(*definition.span(node), annotation)


def _without_field(definition: Definition, node: ast.Attribute) -> Edit:
    """Leave `.field` out. What is before it stays, because other edits may change it."""
    end = definition.span(node)[1]
    return Edit(definition.text.rindex(".", 0, end), end, "")


def _only(definition: Definition, node: ast.Call, default: str, operand: bool) -> list[Edit]:
    """Leave what is around the argument of a record with one field out, or write the default of the field."""
    given = [*node.args, *(one.value for one in node.keywords)]
    start, end = definition.span(node)
    if not given:
        return [Edit(start, end, default)]
    first, last = definition.span(given[0])
    before, after = "()" if operand and isinstance(given[0], COMPOSITE) else ("", "")
    return [Edit(start, first, before), Edit(last, end, after)]


def _last(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
