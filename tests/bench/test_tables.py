"""Benchmark, search and population files with values of a wrong type: one message has every problem of the file."""

from pathlib import Path

import pytest

from proximo.bench.population import load_population
from proximo.bench.sets import load_set
from proximo.bench.tune.search import load_search
from proximo.errors import UsageError

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_values_of_a_wrong_type_hide_no_other_problem(tmp_path):
    """Against the whole list: nothing is called missing because its type is wrong, and runs are counted from 1."""
    path = tmp_path / "bad.toml"
    path.write_text('title = 5\nsed = 1\n[[run]]\nvariant = "ppo"\nenv_ids = ["A-v0", 3]\nsteps = "many"\nspeed = 1\n'
                    '[[run]]\npresets = 5\n[[run]]\nvariant = "pop"\nenv_ids = ["A-v0"]\nsteps = 10\n')
    with pytest.raises(UsageError) as fault:
        load_set(path)
    said = str(fault.value).splitlines()
    for line, part in zip(said, ("title=5 is not allowed", "run 1: env_ids 2=3 is not allowed", "run 1: steps='many' is not allowed",
                                 "run 2: presets=5 is not allowed", "sed is unknown", "run 1: speed is unknown",
                                 "run 3: variant='pop' is unknown"), strict=True):
        assert line.startswith(f"{path}: {part}")


def test_a_folder_is_no_file_and_examples_are_named(tmp_path):
    for load, where in ((load_set, "benchmarks"), (load_search, "benchmarks/tune"), (load_population, "benchmarks/pbt")):
        with pytest.raises(UsageError, match=f"{tmp_path} is a folder. Name a TOML file. Files .* the folder {where} of the"):
            load(tmp_path)
        with pytest.raises(UsageError, match=f"none cannot be read .* the folder {where} of the repository"):
            load(tmp_path / "none")


def test_values_of_a_wrong_type_hide_no_other_problem_of_a_search(tmp_path):
    """As a metric with a typing error; against the whole list."""
    path = tmp_path / "bad.toml"
    path.write_text('variant = "ppo"\nenv_ids = ["A-v0", "B-v0"]\nsteps = 0\nmetric = "reward"\ntrials = 0\ntarget_scores = 3\n'
                    '[space]\ngamma = 5\n')
    with pytest.raises(UsageError) as fault:
        load_search(path)
    for line, part in zip(str(fault.value).splitlines(), ("metric='reward' is not allowed", "target_scores=3 is not", "steps=0 is not",
                                                          "space: gamma=5 is not allowed", "trials=0 must"), strict=True):
        assert line.startswith(f"{path}: {part}")


def test_values_of_a_wrong_type_hide_no_other_problem_of_a_population(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text('variant = "ppo"\nenv_id = 3\nsteps = 1000\npopulation = 1\nmetric = "reward"\nspace = 5\n')
    with pytest.raises(UsageError) as fault:
        load_population(path)
    for line, part in zip(str(fault.value).splitlines(), ("env_id=3 is not allowed", "metric='reward' is not allowed",
                                                          "space=5 is not", "population=1 is not"), strict=True):
        assert line.startswith(f"{path}: {part}")


@pytest.mark.parametrize("name", ["small.toml", "tune/cartpole.toml", "pbt/cartpole.toml"])
def test_a_file_of_another_command_names_the_right_one(name):
    """One sentence instead of a list of unknown keys."""
    path, right = BENCHMARKS / name, {"small.toml": "bench"}.get(name, name.split("/")[0])
    for command, load in (("bench", load_set), ("tune", load_search), ("pbt", load_population)):
        if command == right:
            load(path)
            continue
        with pytest.raises(UsageError, match=f"^{path} is a file of another command. Use `proximo {right} {path}`.$"):
            load(path)


def test_a_file_that_could_be_one_of_several_commands_is_read_as_given(tmp_path):
    """A search with env_id instead of env_ids has its own list of problems."""
    path = tmp_path / "bad.toml"
    path.write_text('variant = "ppo"\nenv_id = "CartPole-v1"\nsteps = 2048\n[space]\ngamma = {low = 0.9, high = 0.99}\n')
    with pytest.raises(UsageError, match="env_id is unknown. A search has"):
        load_search(path)
