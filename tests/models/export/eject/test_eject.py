"""Ejected files against the library: the same weights, bit for bit, in a process that cannot import the library."""

import ast
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from proximo.catalog import VARIANTS, config_class, parts_of
from proximo.cli.main import main
from proximo.envs.atari_ids import read_atari_name
from proximo.errors import UsageError
from proximo.models.export.eject import main_program
from proximo.models.export.eject.comments import without_topics
from proximo.models.export.eject.eject import eject
from proximo.runs.settings.resolve import resolve

ROOT = Path(__file__).resolve().parents[4]
MOST_LINES = {"ppo": 700, "ppo_continuous_action": 930, "rpo_continuous_action": 1010, "compact": 910, "ppo_atari": 880,
              "ppo_atari_lstm": 940, "ppo_atari_multigpu": 880, "ppo_atari_envpool": 800, "ppo_procgen": 940,
              "ppo_pettingzoo_ma_atari": 800}
SMALL = {
    "ppo": {"env_id": "MountainCar-v0", "num_steps": 256, "num_envs": 6},  # episodes are truncated after 200 steps
    "ppo_continuous_action": {"env_id": "Pendulum-v1", "num_steps": 256},
    "rpo_continuous_action": {"env_id": "Pendulum-v1", "num_steps": 256},
    "compact": {},  # LunarLander, whose state cannot be saved: the environments are made again
    "ppo_atari": {"num_envs": 4, "num_steps": 32, "threads": 1},
    "ppo_atari_lstm": {"num_envs": 4, "num_steps": 32, "threads": 1},
    "ppo_atari_multigpu": {"local_num_envs": 8, "num_steps": 16, "threads": 1},
    "ppo_atari_envpool": {"num_envs": 4, "num_steps": 32, "threads": 1},
    "ppo_procgen": {"num_envs": 4, "num_steps": 16, "threads": 1},
    "ppo_pettingzoo_ma_atari": {"num_envs": 4, "num_steps": 16, "threads": 1},
}
OTHERS_ON_JAX = [{"env_id": "Acrobot-v1", "seed": 3}, {"env_id": "MountainCar-v0", "anneal_lr": "none"},
                 {"clip_vloss": False, "bootstrap_truncated": False, "hidden_sizes": (32,)},
                 {"num_envs": 2, "num_minibatches": 2, "update_epochs": 2, "ent_coef": 0.05}]
