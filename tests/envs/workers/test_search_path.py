"""Processes that a command starts in an untrusted folder do not import its files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proximo.envs.workers.search_path import OURS, VARIABLE, path_variables, remove_path_variable, trusted_modules
from tests.support.runs import train

ROOT = Path(__file__).parents[3]
SCRIPT = "from proximo.cli.main import run\n\nif __name__ == '__main__':\n    run()\n"  # as pip writes it
BENCH = 'seeds = [1]\n[[run]]\nvariant = "ppo"\nenv_ids = ["CartPole-v1"]\nsteps = 256\n[run.overrides]\nnum_envs = 2\nnum_steps = 64\n'
STYLE = """
from proximo.cli import main

def command():
    from matplotlib import rcParams
    print(rcParams["lines.linewidth"])
    return 0

main.main = command
main.run()
"""
COMMANDS = {"resume": "resume . --total-timesteps 512", "check-env": "check-env CartPole-v1", "bench": "bench b.toml --out ../out"}


@pytest.fixture
def hostile(tmp_path):
    """A run with worker processes, whose folder has files of the names of modules that Python imports early."""
    run = tmp_path / "run"
    assert train(run, "--total-timesteps", "256", "--num-envs", "2", "--num-steps", "64", "--env-workers", "2") == 0
    for name in ("pickle", "random", "torch", "gymnasium"):
        (run / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nraise ImportError('{name}')\n")
    (run / "b.toml").write_text(BENCH)
    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_in_the_folder_of_a_run_runs_no_file_of_it(name, hostile, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "proximo").write_text(SCRIPT)
    done = subprocess.run([sys.executable, tmp_path / "bin" / "proximo", *COMMANDS[name].split()], cwd=hostile, text=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, timeout=120, check=False)
    assert not (tmp_path / "ran").exists()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("given", "width"), [(None, 5.0), ("", 5.0), ("matplotlibrc", 7.0), (".", 7.0), ("other.rc", 9.0)])
def test_matplotlib_reads_the_settings_of_the_user_not_of_the_working_directory(given, width, tmp_path):
    (tmp_path / "home" / "matplotlib").mkdir(parents=True)
    for path, number in (("matplotlibrc", 7), ("other.rc", 9), ("home/matplotlib/matplotlibrc", 5)):
        (tmp_path / path).write_text(f"lines.linewidth: {number}\n")
    env = {name: text for name, text in os.environ.items() if not name.startswith(("MPL", "MATPLOTLIB"))}
    env |= {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path / "home")} | ({} if given is None else {"MATPLOTLIBRC": given})
    done = subprocess.run([sys.executable, "-P", "-c", STYLE], cwd=tmp_path, env=env, text=True, capture_output=True,
                          timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == width


def test_the_variable_does_not_reach_programs_of_environments(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    with trusted_modules():
        assert os.environ[VARIABLE] == OURS
        remove_path_variable()
        assert VARIABLE not in os.environ
    monkeypatch.setenv(VARIABLE, "1")
    with trusted_modules():
        remove_path_variable()
    assert os.environ[VARIABLE] == "1"  # of the user


@pytest.mark.parametrize("first", ["", os.getcwd()])
def test_a_process_that_searches_the_working_directory_lets_others_do_so(first, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(first or ".")
    monkeypatch.setattr(sys, "path", [first])
    assert path_variables() == {}
