"""The command that config.json and reports show: it must be one that can be pasted."""

import subprocess
import sys
from pathlib import Path, PureWindowsPath

import pytest

from proximo.cli.main import main
from proximo.processes import TORCHRUN
from proximo.runs.command_line import command_line, pasted
from tests.support.runs import SMALL


@pytest.mark.parametrize(("program", "shown"), [
    ("/x/site-packages/proximo/__main__.py", "proximo train --exp-name 'a b'"),
    ("/x/bin/proximo", "proximo train --exp-name 'a b'"),
    ("my.py", "python my.py train --exp-name 'a b'"),
    ("/x/other/__main__.py", "python /x/other/__main__.py train --exp-name 'a b'"),
    ("/x/ipykernel_launcher.py", ""), ("-c", "")])
def test_the_command_can_be_pasted(monkeypatch, program, shown):
    """However Proximo was started: as a module, by its script, by a program of the user, in a notebook."""
    monkeypatch.setattr(sys, "argv", [program, "train", "--exp-name", "a b"])
    assert command_line() == shown


@pytest.mark.parametrize(("platform", "line"), [("linux", "eval 'my runs/1' ./-x -x"), ("win32", 'eval "my runs/1" ./-x -x')])
def test_folders_can_be_pasted_into_the_shell_of_the_system(monkeypatch, platform, line):
    """cmd.exe takes single quotes for a part of the name. A folder whose name begins with a dash is no flag."""
    monkeypatch.setattr(sys, "platform", platform)
    assert pasted("eval", Path("my runs/1"), Path("-x"), "-x") == line


def test_a_folder_of_windows_needs_no_quotes(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert pasted("eval", PureWindowsPath("runs/first")) == r"eval runs\first"


def test_several_processes_are_started_by_torchrun(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(sys, "argv", ["/x/proximo/__main__.py", "train"])
    assert command_line() == "torchrun --standalone --nproc_per_node=2 -m proximo train"
    monkeypatch.setattr(sys, "argv", ["my.py"])
    assert command_line() == "torchrun --standalone --nproc_per_node=2 my.py"


def test_several_nodes_need_an_address_in_place_of_standalone(monkeypatch):
    """With --standalone, the line would start all processes on one machine. A last node may have fewer of them."""
    monkeypatch.setattr(sys, "argv", ["my.py"])
    for size, local, nodes in ((4, 2, 2), (5, 2, 3), (2, 1, 2)):
        monkeypatch.setenv("WORLD_SIZE", str(size))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
        assert command_line() == (f"torchrun --nnodes={nodes} --nproc_per_node={local} --rdzv-backend=c10d "
                                  "--rdzv-endpoint=HEAD:29400 my.py")


@pytest.mark.parametrize(("variables", "words"), [
    ({"RANK": "1"}, "RANK is set in the environment, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE are not"),
    ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set in the environment"),
    ({"RANK": "x", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, "RANK=x WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 in the environment are not n"),
    ({"RANK": "0", "WORLD_SIZE": "\u00b2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, "WORLD_SIZE=\u00b2 LOCAL_RANK=0"),
    *((dict(zip(TORCHRUN, numbers)) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, "are not numbers of processes: RANK must")
      for numbers in ("1101", "0001", "2201", "0120", "0111", "0123")),
    *((dict(zip(TORCHRUN, "0201")) | address, "are not the address and the port (1 to 65535) of the first process")
      for address in ({}, {"MASTER_ADDR": "127.0.0.1"}, {"MASTER_PORT": "29500"}, *(
          {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} for port in ("abc", "0", "99999999", "-1", "\u00b2"))))])
def test_variables_that_a_job_left_are_refused(variables, words, monkeypatch, tmp_path, capsys):
    """A run with RANK=1 alone would train, write nothing and say nothing."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["train", "ppo", *SMALL, "--run-dir", str(tmp_path / "run")]) == 2
    assert words in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_a_program_that_its_workers_run_again_trains_once(tmp_path):
    """Without `if __name__ == "__main__":`, each worker would train: one run folder, and at most one line of each."""
    (tmp_path / "program.py").write_text(
        "import proximo\nproximo.train('ppo', env_workers=2, total_timesteps=1024, logger='none')\n")
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and done.stderr.count("runs the program again") in (1, 2)  # the first may end the other
    assert done.stderr.rstrip().endswith('A script that trains must do so under `if __name__ == "__main__":`.')
    assert len(list((tmp_path / "runs").rglob("config.json"))) <= 1
