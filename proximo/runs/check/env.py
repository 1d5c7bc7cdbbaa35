"""`proximo check-env ID` and proximo.check_env: try the contract of environments on a user's own one."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from decimal import Decimal
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from proximo.config import Config
from proximo.envs.arrays.masks import LATE_MASK, mask_reader
from proximo.envs.arrays.obs_layout import brief
from proximo.envs.arrays.spaces import action_writer, read_space, scripted_action
from proximo.envs.custom.copies import EQUAL_DRAWS, SEED_DRAWS, Copies
from proximo.envs.custom.env_file import function_in_file, name_in_file
from proximo.envs.custom.factory import env_factory, env_name, make_new
from proximo.envs.gym_checks import check_envs, reset_answer, step_answer
from proximo.envs.gym_loop import GymEnvs
from proximo.envs.gym_source import env_source, make_from_source, named_source
from proximo.envs.mujoco import mujoco_id
from proximo.envs.time_limit import OWN_PORT, LimitedEnv, close_env, time_limit
from proximo.errors import AnswerError, EnvError, UsageError, with_place
from proximo.models.evaluate import MAX_STEPS
from proximo.problems import config_problems
from proximo.runs.check.many import function_findings
from proximo.runs.check.rows import Finding, failure, row_findings, shown_rate
from proximo.runs.check.value_ranges import ValueRanges, is_outside, unreached_actions
from proximo.runs.settings.choice import variant_by_name

STEPS = 5000  # of play, once an episode has ended
ENOUGH_SECONDS = 10.0  # of play, once an episode has ended
MOST_SECONDS = 60.0  # of play, if no episode ends
FAR = 1.5  # the largest action, where a Box has no bounds; untrained policies seldom choose others
ONE_WORKS = (f"Training with --num-envs 1 works, without --eval-every and --capture-video. {OWN_PORT} If a process can "
             "have only one, but several processes one each, train with as many --env-workers as --num-envs.")
BOOLEANS, NUMBERS = (bool, np.bool_), (int, float, np.integer, np.floating)


class Subject(NamedTuple):
    """The environment that is checked."""

    name: str
    make: Callable[[], gymnasium.Env[Any, Any]]
    make_rows: Callable[[list[int]], GymEnvs]  # from seeds, as for training


class RandomSteps(NamedTuple):
    """What was seen in some episodes of random actions."""

    steps: int
    ends: int
    both: int  # ends that were terminated and truncated at once
    outside: int  # observations outside the bounds of their space
    flags: dict[type, bool]  # types of terminated and truncated, and whether training takes them
    rewards: dict[type, bool]  # the same of the reward
    ranges: ValueRanges
    per_second: float


def check_env(env: Any = None, cfg: Config | None = None,
              make_envs: Callable[..., Any] | None = None) -> list[Finding]:
    """Play a few thousand random steps, and return what was found. See iter_findings."""
    return list(iter_findings(env, cfg or Config(), make_envs))


def iter_findings(env: Any, cfg: Config, make_envs: Callable[..., Any] | None = None) -> Iterator[Finding]:
    """Play a few thousand random steps, and yield what is found.

    Args:
        env: The id of a Gymnasium environment, a function that makes one, its class, or a gymnasium.Env. None: the
            environment of `cfg`, which may be that of make_envs in a file.
        cfg: Its `env_timeout` and the fields that choose, configure and wrap the environment are read.
        make_envs: (cfg, seeds) -> all environments, in place of `env`.

    Raises:
        UsageError: The environment cannot be made or has no spaces, or its id is not one of Gymnasium.
        EnvError: Making the environment fails for another reason.
    """
    cfg = replace(cfg, env_id=env) if isinstance(env, str) else cfg
    if wrong := config_problems(cfg):
        raise UsageError("\n".join(wrong))
    if make_envs is None and env is None and (make_envs := function_in_file(cfg)):
        cfg = replace(cfg, env_id=name_in_file(cfg)[0])
    if make_envs is not None:
        yield from function_findings(make_envs, cfg)
        return
    subject = _subject(env, cfg)
    one = subject.make()
    try:
        check_envs([one], subject.name)
        spaces_found = list(_space_findings(one, subject.name))
        yield from spaces_found
        if not any(finding.ok is False for finding in spaces_found):
            yield from _play_findings(one, subject.name)
            yield from _contract_findings(subject)
            if isinstance(env, gymnasium.Env) and Copies(env).draw_equally:
                yield Finding(False, EQUAL_DRAWS, SEED_DRAWS)
    except EnvError as error:
        yield failure(str(error))
    finally:
        fault = close_env(one, subject.name)
    if fault:
        yield Finding(None, fault, "Training ignores this, but what close() frees may be missing later.")


def _subject(env: Any, cfg: Config) -> Subject:
    make: Callable[[], gymnasium.Env[Any, Any]]
    if env is not None and not isinstance(env, str):
        source = named_source(cfg, env_name(env, cfg.env_kwargs))
        make = partial(make_new, env_factory(env), source, [])
    else:
        if (named := variant_by_name(cfg.env_id)) and not cfg.env_file:
            variant, what = named
            raise UsageError(f"check-env checks environments of Gymnasium, and {cfg.env_id} is {what}. Try it with "
                             f"`proximo train {variant} --env-id {cfg.env_id}`.")
        source = env_source(cfg, mujoco_id)
        make = partial(make_from_source, source)

    def make_limited() -> gymnasium.Env[Any, Any]:
        with time_limit(cfg.env_timeout, f"{source.name}: making it"):
            return LimitedEnv(make(), cfg.env_timeout, source.name)

    return Subject(name=source.name, make=make_limited,
                   make_rows=lambda seeds: GymEnvs(make_limited, seeds, source.name))


def _space_findings(env: gymnasium.Env[Any, Any], name: str) -> Iterator[Finding]:
    for what, look in (("observation", lambda: read_space(env.observation_space, name)),
                       ("action", lambda: action_writer(env.action_space, name))):
        try:
            look()
            yield Finding(True, f"the {what} space {brief(getattr(env, f'{what}_space'))} is supported")
        except UsageError as error:
            yield Finding(False, str(error), f"Wrap the environment so that its {what} space is one of these.")
            if what == "action":
                return
    if found := unreached_actions(env.action_space):
        squash = isinstance(env.action_space, spaces.Box) and env.action_space.is_bounded()
        yield Finding(None, found, "Rescale them to -1 to 1" + (", or train with --distribution squashed." if squash
                                                                else "."))
    elif isinstance(env.action_space, spaces.Box) and env.action_space.low.size:
        reach = max(abs(env.action_space.low).max(), abs(env.action_space.high).max())
        if reach > 5:
            yield Finding(None, f"actions reach up to {reach:g}",
                          "Rescale them to -1 to 1: untrained policies sample from there.")


def _play_findings(env: gymnasium.Env[Any, Any], name: str) -> Iterator[Finding]:
    played = _play(env, name)
    if played.ends == 0:
        endless = played.steps >= MAX_STEPS
        yield Finding(False if endless else None, f"no episode ended in {played.steps} steps of random actions",
                      "Register it with max_episode_steps, so that a time limit ends its episodes." if endless else
                      f"It is slow: only {MOST_SECONDS:.0f} s were played. Make sure that its episodes end.")
    else:
        yield Finding(True, f"{played.ends} episodes ended within the steps that were played")
    if played.both:
        yield Finding(None, f"{played.both} episodes were terminated and truncated at once",
                      "They count as terminated. Set truncated only if the task itself continues.")
    yield _type_finding("terminated and truncated", "booleans", BOOLEANS, played.flags, "Return bool(...).")
    yield _type_finding("rewards", "numbers", (*BOOLEANS, *NUMBERS), played.rewards,
                        "Return float(reward), or a weighted sum of several objectives.")
    if played.outside:
        yield Finding(None, f"{played.outside} observations were outside the bounds of their space",
                      "Widen the bounds. Training does not depend on them.")
    for what, advice in played.ranges.remarks():
        yield Finding(None, what, advice)
    yield Finding(True, f"{shown_rate(played.per_second)} steps per second in one process",
                  "--env-workers distributes slow environments over processes." if played.per_second < 2000 else "")


def _type_finding(what: str, right: str, types: tuple[type, ...], seen: dict[type, bool], advice: str) -> Finding:
    odd = ", ".join(sorted(kind.__name__ for kind in seen if not issubclass(kind, types)))
    if not odd:
        return Finding(True, f"{what} are {right}")
    taken = all(seen.values())
    return Finding(None if taken else False, f"{what} have the type {odd}",
                   f"{advice} Training converts them." if taken else advice)


def _play(env: gymnasium.Env[Any, Any], name: str) -> RandomSteps:
    """Play random episodes in the bare environment up to the limits above, without an end up to MAX_STEPS."""
    writer, rng, read_mask = action_writer(env.action_space, name), np.random.default_rng(0), mask_reader(env)
    ends = both = outside = steps = 0
    flags: dict[type, bool] = {}
    rewards: dict[type, bool] = {}
    ranges = ValueRanges(env.observation_space)
    try:
        observation, info = reset_answer(env.reset(seed=0), name)
        masked, begin = read_mask(observation, info) is not None, time.perf_counter()
        while (steps < (STEPS if ends else MAX_STEPS)
               and time.perf_counter() - begin < (ENOUGH_SECONDS if ends else MOST_SECONDS)):
            mask = read_mask(observation, info)
            if mask is not None and not masked:
                raise EnvError(f"{name}, step {steps}: {LATE_MASK}")
            action = writer(_one_action(env.action_space, mask, rng, steps)[None])[0]
            steps += 1  # errors name the step as training does, from 1
            answer = step_answer(env.step(action), f"{name}, step {steps}")
            begin = begin if steps > 1 else time.perf_counter()  # what is compiled before it is no time of play
            observation, reward, terminated, truncated, info = answer
            for value, seen in ((terminated, flags), (truncated, flags), (reward, rewards)):
                if type(value) not in seen:
                    number = seen is rewards and isinstance(value, (Real, Decimal))
                    array = np.asarray(float(value) if number else value)
                    seen[type(value)] = array.size == 1 and array.dtype.kind in "buif"
            if fault := ranges.count(observation, reward):
                raise EnvError(f"{name}, step {steps}: {fault}")
            outside += is_outside(env.observation_space, observation)
            both += bool(terminated and truncated)
            if terminated or truncated:
                ends += 1
                observation, info = reset_answer(env.reset(), name)
    except EnvError:
        raise
    except (Exception, SystemExit) as error:
        found = str(error) if isinstance(error, AnswerError) else with_place(error)
        raise EnvError(f"{name}, step {steps}: {found}") from error
    return RandomSteps(steps=steps, ends=ends, both=both, outside=outside, flags=flags, rewards=rewards,
                  ranges=ranges, per_second=(steps - 1) / (time.perf_counter() - begin))


def _one_action(space: spaces.Space[Any], mask: np.ndarray | None, rng: np.random.Generator, step: int) -> Any:
    """Return a random action; of a Box in two of 50 steps its bounds, to which the actions of a policy are clipped."""
    if isinstance(space, spaces.Box) and step % 50 >= 48:
        return np.clip(-FAR if step % 2 else FAR, space.low, space.high).astype(space.dtype)
    return scripted_action(space, mask, rng)


def _contract_findings(subject: Subject) -> Iterator[Finding]:
    """Check the environment as training sees it: GymEnvs checks shapes, dtypes, finiteness and masks at every step."""
    with ExitStack() as stack:
        try:
            one, two, other = (stack.enter_context(closing(subject.make_rows([seed]))) for seed in (1, 1, 2))
        except EnvError as error:
            yield Finding(False, f"a second one cannot be made while one is open: {error}", ONE_WORKS, ends=True)
            return
        yield from row_findings(one, two, other)
