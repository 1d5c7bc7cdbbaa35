"""Ids of games, the ids that are meant by others, and what is said of an ale-py that is broken."""

import importlib.util
import shutil
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from proximo.cli.main import main
from proximo.envs.atari_ids import atari_name, damaged_roms, find_rom, games_for_one, is_atari
from proximo.errors import FilesError, UsageError, warn_once

pytest.importorskip("ale_py")
NO_GAME = "there is no Atari game Foo. https://ale.farama.org/environments lists them.$"
REINSTALL = "Reinstall it: pip install --force-reinstall --no-deps ale-py$"


@pytest.fixture
def roms(tmp_path, monkeypatch):
    """A folder with copies of two ROMs of ale-py and of its checksums, which ale-py reads."""
    from ale_py import roms

    own = Path(roms.__file__).parent
    for name in ("pong.bin", "breakout.bin", "md5.json"):
        shutil.copy(own / name, tmp_path / name)
    monkeypatch.setattr(roms, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path


@pytest.mark.parametrize(("env_id", "sentence"), [
    ("ALE/Foo-v5", NO_GAME), ("FooNoFrameskip-v4", NO_GAME), ("Foo-v5", NO_GAME),
    ("Joust-v5", "Joust is a game of several players only. Use --env-id joust_v3 with ppo_pettingzoo_ma_atari"),
    ("ALE/joust-v5", "Joust is a game of several players only"), ("Joust", "Joust is a game of several players only"),
    ("Brekout-v5", r"there is no Atari game Brekout. Did you mean Breakout-v5\?$"),
    ("ALE/breakout-v5", r"Did you mean ALE/Breakout-v5\?$"), ("ALE/Breakout", r"Did you mean ALE/Breakout-v5\?$"),
    ("breakoutnoframeskip-v4", r"is not the id of an Atari game. Did you mean BreakoutNoFrameskip-v4\?$"),
    ("Breakout", r"Did you mean BreakoutNoFrameskip-v4\?$"), ("space_invaders", r"Did you mean SpaceInvadersNoFrameskip-v4\?$"),
    ("CartPole-v1", "is not the id of an Atari game. Use an id such as")])
def test_an_id_that_cannot_be_played_names_the_one_that_is_meant(env_id, sentence):
    """By its letters in any case and in the form that was given; only near names are proposed."""
    with pytest.raises(UsageError, match=f"^env_id={env_id}.* ?{sentence}"):
        find_rom(env_id)


def test_ids_that_mean_a_game_go_to_its_variant():
    """Also those that cannot be played, so that the sentence is one on Atari games."""
    assert all(map(is_atari, ("Joust-v5", "breakoutnoframeskip-v4", "Pong-v5", "ALE/Foo-v5")))
    assert not any(map(is_atari, ("Ant-v5", "Breakout", "Foo-v5")))


@pytest.mark.parametrize(("change", "sentence"), [
    (lambda path: path.write_bytes(b"no game"), "is damaged: its checksum is not the one that ale-py expects"),
    (lambda path: path.write_bytes(b""), "is damaged"), (lambda path: path.unlink(), "is missing"),
    (lambda path: (path.unlink(), path.mkdir()), "cannot be read .*directory")])
def test_a_rom_that_is_missing_or_damaged(roms, change, sentence, capsys):
    """One sentence names the file and the remedy; the exit code is that of files."""
    assert find_rom("Pong-v5").name == "pong.bin"
    change(roms / "pong.bin")
    with pytest.raises(FilesError, match=f"^The ROM of Pong, {roms}/pong.bin, {sentence}.* It belongs to ale-py. {REINSTALL}"):
        find_rom("Pong-v5")
    assert main(["train", "ppo_atari", "--env-id", "PongNoFrameskip-v4", "--total-timesteps", "1024"]) == 5
    assert "The ROM of Pong" in capsys.readouterr().err


def test_a_folder_of_roms_of_ones_own(tmp_path, monkeypatch):
    """The remedy is another one: ale-py has the file, and a variable names the folder."""
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(FilesError, match=f"The ROM of Pong, {tmp_path}/pong.bin, is missing. .*which ALE_ROMS_DIR names"):
        find_rom("Pong-v5")
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path / "none"))
    with pytest.raises(FilesError, match="cannot be read .*ALE_ROMS_DIR names"):
        find_rom("Pong-v5")


def test_the_doctor_reads_the_checksums(roms, monkeypatch):
    """Without an import of ale-py. A folder of one's own may have some of the games only."""
    assert damaged_roms() == ()
    package = roms.parent / "ale_py"
    roms.rename(roms.parent / "roms")
    (package / "roms").parent.mkdir()
    shutil.move(roms.parent / "roms", package / "roms")
    spec = ModuleSpec("ale_py", None, origin=str(package / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    (package / "roms" / "pong.bin").write_bytes(b"")
    found = damaged_roms()
    assert {"pong.bin", "tennis.bin"} < {*found} and "breakout.bin" not in found
    (package / "roms" / "md5.json").unlink()
    assert damaged_roms() == ("md5.json",)
    monkeypatch.setenv("ALE_ROMS_DIR", "/roms")
    assert damaged_roms() == ()


def without_ale_py(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "ale_py"]:
        monkeypatch.delitem(sys.modules, name)


def test_ale_py_that_is_not_installed(monkeypatch, caplog):
    without_ale_py(monkeypatch)
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(UsageError, match=r'^Pong-v5 needs ale-py: pip install "proximo\[atari\]"$'):
        find_rom("Pong-v5")
    with pytest.raises(UsageError, match="is not the id of an Atari game. Use an id such as"):
        atari_name("Breakout")
    assert games_for_one() == {} and not caplog.records


@pytest.mark.parametrize("line", ["raise ImportError('libz.so.9: cannot open shared object file')", "import libz_of_ale"])
def test_ale_py_that_does_not_import(tmp_path, monkeypatch, caplog, line):
    """The error of the import is told, also where the list of games is only looked up."""
    warn_once.cache_clear()
    without_ale_py(monkeypatch)
    (tmp_path / "ale_py").mkdir()
    (tmp_path / "ale_py" / "__init__.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    cause = "needs ale-py, which is installed and does not import .*libz.*. "
    with pytest.raises(UsageError, match=f"^Pong-v5 {cause}{REINSTALL}"):
        find_rom("Pong-v5")
    assert not is_atari("Pong-v5")
    assert "needs ale-py, which is installed and does not import" in caplog.text and "libz" in caplog.text
