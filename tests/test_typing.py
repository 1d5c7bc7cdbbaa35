"""What type checkers see of the package (py.typed), in programs that they check strictly."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = """[mypy]
strict = true
[mypy-proximo.*]
follow_imports = silent
[mypy-torch.*,jax.*,flax.*,optax.*,matplotlib.*,pydantic.*,tyro.*,rich.*,scipy.*,pandas.*]
follow_imports = skip
"""
PROGRAM = """from dataclasses import dataclass, replace

import proximo

given = proximo.Config(anneal_lr=True, anneal_clip=False, norm_adv=False, env_kwargs={"size": 5}, hidden_sizes=[64, 64],
                       policy_sizes=[64], value_sizes=(256,), device_ids=[0], env_wrappers=["module:Wrapper"])
other = proximo.RPO(anneal_lr=False, norm_adv=True, env_kwargs=["size=5"], hidden_sizes=[32])
third = replace(given, anneal_lr="cosine", hidden_sizes=[3])
units: int = third.hidden_sizes[0]


@dataclass(frozen=True)
class Wide(proximo.Config):
    hidden_sizes: tuple[int, ...] = (128, 128)
    env_kwargs: tuple[str, ...] = ("size=5",)
"""
WRONG = """import proximo

proximo.Config(anneal_lr="linar")
proximo.Config(hidden_sizes="64")
proximo.Atari(norm_adv=3, env_kwargs=4)
"""


def check(folder, **programs):
    """Check programs as mypy --strict does, and return what it writes about each of their lines."""
    pytest.importorskip("mypy")
    (folder / "mypy.ini").write_text(SETTINGS)
    for name, text in programs.items():
        (folder / f"{name}.py").write_text(text)
    words = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", *(f"{name}.py" for name in programs)]
    done = subprocess.run(words, cwd=folder, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if ": error: " in line], done.stdout + done.stderr


@pytest.mark.slow
def test_values_that_a_configuration_converts_pass_and_others_do_not(tmp_path):
    """Lists for tuples, dicts for arguments, and True and False where there is a choice."""
    errors, output = check(tmp_path, program=PROGRAM, wrong=WRONG)
    assert "checked 2 source files" in output, output
    assert [line.split(": ")[0] for line in errors] == ["wrong.py:3", "wrong.py:4", "wrong.py:5", "wrong.py:5"], output
