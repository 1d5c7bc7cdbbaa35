"""Partial evaluation: rounds of simplification until nothing changes any more."""

import ast
from collections.abc import Iterator

from proximo.export.eject.bindings import called_name
from proximo.export.eject.definition import Definition, Edit, parameters, walk
from proximo.export.eject.facts import DROPPED_METHODS, INLINED
from proximo.export.eject.inline import inline_edit, is_short_function
from proximo.export.eject.parameters import (
    argument_edits,
    removable_parameters,
    removal_edits,
)
from proximo.export.eject.program import Program
from proximo.export.eject.records import unwrap_record
from proximo.export.eject.unused import (
    constant_field_edits,
    record_fields,
    unused_attribute_edits,
    unused_member_edits,
)
from proximo.export.eject.values import Scope

MOST_ROUNDS = 60


class Specialiser(Program):
    """Simplifies a program."""

    def specialise(self) -> None:
        """Simplify until nothing changes."""
        for _ in range(MOST_ROUNDS):
            self.reach()
            self.learn()
            changed = self._fold() | self._parameters() | self._unused() | self._inline()
            if not changed and not unwrap_record(self.library):
                return
        raise RuntimeError("simplification does not come to an end")

    def _fold(self) -> bool:
        """Simplify expressions and branches, and leave out local names that are not read."""
        changed = [self.fold_definition(definition) for definition in list(self.library.definitions.values())]
        return any(changed)

    def _parameters(self) -> bool:
        """Leave out parameters and fields, with their arguments, everywhere at once."""
        calls, other = self.calls()
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
        read, _ = self.read_names()
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
            definition.apply([edit for scope in self.own_scopes(definition)
                              for edit in _constructor_edits(scope, dropped, gone - remaining)])
        return bool(dropped)

    def _read_of_config(self) -> tuple[set[str], set[str]]:
        """Return the fields, properties and methods of the configuration that are read."""
        found = {node.attr for definition in self.library.definitions.values() for node in walk(definition.node)
                 if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                 and node.value.id == ("self" if definition.name == "Config" else "cfg")}
        return found, found

    def _unused(self) -> bool:
        """Leave out methods and attributes that nothing reads."""
        names, changed = self.read_names(), False
        for definition in self.library.definitions.values():
            read, called = self._read_of_config() if definition.name == "Config" else names
            called = called - DROPPED_METHODS
            if isinstance(definition.node, ast.ClassDef) and record_fields(definition) is None:
                edits = unused_member_edits(definition, read, called, set()) or unused_attribute_edits(definition, read)
                changed |= definition.apply(edits)
        return changed

    def _inline(self) -> bool:
        """Write functions of one expression where they are called."""
        calls, other = self.calls()
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
