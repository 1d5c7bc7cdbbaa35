"""`proximo check-env` and proximo.check_env for a function that makes all environments at once."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import numpy as np

from proximo.config import Config
from proximo.envs.arrays.obs_layout import brief
from proximo.envs.custom.suite import make_complete
from proximo.envs.time_limit import time_limit
from proximo.errors import EnvError
from proximo.models.evaluate import MAX_STEPS
from proximo.protocols import VecEnv
from proximo.runs.check.rows import Finding, failure, on_host, row_findings, scripted_actions, shown_rate

STEPS = 5000  # of all environments, once an episode has ended
ENDLESS = 2 * MAX_STEPS  # without the end of an episode, after which they count as endless
MOST_SECONDS = 20.0  # of play
ROWS = 2  # environments, or games, that are made


def function_findings(make_envs: Callable[..., Any], cfg: Config) -> Iterator[Finding]:
    """Make environments three times, play random steps in them, and yield what is found.

    Args:
        make_envs: (cfg, seeds) -> environments.
        cfg: The configuration that it gets, with as many environments as are made.

    Raises:
        UsageError: What is made, or what it returns, is not what training needs.
        EnvError: Making the environments fails.
    """
    rows = ROWS * getattr(make_envs, "rows_per_game", lambda cfg: 1)(cfg)
    cfg = replace(cfg, num_envs=rows)

    def make(first: int) -> VecEnv:
        with time_limit(cfg.env_timeout, f"{cfg.env_id}: making it"):
            return make_complete(make_envs, cfg, range(first, first + rows))

    with ExitStack() as stack:
        one, two, other = (stack.enter_context(closing(make(first))) for first in (1, 1, 1 + rows))
        try:
            yield Finding(True, f"the action space {brief(one.action_space)} is supported")
            yield play_finding(one, cfg)
            yield from row_findings(one, two, other)
        except EnvError as error:
            yield failure(str(error))
        except SystemExit as error:
            yield failure(f"{cfg.env_id} called sys.exit({'' if error.code is None else repr(error.code)})")


def play_finding(envs: VecEnv, cfg: Config) -> Finding:
    """Play random actions, and return how many episodes ended."""
    rng = np.random.default_rng(0)
    enough, most = (limit * envs.num_envs // ROWS for limit in (STEPS, ENDLESS))  # every agent of a game is a row
    with time_limit(cfg.env_timeout, f"{cfg.env_id}: reset()"):
        step = envs.reset()
    with time_limit(cfg.env_timeout, f"{cfg.env_id}: step()"):
        step = envs.step(scripted_actions(envs, step, rng))  # JAX compiles it, which is no time of play
    steps, ends = envs.num_envs, int(on_host(step.episode.finished).sum())
    begin = time.perf_counter()
    while steps < (enough if ends else most) and time.perf_counter() - begin < MOST_SECONDS:
        with time_limit(cfg.env_timeout, f"{cfg.env_id}: step()"):
            step = envs.step(scripted_actions(envs, step, rng))
        steps += envs.num_envs
        ends += int(on_host(step.episode.finished).sum())
    seconds = time.perf_counter() - begin
    if ends:
        return Finding(True, f"{ends} episodes ended in {steps} steps of random actions, {shown_rate(steps / seconds)} "
                             f"steps per second of {envs.num_envs} environments")
    endless = steps >= most
    return Finding(False if endless else None, f"no episode ended in {steps} steps of random actions",
                   "Give episodes a time limit (truncated), so that they end." if endless else
                   f"It is slow: only {MOST_SECONDS:.0f} s were played. Make sure that its episodes end.")
