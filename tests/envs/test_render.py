"""Pictures of environments: the speed at which they are shown."""

import gymnasium
import numpy as np
import pytest

from proximo.envs.images import ImageSettings, with_image_settings
from proximo.envs.render import env_fps


@pytest.mark.parametrize(("given", "fps"), [
    (30, 30.0), (np.float32(12.5), 12.5), (None, None), (0, None), (-5, None), ("fast", None), (float("nan"), None),
    (float("inf"), None)])
def test_a_speed_that_is_no_number_is_left_out(given, fps):
    """A text ended training at the first video, with a traceback."""
    env = gymnasium.make("CartPole-v1")
    env.unwrapped.metadata = {"render_fps": given}
    assert env_fps(env) == fps


def test_a_frame_skip_divides_the_speed():
    env = with_image_settings(gymnasium.make("CartPole-v1"), ImageSettings(2, False, None, 1), "CartPole-v1")
    assert env_fps(env) == gymnasium.make("CartPole-v1").metadata["render_fps"] / 2
