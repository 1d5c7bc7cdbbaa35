"""The folders of compiled functions in the user's cache."""

from pathlib import Path

import pytest

from proximo.envs.machine.cache import user_cache
from proximo.errors import FilesError


def test_the_folder_is_where_the_variable_says_or_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "here"))
    assert user_cache("jax") == tmp_path / "here" / "proximo" / "jax" and user_cache("jax").is_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_cache("aot") == tmp_path / "home" / ".cache" / "proximo" / "aot"


def test_a_user_without_a_home_folder_is_told(monkeypatch):
    """As in a container that runs as a user without an entry in /etc/passwd, and without HOME."""
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    with pytest.raises(FilesError, match="no home folder .* Set HOME or XDG_CACHE_HOME"):
        user_cache("aot")
