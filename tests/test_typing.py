"""What type checkers see of the package (py.typed), in programs that they check strictly."""

import inspect
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from proximo.envs.gym_loop import GymEnvs
from proximo.envs.parallel_env import ParallelGames
from proximo.protocols import VecEnv

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "tests/support/typed_programs.py"
SETTINGS = """[mypy]
strict = true
disallow_subclassing_any = false
warn_return_any = false
[mypy-proximo.*]
follow_imports = silent
ignore_errors = true
[mypy-torch.*,jax.*,pygame.*,cv2.*,flax.*,optax.*,matplotlib.*,pydantic.*,tyro.*,rich.*,scipy.*,pandas.*]
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
proximo.evaluate("run", env_kwarg={"size": 5})
proximo.train("ppo", make_agent=3)
proximo.train("ppo", resume="always")
proximo.train("ppo", make_envs=lambda cfg: None)
proximo.train("ppo", loss_fn=lambda batch, cfg: 0.0)
proximo.train("ppo", learning_rat=3e-4)
proximo.train("ppo", learning_rate="high")
proximo.train("ppo", anneal_lr="linar")
proximo.sweep("ppo", num_steps=[128, 256])
next(proximo.iterations("ppo", num_env=4))
proximo.resume("run", total_timestep=1000)
proximo.check_env("CartPole-v1", env_kwarg={})
proximo.preset("CartPole-v1", hidden_sizes=64)
proximo.train("ppo", set_up=lambda cfg: None)
proximo.check_env("CartPole-v1", set_up=print)
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
def test_programs_of_users_pass_and_wrong_arguments_do_not(tmp_path):
    """Among others lists for tuples, dicts for arguments, and True and False where there is a choice."""
    errors, output = check(tmp_path, program=PROGRAM, wrong=WRONG, typed_programs=PROGRAMS.read_text())
    assert "checked 3 source files" in output, output
    assert {line.split(": ")[0] for line in errors} == {f"wrong.py:{n}" for n in range(3, 21)}, output


@pytest.mark.slow
def test_pyright_finds_no_fault_in_programs_of_users_and_of_the_documentation(tmp_path):
    """The former strictly. The latter have no annotations: what is inferred must fit. Only where pyright is installed."""
    if not (pyright := shutil.which("pyright")):
        pytest.skip("needs pyright")
    (tmp_path / "typed_programs.py").write_text(f"# pyright: strict\n{PROGRAMS.read_text()}")
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.py")]:
        blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.S | re.M) if page.suffix == ".md" else [page.read_text()]
        if module := {"combinatorial": "knapsack", "long-episodes": "office"}.get(page.stem):
            (tmp_path / f"{module}.py").write_text(blocks[0])  # which the other program imports
        parts = page.stem in ("walkthrough", "market-data")    # parts of programs, one of which imports another
        for k, block in enumerate(() if parts else blocks):
            (tmp_path / f"{page.stem}_{k}.py").write_text(block)
    settings = {"typeCheckingMode": "basic", "pythonVersion": "3.11", "extraPaths": [str(ROOT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run([pyright, "--pythonpath", sys.executable], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_properties_of_environments_are_properties():
    """Pyright does not take a cached_property, which can be set, for the property that VecEnv has."""
    for kind in (GymEnvs, ParallelGames):
        assert {name for name, member in vars(VecEnv).items() if isinstance(member, property)} <= {
            name for name in dir(kind) if isinstance(inspect.getattr_static(kind, name), property)}
