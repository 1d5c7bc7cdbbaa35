"""Partial evaluation: rounds of simplification until nothing changes any more."""

import ast
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from proximo.eject.branches import statement_edits
from proximo.eject.definition import Definition, Edit, Function, parameters, walk, without_docstring
from proximo.eject.facts import DROPPED_METHODS, INLINED, Facts
from proximo.eject.fold import expression_edits
from proximo.eject.inline import inline_edit, is_short_function
from proximo.eject.library import Import, Library
from proximo.eject.parameters import (
    Call,
    argument_edits,
    constant_argument,
    find_calls,
    removable_parameters,
    removal_edits,
)
from proximo.eject.polish import polish_edits
from proximo.eject.records import unwrap_record
from proximo.eject.unused import (
    constant_field_edits,
    record_fields,
    unused_attribute_edits,
    unused_local_edits,
    unused_member_edits,
)
from proximo.eject.values import Knowledge, Scope, Value, called_name, free_names

MOST_ROUNDS = 60


class Program:
    """The definitions that the ejected file is made of.

    Args:
        library: Where they come from.
        facts: What is known of the variant.
        root: The name of the definition that everything else is reached from.
    """

    def __init__(self, library: Library, facts: Facts, root: str) -> None:
        self.library, self.facts, self.root = library, facts, root
        self.known = Knowledge(library, facts, {}, {})
        self.arguments: dict[tuple[str, str], Value] = {}  # (function, parameter): what it always is
        self._scopes: dict[str, Scope] = {}

    def specialise(self) -> None:
        """Simplify until nothing changes."""
        for _ in range(MOST_ROUNDS):
            self.reach()
            self._learn()
            changed = self._fold() | self._parameters() | self._unused() | self._inline()
            if not changed and not unwrap_record(self.library):
                return
        raise RuntimeError("simplification does not come to an end")

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
                self._fold_definition(library.definitions[name])
            library.resolve(library.definitions[name])
            left += free_names(library.definitions[name]) & library.places.keys()
        for name in library.definitions.keys() - found:
            del library.definitions[name]

    def _annotate(self, definition: Definition) -> None:
        """Write the classes of the program for the interfaces in annotations."""
        types = dict(self.facts.types)
        if definition.name in ("Step", "Episode"):
            types["Array"] = "np.ndarray"
        definition.apply([Edit(*definition.span(node), types[node.id]) for node in walk(definition.node)
                          if isinstance(node, ast.Name) and node.id in types])
        self.library.imports.setdefault("np", Import("import numpy as np", np))

    def scopes(self) -> Iterator[Scope]:
        """Yield a scope for every function and every constant."""
        for definition in list(self.library.definitions.values()):
            yield from self._own_scopes(definition)

    def _own_scopes(self, definition: Definition) -> Iterator[Scope]:
        functions = list(definition.functions())
        for name, function in functions:
            yield self._scope(definition, name, function)
        if not functions:
            yield self._scope(definition, definition.name, None)

    def _scope(self, definition: Definition, name: str, function: Function | None) -> Scope:
        """Return the scope of a function, the same one as long as its text and what is known of it are the same."""
        arguments = {key: value for key, value in self.arguments.items() if key[0] == name}
        known = self.known._replace(arguments=arguments)
        kept = self._scopes.get(name)
        if kept is not None and kept.definition is definition and kept.text is definition.text and _same(
                kept.known, known):
            return kept
        self._scopes[name] = Scope(known, definition, name, function)
        return self._scopes[name]

    def _learn(self) -> None:
        """Find out what the parameters of functions always are, and what functions return."""
        self.known = self.known._replace(returned=self._returned())
        arguments = {}
        calls, other = self._calls()
        for definition in self.library.definitions.values():
            for name, function in definition.functions():
                if name in other or name not in calls:
                    continue
                for arg in parameters(function):
                    value = constant_argument(calls[name], function, arg.arg) if arg.arg != "self" else None
                    if value is not None:
                        arguments[name, arg.arg] = value
        self.arguments = arguments

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

    def _calls(self) -> tuple[dict[str, list[Call]], set[str]]:
        methods: dict[str, list[str]] = {}
        for definition in self.library.definitions.values():
            for name, node in definition.functions():
                if "." in name:
                    methods.setdefault(node.name, []).append(name)
        return find_calls(list(self.scopes()), methods)

    def _fold(self) -> bool:
        """Simplify expressions and branches, and leave out local names that are not read."""
        return any([self._fold_definition(definition) for definition in list(self.library.definitions.values())])

    def _fold_definition(self, definition: Definition) -> bool:
        guards, changed = definition.module.__name__.startswith("proximo.envs"), False
        if all(scope.clean for scope in self._own_scopes(definition)):
            return False
        for _ in range(200):
            edits = [edit for scope in self._own_scopes(definition)
                     for edit in expression_edits(scope, scope.function or definition.node)]
            edits = edits or [edit for scope in self._own_scopes(definition) if scope.function
                              for edit in statement_edits(scope, scope.function.body, guards)]
            edits = edits or [edit for scope in self._own_scopes(definition) if scope.function
                              for edit in unused_local_edits(scope, scope.function)]
            edits = edits or [edit for scope in self._own_scopes(definition) if scope.function
                              for edit in polish_edits(scope, scope.function)]
            if not edits or not definition.apply(edits):
                break
            changed = True
        for scope in self._own_scopes(definition):
            scope.clean = True
        return changed

    def _parameters(self) -> bool:
        """Leave out parameters and fields, with their arguments, everywhere at once."""
        calls, other = self._calls()
        edits: dict[Definition, list[Edit]] = {}
        for definition in self.library.definitions.values():
            for name, function in definition.functions():
                if name not in calls or name in other or self.root in (name, definition.name):
                    continue
                removed = removable_parameters(definition, name, function, calls[name])
                if not removed:
                    continue
                edits.setdefault(definition, []).extend(removal_edits(definition, function, removed))
                names = [arg.arg for arg in parameters(function) if arg.arg != "self"]
                for call in calls[name]:
                    edits.setdefault(call.scope.definition, []).extend(
                        argument_edits(call.scope, call.node, names, removed, call.skipped))
        changed = [definition.apply(changes) for definition, changes in edits.items()]
        return any(changed) or self._fields()

    def _fields(self) -> bool:
        """Leave out the fields of records that are not read, or whose value is a fact."""
        read, _ = self._read_names()
        dropped: dict[str, tuple[list[str], set[str]]] = {}
        for name, definition in self.library.definitions.items():
            fields = record_fields(definition)
            if fields is None:
                continue
            gone = {*self.facts.fields} | self.facts.dropped_fields.get(name, frozenset())
            edits = constant_field_edits(definition, gone) or unused_member_edits(definition, read, read, set())
            if edits:
                definition.apply(edits)
                dropped[name] = fields, {*fields} - {*(record_fields(definition) or ())}
        gone = {field for _, fields in dropped.values() for field in fields}
        remaining = {field for definition in self.library.definitions.values()
                     for field in record_fields(definition) or ()}
        for definition in list(self.library.definitions.values()) if dropped else ():
            definition.apply([edit for scope in self._own_scopes(definition)
                              for edit in _constructor_edits(scope, dropped, gone - remaining)])
        return bool(dropped)

    def _read_names(self) -> tuple[set[str], set[str]]:
        """Return the attributes that are read anywhere, and those that are called or taken as functions.

        A method counts only if it is itself called or taken.
        """
        definitions = self.library.definitions.values()
        records = {field for definition in definitions for field in record_fields(definition) or ()}
        methods = [function for definition in definitions if isinstance(definition.node, ast.ClassDef)
                   for _, function in definition.functions() if not _is_special(function.name)]
        inside = {id(node) for method in methods for node in walk(method)}
        read, called = _attributes(node for definition in definitions for node in walk(definition.node)
                                   if id(node) not in inside)
        while found := [method for method in methods if method.name in (read - records) | called]:
            methods = [method for method in methods if method not in found]
            for method in found:
                more, further = _attributes(walk(method))
                read, called = read | more, called | further
        return read - {"device"}, (read - records) | called

    def _read_of_config(self) -> tuple[set[str], set[str]]:
        """Return the fields, properties and methods of the configuration that are read."""
        found = {node.attr for definition in self.library.definitions.values() for node in walk(definition.node)
                 if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                 and node.value.id == ("self" if definition.name == "Config" else "cfg")}
        return found, found

    def _unused(self) -> bool:
        """Leave out methods and attributes that nothing reads."""
        names, changed = self._read_names(), False
        for definition in self.library.definitions.values():
            read, called = self._read_of_config() if definition.name == "Config" else names
            called = called - DROPPED_METHODS
            if isinstance(definition.node, ast.ClassDef) and record_fields(definition) is None:
                edits = unused_member_edits(definition, read, called, set()) or unused_attribute_edits(definition, read)
                changed |= definition.apply(edits)
        return changed

    def _inline(self) -> bool:
        """Write functions of one expression where they are called."""
        calls, other = self._calls()
        touched: set[Definition] = set()
        for definition in self.library.definitions.values():
            for name, function in definition.functions():
                short = name not in other and "." not in name and is_short_function(function, len(calls.get(name, ())))
                if name == self.root or not (name in INLINED or short):
                    continue
                for call in calls.get(name, ()):
                    edit = inline_edit(call, definition, function)
                    if edit is not None and not {call.scope.definition, definition} & touched:
                        touched |= {call.scope.definition, definition}
                        call.scope.definition.apply([edit])
        return bool(touched)


