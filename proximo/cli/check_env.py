"""`proximo check-env ID`: the contract tried on a user's own environment, told in plain words."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from proximo.catalog import variant_by_name
from proximo.config import Config
from proximo.envs.gym import make_gym_rows
from proximo.envs.gym_ids import make_one
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.masks import mask_parts, mask_row
from proximo.envs.mujoco import mujoco_id
from proximo.envs.spaces import action_writer, read_space, scripted_action
from proximo.errors import EnvError, UsageError

STEPS = 5000
"""steps without an end after which an environment is called endless"""


class Finding(NamedTuple):
    """One thing looked at; `ok` None where it could not be told."""

    ok: bool | None
    what: str
    advice: str = ""


class Played(NamedTuple):
    """What some episodes of random actions showed."""

    ends: int
    both: int  # ends with terminated and truncated at once
    outside: int  # observations outside their space's bounds
    flags: set[str]  # types of terminated and truncated
    rewards: set[str]  # types of reward
    per_second: float


def check_env(env_id: str, cfg: Config | None = None) -> list[Finding]:
    """Plays a few thousand random steps. Raises UsageError for an id that cannot be made, or that is no Gymnasium
    environment; all else is a finding."""
    if named := variant_by_name(env_id):
        variant, what = named
        raise UsageError(f"check-env tries Gymnasium environments, and {env_id} is {what}; try it with "
                         f"`proximo train {variant} --env-id {env_id}`")
    name = mujoco_id(replace(cfg or Config(), env_id=env_id).env_id)
    env = make_one(name)
    findings = list(_spaces(env, name))
    if not any(finding.ok is False for finding in findings):
        try:
            findings += _play_findings(env, name)
            findings += _contract_findings(name)
        except EnvError as error:
            findings.append(Finding(False, str(error), "mend the environment; training would stop there too"))
    env.close()
    return findings


def _spaces(env: gymnasium.Env, name: str) -> Iterator[Finding]:
    for what, look in (("observation", lambda: read_space(env.observation_space, name)),
                       ("action", lambda: action_writer(env.action_space, name))):
        try:
            look()
            yield Finding(True, f"the {what} space {getattr(env, f'{what}_space')} can be learned from")
        except UsageError as error:
            yield Finding(False, str(error), f"wrap the environment so that its {what} space is one of these")
    if isinstance(env.action_space, spaces.Box):
        reach = max(abs(env.action_space.low).max(), abs(env.action_space.high).max())
        if reach > 5:
            yield Finding(None, f"the actions reach to {reach:g}", "rescale them to -1 to 1, where policies begin")


def _play_findings(env: gymnasium.Env, name: str) -> Iterator[Finding]:
    played = _played(env, name)
    if played.ends == 0:
        yield Finding(False, f"no episode ended in {STEPS} steps of random actions",
                      "register it with max_episode_steps, so that a time limit ends it")
    else:
        yield Finding(True, f"{played.ends} episodes ended in the steps played")
    if played.both:
        yield Finding(None, f"{played.both} ends were terminated and truncated at once",
                      "counted as terminated; set truncated only where the task itself goes on")
    odd = played.flags - {"bool", "bool_"}
    yield Finding(not odd, "terminated and truncated are booleans" if not odd else
                  f"terminated or truncated is a {', '.join(sorted(odd))}", "" if not odd else "return bool(...)")
    number = played.rewards <= {"int", "float", "float64", "float32", "int64", "bool", "int32"}
    yield Finding(number, f"rewards are numbers ({', '.join(sorted(played.rewards))})" if number else
                  f"rewards are {', '.join(sorted(played.rewards))}", "" if number else "return float(reward)")
    if played.outside:
        yield Finding(None, f"{played.outside} observations lay outside the bounds of their space",
                      "training does not need the bounds, but widen them")
    yield Finding(True, f"{played.per_second:.0f} steps a second in one process",
                  "--env-workers spreads slow environments over processes" if played.per_second < 2000 else "")


def _played(env: gymnasium.Env, name: str) -> Played:
    """Random episodes of the bare environment, for up to STEPS steps or 10 seconds after the first end."""
    writer, rng = action_writer(env.action_space, name), np.random.default_rng(0)
    ends = both = outside = steps = 0
    flags, rewards, begin = set(), set(), time.perf_counter()
    try:
        observation, info = env.reset(seed=0)
        while steps < STEPS and (time.perf_counter() - begin < 10 or not ends) and time.perf_counter() - begin < 60:
            mask = _mask_of(observation, info, env.action_space)
            action = writer(scripted_action(env.action_space, mask, rng)[None])[0]
            observation, reward, terminated, truncated, info = env.step(action)
            steps += 1
            flags |= {type(terminated).__name__, type(truncated).__name__}
            rewards.add(type(reward).__name__)
            outside += not env.observation_space.contains(observation)
            both += bool(terminated and truncated)
            if terminated or truncated:
                ends += 1
                observation, info = env.reset()
    except Exception as error:
        raise EnvError(f"{name}, step {steps}: {type(error).__name__}: {error}") from error
    return Played(ends, both, outside, flags, rewards, steps / (time.perf_counter() - begin))


def _mask_of(observation: Any, info: dict, space: spaces.Space) -> np.ndarray | None:
    given = observation.get("action_mask") if isinstance(observation, dict) else info.get("action_mask")
    parts = mask_parts(space)
    return None if given is None or parts is None else mask_row(given, int(parts.sum()))


def _contract_findings(name: str) -> Iterator[Finding]:
    """As training will see it: shapes, dtypes, finiteness and masks are checked at every step of GymEnvs."""
    one, two, other = (make_gym_rows(name, "same-step", [seed]) for seed in (1, 1, 2))
    seen = _track(one)
    masked = ", with an action_mask" if one.reset().mask is not None else ""
    yield Finding(True, f"observations {one.obs_shape} {one.obs_dtype} and rewards are finite and well formed{masked}")
    equal = all(map(np.array_equal, seen, _track(two)))
    yield Finding(equal, "the same seed gives the same episode" if equal else "the same seed gives different episodes",
                  "" if equal else "draw only from self.np_random, and call super().reset(seed=seed) in reset")
    if equal:
        differs = not all(map(np.array_equal, seen, _track(other)))
        yield Finding(True if differs else None, "different seeds give different episodes" if differs else
                      "different seeds give the same episode",
                      "" if differs else "right if nothing in it is random; else reset ignores its seed")
    one.reset()
    kept = one.state() is not None
    yield Finding(True if kept else None, "its state can be kept: resumed runs continue exactly" if kept else
                  "its state cannot be kept", "" if kept else
                  "runs rebuild it at each checkpoint (--checkpoint-every), so resuming is exact all the same")
    for envs in (one, two, other):
        envs.close()


def _track(envs: GymEnvs, steps: int = 200) -> list[np.ndarray]:
    """Observations and rewards of scripted random play, from reset on."""
    rng, step = np.random.default_rng(0), envs.reset()
    track = [step.obs.copy()]
    for _ in range(steps):
        mask = None if step.mask is None else step.mask[0]
        step = envs.step(scripted_action(envs.action_space, mask, rng)[None])
        track += [step.obs.copy(), step.reward.copy()]
    return track
