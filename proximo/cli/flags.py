"""Words of a command line become values of a Config; all mistakes are reported together."""

import difflib
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import fields
from types import NoneType
from typing import Any, Literal, NamedTuple, get_origin

from proximo.catalog import variants_with
from proximo.config import Config
from proximo.errors import UsageError
from proximo.facts import converted, describe_type, facts, field_types, options_of
from proximo.runs.settings.peer_names import ADVICE, NOT_GIVEN

ALIASES = {"env-name": "env-id", "env": "env-id", "total-steps": "total-timesteps", "lr": "learning-rate",
           "env-wrapper": "env-wrappers"}
COMMANDS = {"proximo.resume(RUN)": "proximo resume RUN",
            "proximo.sweep takes several: seed=[1, 2, 3]": "proximo sweep takes several: --seeds 1 2 3"}
DICT = r"\{'\w+': (?:\w+|\{\.\.\.\})\}"  # with one key
ARGUMENT = re.compile(rf"\b([a-z_]+)=(\.\.\.|\{{\.\.\.\}}|\[\.\.\.\]|{DICT}|\([\d, ]+\)|[\w.]*\w)")
TEXTS = tuple[str, ...]  # a flag with texts may be given several times, all of them count
WHOLE = re.compile("-?[0-9]{1,19}")
YES, NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


class Flag(NamedTuple):
    """One flag as it was written, and the words up to the next flag."""

    word: str  # "--num-envs"; empty: words before the first flag
    inline: str | None  # the text after "="
    words: list[str]


def parse_flags(kind: type[Config], words: Sequence[str]) -> dict[str, Any]:
    """Return what read_flags finds.

    Raises:
        UsageError: The words have mistakes; one sentence for each.
    """
    values, wrong = read_flags(kind, words)
    if wrong:
        raise UsageError("\n".join(wrong))
    return values


