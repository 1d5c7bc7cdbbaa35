"""Encodings of text files: UTF-8, also with a byte order mark, and what is said of UTF-16."""

import pytest

from proximo.envs.custom.imports import import_named
from proximo.errors import FilesError, UsageError
from proximo.runs.folder.files import read_json, read_toml


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_byte_order_mark_is_no_part_of_the_text(encoding, tmp_path):
    (tmp_path / "one.toml").write_text('name = "ä"', encoding=encoding)
    (tmp_path / "one.json").write_text('{"name": "ä"}', encoding=encoding)
    assert read_toml(tmp_path / "one.toml") == read_json(tmp_path / "one.json", dict[str, str]) == {"name": "ä"}


def test_utf_16_is_named(tmp_path, monkeypatch):
    for name in ("one.toml", "one.json", "utf_16_module.py"):
        (tmp_path / name).write_text("name = 1", encoding="utf-16")
    with pytest.raises(FilesError, match="^[^ ]*/one.toml is UTF-16. PowerShell 5 .*Save the file as UTF-8"):
        read_toml(tmp_path / "one.toml")
    with pytest.raises(FilesError, match="^[^ ]*/one.json is UTF-16"):
        read_json(tmp_path / "one.json", dict[str, int])
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="importing utf_16_module fails .* It may be UTF-16. PowerShell 5 .*UTF-8"):
        import_named("utf_16_module", "env_id=utf_16_module:Env-v0")
