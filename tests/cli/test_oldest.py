"""The oldest version of Gymnasium, against pyproject.toml and against versions on both sides of it."""

import tomllib
from pathlib import Path

import pytest

from proximo.cli.oldest import OLDEST_GYMNASIUM, is_too_old

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_that_of_the_package():
    """pip reads pyproject.toml; messages and `proximo doctor` read the constant."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"gymnasium>={OLDEST_GYMNASIUM}" in project["dependencies"]


@pytest.mark.parametrize(("version", "too_old"), [
    ("0.29.1", True), ("1.0.0", True), ("1.0.0rc1", True), ("1.1.0", False), ("1.1", False), ("1.1.0rc1", False), ("1.10.2", False),
    ("2.0.0a1", False)])
def test_versions_are_compared_as_numbers(version, too_old):
    assert is_too_old(version) is too_old
