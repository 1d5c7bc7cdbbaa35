"""What Gymnasium environments return: which deviations are converted, and which are faults."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import NormalizeObservation, NormalizeReward

from proximo.envs.arrays.obs_faults import cast_array
from proximo.envs.arrays.obs_layout import leaves
from proximo.envs.arrays.spaces import OF_GYM, ObsReader, answer_fault
from proximo.errors import EnvError, UsageError, warn_once

NORMALIZERS = {NormalizeObservation: "norm_obs", NormalizeReward: "norm_reward"}  # and the field that does the same
SMALL_SQUARES = 1e76  # a sum of squares below it has no number beyond the range of float32, which ends at 3.4e38


def not_an_env(made: Any) -> str:
    """Return what was made in place of a gymnasium.Env, and what to do, as the end of a sentence."""
    old = OF_GYM if hasattr(made, "step") and hasattr(made, "reset") and not place_for(made) else ""
    return f"a {type(made).__name__}; a gymnasium.Env is needed{old}.{place_for(made)}"


def of_rllib(env: Any) -> str:
    """Return how a MultiAgentEnv of RLlib is passed, in sentences; "" for other environments. RLlib is not imported."""
    if not any(kind.__name__ == "MultiAgentEnv" for kind in type(env).__mro__):
        return ""
    return (f"{type(env).__name__} is a MultiAgentEnv of RLlib. Its agents share a policy with "
            "proximo.train(make_envs=from_parallel_env(FUNCTION)); docs/add-an-environment.md (Several agents) has the "
            "adapter to PettingZoo's ParallelEnv that FUNCTION needs.")


def place_for(made: Any) -> str:
    """Return how environments of another kind are passed, as a sentence after a space; "" if the kind is not known."""
    if hasattr(made, "possible_agents"):
        return (" Agents of a PettingZoo game share a policy with proximo.train(make_envs=from_parallel_env(FUNCTION)),"
                " see docs/add-an-environment.md.")
    if hasattr(made, "initial") and hasattr(made, "transition"):
        return (" A functional environment is passed as proximo.train(make_envs=from_func_env(ENV)), see "
                "docs/batched-environments.md.")
    if isinstance(made, gym.vector.VectorEnv):
        return (" A VectorEnv is passed as proximo.train(make_envs=lambda cfg, seeds: gymnasium.make_vec(ID, "
                "num_envs=len(seeds))), see docs/batched-environments.md.")
    return ""


def check_envs(envs: list[gym.Env], env_id: str) -> None:
    """Check that environments have the same spaces, and that they are different objects.

    Warns of wrappers that normalise: a model does not contain their statistics.

    Args:
        envs: The environments. Bounds of their observations may differ.
        env_id: Their id, for error messages.

    Raises:
        UsageError: They have no spaces or different ones, or two of them are or wrap the same environment.
    """
    first = envs[0]
    if len({id(env.unwrapped) for env in envs}) < len(envs):
        raise UsageError(f"{env_id}: two of the {len(envs)} environments are the same object. The function or the "
                         "wrapper that makes them must make a new one at each call.")
    if sentence := of_rllib(first.unwrapped):
        raise UsageError(sentence)
    if missing := [name for name in ("observation_space", "action_space") if getattr(first, name, None) is None]:
        raise UsageError(f"{env_id} has no {' and no '.join(missing)}. Set self.{missing[0]} to a space of "
                         "gymnasium.spaces when the environment is made.")
    for i, env in enumerate(envs[1:], 1):
        for what, one, other in (("observation", first.observation_space, env.observation_space),
                                 ("action", first.action_space, env.action_space)):
            same = one == other and [path for path, _ in leaves(one)] == [path for path, _ in leaves(other)]
            if one is not other and not same and not (what == "observation" and same_layout(one, other)):
                raise UsageError(f"{env_id}: environment {i} has the {what} space {other}, and environment 0 has "
                                 f"{one}. All environments of a run need the same spaces, with keys in the same order.")
    layer = first
    while isinstance(layer, gym.Wrapper):
        if field := NORMALIZERS.get(type(layer)):
            warn_once(f"{env_id} is wrapped in {type(layer).__name__}. The model does not contain its statistics: "
                      "evaluations, and environments that are made again, begin without them. Remove the wrapper and "
                      f"use {field}=True (--{field.replace('_', '-')}).")
        layer = layer.env


def same_layout(one: spaces.Space[Any], other: spaces.Space[Any]) -> bool:
    """Return whether two spaces are equal but for the bounds of Boxes, also of those in a Dict or Tuple."""
    if isinstance(one, spaces.Dict) and isinstance(other, spaces.Dict):
        return [*one] == [*other] and all(same_layout(one[name], other[name]) for name in one)
    if isinstance(one, spaces.Tuple) and isinstance(other, spaces.Tuple):
        return len(one) == len(other) and all(map(same_layout, one, other))
    if isinstance(one, spaces.Box) and isinstance(other, spaces.Box):
        return (one.shape, one.dtype) == (other.shape, other.dtype)
    return one == other


def wrong_numbers(reward: np.ndarray, obs: np.ndarray, floats: np.ndarray) -> tuple[int, str] | None:
    """Return the first row whose reward or observation is not finite in float32, and what is wrong with it.

    A sum of squares is finite only if all numbers are, and takes 0.5 us for small observations.

    Args:
        reward: (N,) float64, as the environments returned them.
        obs: (N, ...).
        floats: All numbers of `obs` on one axis; none if they are integers.
    """
    if floats.itemsize == 2:  # float16, whose squares overflow from 256 on
        floats = floats.astype(np.float32)
    if isfinite(floats.dot(floats)) and reward.dot(reward) < SMALL_SQUARES:
        return None
    for i in range(len(reward)):
        if not abs(reward[i]) <= np.finfo(np.float32).max:
            return i, f"reward is {reward[i]:g}; it must be a finite number of float32, whose range ends at 3.4e38"
        if np.issubdtype(obs.dtype, np.floating) and not (finite := np.isfinite(obs[i])).all():
            first = finite.argmin()
            return i, (f"observation is not finite in {obs.dtype}: number {first} of it, counted from 0, is "
                       f"{obs[i].flat[first]:g}. Fill in unknown numbers, and keep the others within its range")
    return None


def reset_answer(answer: Any, env_id: str) -> tuple[Any, dict[str, Any]]:
    """Return what reset() returned, if it is (observation, info); EnvError for anything else."""
    if isinstance(answer, (tuple, list)) and len(answer) == 2 and isinstance(answer[1], Mapping):
        return answer[0], dict(answer[1])
    raise EnvError(f"{env_id}: reset returned a {type(answer).__name__}; it must return (observation, info), and info "
                   f"must be a dict{'' if isinstance(answer, tuple) else OF_GYM}.")


def step_answer(answer: Any, where: str) -> tuple[Any, ...]:
    """Return what step() returned, if it is five values, as training takes them; EnvError for anything else."""
    if isinstance(answer, (tuple, list)) and len(answer) == 5:
        return tuple(answer)
    raise EnvError(f"{where}: {answer_fault(answer)}")


def terminal(terminated: Any, env_id: str, truncated: Any) -> bool:
    """Return `terminated`; ValueError if it or `truncated` is no boolean and no number, or NaN."""
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        given = np.asarray(flag)  # also of a tensor
        if isinstance(flag, (list, tuple)) or given.dtype.kind not in "buif" or (given != given).any():
            raise ValueError(f"{name} is {flag!r}; it must be True or False")
    return bool(terminated)


def converted_answer(answer: Any, env_id: str) -> tuple[Any, ...]:
    """Return what step() returned with its reward as a number, if it is an array of one number.

    Raises:
        ValueError: There are not five values, or the reward is no number.
    """
    if isinstance(answer, tuple) and len(answer) == 5:
        reward = np.asarray(answer[1])
        if reward.size == 1 and reward.dtype.kind in "biuf":
            warn_once(f"{env_id}: rewards are arrays of shape {reward.shape}, which are converted to numbers. Return "
                      "float(reward).")
            return answer[0], float(reward.reshape(())), *answer[2:]
    raise ValueError(answer_fault(answer))


def converted_obs(value: Any, env_id: str, reader: ObsReader) -> np.ndarray:
    """Return an observation as an array of its space. Lists and other dtypes are converted where no number is lost.

    Args:
        value: What the environment returned, or flattening made of it.
        env_id: The id of the environment, for the warning.
        reader: Has shape and dtype of the space.

    Raises:
        ValueError: The shape is another one, or the conversion would change more than the precision of floats.
    """
    shape, dtype = reader.native_shape, reader.native_dtype
    return cast_array(shape, dtype, value, "observation", env_id)
