"""Functions of a few statements that are called in one place are written there."""

import ast
from collections.abc import Iterator

from proximo.models.export.eject.bindings import Bindings, bind, bindings
from proximo.models.export.eject.calls import Call, argument_of, check_arguments
from proximo.models.export.eject.definition import (
    Definition,
    Edit,
    Function,
    code_of,
    defaults,
    loaded_names,
    own_returns,
    parameters,
    walk,
    without_docstring,
)
from proximo.models.export.eject.passes.branches import replace_statement
from proximo.models.export.eject.purity import is_pure

MOST_LINES = 12  # of a body that is written where it was called
LONGEST = 45  # lines of the function that it becomes a part of
MOST_OF_RECORD = 30  # the same two for a function that only puts a record together
LONGEST_OF_RECORD = 75
SIMPLE = (ast.Name, ast.Constant)
Texts = dict[str, str]  # what takes the place of a name


def inline_body(call: Call, definition: Definition, function: Function, most: int = MOST_LINES) -> Edit | None:
    """Return the edit that writes the body of a function in the place of a statement that calls it; None if it stays.

    Args:
        call: The only call of the function.
        definition: Of the function.
        function: The function or method.
        most: The number of lines up to which a body is short.
    """
    check_arguments(call, function)
    statement = _statement_of(call)
    if statement is None or call.partial or not _may_move(function, call, most):
        return None
    if not isinstance(statement, ast.Expr) and not isinstance(function.body[-1], ast.Return):
        return None  # the result, which is None, is used
    bound = _bound(call, definition, function)
    names = None if bound is None else _renamed(function, statement, bound)
    if bound is None or names is None or not _is_safe(call, function, names, _taken_apart(call, function, statement)):
        return None
    assigned = [f"{name} = {text}" for name, text in bound.items() if name not in names and name != text]
    copy = Definition(definition.name, definition.module, definition.text)
    copy.apply([Edit(*copy.span(node), names[node.id]) for node in walk(_same(copy, function), ast.Name)
                if node.id in names and names[node.id] != node.id])
    return _written(call.scope.definition, statement, copy, _same(copy, function), assigned)


def _statement_of(call: Call) -> ast.stmt | None:
    """Return the statement that consists of a call and the place that its result goes to."""
    for node in walk(call.scope.function) if call.scope.function is not None else ():
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)) and node.value is call.node:
            return node if not isinstance(node, ast.Assign) or len(node.targets) == 1 else None
    return None


def _may_move(function: Function, call: Call, most: int) -> bool:
    """Return whether a body is short, and returns only at its end."""
    body = without_docstring(function.body)
    texts = any(isinstance(one, ast.Constant) and isinstance(one.value, str) and one.lineno != one.end_lineno
                for node in body for one in walk(node))
    if not body or texts or function.decorator_list or function.args.vararg or function.args.kwarg:
        return False
    if any(isinstance(one, (ast.Yield, ast.YieldFrom, ast.Nonlocal, ast.Global)) for one in walk(function)):
        return False
    if any(one is not function.body[-1] for one in own_returns(function)):
        return False
    lines = (body[-1].end_lineno or 0) - body[0].lineno + 1
    caller = call.scope.function
    whole = 0 if caller is None else (caller.end_lineno or 0) - caller.lineno + lines
    return lines <= most and whole <= (LONGEST if most == MOST_LINES else LONGEST_OF_RECORD) and caller is not function


def _bound(call: Call, definition: Definition, function: Function) -> Texts | None:
    """Return what each parameter is, as text of the caller; None if that is not clear."""
    found: Texts = {}
    for arg in parameters(function):
        given = argument_of(call, function, arg.arg)
        if arg.arg == "self":
            given = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
            private = any(isinstance(node, ast.Attribute) and node.attr.startswith("_") for node in walk(function))
            if not isinstance(given, ast.Name) or (private and given.id != "self"):
                return None
            owner = call.scope.value(given)
            if owner is not None and type(owner.value).__name__ != definition.name and given.id != "self":
                return None
        if given is None:
            return None
        default = defaults(function).get(arg.arg)
        if isinstance(given, str) and not isinstance(default, ast.Constant):
            return None
        found[arg.arg] = definition.segment(default) if isinstance(given, str) else call.scope.definition.segment(given)
    return found


def _stored(function: Function) -> set[str]:
    return {node.id for node in walk(function, ast.Name) if isinstance(node.ctx, ast.Store)}


