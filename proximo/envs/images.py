"""Images of any Gymnasium environment: repeated actions, luminance, another size, and stacks of observations."""

from copy import deepcopy
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import GrayscaleObservation, ResizeObservation

from proximo.envs.arrays.image_axes import SMALLEST_IMAGE, Axes, channels_first, image_axes, is_image_part
from proximo.envs.arrays.obs_layout import brief, leaves, title, without_mask
from proximo.errors import UsageError
from proximo.protocols import FrameStack


class ImageSettings(NamedTuple):
    """The fields of a configuration that change what is seen of an environment."""

    frame_skip: int = 1
    grayscale: bool = False
    resize: int | None = None
    frame_stack: int = 1


PLAIN = ImageSettings()


def with_image_settings(env: gym.Env, settings: ImageSettings, name: str) -> gym.Env:
    """Repeat actions, then convert to luminance, resize and stack, in this order.

    Of a Dict or Tuple that has one image, these apply to the image.

    Args:
        env: The environment.
        settings: What to apply.
        name: Of the environment, for messages.

    Raises:
        UsageError: A setting needs images and the observations are none, or they have several; or OpenCV is missing.
    """
    if settings.frame_skip > 1:
        env = RepeatAction(env, settings.frame_skip)
    if settings.grayscale or settings.resize is not None or settings.frame_stack > 1:
        env = _with_changed_part(env, settings, name)
    return env


def _with_changed_part(env: gym.Env, settings: ImageSettings, name: str) -> gym.Env:
    """Change the only image of a Dict or Tuple, or an observation of one array."""
    space = env.observation_space
    images = [path for path, part in leaves(without_mask(space)) if path and is_image_part(part)]
    if not images:
        return _with_changed_images(env, settings, name)
    if len(images) > 1:
        raise UsageError(f"{' and '.join(_wanted(settings))} can change one image, and {name} has {len(images)}: "
                         f"{' and '.join(map(title, images))}. Change them in a wrapper of your own instead "
                         "(--env-wrappers).")
    from proximo.envs.image_part import AllParts, OnePart  # few environments need them

    path, = images
    changed = _with_changed_images(OnePart(env, path), settings, f"{title(path)} of {name}")
    if not is_image_part(changed.observation_space):
        raise UsageError(f"resize={settings.resize} makes {title(path)} of {name} too small for an image, which has at "
                         f"least {SMALLEST_IMAGE}x{SMALLEST_IMAGE} pixels. Use a larger --resize.")
    return AllParts(changed, space, path)


def _wanted(settings: ImageSettings) -> list[str]:
    """Return the settings that change observations, as texts."""
    return [f"{name}={value}" for name, value, plain in zip(ImageSettings._fields, settings, PLAIN)
            if value != plain and name != "frame_skip"]


def _with_changed_images(env: gym.Env, settings: ImageSettings, name: str) -> gym.Env:
    if settings.grayscale:
        _check_image(env, "grayscale", (3,), name)
        env = GrayscaleObservation(env, keep_dim=True)
    if settings.resize is not None:
        _check_image(env, "resize", (1, 3, 4), name)
        env = _resized(env, settings.resize)
    if settings.frame_stack > 1:
        if not isinstance(env.observation_space, spaces.Box) or not env.observation_space.shape:
            masked = isinstance(env.observation_space, spaces.Dict) and "action_mask" in env.observation_space.spaces
            advice = "stack within the environment, which keeps its action_mask" if masked else (
                "stack within the environment, or flatten observations without images: --env-wrappers "
                "gymnasium.wrappers:FlattenObservation")
            raise UsageError(f"frame_stack={settings.frame_stack} stacks arrays, and {name} has the observation space "
                             f"{env.observation_space}. Leave --frame-stack out, or {advice}.")
        env = StackObservations(env, settings.frame_stack)
        if image_axes(env.observation_space) == "last":
            raise UsageError(f"frame_stack={settings.frame_stack} makes images of {name} of the shape "
                             f"{env.observation_space.shape}, in which the channels cannot be told from the columns. "
                             "Stack fewer frames, or use --grayscale or --resize.")
    return env


