"""The records of benchmarks, searches and populations on a disk that becomes full: one sentence, and exit code 5."""

from contextlib import ExitStack

import pytest

from proximo.bench.files import write_record
from proximo.bench.task import Ended
from proximo.cli.main import main
from proximo.errors import FilesError
from tests.support.full_disk import REASON, bytes_below, full_disk

TASK = 'title = "full"\nvariant = "ppo"\nsteps = 4096\n'
SPACE = "[space]\nlearning_rate = {low = 1e-4, high = 1e-2, log = true}\n"
FILES = {"bench": '[[run]]\nvariant = "ppo"\nenv_ids = ["CartPole-v1"]\nsteps = 4096\n',
         "tune": f'{TASK}env_ids = ["CartPole-v1"]\nseeds = 1\n{SPACE}',
         "pbt": f'{TASK}env_id = "CartPole-v1"\npopulation = 4\nrounds = 2\n{SPACE}'}
MODULES = {"bench": "runner", "tune": "tune.main", "pbt": "pbt"}  # where each opens its place


class FillingPlace:
    """The disk becomes full when the first runs start."""

    name = "task"

    def __init__(self, held):
        self.held = held

    def submit(self, tasks):
        self.held.enter_context(full_disk())
        return [self for _ in tasks]

    def recover(self, name):
        return None

    def close(self):
        pass

    def poll(self):
        return Ended(0)


@pytest.mark.parametrize("command", FILES)
def test_a_disk_that_becomes_full_ends_the_command(command, tmp_path, monkeypatch, capsys):
    if command == "tune":
        pytest.importorskip("optuna")
    (tmp_path / "file.toml").write_text(FILES[command])
    with ExitStack() as held:
        monkeypatch.setattr(f"proximo.bench.{MODULES[command]}.open_place", lambda where, folder: FillingPlace(held))
        code = main([command, str(tmp_path / "file.toml"), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err.splitlines()
    assert code == 5 and ".job.json could not be written" in said[-1], said
    assert said[-1].endswith(", then start the same command again, which continues.") and "Traceback" not in "".join(said)
    assert not [name for name in bytes_below(tmp_path) if "/." in name]


def test_a_record_is_complete_or_as_it_was(tmp_path):
    write_record(tmp_path / "1.job.json", {"status": "running"})
    before = bytes_below(tmp_path)
    with full_disk(), pytest.raises(FilesError, match=rf"\({REASON}\).*, then start the same command again"):
        write_record(tmp_path / "1.job.json", {"status": "finished"})
    assert bytes_below(tmp_path) == before


@pytest.mark.parametrize("command", ["tune", "pbt"])
@pytest.mark.parametrize(("title", "name"), [("../../up", "__.._up"), ("..", "_"), ("a b", "a b")])
def test_no_title_leads_out_of_the_folder_of_all_searches(title, name, command, tmp_path, monkeypatch):
    if command == "tune":
        pytest.importorskip("optuna")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "file.toml").write_text(FILES[command].replace('"full"', f'"{title}"'))

    def fail(where, folder):
        raise FilesError(str(folder))

    monkeypatch.setattr(f"proximo.bench.{MODULES[command]}.open_place", fail)
    assert main([command, str(tmp_path / "file.toml")]) == 5
    assert [path.name for path in (tmp_path / "here" / "runs" / command).iterdir()] == [name]
    assert {path.name for path in tmp_path.iterdir()} == {"here", "file.toml"}
