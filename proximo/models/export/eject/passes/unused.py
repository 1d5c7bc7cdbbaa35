"""Names, attributes, methods and fields that nothing reads any more are left out."""

import ast
from collections.abc import Callable

from proximo.models.export.eject.bindings import called_name
from proximo.models.export.eject.definition import Definition, Edit, Function, code_of, walk, without_docstring
from proximo.models.export.eject.library import Library
from proximo.models.export.eject.passes.branches import blocks, delete, replace_statement
from proximo.models.export.eject.purity import is_pure
from proximo.models.export.eject.values import Scope

READ_AS_A_WHOLE = ("Adam", "Minibatches", "Batch", "Moments")  # iterated, so that no field is unread


def unused_local_edits(scope: Scope, function: Function) -> list[Edit]:
    """Return the edits that leave out assignments to local names that are never read, or always have one value."""
    read = {node.id for node in walk(function, ast.Name) if isinstance(node.ctx, ast.Load)}
    outer = {name for node in walk(function, ast.Global, ast.Nonlocal) for name in node.names}
    changed = {node.target.id for node in walk(function, ast.AugAssign) if isinstance(node.target, ast.Name)}

    def is_unused(target: ast.expr) -> bool:
        return isinstance(target, ast.Name) and target.id not in read | outer | changed

    edits = assignment_edits(scope.definition, function.body, is_unused)
    for node in walk(function):
        if isinstance(node, ast.FunctionDef) and node is not function and node.name not in read:
            edits.append(delete(scope.definition, node))
        if isinstance(node, ast.NamedExpr) and isinstance(node.target, ast.Name) and node.target.id not in read:
            start, end = scope.definition.span(node)
            edits.append(Edit(start, end, f"({scope.definition.segment(node.value)})"))
    return edits


def unused_attribute_edits(definition: Definition, read: set[str]) -> list[Edit]:
    """Return the edits that leave out what a class stores on `self`, or at its top, and no expression reads."""
    assert isinstance(definition.node, ast.ClassDef)

    def is_unused(target: ast.expr) -> bool:
        return (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"
                and target.attr not in read)

    edits = []
    for node in definition.node.body:
        if isinstance(node, ast.FunctionDef):
            edits += assignment_edits(definition, node.body, is_unused)
    return edits


def assignment_edits(definition: Definition, body: list[ast.stmt], is_unused: Callable[[ast.expr], bool]) -> list[Edit]:
    """Return the edits that leave out assignments to unused targets in a block and the blocks inside it."""
    edits: list[Edit] = []
    for node in body:
        for block in blocks(node):
            edits += assignment_edits(definition, block, is_unused)
        if isinstance(node, ast.For):
            continue
        if isinstance(node, ast.AnnAssign) and is_unused(node.target):
            edits.append(_leave_out(definition, body, node, node.value))
        elif isinstance(node, ast.AugAssign) and is_unused(node.target) and is_pure(node.value):
            edits.append(_leave_out(definition, body, node, None))
        elif isinstance(node, ast.Assign):
            edits += _assign_edits(definition, body, node, is_unused)
    return edits


def _assign_edits(definition: Definition, body: list[ast.stmt], node: ast.Assign,
                  is_unused: Callable[[ast.expr], bool]) -> list[Edit]:
    if len(node.targets) > 1:
        kept = [target for target in node.targets if not is_unused(target)]
        if len(kept) in (0, len(node.targets)):
            return []
        targets = " = ".join(map(definition.segment, kept))
        return [replace_statement(definition, node, f"{targets} = {definition.segment(node.value)}")]
    target = node.targets[0]
    if is_unused(target) or (isinstance(target, ast.Tuple) and all(map(is_unused, target.elts))):
        return [_leave_out(definition, body, node, node.value)]
    if not isinstance(target, ast.Tuple) or len(getattr(node.value, "elts", ())) != len(target.elts):
        return []
    pairs = [(one, value) for one, value in zip(target.elts, node.value.elts)  # type: ignore[attr-defined]
             if not ((is_unused(one) and is_pure(value)) or ast.unparse(one) == ast.unparse(value))]
    if len(pairs) in (0, len(target.elts)):
        return []
    left, right = (", ".join(definition.segment(one) for one in side) for side in zip(*pairs))
    return [replace_statement(definition, node, f"{left} = {right}")]


def _leave_out(definition: Definition, body: list[ast.stmt], node: ast.stmt, value: ast.expr | None) -> Edit:
    """Leave an assignment out, but for the calls in its value that do something."""
    if value is not None and not is_pure(value):
        start, end = definition.lines_of(node)
        return replace_statement(definition, node, definition.segment(value)) if start < end else Edit(0, 0, "")
    only = len(without_docstring(body)) == 1
    return replace_statement(definition, node, "pass") if only else delete(definition, node)


def unused_member_edits(definition: Definition, read: set[str], called: set[str]) -> list[Edit]:
    """Return the edits that leave out methods, properties, class attributes and fields that nothing reads."""
    node = definition.node
    assert isinstance(node, ast.ClassDef)
    edits = []
    for one in node.body:
        if isinstance(one, ast.FunctionDef):
            special = one.name.startswith("__") or one.name == "forward"  # torch calls it
            is_property = any("property" in ast.unparse(decorator) for decorator in one.decorator_list)
            if not special and one.name not in (read if is_property else called):
                edits.append(_without_blank_lines(definition, one))
        elif isinstance(one, (ast.AnnAssign, ast.Assign)):
            target = one.target if isinstance(one, ast.AnnAssign) else one.targets[0]
            names = [name.id for name in walk(target, ast.Name)]
            if definition.name not in READ_AS_A_WHOLE and not {*names} & read:
                edits.append(delete(definition, one))
    return edits if len(edits) < len(node.body) else []


def _without_blank_lines(definition: Definition, node: ast.FunctionDef) -> Edit:
    """Leave a method out, with the empty lines above it."""
    start = delete(definition, node).start
    while definition.text[:start].endswith("\n\n"):
        start -= 1
    return Edit(start, definition.lines_of(node)[1], "")


def constant_field_edits(definition: Definition, fields: set[str]) -> list[Edit]:
    """Return the edits that leave out the fields of a record whose value is a fact."""
    return [delete(definition, one) for one in walk(definition.node, ast.AnnAssign)
            if ast.unparse(one.target) in fields]


def record_fields(definition: Definition) -> list[str] | None:
    """Return the fields of a record in order; None if a definition is no record."""
    node = definition.node
    if not isinstance(node, ast.ClassDef) or not any(ast.unparse(base) == "NamedTuple" for base in node.bases):
        return None
    return [ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)]


def field_types(record: Definition) -> dict[str, str]:
    """Return the annotations of the fields of a record."""
    return {code_of(node.target): record.segment(node.annotation) for node in walk(record.node, ast.AnnAssign)}


def fields_by_record(library: Library) -> dict[str, list[str]]:
    """Return the fields of every record of a program, by its name."""
    return {name: fields for name, one in library.definitions.items() if (fields := record_fields(one)) is not None}


def impure_fields(library: Library) -> set[str]:
    """Return the fields of records that a call somewhere gives a value whose computation changes something."""
    fields = fields_by_record(library)
    found = set[str]()
    for one in library.definitions.values():
        for node in walk(one.node, ast.Call):
            known = fields.get(code_of(node.func))
            if known is not None or called_name(node) == "_replace":
                given = [*zip(known or (), node.args), *((each.arg, each.value) for each in node.keywords)]
                found |= {str(name) for name, value in given if not is_pure(value, fields)}
    return found
