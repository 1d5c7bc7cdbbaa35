"""docs/details.md: all 41 details are there, with functions and tests that exist, and the flags that declare them."""

import ast
import re
from pathlib import Path

import pytest

from proximo.catalog import VARIANTS
from proximo.facts import facts, facts_of_all
from proximo.variants import SMALL_ALPHA

PAGE = Path("docs/details.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines()
        if re.match(r"\| A?\d+ \|", line)]
NUMBERS = [*map(str, range(1, 38)), "A1", "A2", "A3", "A4"]


def definitions(path, trail):
    """Whether a file defines NAME, or CLASS.NAME, at its top level."""
    body = ast.parse(Path(path).read_text()).body
    for name in trail.split("."):
        found = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name]
        if not found:
            return False
        body = found[0].body
    return True


def test_all_41_are_there_in_order():
    assert [row[0] for row in ROWS] == NUMBERS and all(len(row) == 6 and all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=NUMBERS)
def test_functions_and_tests_exist(row):
    _, _, _, function, _, test = row
    module, _, name = function.strip("`").partition(":")
    assert definitions(f"{module.replace('.', '/')}.py", name), function
    path, _, name = test.strip("`").partition("::")
    assert definitions(path, name), test


@pytest.mark.parametrize("row", ROWS, ids=NUMBERS)
def test_flags_are_those_whose_fields_declare_the_detail(row):
    every = facts_of_all(kind for kind, *_ in VARIANTS.values())
    declared = {name for name, fact in every.items() if row[0] in fact.detail.split(", ")}
    assert {flag.removeprefix("--").replace("-", "_") for flag in re.findall(r"`(.+?)`", row[4])} == declared


def test_every_declared_detail_has_a_row():
    declared = {number for kind, *_ in VARIANTS.values() for fact in facts(kind).values()
                for number in fact.detail.split(", ") if number}
    assert declared <= set(NUMBERS)


def test_the_tasks_of_the_small_alpha_are_those_of_the_code():
    rows = [line for line in PAGE.splitlines() if re.match(r"\| [A-Z].*\| 0\.01", line)]
    named = [task for line in rows for task in line.split("|")[1].strip().split(", ")]
    assert sorted(named) == sorted(SMALL_ALPHA)