def _constructor_edits(scope: Scope, dropped: dict[str, tuple[list[str], set[str]]],
                       gone: set[str]) -> Iterator[Edit]:
    """Yield the edits that leave fields out where records are made or replaced."""
    for node in walk(scope.function or scope.definition.node):
        name = called_name(node) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and name in dropped:
            fields, removed = dropped[name]
            yield from argument_edits(scope, node, fields, removed)
        elif isinstance(node, ast.Call) and name == "_replace" and isinstance(node.func, ast.Attribute):
            if all(one.arg in gone for one in node.keywords):
                yield Edit(*scope.definition.span(node), scope.definition.segment(node.func.value))
            else:
                yield from argument_edits(scope, node, [], gone)


def _same(one: Knowledge, other: Knowledge) -> bool:
    def is_same(a: dict[Any, Value], b: dict[Any, Value]) -> bool:
        return a.keys() == b.keys() and all(a[key].value is b[key].value or (
            a[key].text == b[key].text and a[key].text is not None) for key in a)

    return is_same(one.arguments, other.arguments) and is_same(one.returned, other.returned)


def _is_special(name: str) -> bool:
    return name == "forward" or (name.startswith("__") and name.endswith("__"))


def _attributes(nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Return the attributes that are read, and the names that are called."""
    read, called = set(), set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            read.add(node.attr)
        elif isinstance(node, ast.Call):
            called.add(called_name(node))
    return read, called
