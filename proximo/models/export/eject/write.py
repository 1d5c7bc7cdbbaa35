"""From definitions to a file: order, imports, layout."""

import ast
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator

from proximo.models.export.eject.bindings import free_names
from proximo.models.export.eject.comments import tidy_comments, without_topics
from proximo.models.export.eject.definition import Definition, Edit, walk, without_docstring
from proximo.models.export.eject.known import SENTENCES
from proximo.models.export.eject.layout import WIDTH, logical_lines, normal, tidy
from proximo.models.export.eject.library import Library, module_text

FIRST = ("Config", "main")


def file_text(library: Library, docstring: str) -> str:
    """Return the ejected file.

    Args:
        library: Its definitions.
        docstring: The docstring of the file.
    """
    definitions = list(library.definitions.values())
    for definition in definitions:
        definition.apply([Edit(*definition.span(node), "gym") for node in walk(definition.node, ast.Name)
                          if node.id == "gymnasium"])
    original = {normal(line) for module in {one.module.__name__ for one in definitions}
                for line in _statements(module_text(module))}
    names = {str(getattr(node, name)) for one in definitions for node in walk(one.node)
             for name in ("id", "attr", "arg", "name") if isinstance(getattr(node, name, None), str)}
    parts = [tidy(tidy_docstring(definition, " ".join(names)), original) for definition in ordered(library)]
    body = ""
    for before, part in zip(["", *parts], parts):
        small = not re.match(r"(@|def |class )", part) and not re.match(r"(@|def |class )", before)
        body += ("\n" if small and before else "\n\n\n" if before else "") + part
    return f'"""{docstring}\n"""\n\n{import_lines(library)}\n\n\n{body}\n\n\nif __name__ == "__main__":\n    main()\n'


def _statements(text: str) -> Iterator[str]:
    lines = text.split("\n")
    for first, last in logical_lines(text):
        yield "\n".join(lines[first:last])


def tidy_docstring(definition: Definition, code: str) -> str:
    """Return the text without the sections of docstrings, whose content annotations and comments repeat, and without
    what comments say of things that are not in the program `code`."""
    text = definition.text
    for node in reversed(walk(definition.node, ast.FunctionDef, ast.ClassDef)):
        if ast.get_docstring(node) is not None:
            start, end = definition.span(node.body[0])
            name = definition.name if node is definition.node else f"{definition.name}.{node.name}"
            text = text[:start] + short_docstring(name, node, text[start:end], code) + text[end:]
    return without_blank_lines(tidy_comments(text, code), paragraphs(module_text(definition.module.__name__)))


def paragraphs(text: str) -> set[str]:
    """Return the lines of a module that begin a paragraph inside a function."""
    lines = text.split("\n")
    return {normal(line) for before, line in itertools.pairwise(lines) if not before and line.startswith("    ")}


def without_blank_lines(text: str, kept: set[str]) -> str:
    """Leave out the empty lines in functions that are not around a function, unless the line after them is in `kept`.

    None stays above the first statement of a function.
    """
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        body = without_docstring(node.body) if isinstance(node, ast.FunctionDef) else getattr(node, "body", [])
        inside = not isinstance(node, (ast.Module, ast.ClassDef)) and isinstance(body, list)
        for first, one in list(zip([None, *body], body)) if inside else []:
            if isinstance(one, ast.FunctionDef) or isinstance(first, ast.FunctionDef):
                continue
            before = one.lineno - 2
            while first is not None and lines[before].lstrip().startswith("#"):
                before -= 1
            if first is not None and normal(lines[before + 1]) in kept:
                continue
            while before >= getattr(node, "lineno", 0) and lines[before] == "":
                lines[before] = "\0"
                before -= 1
    return "\n".join(line for line in lines if line != "\0")