def _renamed(function: Function, statement: ast.stmt, bound: Texts) -> Texts | None:
    """Return the names of the function that have another text in the caller."""
    stored, reads = _stored(function), [node.id for node in walk(function, ast.Name)]
    names = {}
    for name, text in bound.items():
        node = ast.parse(text, mode="eval").body
        attribute = isinstance(node, ast.Attribute) and _is_path(node) and reads.count(name) <= 2
        if name not in stored and (isinstance(node, SIMPLE) or attribute):
            names[name] = text
    tail = function.body[-1]
    pairs = _pairs(statement.targets[0], tail.value) if isinstance(statement, ast.Assign) and isinstance(
        tail, ast.Return) else []
    for target, value in pairs:
        given = {one for text in bound.values() for one in loaded_names(ast.parse(text))}
        taken = given | set(reads) - {value.id} - names.keys()
        if value.id in stored and value.id not in bound and target.id not in taken:
            names[value.id] = target.id
    return names


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_path(node.value))


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[ast.Name, ast.Name]]:
    """Yield the names that a statement gives to names that a function returns."""
    if isinstance(target, ast.Name) and isinstance(value, ast.Name):
        yield target, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, other in zip(target.elts, value.elts):
            yield from _pairs(one, other)


def _taken_apart(call: Call, function: Function, statement: ast.stmt) -> set[str]:
    """Return the names that a function puts into a record, and its caller takes out again under the same name."""
    tail, caller = function.body[-1], call.scope.function
    record = tail.value if isinstance(tail, ast.Return) else None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(record, ast.Call) or not isinstance(target, ast.Name) or caller is None:
        return set()
    found = set()
    for one in record.keywords:
        name = one.value.id if isinstance(one.value, ast.Name) else ""
        places = [node.lineno for node in walk(caller, ast.Name) if node.id == name]
        pairs: Bindings = {}
        for node in caller.body:
            if isinstance(node, ast.Assign) and places and node.lineno == min(places):
                bind(node.targets[0], node.value, pairs)
        if name and statement in caller.body and code_of((pairs.get(name) or [None])[0] or ast.Pass()) == (
                f"{target.id}.{one.arg}"):
            found.add(name)
    return found


def _is_safe(call: Call, function: Function, names: Texts, same: set[str]) -> bool:
    """Return whether no name of the function means something else in the caller."""
    caller = call.scope.function
    assert caller is not None
    inner = {id(part) for node in walk(function, ast.JoinedStr) for part in walk(node)}
    if any(isinstance(node, ast.Name) and id(node) in inner and names.get(node.id, node.id) != node.id
           for node in walk(function)):
        return False
    own = {name for name in bindings(function) if name not in names and name not in _inner_names(function)}
    outer = bindings(caller).keys() | {node.id for node in walk(caller, ast.Name)}
    given = {name for text in names.values() for name in loaded_names(ast.parse(text))}
    free = loaded_names(function) - bindings(function).keys()
    if free & bindings(caller).keys() or given & _inner_names(function):
        return False
    return not (own - same) & (outer | given)


def _inner_names(function: Function) -> set[str]:
    """Return the names that only comprehensions bind."""
    inner = {name.id for node in walk(function, ast.comprehension) for name in walk(node.target, ast.Name)}
    parts = {id(name) for node in walk(function, ast.comprehension) for name in walk(node.target)}
    own = {node.id for node in walk(function, ast.Name) if isinstance(node.ctx, ast.Store)
           and id(node) not in parts}
    return inner - own


def _same(copy: Definition, function: Function) -> Function:
    return next(node for _, node in copy.functions() if node.name == function.name)


def _written(own: Definition, statement: ast.stmt, copy: Definition, function: Function, assigned: list[str]) -> Edit:
    """Return the edit of the caller."""
    tail = function.body[-1]
    if isinstance(tail, ast.Return) and not isinstance(statement, ast.Return):
        value = "None" if tail.value is None else copy.segment(tail.value)
        needless = tail.value is None or is_pure(tail.value)
        text = ("pass" if needless else value) if isinstance(statement, ast.Expr) else own.head(statement) + value
        if isinstance(statement, ast.Assign) and code_of(statement.targets[0]) in (value, f"({value})"):
            text = "pass"
        copy.apply([replace_statement(copy, tail, text)])
        function = _same(copy, function)
    body = without_docstring(function.body)
    start, end = copy.lines_of(body[0])[0], copy.lines_of(body[-1])[1]
    margin, lines = body[0].col_offset, copy.text[start:end].rstrip("\n").split("\n")
    shifted = [*assigned, *(line[margin:] for line in lines)]
    begin, stop = own.lines_of(statement)
    return Edit(begin, stop, "".join(f"{' ' * statement.col_offset}{line}".rstrip() + "\n" for line in shifted))
