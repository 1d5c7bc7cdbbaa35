"""Pictures of environments: the speed at which they are shown, and how they are drawn without a screen."""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError

import gymnasium
import numpy as np
import pytest

from proximo.config import Config
from proximo.envs import render
from proximo.envs.images import ImageSettings, with_image_settings
from proximo.envs.parallel_env import from_parallel_env
from proximo.envs.render import draw_without_window, env_fps
from tests.support.games import Corridor


@pytest.mark.parametrize(("given", "fps"), [
    (30, 30.0), (np.float32(12.5), 12.5), (None, None), (0, None), (-5, None), ("fast", None), (float("nan"), None),
    (float("inf"), None)])
def test_a_speed_that_is_no_number_is_left_out(given, fps):
    """A text ended training at the first video, with a traceback."""
    env = gymnasium.make("CartPole-v1")
    env.unwrapped.metadata = {"render_fps": given}
    assert env_fps(env) == fps


def test_a_game_without_metadata_has_no_speed(monkeypatch):
    """ParallelEnv of PettingZoo declares `metadata` and gives it no value; a video of such a game ended with a traceback."""
    monkeypatch.delattr(Corridor, "metadata")
    games = from_parallel_env(Corridor)(Config(), [0, 0, 0])
    assert games.render_fps is None
    games.close()


def test_a_frame_skip_divides_the_speed():
    env = with_image_settings(gymnasium.make("CartPole-v1"), ImageSettings(2, False, None, 1), "CartPole-v1")
    assert env_fps(env) == gymnasium.make("CartPole-v1").metadata["render_fps"] / 2


@pytest.mark.parametrize(("platform", "versions", "driver"), [
    ("linux", {"pygame-ce": "2.5.8"}, "offscreen"), ("linux", {"pygame": "2.6.1"}, "offscreen"),
    ("linux", {"pygame": "2.1.3.dev8"}, "dummy"), ("linux", {}, "dummy"), ("darwin", {"pygame-ce": "2.5.8"}, None)])
def test_the_driver_of_sdl(platform, versions, driver, monkeypatch):
    """What draws nothing under "dummy", such as highway-env, draws; where SDL has no other driver, it stays."""
    def version(package):
        if package in versions:
            return versions[package]
        raise PackageNotFoundError

    monkeypatch.setattr(render.sys, "platform", platform)
    monkeypatch.setattr(render, "version", version)
    without_screen(monkeypatch)
    draw_without_window()
    assert os.environ.get("SDL_VIDEODRIVER") == driver


def without_screen(monkeypatch):
    """Remove what names a screen or a driver of SDL; what is set later is removed when the test ends."""
    for name in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)


@pytest.mark.parametrize("screen", ["DISPLAY", "WAYLAND_DISPLAY"])
def test_with_a_screen_sdl_has_its_own_driver(screen, monkeypatch):
    """A program that trains and then shows an environment with render_mode="human" sees a window."""
    without_screen(monkeypatch)
    monkeypatch.setenv(screen, ":0")
    draw_without_window()
    assert "SDL_VIDEODRIVER" not in os.environ


def test_the_users_driver_of_sdl_stays(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    draw_without_window()
    assert os.environ["SDL_VIDEODRIVER"] == "x11"


@pytest.mark.parametrize("made", ["make_gym(Config(), [1])", "make_from_factory(CartPoleEnv, Config(), [1])"])
def test_an_environment_that_draws_nothing_with_the_driver_dummy(made, tmp_path):
    """In a new process, with the driver that is set when an environment is made, or drawn: pygame's, and a picture."""
    pytest.importorskip("pygame")
    program = ("import os; from proximo import Config; from proximo.envs.gym import make_gym; "
               "from proximo.envs.custom.factory import make_from_factory; "
               "from gymnasium.envs.classic_control import CartPoleEnv; "
               f"envs = {made}; envs.reset(); picture = envs.render(); import pygame; "
               "assert pygame.display.get_driver() == os.environ['SDL_VIDEODRIVER'], pygame.display.get_driver(); "
               "assert picture.std() > 1")
    environ = {key: value for key, value in os.environ.items() if key not in ("SDL_VIDEODRIVER", "DISPLAY")}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True,
                          env={**environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr
    assert "XDG_RUNTIME_DIR" not in done.stderr
