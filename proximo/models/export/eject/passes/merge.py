"""A class with one subclass, of which no object is made, becomes a part of that subclass."""

import ast

from proximo.models.export.eject.definition import Definition, Edit, code_of, walk
from proximo.models.export.eject.library import Library


def merge_class(library: Library) -> bool:
    """Merge one class into its subclass. Return whether there was one."""
    classes = {name: one for name, one in library.definitions.items() if isinstance(one.node, ast.ClassDef)}
    for name, base in classes.items():
        heirs = [one for one in classes.values() if [*map(code_of, one.node.bases)] == [name]]  # type: ignore[attr-defined]
        uses = [node for one in library.definitions.values() for node in walk(one.node, ast.Name) if node.id == name]
        if len(heirs) == len(uses) == 1 and any(one.name != "__init__" for _, one in heirs[0].functions()):
            _merge(base, heirs[0])
            return True
    return False


def _merge(base: Definition, heir: Definition) -> None:
    """Write the methods of a class into its subclass. A method that both have becomes a part of the subclass's one."""
    above, below = dict(base.functions()), {name.rpartition(".")[2]: node for name, node in heir.functions()}
    assert isinstance(heir.node, ast.ClassDef)
    assert isinstance(base.node, ast.ClassDef)
    place = min(node.lineno - len(node.decorator_list) for node in below.values() if node.name != "__init__")
    added = ""
    for name, node in above.items():
        method = name.rpartition(".")[2]
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        start, end = base.lines_span(first, node.end_lineno or node.lineno)
        text = base.text[start:end].rstrip("\n")
        if method in below:  # super().method() calls it; it is written there later, since it has one call
            text = text.replace(f"def {method}(", f"def {renamed(method)}(", 1)
        added += f"{text}\n\n"
    start, end = heir.span(heir.node.bases[0])
    bases = ", ".join(map(base.segment, base.node.bases))
    header = Edit(start, end, bases) if bases else Edit(start - 1, end + 1, "")
    calls = [Edit(*heir.span(node), f"self.{renamed(node.attr)}") for node in walk(heir.node, ast.Attribute)
             if ast.unparse(node.value) == "super()" and f"{base.name}.{node.attr}" in above]
    position = heir.lines_span(place, place)[0]
    heir.apply([header, *calls, Edit(position, position, added)])


def renamed(method: str) -> str:
    """Return the name of a method of the base class that the subclass has too."""
    return f"_set_up_{method.strip('_')}" if method == "__init__" else f"_base_{method}"
