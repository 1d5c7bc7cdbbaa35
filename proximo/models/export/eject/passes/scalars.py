"""Records that only carry values from one place to another are replaced by these values."""

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from proximo.models.export.eject.bindings import bindings, called_name
from proximo.models.export.eject.calls import Call, argument_of
from proximo.models.export.eject.definition import Definition, Edit, Function, code_of, loaded_names, parameters, walk
from proximo.models.export.eject.library import Library
from proximo.models.export.eject.passes.branches import delete, replace_statement
from proximo.models.export.eject.passes.parameters import item_edits
from proximo.models.export.eject.passes.unused import field_types, fields_by_record, record_fields
from proximo.models.export.eject.purity import is_pure

MOST_FIELDS = 3  # of a record that become parameters of their own
LONGEST_LINE = 100  # of the values of an assignment to several names


def local_edits(library: Library, definition: Definition, function: Function) -> list[Edit]:
    """Return the edits that write the values of local records, and functions with arguments, where they are read."""
    for node in walk(function):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        target: ast.expr = node.targets[0] if isinstance(node, ast.Assign) else node.target
        value = node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and _may_split(target, value):
            lines = [f"{definition.segment(one)} = {definition.segment(part)}"
                     for one, part in zip(target.elts, value.elts)]
            return [replace_statement(definition, node, "\n".join(lines))]
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and len(bindings(function)[target.id]) == 1:
            if called_name(value) == "partial" and _is_fixed(library, function, value):
                return [delete(definition, node), *_replaced(definition, function, target.id, value)]
            if isinstance(node, ast.Assign) and (edits := _record_edits(library, definition, function, node)):
                return edits
    return []


def _may_split(target: ast.Tuple, value: ast.Tuple) -> bool:
    """Return whether a long assignment of several calls can become one assignment for each."""
    names = {name for one in target.elts for name in ([one.id] if isinstance(one, ast.Name) else [])}
    calls = [one for one in value.elts if isinstance(one, ast.Call)]
    return len(code_of(value)) > LONGEST_LINE and not names & loaded_names(value) and (
        len(target.elts) == len(value.elts) == len(names) == len(calls))


