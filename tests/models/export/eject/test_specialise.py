"""Simplified programs of a few lines print what the programs print that they were made of."""

import re
from functools import partial
from typing import Any, NamedTuple

import pytest

from proximo.models.export.eject import main_program
from proximo.models.export.eject.definition import Definition
from proximo.models.export.eject.known import Facts
from proximo.models.export.eject.library import Library
from proximo.models.export.eject.specialise import Specialiser

NO_FACTS = Facts(**{name: {} for name in Facts._fields})._replace(
    dropped_calls=frozenset(), identities=frozenset(), present=frozenset())
RECORD = """class R(NamedTuple):
    a: int
    b: int"""
ONE_FIELD = """class R(NamedTuple):
    a: int"""


def simplified(parts):
    library = Library()
    for text in parts:
        library.add(Definition(re.search(r"(?:def|class) (\w+)", text)[1], main_program, text))
    Specialiser(library, NO_FACTS, "main").specialise()
    return [one.text for one in library.definitions.values()]


def printed(parts):
    shown, numbers = [], iter(range(3, 100))
    names = {"NamedTuple": NamedTuple, "Any": Any, "partial": partial, "show": shown.append,
             "read": lambda: next(numbers)}
    exec("\n\n".join(parts), names)
    names["main"]()
    return shown


@pytest.mark.parametrize("parts", [
    pytest.param(["def f(a, b):\n    return show(a)",
                  "def main():\n    f(read(), (1 + 2))\n    f(read(), ((1 + 2) * 3))"], id="argument in parentheses"),
    pytest.param(["def f(a, b=(1 + 2)):\n    show(a)\n    return 2", "def main():\n    f(read())\n    f(read())"],
                 id="default in parentheses"),
    pytest.param(["def f():\n    show(1)\n    return read()",
                  "def main():\n    x = (f())\n    show(x)\n    show(x + 1)"], id="call in parentheses"),
    pytest.param(["def main():\n    x = read()\n    y = (x)\n    y = y + x\n    show(y)"], id="name in parentheses"),
    pytest.param(["def main():\n    x = 0 * read()\n    show(x)\n    show(read())"], id="product with zero"),
    pytest.param(["def f(n):\n    for i in range(2):\n        n += i\n    return 1",
                  "def main():\n    show(f(read()))\n    show(f(read()))"], id="parameter that is only added to"),
    pytest.param(["def f(x):\n    return x, x + 1, x + 2",
                  "def main():\n    a, b, c = f(read())\n    a += 1\n    show(b + c)\n    a, b, c = f(read())\n    show(c)"],
                 id="name that is only added to"),
    pytest.param([RECORD, "def f(r):\n    show(r.a)\n    return r.a",
                  "def main():\n    f(R(1, read()))\n    f(R(a=read(), b=2))"], id="unread field with a call"),
    pytest.param([RECORD, "def f(r: R):\n    show(r.a)\n    show(r.a + 1)\n    return r.a",
                  "def main():\n    f(R(a=1, b=read()))\n    f(R(a=read(), b=2))"], id="split record with a call"),
    pytest.param([ONE_FIELD, "def f(r: R) -> R:\n    show(r.a)\n    return R(a=r.a)",
                  "def main():\n    x = read()\n    r = f(R(a=x))\n    show(f(R(a=f(r).a)).a)"], id="record in a record"),
    pytest.param([ONE_FIELD, "def f(r: R) -> int:\n    show(1)\n    return 3 - r.a * 2",
                  "def main():\n    show(f(R(a=read() + 1)))\n    show(5 - R(a=read() - 2).a)"], id="sum in a record"),
    pytest.param([RECORD, ONE_FIELD.replace("R", "S"), "def f(x) -> R:\n    show(x)\n    return R(x, read())",
                  "def g(x) -> S:\n    show(x)\n    return S(x)",
                  "def main():\n    r = f(1)\n    show(r.a + r.b)\n    r = g(2)\n    show(r.a)\n    r = f(3)\n    show(r.a)\n"
                  "    s = g(r.a + 1)\n    show(s.a)"], id="two records of one name"),
    pytest.param([RECORD, ONE_FIELD.replace("R", "S"), "def f(x) -> R:\n    show(x)\n    return R(x, read())",
                  "def g(x) -> S:\n    show(x)\n    return S(x)",
                  "def h(x):\n    r = f(x)\n    show(r.a + r.b)\n    return r.a",
                  "def main():\n    r = g(2)\n    show(r.a)\n    show(h(r.a))\n    show(h(3))"],
                 id="two records of one name in two functions"),
    pytest.param(["def f(x):\n    show(x)", "def main():\n    y = f(read())\n    show(y)"], id="result of no return"),
    pytest.param(["def f(x):\n    show(x)", "def main():\n    if read() > 1:\n        return f(read())\n    show(2)"],
                 id="return of no return"),
    pytest.param(["def f(a, b):\n    return show(f\"{a} and {b}\")",
                  "def main():\n    x = read()\n    f(f\"{x} of\", x)"], id="f-string in an f-string"),
])
def test_a_simplified_program_prints_the_same(parts):
    assert printed(simplified(parts)) == printed(parts)


def test_a_lambda_is_called_without_a_condition():
    """The ejected program kept `make_box = lambda ...`, and the head that is made without it."""
    parts = ["def f(make, x):\n    return make(x) if make else show(x)",
             "def main():\n    show(f(lambda n: n * 2, read()))\n    show(read())"]
    found = simplified(parts)
    assert printed(found) == printed(parts)
    assert not re.search(r"lambda|\bif\b", "".join(found))


def test_without_an_end_the_message_names_what_changes(monkeypatch):
    monkeypatch.setattr("proximo.models.export.eject.specialise.MOST_ROUNDS", 1)
    with pytest.raises(RuntimeError, match=r"does not come to an end: round 1 has changed \['main'\]"):
        simplified(["def f(x):\n    show(x)\n    return x", "def main():\n    y = f(read())\n    show(y)"])
