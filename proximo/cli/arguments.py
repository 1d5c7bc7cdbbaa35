"""The arguments of a command from its words, and what the arguments of several commands share."""

import re
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from proximo.cli.messages import NEEDS
from proximo.errors import UsageError

Arguments = TypeVar("Arguments")
RunFolder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
AllowImport = Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODULE", help_behavior_hint="(default: none)"),
                        tyro.conf.UseAppendAction]
MISSED = re.compile(r"Missing value for argument [('\"]*\w|Error parsing FILE: expected str")  # a word by its place
WRONG_NUMBER = re.compile(r"Error parsing (?P<flag>--\S+): .*(int\(\) with base 10|to float): '(?P<text>.*)'\.?$")


def arguments(kind: type[Arguments], words: list[str], name: str) -> Arguments:
    """Fill a dataclass from the command line.

    Raises:
        UsageError: A word is missing, unknown or not allowed.
    """
    filled: Arguments = _in_one_sentence(kind, words, name)
    return filled


def known_arguments(kind: type[Arguments], words: list[str], name: str) -> tuple[Arguments, list[str]]:
    """Fill a dataclass from the command line, and return it with the words that it does not have.

    Raises:
        UsageError: A value is missing or not allowed.
    """
    filled: tuple[Arguments, list[str]] = _in_one_sentence(kind, words, name, return_unknown_args=True)
    return filled


def check_least(args: Any, *problems: str, **least: int) -> None:
    """Check that arguments are not below their least values.

    Args:
        args: The arguments.
        problems: Other problems; they are reported together with these.
        least: The least value of an argument, by name.

    Raises:
        UsageError: An argument is below its least value, or there are other problems.
    """
    wrong = [f"--{name.replace('_', '-')} {getattr(args, name)} must be at least {bound}"
             for name, bound in least.items() if getattr(args, name) < bound]
    if wrong or problems:
        raise UsageError("\n".join([*wrong, *problems]))


def _in_one_sentence(kind: type[Any], words: list[str], name: str, **settings: Any) -> Any:
    """Call tyro, with its box of several lines about a mistake as one sentence.

    tyro takes what follows an unknown flag for its values, and misses the folder. With folders before it, it names the
    flag.
    """
    said = ""
    for before in ([], ["RUN"], ["OLD", "NEW"]):
        printed = StringIO()
        try:
            with redirect_stderr(printed):
                filled = tyro.cli(kind, args=[*before, *words], prog=f"proximo {name}", **settings)
            if not before:
                return filled
            said = f"Write `proximo {name} {NEEDS[name][1]}` before other flags: {name} needs {NEEDS[name][0]}."
        except SystemExit as end:
            if not end.code:  # --help
                raise
            said = _sentence(printed.getvalue(), name)
        if not MISSED.match(said):
            break
    raise UsageError(f"{said} `proximo {name} --help` explains it.")


def _sentence(box: str, name: str) -> str:
    """Return what a box of tyro says: its first section, and a flag that was perhaps meant."""
    sections: list[list[str]] = [[]]
    for line in box.splitlines():
        if "──" in line or "---" in line:  # below the title, or between two sections
            sections.append([])
        else:
            sections[-1].append(line.strip("│| "))
    said, *others = [section for section in sections[1:] if any(section)] or [["The command line is not understood."]]
    if said[0].startswith("Missing from "):
        what, usage = NEEDS[name]
        return f"{name} needs {what}: `proximo {name} {usage}`."
    if wrong := WRONG_NUMBER.match(text := " ".join(said)):
        number = "a whole number" if "int()" in text else "a number"
        return f"{wrong['flag']} {wrong['text']:.60} is not allowed. Use {number}."
    meant = [f" Did you mean {lines[1].split()[0].rstrip(',')}?" for lines in others
             if lines[0].startswith("Perhaps you meant")]
    return text.rstrip(".") + "." + "".join(meant[:1])