def read_flags(kind: type[Config], words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Read flags such as --num-envs 8, --num_envs=8, --anneal-lr False, --no-anneal-lr and --device-ids 0 0 1 1.

    Args:
        kind: The class of the configuration.
        words: The words of the command line after the variant.

    Returns:
        The values that the words set, by field, and one sentence for each mistake.
    """
    types = field_types(kind)
    hints = {f.name: types[f.name] for f in fields(kind)}
    switches = {name: fact.switch for name, fact in facts(kind).items() if fact.switch}
    values: dict[str, Any] = {}
    wrong: list[str] = []
    for flag in split_flags(words):
        name, negated = _field(flag.word[2:], hints, switches)
        if name is None:
            wrong += [_unknown(flag.word, hints)] if flag.word else map(_unexpected, flag.words)
            continue
        given, rest = _own_words(flag, hints[name], negated)
        try:
            switch = switches.get(name, (False, True))
            value = switch[False] if negated else _value(flag.word, hints[name], given, switch)
            values[name] = values.get(name, ()) + value if hints[name] == TEXTS else value
        except UsageError as mistake:
            wrong.append(str(mistake))
        wrong += [_unexpected(word, f"{flag.word} takes {'no' if negated else 'one'} value") for word in rest]
    return values, wrong


def take_flags(words: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """Return the values of a flag that may be given several times, and the other words; see take_flag."""
    values: list[str] = []
    value, rest = take_flag(words, name)
    while value is not None:
        values.append(value)
        value, rest = take_flag(rest, name)
    return values, rest


def take_flag(words: Sequence[str], name: str) -> tuple[str | None, list[str]]:
    """Return the value of a flag that is no field of the configuration, None if it is absent, and the other words.

    Raises:
        UsageError: The flag has no value.
    """
    rest = list(words)
    for i, word in enumerate(rest):
        flag, equals, text = word.partition("=")
        if flag == f"--{name}":
            value = text if equals else "".join(rest[i + 1:i + 2])
            if not value or value.startswith("--"):
                raise UsageError(f"--{name} needs a value.")
            return value, rest[:i] + rest[i + (1 if equals else 2):]
    return None, rest


def field_name(word: str) -> str:
    """Return the field that a flag such as --env or --env_name=X means; not every result is a field."""
    flag = word.partition("=")[0].removeprefix("--").replace("_", "-").lower()
    return ALIASES.get(flag, flag).replace("-", "_")


def split_flags(words: Sequence[str]) -> Iterator[Flag]:
    """Yield every flag with the words up to the next one; first the words before any flag, if there are some."""
    starts = [i for i, word in enumerate(words) if word.startswith("--")]
    first = starts[0] if starts else len(words)
    if first > 0:
        yield Flag("", None, list(words[:first]))
    for start, end in zip(starts, [*starts[1:], len(words)]):
        word, equals, text = words[start].partition("=")
        yield Flag(word, text if equals else None, list(words[start + 1:end]))


def _own_words(flag: Flag, hint: Any, negated: bool) -> tuple[list[str], list[str]]:
    """Return the words that are the flag's value, and those that belong to no flag."""
    if negated:
        return [], flag.words
    if flag.inline is not None:
        return [flag.inline], flag.words
    used = len(flag.words) if get_origin(hint) is tuple else 1
    return flag.words[:used], flag.words[used:]


def _field(flag: str, hints: dict[str, Any], switches: Container[str]) -> tuple[str | None, bool]:
    """Return the field that a flag names, and whether the flag is negated."""
    name = field_name(flag)
    if name in hints:
        return name, False
    bare = name.removeprefix("no_")
    if name.startswith("no_") and bare in hints and (bool in options_of(hints[bare]) or bare in switches):
        return bare, True
    return None, False


def _unexpected(word: str, takes: str = "") -> str:
    """Return the sentence for a word that is no flag's value; `takes` says how many the flag before it has."""
    if takes and not word[:1].isalpha():  # a number is no environment
        return f"unexpected argument {word!r}; {takes}."
    return f"unexpected argument {word!r}; did you mean --env-id {word}?"


def as_flags(advice: str) -> str:
    """Return advice about arguments of Python for the command line: `num_envs=...` becomes `--num-envs`."""
    def flag(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in Config.__dataclass_fields__:  # a part of a program
            return found.group()
        if value.startswith("{'"):  # a dict becomes key=value
            words = value[1:-1].replace("'", "").replace(": ", "=")
        else:
            plain = value in ("...", "{...}", "[...]", "True", "False")
            words = "" if plain else " ".join(re.findall(r"[\w.]+", value))
        return f"--{'no-' if value == 'False' else ''}{name.replace('_', '-')} {words}".rstrip()

    for call, command in COMMANDS.items():
        advice = advice.replace(call, command)
    return ARGUMENT.sub(flag, advice)


def _unknown(word: str, hints: dict[str, Any]) -> str:
    if advice := ADVICE.get(field_name(word)):
        return f"{word} is not a flag of this variant.{as_flags(advice)}"
    if advice := variants_with(field_name(word).removeprefix("no_")):
        return f"{word} is not a flag of this variant.{advice}"
    names = [name.replace("_", "-") for name in hints if name not in NOT_GIVEN]
    near = difflib.get_close_matches(word[2:].replace("_", "-").lower(), names, 3, 0.6)
    advice = f"Did you mean {' or '.join(f'--{name}' for name in near)}?" if near else "--help-all lists all flags."
    return f"{word} is not a flag of this variant. {advice}"


def _value(word: str, hint: Any, given: list[str], switch: tuple[Any, ...]) -> Any:
    """Return the value of a flag's words; UsageError where they do not fit.

    `switch` has what False and True mean, if the field is a switch or has choices instead of one.
    """
    switchable = bool in options_of(hint) or switch != (False, True)
    if hint == TEXTS and given:
        return tuple(given)
    if get_origin(hint) is tuple and hint != TEXTS:
        parts = " ".join(given).replace(",", " ").strip("()[] ").split()
        if bad := [part for part in parts if not WHOLE.fullmatch(part)]:
            raise UsageError(f"{word} {bad[0]:.60} is not allowed. Use whole numbers.")
        return tuple(map(int, parts))
    if not given:
        if switchable:
            return switch[True]
        raise UsageError(f"{word} needs a value: {describe_type(hint)}.")
    text = given[0]
    if switchable and text.lower() in YES + NO:
        return switch[text.lower() in YES]
    try:
        return _from_text(hint, text)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{word} {text:.60} is not allowed. Use {describe_type(hint)}.") from None


def _from_text(hint: Any, text: str) -> Any:
    """Return `text` as the type of a field; TypeError or ValueError where it does not fit."""
    options = options_of(hint)
    if NoneType in options and text.lower() == "none":
        return None
    if bool in options:
        return converted({**dict.fromkeys(YES, True), **dict.fromkeys(NO, False)}.get(text.lower()), bool)
    if get_origin(hint) is Literal or str in options:
        return converted(text, hint)
    try:
        return converted(int(text), hint)  # not through a float, which keeps 53 bits only
    except ValueError:
        return converted(float(text), hint)
