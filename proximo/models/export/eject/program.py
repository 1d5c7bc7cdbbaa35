"""The definitions that the ejected file is made of, and what is known of them."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from proximo.models.export.eject.bindings import Bindings, bind_attributes, called_name, free_names
from proximo.models.export.eject.calls import Call, Named, find_calls
from proximo.models.export.eject.definition import Definition, Edit, Function, parameters, walk, without_docstring
from proximo.models.export.eject.known import CHECKED, ERRORS, Facts
from proximo.models.export.eject.library import Import, Library
from proximo.models.export.eject.passes.branches import statement_edits
from proximo.models.export.eject.passes.fold import expression_edits
from proximo.models.export.eject.passes.parameters import constant_argument
from proximo.models.export.eject.passes.polish import polish_edits
from proximo.models.export.eject.passes.unused import (
    record_fields,
    unused_local_edits,
)
from proximo.models.export.eject.value import Value
from proximo.models.export.eject.values import Knowledge, Scope

READS = (ast.Attribute, ast.Call)  # the nodes that read_names() reads


class Program:
    """The definitions that the ejected file is made of.

    Args:
        library: Where they come from.
        facts: What is known of the variant.
        root: The name of the definition that everything else is reached from.
    """

    def __init__(self, library: Library, facts: Facts, root: str) -> None:
        self.library, self.facts, self.root = library, facts, root
        self.known = Knowledge(library, facts, {}, {}, {})
        self._arguments_of: dict[str, dict[tuple[str, str], Value]] = {}  # function -> (function, parameter) -> value
        self._scopes: dict[str, Scope] = {}

    def reach(self) -> None:
        """Find the definitions that are reached from the root, simplified before they are read further."""
        library, found, left = self.library, set(), [self.root]
        while left:
            name = left.pop()
            if name in found:
                continue
            found.add(name)
            if name not in library.definitions:
                self._annotate(library.definition(name))
                self.fold_definition(library.definitions[name])
            library.resolve(library.definitions[name])
            left += sorted(free_names(library.definitions[name]) & library.places.keys())  # the same file every time
        for name in library.definitions.keys() - found:
            del library.definitions[name]

    def _annotate(self, definition: Definition) -> None:
        """Write the classes of the program for the interfaces in annotations."""
        types = ERRORS | dict(self.facts.types)
        if definition.name in ("Step", "Episode") or definition.module.__name__.startswith("proximo.envs."):
            types["Array"] = types["HostArray"]
        definition.apply([Edit(*definition.span(node), types[node.id]) for node in walk(definition.node, ast.Name)
                          if node.id in types])
        self.library.imports.setdefault("np", Import("import numpy as np", np))

    def scopes(self) -> Iterator[Scope]:
        """Yield a scope for every function and every constant."""
        for definition in list(self.library.definitions.values()):
            yield from self.own_scopes(definition)

    def own_scopes(self, definition: Definition) -> Iterator[Scope]:
        functions = definition.functions()
        for name, function in functions:
            yield self._scope(definition, name, function)
        if not functions:
            yield self._scope(definition, definition.name, None)

    def _scope(self, definition: Definition, name: str, function: Function | None) -> Scope:
        """Return the scope of a function, the same one as long as its text and what is known of it are the same."""
        known = self.known._replace(arguments=self._arguments_of.get(name, {}))
        kept = self._scopes.get(name)
        if kept is not None and kept.definition is definition and kept.text is definition.text and _same(
                kept.known, known):
            return kept
        self._scopes[name] = Scope(known, definition, name, function)
        return self._scopes[name]

    def learn(self) -> None:
        """Find out what the parameters of functions always are, and what functions return."""
        returned, attributes = self._returned(), self._attributes()
        if not _is_same(returned, self.known.returned) or not _is_same(attributes, self.known.attributes):
            self.known = self.known._replace(returned=returned, attributes=attributes)
        arguments = {}
        calls, other = self.calls()
        for definition in self.library.definitions.values():
            for name, function in definition.functions():
                if name in other or name not in calls:
                    continue
                for arg in parameters(function):
                    value = constant_argument(calls[name], function, arg.arg) if arg.arg != "self" else None
                    if value is not None:
                        arguments[name, arg.arg] = value
        self._arguments_of = {}
        for place, constant in arguments.items():
            self._arguments_of.setdefault(place[0], {})[place] = constant

    def _returned(self) -> dict[str, Value]:
        """Return what functions return that do nothing but return a constant."""
        found: dict[str, Value | None] = {}
        for scope in self.scopes():
            if scope.function is None:
                continue
            body = without_docstring(scope.function.body)
            value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
            constant = isinstance(value, ast.Constant) or (isinstance(value, ast.Tuple) and not value.elts)
            name = scope.function.name
            found[name] = None if name in found or not constant else scope.value(value)
        return {name: value for name, value in found.items() if value is not None}

    def _attributes(self) -> dict[tuple[str, str], Value]:
        """Return what attributes are that only __init__ sets, and to the same for every object."""
        definitions = self.library.definitions.values()
        stores = Counter(node.attr for definition in definitions for node in walk(definition.node, ast.Attribute)
                         if isinstance(node.ctx, ast.Store))
        found = {}
        for scope in self.scopes():
            if scope.function is None or scope.function.name != "__init__":
                continue
            pairs: Bindings = {}
            for node in walk(scope.function, ast.Assign):
                bind_attributes(node.targets[0], node.value, pairs)
            for name, (given, *_) in pairs.items():
                value = scope.fixed_value(given) if given is not None and stores[name] == 1 else None
                if value is not None:
                    found[scope.definition.name, name] = value
        return found

    def calls(self) -> tuple[dict[str, list[Call]], set[str]]:
        """Return the calls of each function, and the functions that are also used in ways that are not known."""
        methods: dict[str, list[str]] = {}
        for definition in self.library.definitions.values():
            for name, node in definition.functions():
                if "." in name:
                    methods.setdefault(node.name, []).append(name)
        return find_calls(list(self.scopes()), Named(methods, self.library.callable_fields()))

    def fold_definition(self, definition: Definition) -> bool:
        module, changed = definition.module.__name__, False
        guards = module.startswith(("proximo.envs", "proximo.catalog")) and module not in CHECKED
        if all(scope.clean for scope in self.own_scopes(definition)):
            return False
        for _ in range(200):
            edits = [edit for scope in self.own_scopes(definition)
                     for edit in expression_edits(scope, scope.function or definition.node)]
            edits = edits or [edit for scope in self.own_scopes(definition) if scope.function
                              for edit in statement_edits(scope, scope.function.body, guards)]
            edits = edits or [edit for scope in self.own_scopes(definition) if scope.function
                              for edit in unused_local_edits(scope, scope.function)]
            edits = edits or [edit for scope in self.own_scopes(definition) if scope.function
                              for edit in polish_edits(scope, scope.function)]
            if not edits or not definition.apply(edits):
                break
            changed = True
        for scope in self.own_scopes(definition):
            scope.clean = True
        return changed

    def read_names(self) -> tuple[set[str], set[str]]:
        """Return the attributes that are read anywhere, and those that are called or taken as functions.

        A method counts only if it is itself called or taken.
        """
        definitions = self.library.definitions.values()
        records = {field for definition in definitions for field in record_fields(definition) or ()}
        methods = [function for definition in definitions if isinstance(definition.node, ast.ClassDef)
                   for _, function in definition.functions() if not _is_special(function.name)]
        inside = {id(node) for method in methods for node in walk(method, *READS)}
        read, called = _attributes(node for definition in definitions for node in walk(definition.node, *READS)
                                   if id(node) not in inside)
        while found := [method for method in methods if method.name in (read - records) | called]:
            methods = [method for method in methods if method not in found]
            for method in found:
                more, further = _attributes(walk(method, *READS))
                read, called = read | more, called | further
        return read - {"device"}, (read - records) | called


def _same(one: Knowledge, other: Knowledge) -> bool:
    return all(_is_same(getattr(one, name), getattr(other, name)) for name in ("arguments", "returned", "attributes"))


def _is_same(a: dict[Any, Value], b: dict[Any, Value]) -> bool:
    return a is b or (a.keys() == b.keys() and all(a[key].value is b[key].value or (
        a[key].text == b[key].text and a[key].text is not None) for key in a))


def _is_special(name: str) -> bool:
    return name == "forward" or (name.startswith("__") and name.endswith("__"))


def _attributes(nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Return the attributes that are read, and the names that are called."""
    read, called = set(), set()
    for node in nodes:
        if isinstance(node, ast.Call):
            called.add(called_name(node))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            read.add(node.attr)
    return read, called
