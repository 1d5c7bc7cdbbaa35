"""The programs of examples/ against the commands that they name: the same weights, bit for bit."""

import importlib.util
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.runs import main, weights

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"num_envs": 2, "num_steps": 16, "num_minibatches": 2, "update_epochs": 2, "total_timesteps": 96, "seed": 3,
         "threads": 1}
COMMANDS = {
    "ppo": ("ppo", {"env_id": "CartPole-v1"}),
    "atari": ("ppo_atari", {"env_id": "PongNoFrameskip-v4"}),
    "lstm": ("ppo", {"env_id": "tests.support.probes:Positions-v0", "recurrent": "lstm"}),
    "continuous": ("ppo_continuous_action", {"env_id": "Pendulum-v1"}),
    "rpo": ("rpo_continuous_action", {"env_id": "Pendulum-v1", "rpo_alpha": 0.3}),
}


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", COMMANDS)
def test_weights_equal_those_of_the_command(name, tmp_path):
    """Three iterations. Names of layers may differ; shapes, order and every bit may not."""
    variant, settings = COMMANDS[name]
    values = SMALL | settings
    words = [word for field, value in values.items() for word in (f"--{field.replace('_', '-')}", str(value))]
    assert main(["train", variant, *words, "--logger", "none", "--run-dir", str(tmp_path / "run")]) == 0
    ours = list(load(name).main(**values).values())
    theirs = weights(tmp_path / "run")
    assert len(ours) == len(theirs)
    assert sorted(x.tobytes() for x in ours) == sorted(x.tobytes() for x in theirs.values())
    assert any(np.abs(x).max() > 0 for x in ours)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_programs_are_short(path):
    assert len(path.read_text().splitlines()) <= (320 if path.stem == "single_file_ppo" else 70)


@pytest.mark.parametrize("name", [*COMMANDS, "jax_ppo"])
def test_arguments_are_refused(name, monkeypatch):
    """They had no effect, and the program trained for as long as without them."""
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--total-timesteps", "4096"])
    with pytest.raises(SystemExit, match=f"{name}.py takes no arguments: change the values of cfg"):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


def test_weights_of_the_jax_program_equal_those_of_the_command(tmp_path):
    """And four agents train at once."""
    module = load("jax_ppo")
    words = ["--framework", "jax", "--env-id", "CartPole-v1", "--logger", "none", "--run-dir", str(tmp_path / "run")]
    words += [word for field, value in SMALL.items() for word in (f"--{field.replace('_', '-')}", str(value))]
    assert main(["train", "ppo", *words]) == 0
    ours, theirs = module.train_one(**SMALL), weights(tmp_path / "run")
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    settings = {name: value for name, value in SMALL.items() if name != "seed"}
    assert module.train_four(**settings).shape == (3, 4)