def _resized(env: gym.Env, side: int) -> gym.Env:
    try:
        return ResizeObservation(env, (side, side))
    except gym.error.DependencyNotInstalled as error:
        raise UsageError(f"resize={side} needs OpenCV, which is not installed. Install it (pip install "
                         "opencv-python-headless), or leave --resize out.") from error


def check_repeats(env: gym.Env, name: str) -> None:
    """Raise UsageError if actions of an environment with masks are repeated: the next mask may forbid them."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, RepeatAction):
            raise UsageError(f"frame_skip={env.times} repeats actions, and {name} returns an action_mask, which may "
                             "forbid an action after its first time. Leave --frame-skip out, or repeat actions within "
                             "the environment.")
        env = env.env


def frames_of(env: gym.Env, axes: Axes) -> FrameStack | None:
    """Return the stack of frames that the images of an environment are; None if they are not stacked.

    Args:
        env: The environment.
        axes: Where its images have their channels.
    """
    return env.frames if isinstance(env, StackObservations) and axes == "first" else None


def _check_image(env: gym.Env, field: str, channels: tuple[int, ...], name: str) -> None:
    space = env.observation_space
    shape = space.shape if isinstance(space, spaces.Box) and space.dtype == np.uint8 else None
    if shape is None or len(shape) != 3 or shape[2] not in channels:
        raise UsageError(f"{field} needs uint8 images (height, width, {' or '.join(map(str, channels))}), and {name} "
                         f"has the observation space {space}. Leave --{field} out, or wrap the environment.")
    if (space.low != 0).any() or (space.high != 255).any():  # type: ignore[attr-defined]
        raise UsageError(f"{field} needs images with the bounds 0 and 255, and {name} has the observation space "
                         f"{brief(space)}. Declare these bounds, or leave --{field} out.")


class RepeatAction(gym.Wrapper[Any, Any, Any, Any]):
    """Take each action several times, until the episode ends; the reward is the sum.

    Each time the environment gets a copy, because it may change its action in place.
    """

    def __init__(self, env: gym.Env, times: int) -> None:
        super().__init__(env)
        self._times = times

    @property
    def times(self) -> int:
        """How often each action is taken."""
        return self._times

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """See gymnasium.Env.step. Observation and info are the last ones; so is a reward that is no number."""
        total: Any = 0.0
        for _ in range(self._times):
            obs, reward, terminated, truncated, info = self.env.step(deepcopy(action))
            if np.asarray(reward).dtype.kind not in "biuf":
                return obs, reward, terminated, truncated, info
            total = total + np.asarray(reward, np.float64)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


class StackObservations(gym.Wrapper[Any, Any, Any, Any]):
    """Join the last observations along the first axis, the newest last.

    Of images (image_axes.py) this is the axis of channels: (84, 84) becomes (4, 84, 84), and (64, 64, 3) becomes
    (12, 64, 64). At the beginning of an episode the first observation is repeated.
    """

    def __init__(self, env: gym.Env, count: int) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        self._axes = image_axes(space)
        low, high = (np.concatenate([self._first_axis(bound)] * count) for bound in (space.low, space.high))
        self.observation_space = spaces.Box(low, high, dtype=space.dtype)
        self._stack, self._count = np.zeros_like(low), count

    @property
    def frames(self) -> FrameStack:
        return FrameStack(length=self._count, channels=len(self._stack) // self._count)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        self._stack = np.concatenate([self._first_axis(obs)] * self._count)
        return self._stack.copy(), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        newest = self._first_axis(obs)
        self._stack = np.concatenate([self._stack[len(newest):], newest])
        return self._stack.copy(), reward, terminated, truncated, info

    def _first_axis(self, obs: Any) -> np.ndarray:
        return channels_first(self._axes, np.asarray(obs))
