"""What annotations say of None, and defaults that no call uses, at the end of the simplification."""

import ast
import re

from proximo.models.export.eject.calls import Call, argument_of
from proximo.models.export.eject.definition import Definition, Edit, Function, defaults, parameters, walk


def default_edits(definition: Definition, function: Function, calls: list[Call]) -> list[Edit]:
    """Return the edits that leave out defaults which no call uses, and `| None` where no call passes None."""
    edits: list[Edit] = []
    given = defaults(function)
    for arg in [one for one in parameters(function) if one.arg in given]:
        passed = [(call, argument_of(call, function, arg.arg)) for call in calls]
        if arg.annotation is None or any(isinstance(one, str) or one is None for _, one in passed):
            break  # a parameter without a default cannot follow one that has it
        values = [call.scope.value(one) for call, one in passed]  # type: ignore[arg-type]
        hint = definition.segment(arg.annotation)
        if all(value is not None and value.value is not None for value in values):
            hint = hint.removesuffix(" | None")
        edits.append(Edit(definition.span(arg.annotation)[0], definition.span(given[arg.arg])[1], hint))
    return edits


def present_edits(definition: Definition, present: frozenset[str]) -> list[Edit]:
    """Return the edits that leave `| None` out of the annotations of fields which are never None."""
    edits = []
    for node in walk(definition.node):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in present:
            start, end = definition.lines_span(node.lineno, node.lineno)
            line = definition.text[start:end]
            shorter = re.sub(r"[.,;:]? None: [^;.\n]*|(, |(?<=# ))None (without|where) [^;.\n]*", "",
                             line.replace(" | None", "", 1))
            if shorter != line:
                edits.append(Edit(start, end, shorter))
    return edits
