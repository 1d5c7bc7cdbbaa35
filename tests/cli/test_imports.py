"""Start-up without a clock: the modules that a command imports, counted in a process of its own."""

import json
import subprocess
import sys

import pytest

SCRIPT = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
before = len(sys.modules)
from proximo.cli.main import main
code = main(sys.argv[2:])
names = [name.partition(".")[0] for name in sys.modules]
print(json.dumps([code, len(sys.modules) - before, names.count("proximo"), sorted(set(names))]))
"""
NEVER = {"matplotlib", "tensorboard", "pandas", "scipy", "optuna", "ray", "submitit", "imageio", "cv2", "onnx",
         "onnxruntime", "huggingface_hub", "pydantic", "IPython", "sympy", "envpool", "ale_py", "mujoco", "pettingzoo"}
SMALL = ["train", "ppo", "--num-envs", "1", "--num-steps", "32", "--total-timesteps", "64", "--threads", "1"]


@pytest.mark.parametrize(("framework", "other", "own", "most"), [("torch", "jax", 186, 360), ("jax", "torch", 182, 720)])
def test_training_imports_what_it_needs(framework, other, own, most, tmp_path):
    """Beside the framework itself: Proximo, gymnasium, numpy and rich, for JAX also flax, which brings optax. With the
    pinned versions, 335 modules for torch and 672 for JAX on Python 3.11; with the oldest allowed ones, 353 and 716.
    `own` are those of Proximo."""
    words = [*SMALL, "--framework", framework, "--run-dir", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-c", SCRIPT, framework, *words], capture_output=True, text=True, check=True)
    code, count, proximo, names = json.loads(done.stdout.splitlines()[-1])
    assert code == 0 and not {other, *NEVER} & {*names}
    assert proximo <= own and count <= most, (proximo, count)


def test_help_imports_no_framework():
    done = subprocess.run([sys.executable, "-c", SCRIPT, "json", "train", "--help"], capture_output=True, text=True,
                          check=True)
    code, count, proximo, names = json.loads(done.stdout.splitlines()[-1])
    assert code == 0 and not {"torch", "jax", "flax", *NEVER} & {*names}
    assert proximo <= 140 and count <= 510, (proximo, count)  # with the oldest allowed versions 501 in all
