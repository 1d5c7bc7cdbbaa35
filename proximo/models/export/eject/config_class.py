"""The configuration of the ejected file: a dataclass with the fields that are still read, and the variant's values."""

import ast
import textwrap
from dataclasses import fields
from typing import Any

from proximo.config import Config
from proximo.envs.atari_ids import is_atari
from proximo.models.export.eject.library import definition_text

WIDTH = 120


def config_text(cfg: Config) -> str:
    """Return the class as text, with every field. Fields that nothing reads are left out later."""
    documentation = field_documentation(type(cfg))
    lines = ["@dataclass(frozen=True)", "class Config:", '    """The hyper-parameters."""', ""]
    for field in fields(cfg):
        value = getattr(cfg, field.name)
        comment = documentation.get(field.name, "").split("; unset:")[0]
        if field.name == "threads" or (field.name == "env_id" and is_atari(cfg.env_id)):
            comment = comment.split(";")[0]  # what follows is done before the file is written, or by Gymnasium
        lines += field_lines(field.name, value, comment)
    for node, text in methods(type(cfg)):
        if node.name not in ("__post_init__", "resolved"):
            lines += ["", *text.split("\n")]
    return "\n".join(lines)


def field_lines(name: str, value: Any, comment: str) -> list[str]:
    """Return the line of a field with its documentation behind it, or above it if that is too long."""
    text = f'"{value}"' if isinstance(value, str) and '"' not in value else repr(value)
    line = f"    {name}: {type_name(value)} = {text}"
    if len(f"{line}  # {comment}") <= WIDTH:
        return [f"{line}  # {comment}" if comment else line]
    return [*(f"    # {part}" for part in textwrap.wrap(comment, WIDTH - 6)), line]


def type_name(value: Any) -> str:
    """Return the type of a value as an annotation."""
    if isinstance(value, tuple):
        return f"tuple[{type(value[0]).__name__ if value else 'str'}, ...]"
    return "None" if value is None else type(value).__name__


def class_texts(kind: type[Config]) -> list[str]:
    """Return the texts of the class and its bases, the most basic one first."""
    return [definition_text(base.__module__, base.__name__) for base in reversed(kind.__mro__)
            if issubclass(base, Config)]


def field_documentation(kind: type[Config]) -> dict[str, str]:
    """Return the docstring under each field."""
    found = {}
    for text in class_texts(kind):
        node = ast.parse(text).body[0]
        assert isinstance(node, ast.ClassDef)
        for field, after in zip(node.body, node.body[1:]):
            if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(
                    after.value, ast.Constant):
                found[ast.unparse(field.target)] = " ".join(str(after.value.value).split())
    return found


def methods(kind: type[Config]) -> list[tuple[ast.FunctionDef, str]]:
    """Return the methods with their text; those of a variant take the place of its base class's."""
    found = {}
    for text in class_texts(kind):
        lines, node = text.split("\n"), ast.parse(text).body[0]
        assert isinstance(node, ast.ClassDef)
        for one in node.body:
            if isinstance(one, ast.FunctionDef):
                first = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
                found[one.name] = one, "\n".join(lines[first - 1:one.end_lineno])
    return list(found.values())
