"""Statements that never run are left out, and those that always run lose the `if` around them."""

import ast
import re
from collections.abc import Iterator

from proximo.models.export.eject.bindings import called_name
from proximo.models.export.eject.definition import Definition, Edit, without_docstring
from proximo.models.export.eject.known import DROPPED_CALLS
from proximo.models.export.eject.purity import is_pure
from proximo.models.export.eject.values import Scope

ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def statement_edits(scope: Scope, body: list[ast.stmt], guards: bool) -> list[Edit]:
    """Return the edits of a block and the blocks inside it.

    Args:
        scope: Of the function.
        body: The block.
        guards: Whether `if ...: raise` is left out: checks of what environments return.
    """
    edits: list[Edit] = []
    dead: list[ast.stmt] = []
    ended, code = False, without_docstring(body)
    for node in code:
        if ended or _is_dropped(scope, node, guards):
            dead.append(node)
            continue
        ended = isinstance(node, ENDS)
        if isinstance(node, ast.If) and (truth := scope.truth(node.test)) is not None:
            edits.append(_take_branch(scope.definition, node, truth))
        elif isinstance(node, ast.If) and _is_pass(node.body) and not node.orelse and is_pure(node.test):
            dead.append(node)
        elif isinstance(node, ast.Try) and (edit := _without_handlers(scope.definition, node)):
            edits.append(edit)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Tuple):
            kept = [scope.definition.segment(one) for one in node.value.elts if not is_pure(one)]
            edits.append(replace_statement(scope.definition, node, "\n".join(kept)))
        else:
            for block in blocks(node):
                edits += statement_edits(scope, block, guards)
    dead += [node for node in code if isinstance(node, ast.Pass) and len(body) > 1 and node not in dead]
    alive = len(code) > len(dead)
    edits += [delete(scope.definition, node) for node in (dead if alive or len(dead) < len(body) else dead[1:])]
    if dead and not alive and len(dead) == len(body):
        edits.append(replace_statement(scope.definition, dead[0], "pass"))
    return edits


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a statement."""
    for holder in (node, *getattr(node, "handlers", ())):
        yield from filter(None, (getattr(holder, name, None) for name in ("body", "orelse", "finalbody")))


def _is_dropped(scope: Scope, node: ast.stmt, guards: bool) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        name = called_name(node.value)
        checks = name.lstrip("_").startswith("check_")
        return checks or name in DROPPED_CALLS | scope.known.facts.dropped_calls or is_pure(node.value)
    if isinstance(node, ast.Expr):
        return ast.unparse(node.value) != "..." and is_pure(node.value)  # an interface consists of ...
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return ast.unparse(node.value) in (text := ast.unparse(node.targets[0]), f"{text}.clone()")
    if isinstance(node, ast.For):
        found = scope.value(node.iter)
        empty = found is not None and found.text in ("()", "{}")
        return empty or (_is_pass(node.body) and is_pure(node.iter))
    if isinstance(node, ast.Assert):
        return guards
    return guards and isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise) and all(
        isinstance(one, (ast.Assign, ast.Raise)) for one in node.body) and scope.truth(node.test) is None and not any(
        isinstance(one, ast.Call) and called_name(one) == "read" for one in ast.walk(node.test))  # it fills the masks


def _is_pass(body: list[ast.stmt]) -> bool:
    return all(isinstance(node, ast.Pass) for node in body)


def delete(definition: Definition, node: ast.stmt) -> Edit:
    """Leave a statement out, with the comments directly above it."""
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
    while first > 1 and re.match(r"\s*#", definition.line(first - 1)):
        first -= 1
    start, end = definition.lines_span(first, node.end_lineno or node.lineno)
    if isinstance(node, ast.FunctionDef) and definition.text[end:].startswith("\n"):  # the empty line below it
        end += 1
    return Edit(start, end, "")


def replace_statement(definition: Definition, node: ast.stmt, text: str) -> Edit:
    """Replace a statement by other lines, which begin in column 0."""
    start, end = definition.lines_of(node)
    margin = " " * node.col_offset
    lines = [margin + line if line else "" for line in text.split("\n")]
    comment = definition.text[definition.span(node)[1]:end].strip()
    if comment.startswith("#") and text != "pass":
        lines[-1] += f"  {comment}"
    return Edit(start, end, "\n".join(lines) + "\n")


def _take_branch(definition: Definition, node: ast.If, truth: bool) -> Edit:
    """Replace an `if` whose condition is known by the branch that runs."""
    start, end = definition.lines_of(node)
    header = definition.line(node.lineno)
    chained = header.lstrip().startswith("elif")
    block = node.body if truth else node.orelse
    if not block:
        siblings_end = "" if chained else f"{' ' * node.col_offset}pass\n"
        return Edit(start, end, siblings_end)
    if not truth and _is_chained(definition, node):
        first, last = definition.lines_span(block[0].lineno, node.end_lineno or node.lineno)
        text = definition.text[first:last]
        return Edit(start, end, text if chained else text.replace("elif", "if", 1))
    above = node.test.end_lineno if truth else _else_line(definition, node)
    first, last = definition.lines_span((above or node.lineno) + 1, block[-1].end_lineno or block[-1].lineno)
    margin = block[0].col_offset - node.col_offset
    lines = definition.text[first:last].split("\n")
    if chained:
        return Edit(start, end, "\n".join([" " * node.col_offset + "else:", *lines]))
    comment = re.search(r":  (#.*)$", definition.line(above or node.lineno))
    lines = [line[margin:] for line in lines]
    if comment and "#" not in lines[0]:
        lines[0] += "  " + comment[1]
    return Edit(start, end, "\n".join(lines))


def _is_chained(definition: Definition, node: ast.If) -> bool:
    """Return whether the else of an `if` is an `elif`."""
    return len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If) and definition.line(
        node.orelse[0].lineno)[node.orelse[0].col_offset:].startswith("elif")


def _else_line(definition: Definition, node: ast.If) -> int:
    number = node.orelse[0].lineno - 1
    while not definition.line(number).strip().startswith("else:"):
        number -= 1
    return number


def _without_handlers(definition: Definition, node: ast.Try) -> Edit | None:
    """Leave out handlers that only raise other errors, or do the same as the body."""
    def is_needless(handler: ast.ExceptHandler) -> bool:
        raises = isinstance(handler.body[-1], ast.Raise)
        return raises or [ast.dump(one) for one in handler.body] == [ast.dump(one) for one in node.body]

    if node.finalbody or node.orelse or not all(map(is_needless, node.handlers)):
        return None
    start, end = definition.lines_of(node)
    first, last = definition.lines_span(node.lineno + 1, node.body[-1].end_lineno or node.lineno)
    margin = node.body[0].col_offset - node.col_offset
    return Edit(start, end, "\n".join(line[margin:] for line in definition.text[first:last].split("\n")))

