"""Items that are written and never read: entries of dictionaries, and parts of what functions return."""

import ast
from collections import Counter
from collections.abc import Iterator

from proximo.models.export.eject.calls import Call
from proximo.models.export.eject.definition import Definition, Edit, Function, own_returns, walk
from proximo.models.export.eject.library import Library
from proximo.models.export.eject.passes.branches import delete
from proximo.models.export.eject.passes.parameters import item_edits
from proximo.models.export.eject.purity import is_pure

Edits = dict[Definition, list[Edit]]


def unread_key(library: Library) -> Edits:
    """Return the edits that leave out one entry of a dictionary which is only written, with what writes it."""
    definitions, uses = list(library.definitions.values()), _texts(library)
    for definition in definitions:
        for table in walk(definition.node, ast.Dict):
            for key in table.keys:
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str) or not key.value.isidentifier():
                    continue
                written = [(one, node) for one in definitions for node in _writers(one, key.value)]
                if written and len(written) == uses[key.value] - 1 and all(is_pure(node.value) for _, node in written):
                    spans = [(definition.span(one or each)[0], definition.span(each)[1], one is key)
                             for one, each in zip(table.keys, table.values)]
                    edits: Edits = {definition: list(item_edits(spans))}
                    for one, node in written:
                        edits.setdefault(one, []).append(delete(one, node))
                    return edits
    return {}


def unread_name(library: Library) -> Edits:
    """Return the edits that leave out one of the names that a loop makes arrays for, where nothing else names it."""
    uses = _texts(library)
    for definition in library.definitions.values():
        for loop in walk(definition.node, ast.DictComp):
            names = loop.generators[0].iter
            items = names.elts if isinstance(names, ast.Tuple) else []
            spans = [(*definition.span(one), isinstance(one, ast.Constant) and uses[str(one.value)] == 1)
                     for one in items]
            if 0 < sum(unread for *_, unread in spans) < len(items) - 1:
                return {definition: list(item_edits(spans))}
    return {}


def _texts(library: Library) -> Counter[str]:
    """Return how often each text is written in a program."""
    return Counter(node.value for one in library.definitions.values() for node in walk(one.node, ast.Constant)
                   if isinstance(node.value, str))


def _writers(definition: Definition, key: str) -> Iterator[ast.Assign]:
    """Yield the assignments to an entry of a dictionary, or to a part of it."""
    for node in walk(definition.node):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target: ast.expr = node.targets[0]
            while isinstance(target, ast.Subscript):
                if isinstance(target.slice, ast.Constant) and target.slice.value == key:
                    yield node
                target = target.value


def unread_result(definition: Definition, function: Function, calls: list[Call]) -> Edits:
    """Return the edits that leave out one part of what a function returns which no caller reads."""
    returns = [node.value for node in own_returns(function)]
    targets = [_target(call) for call in calls]
    sizes = {len(one.elts) if isinstance(one, ast.Tuple) else 0 for one in (*returns, *targets)}
    hint = function.returns.slice if isinstance(function.returns, ast.Subscript) else None
    if len(sizes) != 1 or sizes <= {0, 1, 2} or not isinstance(hint, ast.Tuple):
        return {}
    for i in range(len(hint.elts)):
        if all(ast.unparse(one.elts[i]) == "_" for one in targets if one) and all(  # type: ignore[attr-defined]
                is_pure(one.elts[i]) for one in returns):  # type: ignore[union-attr]
            edits: Edits = {}
            for own, node in [(definition, hint), *((definition, one) for one in returns),
                              *((call.scope.definition, one) for call, one in zip(calls, targets))]:
                spans = [(*own.item_span(one, *own.span(node)), place == i)
                         for place, one in enumerate(node.elts)]  # type: ignore[union-attr]
                edits.setdefault(own, []).extend(item_edits(spans))
            return edits
    return {}


def _target(call: Call) -> ast.expr | None:
    caller = call.scope.function
    return next((node.targets[0] for node in walk(caller, ast.Assign) if node.value is call.node),
                None) if caller is not None else None
