"""Partial evaluation: rounds of simplification until nothing changes any more."""

import ast
from collections.abc import Iterator

from proximo.models.export.eject.bindings import called_name
from proximo.models.export.eject.calls import Call
from proximo.models.export.eject.definition import Definition, Edit, apply_all, code_of, parameters, walk
from proximo.models.export.eject.known import DROPPED_METHODS, HEADINGS, INLINED
from proximo.models.export.eject.passes.annotations import default_edits, present_edits
from proximo.models.export.eject.passes.attributes import alias_attribute, write_only_attribute
from proximo.models.export.eject.passes.inline import inline_edit, is_short_function
from proximo.models.export.eject.passes.inline_body import MOST_LINES, MOST_OF_RECORD, inline_body
from proximo.models.export.eject.passes.lift import lift_function
from proximo.models.export.eject.passes.merge import merge_class
from proximo.models.export.eject.passes.parameters import argument_edits, removable_parameters, removal_edits
from proximo.models.export.eject.passes.records import unpack_record, unwrap_record
from proximo.models.export.eject.passes.scalars import local_edits, push_function, push_record, split_parameter
from proximo.models.export.eject.passes.unread import unread_key, unread_name, unread_result
from proximo.models.export.eject.passes.unused import (
    constant_field_edits,
    impure_fields,
    record_fields,
    unused_attribute_edits,
    unused_member_edits,
)
from proximo.models.export.eject.program import Program
from proximo.models.export.eject.purity import CHANGE_NOTHING
from proximo.models.export.eject.values import Scope

MOST_ROUNDS = 1000  # the largest program takes about 110; most rounds make one edit
CALLED = ("forward", "__call__")  # methods that a call of an object means


