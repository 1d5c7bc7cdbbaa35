"""Values of MUJOCO_GL with which MuJoCo cannot be imported, or cannot draw."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from proximo.envs.render import gl_advice
from proximo.errors import EnvError
from proximo.models.evaluate import _render

ADVICE = "MuJoCo cannot draw with MUJOCO_GL=cubes here. Set MUJOCO_GL to egl (without a screen; it needs libEGL), glfw"


def failing(module):
    """Return a function of a module that raises RuntimeError."""
    names = {"__name__": module}
    exec("def fail():\n    raise RuntimeError('no context.')", names)
    return names["fail"]


@pytest.mark.parametrize("variant, env_id, code", [
    ("ppo_continuous_action", "Hopper-v5", 3), ("ppo", "Hopper-v5", 3), ("ppo_continuous_action", "dm_control/cartpole-balance-v0", 2)])
def test_a_value_that_cannot_be_imported_is_one_sentence(variant, env_id, code, tmp_path):
    """It ends training, which draws nothing."""
    pytest.importorskip("shimmy" if "dm_control" in env_id else "mujoco")
    done = subprocess.run([sys.executable, "-m", "proximo", "train", variant, "--env-id", env_id, "--run-dir", "run"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=120,
                          env={**os.environ, "MUJOCO_GL": "cubes", "PYTHONPATH": os.pathsep.join(sys.path)})
    *_, line = done.stderr.splitlines()
    assert done.returncode == code and ADVICE in line and ".." not in line and line.endswith("`proximo doctor` checks what this machine has.")
    assert "Traceback" not in done.stderr and not (tmp_path / "run").exists()


def test_the_advice_is_for_faults_of_renderers_only(monkeypatch):
    """A model that MuJoCo cannot read, for example, is no matter of drawing."""
    monkeypatch.setenv("MUJOCO_GL", "cubes")
    for module, draws in (("mujoco.rendering.classic.renderer", True), ("mujoco.egl", True), ("dm_control._render", True),
                          ("gymnasium.envs.mujoco.mujoco_env", False), ("my_env", False)):
        with pytest.raises(RuntimeError) as caught:
            failing(module)()
        assert (ADVICE in gl_advice(caught.value)) == draws
        with pytest.raises(EnvError) as told:
            _render(SimpleNamespace(render=failing(module)), "Hopper-v5")
        assert (ADVICE in str(told.value)) == draws and ".." not in str(told.value) and "`proximo doctor`" in str(told.value)


def test_the_value_that_draws_nothing_is_not_advised_again(monkeypatch):
    """With MUJOCO_GL=disable, the message offered `disable`."""
    with pytest.raises(RuntimeError) as caught:
        failing("mujoco.rendering.classic.renderer")()
    monkeypatch.setenv("MUJOCO_GL", "disable")
    said = gl_advice(caught.value)
    assert "Set MUJOCO_GL to egl (without a screen; it needs libEGL) or glfw (with a screen). `proximo doctor`" in said
    monkeypatch.setenv("MUJOCO_GL", "egl")
    assert "glfw (with a screen), or disable (no pictures). `proximo doctor`" in gl_advice(caught.value)
