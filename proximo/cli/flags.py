"""From words on a command line to a Config: every spelling of the three documents, every mistake named at once."""

import difflib
import types
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from proximo.config import Config
from proximo.errors import UsageError

ALIASES = {"env-name": "env-id", "env": "env-id", "total-steps": "total-timesteps", "lr": "learning-rate"}
YES, NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def parse_flags(kind: type[Config], words: Sequence[str]) -> dict[str, Any]:
    """What read_flags understands; raises UsageError with a sentence for every mistake."""
    values, wrong = read_flags(kind, words)
    if wrong:
        raise UsageError("\n".join(wrong))
    return values


def read_flags(kind: type[Config], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The fields that `words` set, by name: --num-envs 8, --num_envs=8, --anneal-lr False, --no-anneal-lr,
    --device-ids 0 0 1 1; and a sentence for every mistake."""
    hints = {f.name: get_type_hints(kind)[f.name] for f in fields(kind)}
    values: dict[str, Any] = {}
    wrong: list[str] = []
    position = 0
    while position < len(words):
        word, inline = words[position], None
        position += 1
        if not word.startswith("--"):
            wrong.append(f"{word!r} stands alone; every setting needs its flag, such as --env-id {word}")
            continue
        if "=" in word:
            word, inline = word.split("=", 1)
        name, negated = _field(word[2:], hints)
        if name is None:
            wrong.append(_unknown(word, hints))
            while position < len(words) and not words[position].startswith("--"):
                position += 1
            continue
        until = next((i for i in range(position, len(words)) if words[i].startswith("--")), len(words))
        given = [inline] if inline is not None else list(words[position:until])
        taken, value = _value(word, hints[name], given, negated)
        position += 0 if inline is not None else taken
        if isinstance(value, UsageError):
            wrong.append(str(value))
        else:
            values[name] = value
    return values, wrong


def field_name(word: str) -> str:
    """The field that a flag (--env, --env_name=X) means, if it is one."""
    flag = word.partition("=")[0].removeprefix("--").replace("_", "-").lower()
    return ALIASES.get(flag, flag).replace("-", "_")


def _field(flag: str, hints: dict[str, Any]) -> tuple[str | None, bool]:
    """The field that a flag names, and whether it is negated."""
    name = field_name(flag)
    if name in hints:
        return name, False
    bare = name.removeprefix("no_")
    if name.startswith("no_") and bare in hints and (_is_flag(hints[bare]) or bare == "norm_adv"):
        return bare, True
    return None, False


def _unknown(word: str, hints: dict[str, Any]) -> str:
    names = [name.replace("_", "-") for name in hints]
    near = difflib.get_close_matches(word[2:].replace("_", "-").lower(), names, 3, 0.6)
    advice = "did you mean " + " or ".join(f"--{name}" for name in near) if near else "--help lists all"
    return f"{word} is no flag of this variant; {advice}"


def _is_flag(hint: Any) -> bool:
    return hint is bool or bool in get_args(hint)


def _value(word: str, hint: Any, given: list[str], negated: bool) -> tuple[int, Any]:
    """How many words belong to the flag, and their value, or a UsageError that says what is wrong."""
    if negated:
        return 0, "none" if get_origin(hint) is Literal else False
    choices = get_args(hint) if get_origin(hint) is Literal else ()
    if "minibatch" in choices and (not given or given[0].lower() in YES + NO):  # --norm-adv of the documents
        return len(given[:1]), "none" if given and given[0].lower() in NO else "minibatch"
    if _is_flag(hint) and (not given or given[0].lower() not in (*YES, *NO, "none")):
        return (0, True) if not given else (1, UsageError(f"{word} {given[0]}: wanted True or False"))
    if get_origin(hint) is tuple:
        parts = " ".join(given).replace(",", " ").strip("()[] ").split()
        bad = [part for part in parts if not part.lstrip("-").isdigit()]
        return len(given), UsageError(f"{word}: {bad[0]!r} is no whole number") if bad else tuple(map(int, parts))
    if not given:
        return 0, UsageError(f"{word} needs a value")
    try:
        return 1, _converted(hint, given[0])
    except (ValueError, OverflowError):
        return 1, UsageError(f"{word} {given[0]}: wanted {_wanted(hint)}")


def _converted(hint: Any, text: str) -> Any:
    """`text` as the type `hint`; ValueError where it is none."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        return None if text.lower() == "none" else _converted(parts[0], text)
    if get_origin(hint) is Literal:
        if text not in get_args(hint):
            raise ValueError
        return text
    if hint is bool:
        if text.lower() not in YES + NO:
            raise ValueError
        return text.lower() in YES
    if hint is int:
        return _whole(text.replace("_", ""))
    return float(text) if hint is float else text


def _whole(text: str) -> int:
    """5, 1e6 or 8.0; ValueError or OverflowError for anything else."""
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if number != int(number):
        raise ValueError
    return int(number)


def _wanted(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_wanted(part) for part in get_args(hint))
    return {int: "a whole number", float: "a number", bool: "True or False", type(None): "None"}.get(hint, "text")
