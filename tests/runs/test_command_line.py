"""The command that config.json and reports show: it must be one that can be pasted."""

import sys

import pytest

from proximo.runs.command_line import command_line


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


def test_several_processes_are_started_by_torchrun(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(sys, "argv", ["/x/proximo/__main__.py", "train"])
    assert command_line() == "torchrun --standalone --nproc_per_node=2 -m proximo train"
    monkeypatch.setattr(sys, "argv", ["my.py"])
    assert command_line() == "torchrun --standalone --nproc_per_node=2 my.py"
