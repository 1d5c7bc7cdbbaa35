"""examples/single_file_ppo.py against `proximo train ppo`: the same weights, bit for bit."""

import ast
import hashlib
import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "examples" / "single_file_ppo.py"
LIBRARY_NAMES = {"critic": "critic", "actor": "head.network"}

# Episodes end by the pole and by the time limit, in different environments at different steps.
SHORT_CARTPOLE = """
import gymnasium
gymnasium.register("ShortCartPole-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=20)
"""


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("single_file_ppo", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flags(settings):
    """Settings as both command lines take them."""
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def example_weights(example, settings):
    """Weights by the library's names after training in this process."""
    cfg = example.Config(**settings)
    envs = example.Environments(cfg)
    agent = example.Agent(envs.obs.shape[1], envs.num_actions, cfg)
    assert len(list(example.train(agent, envs, cfg))) == cfg.num_iterations
    named = {}
    for name, parameter in agent.named_parameters():
        network, index, kind = name.split(".")  # every second layer is a tanh without parameters
        named[f"{LIBRARY_NAMES[network]}.layers.{int(index) // 2}.{kind}"] = parameter.detach().numpy()
    return named


def library_weights(monkeypatch, folder, settings):
    """Weights by name after `python -m proximo train ppo`, in this process because that is seconds faster."""
    words = ["train", "ppo", "--threads", "1", "--logger", "none", "--run-dir", str(folder), *flags(settings)]
    monkeypatch.setattr(sys, "argv", ["proximo", *words])
    with pytest.raises(SystemExit) as exit:
        runpy.run_module("proximo", run_name="__main__")
    assert not exit.value.code
    arrays = load_file(folder / "model" / "tensors.safetensors")
    return {name.removeprefix("/weights/"): x for name, x in arrays.items() if name.startswith("/weights/")}


def assert_same_bits(ours, theirs):
    assert ours.keys() == theirs.keys()
    different = [name for name in ours if ours[name].tobytes() != theirs[name].tobytes()]
    assert different == [], "examples/single_file_ppo.py and proximo train ppo compute different weights"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_five_iterations_of_cartpole_equal_the_library(example, tmp_path, monkeypatch, seed):
    settings = {"env_id": "CartPole-v1", "seed": seed, "total_timesteps": 5 * 4 * 128}
    assert_same_bits(example_weights(example, settings), library_weights(monkeypatch, tmp_path / "run", settings))


def test_time_limits_of_all_environments_at_once_equal_the_library(example, tmp_path, monkeypatch):
    """MountainCar's episodes are truncated after 200 of the 256 steps."""
    settings = {"env_id": "MountainCar-v0", "num_steps": 256, "total_timesteps": 3 * 4 * 256}
    assert_same_bits(example_weights(example, settings), library_weights(monkeypatch, tmp_path / "run", settings))


def test_time_limits_of_single_environments_equal_the_library(example, tmp_path, monkeypatch):
    (tmp_path / "short_cartpole.py").write_text(SHORT_CARTPOLE)
    monkeypatch.syspath_prepend(tmp_path)
    settings = {"env_id": "short_cartpole:ShortCartPole-v0", "num_envs": 3, "total_timesteps": 5 * 3 * 128}
    cfg = example.Config(**settings)
    envs = example.Environments(cfg)
    rollout = example.collect(example.Agent(4, 2, cfg), envs, cfg, 1)
    truncated = rollout.done & ~rollout.terminated
    assert rollout.terminated.any() and (truncated.any(1) & ~truncated.all(1)).any(), "the environment tests nothing"
    assert_same_bits(example_weights(example, settings), library_weights(monkeypatch, tmp_path / "run", settings))


def test_command_line_prints_the_hash_and_writes_the_csv_without_the_library(example, tmp_path):
    settings = {"seed": 4, "total_timesteps": 1100}
    command = [sys.executable, "-X", "importtime", str(FILE), *flags(settings), "--csv", str(tmp_path / "log.csv")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    flat = np.concatenate([x.ravel() for x in example_weights(example, settings).values()])
    assert f"SHA-256 {hashlib.sha256(flat.tobytes()).hexdigest()}" in done.stdout
    assert "step 1024  return" in done.stdout
    imported = set(re.findall(r"\| +(\w+)", done.stderr))
    assert "gymnasium" in imported and "proximo" not in imported
    header, *rows = [line.split(",") for line in (tmp_path / "log.csv").read_text().splitlines()]
    assert [row[header.index("global_step")] for row in rows] == ["512", "1024"]


@pytest.mark.parametrize("words, message", [
    (["--num-minibatches", "5"], "num_minibatches=5 does not divide 512"),
    (["--total-timesteps", "511"], "total_timesteps=511 is less than one rollout"),
    (["--env-id", "Pendulum-v1"], "Use an environment with Discrete actions"),
])
def test_a_wrong_setting_gets_one_sentence(example, monkeypatch, capsys, words, message):
    monkeypatch.setattr(sys, "argv", ["single_file_ppo.py", *words])
    with pytest.raises(SystemExit) as exit:
        example.main()
    assert message in f"{exit.value} {capsys.readouterr().err}"


def test_help_has_the_defaults(example, monkeypatch, capsys):
    """argparse prints none where the help of a flag is blank."""
    monkeypatch.setattr(sys, "argv", ["single_file_ppo.py", "--help"])
    with pytest.raises(SystemExit):
        example.main()
    said = " ".join(capsys.readouterr().out.split())
    assert "(default: CartPole-v1)" in said and "(default: 500000)" in said and "(default: 0.00025)" in said


def test_it_is_one_short_file_without_the_library():
    text = FILE.read_text()
    tree = ast.parse(text)
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    libraries = {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names)
    assert libraries == {"torch", "numpy", "gymnasium"}
    assert len(text.splitlines()) <= 320


def test_every_core_detail_is_named_where_it_stands():
    text = FILE.read_text()
    assert [number for number in range(1, 14) if not re.search(rf"\bdetail {number}\b", text)] == []
