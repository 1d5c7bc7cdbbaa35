"""Local names that a simplification has made needless."""

import ast
import itertools

from proximo.models.export.eject.definition import Definition, Edit, Function, walk
from proximo.models.export.eject.passes.branches import replace_statement
from proximo.models.export.eject.values import Scope


def polish_edits(scope: Scope, function: Function) -> list[Edit]:
    """Return the edits that leave out names which only pass a value on, and mark those that nothing reads."""
    reads: dict[str, int] = {}
    for node in walk(function, ast.Name, ast.AugAssign):
        name = node.target if isinstance(node, ast.AugAssign) else node
        if isinstance(name, ast.Name) and (isinstance(name.ctx, ast.Load) or name is not node):
            reads[name.id] = reads.get(name.id, 0) + 1
    edits: list[Edit] = []
    for node in walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                edits += _returned_edits(scope.definition, function, block, reads)
        if isinstance(node, (ast.For, ast.comprehension)):
            edits += _loop_edits(scope.definition, node, reads)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            edits += [Edit(*scope.definition.span(one), "_") for one in node.targets[0].elts
                      if isinstance(one, ast.Name) and one.id not in reads and one.id != "_"]
    return edits or _alias_edits(scope, function, reads)


def _returned_edits(definition: Definition, function: Function, block: list[ast.stmt],
                    reads: dict[str, int]) -> list[Edit]:
    """Return or take apart at once what is stored in a name, and only read in the next line."""
    for first, second in itertools.pairwise(block):
        if not isinstance(second, (ast.Return, ast.Assign)) or not isinstance(second.value, (ast.Name, ast.Tuple)):
            continue
        target = first.targets[0] if isinstance(first, ast.Assign) and len(first.targets) == 1 else \
            first.target if isinstance(first, ast.AnnAssign) and first.value else None
        same = isinstance(target, ast.Name) and target.id == ast.unparse(second.value) and (
            reads[target.id] == 1 or (block is function.body and isinstance(second, ast.Return)
                                      and not _is_inside_loop(function, target.id)))
        if same or (isinstance(target, ast.Tuple) and ast.unparse(target) == ast.unparse(second.value)
                    and all(reads.get(ast.unparse(one)) == 1 for one in target.elts)):
            start, _ = definition.lines_span(first.lineno, first.lineno)
            _, end = definition.lines_of(second)
            value = definition.segment(first.value)  # type: ignore[attr-defined]
            return [Edit(start, end, f"{' ' * first.col_offset}{definition.head(second)}{value}\n")]
    return []


def _loop_edits(definition: Definition, node: ast.For | ast.comprehension, reads: dict[str, int]) -> list[Edit]:
    """Leave out the number of a loop that does not read it."""
    target, call = node.target, node.iter
    counted = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "enumerate"
    if not counted or not isinstance(target, ast.Tuple) or not isinstance(call, ast.Call) or len(call.args) != 1:
        return []
    number, item = target.elts
    if not isinstance(number, ast.Name) or number.id in reads:
        return []
    return [Edit(*definition.span(target), definition.segment(item)),
            Edit(*definition.span(call), definition.segment(call.args[0]))]


def _alias_edits(scope: Scope, function: Function, reads: dict[str, int]) -> list[Edit]:
    """Write a name where another name for it was used."""
    quoted = {part.id for node in walk(function, ast.JoinedStr) for part in walk(node, ast.Name)}
    for node in [*function.body, *(one for each in function.body if isinstance(each, ast.With) for one in each.body)]:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if not isinstance(target, ast.Name) or target.id not in reads or target.id in quoted:
            continue
        if len(scope.bindings[target.id]) != 1:
            continue
        once = isinstance(value, ast.Name) and len(scope.bindings.get(value.id, [])) <= 1
        short = isinstance(value, ast.Attribute) and reads[target.id] == 1 and isinstance(value.value, ast.Name) and \
            len(scope.bindings.get(value.value.id, [])) == 1 and not _is_inside_loop(function, target.id)
        if once or short:
            text = scope.definition.segment(value)
            return [replace_statement(scope.definition, node, "pass"),
                    *(Edit(*scope.definition.span(one), text) for one in walk(function, ast.Name)
                      if one.id == target.id and isinstance(one.ctx, ast.Load))]
    return []


def _is_inside_loop(function: Function, name: str) -> bool:
    return any(one.id == name for node in walk(function, ast.For, ast.FunctionDef, ast.Lambda) if node is not function
               for one in walk(node, ast.Name))