class Specialiser(Program):
    """Simplifies a program."""

    def specialise(self) -> None:
        """Simplify until nothing changes."""
        for _ in range(MOST_ROUNDS):
            before = {name: one.text for name, one in self.library.definitions.items()}
            self.reach()
            self.learn()
            changed = self._fold() | self._parameters() | self._unused() | self._inline()
            if not (changed or unwrap_record(self.library) or self._inline(bodies=True) or self._carried()
                    or self._unpacked()):
                break
        else:
            last = [name for name, one in self.library.definitions.items() if one.text != before.get(name)]
            raise RuntimeError(f"simplification does not come to an end: round {MOST_ROUNDS} has changed {last}")
        calls, other = self.calls()
        other |= self._called_of_others(calls)
        for definition in self.library.definitions.values():
            definition.apply([edit for name, function in definition.functions() if name in calls.keys() - other
                              for edit in default_edits(definition, function, calls[name])])
            definition.apply(present_edits(definition, self.facts.present))

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
                if name not in calls or name in other:
                    continue
                removed = removable_parameters(definition, function, calls[name])
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
        read = self.read_names()[0] | impure_fields(self.library)
        dropped: dict[str, tuple[list[str], set[str]]] = {}
        for name, definition in self.library.definitions.items():
            fields = record_fields(definition)
            if fields is None:
                continue
            gone = {*self.facts.fields} | self.facts.dropped_fields.get(name, frozenset())
            edits = constant_field_edits(definition, gone) or unused_member_edits(definition, read, read)
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
        found = {node.attr for definition in self.library.definitions.values()
                 for node in walk(definition.node, ast.Attribute)
                 if code_of(node.value) in (("self",) if definition.name == "Config" else ("cfg", "self._cfg"))}
        return found, found

    def _unused(self) -> bool:
        """Leave out methods and attributes that nothing reads."""
        names, changed = self.read_names(), False
        named = self._called_by_name()
        for definition in self.library.definitions.values():
            read, called = self._read_of_config() if definition.name == "Config" else names
            called = called - DROPPED_METHODS
            if isinstance(definition.node, ast.ClassDef) and record_fields(definition) is None:
                others = {name for name, found in named.items() if not found & {None, f"{definition.name}.{name}"}}
                edits = unused_member_edits(definition, read, called - others)
                edits = edits or unused_attribute_edits(definition, read)
                changed |= definition.apply(edits)
        return changed

    def _called_by_name(self) -> dict[str, set[str | None]]:
        """Return for every attribute the methods that it means where it is read; None where that is not known."""
        above = {code_of(base) for one in self.library.definitions.values()
                 for base in getattr(one.node, "bases", [])}
        whole = {name for one in self.library.definitions.values() for name, _ in one.functions()
                 if one.name not in above}  # a class above another one may be merged into it
        callees = {id(call.node.func): name for name, each in self.calls()[0].items() for call in each if name in whole}
        found: dict[str, set[str | None]] = {}
        for one in self.library.definitions.values():
            for node in walk(one.node):
                if isinstance(node, ast.Attribute):
                    found.setdefault(node.attr, set()).add(callees.get(id(node)))
        return found

    def _inline(self, bodies: bool = False) -> bool:
        """Write functions of one expression, or those of a few statements with one call, where they are called."""
        calls, other = self.calls()
        other = other | self._taken() | self._called_of_others(calls) | (self.facts.results.keys() & CHANGE_NOTHING)
        touched: set[Definition] = set()
        for definition in self.library.definitions.values():
            for name, function in definition.functions():
                found = calls.get(name, [])
                used = name in other or name.endswith("__init__")
                short = not used and function.name not in CALLED and is_short_function(function, len(found))
                alone = bodies and not used and len(found) == 1 and name not in HEADINGS and function.name not in CALLED
                for call in found if name in INLINED or short or alone else ():
                    if {call.scope.definition, definition} & touched:
                        continue
                    edit = inline_edit(call, definition, function) if name in INLINED or short else None
                    most = MOST_OF_RECORD if self._has_record(function.returns) else MOST_LINES
                    edit = edit or (inline_body(call, definition, function, most) if alone else None)
                    if edit is not None:
                        touched |= {call.scope.definition, definition}
                        call.scope.definition.apply([edit])
        return bool(touched)

    def _unpacked(self) -> bool:
        """Leave out what is written and never read, and records that are taken apart at once."""
        calls, other = self.calls()
        found = (step(self.library) for step in (
            unread_key, unread_name, alias_attribute, write_only_attribute))
        edits = next(filter(None, found), {})
        for definition in self.library.definitions.values():
            for name, function in definition.functions():
                if not edits and name in calls and name not in other | self._taken():
                    edits = unread_result(definition, function, calls[name])
        if edits:
            return apply_all(edits)
        return unpack_record(self.library, calls, other)

    def _has_record(self, node: ast.expr | None) -> bool:
        """Return whether an annotation is that of a record, or of a tuple with a record in it."""
        parts = [] if node is None else walk(node)
        names = [self.library.definitions.get(one.id) for one in parts if isinstance(one, ast.Name)]
        return any(one is not None and record_fields(one) is not None for one in names)

    def _taken(self) -> set[str]:
        """Return the methods that are read without being called: passed on."""
        calls = {id(node.func) for one in self.library.definitions.values() for node in walk(one.node, ast.Call)}
        found = [(one.name, node) for one in self.library.definitions.values() for node in walk(one.node, ast.Attribute)
                 if isinstance(node.ctx, ast.Load) and id(node) not in calls]
        names = {node.attr for _, node in found if code_of(node.value) != "self"}
        own = {f"{name}.{node.attr}" for name, node in found}
        return own | {name for definition in self.library.definitions.values() for name, _ in definition.functions()
                      if "." in name and name.rpartition(".")[2] in names}

    def _called_of_others(self, calls: dict[str, list[Call]]) -> set[str]:
        """Return the methods with a name that is also called of objects whose class is not known."""
        known = {id(call.node) for each in calls.values() for call in each}
        names = {node.func.attr for one in self.library.definitions.values() for node in walk(one.node, ast.Call)
                 if isinstance(node.func, ast.Attribute) and id(node) not in known}
        return {name for definition in self.library.definitions.values() for name, _ in definition.functions()
                if "." in name and name.rpartition(".")[2] in names}

    def _carried(self) -> bool:
        """Replace what only carries values from one place to another: records, and functions that are passed on."""
        if lift_function(self.library) or merge_class(self.library):
            return True
        definitions = list(self.library.definitions.values())
        if apply_all({definition: local_edits(self.library, definition, function) for definition in definitions
                      for _, function in definition.functions()[:1]}):
            return True
        calls, other = self.calls()
        for definition in definitions:
            for name, function in definition.functions():
                found = calls.get(name, [])
                if name in other or not found or any(call.partial for call in found):
                    continue
                edits = split_parameter(self.library, definition, function, found)
                if not edits and len(found) == 1:
                    edits = push_function(self.library, definition, function, found[0]) or push_record(
                        self.library, definition, function, found[0])
                if edits:
                    return apply_all(edits)
        return False


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
