"""Whether the network that --model names and the settings of the policy fit the spaces of an environment."""

import math
from typing import Any

import gymnasium as gym
import numpy as np

from proximo.config import Config
from proximo.envs.arrays.image_axes import SMALLEST_IMAGE, image_axes, in_unit_interval
from proximo.envs.arrays.joint_actions import action_parts
from proximo.envs.arrays.obs_layout import Layout, Part, obs_layout
from proximo.errors import UsageError, notify

SCALED = ("squashed", "beta")  # distributions whose actions are scaled to the bounds; others are clipped to them
FEWEST_VALUES = 1000  # of float32 between the bounds: with fewer, actions are rounded to bounds, where atanh is large
LEAST_PIXELS = {"cnn": 36, "impala": SMALLEST_IMAGE}  # of a side
LEAST_FEATURES = 128  # of the network of an image that is a part of an observation


def packed_layout(envs: Any, cfg: Config) -> Layout | None:
    """Return the layout of rows that an encoder must take apart; None where a network reads observations as they are.

    Args:
        envs: Anything with observation_space.
        cfg: With `critic_obs`, vectors of floats must be taken apart too.
    """
    layout = obs_layout(envs.observation_space)
    return layout if layout is not None and (layout.dtype == np.uint8 or cfg.critic_obs) else None


def policy_parts(layout: Layout, cfg: Config) -> tuple[Part, ...]:
    """Return the parts that the policy sees: all but the key cfg.critic_obs."""
    return tuple(part for part in layout.parts if part.path[0] != cfg.critic_obs)


def all_parts(layout: Layout, cfg: Config) -> tuple[Part, ...]:
    """Return the parts that the value function sees, if it shares nothing with the policy."""
    return layout.parts


def least_inputs(envs: Any, cfg: Config) -> int:
    """Return how many numbers the first layer of a policy's mlp reads at least; arguments as for packed_layout."""
    layout = packed_layout(envs, cfg)
    if layout is None:
        return math.prod(envs.obs_shape)
    sizes = {"image": lambda part: LEAST_FEATURES, "discrete": lambda part: sum(part.choices),
             "vector": lambda part: part.shape[0]}
    return sum(sizes[part.kind](part) for part in policy_parts(layout, cfg))


def has_image_parts(envs: Any) -> bool:
    """Return whether a structured observation has images. Policy and value then share their network."""
    layout = obs_layout(envs.observation_space)
    return layout is not None and layout.has_images


def check_model(envs: Any, cfg: Config) -> None:
    """Raise UsageError if cfg.model does not fit the observations.

    Args:
        envs: Anything with obs_shape, obs_dtype and observation_space, as the network sees them.
        cfg: Its `model`, `env_id`, `norm_obs`, `policy_sizes`, `value_sizes` and `critic_obs` are read.
    """
    layout = packed_layout(envs, cfg)
    if cfg.critic_obs and (problem := _problem_of_critic(envs, cfg)):
        raise UsageError(problem)
    if layout is None:
        problem = "" if cfg.model == "mlp" else _problem_of_array(envs, cfg)
    else:
        problem = _problem_of_parts(layout, cfg)
    if problem:
        raise UsageError(problem)


def announce_images(envs: Any, cfg: Config) -> None:
    """Log which parts of structured observations get a convolutional network although --model is mlp."""
    if cfg.model == "mlp" and has_image_parts(envs):
        layout = packed_layout(envs, cfg)
        assert layout is not None
        images = [f"{part.name} {part.shape}" for part in layout.parts if part.kind == "image"]
        notify(f"{cfg.env_id}: unless you pass a network of your own, a small convolutional network reads "
               f"{' and '.join(images)}, and its features join the other parts. --model cnn or impala selects another "
               "one.")


def _problem_of_critic(envs: Any, cfg: Config) -> str:
    layout = obs_layout(envs.observation_space)
    keys = list(dict.fromkeys(part.path[0] for part in layout.parts)) if layout is not None else []
    if cfg.critic_obs not in keys:
        known = f"the keys {', '.join(map(str, keys))}" if keys else "no keys: they are not a Dict"
        return (f"critic_obs={cfg.critic_obs} is not a key of the observations of {cfg.env_id}, which have {known}. "
                "Name one of the keys, or leave critic_obs out.")
    if len(keys) == 1:
        return f"critic_obs={cfg.critic_obs} is the only key of the observations: the policy would see nothing."
    return (f"critic_obs={cfg.critic_obs} needs separate networks, but the observations of {cfg.env_id} have images, "
            "and policy and value share the network over them. Leave critic_obs out, or pass a make_agent of your own "
            "with two networks.") if has_image_parts(envs) else ""