def short_docstring(name: str, node: ast.FunctionDef | ast.ClassDef, text: str, code: str) -> str:
    """Return a docstring up to its sections Args, Returns, Raises and Attributes."""
    if sentence := SENTENCES.get(name, SENTENCES.get(node.name)):
        return f'"""{sentence}"""'
    kept = re.split(r"\n\n +(?:Args|Returns|Raises|Attributes):\n", text)[0].rstrip().removesuffix('"""')
    kept = re.sub(r" \((?:\w+\.py|(?:docs|benchmarks)/[^)]*)\)", "", kept)
    kept = re.sub(r"; (?:Usage|Env|Numbers|Files|Peer)Error [^.;]*", "", kept)
    margin = " " * node.body[0].col_offset
    if (fewer := without_topics(kept, code)) != kept:
        kept = f"\n\n{margin}".join(textwrap.fill(" ".join(one.split()), WIDTH - 3, initial_indent=margin,
                                                  subsequent_indent=margin).strip() for one in fewer.split("\n\n"))
    return f'{kept.rstrip()}"""'


def ordered(library: Library) -> list[Definition]:
    """Return the definitions in the order of reading: Config, then each one after what it uses, as main reaches it."""
    left = {name: i for i, name in enumerate(_reached(library))}
    needs = {name: {other for other in needed_at_once(definition) if other in left and other != name}
             for name, definition in library.definitions.items()}
    result: list[Definition] = []
    while left:
        ready = [name for name in left if not needs[name] & left.keys()]
        if not ready:
            raise RuntimeError(f"definitions need each other: {needs}")
        best = min(ready, key=left.__getitem__)
        del left[best]
        result.append(library.definitions[best])
    return result


def _reached(library: Library) -> list[str]:
    """Return the names of the definitions, each one after those that its text names."""
    found: dict[str, None] = {}
    begun: set[str] = set()

    def visit(name: str) -> None:
        begun.add(name)
        definition = library.definitions[name]
        names = [node for node in walk(definition.node, ast.Name) if node.id in library.definitions]
        for node in sorted(names, key=lambda node: (node.lineno, node.col_offset)):
            if node.id not in begun:
                visit(node.id)
        found[name] = None

    for name in (*FIRST, *library.definitions):
        if name not in begun:
            visit(name)
    return list(found)


def needed_at_once(definition: Definition) -> set[str]:
    """Return the names that Python looks up when it executes a definition: all but those in bodies of functions."""
    inside = {id(node) for function in walk(definition.node, ast.FunctionDef, ast.Lambda)
              for part in (function.body if isinstance(function.body, list) else [function.body])
              for node in walk(part)}
    return {node.id for node in walk(definition.node, ast.Name) if id(node) not in inside}


def import_lines(library: Library) -> str:
    """Return the imports that the definitions need, sorted as ruff sorts them."""
    used = set().union(*(free_names(one) | _quoted(one) for one in library.definitions.values()))
    plain: set[str] = set()
    members: dict[str, set[str]] = {}
    for name in used & library.imports.keys():
        line = library.imports[name].line
        if match := re.match(r"from (\S+) import (.*)", line):
            members.setdefault(match[1], set()).add(match[2])
        else:
            plain.add(line)
    lines = [(line.split()[1], line) for line in plain]
    lines += [(module, f"from {module} import {', '.join(sorted(names, key=_member_key))}")
              for module, names in members.items()]
    sections = [[line for line in lines if _is_standard(line[0]) is standard] for standard in (True, False)]
    texts = ["\n".join(line for _, line in sorted(section, key=lambda one: (one[1].startswith("from"), one[0])))
             for section in sections]
    return "\n\n".join(filter(None, texts))


def _quoted(definition: Definition) -> set[str]:
    """Return the names in annotations that are written as text."""
    texts = (node.value for node in walk(definition.node, ast.Constant))
    return {text for text in texts if isinstance(text, str) and text.isidentifier()} & {"Any"}


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _member_key(name: str) -> tuple[int, str]:
    bare = name.split()[0]
    return (0 if bare.isupper() and len(bare) > 1 else 1 if bare[0].isupper() else 2), name
