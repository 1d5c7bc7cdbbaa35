"""docs/details.md: all 41 details are there, and every function, flag and test that it names exists."""

import ast
import re
from pathlib import Path

import pytest

from proximo.catalog import VARIANTS
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
def test_what_a_row_names_exists(row):
    _, _, _, function, flags, test = row
    module, _, name = function.strip("`").partition(":")
    assert definitions(f"{module.replace('.', '/')}.py", name), function
    fields = {field for kind, *_ in VARIANTS.values() for field in kind.__dataclass_fields__}
    for flag in re.findall(r"`(.+?)`", flags):
        assert flag.removeprefix("--").replace("-", "_") in fields, flag
    path, _, name = test.strip("`").partition("::")
    assert definitions(path, name), test


def test_the_tasks_of_the_small_alpha_are_those_of_the_code():
    rows = [line for line in PAGE.splitlines() if re.match(r"\| [A-Z].*\| 0\.01", line)]
    named = [task for line in rows for task in line.split("|")[1].strip().split(", ")]
    assert sorted(named) == sorted(SMALL_ALPHA)
