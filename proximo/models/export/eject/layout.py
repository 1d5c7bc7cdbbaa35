"""The layout of edited lines: no needless parentheses, as many words on a line as fit, continued below the bracket."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

WIDTH = 120
OPEN, CLOSE = "([{", ")]}"
WORDS = ("if", "else", "for", "and", "or")  # a line may break before these, inside brackets
FSTRING_START, FSTRING_END = (getattr(tokenize, name, -1) for name in ("FSTRING_START", "FSTRING_END"))
VALUES = (tokenize.NAME, tokenize.STRING, tokenize.NUMBER)


Stack = tuple[tuple[int, str], ...]  # open brackets, and the columns after them; the last one is the next indentation


class Break(NamedTuple):
    """A place where a line may be broken."""

    column: int  # where the next line begins
    stack: Stack
    comma: bool


def tidy(text: str, original: set[str]) -> str:
    """Return a definition whose edited lines are laid out again.

    Args:
        text: The definition.
        original: The logical lines of the library, which keep their layout.
    """
    text = without_parentheses(text, original)
    lines, result, done = text.split("\n"), [], 0
    for first, last in logical_lines(text):
        result += lines[done:first]
        block = "\n".join(lines[first:last])
        if len(block) > WIDTH and "\n" not in block and "  # " in block:
            code, comment = block.split("  # ", 1)
            result += [f"{' ' * (len(code) - len(code.lstrip()))}# {comment}", code]
        else:
            result += [block] if _stays(block, original) else wrapped(joined_line(lines[first:last]))
        done = last
    result += lines[done:]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in "\n".join(result).split("\n"))).strip("\n")


def _stays(block: str, original: set[str]) -> bool:
    if '"""' in block or (("#" in block) and "\n" in block):
        return True
    return normal(block) in original or ("\n" not in block and len(block) <= WIDTH)


def normal(block: str) -> str:
    """Return a logical line without its layout."""
    return "".join(block.split())


def logical_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield (first line, line after the last one) of every statement or header, counted from 0."""
    first = None
    for token in tokenize.generate_tokens(io.StringIO(text + "\n").readline):
        if token.type in (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            continue
        if first is None:
            first = token.start[0] - 1
        if token.type == tokenize.NEWLINE:
            yield first, token.end[0]
            first = None


def joined_line(lines: list[str]) -> str:
    """Return a statement on one line."""
    line = lines[0].rstrip()
    for part in lines[1:]:
        part = part.strip()
        glued = line[-1:] in OPEN or part[:1] in CLOSE
        line += part if glued else f" {part}"
    return line


def wrapped(line: str) -> list[str]:
    """Break a line that is too long."""
    result: list[str] = []
    stack: Stack = ()
    while len(line) > WIDTH:
        found = [one for one in breaks(line, stack) if one.column <= WIDTH and line[:one.column].strip()]
        commas = [one for one in found if one.comma and one.column > WIDTH // 2]
        if not found and not stack and "(" in line:  # the first argument is too long to stand behind the bracket
            place, margin = line.index("(") + 1, len(line) - len(line.lstrip()) + 4
            result.append(line[:place])
            line, stack = " " * margin + line[place:], ((margin, "("),)
            continue
        if not found:
            break
        words = [one for one in found if not one.comma and one.column > WIDTH // 2]
        if words and commas and min(len(one.stack) for one in words) < min(len(one.stack) for one in commas):
            commas = words  # before `for` rather than between the arguments of a call inside a list
        least = min(len(one.stack) for one in commas or found)
        if line.startswith("def ") or line.lstrip().startswith("def "):  # no break in the type that it returns
            commas = [one for one in commas if one.stack[-1][1] == "("] or commas
        margin = len(line) - len(line.lstrip()) + 4
        place = line.find("(") + 1
        if least > 1 and not stack and place and margin + len(line) - place <= WIDTH:
            result.append(line[:place])
            line, stack = " " * margin + line[place:], ((margin, "("),)
            continue
        best = max(one for one in commas or found if len(one.stack) == least)
        result.append(line[:best.column].rstrip())
        line, stack = " " * best.stack[-1][0] + line[best.column:].lstrip(), best.stack
    return [*result, line]


def breaks(line: str, stack: Stack) -> list[Break]:
    """Return the places where a line may be broken; `stack` has the columns of the brackets that are open before it."""
    found: list[Break] = []
    before: tokenize.TokenInfo | None = None
    target = False  # whether the token is between the words `for` and `in`
    for token in _tokens(line, "".join(kind for _, kind in stack)):
        column = token.start[1]
        if stack and before is not None:
            target = before.string == "for" or (target and token.string != "in")
            comma = before.string == "," and not target
            texts = before.type in (tokenize.STRING, FSTRING_END) and token.type in (tokenize.STRING, FSTRING_START)
            word = token.string in WORDS and token.type == tokenize.NAME
            if comma or texts or word or before.string in ("+", "|", "&"):
                found.append(Break(column, stack, comma))
        if token.string in OPEN and token.type == tokenize.OP:
            stack = (*stack, (token.end[1], token.string))
        elif token.string in CLOSE and token.type == tokenize.OP:
            stack = stack[:-1]
        before = token
    return found


def _tokens(line: str, opened: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of a line of a statement in which the brackets `opened` are open."""
    found: list[tokenize.TokenInfo] = []
    shift = len(opened)
    try:
        found.extend(tokenize.generate_tokens(io.StringIO(opened + line.lstrip() if opened else line).readline))
    except (tokenize.TokenError, IndentationError):  # the statement continues
        pass
    shift -= len(line) - len(line.lstrip()) if opened else 0
    return [token._replace(start=(1, token.start[1] - shift), end=(1, token.end[1] - shift))
            for token in found[len(opened):] if token.type not in (tokenize.INDENT, tokenize.DEDENT)]


def without_parentheses(text: str, original: set[str]) -> str:
    """Leave out the parentheses in edited lines that change nothing."""
    wanted = ast.dump(ast.parse(text))
    for _ in range(200):
        lines = text.split("\n")
        edited = [(first, last) for first, last in logical_lines(text)
                  if normal("\n".join(lines[first:last])) not in original]
        shorter = next((candidate for candidate in _candidates(text, edited) if _means(candidate, wanted)), None)
        if shorter is None:
            return text
        text = shorter
    return text


def _means(text: str, wanted: str) -> bool:
    try:
        return ast.dump(ast.parse(text)) == wanted
    except SyntaxError:
        return False


def _candidates(text: str, edited: list[tuple[int, int]]) -> Iterator[str]:
    """Yield the text without one pair of parentheses each."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    stack: list[tuple[int, bool]] = []
    before = None
    for token in tokenize.generate_tokens(io.StringIO(text + "\n").readline):
        if token.string == "(" and token.type == tokenize.OP:
            called = before is not None and (before.string in (")", "]") or (
                before.type in VALUES and before.string not in ("return", "in", "not", "and", "or", "if", "else",
                                                                "yield", "is", "lambda", "elif", "while")))
            inside = any(first <= token.start[0] - 1 < last for first, last in edited)
            stack.append((starts[token.start[0] - 1] + token.start[1], inside and not called))
        elif token.string == ")" and token.type == tokenize.OP:
            start, may = stack.pop()
            end = starts[token.start[0] - 1] + token.start[1]
            if may and "\n" not in text[start:end]:
                yield text[:start] + text[start + 1:end] + text[end + 1:]
        if token.type not in (tokenize.NL, tokenize.COMMENT):
            before = token
