"""Comments at the ends of lines: what they say of absent things is left out."""

import ast
import re

from proximo.models.export.eject.definition import Definition, Edit, walk
from proximo.models.export.eject.passes.topics import absent_topics, without_topics


def tidy_comments(text: str, code: str) -> str:
    """Return the text of a definition without what its comments say of things that are not in the program.

    Args:
        text: The definition.
        code: All names of the program.
    """
    text = re.sub(r"  # type: ignore.*", "", text)
    text = re.sub(r" \(docs/[^)]*\)(?=\n|$)", "", text)
    text = re.sub(r"(?<=  # )[^\n]*", lambda match: _tidy_comment(match[0], code), text)
    return re.sub(r"  # *(?=\n|$)", "", text)


def _tidy_comment(comment: str, code: str) -> str:
    """Return a comment, which may begin with a shape and two spaces; "" if nothing is left."""
    *shape, words = re.split(r"(?<=\S) {2,}(?=\S)", comment)
    words = without_topics(words, code)
    if re.search(absent_topics(code), words):
        words = ""
    return "  ".join([*shape, words]).strip()


def present_edits(definition: Definition, present: frozenset[str]) -> list[Edit]:
    """Return the edits that leave `| None` out of the annotations of fields which are never None."""
    edits = []
    for node in walk(definition.node):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in present:
            start, end = definition.lines_span(node.lineno, node.lineno)
            line = definition.text[start:end]
            shorter = re.sub(r"[.,;:]? None: [^;.\n]*|(, |(?<=# ))None (without|where) [^;.\n]*", "",
                             line.replace(" | None", "", 1))
            if shorter != line:
                edits.append(Edit(start, end, shorter))
    return edits
