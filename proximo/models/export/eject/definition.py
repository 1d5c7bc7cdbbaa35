"""One function, class or constant of the library as text that is edited, and as a syntax tree that is read."""

import ast
from collections.abc import Mapping
from typing import Any, NamedTuple

Function = ast.FunctionDef
COMPOSITE = (ast.IfExp, ast.BoolOp, ast.Compare, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.Tuple, ast.NamedExpr)


class Edit(NamedTuple):
    """Text that takes the place of the characters from `start` to `end`."""

    start: int
    end: int
    text: str


class Definition:
    """A definition at the top of a file.

    Its text is edited in place and parsed again, so that everything which is not edited keeps its layout and its
    comments.

    Args:
        name: Its name in the ejected file.
        module: The module that it comes from, which gives its names their meaning.
        text: Its lines, with the comments and decorators above it.
    """

    def __init__(self, name: str, module: Any, text: str) -> None:
        self.name, self.module = name, module
        self.set_text(text)

    def set_text(self, text: str) -> None:
        """Replace the text and parse it."""
        self.text, self.node = text, ast.parse(text).body[0]
        self._lines = text.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._functions = self._find_functions()

    def apply(self, edits: list[Edit]) -> bool:
        """Make edits that do not overlap; of two that do, only the outer one. Return whether anything changed."""
        kept: list[Edit] = []
        for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
            if not kept or edit.start >= kept[-1].end:
                kept.append(edit)
        text = self.text
        for edit in reversed(kept):
            text = text[:edit.start] + edit.text + text[edit.end:]
        changed = text != self.text
        if changed:
            try:
                self.set_text(text)
            except SyntaxError as error:
                raise RuntimeError(f"{self.name} cannot be parsed after an edit:\n{text}") from error
        return changed

    def offset(self, line: int, column: int) -> int:
        """Return the place of a position in the syntax tree, whose columns count bytes."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: Any) -> tuple[int, int]:
        """Return the place of the first character of a node, and the place after its last one."""
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def item_span(self, node: Any, first: int, last: int) -> tuple[int, int]:
        """Return the place of an item of a list, with the parentheses around it between the places `first` and `last`.

        A node of the syntax tree begins after its parentheses.
        """
        start, end = self.span(node)
        while True:
            before, after = self.text[first:start].rstrip(), self.text[end:last]
            space = len(after) - len(after.lstrip())
            if not (before.endswith("(") and after[space:].startswith(")")):
                return start, end
            start, end = first + len(before) - 1, end + space + 1

    def segment(self, node: Any) -> str:
        """Return the text of a node."""
        start, end = self.span(node)
        return self.text[start:end]

    def operand(self, node: ast.expr) -> str:
        """Return the text of an expression, in parentheses where it may need them."""
        return f"({self.segment(node)})" if isinstance(node, COMPOSITE) else self.segment(node)

    def segment_with(self, node: ast.expr, texts: Mapping[str, str]) -> str:
        """Return the text of an expression with other texts in the place of names."""
        text, start = self.segment(node), self.span(node)[0]
        for one in sorted((one for one in walk(node, ast.Name) if one.id in texts), key=self.span, reverse=True):
            first, last = (place - start for place in self.span(one))
            text = text[:first] + texts[one.id] + text[last:]
        return text

    def head(self, statement: Any) -> str:
        """Return the text of an assignment or a `return` up to its value."""
        start, end = self.span(statement)
        return self.text[start:self.item_span(statement.value, start, end)[0]]

    def line(self, number: int) -> str:
        """Return one line, counted from 1."""
        return self._lines[number - 1]

    def lines_span(self, first: int, last: int) -> tuple[int, int]:
        """Return the place of whole lines, with the line break after them."""
        return self._starts[first - 1], min(self._starts[last], len(self.text))

    def lines_of(self, node: Any) -> tuple[int, int]:
        """Return the place of the whole lines of a statement, with the line break after them."""
        return self.lines_span(node.lineno, node.end_lineno)

    def functions(self) -> list[tuple[str, Function]]:
        """Return [("name", node)] for a function, ("Class.method", node) for every method of a class."""
        return self._functions

    def _find_functions(self) -> list[tuple[str, Function]]:
        if isinstance(self.node, ast.FunctionDef):
            return [(self.name, self.node)]
        body = self.node.body if isinstance(self.node, ast.ClassDef) else []
        return [(f"{self.name}.{node.name}", node) for node in body if isinstance(node, ast.FunctionDef)]


def apply_all(edits: dict[Definition, list[Edit]]) -> bool:
    """Make the edits of several definitions. Return whether anything changed."""
    changed = [definition.apply(each) for definition, each in edits.items()]
    return any(changed)


def walk(node: Any, *kinds: type[Any]) -> list[Any]:
    """Return a node and all nodes inside it, or those of some kinds. The lists are kept: no tree changes in place."""
    if not hasattr(node, "inside"):
        node.inside = {(): list(ast.walk(node))}
    inside: dict[tuple[type[Any], ...], list[Any]] = node.inside
    if kinds not in inside:
        inside[kinds] = [one for one in inside[()] if isinstance(one, kinds)]
    return inside[kinds]


def code_of(node: Any) -> str:
    """Return the code of a node. It is kept, because trees are never changed in place."""
    if not hasattr(node, "code"):
        node.code = ast.unparse(node)
    code: str = node.code
    return code


def parameters(node: Function) -> list[ast.arg]:
    """Return the parameters of a function that have a name of their own, in order."""
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def is_name(node: ast.AST | None, name: str) -> bool:
    """Return whether a node is this name."""
    return isinstance(node, ast.Name) and node.id == name


def defaults(node: Function) -> dict[str, ast.expr]:
    """Return the defaults of the parameters that have one."""
    named = [*node.args.posonlyargs, *node.args.args]
    found = dict(zip([arg.arg for arg in reversed(named)], reversed(node.args.defaults)))
    return found | {arg.arg: value for arg, value in zip(node.args.kwonlyargs, node.args.kw_defaults) if value}


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a body after its docstring."""
    first = body[0] if body else None
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return body[1:] if text else body


def own_returns(function: Function) -> list[ast.Return]:
    """Return the `return` statements of a function, but not those of the functions inside it."""
    inner = {id(part) for node in walk(function, ast.FunctionDef, ast.Lambda)
             if node is not function for part in walk(node)}
    return [node for node in walk(function, ast.Return) if id(node) not in inner]


def loaded_names(tree: ast.AST) -> set[str]:
    """Return all names that are read anywhere in a tree."""
    return {node.id for node in walk(tree, ast.Name) if isinstance(node.ctx, ast.Load)}
