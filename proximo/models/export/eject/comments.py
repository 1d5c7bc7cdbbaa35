"""Comments and docstrings without what they say of things that the ejected file does not have: ranks, masks, JAX."""

import re

# A word of the library's comments, and the names that a program has where the word means something in it.
TOPICS = {"recurrent": "memory", "rank": "world", "ranks": "world", "mask": "mask", "masks": "mask", "masked": "mask",
          "filler": "valid", "valid": "valid", "self-play": "players", "resume": "restore", "snapshot": "restore",
          "compile": "compile", "compiled": "compile", "JAX": "jax", "frameworks": "jax", "RPO": "rpo",
          "target_kl": "target_kl", "`orthogonal`": "orthogonal ", "mask_size": "mask_size",
          "checkpoint": "restore", "processes": "world", "evaluates": "evaluates_later", "cosine": "cosine",
          "norm_value": "norm_value"}


def absent_topics(code: str) -> str:
    """Return an expression for the words whose topic is in no identifier of a program."""
    words = "|".join(re.escape(word) for word, name in TOPICS.items() if name not in code)
    return rf"(?<![\w-])-{{0,2}}(?:{words})(?![\w-])"


def without_topics(text: str, code: str) -> str:
    """Return prose without what it says of absent things.

    Args:
        text: A docstring or a comment.
        code: The program; a topic is absent where its name is in no identifier.
    """
    about = absent_topics(code)
    if TOPICS["ranks"] not in code:
        text = re.sub(r",? (?:(?:over|on|of) all (?:ranks|processes)(?: alike)?|of a rank)(?=[,;.:)]|$| )", "", text)
    if TOPICS["recurrent"] not in code:
        text = re.sub(r", or [^;:]* for a recurrent agent", "", text)
    before = text
    text = re.sub(rf"[,;](?: (?:and|or))? [^,;.:()]*{about}[^,;.:()]*(?: \(details? [\w-]+\))?(?=[,;.:)]|$)", "", text)
    text = re.sub(rf" \([^()]*{about}[^()]*\)", "", text)
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", text):
        sentences = re.split(r"(?<=\.)\s+(?=[A-Z`])", paragraph)
        kept = [one for one in sentences if not re.search(about, one) and (one in before or len(one.split()) > 2)]
        paragraphs.append(paragraph if len(kept) == len(sentences) else " ".join(kept))
    if not paragraphs[0].strip():
        return text
    return "\n\n".join(one for one in paragraphs if one.strip())


def tidy_comments(text: str, code: str) -> str:
    """Return the text of a definition without what its comments say of things that are not in the program.

    Args:
        text: The definition.
        code: All names of the program.
    """
    text = re.sub(r"  # type: ignore.*", "", text)
    text = re.sub(r" \((?:docs|benchmarks)/[^)]*\)(?=\n|$)", "", text)
    text = re.sub(r"(?<=  # )[^\n]*", lambda match: _tidy_comment(match[0], code), text)
    return re.sub(r"  # *(?=\n|$)", "", text)


def _tidy_comment(comment: str, code: str) -> str:
    """Return a comment, which may begin with a shape and two spaces; "" if nothing is left."""
    *shape, words = re.split(r"(?<=\S) {2,}(?=\S)", comment)
    words = without_topics(words, code)
    if re.search(absent_topics(code), words):
        words = ""
    return "  ".join([*shape, words]).strip()