def _fields(library: Library, node: ast.Call) -> list[str] | None:
    """Return the fields of the record that a call makes."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    definition = library.definitions.get(name)
    return None if definition is None else record_fields(definition)


def _is_fixed(library: Library, function: Function, node: ast.expr) -> bool:
    """Return whether an expression is constant within a function: names bound once, attributes, partials, records."""
    if isinstance(node, ast.Name):
        return len(bindings(function).get(node.id, [])) <= 1
    if isinstance(node, ast.Attribute):
        return _is_fixed(library, function, node.value)
    if isinstance(node, ast.Call):
        parts = [*node.args, *(one.value for one in node.keywords)]
        made = called_name(node) == "partial" or _fields(library, node) is not None
        return made and all(_is_fixed(library, function, one) for one in parts)
    return isinstance(node, ast.Constant)


def _replaced(definition: Definition, function: Function, name: str, value: ast.expr) -> Iterator[Edit]:
    text = definition.segment(value)
    for node in walk(function):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            yield Edit(*definition.span(node), text)


def _record_edits(library: Library, definition: Definition, function: Function, statement: ast.Assign) -> list[Edit]:
    """Return the edits that leave out a local record of which only fields are read."""
    value: Any = statement.value
    fields, name = _fields(library, value), code_of(statement.targets[0])
    read = [node for node in walk(function, ast.Attribute) if code_of(node.value) == name]
    uses = [node for node in walk(function, ast.Name) if node.id == name]
    if fields is None or len(uses) != len(read) + 1:
        return []
    given = dict(zip(fields, value.args)) | {str(one.arg): one.value for one in value.keywords}
    at_once = (statement.end_lineno or 0) + 1
    if not {node.attr for node in read} <= given.keys() or not all(
            _is_fixed(library, function, one) or (isinstance(one, ast.Name) and all(
                node.lineno == at_once for node in read if node.attr == field)) for field, one in given.items()):
        return []
    return [delete(definition, statement),
            *(Edit(*definition.span(node), definition.segment(given[node.attr])) for node in read)]


def split_parameter(library: Library, definition: Definition, function: Function,
                    calls: list[Call]) -> dict[Definition, list[Edit]]:
    """Return the edits that pass the fields of a record instead of the record, where a function reads few of them."""
    for arg in parameters(function):
        record = code_of(arg.annotation) if arg.annotation is not None else ""
        if record not in library.definitions or record_fields(library.definitions[record]) is None:
            continue
        read = [node for node in walk(function, ast.Attribute)
                if isinstance(node.value, ast.Name) and node.value.id == arg.arg]
        uses = [node for node in walk(function, ast.Name) if node.id == arg.arg]
        fields = list(dict.fromkeys(node.attr for node in read))
        given = [argument_of(call, function, arg.arg) for call in calls]
        if not all(one in call.node.args for one, call in zip(given, calls)):
            continue
        taken = (bindings(function).keys() | loaded_names(function)) & {*fields}
        made = [one for one in given if isinstance(one, ast.Call) and code_of(one.func) == record and not one.args]
        simple = len(made) == len(given) or all(isinstance(one, (ast.Name, ast.Attribute)) for one in given)
        types = field_types(library.definitions[record])
        unread = [each.value for one in made for each in one.keywords if each.arg not in fields]
        if not all(is_pure(one, fields_by_record(library)) for one in unread):
            continue
        if not fields or len(fields) > MOST_FIELDS or len(uses) != len(read) or taken or not simple:
            continue
        if not types.keys() >= {*fields}:  # a property, which is no field
            continue
        edits = {definition: [Edit(*definition.span(arg), ", ".join(f"{name}: {types[name]}" for name in fields)),
                              *(Edit(*definition.span(node), node.attr) for node in read)]}
        for call, one in zip(calls, given):
            assert isinstance(one, ast.expr)
            text, own = call.scope.definition.segment(one), call.scope.definition
            given_fields = one.keywords if isinstance(one, ast.Call) else []
            values = {str(each.arg): own.segment(each.value) for each in given_fields}
            parts = ", ".join(values.get(name, f"{text}.{name}") for name in fields)
            edits.setdefault(own, []).append(Edit(*own.span(one), parts))
        return edits
    return {}


def push_record(library: Library, definition: Definition, function: Function,
                call: Call) -> dict[Definition, list[Edit]]:
    """Return the edits that write the parts of a record, which the only caller puts together, where they are read."""
    caller = call.scope.function
    for arg in parameters(function) if caller is not None else ():
        given = argument_of(call, function, arg.arg)
        made = [node for node in walk(caller, ast.Assign) if isinstance(given, ast.Name)
                and code_of(node.targets[0]) == given.id and isinstance(node.value, ast.Call)]
        record = made[0].value if made else given
        if not isinstance(record, ast.Call) or _fields(library, record) is None or record.args:
            continue
        if not all(_is_fixed(library, caller, one.value) for one in record.keywords):  # type: ignore[arg-type]
            continue
        values = {str(one.arg): one.value for one in record.keywords}
        read = [node for node in walk(function, ast.Attribute)
                if isinstance(node.value, ast.Name) and node.value.id == arg.arg and node.attr in values]
        uses = [node for node in walk(function, ast.Name) if node.id == arg.arg]
        outer = {name for node in read for name in loaded_names(values[node.attr]) if name in bindings(caller)}  # type: ignore[arg-type]
        names = _names_inside(function, call, sorted(outer))
        if names is None or len(read) != len(uses) or given not in call.node.args:
            continue
        places = [(node, values[node.attr]) for node in read]
        return _pushed(definition, function, call, arg, given, names, places)
    return {}


def push_function(library: Library, definition: Definition, function: Function,
                  call: Call) -> dict[Definition, list[Edit]]:
    """Return the edits that write a function in the place of the parameter that it is passed as."""
    caller = call.scope.function
    for arg in parameters(function) if caller is not None else ():
        given = argument_of(call, function, arg.arg)
        called = {id(node.func) for node in walk(function, ast.Call)}
        uses = [node for node in walk(function, ast.Name) if node.id == arg.arg]
        partial = isinstance(given, ast.Call) and called_name(given) == "partial"
        named = isinstance(given, (ast.Name, ast.Attribute)) and all(id(node) in called for node in uses) and uses
        if given not in call.node.args or not (partial or named) or not _is_fixed(library, caller, given):  # type: ignore[arg-type]
            continue
        outer = [name for name in loaded_names(given) if name in bindings(caller)]  # type: ignore[arg-type]
        if (isinstance(given, ast.Name) and outer) or any(isinstance(node.ctx, ast.Store) for node in uses):
            continue
        names = _names_inside(function, call, sorted(outer))
        if names is None:
            continue
        return _pushed(definition, function, call, arg, given, names, [(node, given) for node in uses])
    return {}


def _names_inside(function: Function, call: Call, outer: list[str]) -> dict[str, str] | None:
    """Return what each name of the caller is called inside a function; None if that is not possible."""
    found = {}
    stored = {node.id for node in walk(function, ast.Name) if isinstance(node.ctx, ast.Store)}
    for name in outer:
        own = [arg.arg for arg in parameters(function) if arg.arg not in stored and isinstance(
            one := argument_of(call, function, arg.arg), ast.Name) and one.id == name]
        if not own and name in bindings(function).keys() | loaded_names(function):
            return None
        found[name] = own[0] if own else name
    return found


def _pushed(definition: Definition, function: Function, call: Call, arg: ast.arg, given: ast.expr,
            names: dict[str, str], places: Sequence[tuple[ast.expr, ast.expr]]) -> dict[Definition, list[Edit]]:
    own = call.scope.definition
    present = {one.arg for one in parameters(function)}
    new = [name for name, inside in names.items() if inside not in present]
    types = _annotations(call.scope.function)
    edits = {definition: [Edit(*definition.span(node), own.segment_with(value, names)) for node, value in places]}
    added = [f"{name}: {types.get(name, 'Any')}" for name in new]
    edits[definition] += _replaced_item(definition, arg, parameters(function), added)
    items = [*call.node.args, *call.node.keywords]
    edits.setdefault(own, []).extend(_replaced_item(own, given, items, new))
    return edits


def _annotations(function: Function | None) -> dict[str, str]:
    return {} if function is None else {arg.arg: code_of(arg.annotation) for arg in parameters(function)
                                        if arg.annotation is not None}


def _replaced_item(definition: Definition, node: ast.AST, items: Sequence[ast.AST], parts: list[str]) -> list[Edit]:
    """Replace one of the items between commas by others, or leave it out."""
    if parts:
        return [Edit(*definition.span(node), ", ".join(parts))]
    return list(item_edits([(*definition.span(one), one is node) for one in items]))