def _problem_of_parts(layout: Layout, cfg: Config) -> str:
    if layout.has_images and (cfg.policy_sizes or cfg.value_sizes):
        return (f"policy_sizes and value_sizes have no effect: the observations of {cfg.env_id} have images, and "
                "policy and value share the network over them. Use --hidden-sizes.")
    if cfg.model == "mlp":
        return ""
    sides = [min(part.shape[1:]) for part in layout.parts if part.kind == "image"]
    if not sides:
        return (f"--model {cfg.model} needs images. The observations of {cfg.env_id} have none of at least "
                f"{SMALLEST_IMAGE}x{SMALLEST_IMAGE} pixels. Use --model mlp.")
    least = LEAST_PIXELS[cfg.model]
    return "" if min(sides) >= least else (
        f"--model {cfg.model} needs images with at least {least}x{least} pixels. An image of {cfg.env_id} has a side "
        f"of {min(sides)}. Use --model impala, or --model mlp, which puts a small network under each image.")


def _problem_of_array(envs: Any, cfg: Config) -> str:
    least, shape, dtype = LEAST_PIXELS[cfg.model], envs.obs_shape, np.dtype(envs.obs_dtype)
    space = envs.observation_space
    problem = (f"--model {cfg.model} needs images of at least {least}x{least} pixels: (H, W, C) or (C, H, W) of "
               "uint8 or of floats that the space bounds to [0, 1], or (H, W) of uint8. The observations of "
               f"{cfg.env_id} are {dtype} of shape {shape}.")
    if len(shape) != 3:
        return f"{problem} Use --model mlp."
    if cfg.norm_obs and dtype == np.float32 and (space is None or (image_axes(space) and not in_unit_interval(space))):
        return f"{problem} Use --no-norm-obs: the network divides the pixels by 255."
    if dtype != np.uint8 and not (space is not None and in_unit_interval(space)):
        return f"{problem} Return uint8, or declare the bounds 0 and 1; or use --model mlp."
    if min(shape[1:]) < least:
        return f"{problem} Use --model {'impala or --model ' * (min(shape[1:]) >= SMALLEST_IMAGE)}mlp."
    return ""


def action_problems(cfg: Config, space: gym.Space[Any]) -> list[str]:
    """Return what is wrong with the policy's settings for an action space, one sentence each."""
    if not isinstance(space, gym.spaces.Box):
        cause = "the Box parts of Dict and Tuple actions are Gaussians with log_std_init=0" \
            if any(isinstance(part, gym.spaces.Box) for part in action_parts(space)) else \
            f"{cfg.env_id} has no continuous actions"
        own = [f"This variant has its own distribution of Box actions, and those of {cfg.env_id} are {space}. Use "
               "ppo."] * cfg.limits.own_distribution
        return own + [f"{name}={getattr(cfg, name)} has no effect: {cause}. Leave {name} out."
                      for name in ("distribution", "state_dependent_std", "sde_sample_freq", "log_std_init")
                      if getattr(cfg, name) != getattr(Config, name)]
    return _problems_of_bounds(cfg, space) if cfg.distribution in SCALED else []


def _problems_of_bounds(cfg: Config, space: gym.spaces.Box) -> list[str]:
    """Return why a distribution between the bounds of every component cannot be made, as one sentence."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
        span, step = high - low, np.spacing(np.maximum(abs(low), abs(high)))
    wrong = np.argwhere(~(np.isfinite(span) & (span > FEWEST_VALUES * step)))
    if not len(wrong):
        return []
    where, more = tuple(wrong[0].tolist()), f" ({len(wrong)} components are like this)" * (len(wrong) > 1)
    return [f"distribution={cfg.distribution} needs finite bounds with low < high, a range that float32 holds, and "
            f"more than {FEWEST_VALUES:,} numbers of float32 between them. Component {list(where)} of the actions of "
            f"{cfg.env_id} lies between {space.low[where]:.7g} and {space.high[where]:.7g}{more}. Change the bounds, "
            "or use --distribution gaussian or gsde."]
