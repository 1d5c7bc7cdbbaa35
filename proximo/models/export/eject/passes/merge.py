"""A class with one subclass, of which no object is made, becomes a part of that subclass."""

import ast

from proximo.models.export.eject.definition import Definition, Edit, is_name, walk
from proximo.models.export.eject.library import Library


def merge_class(library: Library) -> bool:
    """Merge one class into its subclass. Return whether there was one."""
    classes = {name: one for name, one in library.definitions.items() if isinstance(one.node, ast.ClassDef)}
    for name, base in classes.items():
        heirs = [one for one in classes.values() if any(is_name(base_node, name) for base_node in one.node.bases)]  # type: ignore[attr-defined]
        if len(heirs) == 1 and sum(
                is_name(node, name) for one in library.definitions.values() for node in walk(one.node)) == 1:
            _merge(base, heirs[0])
            return True
    return False


def _merge(base: Definition, heir: Definition) -> None:
    """Write the methods of a class into its subclass. A method that both have becomes a part of the subclass's one."""
    above, below = dict(base.functions()), {name.rpartition(".")[2]: node for name, node in heir.functions()}
    assert isinstance(heir.node, ast.ClassDef)
    assert isinstance(base.node, ast.ClassDef)
    place = min((node.lineno - len(node.decorator_list) for node in below.values() if node.name != "__init__"),
                default=(heir.node.end_lineno or 0) + 1)
    added = ""
    for name, node in above.items():
        method = name.rpartition(".")[2]
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        start, end = base.lines_span(first, node.end_lineno or node.lineno)
        text = base.text[start:end].rstrip("\n")
        if method in below:  # super().method() calls it; it is written there later, since it has one call
            text = text.replace(f"def {method}(", f"def {renamed(method)}(", 1)
        added += f"{text}\n\n"
    bases = [base.segment(one) for one in base.node.bases]
    start, end = heir.span(heir.node.bases[0])[0], heir.span(heir.node.bases[-1])[1]
    others = [heir.segment(one) for one in heir.node.bases if not is_name(one, base.name)]
    header = Edit(start, end, ", ".join([*bases, *others]))
    if not (bases or others):
        header = Edit(start - 1, end + 1, "")
    calls = [Edit(*heir.span(node), f"self.{renamed(node.attr)}") for node in walk(heir.node, ast.Attribute)
             if ast.unparse(node.value) == "super()"
             and f"{base.name}.{node.attr}" in above]
    position = heir.lines_span(place, place)[0] if place <= (heir.node.end_lineno or 0) else len(heir.text)
    lead = "" if position < len(heir.text) else "\n\n"
    text = f"{lead}{added}" if position < len(heir.text) else f"{lead}{added.rstrip()}"
    heir.apply([header, *calls, Edit(position, position, text)])


def renamed(method: str) -> str:
    """Return the name of a method of the base class that the subclass has too."""
    return f"_set_up_{method.strip('_')}" if method == "__init__" else f"_base_{method}"
