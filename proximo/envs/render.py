"""Pictures of environments, also on machines without a screen."""

import math
import os
import re
import sys
import traceback
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from numbers import Real
from typing import Any

import gymnasium
import numpy as np

from proximo.envs.images import RepeatAction

RENDERERS = ("mujoco.egl", "mujoco.glfw", "mujoco.osmesa", "mujoco.rendering", "dm_control._render",
             "gymnasium.envs.mujoco.mujoco_rendering")  # modules that draw with MUJOCO_GL


def use_egl_when_headless() -> None:
    """Let mujoco and pyglet draw by EGL if no renderer was chosen and there is no screen.

    Call it before they are imported: without a screen and this variable, miniworld cannot even be imported.
    """
    if _is_headless():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("PYGLET_HEADLESS", "true")


def _is_headless() -> bool:
    return sys.platform == "linux" and not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY")


def draw_without_window() -> None:
    """Let SDL (pygame) draw without a window if no driver was chosen and there is no screen.

    Call it before pygame is initialised. With a screen, the program may show windows of its own (render_mode="human").
    With the driver "dummy", highway-env returns black pictures. SDL has "offscreen" since pygame 2.5.
    """
    if _is_headless() and "SDL_VIDEODRIVER" not in os.environ:
        os.environ["SDL_VIDEODRIVER"] = "offscreen" if _pygame_version() >= (2, 5) else "dummy"


def _pygame_version() -> tuple[int, ...]:
    """Return the version of pygame-ce, or of pygame; () if neither is installed."""
    for package in ("pygame-ce", "pygame"):
        with suppress(PackageNotFoundError):
            return tuple(map(int, re.findall(r"\d+", version(package))))
    return ()


def gl_advice(error: BaseException) -> str:
    """Return the rest of a message: what to do about MUJOCO_GL if a renderer of MuJoCo has failed; otherwise ""."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    if not any(module.startswith(RENDERERS) for module in modules):
        return ""
    given, egl, glfw = os.environ.get("MUJOCO_GL"), "egl (without a screen; it needs libEGL)", "glfw (with a screen)"
    values = f"{egl} or {glfw}" if given == "disable" else f"{egl}, {glfw}, or disable (no pictures)"
    return (f". MuJoCo cannot draw with MUJOCO_GL={given or '(empty)'} here. Set MUJOCO_GL to {values}. `proximo "
            "doctor` checks what this machine has.")


def env_fps(env: Any) -> float | None:
    """Return the pictures per second that show an environment at its own speed: what its metadata says.

    There is one picture for each step, therefore a frame skip divides them. For dm_control, shimmy writes the
    milliseconds of a step into the metadata, so the time of a step is asked for. A game of PettingZoo may have no
    metadata.
    """
    given, layer, bare = (getattr(env, "metadata", None) or {}).get("render_fps"), env, env.unwrapped
    if type(bare).__module__ == "shimmy.dm_control_compatibility":
        given = 1 / bare._env.control_timestep()
    if not isinstance(given, Real) or not 0 < (fps := float(given)) < math.inf:
        return None
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, RepeatAction):
            fps /= layer.times
        layer = layer.env
    return fps


def render_env(env: Any) -> np.ndarray | None:
    """Return a picture (H, W, 3) uint8 of an environment, or None if it cannot draw one.

    `render_mode` is set here and not when the environment is made: with it, LunarLander steps at half the speed. An
    object without the base class of Gymnasium may lack `unwrapped` and `metadata`. A program's own function has made
    the environment without draw_without_window(): without a screen, SDL then writes an error to the terminal.
    """
    draw_without_window()
    bare = getattr(env, "unwrapped", env)
    mode = getattr(bare, "render_mode", None)
    if mode is None and "rgb_array" in (getattr(bare, "metadata", None) or {}).get("render_modes", ()):
        bare.render_mode = mode = "rgb_array"
    picture: Any = env.render() if mode == "rgb_array" else None
    return picture
