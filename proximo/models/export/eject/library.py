"""The definitions of the library that a program needs, each under one name, and what the names in them mean."""

import ast
import builtins
import importlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from proximo.models.export.eject.definition import Definition, Edit, code_of, loaded_names, walk

IMPORTS = (ast.Import, ast.ImportFrom)


class Import(NamedTuple):
    """A name that an import of another package makes."""

    line: str  # import numpy as np
    value: Any


class Library:
    """Definitions by name, found on demand.

    Args:
        rewrite: (name, text) -> the text that takes the place of a definition's.

    Attributes:
        definitions: Those that were read so far, by the name that they have in the ejected file.
        imports: The imports of other packages, by the name that they make.
    """

    def __init__(self, rewrite: Callable[[str, str], str] = lambda name, text: text) -> None:
        self._rewrite = rewrite
        self.definitions: dict[str, Definition] = {}
        self.imports: dict[str, Import] = {}
        self.places: dict[str, tuple[str, str]] = {}  # name in the ejected file -> module, name there
        self._names: dict[Any, str] = {}  # the other way round

    def add(self, definition: Definition) -> None:
        """Add a definition with another text than in its module."""
        place = definition.module.__name__, definition.name
        self.places[definition.name], self._names[place] = place, definition.name
        self.definitions[definition.name] = definition
        self.resolve(definition)

    def find(self, module: str, name: str) -> str:
        """Return the name that a definition of a module has in the ejected file."""
        unique = name
        while self.places.get(unique, (module, name)) != (module, name):
            unique += "_"
        self.places[unique], self._names[module, name] = (module, name), unique
        return unique

    def definition(self, name: str) -> Definition:
        """Return the definition with a name, read from its module the first time."""
        if name not in self.definitions:
            module, original = self.places[name]
            text = self._rewrite(original, _texts(module)[original])
            self.definitions[name] = Definition(name, importlib.import_module(module), text)
            self._hoist_imports(self.definitions[name])
            self.resolve(self.definitions[name])
        return self.definitions[name]

    def _hoist_imports(self, definition: Definition) -> None:
        """Move the imports of other packages inside functions to the top of the file, out of the `try` around them."""
        edits = []
        for node in walk(definition.node):
            if isinstance(node, ast.Try) and all(isinstance(one, IMPORTS) for one in node.body):
                edits.append(Edit(*definition.lines_of(node), ""))
            elif isinstance(node, IMPORTS) and not str(getattr(node, "module", "")).startswith("proximo."):
                edits.append(Edit(*definition.lines_of(node), ""))
                for alias in node.names:
                    self.imports[alias.asname or alias.name.partition(".")[0]] = _meaning(node, alias)
        definition.apply(edits)

    def resolve(self, definition: Definition) -> None:
        """Find what the names in a definition mean."""
        for name in sorted(loaded_names(definition.node)):
            meaning = _meanings(definition.module.__name__).get(name)
            if isinstance(meaning, Import):
                self.imports[name] = meaning
            elif meaning is not None and meaning[1] in _texts(meaning[0]):
                self.find(*meaning)

    def value(self, name: str) -> Any:
        """Return the object that a name at the top of the ejected file means; KeyError if there is none."""
        if name in self.places:
            module, original = self.places[name]
            return getattr(importlib.import_module(module), original)
        if name in self.imports:
            return self.imports[name].value
        return vars(builtins)[name]

    def is_class(self, name: str) -> bool:
        """Return whether a name of the file is that of a class."""
        return isinstance(self.definition(name).node, ast.ClassDef)

    def callable_fields(self) -> frozenset[str]:
        """Return the fields of the file's records that hold functions."""
        return frozenset(code_of(node.target) for one in self.definitions.values() if isinstance(one.node, ast.ClassDef)
                         for node in one.node.body
                         if isinstance(node, ast.AnnAssign) and code_of(node.annotation).startswith("Callable"))

    def name_of(self, value: Any) -> str | None:
        """Return the name of a definition by its function or class."""
        place = (getattr(value, "__module__", None), getattr(value, "__qualname__", None))
        return self._names.get(place) if all(isinstance(part, str) for part in place) else None


@cache
def _tree(module: str) -> tuple[str, ast.Module]:
    text = inspect.getsource(importlib.import_module(module))
    return text, ast.parse(text)


@cache
def _texts(module: str) -> dict[str, str]:
    """Return the text of every definition of a module, with the comments directly above it."""
    text, tree = _tree(module)
    lines = text.split("\n")
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names, first = [node.name], min([node.lineno, *(one.lineno for one in node.decorator_list)])
        elif isinstance(node, ast.Assign):
            names, first = [one.id for target in node.targets for one in ast.walk(target)
                            if isinstance(one, ast.Name)], node.lineno
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names, first = [node.target.id], node.lineno
        else:
            continue
        while first > 1 and lines[first - 2].startswith("#"):
            first -= 1
        found |= dict.fromkeys(names, "\n".join(lines[first - 1:node.end_lineno]))
    return found


@cache
def _meanings(module: str) -> dict[str, Any]:
    """Return what every name at the top of a module means: an Import, or (module, name) of the library."""
    found: dict[str, Any] = {name: (module, name) for name in _texts(module)}
    for node in _tree(module)[1].body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = _meaning(node, alias)
    return found


def _meaning(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> Any:
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "proximo":
        return node.module, alias.name
    renamed = f" as {alias.asname}" if alias.asname else ""
    if isinstance(node, ast.ImportFrom):
        return Import(line=f"from {node.module} import {alias.name}{renamed}",
                      value=_imported(f"{node.module}.{alias.name}"))
    return Import(line=f"import {alias.name}{renamed}",
                  value=_imported(alias.name if alias.asname else alias.name.partition(".")[0]))


def _imported(path: str) -> Any:
    """Return a module, or a member of a module; None where a package is not installed."""
    above, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(above or path)
        return getattr(module, name) if above and hasattr(module, name) else importlib.import_module(path)
    except ImportError:
        return None


def definition_text(module: str, name: str) -> str:
    """Return the text of a definition of a module of the library."""
    return _texts(module)[name]


def module_text(module: str) -> str:
    """Return the text of a module."""
    return _tree(module)[0]


def module_names(module: str) -> list[str]:
    """Return the names of the definitions of a module in order."""
    return list(_texts(module))
