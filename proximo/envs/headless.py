"""Pictures of MuJoCo without a screen."""

import os
import sys


def use_egl_when_headless() -> None:
    """Sets MUJOCO_GL=egl where nobody chose a renderer and no screen is there; call it before mujoco is imported."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")