ALL = os.environ.get("PROXIMO_EJECT_ALL")  # make eject
needs_jax = pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="JAX is not installed")
BLOCKED = """
import importlib.abc, runpy, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "proximo":
            raise ImportError("an ejected file imports the library")
sys.meta_path.insert(0, Blocked())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def statements_without_effect(path):
    """Expressions whose value nobody reads: what is left of a name that the variant does not use."""
    used = ast.Constant, ast.Call, ast.Yield
    return [ast.unparse(node) for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Expr) and not isinstance(node.value, used)]


def rarely(cases):
    """Mark cases that only `make eject` runs."""
    return [pytest.param(*case, marks=() if ALL else pytest.mark.skip(reason="make eject")) for case in cases]


def test_the_page_has_the_sizes_of_the_files():
    """docs/variants.md against the limits. Settings of an environment add a few lines to the other variants."""
    page = " ".join((ROOT / "docs" / "variants.md").read_text().split())
    others = max(most for variant, most in MOST_LINES.items() if variant != "ppo")
    assert f"at most {MOST_LINES['ppo']} lines for `ppo` and about {others:,} for the others" in page


def weights_hash(weights):
    digest = hashlib.sha256()
    for name, x in weights.items():
        digest.update(name.encode() + x.tobytes())
    return digest.hexdigest()


def library_hash(variant, settings):
    return weights_hash(library_weights(variant, settings))


def library_weights(variant, settings):
    cfg = resolve(config_class(variant)(**settings, env_workers=0, device="cpu"), variant, 1, 1)
    parts = parts_of(variant, settings.get("framework", "torch"))
    for iteration in parts.train(cfg, parts.make_envs, parts.make_agent):
        weights = iteration.weights
    return weights()


def ejected_hash(path, folder):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}  # for tests.support.probes
    done = subprocess.run([sys.executable, "-c", BLOCKED, str(path)], cwd=folder, env=environment, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    (progress,), (weights_path,) = folder.glob("progress-*.csv"), folder.glob("weights-*.npz")
    header, *rows = progress.read_text().splitlines()
    assert header.startswith("global_step,SPS,episodic_return,") and len(rows) == 3
    with np.load(weights_path) as weights:
        return weights_hash(weights)


def three_iterations(variant, settings):
    cfg = config_class(variant)(**settings)
    return settings | {"total_timesteps": 3 * cfg.num_envs * cfg.num_steps}


@pytest.fixture(scope="module")
def ppo_file():
    """The file of SMALL["ppo"] on torch; to write one takes seven seconds."""
    return eject(config_class("ppo")(**three_iterations("ppo", SMALL["ppo"])), "ppo", "proximo eject ppo")


REFUSED = """
import runpy, sys
path, *lines = sys.argv[1:]
for line in lines:
    sys.argv = [path, *line.split()]
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        print(f"exit code {end.code}", file=sys.stderr)
"""


def ruff(path):
    found = subprocess.run([sys.executable, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), str(path)],
                           capture_output=True, text=True)
    return found.returncode, found.stdout


@pytest.mark.parametrize("variant", [pytest.param(name, marks=() if name == "ppo" or ALL else pytest.mark.skip(
    reason="make eject")) for name in SMALL])
def test_three_iterations_have_the_weights_of_the_library(variant, tmp_path, request):
    settings = three_iterations(variant, SMALL[variant])
    path = tmp_path / "my_ppo.py"
    path.write_text(request.getfixturevalue("ppo_file") if variant == "ppo" else eject(
        config_class(variant)(**settings), variant, f"proximo eject {variant}"))
    assert ruff(path) == (0, "All checks passed!\n")
    assert len(path.read_text().splitlines()) <= MOST_LINES[variant]
    assert "proximo." not in path.read_text() and "import proximo" not in path.read_text()
    assert statements_without_effect(path) == []
    assert ejected_hash(path, tmp_path) == library_hash(variant, settings)
    lines = ("--total-timesteps 1", "--num-minibatches 7", "--num-envs 0")[:3 if variant == "ppo" else 1]
    refused = subprocess.run([sys.executable, "-c", REFUSED, str(path), *lines], cwd=tmp_path, capture_output=True, text=True)
    said = refused.stderr.split("exit code 2\n")
    assert len(said) == len(lines) + 1 and said[-1] == ""
    assert all("num-envs * num-steps must be above 0, divisible by" in one for one in said[:-1])


@needs_jax
@pytest.mark.parametrize("changes", [{}, *(pytest.param(one, marks=() if ALL else pytest.mark.skip(
    reason="make eject")) for one in OTHERS_ON_JAX)], ids=str)
def test_three_iterations_on_jax_have_the_weights_of_the_library(changes, tmp_path, monkeypatch):
    """Whatever JAX_ENABLE_X64 says, which ended in a traceback."""
    settings = three_iterations("ppo", {"framework": "jax", **changes})
    path = tmp_path / "my_ppo.py"
    path.write_text(eject(config_class("ppo")(**settings), "ppo", "proximo eject ppo --framework jax"))
    assert ruff(path) == (0, "All checks passed!\n")
    assert len(path.read_text().splitlines()) <= 750
    assert "proximo." not in path.read_text() and "import proximo" not in path.read_text()
    assert statements_without_effect(path) == []
    expected = library_hash("ppo", settings)
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    assert ejected_hash(path, tmp_path) == expected


@pytest.mark.skipif(not ALL, reason="make eject")
@pytest.mark.parametrize("words", ["compact", pytest.param("ppo --framework jax", marks=needs_jax)])
def test_the_same_command_prints_the_same_file(words):
    """Python orders sets of text differently in every process."""
    texts = {subprocess.run([sys.executable, "-m", "proximo", "eject", *words.split()], cwd=ROOT, capture_output=True,
                            check=True, env=os.environ | {"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert len(texts) == 1


@needs_jax
@pytest.mark.skipif(not ALL, reason="make eject")
@pytest.mark.parametrize("changes", [{"num_envs": 6, "num_steps": 100, "num_minibatches": 5}, {"num_envs": 16}], ids=str)
def test_other_numbers_of_rows_on_jax_have_the_weights_up_to_rounding(changes, tmp_path):
    """Minibatches of 120 rows, and rollouts that the library divides into parts."""
    settings = three_iterations("ppo", {"framework": "jax", **changes})
    path = tmp_path / "my_ppo.py"
    path.write_text(eject(config_class("ppo")(**settings), "ppo", "proximo eject ppo --framework jax"))
    ejected_hash(path, tmp_path)
    with np.load(tmp_path / "weights-1.npz") as weights:
        for name, x in library_weights("ppo", settings).items():
            np.testing.assert_allclose(weights[name], x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant, changes", [
    ("ppo", {"env_id": "tests.support.probes:Hybrid-v0"}),
    ("ppo", {"env_id": "Pendulum-v1", "frame_stack": 3, "frame_skip": 2, "shared_network": True}), *rarely([
    ("ppo", {"recurrent": "lstm", "num_minibatches": 3}), ("ppo", {"shared_network": True}), ("ppo", {"target_kl": 0.01}),
    ("ppo", {"env_id": "Pendulum-v1"}),  # a Gaussian with an entropy bonus
    *(("ppo_continuous_action", changes) for changes in ({"distribution": "squashed"}, {"distribution": "beta"},
                                                         {"state_dependent_std": True})),
    ("ppo_continuous_action", {"env_id": "dm_control/walker-walk-v0"}),  # a Dict of vectors, normalised
    ("ppo", {"env_id": "Blackjack-v1"}), *(("ppo", {"env_id": f"tests.support.probes:{name}-v0"})
                                           for name in ("Masked", "Rich", "RichCut", "Looking")),
    ("ppo", {"desired_kl": 0.01, "num_envs": 1}), ("ppo", {"norm_adv": "batch"}), ("ppo_continuous_action", {"norm_value": True}),
    ("ppo", {"frame_skip": 2}), ("ppo", {"env_id": "Pendulum-v1", "frame_stack": 3}),
    ("ppo", {"anneal_clip": "cosine"}), ("ppo", {"anneal_lr": "cosine", "anneal_ent": "linear"}),
    ("ppo_atari", {"env_id": "ALE/Pong-v5", "grayscale": False, "end_on_life_loss": False, "clip_rewards": False}),
    ("compact", {"env_id": "BreakoutNoFrameskip-v4", "model": "cnn", **SMALL["ppo_atari"]})])], ids=str)
def test_other_settings_have_the_weights_of_the_library(variant, changes, tmp_path):
    settings = three_iterations(variant, SMALL[variant] | changes)
    path = tmp_path / "my_ppo.py"
    path.write_text(eject(config_class(variant)(**settings), variant, f"proximo eject {variant}"))
    assert ruff(path) == (0, "All checks passed!\n")
    assert ejected_hash(path, tmp_path) == library_hash(variant, settings)


def test_comments_lose_what_they_say_of_absent_things():
    code = "valid advantage"
    assert without_topics("number of valid rows over all ranks, at least 1", code) == "number of valid rows, at least 1"
    assert without_topics("Flatten the rollout into rows; a recurrent agent keeps whole environments (detail 35).",
                          code) == "Flatten the rollout into rows."
    assert without_topics("Rows. Masks are kept.", "mask") == "Rows. Masks are kept."


@pytest.mark.parametrize("variant, changes, sentence", [
    ("ppo", {"framework": "jax", "activation": "relu"}, "activation=relu cannot be ejected on JAX: only num_envs"),
    ("ppo", {"framework": "jax", "env_id": "Pendulum-v1"}, "Use --env-id CartPole-v1, Acrobot-v1 or MountainCar-v0"),
    ("ppo", {"framework": "jax", "engine": "gym"}, "only environments written in JAX are supported"),
    ("ppo_continuous_action", {"framework": "jax"}, "on JAX only ppo is supported"),
    ("ppo_atari_envpool_xla_jax", {}, "on JAX only ppo is supported"),
    ("ppo_continuous_action_isaacgym", {}, "ppo_continuous_action_isaacgym cannot be ejected: only ppo, ppo_continuous_a"),
    ("ppo_atari", {"engine": "envpool"}, "engine=envpool cannot be ejected"),
    ("ppo", {"engine": "envpool"}, "engine=envpool cannot be ejected"),
    ("ppo", {"env_id": "BreakoutNoFrameskip-v4"}, "is an Atari game. Use proximo eject ppo_atari"),
    ("ppo", {"device": "cuda"}, "an ejected file trains on the CPU"),
    ("ppo", {"env_wrappers": ("gymnasium.wrappers:FlattenObservation",)}, "Register it under an id"),
    ("ppo", {"autoreset": "next-step"}, "autoreset=next-step cannot be ejected"),
    ("ppo", {"precision": "bf16"}, "precision=bf16: an ejected file computes in float32"),
    ("ppo", {"init_from": "runs/a"}, "init_from=runs/a cannot be ejected: the program begins with random weights"),
    ("ppo", {"num_minibatches": 3}, "num_minibatches=3"),
])
def test_what_cannot_be_ejected_is_refused_with_a_sentence(variant, changes, sentence):
    with pytest.raises(UsageError, match=sentence):
        eject(replace(VARIANTS[variant].config(), **changes), variant, "")


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    """As Box2D is missing where it has no wheel."""
    def absent(*_, **__):
        raise gym.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gym, "make", absent)
    with pytest.raises(UsageError, match=r'Box2D is not installed.*pip install "proximo\[box2d\]"'):
        eject(VARIANTS["compact"].config(), "compact", "")


def test_a_file_for_discrete_actions_refuses_others_with_a_sentence(monkeypatch):
    """The functions of the ejected file, with the constants of a file for CartPole."""
    monkeypatch.setattr(main_program, "ACTIONS", "Discrete")
    monkeypatch.setattr(main_program, "FIND_ID", str, raising=False)
    monkeypatch.setattr(main_program, "OBSERVATIONS", "1-dimensional Box")
    main_program.refuse_other_spaces("Acrobot-v1")
    with pytest.raises(SystemExit, match="Pendulum-v1 has 1-dimensional Box actions .* for Discrete actions"):
        main_program.refuse_other_spaces("Pendulum-v1")
    with pytest.raises(SystemExit, match="Tuple observations"):
        main_program.refuse_other_spaces("Blackjack-v1")
    assert main_program.kind_of(spaces.Discrete(3, start=1)) == "Discrete that begins with 1"
    assert main_program.kind_of(spaces.MultiDiscrete([2, 3])) == "1-dimensional MultiDiscrete"
    assert main_program.kind_of(spaces.Dict({"a": spaces.Discrete(2)})) == "Dict"


def test_a_file_for_a_game_refuses_ids_with_other_sticky_actions(monkeypatch):
    """Such a file has either the code for sticky actions or none."""
    main_program.refuse_other_games("PongNoFrameskip-v4")
    main_program.refuse_other_games("Pong-v5")
    with pytest.raises(SystemExit, match="ALE/Pong-v5 means sticky actions"):
        main_program.refuse_other_games("ALE/Pong-v5")
    monkeypatch.setattr(main_program, "STICKY", True)
    main_program.refuse_other_games("PongNoFrameskip-v0")
    with pytest.raises(SystemExit, match="PongDeterministic-v4 means no sticky actions"):
        main_program.refuse_other_games("PongDeterministic-v4")
    found = {env_id: read_atari_name(env_id).sticky > 0 for env_id in ("Pong-v5", "ALE/Pong-v5", "PongNoFrameskip-v0",
                                                                      "PongDeterministic-v4")}
    assert found == {"Pong-v5": False, "ALE/Pong-v5": True, "PongNoFrameskip-v0": True, "PongDeterministic-v4": False}


def test_a_reader_can_use_the_observations_in_the_loss(ppo_file, tmp_path):
    """And can add a statistic. A call before training gave ones as the rows."""
    before, path = "    entropy = mean(batch.entropy)\n", tmp_path / "my_ppo.py"
    assert ppo_file.count(before) == 1 and ppo_file.count('"entropy": entropy,') == 1
    text = ppo_file.replace(before, f"{before}    largest = batch.rows.obs.abs().max()\n")
    path.write_text(text.replace('"entropy": entropy,', '"entropy": entropy, "largest": largest,'))
    subprocess.run([sys.executable, path, "--num-steps", "16", "--total-timesteps", "96"], cwd=tmp_path, check=True)
    header, row = (tmp_path / "progress-1.csv").read_text().splitlines()
    assert float(dict(zip(header.split(","), row.split(",")))["losses/largest"]) > 0


def test_docstrings_name_only_what_the_file_has(ppo_file):
    """Arguments and errors of the library, which the file has in another form, are not mentioned."""
    tree = ast.parse(ppo_file)
    for node in (one for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.ClassDef))):
        words = ast.get_docstring(node) or ""
        names = {part for one in ast.walk(node) for part in (getattr(one, "id", ""), getattr(one, "arg", ""),
                                                             getattr(one, "attr", ""))}
        assert {name for name in re.findall(r"`(\w+)`", words) if not name.isdigit()} <= names | {
            *dir(torch)}, (node.name, words)
        assert not re.search(r"[a-z]Error\b", re.sub(r"\b(Value|Runtime|Arithmetic)Error", "", words)), (node.name, words)


def test_the_arrays_that_environments_write_are_arrays(ppo_file):
    assert "dict[str, np.ndarray] = {" in ppo_file and "dict[str, Tensor] = {" not in ppo_file


def test_help_of_a_file_has_the_defaults(ppo_file, tmp_path):
    """argparse prints none where a flag has no help."""
    (tmp_path / "file.py").write_text(ppo_file)
    said = subprocess.run([sys.executable, tmp_path / "file.py", "--help"], capture_output=True, text=True, check=True).stdout
    assert "--num-envs NUM_ENVS value (default: 6)" in " ".join(said.split())


def test_the_command_explains_itself_and_names_wrong_flags(capsys):
    assert main(["eject", "--help"]) == 0
    assert "proximo eject VARIANT" in capsys.readouterr().out
    assert main(["eject", "ppo", "--gama", "0.9"]) == 2
    assert "--gamma" in capsys.readouterr().err
    assert main(["eject", "nothing"]) == 2
